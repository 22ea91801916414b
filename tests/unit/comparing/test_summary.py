"""The numbers of a comparison: by hand where they are small, by `paired_tests` where there is one seed."""

from __future__ import annotations

import dataclasses
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from comparisons import noisy, plan_of, references, result_of, write_comparison

from regard.comparing.differences import differing_settings, settings_table
from regard.comparing.results import Budget, Failure, Training, read_result, write_plan, write_result
from regard.comparing.summary import (
    BEST,
    BETTER,
    EMPTY,
    SAME,
    UNTESTED,
    WORSE,
    Summary,
    mean_curves,
    summarise,
    summarise_texts,
)
from regard.comparing.words import (
    about_curves,
    about_seeds,
    budget_in_words,
    caveats,
    finding,
    in_words,
    methods,
    why,
)
from regard.core.errors import CheckpointError, ConfigError
from regard.evaluation.lengths import by_source_length
from regard.evaluation.metrics import Flavour, Statistics, corpus_scores
from regard.evaluation.significance import holm, mean_interval, paired_tests, pooled_test


def summary_of(
    texts: dict[tuple[str, int], list[str]], refs: list[str], seeds=(1, 2), failures=(), **changes
) -> Summary:
    """The summary of given translations by slug and seed."""
    plan = plan_of({slug: slug for slug, _ in texts} | {f.entry: f.entry for f in failures}, seeds)
    results = [result_of(plan, slug, seed, written, refs, **changes) for (slug, seed), written in texts.items()]
    return summarise_texts(plan, results, list(failures), refs, refs, texts)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx(
        [0.03, 0.06, 0.06]
    )  # 3 x 0.01, then 2 x 0.03, then 1 x 0.04 -> 0.06
    assert holm([0.001, 0.5, 0.9, 0.02]) == pytest.approx([0.004, 1.0, 1.0, 0.06])
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def test_means_and_deviations_by_hand():
    refs = references(40)
    texts = {("a", seed): noisy(refs, rate, seed) for seed, rate in ((1, 0.2), (2, 0.25), (3, 0.3))}
    row = summary_of(texts, refs, (1, 2, 3)).rows[0]
    for metric in ("bleu", "chrf"):
        values = [
            corpus_scores(t, refs, Flavour(language="de"), (metric,), False)[metric].value for t in texts.values()
        ]
        mean = sum(values) / 3
        assert getattr(row, metric) == pytest.approx(mean)
        assert getattr(row, f"{metric}_sd") == pytest.approx(math.sqrt(sum((v - mean) ** 2 for v in values) / 2))
        assert getattr(row, f"{metric}_low") < mean < getattr(row, f"{metric}_high")
    assert row.perplexity == pytest.approx((3.11 * 3.12 * 3.13) ** (1 / 3))
    assert row.training_seconds == pytest.approx(49.0)  # 48, 49, 50
    assert (row.seeds, row.verdict, row.parameters, row.bleu_p) == (3, BEST, 1_123_456, None)


def test_one_seed_is_a_paired_test():
    refs = references(80)
    texts = {("a", 1): noisy(refs, 0.2, 1), ("b", 1): noisy(refs, 0.28, 2)}
    first, second = summary_of(texts, refs, (1,)).rows
    assert (first.slug, first.bleu_sd, second.bleu_sd) == ("a", None, None)
    flavour = Flavour(language="de")
    for test in paired_tests(refs, texts["a", 1], texts["b", 1], flavour, samples=10_000):
        assert getattr(second, f"{test.metric}_difference") == pytest.approx(test.difference)
        assert getattr(second, f"{test.metric}_bootstrap_p") == test.bootstrap_p
        assert getattr(second, f"{test.metric}_randomisation_p") == test.randomisation_p
        assert getattr(second, f"{test.metric}_p") == max(
            test.bootstrap_p, test.randomisation_p
        )  # one test: Holm changes nothing
    score = corpus_scores(texts["a", 1], refs, flavour, ("bleu",))["bleu"]
    assert (first.bleu, first.bleu_low, first.bleu_high) == pytest.approx((score.value, score.low, score.high))


