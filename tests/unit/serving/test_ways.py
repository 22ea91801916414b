"""Ways of decoding over HTTP: what /translate and /v1/completions give is what `regard translate` and `regard generate` give."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from regard.cli.translate import Choice, Together, settings_from
from regard.core.errors import ConfigError, ModelError
from regard.core.files import save_tensors, write_json, write_manifest
from regard.data.tokenizers import TokenizerPair
from regard.models.base import MODELS, build_model
from regard.serving.app import make_app
from regard.serving.service import Service
from regard.serving.shelf import Shelf
from regard.tasks.confidence import Calibration
from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, tokenizer_names, weights_of
from regard.tasks.language_model import TextModel
from regard.tasks.pretrained import bundled_model, load_translator

TEXTS = ["Where is the nearest bank?", "She bought a new car. Nobody drove it."]
SIZES: dict[str, dict[str, Any]] = {
    "transformer": {"width": 16, "layers": 1, "heads": 2},
    "gpt": {"width": 16, "layers": 2, "heads": 2, "context": 48},
    "cho": {"embedding": 8, "width": 8},
}


def folder_of(name: str, folder: Path, seed: int = 1) -> Path:
    """An untrained model with the bundled model's tokens, saved as a run is."""
    folder.mkdir(parents=True)
    TokenizerPair.load(bundled_model()).save(folder)
    tokenizers = TokenizerPair.load(folder)
    torch.manual_seed(seed)
    size = tokenizers.target.size
    config = MODELS.get(name).Config(name=name, **SIZES[name])
    model = build_model(name, config, source_vocabulary=size, target_vocabulary=size, shared=True)
    save_tensors(folder / WEIGHTS, weights_of(model))
    about = {"format": FORMAT, "resolved": True, "model": {"name": name, **SIZES[name]}}
    about |= {"vocabulary": {"source": size, "target": size, "shared": True}}
    about |= {"data": {"source_language": "en", "target_language": "fr"}} if name != "gpt" else {}
    write_json(folder / CONFIG, about)
    write_manifest(folder, [WEIGHTS, CONFIG, *tokenizer_names(folder)])
    return folder


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("ways")
    found = {"small": folder_of("transformer", place / "small"), "blind": folder_of("cho", place / "blind")}
    found |= {name: folder_of("gpt", place / name, seed) for seed, name in enumerate(["writer", "guesser", "lm"])}
    found["calibrated"] = place / "calibrated"
    shutil.copytree(bundled_model(), found["calibrated"])
    Calibration((0.7, 0.3), (1.0, 0.8, 0.1)).save(found["calibrated"])
    return found


@pytest.fixture(scope="module")
def service(places: dict[str, Path]):
    shelf = Shelf.open(
        [
            f"main={places['calibrated']}",
            f"pair=9*{bundled_model()}+{places['small']}",
            f"fused={bundled_model()}",
            str(places["blind"]),
            str(places["writer"]),
        ],
        device="cpu",
    )
    shelf.give("--draft", [f"main={places['small']}", f"writer={places['guesser']}"], ahead=3)
    shelf.give("--channel", [f"main={places['blind']}"])
    shelf.give("--rerank-lm", [f"main={places['lm']}"])
    shelf.give("--rerank-with", [f"main={places['small']}"])
    shelf.give("--fuse", [f"fused={places['lm']}"], fusion=0.4)
    found = Service(shelf)
    yield found
    found.close()


@pytest.fixture(scope="module")
def client(service: Service):
    with TestClient(make_app(service), raise_server_exceptions=False) as found:
        yield found


def ask(client: TestClient, status: int = 200, **fields: Any) -> dict[str, Any]:
    fields = {"q": TEXTS[0], "source": "en", "target": "de", "model": "main", **fields}
    answer = client.post("/translate", json=fields)
    assert answer.status_code == status, answer.text
    return answer.json()


def by_command(places, texts, changes=None, together=None, prefix="", **choice: Any):
    """What `regard translate` finds: its own functions, from options to translations."""
    changes = dict(changes or {})
    if together is None:
        translator = load_translator(places["calibrated"], "cpu", engine="auto")
    else:
        translator = together.load(bundled_model(), "cpu", "auto")
    if choice.get("draft") is not None:
        changes = {"beam": 1, "stop": "full", **changes}
    settings = settings_from(translator, changes)
    fields = {"mbr": None, "samples": 32, "channel": None, "language_model": None, "other": None, "guard": True}
    translator = Choice(**{**fields, **choice}).of(translator, "cpu")
    stream = translator.translate_stream(texts, search=settings, attention=False, alignment=True, prefix=prefix)
    return [many for _, many in stream]


