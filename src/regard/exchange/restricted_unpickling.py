"""A reader of pickles that runs nothing: numbers, texts and containers come out as they are, everything else as inert records.

Checkpoints of other programs are pickles, and a pickle is a program: it names functions and calls them. Here names stay names.
`torch`'s tensors become descriptions (which storage, where in it, which shape); ordered dictionaries become dictionaries; objects
of argparse, torchtext, omegaconf and the like become `Record`s with what they were made of. No module is imported, nothing is
looked up and nothing is called. A name from anywhere else (os, subprocess, builtins.eval ..) ends the reading: it has no place
in a checkpoint. The number of steps, of nested marks and the size of numbers are bounded.

The standard library's unpickler is not used: its lookups can be restricted, its allocations cannot.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any

from regard.core.errors import CheckpointError

MOST_STEPS, FEW_STEPS = 1 << 22, 1 << 17  # of a large file, and of any
RECORD_COST = 8  # steps: a record takes about as much memory
STEP_BYTES = 64  # about what a step takes of memory: a file may have a step for so many of its bytes
MOST_DIGITS = 1 << 10  # bytes of a whole number
MODULES = {"torch", "collections", "argparse", "torchtext", "omegaconf", "fairseq", "onmt", "numpy", "_codecs", "copyreg",
           "copy_reg", "typing", "enum", "pathlib"}  # fmt: skip
BUILTINS = {"set", "frozenset", "list", "dict", "tuple", "object", "int", "float", "bool", "str", "bytes", "bytearray",
            "complex", "slice", "long", "unicode"}  # fmt: skip
_TODO = "Use a checkpoint of plain weights, from a source that you trust"


@dataclasses.dataclass(frozen=True)
class Name:
    """A class or function, by name only."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclasses.dataclass(eq=False)
class Record:
    """An object of another program: of what class it is, and what it was made of. It does nothing."""

    of: Name
    arguments: tuple[Any, ...] = ()
    state: Any = None
    items: dict[Any, Any] = dataclasses.field(default_factory=dict)  # of classes made from dict
    members: list[Any] = dataclasses.field(default_factory=list)  # of classes made from list

    def get(self, name: str, usual: Any = None) -> Any:
        """An attribute, from the object's state."""
        return self.state.get(name, usual) if isinstance(self.state, dict) else usual


@dataclasses.dataclass(frozen=True)
class Storage:
    """Numbers in the file that tensors are views of."""

    kind: str  # FloatStorage ..
    key: str
    count: int


