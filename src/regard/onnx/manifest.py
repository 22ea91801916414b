"""What a folder of ONNX graphs says about itself (onnx.json): a closed schema, every field checked and bounded.

task          what the model does: translates, composes, continues, classifies, tags, fills
graphs        the files, and of every input and output its name, type and shape; letters are free sizes
memory        inputs of the step that the encoder gives once for each sentence
state         inputs of the step that it gives anew each time, and how hypotheses are told apart in them:
                rows    [B, K, ..]          a row for each hypothesis, reordered when hypotheses are
                cache   [B, H, L, K, D]     grows by a position in each step; never reordered
                seen    [B, K, L, K]        what each hypothesis finds in the cache: 0, or -inf; its rows are reordered
                place   [B]                 how many tokens were read
limits        the most tokens of a source (EOS included) and of a target (BOS or EOS included); null: no limit
least_source  shorter sources are filled up with padding
search        settings of search, as in a run's config.json
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

from regard.core.errors import CheckpointError
from regard.core.files import read_json

NAME = "onnx.json"
FORMAT = 1
FLOAT = "float32"
TYPES = ("float32", "int64", "bool")
KINDS = ("rows", "cache", "seen", "place")
TASKS = ("translates", "composes", "continues", "classifies", "tags", "fills")
FILES = ("encoder.onnx", "step.onnx", "lengths.onnx", "model.onnx")
GRAPHS = {name.removesuffix(".onnx"): name for name in FILES}
FREE = ("B", "K", "S", "L", "L+1", "T", "N")
MOST_PORTS, MOST_SIZE, MOST_DIMENSIONS = 20_000, 1 << 26, 6
MAX_LABELS = 1 << 20
KEYS = {
    "format", "regard", "task", "model", "compute", "opset", "graphs", "memory", "state", "vocabulary", "limits",
    "least_source", "search", "usual_source_length", "one_sentence_lines", "labels", "two_texts", "most_tokens",
}  # fmt: skip
_TODO = "Restore the folder from a copy, or export again"


@dataclasses.dataclass(frozen=True)
class Port:
    """An input or output of a graph."""

    name: str
    type: str
    shape: tuple[int | str, ...]


@dataclasses.dataclass(frozen=True)
class StatePort(Port):
    """A part of a state."""

    kind: str
    value: float = 0.0  # that it begins with
    encoded: bool = False  # it begins with what the encoder gives


@dataclasses.dataclass(frozen=True)
class Graph:
    """A file, and what goes in and comes out."""

    file: str
    inputs: list[Port]
    outputs: list[Port]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """All that is known of a folder beside its graphs, its tokenizers and their hashes."""

    task: str
    model: str
    compute: Literal["float32", "int8"]
    graphs: dict[str, Graph]
    memory: list[str]
    state: list[StatePort]
    source_vocabulary: int
    target_vocabulary: int
    source_limit: int | None
    target_limit: int | None
    least_source: int
    opset: int
    search: dict[str, Any]
    usual_source_length: int = 0
    one_sentence_lines: bool = False
    labels: tuple[str, ...] = ()
    two_texts: bool = False
    most_tokens: int = 0

    def to_plain(self, version: str) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "regard": version,
            "task": self.task,
            "model": self.model,
            "compute": self.compute,
            "opset": self.opset,
            "graphs": {name: dataclasses.asdict(graph) for name, graph in self.graphs.items()},
            "memory": self.memory,
            "state": [dataclasses.asdict(port) for port in self.state],
            "vocabulary": {"source": self.source_vocabulary, "target": self.target_vocabulary},
            "limits": {"source": self.source_limit, "target": self.target_limit},
            "least_source": self.least_source,
            "search": self.search,
            "usual_source_length": self.usual_source_length,
            "one_sentence_lines": self.one_sentence_lines,
            "labels": list(self.labels),
            "two_texts": self.two_texts,
            "most_tokens": self.most_tokens,
        }


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder, checked."""
    path = folder / NAME
    plain = read_json(path)
    if isinstance(plain, dict) and plain.get("format") != FORMAT and "format" in plain:
        what = f"it has format {plain['format']!r:.40}, this version reads {FORMAT}"
        raise CheckpointError(path, what, "Use a matching version of regard")
    return _Reader(path).manifest(plain)


