"""Findings about single lines, each in a corpus that is clean but for some lines."""

from __future__ import annotations

import numpy as np
import pytest
from invented_corpus import SENTENCES, changed, invented

from regard.data.checks.block import Block
from regard.data.checks.findings import FINDINGS
from regard.data.checks.lines import LINE_FINDINGS, Profile, flag_lines
from regard.data.split import Pairs

CORPUS = invented(2_500)
PROFILE = Profile.learn(CORPUS)
S, T = CORPUS.sources, CORPUS.targets
RUSSIAN = "Кошка сидит в саду."


def _found(pairs: Pairs, profile: Profile = PROFILE) -> dict[str, list[int]]:
    """The lines (from 1) of each finding that has any."""
    flags = flag_lines(pairs, profile)
    assert tuple(flags) == LINE_FINDINGS
    assert all(mask.dtype == bool and len(mask) == len(pairs) for mask in flags.values())
    return {name: (np.flatnonzero(mask) + 1).tolist() for name, mask in flags.items() if mask.any()}


def test_a_clean_corpus_has_no_findings():
    assert _found(CORPUS) == {}
    assert _found(Pairs()) == {}


def test_all_findings_of_lines_are_explained():
    assert set(LINE_FINDINGS) <= FINDINGS.keys()


@pytest.mark.parametrize(
    ("source", "target", "names"),
    [
        ("", None, {"empty-side"}),
        (None, " \t", {"empty-side"}),
        ("", " ", {"empty-pairs"}),
        ("In 1872 nobody came to 350 houses <b>.", "", {"empty-side", "unbalanced-markup"}),
        (S[1202], S[1202], {"copied-source"}),
        (S[1202], S[1202].upper() + "!", {"copied-source"}),
        (None, "Caf\udce9 " + T[1202], {"not-utf8"}),
        (None, T[1202] + " SchÃ¶n", {"mojibake"}),
        ("lost \ufffd " + S[1202], None, {"replacement-characters"}),
        (S[1202] + "\ud800", None, {"lone-surrogates"}),
        (S[1202] + "\0", None, {"null-characters"}),
        (None, T[1202] + "\ufeff", {"byte-order-marks"}),
        (None, T[1202] + "\r", {"crlf"}),
        ("\u2029" + S[1202], None, {"line-separators"}),
        (None, T[1202] + "\x02", {"control-characters"}),
        (None, T[1202] + "\u200b", {"invisible-characters"}),
        (None, T[1202] + "\xad", {"soft-hyphens"}),
        (None, "Ja,\xa0" + T[1202], {"special-spaces"}),
        (None, "Scho\u0308n: " + T[1202], {"mixed-normal-forms"}),
        (None, (RUSSIAN * 9)[: len(T[1202])], {"wrong-script"}),
        (None, S[1214], {"wrong-language"}),
        (T[1214], None, {"wrong-language"}),
        (None, SENTENCES["fi"][: len(T[1202])], {"foreign-language"}),
        ("The ferry. " * 1000, "Die Fähre. " * 1000, {"long-lines"}),
        ("the " * 1001, "die " * 1001, {"long-lines"}),
        (None, T[1202] + " " + T[1203] + " " + T[1204] + " " + T[1205], {"length-ratio"}),
        ("He saw 3 of 5 boats leaving.", "Er sah 3 von 6 Booten abfahren.", {"different-numbers"}),
        ("A <b>blue boat.", "Ein <b>blaues Boot.", {"unbalanced-markup"}),
        ("A {who} blue boat.", "Ein {wer} blaues Boot.", {"different-markup"}),
    ],
)
def test_each_finding_is_in_its_line_only(source, target, names):
    found = _found(changed(CORPUS, {1203: (source, target)}))
    assert found.keys() == names
    assert all(lines == [1203] for lines in found.values())


def test_findings_of_several_blocks_are_in_the_order_of_the_chunk():
    changes = {line: (None, T[line - 1] + "\0") for line in (1, 1000, 1001, 1500, 2500)}
    assert _found(changed(CORPUS, changes)) == {"null-characters": [1, 1000, 1001, 1500, 2500]}


@pytest.mark.parametrize("text", ["Jonas Kellermann", "Hotel Adria", "12,50", "OK", "http://example.org/a"])
def test_names_and_numbers_that_are_the_same_on_both_sides_are_no_copies(text):
    assert "copied-source" not in _found(changed(CORPUS, {5: (text, text)}))


def test_a_line_is_long_beyond_the_limits_only():
    at_limit = {7: (" a" * 1000, "ä " * 1000), 8: ("x" * 10_000, "y" * 10_000), 9: ("x" * 10_001, "y" * 10_001)}
    assert _found(changed(CORPUS, at_limit))["long-lines"] == [9]


