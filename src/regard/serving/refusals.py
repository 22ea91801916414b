"""What a server refuses, and why: one kind of error, which each facade writes in its own shape."""

from __future__ import annotations

from typing import Literal

Kind = Literal[
    "invalid", "too_long", "too_many", "unauthorised", "forbidden", "not_found", "busy", "rate", "deadline", "quota"
]  # fmt: skip
KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]


class Refused(Exception):
    """A request that is not served: an HTTP status, what is wrong, what to do, and when to try again."""

    def __init__(
        self,
        status: int,
        what: str,
        todo: str,
        *,
        kind: Kind = "invalid",
        retry_after: float | None = None,
        field: str | None = None,
    ):
        """`field` names the part of the request that is wrong, where there is one."""
        super().__init__(status, what, todo)
        self.status, self.what, self.todo = status, what.rstrip("."), todo.rstrip(".")
        self.kind: Kind = kind
        self.retry_after, self.field = retry_after, field

    @property
    def message(self) -> str:
        """One text for facades whose errors are one."""
        end = "" if self.todo.endswith(("?", "!")) else "."
        return f"{self.what[:1].upper()}{self.what[1:]}. {self.todo}{end}"

    @property
    def headers(self) -> dict[str, str]:
        """What every facade adds to its answer: Retry-After in whole seconds, at least 1."""
        return {} if self.retry_after is None else {"Retry-After": str(max(1, int(-(-self.retry_after // 1))))}