def test_a_system_against_itself_and_a_much_worse_one():
    refs = references(80)
    same = {seed: noisy(refs, 0.2, seed) for seed in (1, 2)}
    texts = {("a", seed): same[seed] for seed in same} | {("twin", seed): same[seed] for seed in same}
    texts |= {("bad", seed): noisy(refs, 0.5, 9 + seed) for seed in same}
    best, twin, bad = summary_of(texts, refs).rows
    assert (best.verdict, twin.verdict, bad.verdict) == (BEST, SAME, WORSE)
    assert (twin.bleu_p, twin.chrf_p, twin.bleu_difference) == (1.0, 1.0, 0.0)
    assert bad.bleu_p < 0.001 > bad.chrf_p
    assert bad.bleu_difference == pytest.approx(bad.bleu - best.bleu)  # what is tested is what the table shows


def test_p_values_are_corrected_for_the_number_of_entries():
    refs = references(80)
    texts = {(name, 1): noisy(refs, rate, i) for i, (name, rate) in enumerate([("a", 0.2), ("b", 0.27), ("c", 0.29)])}
    _, *rows = summary_of(texts, refs, (1,)).rows
    alone = [max(row.bleu_bootstrap_p, row.bleu_randomisation_p) for row in rows]
    assert [row.bleu_p for row in rows] == holm(alone) != alone


def test_more_seeds_of_the_same_translations_are_no_more_evidence():
    """Were each translation a sentence of its own, four copies would halve the interval and shrink p."""
    refs = references(60)
    old, new = (Statistics.of("bleu", noisy(refs, rate, 1), refs, Flavour()) for rate in (0.25, 0.28))
    once, often = pooled_test([old], [new]), pooled_test([old] * 4, [new] * 4)
    assert often.bootstrap_p == pytest.approx(once.bootstrap_p, abs=0.002)
    assert often.randomisation_p == pytest.approx(once.randomisation_p, abs=0.002)
    assert 0.005 < once.bootstrap_p < 0.9
    assert mean_interval([old] * 4, 500) == pytest.approx(mean_interval([old], 500))


def test_the_pooled_test_is_calibrated():
    """Of systems whose runs differ by chance alone, 5 % come out below 0.05."""
    refs = references(100)
    pools = [Statistics.of("bleu", noisy(refs, 0.3, i), refs, Flavour()) for i in range(4)]
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(300):
        swap = rng.integers(2, size=(100, 1)).astype(bool)  # a sentence changes sides with all its seeds
        old, new = [], []
        for a, b in ((0, 1), (2, 3)):
            first, second = pools[a].rows, pools[b].rows
            old.append(Statistics("bleu", np.where(swap, first, second), pools[a].measure))
            new.append(Statistics("bleu", np.where(swap, second, first), pools[b].measure))
        test = pooled_test(old, new, samples=300, trials=300)
        p_values.append((test.bootstrap_p, test.randomisation_p))
    rejected = (np.array(p_values) < 0.05).mean(0)
    assert np.all((rejected > 0.01) & (rejected < 0.1)), rejected


def test_a_run_that_went_astray_counts_as_one_run():
    """The mean is of scores: a seed that writes without end does not drown the others."""
    refs = references(60)
    good = [noisy(refs, 0.2, seed) for seed in (1, 2)]
    babble = [" ".join(["kott"] * 200)] * len(refs)
    row = summary_of({("a", 1): good[0], ("a", 2): good[1], ("a", 3): babble}, refs, (1, 2, 3)).rows[0]
    values = [corpus_scores(text, refs, Flavour(), ("bleu",), False)["bleu"].value for text in (*good, babble)]
    assert row.bleu == pytest.approx(statistics.fmean(values))
    assert row.bleu_low < row.bleu < row.bleu_high
    assert row.bleu > 30
    assert row.bleu_sd > 20