@pytest.mark.parametrize(
    ("fields", "changes", "choice"),
    [
        ({"mbr": "chrf", "samples": 24, "alternatives": 8}, {"nbest": 9}, {"mbr": "chrf", "samples": 24}),
        ({"mbr": "bleu", "samples": 5, "alternatives": 2}, {"nbest": 3}, {"mbr": "bleu", "samples": 5}),
        ({"groups": 3, "alternatives": 5}, {"groups": 3, "nbest": 6}, {}),
        (
            {"groups": 2, "diversity": 2.5, "beam": 4, "alternatives": 3},
            {"groups": 2, "diversity": 2.5, "beam": 4, "nbest": 4},
            {},
        ),
        ({"draft": True}, {}, {"draft": "small", "ahead": 3}),
        (
            {"rerank": True, "alternatives": 2},
            {"nbest": 3},
            {"channel": "blind", "language_model": "lm", "other": "small"},
        ),
    ],
)
def test_the_same_as_by_command(client, places, fields, changes, choice):
    choice = {key: places.get(value, value) if isinstance(value, str) else value for key, value in choice.items()}
    right = by_command(places, TEXTS, changes, **choice)
    answer = ask(client, q=TEXTS, **fields)
    assert answer["translatedText"] == [many[0].text for many in right]
    if fields.get("alternatives"):
        assert answer["alternatives"] == [[one.text for one in many[1:]] for many in right]


def test_ways_change_something(client):
    """So that the test above can fail."""
    plain = ask(client, alternatives=5)
    assert ask(client, alternatives=5, groups=3, diversity=5)["alternatives"] != plain["alternatives"]
    assert ask(client, alternatives=4, rerank=True)["alternatives"] != plain["alternatives"][:4]
    assert ask(client, prefix="Sagen")["translatedText"] != plain["translatedText"]


def test_models_that_write_together(client, places):
    weights = {"others": [places["small"]], "weights": [9.0, 1.0], "mix": "log", "fuse": None, "fusion": 0.1}
    right = by_command(places, TEXTS, together=Together(**weights))
    assert ask(client, q=TEXTS, model="pair")["translatedText"] == [many[0].text for many in right]
    fused = {"others": [], "weights": None, "mix": "log", "fuse": places["lm"], "fusion": 0.4}
    right = by_command(places, TEXTS, together=Together(**fused))
    assert ask(client, q=TEXTS, model="fused")["translatedText"] == [many[0].text for many in right]


def test_a_prefix_and_what_could_stand_after_it(client, places):
    ((right, *_),) = by_command(places, TEXTS[:1], prefix="Wo liegt")
    answer = ask(client, prefix="Wo liegt", next_words=4, details=True)
    assert answer["translatedText"] == right.text
    assert right.text.startswith("Wo liegt")
    found = load_translator(bundled_model(), "cpu").alternatives(TEXTS[0], "Wo liegt", 4)
    assert [one["text"] for one in answer["nextWords"]] == [one.text for one in found]
    assert [one["score"] for one in answer["nextWords"]] == pytest.approx([one.score for one in found], abs=1e-4)
    assert len({one["text"] for one in answer["nextWords"]}) == 4
    assert len(ask(client, next_words=3)["nextWords"]) == 3


def test_details_confidences_and_links(client, places):
    right = by_command(places, TEXTS, {"nbest": 2})
    details = ask(client, q=TEXTS, alternatives=1, details=True, alignment=True)["details"]
    assert len(details) == 2
    for found, many in zip(details, right, strict=True):
        for told, one in zip(found, many, strict=True):
            assert (told["text"], told["tokens"], told["source_tokens"]) == (one.text, one.tokens, one.source_tokens)
            assert told["alignment"] == [list(link) for link in one.alignment]
            assert told["alignment"]
            assert told["note"] == one.note
            assert told["finished"]
            assert told["confidence"] == pytest.approx(one.confidence, abs=1e-4)
            assert told["token_confidences"] == pytest.approx(one.token_confidences, abs=1e-4)
            assert told["token_log_probs"] == pytest.approx(one.token_log_probs, abs=1e-4)
            assert len(told["token_confidences"]) == len(told["token_log_probs"])
    only = ask(client, alignment=True)["details"][0]
    assert set(only) == {"text", "score", "alignment"}
    assert "details" not in ask(client)
    uncalibrated = ask(client, model="fused", details=True)["details"][0]
    assert uncalibrated["confidence"] is None


