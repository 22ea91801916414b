"""Every registered model and every view: the page gets all that it asks for, or the model says why it has no such view.

The questions are those of viewer/src/data/api.ts; a newcomer among the models is picked up by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from regard.looking.server import make_app
from regard.looking.session import Session
from regard.looking.views import VIEWS
from regard.models.base import MODELS

sys.path.insert(0, str(Path(__file__).parents[2] / "browser"))
from small_runs import run_folder

SMALL = {"embedding": 8, "width": 8, "layers": 2}
BLOCKS = {"width": 16, "layers": 2, "heads": 2}
READER = {**BLOCKS, "context": 64}
CASES: dict[str, list[dict]] = {
    "bahdanau": [{"embedding": 8, "width": 8}],
    "bert": [READER, {**READER, "head": False}],
    "bert-classifier": [READER],
    "bert-tagger": [READER],
    "cho": [{"embedding": 8, "width": 8}],
    "convs2s": [SMALL],
    "dcnn": [{}],
    "deep-averaging": [{"embedding": 8, "width": 8}],
    "gnmt": [{"width": 8, "layers": 2}],
    "gpt": [
        READER,
        {**READER, "positions": "none", "relative": "rotary", "kv_heads": 1},
        {**READER, "positions": "none", "relative": "alibi"},
    ],
    "gpt-classifier": [READER],
    "kim": [{"width": 8, "maps": 3}],
    "label-writer": [{"width": 8}],
    "lstmlm": [{"width": 8, "layers": 2}],
    "luong": [
        {**SMALL, "attention": kind, "score": score}
        for kind, score in (("global", "general"), ("local-m", "dot"), ("local-p", "general"))
    ],
    "nplm": [{}],
    "rctm1": [{}],
    "rctm2": [{}],
    "recurrent-classifier": [{"width": 8}, {"width": 8, "cell": "gru", "layers": 2}],
    "recurrent-tagger": [{"width": 8}],
    "rnnlm": [{"width": 8}],
    "sutskever": [SMALL],
    "transformer": [
        BLOCKS,
        {**BLOCKS, "norm": "post", "normalise": "rms", "positions": "learned"},
        {**BLOCKS, "relative": "shaw", "positions": "none"},
        {**BLOCKS, "relative": "t5", "positions": "none"},
        {**BLOCKS, "relative": "rotary", "positions": "none", "residual": False},
        {**BLOCKS, "relative": "alibi", "positions": "none", "scaling": False},
        {**BLOCKS, "positions": "none"},
    ],
    "transformer-classifier": [BLOCKS, {**BLOCKS, "pool": "first"}],
    "transformer-tagger": [BLOCKS],
    "universal": [{"width": 16, "heads": 2, "steps": 3}, {"width": 16, "heads": 2, "steps": 3, "halting": "act"}],
    "word2vec": [{"width": 8}],
}
MODELS_AND_SIZES = [(name, sizes) for name in MODELS.names() for sizes in CASES.get(name, [{}])]


def named(case) -> str:
    return "-".join([case[0], *(str(value) for value in case[1].values() if isinstance(value, str | bool))])


@pytest.mark.parametrize("case", MODELS_AND_SIZES, ids=named)
def test_it_is_all_there_or_it_is_said_why_not(case, tmp_path):
    name, sizes = case
    session = Session([run_folder(name, tmp_path, sizes)], device="cpu")
    with TestClient(make_app(session), base_url="http://127.0.0.1") as client:
        page = Page(client)
        assert set(page.model["views"]) == set(VIEWS)
        for view, able in page.model["views"].items():
            if able is True:
                getattr(page, view)()
            else:
                assert able.startswith(f"not applicable to {name}: ")
                assert len(able) > len(f"not applicable to {name}: ")


class Page:
    """Asks what the page asks, and wants every answer."""

    def __init__(self, client: TestClient):
        self.client = client
        (self.model,) = self.get("/api/models").json()["models"]
        self._trace = None

    def get(self, path: str):
        answer = self.client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        return answer

    def post(self, path: str, body: dict):
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    @property
    def trace(self) -> dict:
        if self._trace is None:
            self._trace = self.post("/api/traces", {"model": "0", "text": self.model["sentence"]})
        return self._trace

    def of_trace(self, what: str):
        return self.get(f"/api/traces/{self.trace['id']}/{what}")

    def alignment(self):
        for merge in ("tokens", "words"):
            self.of_trace(f"alignment?merge={merge}&type=f32")

    def heads(self):
        assert self.trace["parts"]
        for part in self.trace["parts"]:
            self.of_trace(f"overview?part={part['name']}&size=48")
            self.of_trace(f"weights?part={part['name']}&layer={part['layers'] - 1}&head={part['heads'] - 1}&type=f32")

    def steps(self):
        for part in self.trace["parts"]:
            for layer in range(part["layers"]):
                self.of_trace(f"steps?part={part['name']}&layer={layer}&head={part['heads'] - 1}&row=0")

    def recurrent(self):
        self._gates(self.of_trace("recurrent").json()["layers"], "recurrent")

    def _gates(self, layers: list[dict], of: str):
        for layer in layers:
            for gate in layer["gates"]:
                self.of_trace(f"{of}/{quote(layer['name'])}?gate={quote(gate)}")

    def local(self):
        assert self.of_trace("local").json()["centres"]

    def beam(self):
        assert self.of_trace("beam").json()["nodes"]
        self.post("/api/translations", {"model": "0", "text": self.model["sentence"], "prefix": []})

    def positions(self):
        tables = self.get("/api/models/0/positions").json()["tables"]
        assert tables
        for table in tables:
            self.get(f"/api/models/0/positions/{table['name']}")

    def ponder(self):
        for side in ("source", "input"):
            self.of_trace(f"ponder?side={side}")

    def convolution(self):
        found = self.of_trace("convolution").json()
        assert found["layers"] or found["winners"]
        self._gates(found["gates"], "convolution")

    def vectors(self):
        words = self.model["words"]
        assert words
        assert self.post("/api/words/near", {"model": "0", "word": words[0]})["near"]
        assert self.post("/api/words/analogy", {"model": "0", "a": words[0], "b": words[1], "c": words[2]})["near"]
        assert self.get(f"/api/words/map?model=0&words={'%20'.join(words)}").json()["points"]
        if self.model["contextual"]:
            body = {"model": "0", "word": "it", "texts": ["because it was tired", "the street it did cross"]}
            found = self.post("/api/words/context", body)
            assert len(found["layers"]) == len(found["cosines"])
            first = found["layers"][0]
            assert first in ("embedding", "input") or self.model["architecture"] == "rnnlm"  # whose table is no module
            assert found["cosines"][-1] < 1 - 1e-6

    def language(self):
        if self.model["does"] == "fills":
            assert self.post("/api/fill", {"model": "0", "text": self.model["sentence"]})["masks"]
        else:
            assert self.post("/api/next", {"model": "0", "text": self.model["sentence"]})["next"]

    def training(self):
        assert self.get("/api/models/0/curves").json()["rows"]

    def evaluation(self):
        """An untrained run has no test text, which is said."""
        assert self.client.get("/api/models/0/evaluation").json()["error"]["what"]

    def compare(self):
        """The same as the views of each."""
        assert self.trace["target"]["tokens"]

    def pooling(self):
        """Needs no model."""