def test_failed_seeds_leave_the_common_ones():
    refs = references(60)
    lost = [Failure(entry="b", seed=2, reason="killed", details="", exit=-9)]
    texts = {("a", 1): noisy(refs, 0.1, 1), ("a", 2): noisy(refs, 0.3, 2), ("b", 1): noisy(refs, 0.35, 3)}
    best, other = summary_of(texts, refs, failures=lost).rows
    assert (best.slug, other.seeds, other.failed, other.left, other.common_seeds) == ("a", 1, 1, 0, 1)
    alone = paired_tests(refs, texts["a", 1], texts["b", 1], Flavour(language="de"), ("bleu",), samples=10_000)[0]
    assert other.bleu_difference == pytest.approx(alone.difference)
    # better by the mean of all seeds, worse on the one that both have
    texts = {("a", 1): noisy(refs, 0.4, 1), ("a", 2): noisy(refs, 0.02, 2), ("b", 1): noisy(refs, 0.28, 3)}
    best, other = summary_of(texts, refs, failures=lost).rows
    assert (best.slug, other.verdict) == ("a", BETTER)
    assert other.bleu_difference > 0 > other.bleu - best.bleu
    said = "is better on this test text and the seeds that both have, not known beyond the chance of training"
    assert said in finding(summary_of(texts, refs, failures=lost))


def test_no_common_seed_and_no_result():
    refs = references(30)
    texts = {("a", 1): noisy(refs, 0.1, 1), ("b", 2): noisy(refs, 0.3, 2)}
    lost = [Failure(entry="c", seed=seed, reason="killed", details="", exit=1) for seed in (1, 2)]
    summary = summary_of(texts, refs, failures=lost)
    assert [row.verdict for row in summary.rows] == [BEST, UNTESTED, EMPTY]
    assert [row.left for row in summary.rows] == [1, 1, 0]
    assert summary.rows[2].to_plain()["bleu"] is None
    assert finding(summary).endswith(
        "b (" + f"{summary.rows[1].bleu:.1f}) has no seed in common with it; c has no result."
    )
    assert about_seeds(summary) == "3 systems, 2 seeds each; 2 of 6 runs failed; 2 of 6 runs are still to do"


def test_lengths_are_means_over_seeds(tmp_path: Path):
    write_comparison(tmp_path, {"a": 0.2, "b": 0.4}, seeds=(1, 2), count=80)
    summary = summarise(tmp_path)
    refs = references(80)
    first, second = (by_source_length(refs, noisy(refs, 0.2, seed), refs, Flavour(language="de")) for seed in (1, 2))
    assert len(first) > 1
    for mine, one, two in zip(summary.lengths["a"], first, second, strict=True):
        assert (mine.low, mine.high, mine.sentences) == (one.low, one.high, one.sentences)
        assert mine.bleu.value == pytest.approx((one.bleu.value + two.bleu.value) / 2)
        assert mine.chrf.value == pytest.approx((one.chrf.value + two.chrf.value) / 2)
        assert mine.bleu.low <= mine.bleu.value <= mine.bleu.high


def test_from_the_folder(tmp_path: Path):
    write_comparison(tmp_path, {"b": 0.4, "a": 0.2}, failed=[("b", 3)], left=[("b", 2)])
    summary = summarise(tmp_path)
    assert [row.slug for row in summary.rows] == ["a", "b"]  # sorted by BLEU
    assert (summary.rows[1].seeds, summary.rows[1].failed, summary.rows[1].left) == (1, 1, 1)
    assert len(summary.runs()) == 4
    assert summary.source == references()[3] == summary.reference
    assert set(summary.translations) == {"a", "b"}
    assert "b (" in finding(summary)
    (tmp_path / "runs" / "a" / "seed-1.txt").write_text("one line\n")
    with pytest.raises(CheckpointError, match="1 lines, the test text had 60"):
        summarise(tmp_path)


def test_an_empty_comparison(tmp_path: Path):
    write_plan(tmp_path, plan_of({"a": "a"}, (1,)))
    summary = summarise(tmp_path)
    assert (summary.best, finding(summary), summary.runs()) == (None, "No run has finished.", [])


