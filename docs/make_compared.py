"""A page under docs/compared from the folder of a comparison, without the sentences of its text, which may not be free to show.

    python docs/make_compared.py FOLDER NAME "Title" "What it is, in a sentence or two."

FOLDER is what `regard compare --out FOLDER` wrote. Commands are shown with DIR in the place of the data's folder.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent / "compared"
LEFT_OUT = ("One sentence", "Settings that differ")
KEPT = ("lengths.png", "curves.png")


def main(folder: Path, name: str, title: str, about: str) -> None:
    report = (folder / "report.md").read_text(encoding="utf-8")
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    data = plan["entries"][0]["values"]["data"]["folder"]
    head, *sections = re.split(r"(?m)^## ", report)
    verdict = head.split("\n", 1)[1].strip()
    kept = [section for section in sections if not section.startswith(LEFT_OUT)]
    page = f"# {title}\n\n{about}\n\n{verdict}\n\n" + "".join(f"## {section}" for section in kept)
    for old, new in ((data, "DIR"), (str(folder), "OUT")):
        page = page.replace(old, new)
    page = re.sub(r"--out (?!runs/)\S+", "--out OUT", page)
    page = re.sub(r"(?m)^In \S+:\n\n", "", page)
    out = HERE / name
    (out / "pictures").mkdir(parents=True, exist_ok=True)
    (out / "README.md").write_text(page.rstrip() + "\n", encoding="utf-8")
    for picture in KEPT:
        shutil.copy(folder / "pictures" / picture, out / "pictures" / picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
