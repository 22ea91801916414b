"""Frequent small words of some languages, by which a whole file is recognised, and the names of languages."""

from __future__ import annotations

# Two-letter code -> the language's frequent small words. Written for recognition: words that are frequent in every
# kind of text and that close relatives spell otherwise are worth most.
FUNCTION_WORDS: dict[str, frozenset[str]] = {
    code: frozenset(words.split())
    for code, words in {
        "en": "the of and to in is that for it on with are was this have be not as by from they you he at which his "
        "we an or their has had what there been would who will if one all no do she my your me were a i",
        "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an er hat aus "
        "sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur bis ich wir",
        "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont avec son "
        "cette mais ont aux nous vous je elle ou leur être fait était ces sa d l qu n s tout comme même",
        "es": "de la que el en y a los se del las un por con no una su para es al lo como más pero sus le ya o este sí "
        "porque esta son entre está cuando muy sin sobre también hasta hay donde han yo él fue ser",
        "it": "di che e la il un a per in è una sono mi non si ho lo ha con ti le da no se ma come i ci questo della "
        "nel al gli del più dei alla delle anche io dal suo nella sua questa essere perché degli",
        "pt": "de que não o a e do da em um para é com uma os no se na por mais as dos como mas foi ao ele das tem seu "
        "sua ou ser quando muito há nos já está eu também pelo pela até isso ela entre são você",
        "nl": "de het een en van ik te dat die in je is niet zijn op aan met voor er hij maar ook wat als ze om dan "
        "naar bij uit nog deze of door over heeft worden dit wordt hebben ben werd was we geen",
        "sv": "och det att i en jag hon som han på den med var sig för så till är men ett om hade de av icke mig du "
        "henne då sin nu har inte hans honom skulle hennes där min man ej vid kunde något från ut när efter upp vi",
        "da": "og det at i en jeg hun som han på den med var sig for så til er men et om havde de af ikke mig du "
        "hende da sin nu har hans ham skulle hendes der min man ved kunne noget fra ud når efter op vi dem eller også",
        "no": "og det at i en jeg hun som han på den med var seg for så til er men et om hadde de av ikke meg du "
        "henne da sin nå har hans ham skulle hennes der min man ved kunne noe fra ut når etter opp vi dem eller også",
        "is": "og að í er á sem til um við en það ekki með af hann var því fyrir þá hún ég eru þar frá hafa þeir svo "
        "verið eða eftir þetta hefur þess sér vera upp voru þú mér",
        "fi": "ja on ei se että hän oli joka mutta ovat kun niin myös tämä jos kuin sen ole hänen minä mitä voi olla "
        "sitä ne siitä mukaan tai joita kanssa jotka ollut vain tämän nyt sinä me olen",
        "et": "ja on ei see et ta oli kui mis ka aga need siis või ning nii kes seda ma selle oma mitte veel ole kõik "
        "tema pole väga välja üle nagu juba olid saab sest sa",
        "pl": "i w na z do nie się że to jest o jak ale za po co tak od jego czy dla ma przez przy jej był było są być "
        "tego tym już tylko go ich te który która które ja mi oraz lub pan",
        "cs": "a v se na je že to s z do i o jako za k jsem by ale ve jsou po pro jeho jak byl od když tak která který "
        "jen není už bylo nebo být co byla při si ze jsme mezi jeho tento",
        "sk": "a v sa na je že to s z do i o ako za k som by ale vo sú po pre jeho bol od keď tak ktorá ktorý len nie "
        "už bolo alebo byť čo bola pri si zo sme medzi tento aj ktoré",
        "sl": "in je v da se na za so ki z ne ni po tudi pa s bi kot od do ali pri še bil iz to če sem sta kar ob bo "
        "več vse lahko bila kako samo med zelo sta ker",
        "hr": "i je u da se na za su od s ne a o koji to što ili kao iz do bi sam po ali koja nije biti koje samo još "
        "kako bio sve ako može kod između te već prema",
        "hu": "a az és hogy nem is egy ez van meg volt csak de el azt mint már ha még vagy nagyon ki kell lesz én be "
        "ezt minden lehet fel mert úgy után olyan ami akkor aki",
        "ro": "de și în a la cu nu că pe o care un din mai să este au pentru sau dar ce fi prin ca se s-a sunt fost "
        "după lui ei între acest această al ale le lor era cum când",
        "tr": "ve bir bu da de için ile ne çok o daha gibi olarak en kadar var ama ben sonra değil her olan mi ki "
        "olduğu ya yok benim sen şey ise biz onu onun veya",
        "lv": "un ir ka no uz ar par to es bet tas vai kas pie kā viņš nav tā gan lai pēc tiek ļoti arī jau bija mēs "
        "šis var būt līdz jūs šo",
        "lt": "ir yra kad į iš tai su kaip bet ar nuo aš jis apie per buvo už jo tik prie po mes jau dar labai taip "
        "kurie savo nėra gali būti to",
        "el": "και το να του η της με που την από για τα είναι των σε ο οι στο θα τη στην τον δεν τους ένα μια στη ότι",
        "ru": "и в не на я что он с как это по но его к из у за от так же все бы о она мы был вы для то ты ее было они",
        "uk": "і в не на що я з та як це до він за у від але його для про так по є було ви ми бути також її їх тільки",
        "bg": "и на в за да се от не с е че по са като до си то този ще при може още след който но ако съм той това",
        "sr": "и је у да се на за су од с не а о који то што или као из до би сам по али која није бити које само још",
        "ar": "في من على أن إلى عن مع هذا هذه التي الذي كان لا ما هو هي بين كل قد لم ذلك بعد أو كما",
        "fa": "و در به از که این را با است برای آن یک خود تا کرد بر هم نیز شد شود می اما یا ما باید",
        "ur": "کے میں کی ہے اور سے کا کو اس کہ ہیں نے پر یہ کر جو نہیں تھا ایک بھی تو ہو لیے",
        "hi": "के में है की और से का को है कि यह पर नहीं इस ने हैं एक भी था तो हो लिए कर जो",
        "vi": "và của là có không được cho trong một người những tôi với các đã này đó để khi đến từ như nhưng anh",
        "id": "yang dan di itu dengan untuk tidak ini dari dalam akan pada juga saya ke karena tersebut bisa ada mereka "
        "lebih telah adalah oleh sudah kami",
        "ca": "de la que el i a en els les un per amb una és no del al es més però com són aquest aquesta va o ha hi seu",
    }.items()
}
# Languages that have a script, or a mixture of scripts, to themselves.
BY_SCRIPT = {
    "Greek": "el",
    "Hebrew": "he",
    "Thai": "th",
    "Hangul": "ko",
    "Hiragana": "ja",
    "Katakana": "ja",
    "Georgian": "ka",
    "Armenian": "hy",
    "Tamil": "ta",
    "Telugu": "te",
    "Bengali": "bn",
    "Gujarati": "gu",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Khmer": "km",
    "Lao": "lo",
    "Myanmar": "my",
}
# The scripts a language is written in, where it is not Latin.
SCRIPTS_OF = {
    **{code: frozenset({script}) for script, code in BY_SCRIPT.items()},
    "ja": frozenset({"Hiragana", "Katakana", "Han"}),
    "zh": frozenset({"Han", "Bopomofo"}),
    "ru": frozenset({"Cyrillic"}),
    "uk": frozenset({"Cyrillic"}),
    "bg": frozenset({"Cyrillic"}),
    "sr": frozenset({"Cyrillic", "Latin"}),
    "ar": frozenset({"Arabic"}),
    "fa": frozenset({"Arabic"}),
    "ur": frozenset({"Arabic"}),
    "hi": frozenset({"Devanagari"}),
}
# So close that small words do not tell them apart for sure.
ALIKE = (frozenset({"da", "no"}), frozenset({"cs", "sk"}), frozenset({"hr", "sr", "sl"}), frozenset({"es", "ca", "pt"}))

