"""Sentence splitting: rules case by case, and the law that joining gives the text back."""

import random

import pytest

from regard.data.sentences import split_paragraph


def sentences(text: str, limit: int = 60) -> list[str]:
    return [sentence for sentence, _ in split_paragraph(text, limit)]


@pytest.mark.parametrize(
    "expected",
    [
        ["Hello there.", "How are you?", "Fine!"],
        ["Mr. Smith met Dr. Jones.", "They talked."],
        ["Use fruit, e.g. Granny Smith apples.", "Or not."],
        ["Wir essen Obst, z.B. Äpfel.", "Das ist gut, d.h. Pflicht."],
        ["Das ist z. B. Käse.", "Ja."],
        ["Zimmer Nr. 5 ist frei.", "Gut."],
        ["Pi is 3.14 or so.", "It never ends."],
        ["J. S. Bach wrote it.", "He was old."],
        ["Wir treffen uns am 3. Mai.", "Bis dann!"],
        ["Es war der 2. Weltkrieg.", "Ludwig XIV. war tot."],
        ["It was 12.", "He left."],
        ["It happened in 1984.", "Nobody knew."],
        ["1. First comes this.", "Then that."],
        ['"Stop!" he said.', '"Go away."', "She left."],
        ["Er sagte: „Geh weg.“", "Sie ging."],
        ["« Pars ! »", "Elle partit."],
        ["It rained (as always.)", "We stayed."],
        ["Wait... what?", "Well…", "Now go."],
        ["So am I.", "He left."],
        ["The answer is no.", "We left."],
        ["We sell pens, ink, etc. at low prices.", "Pens etc.", "They are cheap."],
        ["At 5 p.m. we ate.", "It was 9 p.m.", "We slept."],
        ["The U.S. Army came."],
        ["Yahoo! is a site.", "Really?!", "Yes."],
        ["¿Qué?", "¡No!", "Vale."],
        ["Visit example.com today.", "Version 2.0.1 works."],
    ],
)
def test_european_rules(expected):
    assert sentences(" ".join(expected)) == expected


def test_full_width_stops_need_no_space():
    assert sentences("他来了。我走了！“真的？”她说。") == ["他来了。", "我走了！", "“真的？”", "她说。"]
    assert sentences("彼は「行く。」と言った。はい。") == ["彼は「行く。」", "と言った。", "はい。"]


def test_white_space_is_kept_in_the_separators():
    assert split_paragraph("  One.  Two\n\nthree \t") == [("", "  "), ("One.", "  "), ("Two", "\n\n"), ("three", " \t")]
    assert split_paragraph("") == []
    assert split_paragraph(" \n") == [("", " \n")]


def test_long_sentence_is_cut_at_the_strongest_mark():
    words = [f"w{i}" for i in range(20)]
    assert sentences(" ".join(words), 20) == [" ".join(words)]
    words[12] += ","
    words[10] += ";"
    assert sentences(" ".join(words), 15) == [" ".join(words[:11]), " ".join(words[11:])]
    words[10] = "w10"
    assert sentences(" ".join(words), 15) == [" ".join(words[:13]), " ".join(words[13:])]
    words[12] = "w12"
    assert sentences(" ".join(words), 15) == [" ".join(words[:15]), " ".join(words[15:])]
    assert sentences(" ".join(words), 0) == [" ".join(words)]


def test_a_comma_at_the_beginning_is_no_place_to_cut():
    words = ["Well,", *(f"w{i}" for i in range(29))]
    assert sentences(" ".join(words), 20) == [" ".join(words[:20]), " ".join(words[20:])]


def test_text_without_spaces_is_cut_too():
    parts = split_paragraph("中" * 50 + "，" + "文" * 50, 60)
    assert [len(sentence) for sentence, _ in parts] == [51, 50]
    assert all(separator == "" for _, separator in parts)


def test_joining_gives_the_text_back_and_the_limit_holds():
    draw = random.Random(5)
    bits = [*'aBI  \n.!…。"3中，;()\u2028\t', " x. ", " Dr.", " »"]
    for _ in range(3000):
        text = "".join(draw.choices(bits, k=draw.randint(0, 40)))
        for limit in (0, 1, 3, 60):
            parts = split_paragraph(text, limit)
            assert "".join(sentence + separator for sentence, separator in parts) == text
            assert all(sentence == sentence.strip() and not separator.strip() for sentence, separator in parts)
            assert all(sentence for sentence, _ in parts[1:])
            if limit:
                assert all(len(sentence.split()) <= limit for sentence, _ in parts)