def test_what_the_guard_says(client):
    """A long sentence of one word in a row: whatever the model makes of it, the answer says what the guard saw."""
    text = "no " * 60
    told = ask(client, q=text.strip(), details=True)["details"][0]
    translator = load_translator(bundled_model(), "cpu", engine="auto")
    from regard.tasks.guarding import Guard

    assert told["note"] == translator.guarded(Guard()).hypotheses([text.strip()])[0][0].note


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mbr": "ter"}, "mbr"),
        ({"samples": 8}, "minimum Bayes risk only"),
        ({"mbr": "chrf", "samples": 1}, "samples"),
        ({"mbr": "chrf", "samples": 99}, "samples"),
        ({"mbr": "chrf", "beam": 4}, "draws at random"),
        ({"mbr": "chrf", "groups": 2}, "draws at random"),
        ({"mbr": "chrf", "rerank": True}, "chooses by itself"),
        ({"mbr": "chrf", "samples": 2, "alternatives": 4}, "too few"),
        ({"groups": 99}, "groups"),
        ({"groups": 2, "beam": 5}, "does not divide"),
        ({"diversity": 1.0}, "groups of a beam"),
        ({"groups": 2, "diversity": -1}, "diversity"),
        ({"groups": 2, "rerank": True}, "one beam"),
        ({"rerank": True, "model": "fused"}, "no models to rerank with"),
        ({"draft": True, "model": "fused"}, "no small model"),
        ({"draft": True, "beam": 2}, "one text at a time"),
        ({"draft": True, "alternatives": 1}, "one text at a time"),
        ({"draft": True, "mbr": "chrf"}, "one text at a time"),
        ({"alignment": True, "model": "blind", "target": "fr"}, "no attention"),
        ({"prefix": "Wo", "q": TEXTS}, "one text"),
        ({"next_words": 2, "q": TEXTS}, "one text"),
        ({"next_words": 99}, "next_words"),
        ({"next_words": 2, "mbr": "chrf"}, "plainly"),
        ({"prefix": "x" * 30_000}, "prefix"),
        ({"format": "html", "mbr": "chrf"}, "marked-up"),
        ({"format": "html", "prefix": "Wo"}, "marked-up"),
        ({"format": "html", "details": True}, "marked-up"),
        ({"rerank": "yes"}, "rerank"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(client, fields, said):
    assert said in ask(client, status=400, **fields)["error"]


def test_what_is_kept(client, places):
    text = "Hello {name}, see https://example.org/a now."
    right = by_command(places, [text], keep=["url", "placeholder"])[0][0].text
    assert "{name}" in right
    assert "https://example.org/a" in right
    assert "{name}" not in ask(client, q=text)["translatedText"]
    for kinds in (["placeholder", "url"], ["url", "placeholder"]):
        assert ask(client, q=text, keep=kinds)["translatedText"] == right
    assert "{name}" in ask(client, q=text, keep="placeholder")["translatedText"]
    assert "keep" in ask(client, status=400, keep=["names"])["error"]
    assert "draw" in ask(client, status=400, keep=["url"], mbr="chrf")["error"]
    html = ask(client, q="<p>Hello <b>{name}</b>!</p>", format="html", keep="placeholder")["translatedText"]
    assert "{name}" in html.replace("<b>", "").replace("</b>", "")


def test_in_a_form_too(client, places):
    fields = {"q": TEXTS[0], "source": "en", "target": "de", "model": "main", "groups": "3", "details": "true"}
    answer = client.post("/translate", data=fields).json()
    assert answer["details"][0]["text"] == answer["translatedText"]
    assert answer["translatedText"] == by_command(places, TEXTS[:1], {"groups": 3})[0][0].text


@pytest.mark.parametrize(
    "fields", [{"temperature": 0}, {"temperature": 0.9, "seed": 7}, {"stop": [" ", "e"], "seed": 3}]
)
def test_a_language_model_with_a_draft(client, places, fields):
    """The same text as without, also beyond the context (48 tokens)."""
    asked = {"model": "writer", "prompt": "Wo ist die", "max_tokens": 70, **fields}
    plain = client.post("/v1/completions", json=asked).json()
    guessed = client.post("/v1/completions", json={**asked, "draft": True}).json()
    assert guessed["choices"] == plain["choices"]
    assert guessed["usage"] == plain["usage"]
    if "stop" not in fields:
        model = TextModel.load(places["writer"], "cpu")
        how = (
            {"method": "greedy"}
            if not fields["temperature"]
            else {"method": "sample", **fields, "top_k": 0, "top_p": 1.0}
        )
        assert model.generate("Wo ist die", max_tokens=70, **how) == guessed["choices"][0]["text"]


@pytest.mark.parametrize("fields", [{"n": 2}, {"logprobs": 1}, {"echo": True}, {"stream": True}, {"max_tokens": 0}])
def test_what_a_draft_cannot_do_is_refused(client, fields):
    answer = client.post("/v1/completions", json={"model": "writer", "prompt": "Wo", "draft": True, **fields})
    assert answer.status_code == 400
    assert "draft" in answer.text


def test_companions_that_do_not_fit_are_errors_at_the_start(places, tmp_path):
    from served_folders import small_folder

    other = small_folder("cho", tmp_path / "other", languages=("en", "de"))
    with pytest.raises(ModelError, match="tokenizer"):
        Shelf.open([f"x={bundled_model()}+{other}"])
    with pytest.raises(ConfigError, match="one model at a time"):
        Shelf.open([f"x={bundled_model()}+{places['small']}"], engine="ctranslate2")
    shelf = Shelf.open([str(places["small"]), str(places["writer"])])
    for option, given, error, said in [
        ("--draft", f"small={other}", ModelError, "tokenizer"),
        ("--draft", f"small={places['lm']}", ModelError, "translates"),
        ("--draft", str(places["lm"]), ConfigError, "which model"),
        ("--draft", f"nobody={places['lm']}", ConfigError, "no such model"),
        ("--rerank-lm", str(places["blind"]), ModelError, "language model"),
        ("--channel", str(places["lm"]), ModelError, "translates"),
    ]:
        with pytest.raises(error, match=said):
            shelf.give(option, [given])
    shelf.give("--channel", [str(places["blind"])])
    with pytest.raises(ConfigError, match="two"):
        shelf.give("--channel", [str(places["blind"])])


def test_requests_in_company_get_the_same(client, service, places):
    """Different ways at the same time: each gets its own."""
    import asyncio

    from regard.serving.choosing import Choosing

    served = service.shelf.models["main"]
    ways = [
        Choosing(),
        Choosing(groups=3),
        Choosing(mbr="chrf", samples=4),
        Choosing(draft=True),
        Choosing(rerank=True),
    ]

    async def alone() -> list[str]:
        return [(await service.translations(served, [TEXTS[0]], choosing=way))[0][0].text for way in ways]

    async def together() -> list[str]:
        asked = [service.translations(served, [TEXTS[0]], choosing=way) for way in ways * 3]
        return [found[0][0].text for found in await asyncio.gather(*asked)]

    assert asyncio.run(together()) == asyncio.run(alone()) * 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--draft", "main=LM"], "translates"),
        (["--draft", "SMALL", "--ahead", "99"], "not from 1 to 32"),
        (["--fuse", "LM", "--fusion", "-1"], "not from 0 to 10"),
        (["--mix", "median"], "neither log nor mean"),
        (["--rerank-with", "nobody=SMALL"], "no such model"),
    ],
)
def test_the_command_line_refuses_what_does_not_fit(command, places, options, said):
    options = [one.replace("LM", str(places["lm"])).replace("SMALL", str(places["small"])) for one in options]
    done = command("serve", f"main={bundled_model()}", *options)
    assert done.code == 1
    assert said in done.err.replace("\n", " ")


def test_the_command_line_hands_them_on(monkeypatch, command, places):
    """What is served is what was asked for, up to the moment at which it would listen."""
    import regard.cli.serve as verb

    seen: list[Shelf] = []

    def made(service, **_):
        seen.append(service.shelf)
        raise ConfigError("the test", "it has seen enough", "Stop")

    monkeypatch.setattr(verb, "make_app", made)
    given = [f"main={bundled_model()}+2*{places['small']}", "--mix", "mean", "--ahead", 7, "--fusion", 0.3]
    given += ["--fuse", places["lm"], "--channel", places["blind"], "--draft", f"main={places['small']}"]
    assert "seen enough" in command("serve", *given).err
    beside = seen[0].models["main"].beside
    assert (beside.members, beside.weights, beside.mix) == ((places["small"],), (1.0, 2.0), "mean")
    assert (beside.draft, beside.ahead, beside.fuse, beside.fusion) == (places["small"], 7, places["lm"], 0.3)
    assert (beside.channel, beside.other) == (places["blind"], None)