@dataclasses.dataclass(frozen=True)
class TensorView:
    """A tensor, not yet read."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


_MARK = object()


def read_pickle(content: memoryview, where: object, at: int = 0, *, file_bytes: int = 0) -> tuple[Any, int]:
    """The value of the pickle that begins at a place, and where it ends. `file_bytes` is the size of the whole file."""
    machine = _Machine(content, where, at, max(file_bytes, len(content)))
    try:
        return machine.run(), machine.at
    except CheckpointError:
        raise
    except (IndexError, ValueError, TypeError, struct.error, KeyError, OverflowError, RecursionError) as error:
        reason = f"{type(error).__name__} at byte {machine.at}"
        raise CheckpointError(where, f"it is not a checkpoint, or a damaged one ({reason})", _TODO) from None


class _Machine:
    """A stack, a memory, and the steps that need no code from outside."""

    def __init__(self, content: memoryview, where: object, at: int, file_bytes: int):
        self.content, self.where, self.at = content, where, at
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}
        self.steps = min(MOST_STEPS, max(FEW_STEPS, file_bytes // STEP_BYTES))
        self.copies = self.steps  # values that calls may still copy: a call costs few bytes, a copy many

    def run(self) -> Any:
        for _ in range(self.steps):
            code = self.content[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                return self.pop()
            step = STEPS.get(code)
            if step is None:
                raise self.refuse(f"step {bytes([code])!r} of a pickle is not one of plain values")
            step(self)
        raise self.refuse(f"it takes more than {self.steps:,} steps, too many for a file of its size")

    def refuse(self, what: str) -> CheckpointError:
        return CheckpointError(self.where, what, _TODO)

    def take(self, count: int) -> memoryview:
        if not 0 <= count <= len(self.content) - self.at:
            raise self.refuse("it is truncated: a value is longer than the file")
        self.at += count
        return self.content[self.at - count : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def line(self) -> str:
        """A value of the oldest pickles, up to the end of its line."""
        for end in range(self.at, min(len(self.content), self.at + 10_000)):
            if self.content[end] == 0x0A:
                return bytes(self.take(end + 1 - self.at)[:-1]).decode()
        raise self.refuse("a line of it has no end")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError
        return value

    def top(self) -> Any:
        if self.stack[-1] is _MARK:
            raise ValueError
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        found = len(self.stack) - 1
        while self.stack[found] is not _MARK:
            if not found:
                raise ValueError
            found -= 1
        values = self.stack[found + 1 :]
        del self.stack[found:]
        return values

    def name(self, module: Any, name: Any) -> Name:
        """A name that a checkpoint may hold; any other ends the reading."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError
        root = module.partition(".")[0]
        known = name in BUILTINS if root in ("builtins", "__builtin__") else root in MODULES
        if not known:
            what = f"it names {module[:60]}.{name[:60]}, which has no place in a checkpoint"
            raise self.refuse(f"{what}: it may be made to run programs")
        return Name(module, name)

    def call(self, function: Any, arguments: Any) -> Any:
        """What stands for the result of a call. Nothing is called."""
        if not isinstance(function, Name) or not isinstance(arguments, tuple):
            raise self.refuse("it calls what is no name")
        if (known := PLAIN.get(str(function))) is not None:
            self.copies -= sum(
                len(one) for one in arguments if isinstance(one, str | bytes | list | dict | tuple | set)
            )
            if self.copies < 0:
                raise self.refuse("it copies the same values again and again")
            return known(*arguments)
        if str(function) in ("copyreg._reconstructor", "copy_reg._reconstructor") and isinstance(arguments[0], Name):
            return self.call(arguments[0], ())
        self.copies -= RECORD_COST
        if self.copies < 0:
            raise self.refuse("it has too many objects for a file of its size")
        return Record(function, arguments)

    def storage(self, about: Any) -> Storage:
        """A persistent id: torch's name of a storage."""
        if not isinstance(about, tuple) or len(about) < 5 or about[0] != "storage" or not isinstance(about[1], Name):
            raise self.refuse("it points to something outside that is no storage")
        kind, key, count = about[1], about[2], about[4]
        if len(about) > 5 and about[5] is not None:
            raise self.refuse("it has views of storages, which are not supported")
        if kind.module.partition(".")[0] != "torch" or not isinstance(key, str) or type(count) is not int or count < 0:
            raise self.refuse("a storage of it is none")
        return Storage(kind.name, key, count)

    def set_items(self, target: Any, values: list[Any]) -> None:
        if len(values) % 2:
            raise ValueError
        items = target.items if isinstance(target, Record) else target
        if not isinstance(items, dict):
            raise ValueError
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | int | float | bool | bytes | tuple | Name | None):
                raise self.refuse("a key of a dictionary is neither a text nor a number")
            items[key] = value

    def append(self, target: Any, values: list[Any]) -> None:
        members = target.members if isinstance(target, Record) else target
        if not isinstance(members, list):
            raise ValueError
        members.extend(values)

    def build(self) -> None:
        state = self.pop()
        target = self.top()
        if isinstance(target, Record):
            target.state = state
        elif not isinstance(target, dict | TensorView):  # attributes beside a dictionary's items: of no use here
            raise self.refuse("it changes what is no object")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> TensorView:
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, Storage) or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError
    if len(shape) != len(strides) or len(shape) > 16:
        raise ValueError
    return TensorView(storage, offset, tuple(shape), tuple(strides))


def _ordered(items: Any = (), *rest: Any) -> dict[Any, Any]:
    return dict(items)


def _counted(*arguments: Any) -> dict[Any, Any]:
    return dict(arguments[-1]) if arguments and isinstance(arguments[-1], dict) else {}


def _encoded(text: str, encoding: str = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError
    return text.encode("latin1")


# What calls stand for, by name: the only ones whose results are more than a record.
PLAIN: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *rest: data,
    "torch.Size": lambda sizes=(): tuple(sizes),
    "collections.OrderedDict": _ordered,
    "collections.defaultdict": _counted,
    "collections.Counter": _counted,
    "_codecs.encode": _encoded,
    **{f"{module}.set": lambda items=(): set(items) for module in ("builtins", "__builtin__")},
    **{f"{module}.list": lambda items=(): list(items) for module in ("builtins", "__builtin__")},
    **{f"{module}.dict": _ordered for module in ("builtins", "__builtin__")},
    **{f"{module}.tuple": lambda items=(): tuple(items) for module in ("builtins", "__builtin__")},
}


def _long(machine: _Machine, size: int) -> int:
    if size > MOST_DIGITS:
        raise machine.refuse("a number of it has thousands of digits")
    return int.from_bytes(machine.take(size), "little", signed=True)


