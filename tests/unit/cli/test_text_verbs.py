"""Language models on the command line: `generate`, `next` and `evaluate --text`, as functions with plain arguments."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.cli.evaluate_text import run_evaluate_text
from regard.cli.generate import run_generate
from regard.cli.next_words import run_next, shown
from regard.cli.notes import note_draft
from regard.core.errors import ConfigError, DataError, ModelError
from regard.core.files import save_tensors, write_json, write_manifest
from regard.data.tokenizer_training import TokenizerConfig
from regard.data.tokenizers import TokenizerPair
from regard.evaluation.text_run import evaluate_text
from regard.models.base import build_model
from regard.models.gpt import GPTConfig
from regard.search.config import SearchConfig
from regard.tasks.folder import CONFIG, DATA, FORMAT, WEIGHTS, weights_of
from regard.tasks.language_model import TextModel
from regard.tasks.next_words import NextWord

LINES = ["the cat sat on the mat", "the dog sat", "a cat and a dog, and the mat"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small GPT that has learnt nothing."""
    folder = tmp_path_factory.mktemp("lm")
    tokenizers = TokenizerPair.train_on_text(LINES * 3, TokenizerConfig(size=40, min_count=1))
    size = tokenizers.target.size
    torch.manual_seed(2)
    config = GPTConfig(width=16, layers=1, heads=2, context=24)
    model = build_model("gpt", config, source_vocabulary=size, target_vocabulary=size, shared=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    plain = {
        "format": FORMAT,
        "model": dataclasses.asdict(config),
        "search": dataclasses.asdict(SearchConfig(max_length=12)),
        "vocabulary": {"source": size, "target": size, "shared": True},
    }
    write_json(folder / CONFIG, plain)
    tokenizers.save(folder)
    save_tensors(folder / WEIGHTS, weights_of(model))
    write_manifest(folder, [CONFIG, WEIGHTS, "tokenizer.json"])
    return folder


@pytest.fixture(scope="module")
def reader(run: Path) -> TextModel:
    return TextModel.load(run, "cpu")


def given(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))


def generate(
    run: Path | None, prompt: str | None = "the cat", as_json: bool = False, echo: Any = None, **wishes
) -> None:
    run_generate(prompt, run, wishes, echo, as_json, "cpu")


def test_a_folder_gives_a_text_model(reader, run):
    assert reader.folder == run
    assert reader.search.max_length == 12
    assert reader.context == 24


def test_one_sample_is_streamed(reader, run, capsys):
    generate(run, seed=4)
    assert capsys.readouterr().out == reader.generate("the cat", seed=4) + "\n"
    generate(run, method="greedy", echo=True)
    assert capsys.readouterr().out == "the cat" + reader.generate("the cat", method="greedy") + "\n"


def test_it_comes_as_the_tokens_do(run, capsys, monkeypatch):
    written: list[str] = []

    class Watched(io.StringIO):
        def flush(self) -> None:
            written.append(self.getvalue())

    monkeypatch.setattr(sys, "stdout", Watched())
    generate(run, seed=4)
    lengths = [len(text) for text in written]
    assert len(set(lengths)) > 4
    assert lengths == sorted(lengths)


def test_several_samples_are_numbered(reader, run, capsys):
    generate(run, samples=2, seed=4)
    first, second = reader.generate("the cat", samples=2, seed=4)
    assert capsys.readouterr().out == f"--- 1\n{first}\n--- 2\n{second}\n"


def test_json_has_tokens_and_log_probs(reader, run, capsys):
    generate(run, as_json=True, beam=3, samples=2, max_tokens=5)
    found = json.loads(capsys.readouterr().out)
    assert found["prompt"] == "the cat"
    expected = reader.generations("the cat", search=reader.settings(beam=3, samples=2, max_tokens=5))
    assert found["generations"] == [one.to_plain() for one in expected]


