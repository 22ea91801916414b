"""What a check found: plain values, which the terminal, the JSON file and the page are made of."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.core.errors import DataError

Severity = Literal["damage", "warning", "note"]  # damage refuses to be trained on


@dataclass(frozen=True)
class Example:
    """A pair that shows a finding. Lines count from 1; a text is cut where it is very long."""

    line: int
    source: str
    target: str


@dataclass(frozen=True)
class Finding:
    """One kind of trouble in a corpus."""

    name: str  # what --allow takes: lower-case words joined by hyphens
    severity: Severity
    count: int  # lines (or pairs) that have it
    share: float  # of all lines, or of those that could have it
    what: str  # one sentence that says what was found, and where
    todo: str  # one sentence that says what to do
    examples: tuple[Example, ...] = ()
    allowed: bool = False  # by the user's --allow: said, but does not refuse


@dataclass(frozen=True)
class Distribution:
    """How many lines have which value: counts[i] lines are between edges[i] and edges[i + 1]."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    mean: float
    median: float
    percentile_1: float
    percentile_99: float
    least: float
    most: float


@dataclass(frozen=True)
class Statistics:
    """The size of a corpus and the shape of its lines."""

    pairs: int
    source_words: int
    target_words: int
    source_characters: int
    target_characters: int
    source_vocabulary: int  # different words (estimated where they are very many)
    target_vocabulary: int
    source_script: str  # the script of most letters, such as "Latin"
    target_script: str
    source_lengths: Distribution  # in words, or characters where a language has no spaces
    target_lengths: Distribution
    ratios: Distribution  # target length over source length


@dataclass(frozen=True)
class Report:
    """All findings about a corpus, the worst first."""

    files: tuple[str, ...]
    statistics: Statistics
    findings: tuple[Finding, ...]
    seconds: float
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def refused(self) -> tuple[Finding, ...]:
        """The findings for which training refuses this corpus."""
        return tuple(f for f in self.findings if f.severity == "damage" and not f.allowed)

    def to_plain(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "damaged": bool(self.refused)}

    @classmethod
    def from_plain(cls, value: dict[str, Any]) -> Report:
        """What `to_plain` has written."""
        numbers = dict(value["statistics"])
        for name in ("source_lengths", "target_lengths", "ratios"):
            part = dict(numbers[name])
            part["edges"], part["counts"] = tuple(part["edges"]), tuple(part["counts"])
            numbers[name] = Distribution(**part)
        findings = tuple(
            Finding(**{**found, "examples": tuple(Example(**example) for example in found["examples"])})
            for found in value["findings"]
        )
        return cls(tuple(value["files"]), Statistics(**numbers), findings, value["seconds"], value["extra"])

    def refuse(self) -> None:
        """Raises an error that names the worst damage, if there is any."""
        if not self.refused:
            return
        worst, *others = self.refused
        more = f" (and {', '.join(f.name for f in others)})" if others else ""
        raise DataError(
            " and ".join(self.files),
            f"the text is damaged: {worst.name}{more}: {worst.what.rstrip('.')}",
            f"{worst.todo.rstrip('.')}; `regard data check` shows all",
        )
