"""The errors that a user meets: one sentence that says where, what is wrong, and what to do."""

from __future__ import annotations


class RegardError(Exception):
    """Base of all errors that regard raises on purpose. The command line prints it without a traceback."""

    def __init__(self, where: object, what: str, todo: str):
        self.where, self.what, self.todo = str(where), what.rstrip("."), todo.rstrip(".")
        end = "" if self.todo.endswith(("?", "!")) else "."
        super().__init__(f"{self.where}: {self.what}. {self.todo}{end}")


class ConfigError(RegardError):
    """A setting that is unknown, of the wrong type or out of range."""


class DataError(RegardError):
    """A file of text that is missing, empty, unreadable or not aligned."""


class TokenizerError(RegardError):
    """A tokenizer that cannot be trained, read, or used with a model."""


class CheckpointError(RegardError):
    """A run folder or a weight file that is missing, foreign, truncated or corrupted."""


class ModelError(RegardError):
    """A request that a model cannot serve, such as an input beyond its maximum length."""


class TrainingError(RegardError):
    """A training run that cannot go on."""
