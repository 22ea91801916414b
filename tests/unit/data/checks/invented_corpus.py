"""Invented English and German sentences that mean the same, and a reader that gives them in chunks."""

from __future__ import annotations

import random
from collections.abc import Iterator

from regard.data.split import Pairs

_SUBJECTS = [
    ("The old miller", "Der alte Müller"),
    ("My youngest sister", "Meine jüngste Schwester"),
    ("The captain of the ferry", "Der Kapitän der Fähre"),
    ("Nobody in our village", "Niemand in unserem Dorf"),
    ("The clockmaker's apprentice", "Der Lehrling des Uhrmachers"),
    ("A tired postman", "Ein müder Briefträger"),
    ("The new neighbours", "Die neuen Nachbarn"),
    ("Her grandfather", "Ihr Großvater"),
    ("The baker with the red beard", "Der Bäcker mit dem roten Bart"),
    ("The orchestra", "Das Orchester"),
    ("An engineer from the north", "Eine Ingenieurin aus dem Norden"),
    ("The children of the school", "Die Kinder der Schule"),
]
_VERBS = [
    ("has painted", "hat", "gestrichen"),
    ("wanted to sell", "wollte", "verkaufen"),
    ("could not find", "konnte", "nicht finden"),
    ("is going to repair", "wird", "reparieren"),
    ("has forgotten", "hat", "vergessen"),
    ("would like to buy", "möchte", "kaufen"),
    ("must bring back", "muss", "zurückbringen"),
    ("has never seen", "hat", "noch nie gesehen"),
]
_OBJECTS = [
    ("the wooden boat", "das hölzerne Boot"),
    ("a blue bicycle", "ein blaues Fahrrad"),
    ("the key to the cellar", "den Schlüssel zum Keller"),
    ("all the letters", "alle Briefe"),
    ("this strange machine", "diese seltsame Maschine"),
    ("the garden gate", "das Gartentor"),
    ("an umbrella without a handle", "einen Regenschirm ohne Griff"),
    ("the map of the island", "die Karte der Insel"),
    ("two heavy suitcases", "zwei schwere Koffer"),
    ("the piano in the hall", "das Klavier in der Halle"),
    ("their summer house", "ihr Sommerhaus"),
    ("the bell of the chapel", "die Glocke der Kapelle"),
]
_PLACES = [
    ("near the bridge", "in der Nähe der Brücke"),
    ("behind the station", "hinter dem Bahnhof"),
    ("at the market", "auf dem Markt"),
    ("in the mountains", "in den Bergen"),
    ("by the sea", "am Meer"),
    ("on the other side of the river", "auf der anderen Seite des Flusses"),
    ("under the oak trees", "unter den Eichen"),
    ("in front of the town hall", "vor dem Rathaus"),
]
_ENDINGS = [
    ("because it was raining", "weil es regnete"),
    ("before the winter came", "bevor der Winter kam"),
    ("although the road was closed", "obwohl die Straße gesperrt war"),
    ("and that was not easy", "und das war nicht leicht"),
    ("while the others were asleep", "während die anderen schliefen"),
    ("so that we could all see it", "damit wir es alle sehen konnten"),
    ("if I remember it well", "wenn ich mich recht erinnere"),
    ("", ""),
]
# A few sentences in other languages.
SENTENCES = {
    "fr": (
        "Le chat de la voisine est dans le jardin, mais il ne veut pas entrer avec nous. C'est une "
        "histoire qui a fait rire les enfants."
    ),
    "es": (
        "El gato de la vecina está en el jardín, pero no quiere entrar con los niños. Es una historia "
        "que también le gusta a mi padre."
    ),
    "it": (
        "Il gatto della vicina è nel giardino, ma non vuole entrare con i bambini. Questa è una storia "
        "che anche mio padre ha sentito per la prima volta."
    ),
    "pt": (
        "O gato da vizinha está no jardim, mas não quer entrar com os meninos. É uma história que também "
        "foi contada pelo meu pai em casa."
    ),
    "nl": (
        "De kat van de buurvrouw zit in de tuin, maar hij wil niet met de kinderen naar binnen. Het is "
        "een verhaal dat ook mijn vader heeft verteld."
    ),
    "sv": (
        "Katten sitter i trädgården men den vill inte gå in med barnen. Det är en historia som också min "
        "far har hört när han var på landet."
    ),
    "fi": (
        "Kissa on puutarhassa mutta se ei halua tulla sisään kun lapset ovat siellä. Tämä on tarina jota "
        "myös hän kertoi kun minä olin nuori ja se oli hyvä."
    ),
    "pl": (
        "Kot jest w ogrodzie, ale nie chce wejść do domu, bo się boi. To jest historia, o której mówił "
        "już mój ojciec i która jest dla nas ważna."
    ),
    "hu": (
        "A macska a kertben van, de nem akar bejönni, mert fél. Ez egy olyan történet, hogy már az apám "
        "is azt mondta, és csak nagyon ritkán."
    ),
    "ru": (
        "Кошка сидит в саду, но она не хочет идти в дом, и это не в первый раз. Он сказал, что так было "
        "и у его отца, когда они жили на юге."
    ),
    "uk": (
        "Кішка сидить у саду, але вона не хоче йти до хати, і це не вперше. Він сказав, що так було й за "
        "його часів, як ми були малі, та це не про нас."
    ),
    "tr": (
        "Kedi bahçede ama içeri girmek için bir neden yok. Bu çok güzel bir hikaye ve o da bunu daha "
        "önce her gün anlatan biri gibi değil."
    ),
    "ar": ("القطة في الحديقة من الصباح إلى المساء ولا تريد أن تدخل مع الأطفال. هذا كل ما كان في ذلك اليوم على الأرض."),
    "hi": ("बिल्ली बगीचे में है और वह घर में नहीं आती है। यह एक कहानी है जो मेरे पिता ने भी कही है, इस पर हम ने बात की।"),
}


