"""Tags and placeholders that are left open, or that differ between a sentence and its translation."""

from __future__ import annotations

import re
from collections import Counter

# <b>, </b>, <br/>, <g id="1">: a name, then nothing, white space or a slash; "a < b" and "<3" are no tags.
_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]{0,40})((?:\s[^<>]{0,500})?/?)>")
_PLACEHOLDER = re.compile(
    r"\{\{?\s{0,2}[A-Za-z_]?[\w.]{0,60}\s{0,2}\}\}?"  # {0} {name} {{name}}
    r"|(?<![\d%])(?<!\d[ \u00a0\u202f])%(?:\d+\$)?(?:\([A-Za-z_]\w*\))?[sdf@](?![\w%])"  # %s %1$d %(name)s, but not 5 %
)
_NEVER_CLOSED = frozenset(
    {"br", "hr", "img", "input", "meta", "link", "wbr", "col", "p", "li", "td", "tr", "th", "dd", "dt"}
)


def tags_balance(text: str) -> bool:
    """Whether each tag that a text opens is closed, and the other way round."""
    open_tags: Counter[str] = Counter()
    for closing, name, rest in _TAG.findall(text):
        if not rest.endswith("/") and name.lower() not in _NEVER_CLOSED:
            open_tags[name.lower()] += -1 if closing else 1
    return not any(open_tags.values())


def markup_agrees(source: str, target: str) -> bool:
    """Whether both sides have the same tags and placeholders, in any order."""
    return _markup(source) == _markup(target)


def _markup(text: str) -> Counter[str]:
    tags = (f"<{closing}{name.lower()}>" for closing, name, _ in _TAG.findall(text))
    return Counter(tags) + Counter(re.sub(r"\s", "", place) for place in _PLACEHOLDER.findall(text))