def _text_number(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError
    return int(text.removesuffix("L"))


def _old_number(text: str) -> int | bool:
    return text == "01" if text in ("00", "01") else _text_number(text)


def _remember(machine: _Machine, place: int) -> None:
    machine.memory[place] = machine.top()


def _object(machine: _Machine) -> None:
    kind, *arguments = machine.since_mark()
    machine.push(machine.call(kind, tuple(arguments)))


def _new(machine: _Machine, named: bool) -> None:
    if named and machine.pop() != {}:
        raise machine.refuse("it makes objects with named arguments")
    arguments = machine.pop()
    machine.push(machine.call(machine.pop(), arguments))


def _reduce(machine: _Machine) -> None:
    arguments = machine.pop()
    machine.push(machine.call(machine.pop(), arguments))


def _global(machine: _Machine) -> None:
    module, name = machine.line(), machine.line()
    machine.push(machine.name(module, name))


def _stack_global(machine: _Machine) -> None:
    name = machine.pop()
    machine.push(machine.name(machine.pop(), name))


def _instance(machine: _Machine) -> None:
    kind = machine.name(machine.line(), machine.line())
    machine.push(machine.call(kind, tuple(machine.since_mark())))


def _set_item(machine: _Machine) -> None:
    value, key = machine.pop(), machine.pop()
    machine.set_items(machine.top(), [key, value])


def _set_items(machine: _Machine) -> None:
    values = machine.since_mark()
    machine.set_items(machine.top(), values)


def _dictionary(machine: _Machine) -> None:
    values = machine.since_mark()
    machine.push({})
    machine.set_items(machine.top(), values)


def _append(machine: _Machine) -> None:
    value = machine.pop()
    machine.append(machine.top(), [value])


def _appends(machine: _Machine) -> None:
    values = machine.since_mark()
    machine.append(machine.top(), values)


def _add_items(machine: _Machine) -> None:
    values = machine.since_mark()
    if not isinstance(machine.top(), set):
        raise ValueError
    machine.top().update(values)


def _tuple(count: int) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        values = [machine.pop() for _ in range(count)]
        machine.push(tuple(reversed(values)))

    return step


def _quoted(text: str) -> str:
    """The text of the oldest pickles between quotes; escapes are not needed by any checkpoint."""
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "'\"" or "\\" in text:
        raise ValueError
    return text[1:-1]


STEPS: dict[int, Callable[[_Machine], Any]] = {
    code[0]: step
    for code, step in {
        b"\x80": lambda m: m.take(1),  # PROTO
        b"\x95": lambda m: m.take(8),  # FRAME
        b"(": lambda m: m.push(_MARK),
        b"0": lambda m: m.stack.pop(),
        b"1": lambda m: m.since_mark(),
        b"2": lambda m: m.push(m.top()),
        b"N": lambda m: m.push(None),
        b"\x88": lambda m: m.push(True),
        b"\x89": lambda m: m.push(False),
        b"I": lambda m: m.push(_old_number(m.line())),
        b"L": lambda m: m.push(_text_number(m.line())),
        b"F": lambda m: m.push(float(m.line())),
        b"J": lambda m: m.push(m.number("i")),
        b"K": lambda m: m.push(m.number("B")),
        b"M": lambda m: m.push(m.number("H")),
        b"\x8a": lambda m: m.push(_long(m, m.number("B"))),
        b"\x8b": lambda m: m.push(_long(m, m.number("I"))),
        b"G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
        b"S": lambda m: m.push(_quoted(m.line())),
        b"V": lambda m: m.push(m.line().encode("latin1", "backslashreplace").decode("raw_unicode_escape")),
        b"T": lambda m: m.push(bytes(m.take(m.number("I"))).decode("latin1")),
        b"U": lambda m: m.push(bytes(m.take(m.number("B"))).decode("latin1")),
        b"X": lambda m: m.push(bytes(m.take(m.number("I"))).decode("utf-8", "surrogatepass")),
        b"\x8c": lambda m: m.push(bytes(m.take(m.number("B"))).decode("utf-8", "surrogatepass")),
        b"\x8d": lambda m: m.push(bytes(m.take(m.number("Q"))).decode("utf-8", "surrogatepass")),
        b"B": lambda m: m.push(bytes(m.take(m.number("I")))),
        b"C": lambda m: m.push(bytes(m.take(m.number("B")))),
        b"\x8e": lambda m: m.push(bytes(m.take(m.number("Q")))),
        b"\x96": lambda m: m.push(bytes(m.take(m.number("Q")))),
        b"}": lambda m: m.push({}),
        b"]": lambda m: m.push([]),
        b")": lambda m: m.push(()),
        b"\x8f": lambda m: m.push(set()),
        b"\x90": _add_items,
        b"\x91": lambda m: m.push(frozenset(m.since_mark())),
        b"t": lambda m: m.push(tuple(m.since_mark())),
        b"l": lambda m: m.push(m.since_mark()),
        b"d": _dictionary,
        b"\x85": _tuple(1),
        b"\x86": _tuple(2),
        b"\x87": _tuple(3),
        b"a": _append,
        b"e": _appends,
        b"s": _set_item,
        b"u": _set_items,
        b"p": lambda m: _remember(m, _text_number(m.line())),
        b"q": lambda m: _remember(m, m.number("B")),
        b"r": lambda m: _remember(m, m.number("I")),
        b"\x94": lambda m: _remember(m, len(m.memory)),
        b"g": lambda m: m.push(m.memory[_text_number(m.line())]),
        b"h": lambda m: m.push(m.memory[m.number("B")]),
        b"j": lambda m: m.push(m.memory[m.number("I")]),
        b"c": _global,
        b"\x93": _stack_global,
        b"i": _instance,
        b"o": _object,
        b"R": _reduce,
        b"\x81": lambda m: _new(m, False),
        b"\x92": lambda m: _new(m, True),
        b"b": lambda m: m.build(),
        b"Q": lambda m: m.push(m.storage(m.pop())),
    }.items()
}
