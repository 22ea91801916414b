"""regard: every sequence model on the road to the Transformer, trained, decoded, measured and looked into.

    import regard
    translator = regard.load()                         # the bundled English-German model, or a run folder
    translator.translate(["Good morning."], beam=5)
    regard.train(src="a.en", tgt="a.de", out="run")
    regard.train(text="a.txt", out="lm")               # a language model
    regard.load("lm").generate("Once upon a time")
    regard.train(labelled="a.tsv", out="classifier")   # lines of a label, a tab and a text
    regard.load("classifier").classify("A fine film.")
    regard.train(tagged="a.conllu", out="tagger")      # a word and its tag on each line
    regard.load("tagger").tag("I can can a can.")
    regard.evaluate(model="run", src="test.en", ref="test.de")
    regard.compare("demo", models=["transformer", "luong"], out="which")   # which is better, is it significant?
    regard.export("run", to="ctranslate2", out="fast")   # or huggingface, onnx: with a certificate of parity
    regard.look(regard.load(), "It was too tired.").show()   # the viewer, in a notebook
    regard.attend(query, keys, values, score="gaussian")   # attention by itself, over any tensors

Names are imported when first used, so that `import regard` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "MaskedText",
    "RegardError",
    "SearchConfig",
    "TextClassifier",
    "TextModel",
    "TextTagger",
    "Translator",
    "WordVectors",
    "attend",
    "compare",
    "ensemble",
    "evaluate",
    "evaluate_text",
    "export",
    "import_model",
    "load",
    "look",
    "nadaraya_watson",
    "plan",
    "resume",
    "train",
]

if TYPE_CHECKING:
    from regard.comparing.compare import compare
    from regard.core.errors import RegardError
    from regard.evaluation.run import evaluate
    from regard.evaluation.text_run import evaluate_text
    from regard.exchange.export import export
    from regard.exchange.import_model import import_model
    from regard.layers.attention.nadaraya_watson import nadaraya_watson
    from regard.layers.attention.pooling import attend
    from regard.looking.notebook import look
    from regard.search.config import SearchConfig
    from regard.tasks.classification import TextClassifier
    from regard.tasks.ensembles import ensemble
    from regard.tasks.language_model import TextModel
    from regard.tasks.masked import MaskedText
    from regard.tasks.pretrained import load
    from regard.tasks.tagging import TextTagger
    from regard.tasks.translation import Translator
    from regard.tasks.word_vectors import WordVectors
    from regard.training.planning import plan
    from regard.training.run import resume, train

_PLACES = {
    "MaskedText": "regard.tasks.masked",
    "RegardError": "regard.core.errors",
    "SearchConfig": "regard.search.config",
    "TextClassifier": "regard.tasks.classification",
    "TextModel": "regard.tasks.language_model",
    "TextTagger": "regard.tasks.tagging",
    "Translator": "regard.tasks.translation",
    "WordVectors": "regard.tasks.word_vectors",
    "attend": "regard.layers.attention.pooling",
    "compare": "regard.comparing.compare",
    "ensemble": "regard.tasks.ensembles",
    "evaluate": "regard.evaluation.run",
    "evaluate_text": "regard.evaluation.text_run",
    "export": "regard.exchange.export",
    "import_model": "regard.exchange.import_model",
    "load": "regard.tasks.pretrained",
    "look": "regard.looking.notebook",
    "nadaraya_watson": "regard.layers.attention.nadaraya_watson",
    "plan": "regard.training.planning",
    "resume": "regard.training.run",
    "train": "regard.training.run",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        import importlib

        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