def test_one_entry():
    refs = references(30)
    summary = summary_of({("a", 1): refs}, refs, (1,))
    assert finding(summary) == "a has 100.0 BLEU."


def test_what_differs_is_warned_of(tmp_path: Path):
    write_comparison(tmp_path, {"a": 0.2, "b": 0.3}, seeds=(1,))
    assert summarise(tmp_path).warnings == ()
    result = read_result(tmp_path, "b", 1)
    texts = noisy(references(), 0.3, 101)
    write_result(tmp_path, dataclasses.replace(result, fingerprints={"data": "d" * 64, "tokenizer": "other"}), texts)
    summary = summarise(tmp_path)
    assert summary.warnings == ("Not all runs had the same tokenizer. Perplexities cannot be compared.",)
    assert [row.perplexity for row in summary.rows] == [None, None]
    changed = {"fingerprints": {"data": "x", "tokenizer": "e" * 64}, "device": "cuda"}
    changed["training"] = Training(steps=7, seconds=1.0, tokens_per_second=1.0)
    write_result(tmp_path, dataclasses.replace(result, **changed), texts)
    warnings = " ".join(summarise(tmp_path).warnings)
    for said in ("the same text", "the same device", "steps that were planned: b (seed 1)"):
        assert said in warnings


@pytest.mark.parametrize(
    ("models", "packed", "warned"),
    [
        ({"a": "a", "b": "b"}, (False, False), False),
        ({"a": "a", "b": "b"}, ("auto", "auto"), True),
        ({"a": "a", "b": "a"}, (True, True), False),
        ({"a": "a", "b": "a"}, (False, True), True),
    ],
)
def test_packed_batches_beside_padded_ones_are_warned_of(models, packed, warned):
    refs = references(20)
    plan = plan_of(models, (1,))
    entries = [
        dataclasses.replace(entry, values={"train": {"batch_tokens": 700, "packed": each}})
        for entry, each in zip(plan.entries, packed, strict=True)
    ]
    plan = dataclasses.replace(plan, entries=tuple(entries))
    summary = summarise_texts(plan, [result_of(plan, "a", 1, refs, refs)], [], refs, refs, {("a", 1): refs})
    assert ("train.packed" in " ".join(summary.warnings)) == warned


def test_unequal_batches_and_a_missing_test_text_are_warned_of():
    refs = references(20)
    plan = plan_of({"a": "a", "b": "b"}, (1,))
    entries = [dataclasses.replace(e, values={"train": {"batch_tokens": 700 + i}}) for i, e in enumerate(plan.entries)]
    plan = dataclasses.replace(plan, entries=tuple(entries), part="validation")
    summary = summarise_texts(plan, [result_of(plan, "a", 1, refs, refs)], [], refs, refs, {("a", 1): refs})
    assert "batches of the same size" in " ".join(summary.warnings)
    assert "There is no test text" in " ".join(summary.warnings)


def test_a_busy_machine_is_warned_of():
    refs = references(20)
    plan = plan_of({"a": "a", "b": "b"}, (1, 2))
    for fast, said in ((1400.0, False), (1600.0, True)):
        results = [
            result_of(plan, slug, seed, refs, refs, training=Training(steps=1000, seconds=1.0, tokens_per_second=speed))
            for slug, seed, speed in (("a", 1, 1000.0), ("a", 2, fast), ("b", 1, 1000.0), ("b", 2, 1000.0))
        ]
        summary = summarise_texts(plan, results, [], refs, refs, {(run.entry, run.seed): refs for run in results})
        assert ("very different speeds (a)" in " ".join(summary.warnings)) == said


def test_curves_are_means_of_common_steps():
    refs = references(20)
    plan = plan_of({"a": "a"}, (1, 2), budget=Budget(kind="time", seconds=50.0))
    curves = {1: ((100, 4.0), (200, 3.0)), 2: ((100, 5.0), (200, 3.5), (300, 1.0))}
    training = Training(steps=100, seconds=50.0, tokens_per_second=1.0)
    results = [result_of(plan, "a", seed, refs, refs, curve=curves[seed], training=training) for seed in (1, 2)]
    summary = summarise_texts(plan, results, [], refs, refs, {("a", 1): refs, ("a", 2): refs})
    assert mean_curves(summary) == ({"a": [(50.0, 4.5), (100.0, 3.25)]}, "seconds of training")


