"""Writes docs/corpora.md from the catalogue of known corpora, so that every fact about them lives in one place.

python docs/make_corpora.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from regard.data.catalogue import UNKNOWN, Corpus, catalogue, readable_size

TARGET = Path(__file__).with_name("corpora.md")

HEAD = """# Known corpora

Made by `docs/make_corpora.py` from `src/regard/data/catalogue.toml`.

```
regard data get                        # the list
regard data get multi30k               # licence, size, checksum and source; then it asks, and fetches
regard data get multi30k --yes         # where nobody can be asked
regard data get multi30k --from DIR    # from a local copy
```

- Only https. A download that was cut goes on where it stopped, if the server still has the same file. Size and checksum
  are checked where they are known; a wrong file is removed. Where no checksum is known, the SHA-256 is computed, shown
  and recorded, and files that are fetched again must have it.
- From an archive only the files named here are taken, under names of our own; links, paths that lead out and texts of
  more than 100 times their packed size are refused.
- The folder appears whole or not at all, and nothing is overwritten. `SOURCE.json` in it says where each file comes from
  and its SHA-256, `LICENCE.txt` the licence and whom to name.
- `--from DIR` finds the finished files, the downloads or what was unpacked from them by their names, also with the
  endings .gz, .xz, .zst and .bz2.
- Without a network: download the addresses that `regard data get NAME` shows on another machine, carry them over, and
  give their folder with `--from`.

A licence is given as its source states it, without warranty. "Not stated" means that we found no statement.
"""


def row(corpus: Corpus) -> str:
    names = ", ".join(f"`{name}`" for name in (corpus.name, *corpus.aliases))
    cells = (
        names,
        corpus.task,
        "-".join(corpus.languages),
        corpus.amount,
        readable_size(corpus.download_size),
        corpus.licence,
    )
    return f"| {' | '.join(cells)} |"


def section(corpus: Corpus) -> str:
    lines = [
        f"### {corpus.name}\n",
        f"{corpus.about}. Attribution: {corpus.attribution}. <{corpus.home}>\n",
        f"How this is known: {corpus.facts}\n",
        "| download | bytes | checksum |",
        "|---|---|---|",
    ]
    for file in corpus.downloads:
        size = UNKNOWN if file.size is None else f"{file.size:,}"
        checksum = f"`{file.checksum}`" if file.checksum else UNKNOWN
        lines.append(f"| <{file.url}> | {size} | {checksum} |")
    return "\n".join(lines) + "\n"


def text() -> str:
    corpora = catalogue().values()
    table = [
        "| name | for | languages | holds | to download | licence |",
        "|---|---|---|---|---|---|",
        *map(row, corpora),
    ]
    parts = [HEAD, "\n".join(table) + "\n", "## Where they come from\n", *map(section, corpora)]
    return "\n".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(
            0 if TARGET.read_text(encoding="utf-8") == text() else "docs/corpora.md is stale: run docs/make_corpora.py"
        )
    TARGET.write_text(text(), encoding="utf-8")