def test_lines_without_a_partner_are_left_out():
    assert all(len(mask) == 10 for mask in flag_lines(Pairs(S[:12], T[:10]), PROFILE).values())


def test_a_mixed_line_is_in_the_wrong_script_if_most_of_its_letters_are():
    mixed = {3: ("Tom said: Привет", "Tom sagte: Да"), 4: ("Привет all", "Все gut")}
    found = _found(changed(CORPUS, mixed))
    assert found["wrong-script"] == [4]


def test_the_main_form_of_letters_is_learned():
    decomposed = [line.replace("ö", "o\u0308").replace("ü", "u\u0308").replace("ä", "a\u0308") for line in T]
    profile = Profile.learn(Pairs(S, decomposed))
    assert "mixed-normal-forms" not in _found(Pairs(S, decomposed), profile)
    found = _found(changed(Pairs(S, decomposed), {2: (None, "Schön")}), profile)
    assert found["mixed-normal-forms"] == [2]


def test_the_usual_ratio_is_learned():
    short = Pairs(S, [line[: len(line) // 4] for line in T])
    profile = Profile.learn(short)
    assert profile.ratio == pytest.approx(PROFILE.ratio / 4, rel=0.05)
    assert "length-ratio" not in _found(short, profile)
    assert _found(changed(short, {11: (None, T[10] + T[11])}), profile)["length-ratio"] == [11]
    assert len(_found(short)["length-ratio"]) > 1000


CHINESE = ["船长把那条小船卖掉了。", "我妹妹在桥边找不到钥匙。", "老磨坊主昨天没有来。", "孩子们还没有看过大海。"] * 60


def test_chinese_has_no_spaces_and_takes_a_few_latin_letters():
    profile = Profile.learn(Pairs(S[:240], CHINESE))
    assert (profile.target.script, profile.target.unspaced, profile.source.unspaced) == ("Han", True, False)
    assert profile.target.language.code == "zh"
    found = _found(
        changed(Pairs(S[:240], CHINESE), {1: (None, "我们用Photoshop"), 2: (None, "Photoshop和我"), 3: (None, "かな")}),
        profile,
    )
    assert found["wrong-script"] == [2]
    spaced = Profile.learn(Pairs(S[:240], [" ".join(line) for line in CHINESE]))
    assert not spaced.target.unspaced


def test_a_line_in_another_script_is_not_also_in_another_language():
    pairs = Pairs(S[:1600], CHINESE[:4] * 400)
    profile = Profile.learn(pairs)
    assert profile.target.table is not None
    line = S[2000]
    assert profile.target.table.judge(Block([line]))[0].all()  # by its letters
    found = _found(changed(pairs, {9: (None, line)}), profile)
    assert (found["wrong-script"], found.get("wrong-language")) == ([9], None)


def test_a_foreign_language_in_many_lines_is_still_foreign():
    french = SENTENCES["fr"]
    mixed = changed(CORPUS, dict.fromkeys(range(5, 2_500, 10), (None, french)))
    profile = Profile.learn(mixed)
    assert profile.target.table is not None
    assert not profile.target.table.judge(Block([french]))[1].any()  # usual letters by now
    assert _found(mixed, profile)["foreign-language"] == list(range(5, 2_500, 10))


def test_small_words_tell_the_other_side_from_a_third_language():
    few = Pairs(S[:60], T[:60])  # too few to learn letters from
    profile = Profile.learn(few)
    assert profile.target.table is None
    german = "Das ist nicht der Mann, den sie mit dem Boot auf der Insel gesehen haben."
    found = _found(changed(few, {3: (None, S[40]), 9: (german, None), 20: (None, SENTENCES["fi"])}), profile)
    assert (found["wrong-language"], found["foreign-language"]) == ([3, 9], [20])


def test_copies_in_text_without_spaces_are_found():
    profile = Profile.learn(Pairs(CHINESE, CHINESE))
    long = "船长把那条小船卖掉了我妹妹在桥边"
    assert _found(changed(Pairs(CHINESE[:20], S[:20]), {4: (long, long)}), profile)["copied-source"] == [4]


def test_a_corpus_without_letters_has_a_profile():
    profile = Profile.learn(Pairs(["1 2 3"] * 50, ["3 2 1"] * 50))
    assert (profile.source.script, profile.ratio) == ("", 1.0)
    assert _found(Pairs(["1 2 3"], ["3 2 1"]), profile) == {}
    assert _found(Pairs(["abc def"], ["3 2 1"]), profile).keys() <= {"different-numbers"}


def test_an_empty_sample_has_a_profile():
    assert Profile.learn(Pairs()).ratio == 1.0


def test_languages_are_claimed_by_name_or_code():
    profile = Profile.learn(CORPUS, ("English", "deu"))
    assert (profile.source.claimed, profile.target.claimed) == ("en", "de")
    assert (profile.source.language.code, profile.target.language.code) == ("en", "de")
