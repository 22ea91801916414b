"""The README.md of a folder of ONNX graphs: how to open it, with regard and without."""

from __future__ import annotations

CALLS = {
    "translates": 'model.translate(["Good morning."], beam=5)',
    "continues": 'model.generate("Once upon a time", max_tokens=40)',
    "classifies": 'model.classify("A fine film.")',
    "tags": 'model.tag("I can can a can.")',
    "fills": 'model.fill("I went to the [MASK].")',
    "composes": "model.write(model.labels[0], max_tokens=40)",
}
GRAPHS = {
    "translates": """1. `encoder.onnx` reads `tokens` [B, S] (each row ends with `</s>`, id 2, then padding, id 0) and `keep`
   [B, S] (True at tokens). It gives what onnx.json lists under `memory`, and the first values of those parts of `state` that
   are `encoded`, for one hypothesis. The others begin empty (`L` = 0) or with their `value`. (A model with `lengths.onnx` is
   also given `length` [B].)
2. `step.onnx` reads `tokens` [B, K] (at first `<s>`, id 1), the memory and the state. It gives `log_probs` [B, K, V] of the next
   token, and the state's next values as `next.*`.
3. When hypotheses change places, reorder axis 1 of the parts whose kind is `rows` or `seen`; `cache` stays as it is.""",
    "continues": """`step.onnx` reads `tokens` [B, K] (at first `<s>`, id 1) and the state, which begins empty (`L` = 0) or with
the `value` that onnx.json gives. It gives `log_probs` [B, K, V] of the next token, and the state's next values as `next.*`.
When hypotheses change places, reorder axis 1 of the parts whose kind is `rows` or `seen`; `cache` stays as it is.""",
    "classifies": """`model.onnx` reads `tokens` [B, S] (padding is id 0) and `keep` [B, S] (True at tokens), and gives
`log_probs` of the labels in onnx.json, in their order. Rows shorter than `least_source` are filled up with padding.""",
    "tags": """`model.onnx` reads `tokens` [B, S] (padding is id 0), `keep` [B, S] (True at tokens) and `places` [B, T], where
the words begin. It gives `log_probs` [B, T, labels], in the order of the labels in onnx.json.""",
    "fills": """`model.onnx` reads `tokens` [B, S] (without [CLS] and [SEP], which it adds; padding is id 0), `keep` [B, S] (True at
tokens) and, if it fills in words, `places` [B, T]. It gives the last `states`, [CLS] first, `log_probs` at the places, and
`next_sentence` where the model knows it.""",
}

GRAPHS["composes"] = GRAPHS["translates"].replace("reads `tokens` [B, S]", "reads the label's `tokens` [B, S]")


def readme(model: str, kind: str, quantise: str) -> str:
    """How to open the folder."""
    return f"""# A {model} model as ONNX graphs ({quantise})

Written by `regard export --to onnx`. Every size is free: B sentences, K hypotheses, S source positions, L positions written so far,
T places. parity.json says how far the graphs' answers are from those of the model they were made of.

## With regard, without torch

`pip install onnxruntime numpy tokenizers`, then `pip install --no-deps` with regard's wheel or its folder:

```python
import regard.onnx

model = regard.onnx.load("THIS FOLDER")
print({CALLS[kind]})
```

## With onnxruntime alone

{GRAPHS[kind]}

Text becomes tokens with `tokenizers.Tokenizer.from_file("tokenizer.json")` (or tokenizer.src.json and tokenizer.tgt.json).
"""
