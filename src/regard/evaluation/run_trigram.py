"""The trigram of a language model's own training text, to mix with it as Bengio et al. 2003 do."""

from __future__ import annotations

from pathlib import Path

from regard.core import config as configuration
from regard.core.errors import DataError
from regard.core.files import read_json
from regard.data.corpus_config import DataConfig
from regard.data.documents import load_text
from regard.data.token_stream import TokenStream
from regard.evaluation.trigram import Trigram
from regard.tasks.folder import DATA
from regard.tasks.language_model import TextModel


def trigram_of(model: TextModel) -> Trigram:
    """Counted on the text that the run was trained on, its weights learnt from the text that it was validated on."""
    folder = model.folder
    if folder is None or not (folder / DATA).is_file():
        what = "the model does not say what text it was trained on"
        raise DataError(folder or "trigram", what, "Use the folder of a run, with its data.json")
    if "imported" in read_json(folder / DATA):
        raise DataError(folder, "the model was imported, and has no training text to count", "Use one trained here")
    corpus = load_text(configuration.build(DataConfig, model.config["data"], "data"))
    _check_same(folder, corpus.fingerprint)
    if not len(corpus.valid):
        raise DataError(
            folder, "the run has no validation text, from which a trigram learns its weights", "Train it with some"
        )
    train, valid = (TokenStream.from_documents(part, model.tokenizer).tokens for part in (corpus.train, corpus.valid))
    trigram = Trigram.count(train, model.tokenizer.size)
    trigram.fit(valid)
    return trigram


def _check_same(folder: Path, fingerprint: str) -> None:
    if read_json(folder / DATA).get("fingerprint") != fingerprint:
        raise DataError(folder, "the text is not what this run was trained on", "Restore its files")
