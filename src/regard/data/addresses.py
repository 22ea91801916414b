"""What names a text: a path, or one of the few other addresses."""

from __future__ import annotations

from regard.data.bundle import PREFIX

DATASETS = "hf:"  # a dataset of Hugging Face's package
SHARDS = "shards:"  # a file that lists files or other addresses: text that is read as it is needed
STANDARD_INPUT = "-"


def is_path(address: str) -> bool:
    return address != STANDARD_INPUT and not address.startswith((PREFIX, DATASETS, SHARDS))
