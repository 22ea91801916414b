"""The commands as a user runs them: what goes in, what comes out, and in which form."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.core.files import read_json, write_json

SMALL = [
    "data.valid_size=5",
    "data.test_size=5",
    "model.width=16",
    "model.layers=1",
    "model.heads=2",
    "tokenizer.size=200",
    "train.steps=5",
    "train.batch_tokens=300",
    "train.threads=1",
]


def process(*arguments: str, stdin: bytes = b"", **more: str) -> subprocess.CompletedProcess[bytes]:
    """A real process, as from a shell."""
    environment = {**os.environ, "PYTHONPATH": str(Path(regard.__file__).parents[1]), "OMP_NUM_THREADS": "1", **more}
    return subprocess.run(
        [sys.executable, "-m", "regard", *arguments], input=stdin, capture_output=True, env=environment, timeout=120
    )


# --- help


def test_help_answers_at_once_and_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['regard', '--help']\n"
        "from regard.cli.main import run\n"
        "try: run()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'sacrebleu', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(regard.__file__).parents[1])}
    fastest = math.inf
    for _ in range(3):  # the machine may be busy: the best of three is what the command needs
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
        fastest = min(fastest, time.monotonic() - began)
        assert done.returncode == 0, done.stderr
        for verb in (
            "demo",
            "train",
            "translate",
            "score",
            "evaluate",
            "compare",
            "align",
            "models",
            "recipes",
            "show",
        ):
            assert f"\n  {verb} " in done.stdout
        if fastest < 1.5:
            break
    assert fastest < 1.5


@pytest.mark.parametrize(
    "verb", ["demo", "train", "translate", "score", "evaluate", "compare", "align", "models", "recipes", "show"]
)
def test_every_verb_has_help(command: Callable, verb: str) -> None:
    done = command(verb, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: regard {verb} ")


def test_version(command: Callable) -> None:
    assert command("--version").out == f"regard {regard.__version__}\n"


def test_without_arguments_help_is_shown(command: Callable) -> None:
    done = command()
    assert done.code == 2
    assert "Commands:" in done.out + done.err


# --- train


def test_train_from_a_recipe_with_overrides(command: Callable, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = command("train", "demo", "data.max_pairs=200", *SMALL, "--out", out)
    assert done.code == 0, done.err
    assert done.out == "", "what is said while training goes to standard error"
    assert f"regard translate --model {out}" in done.err
    config = read_json(out / "config.json")
    assert (config["train"]["steps"], config["model"]["width"]) == (5, 16)
    assert config["train"]["schedule"] == "linear", "from the recipe"
    assert config["data"]["pairs"] == "bundled:tatoeba-en-de"
    assert read_json(out / "data.json")["pairs"]["train"] == 200
    assert read_json(out / "scores.json")["scores"]["bleu"]["signature"].startswith("nrefs:1|")
    run = read_json(out / "run.json")
    assert run["status"] == "finished"
    assert run["command"].startswith("regard train demo data.max_pairs=200 ")
    assert command("translate", "--model", out, "Hello.", "--beam", 1).code == 0


def test_train_from_two_files_chooses_sizes(command: Callable, tmp_path: Path) -> None:
    src, tgt, out = tmp_path / "a.en", tmp_path / "a.de", tmp_path / "run"
    numbers = [f"{a} {b}" for a in range(12) for b in range(12)]
    src.write_text("".join(f"from {n}\n" for n in numbers))
    tgt.write_text("".join(f"von {n}\n" for n in numbers))
    done = command("train", "--src", src, "--tgt", tgt, "--out", out, "--quiet", "train.steps=2", "train.threads=1")
    assert (done.code, done.out, done.err) == (0, "", "")
    config = read_json(out / "config.json")
    assert config["train"]["steps"] == 2, "overrides work without a recipe"
    assert (config["model"]["width"], config["model"]["layers"]) == (128, 2), "what so small a corpus carries"
    assert config["tokenizer"]["size"] == 2000
    assert config["data"]["src"] == str(src)


def test_a_recipe_file_and_ones_own_text(
    command: Callable, tmp_path: Path, text_files, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, out = tmp_path / "mine.toml", tmp_path / "run"
    recipe.write_text('[data]\npairs = "bundled:tatoeba-en-de"\ntarget_language = "de"\n[train]\nseed = 9\n')
    monkeypatch.chdir(text_files.src.parent)
    done = command("train", recipe, *SMALL, "--src", text_files.src.name, "--tgt", text_files.tgt.name, "-o", out)
    assert done.code == 0, done.err
    config = read_json(out / "config.json")
    assert (config["data"]["src"], config["data"]["pairs"]) == (str(text_files.src), "")
    assert (config["data"]["target_language"], config["train"]["seed"]) == ("de", 9)


def test_fine_tuning_keeps_the_model_and_its_tokenizer(
    command: Callable, tmp_path: Path, tiny_run: Path, text_files
) -> None:
    out = tmp_path / "tuned"
    files = ("--src", text_files.src, "--tgt", text_files.tgt)
    done = command("train", "--from", tiny_run, *files, "--out", out, "train.steps=2", "train.threads=1")
    assert done.code == 0, done.err
    assert (out / "tokenizer.json").read_bytes() == (tiny_run / "tokenizer.json").read_bytes()
    assert read_json(out / "config.json")["model"] == read_json(tiny_run / "config.json")["model"]
    assert (out / "model.safetensors").read_bytes() != (tiny_run / "model.safetensors").read_bytes()


def test_resuming_a_finished_run_changes_nothing(command: Callable, tiny_run: Path) -> None:
    before = {path: path.read_bytes() for path in tiny_run.glob("*.*") if path.is_file()}
    done = command("train", "--resume", tiny_run)
    assert done.code == 0
    assert "finished; nothing is left to do" in done.err
    assert {path: path.read_bytes() for path in before} == before


# --- translate


def test_translate_an_argument(command: Callable, tiny_run: Path) -> None:
    done = command("translate", "--no-guard", "--model", tiny_run, "You are here.")
    assert done.code == 0
    assert done.err == "Warning: 1 of 1 translations did not end by themselves and were cut at the maximum length.\n"
    assert done.out == regard.load(tiny_run).translate("You are here.") + "\n"
    assert command("translate", "--no-guard", "-m", tiny_run, "You", "are", "here.").out == done.out, (
        "several words are one text"
    )


def test_translate_keeps_lines(command: Callable, tiny_run: Path) -> None:
    texts = ["You are here.", "", "I saw Tom.", "   ", "Is it you?"]
    expected = regard.load(tiny_run).translate(texts)
    assert expected[1] == ""
    done = command("translate", "-m", tiny_run, stdin="\n".join(texts).encode())
    assert done.out == "\n".join(expected) + "\n", "no line break after the last line"
    assert command("translate", "-m", tiny_run, stdin=("\n".join(texts) + "\n").encode()).out == done.out
    windows = b"\xef\xbb\xbf" + "\r\n".join(texts).encode() + b"\r\n"
    assert command("translate", "-m", tiny_run, stdin=windows).out == done.out, "CRLF and a byte order mark"
    assert command("translate", "-m", tiny_run, "\n".join(texts)).out == done.out, "an argument of several lines"
    assert command("translate", "-m", tiny_run, stdin=b"").out == ""
    assert command("translate", "-m", tiny_run, stdin=b"\n").out == "\n"
    assert command("translate", "-m", tiny_run, "").out == "\n"


def test_other_line_separators_do_not_break_lines(command: Callable, tiny_run: Path) -> None:
    done = command("translate", "-m", tiny_run, "--beam", 1, stdin="a\u2028b\x0bc\x85d\re\nf\n".encode())
    assert done.out.count("\n") == 2


def test_json_holds_tokens_scores_and_attention(command: Callable, tiny_run: Path) -> None:
    done = command("translate", "-m", tiny_run, "--json", "--nbest", 2, stdin=b"You are here.\n\nI saw Tom.\n")
    rows = [json.loads(line) for line in done.lines]
    assert [row["source"] for row in rows] == ["You are here.", "", "I saw Tom."]
    assert [len(row["translations"]) for row in rows] == [2, 1, 2]
    empty = rows[1]["translations"][0]
    assert (empty["text"], empty["tokens"], empty["finished"]) == ("", [], True)
    for found in (*rows[0]["translations"], *rows[2]["translations"]):
        written, read = len(found["tokens"]), len(found["source_tokens"])
        assert written
        assert read
        rows_written = written + found["finished"]
        assert len(found["token_log_probs"]) == rows_written
        assert math.fsum(found["token_log_probs"]) == pytest.approx(found["log_prob"], abs=1e-5)
        assert len(found["attention"]) == rows_written
        for weights in found["attention"]:
            assert len(weights) == read + 1
            assert math.fsum(weights) == pytest.approx(1, abs=1e-5)
    first, second = rows[0]["translations"]
    assert first["score"] >= second["score"]
    assert first["text"] == command("translate", "-m", tiny_run, "You are here.").lines[0]


def test_nbest_is_written_as_moses_does(command: Callable, tiny_run: Path) -> None:
    done = command("translate", "-m", tiny_run, "--nbest", 3, stdin=b"You are here.\nI saw Tom.\n")
    rows = [line.split(" ||| ") for line in done.lines]
    assert [row[0] for row in rows] == ["0", "0", "0", "1", "1", "1"]
    assert all(len(row) == 3 for row in rows)
    scores = [float(row[2]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    assert len({row[1] for row in rows[:3]}) == 3


def test_nbest_widens_the_beam(command: Callable, tiny_run: Path) -> None:
    assert len(command("translate", "-m", tiny_run, "--nbest", 7, "Hello.").lines) == 7


def test_beam_and_length_are_heard(command: Callable, tiny_run: Path) -> None:
    def only(*arguments: object) -> dict:
        return json.loads(command("translate", "-m", tiny_run, "--json", *arguments, "You are here.").out)[
            "translations"
        ][0]

    wide, greedy, short = only(), only("--beam", 1), only("--max-length", 3)
    assert wide["log_prob"] >= greedy["log_prob"], "a wider beam finds no worse"
    assert len(short["tokens"]) <= 3
    normalised = only("--beam", 1, "--length-penalty", 1, "--length-norm", "plain")
    length = len(normalised["token_log_probs"])
    assert normalised["score"] == pytest.approx(normalised["log_prob"] / length, rel=1e-4)
    pairs = list(zip(only("--no-repeat", 2)["tokens"], only("--no-repeat", 2)["tokens"][1:], strict=False))
    assert len(pairs) == len(set(pairs))


def test_samples_come_from_the_seed(command: Callable, tiny_run: Path) -> None:
    def draw(*arguments: object) -> str:
        done = command("translate", "-m", tiny_run, "--sample", *arguments, "You are here.")
        assert done.code == 0, done.err
        return done.out

    assert draw("--seed", 4) == draw("--seed", 4)
    assert draw("--seed", 4) != draw("--seed", 5)
    greedy = command("translate", "-m", tiny_run, "--beam", 1, "You are here.").out
    assert draw("--seed", 4, "--top-k", 1) == greedy
    assert len(draw("--nbest", 3).splitlines()) == 3


def test_prefix(command: Callable, tiny_run: Path) -> None:
    done = command("translate", "-m", tiny_run, "--prefix", "Ich bin", stdin=b"You are here.\n\nI saw Tom.\n")
    assert done.lines[0].startswith("Ich bin")
    assert done.lines[1] == ""
    assert done.lines[2].startswith("Ich bin")


def test_a_file_name_as_text_is_pointed_out(command: Callable, tiny_run: Path, text_files) -> None:
    done = command("translate", "-m", tiny_run, "--beam", 1, text_files.src)
    assert done.code == 0
    assert done.err.startswith("Warning: ")
    assert "regard translate < FILE" in done.err


def test_real_processes_filter_utf8(tiny_run: Path) -> None:
    """Through real pipes, in a locale that knows only ASCII."""
    text = "Ärger über Öl, 你好.\n\nIs it you?"
    done = process("translate", "--model", str(tiny_run), stdin=text.encode(), LC_ALL="C", PYTHONUTF8="0")
    assert done.returncode == 0
    assert done.stdout.decode() == "\n".join(regard.load(tiny_run).translate(text.split("\n"))) + "\n"


def test_a_reader_that_goes_away_is_no_traceback(tiny_run: Path) -> None:
    command_line = f"yes 'You are.' | head -n 20000 | {sys.executable} -m regard translate -m '{tiny_run}' --beam 1"
    environment = {**os.environ, "PYTHONPATH": str(Path(regard.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        ["sh", "-c", command_line + " --max-length 1 --nbest 1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""


# --- score


def test_score_agrees_with_translate(command: Callable, tiny_run: Path, tmp_path: Path) -> None:
    """Decoding gives each token the log-probability that scoring gives it: here those of a forced beginning."""
    src, tgt = tmp_path / "s", tmp_path / "t"
    texts, target = ["You are here.", "I saw Tom.", "Is it you?"], "Ich bin schon da"
    src.write_text("\n".join(texts))
    tgt.write_text("\n".join([target] * len(texts)))
    plain = command("score", "-m", tiny_run, "--src", src, "--tgt", tgt)
    rows = [json.loads(line) for line in command("score", "-m", tiny_run, "--src", src, "--tgt", tgt, "--json").lines]
    assert [float(line) for line in plain.lines] == pytest.approx([row["log_prob"] for row in rows], abs=1e-6)
    forced = command("translate", "-m", tiny_run, "--json", "--prefix", target, stdin=src.read_bytes())
    for row, line in zip(rows, forced.lines, strict=True):
        found = json.loads(line)["translations"][0]
        length = len(row["tokens"])
        assert length > 3
        assert found["tokens"][:length] == row["tokens"]
        assert found["token_log_probs"][:length] == pytest.approx(row["token_log_probs"][:-1], abs=1e-5)
        assert len(row["token_log_probs"]) == length + 1
        assert math.fsum(row["token_log_probs"]) == pytest.approx(row["log_prob"], abs=1e-5)
        assert row["perplexity"] == pytest.approx(math.exp(-row["log_prob"] / (length + 1)), rel=1e-4)


# --- evaluate


@pytest.fixture(scope="module")
def test_set(text_files, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("test-set")
    src, ref = folder / "test.en", folder / "test.de"
    src.write_text("".join(line + "\n" for line in text_files.sources[::17]), encoding="utf-8")
    ref.write_text("".join(line + "\n" for line in text_files.targets[::17]), encoding="utf-8")
    return src, ref


def test_evaluate(command: Callable, tiny_run: Path, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    src, ref = test_set
    out, plot = tmp_path / "out.de", tmp_path / "lengths.png"
    done = command("evaluate", "-m", tiny_run, "--src", src, "--ref", ref, "--out", out, "--plot", plot)
    assert (done.code, done.err) == (0, "")
    for name in ("BLEU", "chrF2", "TER"):
        assert any(line.startswith(f"  {name} ") and "nrefs:1|" in line for line in done.lines)
    assert "case:mixed" in done.out
    assert "tok:13a" in done.out
    assert "perplexity" in done.out
    assert "BLEU by source length" in done.out
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert out.read_text(encoding="utf-8").splitlines() == regard.load(tiny_run).translate(
        src.read_text(encoding="utf-8").splitlines()
    )


def test_evaluate_as_json_against_a_model_and_a_file(
    command: Callable, tiny_run: Path, test_set: tuple[Path, Path]
) -> None:
    src, ref = test_set
    common = ("--src", src, "--ref", ref, "--beam", 1, "--json")
    same = json.loads(command("evaluate", "-m", tiny_run, "--against", tiny_run, *common).out)
    assert same["system"]["scores"] == same["against"]["scores"]
    assert {test["metric"] for test in same["paired_tests"]} >= {"bleu", "chrf"}
    perfect = json.loads(command("evaluate", "-m", tiny_run, "--against", ref, *common).out)
    assert perfect["against"]["scores"]["bleu"]["value"] == pytest.approx(100)
    assert perfect["against"]["perplexity"] is None
    assert perfect["system"]["perplexity"] == pytest.approx(same["system"]["perplexity"])
    assert perfect["system"]["scores"] == same["system"]["scores"]


def test_evaluate_shows_whether_a_difference_is_significant(
    command: Callable, tiny_run: Path, test_set: tuple[Path, Path]
) -> None:
    src, ref = test_set
    done = command("evaluate", "-m", tiny_run, "--src", src, "--ref", ref, "--against", ref, "--beam", 1)
    assert "randomisation p = " in done.out
    assert "significant at 5 %" in done.out
    done = command("evaluate", "-m", ref, "--src", src, "--ref", ref)
    assert "BLEU 100.00" in done.out, "a file of translations is a system too"


def test_evaluate_old_papers_way_says_so(command: Callable, tiny_run: Path, test_set: tuple[Path, Path]) -> None:
    src, ref = test_set
    flags = ("--tokenized", "--lowercase", "--beam", 1, "--json")
    done = command("evaluate", "-m", tiny_run, "--src", src, "--ref", ref, *flags)
    signature = json.loads(done.out)["system"]["scores"]["bleu"]["signature"]
    assert "tok:none" in signature
    assert "case:lc" in signature


def test_brackets_in_a_name_are_no_markup(command: Callable, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    src, ref = test_set
    odd = tmp_path / "[red]system"
    odd.write_bytes(ref.read_bytes())
    assert "[red]system" in command("evaluate", "-m", odd, "--src", src, "--ref", ref).out


# --- models, recipes, show


def test_models(command: Callable) -> None:
    done = command("models")
    assert (done.code, done.err) == (0, "")
    assert "transformer" in done.out
    assert "tatoeba-en-de" in done.out


def test_recipes(command: Callable, tmp_path: Path) -> None:
    done = command("recipes")
    assert done.code == 0
    for name in ("demo", "multi30k-en-de", "tatoeba-en-de"):
        assert name in done.out
        text = command("recipes", name).out
        copy = tmp_path / f"{name}.toml"
        copy.write_text(text, encoding="utf-8")
        assert command("recipes", copy).out == text, "what is printed is a recipe again"


def test_show(command: Callable, tiny_run: Path) -> None:
    done = command("show", tiny_run)
    assert (done.code, done.err) == (0, "")
    card = dict(line.split(" = ", 1) for line in done.lines)
    assert card["status"] == "finished"
    assert card["data.fingerprint"] == read_json(tiny_run / "data.json")["fingerprint"]
    assert card["data.train"] == str(read_json(tiny_run / "data.json")["pairs"]["train"])
    assert card["command"] == "regard train ..."
    assert (card["model.name"], card["model.width"], card["vocabulary.shared"]) == ("transformer", "16", "true")
    scores = read_json(tiny_run / "scores.json")["scores"]
    assert card["test.BLEU"].endswith(scores["bleu"]["signature"])
    assert card["versions.regard"] == regard.__version__
    assert not any(mark in line for line in done.lines for mark in "{}")


def test_show_in_a_terminal_is_a_table(command: Callable, tiny_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = read_json(tiny_copy / "run.json")
    write_json(tiny_copy / "run.json", {**run, "command": "regard train\n[red]odd[/red]", "versions": {}})
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "70")
    shown = re.sub("\x1b\\[[0-9;]*m", "", command("show", tiny_copy).out)
    cells = dict(re.findall(r"│ (\S+) +│ (.*?) +│", shown))
    assert (cells["status"], cells["model.width"]) == ("finished", "16")
    assert cells["command"] == "regard train [red]odd[/red]"
    assert "versions" not in shown
    assert re.search(r"status .*\n├.*\n. model\.name", shown), "sections are set apart"
    assert max(map(len, shown.splitlines())) <= 70
    fingerprint = read_json(tiny_copy / "data.json")["fingerprint"]
    assert fingerprint in re.sub(r"\s*│\n│\s*│ ", "", shown), "broken over lines, but whole"


def test_show_a_run_that_has_barely_begun(command: Callable, tiny_copy: Path) -> None:
    for name in ("model.safetensors", "scores.json", "data.json", "manifest.json"):
        (tiny_copy / name).unlink()
    done = command("show", tiny_copy)
    assert done.code == 0, done.err
    assert "test.BLEU" not in done.out
    assert "fingerprint" not in done.out


def test_stopped_before_the_first_step(
    command: Callable, text_files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import regard.training.run

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(regard.training.run, "_run", stop)
    out = tmp_path / "run"
    done = command("train", "--src", text_files.src, "--tgt", text_files.tgt, "--out", out)
    assert done.code == 130
    assert done.err == f"Stopped before the first step. Go on with: regard train --resume {out}\n"
    (out / "checkpoints" / "step-000000007").mkdir(parents=True)
    assert command("train", "--resume", out).err.startswith("Stopped and saved at step 7. Go on with: ")


def test_ctrl_c_while_importing_waits_until_the_imports_are_whole() -> None:
    """Some libraries swallow it half-way and are broken from then on."""
    import os
    import signal

    from regard.cli.imports import whole_imports

    before = signal.getsignal(signal.SIGINT)
    reached = []

    def imports() -> None:
        with whole_imports():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("the end of the imports")

    with pytest.raises(KeyboardInterrupt):
        imports()
    assert reached
    assert signal.getsignal(signal.SIGINT) is before