class _Reader:
    """Takes a value of each kind, or says where the file is wrong."""

    def __init__(self, path: Path):
        self.path = path

    def error(self, where: str, value: Any) -> CheckpointError:
        return CheckpointError(self.path, f"{where} is {value!r:.60}", _TODO)

    def manifest(self, plain: Any) -> Manifest:
        self.keys("it", plain, KEYS)
        task = self.choice("task", plain["task"], TASKS)
        graphs = plain["graphs"]
        if not isinstance(graphs, dict) or not 1 <= len(graphs) <= len(GRAPHS):
            raise self.error("graphs", graphs)
        found = {self.choice("a graph", name, tuple(GRAPHS)): self.graph(name, one) for name, one in graphs.items()}
        if not self.needed(task) <= found.keys():
            raise self.error(f"graphs of a model that {task}", sorted(found))
        vocabulary, limits = plain["vocabulary"], plain["limits"]
        self.keys("vocabulary", vocabulary, {"source", "target"})
        self.keys("limits", limits, {"source", "target"})
        labels = self.texts("labels", plain["labels"], MAX_LABELS)
        if task in ("classifies", "tags", "composes") and (len(labels) < 2 or len(set(labels)) < len(labels)):
            raise self.error("labels", labels)
        if not isinstance(plain["search"], dict):
            raise self.error("search", plain["search"])
        self.text("regard", plain["regard"])
        manifest = Manifest(
            task=task,
            model=self.text("model", plain["model"]),
            compute=self.choice("compute", plain["compute"], ("float32", "int8")),  # type: ignore[arg-type]
            graphs=found,
            memory=list(self.texts("memory", plain["memory"], MOST_PORTS)),
            state=[self.state(one) for one in self.entries("state", plain["state"])],
            source_vocabulary=self.number("vocabulary.source", vocabulary["source"], 1, MOST_SIZE),
            target_vocabulary=self.number("vocabulary.target", vocabulary["target"], 1, MOST_SIZE),
            source_limit=self.limit("limits.source", limits["source"]),
            target_limit=self.limit("limits.target", limits["target"]),
            least_source=self.number("least_source", plain["least_source"], 1, 1 << 20),
            opset=self.number("opset", plain["opset"], 1, 1000),
            search=plain["search"],
            usual_source_length=self.number("usual_source_length", plain["usual_source_length"], 0, 1 << 30),
            one_sentence_lines=self.truth("one_sentence_lines", plain["one_sentence_lines"]),
            labels=labels,
            two_texts=self.truth("two_texts", plain["two_texts"]),
            most_tokens=self.number("most_tokens", plain["most_tokens"], 0, 1 << 30),
        )
        self.check_step(manifest)
        return manifest

    def check_step(self, manifest: Manifest) -> None:
        """What the step asks for must be what is there."""
        if "step" not in manifest.graphs:
            return
        step = manifest.graphs["step"]
        wanted = ["tokens", *manifest.memory, *(port.name for port in manifest.state)]
        given = ["log_probs", *(port.name.replace("state", "next", 1) for port in manifest.state)]
        if [port.name for port in step.inputs] != wanted or [port.name for port in step.outputs] != given:
            raise self.error("the step's list of inputs or outputs", [port.name for port in step.inputs][:4])
        for port in manifest.state:
            sizes = {"rows": ("B", "K"), "seen": ("B", "K", "L", "K"), "place": ("B",)}.get(port.kind)
            if port.kind == "cache" and (len(port.shape) != 5 or port.shape[2:4] != ("L", "K")):
                raise self.error(f"the shape of {port.name}", port.shape)
            if sizes is not None and port.shape[: len(sizes)] != sizes:
                raise self.error(f"the shape of {port.name}", port.shape)

    @staticmethod
    def needed(task: str) -> set[str]:
        if task in ("translates", "composes"):
            return {"encoder", "step"}
        return {"step"} if task == "continues" else {"model"}

    def graph(self, name: str, plain: Any) -> Graph:
        self.keys(f"graph {name!r:.20}", plain, {"file", "inputs", "outputs"})
        if plain["file"] != GRAPHS[name]:
            raise self.error(f"the file of graph {name}", plain["file"])
        inputs, outputs = (
            [self.port(one, Port, {"name", "type", "shape"}) for one in self.entries(side, plain[side])]
            for side in ("inputs", "outputs")
        )
        return Graph(GRAPHS[name], inputs, outputs)

    def state(self, plain: Any) -> StatePort:
        return self.port(plain, StatePort, {"name", "type", "shape", "kind", "value", "encoded"})

    def port(self, plain: Any, kind: Any, keys: set[str]) -> Any:
        self.keys("a tensor", plain, keys)
        shape = plain["shape"]
        if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
            raise self.error("a shape", shape)
        for size in shape:
            if not (size in FREE if isinstance(size, str) else type(size) is int and 0 <= size <= MOST_SIZE):
                raise self.error("a size", size)
        fields = {
            "name": self.text("name", plain["name"]),
            "type": self.choice("type", plain["type"], TYPES),
            "shape": tuple(shape),
        }
        if kind is StatePort:
            value = plain["value"]
            if type(value) not in (int, float) or not abs(value) <= 1e6:
                raise self.error("the first value of a state", value)
            fields |= {"kind": self.choice("kind", plain["kind"], KINDS), "value": float(value)}
            fields["encoded"] = self.truth("encoded", plain["encoded"])
        return kind(**fields)

    def keys(self, where: str, plain: Any, keys: set[str]) -> None:
        if not isinstance(plain, dict):
            raise self.error(where, plain)
        odd = sorted(map(str, plain.keys() ^ keys))
        if odd:
            what = "lacks" if odd[0] in keys else "has the unknown field"
            raise CheckpointError(self.path, f"{where} {what} {odd[0]!r:.60}", _TODO)

    def entries(self, where: str, value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > MOST_PORTS:
            raise self.error(where, value)
        return value

    def texts(self, where: str, value: Any, most: int) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) > most or not all(isinstance(one, str) and one for one in value):
            raise self.error(where, value)
        return tuple(value)

    def text(self, where: str, value: Any) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= 200:
            raise self.error(where, value)
        return value

    def choice(self, where: str, value: Any, known: tuple[str, ...]) -> str:
        if not isinstance(value, str) or value not in known:
            raise self.error(where, value)
        return value

    def number(self, where: str, value: Any, least: int, most: int) -> int:
        if type(value) is not int or not least <= value <= most:
            raise self.error(where, value)
        return value

    def limit(self, where: str, value: Any) -> int | None:
        return None if value is None else self.number(where, value, 1, 1 << 21)

    def truth(self, where: str, value: Any) -> bool:
        if type(value) is not bool:
            raise self.error(where, value)
        return value