def test_standard_input_is_the_prompt(reader, run, capsys, monkeypatch):
    given(monkeypatch, b"the cat sat\n")
    generate(run, None, seed=4)
    assert capsys.readouterr().out == reader.generate("the cat sat", seed=4) + "\n"
    given(monkeypatch, b"")
    generate(run, None, seed=4)
    beginning = reader.generate("", seed=4) + "\n"
    assert capsys.readouterr().out == beginning
    monkeypatch.setattr(sys, "stdin", None)
    generate(run, None, seed=4)
    assert capsys.readouterr().out == beginning
    given(monkeypatch, b"the c\xe4t\n")
    with pytest.raises(DataError, match="standard input"):
        generate(run, None)


def test_no_control_characters_reach_a_terminal(run, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(TextModel, "pieces", lambda self, prompt, search: iter(["a\x1b[2J", "\tb\n\x9bc"]))
    generate(run, "the")
    assert capsys.readouterr().out == "thea␛[2J\tb\n⟨U+009B⟩c\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    generate(run, "the")
    assert capsys.readouterr().out == "a\x1b[2J\tb\n\x9bc\n"


def test_stopping_ends_the_line(run, capsys, monkeypatch):
    def stopped(self, prompt, search):
        yield "abc"
        raise KeyboardInterrupt

    monkeypatch.setattr(TextModel, "pieces", stopped)
    with pytest.raises(KeyboardInterrupt):
        generate(run)
    assert capsys.readouterr().out == "abc\n"


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"method": "greedy", "top_k": 3}, "^--top-k: it is for sampling"),
        ({"temperature": 0.0}, "^--temperature: 0.0 is not above 0. For the likeliest text use --method greedy"),
        ({"samples": 65}, "^--samples: 65 is not from 1 to 64"),
        ({"max_tokens": 0}, "^--max-tokens: 0 is not from 1"),
        ({"beam": 100}, "^--beam: 100"),
    ],
)
def test_mistakes_name_the_option(run, wishes, message):
    with pytest.raises(ConfigError, match=message):
        generate(run, **wishes)


def test_bad_prompts_and_models_are_clear_errors(run, tiny_run):
    with pytest.raises(ModelError, match="it has 30 tokens, and the model reads at most 22 to write one more"):
        generate(run, "the " * 30)
    with pytest.raises(DataError, match="all of it is unknown"):
        generate(run, "日本")
    for how in ({"as_json": True}, {"samples": 2}, {}):
        with pytest.warns(
            UserWarning, match=r"At most 21 tokens .* not 100: .* 24 tokens, and a beam search ends there"
        ):
            generate(run, "the cat", max_tokens=100, beam=2, **how)
    with pytest.raises(ModelError, match="Transformer: this model is no language model"):
        generate(tiny_run)
    with pytest.raises(ConfigError, match=r"--model: no language model is given.*regard demo --task lm"):
        generate(None)


def test_next_words_are_a_table(reader, run, capsys):
    run_next(["the", "cat"], run, 4, False, False, "cpu")
    out = capsys.readouterr().out
    rows = reader.next_words("the cat", 4)
    for row in rows:
        assert shown(row, "the cat") in out
        assert f"{100 * row.probability:.2f} %" in out
    assert "█" * 30 in out
    run_next("the cat", run, 4, True, True, "cpu")
    found = json.loads(capsys.readouterr().out)
    expected = reader.next_words("the cat", 4, tokens=True)
    assert found == {"prompt": "the cat", "next": [row._asdict() for row in expected]}
    with pytest.raises(ConfigError, match="--top: 2000 rows"):
        run_next("the", run, 2000, False, False, "cpu")


def test_rows_are_made_visible():
    cases = {
        NextWord(" the", 0.1): "the", NextWord("mbing", 0.1): "…mbing", NextWord(".", 0.1): ".",
        NextWord("</s>", 0.1, "end"): "(end of text)", NextWord("\n\x1b", 0.1): "␊␛",
        NextWord(" tr", 0.1, "token"): "tr (part)", NextWord("<unk>", 0.1, "token"): "<unk>", NextWord(" ", 0.1): "␣",
    }  # fmt: skip
    assert {row: shown(row, "I") for row in cases} == cases
    assert shown(NextWord("The", 0.1), "") == "The"


