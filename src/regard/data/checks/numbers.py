"""Numbers of a sentence and of its translation that do not agree."""

from __future__ import annotations

import re
from collections import Counter

# 1,000 and 1.000 and 1 000 and 1'000 are one number; everything else that divides digits divides numbers, so that
# decimals, times and dates agree however a language writes them.
_GROUPED = re.compile(r"(?<!\d)(?<!\d[.,])(\d{1,3})((?:([.,'’\u00a0\u202f\u2009 ])\d{3})(?:\3\d{3}){0,4})(?!\d)")
_DIGITS = re.compile(r"\d+")
_SPELT_OUT = 20  # numbers up to here are often written as words on one side,
_ALL_SPELT_OUT = 100  # and up to here, where that side has no digits at all: "7:45" and "a quarter to eight"
_NOON = 12
_MOST = 200  # a table of numbers is not a sentence


def numbers_agree(source: str, target: str) -> bool:
    """Whether each number of one side is also on the other, except for those that may be spelt out there."""
    if sorted(_DIGITS.findall(source)) == sorted(_DIGITS.findall(target)):  # nearly always
        return True
    # "on 5 100 people came" may be one number or two
    return any(_agree(_numbers(source, grouped), _numbers(target, grouped)) for grouped in (False, True))


def _numbers(text: str, grouped: bool) -> Counter[int]:
    if grouped:
        text = _GROUPED.sub(lambda match: re.sub(r"\D", "", match.group()), text)
    return Counter(int(digits[:30]) for digits in _DIGITS.findall(text)[:_MOST])


def _agree(source: Counter[int], target: Counter[int]) -> bool:
    if source.keys() == target.keys():
        return True
    missing, added = source.keys() - target.keys(), target.keys() - source.keys()
    for number in tuple(missing):
        same = next((other for other in added if _same(number, other)), None)
        if same is not None:
            missing.discard(number)
            added.discard(same)
    if missing and added:
        return False
    most = _SPELT_OUT if source and target else _ALL_SPELT_OUT
    return all(number <= most for number in missing | added)


def _same(one: int, other: int) -> bool:
    """5 p.m. is 17 Uhr, and the 1990s are the 90er."""
    small, large = sorted((one, other))
    return (small <= _NOON and large == small + _NOON) or (1000 <= large < 2100 and 10 <= small == large % 100)
