"""The benchmark of deep encoders with shallow decoders: who learns from whom, what is done again, and the differences it shows."""

import argparse
import sys
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[2] / "benchmarks"
BLEU = {"6+6": 40.0, "6+2": 39.5, "12+1": 38.0}


@pytest.fixture
def deep(monkeypatch):
    monkeypatch.syspath_prepend(str(PLACE))
    import deep_shallow

    yield deep_shallow
    for name in ("deep_shallow", "distilled_student", "timed_training", "bundled_model"):
        sys.modules.pop(name, None)


@pytest.fixture
def asked(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for ending, lines in (("en", ["a  b\tc", "d e", "f g"]), ("de", ["A B C", "D E", "F G"])):
        for name in ("train", "valid", "test"):
            (data / f"{name}.{ending}").write_text("".join(f"{line}\n" for line in lines))
    sides = (("src", "en"), ("tgt", "de"))
    files = [f"data.{side}=train.{ending}" for side, ending in sides]
    files += [f"data.{part}_{side}={part}.{ending}" for part in ("valid", "test") for side, ending in sides]
    return argparse.Namespace(
        data=data, recipe="europarl-en-de", layers="6+6,6+2,12+1", seeds="1,2", at_once=2, pairs=0,
        learns="references,teacher", teacher_steps=7, student_steps=5, student="", out=tmp_path, settings=files,
    )  # fmt: skip


def test_students_learn_from_the_teacher_of_their_seed(deep, asked, monkeypatch):
    done = []

    def beside(work, run):
        done.append(run)
        bleu = BLEU[run.layers] + (0.4 if run.learns == "teacher" else 0.0) + run.seed
        row = {"layers": run.layers, "learns": run.learns, "seed": run.seed, "parameters": 1_000_000}
        return row | {"test_bleu": bleu, "valid_bleu": bleu + 1, "test_chrf": 60.0}

    monkeypatch.setattr(deep, "beside", beside)
    rows, failed = deep.work(asked)
    assert (len(rows), failed) == (10, [])
    assert sorted(run.name for run in done if run.teaches) == ["6+6-references-1", "6+6-references-2"]
    for run in done:
        settings = dict(one.split("=", 1) for one in run.all_settings())
        assert settings["train.seed"] == str(run.seed)
        assert settings["train.steps"] == ("7" if run.teaches else "5")
        assert (settings["model.encoder_layers"], settings["model.decoder_layers"]) == tuple(run.layers.split("+"))
        from_teacher = settings["data.pairs"].endswith(f"6+6-references-{run.seed}.tsv")
        assert from_teacher == (run.learns == "teacher")
        assert ("tokenizer.folder" in settings) == from_teacher
    shown = deep.table(rows, "6+6").splitlines()
    assert shown[1].split()[:5] == ["6+6", "references", "2", "41.50", "+0.00"]
    assert {tuple(line.split()[:5]) for line in shown[2:]} == {
        ("6+2", "references", "2", "41.00", "-0.50"),
        ("12+1", "references", "2", "39.50", "-2.00"),
        ("6+2", "teacher", "2", "41.40", "-0.10"),
        ("12+1", "teacher", "2", "39.90", "-1.60"),
    }
    count = len(done)
    assert deep.work(asked)[1] == []
    assert len(done) == count  # nothing is done again
    asked.student_steps = 6
    assert sorted(deep.work(asked)[1]) == sorted(run.name for run in done if not run.teaches)


def test_only_one_kind_of_learning_is_done_where_that_is_asked_for(deep, asked):
    for learns in ("references", "teacher", "layers"):
        asked.learns = learns
        first, taught = deep.runs(asked)
        assert {run.learns for run in first if not run.teaches} == ({"references"} if learns == "references" else set())
        assert {run.learns for many in taught.values() for run in many} == ({learns} - {"references"})


def test_students_can_begin_with_the_teachers_layers(deep, asked):
    """Its tokens come with these, and its text is the same as without."""
    asked.learns, asked.student = "teacher,layers", "train.lr=1e-3 train.matrix_lr=0.01"
    for many in deep.runs(asked)[1].values():
        for run in many:
            settings = dict(one.split("=", 1) for one in run.all_settings())
            teacher = asked.out / f"6+6-references-{run.seed}"
            assert settings["data.pairs"] == f"{teacher}.tsv"
            assert run.begins_with == (teacher if run.learns == "layers" else None)
            assert ("tokenizer.folder" in settings) == (run.learns == "teacher")
            assert (settings["train.lr"], settings["train.matrix_lr"]) == ("1e-3", "0.01")
    assert all("train.lr" not in " ".join(run.all_settings()) for run in deep.runs(asked)[0])


def test_a_misspelt_kind_of_learning_is_refused_before_anything_is_trained(deep, asked):
    asked.learns = "teacher, layer"
    with pytest.raises(SystemExit, match="no 'layer'"):
        deep.runs(asked)


def test_the_text_of_all_is_the_recipes_own(deep, asked):
    assert deep.references(asked).read_text() == "a b c\tA B C\nd e\tD E\nf g\tF G\n"


def test_a_run_that_fails_does_not_end_the_others(deep, asked, monkeypatch):
    def beside(work, run):
        if run.teaches and run.seed == 1:
            raise deep.Failed("no memory")
        row = {"layers": run.layers, "learns": run.learns, "seed": run.seed, "parameters": 1}
        return row | {"test_bleu": 1.0, "valid_bleu": 1.0, "test_chrf": 1.0}

    monkeypatch.setattr(deep, "beside", beside)
    rows, failed = deep.work(asked)
    assert failed == ["6+6-references-1"]
    assert len(rows) == 10 - 3