def invented(size: int, seed: int = 1, different: bool = True) -> Pairs:
    """So many pairs, all of them different unless said otherwise; about one in five has a number."""
    draw = random.Random(seed)
    pairs, seen = Pairs(), set()
    while len(pairs) < size:
        choice = [draw.randrange(len(part)) for part in (_SUBJECTS, _VERBS, _OBJECTS, _PLACES, _ENDINGS)]
        year = draw.randrange(1850, 1990) if draw.random() < 0.2 else 0
        if different and tuple(choice) in seen:  # years apart are too alike
            continue
        seen.add(tuple(choice))
        subject, verb, thing, place, ending = (
            part[i] for part, i in zip((_SUBJECTS, _VERBS, _OBJECTS, _PLACES, _ENDINGS), choice, strict=True)
        )
        source = f"{subject[0]} {verb[0]} {thing[0]} {place[0]}"
        target = f"{subject[1]} {verb[1]} {thing[1]} {place[1]} {verb[2]}"
        if year:
            source, target = f"{source} in {year}", f"Im Jahr {year}: {target}"
        if ending[0]:
            source, target = f"{source} {ending[0]}", f"{target}, {ending[1]}"
        pairs.sources.append(source + ".")
        pairs.targets.append(target + ".")
    return pairs


class Reader:
    """Pairs in memory, given as a reader gives those of files. The sides may differ in length."""

    def __init__(self, sources: list[str], targets: list[str], names: tuple[str, ...] = ("corpus.a", "corpus.b")):
        self.sources, self.targets, self.names = sources, targets, names

    def chunks(self, size: int = 10_000, raw: bool = False) -> Iterator[Pairs]:
        for begin in range(0, max(len(self.sources), len(self.targets)), size):
            yield Pairs(self.sources[begin : begin + size], self.targets[begin : begin + size])


def changed(pairs: Pairs, changes: dict[int, tuple[str | None, str | None]]) -> Pairs:
    """A copy with other lines, given by their numbers from 1; None leaves a side as it is."""
    copy = Pairs(list(pairs.sources), list(pairs.targets))
    for line, (source, target) in changes.items():
        if source is not None:
            copy.sources[line - 1] = source
        if target is not None:
            copy.targets[line - 1] = target
    return copy
