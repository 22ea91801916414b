"""The whole check: clean corpora pass, damaged ones are refused with the right lines."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import pytest
from invented_corpus import Reader, changed, invented

from regard.core.errors import DataError
from regard.data.checks import check
from regard.data.checks.alignment import AlignmentVerdict, Misaligned
from regard.data.checks.check import FINDINGS, check_pairs, profile_of
from regard.data.checks.findings import MUST_BE_MENDED
from regard.data.checks.report import Finding, Report
from regard.data.reading import open_pairs
from regard.data.split import Pairs

CORPUS = invented(1_000)
S, T = CORPUS.sources, CORPUS.targets


@pytest.fixture
def without_alignment(monkeypatch):
    """The alignment is tested with its own module, and takes longer than all the rest."""
    _judge(monkeypatch)


def _judge(monkeypatch, damage: tuple[Misaligned, ...] = (), doubtful: tuple[Misaligned, ...] = ()) -> None:
    verdict = AlignmentVerdict(damage=damage, doubtful=doubtful, nats=0.0, lines=1_000, information=1.0)
    monkeypatch.setattr(check, "judge", lambda features: verdict)


def _check(pairs: Pairs, names=("corpus.a", "corpus.b"), **settings) -> Report:
    return check_pairs(Reader(pairs.sources, pairs.targets, names), **settings)


def _findings(report: Report) -> list[Finding]:
    """All findings but one: sentences that are put together from few parts are similar."""
    return [found for found in report.findings if found.name != "similar-pairs"]


def _only(report: Report, name: str) -> Finding:
    (found,) = _findings(report)
    assert found.name == name
    return found


def test_a_clean_corpus_has_no_findings():
    report = _check(CORPUS, ("corpus.en", "corpus.de"))
    assert _findings(report) == []
    assert report.refused == ()
    report.refuse()
    assert report.files == ("corpus.en", "corpus.de")
    assert report.statistics.pairs == 1_000
    assert report.seconds > 0
    assert report.extra["languages"] == ["en", "de"]


def test_a_deleted_line_is_found_where_it_was():
    report = _check(Pairs(S, T[:600] + T[601:]))
    counts, shifted = report.findings[:2]
    assert (counts.name, counts.severity, counts.count) == ("line-counts", "damage", 1)
    assert counts.what.startswith("corpus.a has 1,000 lines and corpus.b has 999; they part at line")
    assert "a line is missing in the target there, or too many in the source" in counts.todo
    assert (shifted.name, shifted.severity) == ("misaligned", "damage")
    assert "1 line further back" in shifted.what
    assert "`regard data clean`" in shifted.todo
    near = [
        int(number.replace(",", ""))
        for number in counts.what.split(" part at ")[1].rstrip(".").split()
        if number[0].isdigit()
    ]
    assert min(near) - 4 <= 601 <= max(near) + 4


def test_text_in_files_is_checked(tmp_path):
    source, target = tmp_path / "text.en", tmp_path / "text.de"
    source.write_bytes("\n".join(S[:100]).encode() + b"\n")
    target.write_bytes("\n".join(T[:100]).encode() + b"\xff\xfe\n")
    report = check_pairs(open_pairs([source, target]))
    found = _only(report, "not-utf8")
    assert found.severity == "damage"
    assert found.examples[0].line == 100
    assert found.examples[0].target == T[99] + "\udcff\udcfe"
    assert found.what == "1 of 100 pairs (1.0 %) has bytes that are not UTF-8 (in the target): line 100."
    with pytest.raises(DataError, match=r"text\.de: the text is damaged: not-utf8: 1 of 100 pairs"):
        report.refuse()


DAMAGES = {
    "null-characters": (lambda s, t: (s, t + "\0"), 1, "damage"),
    "not-utf8": (lambda s, t: (s, t + "\udcff"), 1, "damage"),
    "lone-surrogates": (lambda s, t: (s + "\ud912", t), 1, "damage"),
    "mojibake": (lambda s, t: (s, t + " SchÃ¶n"), 10, "damage"),
    "replacement-characters": (lambda s, t: (s, t + "\ufffd"), 10, "damage"),
    "empty-side": (lambda s, t: (s, ""), 101, "damage"),
    "empty-pairs": (lambda s, t: ("", ""), 10, "warning"),
    "wrong-script": (lambda s, t: (s, "Кошка сидит в саду, а собака сидит перед домом."), 101, "damage"),
    "copied-source": (lambda s, t: (s, s), 251, "damage"),
    "wrong-language": (lambda s, t: (s, "She has " + s), 251, "damage"),
    "control-characters": (lambda s, t: (s, t + "\x03"), 1, "warning"),
    "invisible-characters": (lambda s, t: (s, t + "\u200b"), 1, "warning"),
    "byte-order-marks": (lambda s, t: (s, "\ufeff" + t), 1, "warning"),
    "line-separators": (lambda s, t: (s + "\x85", t), 1, "warning"),
    "mixed-normal-forms": (lambda s, t: (s, t + " Scho\u0308n"), 1, "warning"),
    "unbalanced-markup": (lambda s, t: ("<i>" + s, "<i>" + t), 10, "warning"),
    "different-markup": (lambda s, t: ("{0} " + s, t), 10, "warning"),
    "length-ratio": (lambda s, t: (s, " ".join([t] * 5)), 20, "warning"),
    "soft-hyphens": (lambda s, t: (s, t + "\xad"), 1, "note"),
    "special-spaces": (lambda s, t: (s, "Ja,\xa0" + t), 1, "note"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_refused_from_its_threshold_on_with_the_right_lines(name, without_alignment):
    damage, needed, severity = DAMAGES[name]
    rows = (np.arange(needed) * 999 // max(1, needed - 1)).tolist() if needed > 1 else [776]
    found = _finding(_check(_damaged(damage, rows)), name)
    assert (found.severity, found.count, found.share) == (severity, needed, needed / 1_000)
    assert [example.line for example in found.examples] == [row + 1 for row in rows[:5]]
    assert found.examples[0].source == damage(S[rows[0]], T[rows[0]])[0]
    assert f"line{'s' if needed > 1 else ''} {rows[0] + 1}" in found.what
    assert ("--allow " + name in found.todo) == (severity == "damage" and name not in MUST_BE_MENDED)
    if needed > 1:
        fewer = _finding(_check(_damaged(damage, rows[1:-1])), name)
        assert fewer.severity == {"damage": "warning", "warning": "note"}[severity]


def _damaged(damage, rows) -> Pairs:
    return changed(CORPUS, {row + 1: damage(S[row], T[row]) for row in rows})


def _finding(report: Report, name: str) -> Finding:
    return next(found for found in report.findings if found.name == name)


def test_all_findings_are_tested_here_or_below():
    below = {"line-counts", "misaligned", "unrelated", "same-file", "swapped-languages", "unexpected-language", "crlf"}
    below |= {"mixed-line-ends", "duplicates", "near-duplicates", "similar-pairs", "leaked-pairs", "leaked-sources"}
    below |= {"long-lines", "different-numbers", "foreign-language"}
    assert DAMAGES.keys() | below == FINDINGS.keys()
    assert not DAMAGES.keys() & below


def test_duplicates_are_counted_with_their_copies(without_alignment):
    report = _check(Pairs(S[:400] + S[:3] * 201 + S[:2], T[:400] + T[:3] * 201 + T[:2]))
    found = _finding(report, "duplicates")
    assert (found.severity, found.count) == ("warning", 605)  # refused only from 10,000 on
    assert found.what.endswith(
        "lines 401, 402, 403, 404, 405 and 600 more; 3 different pairs stand there up to 203 times."
    )
    one = _only(_check(Pairs(S[:400] + S[:1], T[:400] + T[:1])), "duplicates")
    assert one.what.endswith("line 401; one pair stands there up to 2 times.")
    assert one.severity == "note"


def test_near_duplicates_and_similar_pairs_are_found(without_alignment):
    near = _only(_check(Pairs(S[:300] + [line.upper() for line in S[:20]], T[:300] + T[:20])), "near-duplicates")
    assert (near.count, near.severity) == (20, "warning")
    assert near.examples[0].line == 301
    assert near.examples[0].source == S[0].upper()
    words = [f"{a}{b}" for a, b in itertools.product("bdfgklmnprst", ("aun", "ilo", "emi", "oru", "ati", "usk"))]
    draw = random.Random(2)
    rows = [draw.choices(words, k=24) for _ in range(40)]
    rows += [[*row[:9], "other", *row[10:]] for row in rows]
    text = [" ".join(row) for row in rows]
    similar = _finding(_check(Pairs(text, [line[::-1] for line in text])), "similar-pairs")
    assert similar.severity == "warning"
    assert 30 <= similar.count <= 40
    assert 41 <= int(similar.what.split(": lines ")[1].split(",")[0]) <= 50
    loud = [line + " !" for line in text[:40]]
    report = _check(Pairs(text[:40] + loud, text[:40] + loud))
    assert {found.name for found in report.findings} >= {"near-duplicates", "same-file"}
    assert "similar-pairs" not in {found.name for found in report.findings}  # not told twice


def test_the_same_text_on_both_sides_is_refused(without_alignment):
    found = _only(_check(Pairs(S, S)), "same-file")
    assert (found.severity, found.count) == ("damage", 1_000)
    mostly = Pairs(S, S[:950] + T[950:])
    assert [f.name for f in _check(mostly).refused] == ["same-file"]
    assert [f.name for f in _check(Pairs(S, S[:949] + T[949:])).refused] == ["copied-source"]


def test_swapped_files_are_refused(without_alignment):
    found = _only(_check(Pairs(T, S), ("corpus.en", "corpus.de.gz")), "swapped-languages")
    assert found.what == "The source should be English and the target German, but it is the other way round."
    assert [f.name for f in _check(Pairs(T, S), languages=("en", "German")).refused] == ["swapped-languages"]
    assert _findings(_check(Pairs(T, S), languages=("de", "en"))) == []
    assert _findings(_check(Pairs(T, S))) == []


def test_a_side_in_another_language_than_claimed_is_refused(without_alignment):
    found = _only(_check(CORPUS, ("corpus.en", "corpus.fr")), "unexpected-language")
    assert found.what == "The target (corpus.fr) should be French, but most of it looks like German."
    found = _only(_check(CORPUS, ("pairs.tsv",), languages=("ja", "de")), "unexpected-language")
    assert found.what == "The source should be Japanese, but most of it looks like English."
    assert _findings(_check(CORPUS, languages=("en", "tlh"))) == []
    assert _findings(_check(CORPUS, ("corpus.en", "corpus.fr"), languages=("", "de"))) == []


def test_windows_line_ends_are_a_note_and_mixed_ones_a_warning(without_alignment):
    windows = Pairs([line + "\r" for line in S], [line + "\r" for line in T])
    found = _only(_check(windows), "crlf")
    assert (found.severity, found.count) == ("note", 1_000)
    assert _only(_check(Pairs(S, windows.targets[:-1] + T[-1:])), "crlf").severity == "note"
    mixed = _only(_check(Pairs(S, windows.targets[:400] + T[400:])), "mixed-line-ends")
    assert (mixed.severity, mixed.count) == ("warning", 400)
    assert "400 of 1,000 pairs (40 %) end with a carriage return and a line feed" in mixed.what


def test_a_byte_order_mark_at_the_beginning_does_no_harm(without_alignment):
    one = _only(_check(Pairs(["\ufeff" + S[0], *S[1:]], T)), "byte-order-marks")
    assert (one.severity, one.what) == ("note", "A file begins with a byte order mark.")
    both = _only(_check(Pairs(["\ufeff" + S[0], *S[1:]], ["\ufeff" + T[0], *T[1:]])), "byte-order-marks")
    assert both.what == "Both files begin with a byte order mark."
    inside = _only(_check(Pairs(["\ufeff" + S[0], "\ufeff" + S[1], *S[2:]], T)), "byte-order-marks")
    assert (inside.severity, inside.count, inside.examples[0].line) == ("warning", 1, 2)


def test_long_lines_and_lines_in_a_foreign_language_are_found(without_alignment):
    long = "The ferry comes. " * 700
    found = _finding(_check(changed(CORPUS, {500: (long, "Die Fähre kommt. " * 700)})), "long-lines")
    assert (found.severity, found.count) == ("warning", 1)
    assert len(found.examples[0].source) == 301  # cut
    assert found.examples[0].source.endswith("…")
    big = invented(3_000)
    finnish = "Kissa on puutarhassa mutta se ei halua tulla sisään kun lapset ovat siellä."
    found = _only(_check(changed(big, {7: (None, finnish), 2_000: (None, finnish)})), "foreign-language")
    assert (found.severity, found.examples[1].line) == ("note", 2_000)


def test_numbers_are_judged_among_pairs_that_have_some(without_alignment):
    dated = [line for line in range(1, 1_001) if any(c.isdigit() for c in S[line - 1])]
    wrong = changed(CORPUS, {line: (None, T[line - 1].replace("1", "2")) for line in dated[:60]})
    found = _only(_check(wrong), "different-numbers")
    assert (found.count, found.share, found.severity) == (60, 60 / len(dated), "warning")
    assert f"60 of {len(dated)} pairs ({100 * 60 / len(dated):.0f} %) with digits have numbers" in found.what


def test_leaks_are_found_in_each_held_out_part(without_alignment):
    valid = Reader(S[:3] + ["No such sentence."] * 97, T[:3] + ["Kein Satz"] * 97)
    test = Reader([S[9].upper(), "Nothing."], ["Etwas anderes.", "Nichts."])
    clean = Reader(["Never."], ["Nie."])
    report = _check(CORPUS, held_out={"valid": valid, "test": test, "other": clean})
    pairs, sources = _findings(report)
    assert (pairs.name, pairs.severity, pairs.count, pairs.share) == ("leaked-pairs", "warning", 3, 0.03)
    assert pairs.what == "3 of the 100 pairs of the valid text (3.0 %) are also in the training text, lines 1, 2 and 3."
    assert (sources.name, sources.severity, sources.count, sources.share) == ("leaked-sources", "warning", 1, 0.5)
    assert sources.examples[0].line == 10
    assert report.extra["held_out"]["valid"] == {"lines": 100, "leaked-pairs": 3, "leaked-sources": 3}


def test_a_twentieth_of_a_held_out_part_in_the_training_text_is_refused(without_alignment):
    def leak(count: int) -> Report:
        part = Reader(S[:count] + ["No such sentence."] * (100 - count), T[:count] + ["Kein Satz"] * (100 - count))
        return _check(CORPUS, held_out={"valid": part})

    assert [f.name for f in leak(5).refused] == ["leaked-pairs"]
    assert leak(4).refused == ()
    assert _findings(leak(0)) == []


def test_held_out_texts_are_compared_with_each_other(without_alignment):
    valid = Reader(["Nothing.", "Something.", "Anything."], ["Nichts.", "Etwas.", "Irgendetwas."])
    test = Reader(["NOTHING", "More.", "nothing!", "Less."], ["nichts", "Mehr.", "Nichts.", "Weniger."])
    found = _only(_check(CORPUS, held_out={"valid": valid, "test": test}), "leaked-pairs")
    assert (found.severity, found.count, found.share) == ("warning", 2, 0.5)
    assert found.what == "2 of the 4 pairs of the test text (50 %) are also in the valid text."


def test_a_held_out_text_must_have_as_many_lines_on_both_sides(without_alignment):
    found = _only(_check(CORPUS, held_out={"valid": Reader(["One.", "Two."], ["Eins."])}), "line-counts")
    assert (found.severity, found.what) == ("damage", "The valid text has 2 source lines and 1 target lines.")


def test_an_allowed_finding_is_said_but_does_not_refuse(without_alignment):
    damaged = changed(CORPUS, {5: (None, T[4] + "\0"), 6: (None, T[5] + "\udcff")})
    report = _check(damaged, allow=["null-characters"])
    assert {f.name: f.allowed for f in _findings(report)} == {"null-characters": True, "not-utf8": False}
    assert [f.name for f in report.refused] == ["not-utf8"]
    assert _check(damaged, allow=["null-characters", "not-utf8"]).refused == ()


def test_an_unknown_allow_is_an_error_before_anything_is_read():
    class Unread:
        names = ("x",)

        def chunks(self, size=10_000, raw=False):
            raise AssertionError("read")

    with pytest.raises(DataError, match="Did you mean duplicates"):
        check_pairs(Unread(), allow=["duplicate"])


def test_the_worst_findings_come_first(without_alignment):
    mixed = changed(CORPUS, {5: (None, T[4] + "\xad"), 6: (None, T[5] + "\ufeff"), 7: (S[6] + "\0", None)})
    assert [f.severity for f in _findings(_check(mixed))] == ["damage", "warning", "note"]


def test_misaligned_stretches_are_described(monkeypatch):
    _judge(
        monkeypatch,
        damage=(
            Misaligned(600, 900, 1, 512.4, (598, 601), (900, 900)),
            Misaligned(900, 903, None, 80.0, (900, 900), (903, 903)),
            Misaligned(950, 980, None, 90.0, (950, 950), (980, 980)),
        ),
        doubtful=(
            Misaligned(10, 11, 1, 15.0, (10, 10), (11, 11)),
            Misaligned(11, 12, -1, 15.0, (11, 11), (12, 12)),
        ),
    )
    shifted, alone = _findings(_check(CORPUS))
    assert (shifted.name, shifted.severity, shifted.count, shifted.share) == ("misaligned", "damage", 300, 0.3)
    assert shifted.what == "Source lines 601 to 900 fit the target 1 line further on better than their own (512 nats)."
    assert shifted.todo.startswith(
        "Look at lines 599 to 602: a line is missing in the source there, or too many in the target; `regard data clean`"
    )
    assert (alone.name, alone.severity, alone.count) == ("unrelated", "damage", 30)
    assert alone.what == "Source lines 951 to 980 fit neither their target nor those near it (90 nats)."


def test_doubtful_stretches_are_warnings(monkeypatch):
    doubtful = [
        Misaligned(10, 11, 1, 15.0, (10, 10), (11, 11)),
        Misaligned(11, 12, -1, 15.0, (11, 11), (12, 12)),
        *(Misaligned(line, line + 5, -2, 25.0, (line, line), (line + 5, line + 5)) for line in range(100, 500, 100)),
    ]
    _judge(monkeypatch, doubtful=tuple(doubtful))
    found = _only(_check(CORPUS), "misaligned")
    assert (found.severity, found.count) == ("warning", 22)
    assert found.what == (
        "Source lines 11 and 12 seem to be swapped (15 nats); "
        "lines 101 to 105 fit the target 2 lines further back better than their own (25 nats); "
        "lines 201 to 205 fit the target 2 lines further back better than their own (25 nats); and 2 more such places."
    )
    assert found.todo == "Compare both sides at line 11."
    assert [shown.line for shown in found.examples] == sorted({(s.begin + s.end) // 2 + 1 for s in doubtful[:3]})
    for shown in found.examples:
        assert (shown.source, shown.target) == (S[shown.line - 1], T[shown.line - 1])


def test_unequal_files_are_refused_even_where_no_place_is_found(without_alignment):
    found = _only(_check(Pairs(S + S[:1], T), ("pairs.tsv",)), "line-counts")
    assert found.what == "the source has 1,001 lines and the target has 1,000."
    assert _check(Pairs(S + S[:1], T)).statistics.pairs == 1_000


def test_no_pairs_are_an_error():
    with pytest.raises(DataError, match=r"corpus\.a and corpus\.b: it has no pairs of lines"):
        _check(Pairs([], ["alone"]))


def test_progress_counts_the_pairs(without_alignment):
    told: list[int] = []
    big = invented(21_000, different=False)
    check_pairs(Reader(big.sources, big.targets), progress=told.append)
    assert told == [10_000, 20_000, 21_000]


def test_the_sample_comes_from_all_over_a_sorted_file():
    lines = ["one two"] * 30_000 + ["three four five six"] * 30_000
    targets = [line.upper() for line in lines[:30_000]] + ["раз два три четыре пять шесть"] * 30_000
    profile = profile_of(Reader(lines, targets))
    assert profile.target.script == "Cyrillic"
    assert profile.ratio == pytest.approx(sum(map(len, targets)) / sum(map(len, lines)), rel=0.01)


def test_a_report_is_plain_json(without_alignment):
    report = _check(changed(CORPUS, {5: (None, T[4] + "\0")}), held_out={"valid": Reader(S[:1], T[:1])})
    again = Report.from_plain(json.loads(json.dumps(report.to_plain())))
    assert again == report