def test_evaluate_text(reader, run, capsys, tmp_path):
    file = tmp_path / "test.txt"
    file.write_text("".join(line + "\n" for line in LINES))
    run_evaluate_text([file], run, "auto", None, None, True, "cpu")
    found = json.loads(capsys.readouterr().out)
    score = reader.perplexity(LINES)
    assert found["score"] == pytest.approx(score.to_plain())
    assert (found["context"], found["stride"], found["files"]) == (24, 12, [str(file)])
    assert found["score"]["words"] == 20
    run_evaluate_text([file, file], run, "file", 8, 2, False, "cpu")
    out = capsys.readouterr().out
    whole = reader.perplexity([file.read_text()] * 2, context=8, stride=2)
    assert f"perplexity {whole.word_perplexity:.3f} per word" in out
    assert f"{whole.byte_perplexity:.4f} per byte" in out
    assert "2 documents, 36 words" in out
    assert "windows of 8 tokens, 2 apart" in out
    file.write_text("the xylophone Ω\n")
    run_evaluate_text([file], run, "auto", None, None, False, "cpu")
    assert "stand for what the vocabulary lacks" in capsys.readouterr().err


def test_text_goes_on_beyond_the_context_without_a_warning(reader, run, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate(run, as_json=True, max_tokens=100, method="greedy")
        (found,) = json.loads(capsys.readouterr().out)["generations"]
        assert len(found["tokens"]) == 100
        generate(run, max_tokens=100, method="greedy")
        assert capsys.readouterr().out == found["text"] + "\n"


def test_a_trigram_needs_training_text(run, tmp_path):
    (tmp_path / "a.txt").write_text("the cat\n")
    with pytest.raises(DataError, match="does not say what text it was trained on"):
        run_evaluate_text([tmp_path / "a.txt"], run, "auto", None, None, False, "cpu", 0.5)
    imported = shutil.copytree(run, tmp_path / "imported")
    write_json(imported / DATA, {"format": FORMAT, "imported": "gpt2"})
    with pytest.raises(DataError, match="imported: the model was imported, and has no training text"):
        run_evaluate_text([tmp_path / "a.txt"], imported, "auto", None, None, False, "cpu", 0.5)
    with pytest.raises(ConfigError, match=r"--trigram: 1\.5 is not from 0 to 1 \(the trigram alone\)"):
        run_evaluate_text([tmp_path / "a.txt"], run, "auto", None, None, False, "cpu", 1.5)


def test_evaluation_mistakes(reader, run, tmp_path):
    (tmp_path / "a.txt").write_text("the cat\n")
    with pytest.raises(ConfigError, match="--context: 99 tokens are not from 1 to the model's 24"):
        run_evaluate_text([tmp_path / "a.txt"], run, "auto", 99, None, False, "cpu")
    with pytest.raises(ConfigError, match="--stride: 0 is less than 1"):
        run_evaluate_text([tmp_path / "a.txt"], run, "auto", None, 0, False, "cpu")
    with pytest.raises(ConfigError, match="--documents: 'page' is not one of"):
        run_evaluate_text([tmp_path / "a.txt"], run, "page", None, None, False, "cpu")
    with pytest.raises(DataError):
        run_evaluate_text([tmp_path / "none.txt"], run, "auto", None, None, False, "cpu")
    with pytest.raises(DataError, match="no file is given"):
        evaluate_text(reader, [])


def test_a_draft_is_told_to_be_slow_on_cuda(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wishes: dict[str, Any] = {"method": "greedy", "max_tokens": 4}
    run_generate("the cat", run, wishes, False, False, "cpu", run)
    plain = capsys.readouterr()
    assert "slower" not in plain.err
    told: list[str] = []
    monkeypatch.setattr("regard.cli.generate.note_draft", told.append)
    run_generate("the cat", run, wishes, False, False, "cpu", run)
    assert told == ["cpu"]
    assert capsys.readouterr().out == plain.out
    note_draft("cuda")
    assert "on CUDA --draft is slower" in capsys.readouterr().err