def test_the_chance_of_training_by_hand():
    """Twice the standard error of the difference: seeds far apart hide a difference that the sentences show."""
    refs = references(150)
    close = {("a", 1): 0.1, ("a", 2): 0.5, ("b", 1): 0.2, ("b", 2): 0.55}
    clear = {("a", 1): 0.1, ("a", 2): 0.11, ("b", 1): 0.5, ("b", 2): 0.51}
    for rates, beyond in ((close, False), (clear, True)):
        texts = {run: noisy(refs, rate, sum(map(ord, run[0])) + run[1]) for run, rate in rates.items()}
        summary = summary_of(texts, refs)
        best, other = summary.rows
        assert (best.slug, other.verdict, other.beyond_chance) == ("a", WORSE, beyond)
        assert other.bleu_chance == pytest.approx(2 * math.sqrt((best.bleu_sd**2 + other.bleu_sd**2) / 2))
        assert (abs(other.bleu_difference) >= other.bleu_chance) == beyond
        words = "significantly worse" if beyond else "worse on this test text; within the chance of training"
        assert in_words(other) == words
        assert finding(summary).endswith(f") is {words.replace(';', ',')}.")
    alone = summary_of({run: text for run, text in texts.items() if run[1] == 1}, refs, (1,))
    other = alone.rows[1]
    assert (other.verdict, other.bleu_chance, other.beyond_chance) == (WORSE, None, None)
    assert in_words(other) == "worse on this test text; not known beyond the chance of training"
    assert "significantly" not in finding(alone)
    assert finding(alone).endswith("is worse on this test text, not known beyond the chance of training.")


def summary_with(budget: Budget = Budget(), **of_b) -> Summary:
    """Systems a and b, one run each; `of_b` is what differs in the result of b."""
    refs = references(20)
    plan = plan_of({"a": "a", "b": "b"}, (1,), budget=budget)
    results = [result_of(plan, "a", 1, refs, refs), result_of(plan, "b", 1, refs, refs, **of_b)]
    return summarise_texts(plan, results, [], refs, refs, {("a", 1): refs, ("b", 1): refs})


def test_pairs_that_were_left_out_are_warned_of():
    assert summary_with().warnings == ()
    summary = summary_with(pairs=19_990, left_out=10)
    assert summary.warnings == (
        "Not all systems were trained on the same pairs: those that are longer than a model's limit or train.max_tokens were "
        "left out. 20,000 pairs (none left out): a; 19,990 pairs (10 left out): b.",
    )
    assert {row.slug: (row.pairs, row.left_out) for row in summary.rows} == {"a": (20_000, 0), "b": (19_990, 10)}


def test_seconds_off_the_budget_are_warned_of():
    budget = Budget(kind="time", seconds=45.0)  # a takes 48
    for seconds, off in ((41.0, False), (49.0, False), (40.0, True), (50.0, True)):
        training = Training(steps=900, seconds=seconds, tokens_per_second=4000.0)
        warnings = summary_with(budget, training=training).warnings
        assert len(warnings) == off
        if off:
            assert f"the 45 s of the budget: b (seed 1) {seconds:.1f} s." in warnings[0]
    training = Training(steps=1000, seconds=1.0, tokens_per_second=4500.0)
    assert summary_with(training=training).warnings == ()  # seconds are not the budget


def test_other_machines_and_versions_are_warned_of():
    summary = summary_with(machine="a phone", versions={"regard": "0.1.0", "python": "3.13.1", "torch": "2.10.0"})
    first, second = summary.warnings
    assert first.startswith("Not all runs were on the same machine (Linux x86_64, 2 cores and a phone).")
    assert first.endswith("Speeds cannot be compared.")
    assert "(torch 2.10.0, torch 2.11.0)" in second
    facts = dict(methods(summary))
    assert facts["Machine"] == "Linux x86_64, 2 cores and a phone"
    assert facts["Versions"].count("torch 2.1") == 2


