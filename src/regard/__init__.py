"""regard: every sequence model on the road to the Transformer, trained, decoded, measured and looked into.

    import regard
    translator = regard.load()                         # the bundled English-German model, or a run folder
    translator.translate(["Good morning."], beam=5)
    regard.train(src="a.en", tgt="a.de", out="run")
    regard.train(text="a.txt", out="lm")               # a language model
    regard.load("lm").generate("Once upon a time")
    regard.evaluate(model="run", src="test.en", ref="test.de")
    regard.compare("demo", models=["transformer", "luong"], out="which")   # which is better, is it significant?
    regard.attend(query, keys, values, score="gaussian")   # attention by itself, over any tensors

Names are imported when first used, so that `import regard` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "RegardError",
    "SearchConfig",
    "TextClassifier",
    "TextModel",
    "Translator",
    "attend",
    "compare",
    "evaluate",
    "evaluate_text",
    "load",
    "nadaraya_watson",
    "resume",
    "train",
]

if TYPE_CHECKING:
    from regard.comparing.compare import compare
    from regard.core.errors import RegardError
    from regard.evaluation.run import evaluate
    from regard.evaluation.text_run import evaluate_text
    from regard.layers.attention.nadaraya_watson import nadaraya_watson
    from regard.layers.attention.pooling import attend
    from regard.search.config import SearchConfig
    from regard.tasks.classification import TextClassifier
    from regard.tasks.language_model import TextModel
    from regard.tasks.pretrained import load
    from regard.tasks.translation import Translator
    from regard.training.run import resume, train

_PLACES = {
    "RegardError": "regard.core.errors",
    "SearchConfig": "regard.search.config",
    "TextClassifier": "regard.tasks.classification",
    "TextModel": "regard.tasks.language_model",
    "Translator": "regard.tasks.translation",
    "attend": "regard.layers.attention.pooling",
    "compare": "regard.comparing.compare",
    "evaluate": "regard.evaluation.run",
    "evaluate_text": "regard.evaluation.text_run",
    "load": "regard.tasks.pretrained",
    "nadaraya_watson": "regard.layers.attention.nadaraya_watson",
    "resume": "regard.training.run",
    "train": "regard.training.run",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        import importlib

        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