_OTHER_NAMES = {
    "en": "eng english",
    "de": "deu ger german deutsch",
    "fr": "fra fre french français",
    "es": "spa spanish español",
    "it": "ita italian",
    "pt": "por portuguese",
    "nl": "nld dut dutch",
    "sv": "swe swedish",
    "da": "dan danish",
    "no": "nor nob nno nb nn norwegian",
    "is": "isl ice icelandic",
    "fi": "fin finnish",
    "et": "est estonian",
    "pl": "pol polish",
    "cs": "ces cze cz czech",
    "sk": "slk slo slovak",
    "sl": "slv slovene slovenian",
    "hr": "hrv croatian bs bos",
    "hu": "hun hungarian",
    "ro": "ron rum romanian",
    "tr": "tur turkish",
    "lv": "lav latvian",
    "lt": "lit lithuanian",
    "el": "ell gre greek",
    "ru": "rus russian",
    "uk": "ukr ukrainian",
    "bg": "bul bulgarian",
    "sr": "srp serbian",
    "ar": "ara arb arabic",
    "fa": "fas per pes persian farsi",
    "ur": "urd urdu",
    "hi": "hin hindi",
    "vi": "vie vietnamese",
    "id": "ind indonesian",
    "ca": "cat catalan",
    "zh": "zho chi cmn chinese",
    "ja": "jpn japanese",
    "ko": "kor korean",
    "he": "heb hebrew iw",
    "th": "tha thai",
    "ka": "kat geo georgian",
    "hy": "hye arm armenian",
    "ta": "tam tamil",
    "te": "tel telugu",
    "bn": "ben bengali",
    "gu": "guj gujarati",
    "kn": "kan kannada",
    "ml": "mal malayalam",
    "km": "khm khmer",
    "lo": "lao",
    "my": "mya bur burmese",
}
_CODES = {name: code for code, names in _OTHER_NAMES.items() for name in (code, *names.split())}


def code_of(language: str) -> str:
    """The two-letter code of a language that is known here, given as en, eng, en-GB, en_XX or English; else ""."""
    name = language.strip().lower()
    return _CODES.get(name) or _CODES.get(name.replace("_", "-").split("-")[0], "")


def name_of(code: str) -> str:
    """The English name of a language, for messages."""
    names = _OTHER_NAMES.get(code, "").split()
    return next((name.capitalize() for name in names if len(name) > 3 or name == "lao"), code)