def test_settings_that_differ():
    plan = plan_of({"a": "a", "b": "b", "c": "c"}, (1,))
    values = (
        {"model": {"score": "dot", "name": "luong", "width": 64}, "train": {"lr": 1e-3, "steps": 9}, "odd": 1},
        {"model": {"name": "luong", "width": 64, "score": "general"}, "train": {"lr": 1e-3, "steps": 9}, "odd": 1},
        {"odd": [1], "model": {"name": "cho", "width": 32, "tie": False}, "train": {"lr": 1e-3, "steps": 9}},
    )
    entries = [dataclasses.replace(entry, values=of) for entry, of in zip(plan.entries, values, strict=True)]
    found = differing_settings(entries)
    assert list(found)[:2] == ["model.name", "model.width"]  # those that all have come first
    assert found == {
        "model.name": ["luong", "luong", "cho"],
        "model.width": ["64", "64", "32"],
        "model.score": ["dot", "general", "–"],
        "model.tie": ["–", "–", "false"],
        "odd": ["1", "1", "[1]"],
    }
    assert settings_table(entries)[0] == ["Setting", "a", "b", "c"]
    assert settings_table(entries[:2]) == (["System", "model.score"], [["a", "dot"], ["b", "general"]])
    assert settings_table(entries[:1]) is None


def test_losses_with_lengths_are_told():
    refs = references(20)
    plan = plan_of({"a": "rctm2", "b": "luong", "c": "unheard"}, (1,))
    results = [result_of(plan, slug, 1, refs, refs) for slug in "abc"]
    summary = summarise_texts(plan, results, [], refs, refs, {(slug, 1): refs for slug in "abc"})
    assert about_curves(summary).startswith("rctm2 plans the length of its output")
    assert dict(methods(summary))["Perplexity"].endswith("of rctm2 with the share of the length")
    assert about_curves(summary_with()) == ""


def test_how_a_failure_is_told():
    for code, said in ((0, "lost"), (1, "lost (exit code 1)"), (-9, "lost (signal 9)")):
        assert why(Failure(entry="a", seed=1, reason="lost", details="", exit=code)) == said


def test_the_words_fit_the_seeds():
    refs = references(20)
    one, two = (summary_of({("a", s): refs for s in seeds}, refs, seeds) for seeds in ((1,), (1, 2)))
    assert any("trained once" in text for text in caveats(one))
    assert not any("trained once" in text for text in caveats(two))
    assert any("standard deviation over seeds" in text for text in caveats(two))


def test_the_budget_in_words():
    plan = plan_of({"a": "a", "b": "b"}, (1,))
    assert budget_in_words(plan) == "equal steps: 1,000 steps each"
    entries = [dataclasses.replace(e, values={"train": {"batch_tokens": 700, "accumulate": 2}}) for e in plan.entries]
    plan = dataclasses.replace(plan, entries=tuple(entries))
    assert budget_in_words(plan) == "equal steps: 1,000 steps each, of 1,400 tokens at most"
    timed = plan_of({"a": "a"}, (1,), budget=Budget(kind="time", seconds=90.0))
    assert "about 90 s of training each" in budget_in_words(timed)
    sized = plan_of({"a": "a"}, (1,), budget=Budget(kind="parameters", parameters=2_000_000))
    assert "2,000,000" in budget_in_words(sized)


def test_unequal_runs_are_refused():
    refs = references(20)
    statistics_of = Statistics.of("bleu", refs, refs, Flavour())
    with pytest.raises(ConfigError, match="1 runs of the one and 2 of the other"):
        pooled_test([statistics_of], [statistics_of] * 2)
    with pytest.raises(ConfigError, match="differ in metric"):
        pooled_test([statistics_of], [Statistics.of("chrf", refs, refs, Flavour())])
