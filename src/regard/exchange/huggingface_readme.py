"""README.md of folders that transformers opens: how, and what comes out."""

from __future__ import annotations

HEAD = """# A model for transformers

Written by `regard export --to huggingface`; parity.json says how closely it agrees with the model it was made of.

    pip install "transformers>=5" torch

```python
import torch
from transformers import AutoTokenizer, {auto}

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = {auto}.from_pretrained("FOLDER")
"""
TRANSLATE = """
texts = ["..."]
written = model.generate(**tokenizer(texts, return_tensors="pt", padding=True))
print({target}.batch_decode(written, skip_special_tokens=True))
```

generation_config.json has the settings of the search. The model was trained on sentences: split longer texts.
"""
TEXTS = {
    "AutoModelForCausalLM": """
prompt = torch.tensor([[model.config.bos_token_id] + tokenizer("...", add_special_tokens=False)["input_ids"]])
count = min(40, model.config.n_positions - prompt.shape[1])
written = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=True)
print(tokenizer.decode(written[0], skip_special_tokens=True))
```

A text begins with bos_token_id, in training as well: put it before the prompt.
""",
    "AutoModelForSequenceClassification": """
scores = model(**tokenizer("...", return_tensors="pt")).logits[0]
print(model.config.id2label[int(scores.argmax())])
```
""",
    "AutoModelForTokenClassification": """
scores = model(**tokenizer("...", return_tensors="pt")).logits[0]  # read the label of a word at its first piece
print([model.config.id2label[int(i)] for i in scores.argmax(-1)])
```
""",
    "AutoModelForMaskedLM": """
scores = model(**tokenizer("...", return_tensors="pt")).logits[0]
print(tokenizer.convert_ids_to_tokens(scores.argmax(-1)))
```
""",
    "AutoModelForPreTraining": """
answer = model(**tokenizer("...", return_tensors="pt"))
print(tokenizer.convert_ids_to_tokens(answer.prediction_logits[0].argmax(-1)), answer.seq_relationship_logits)
```
""",
    "AutoModelForNextSentencePrediction": """
print(model(**tokenizer("...", "...", return_tensors="pt")).logits.softmax(-1))  # follows, does not
```
""",
    "AutoModel": """
print(model(**tokenizer("...", return_tensors="pt")).last_hidden_state)
```
""",
}


def readme(auto: str, *, joint: bool = True) -> str:
    """The text for a folder that this Auto class opens; `joint`: one tokenizer serves both languages."""
    head = HEAD.format(auto=auto)
    if auto != "AutoModelForSeq2SeqLM":
        return head + TEXTS[auto]
    if joint:
        return head + TRANSLATE.format(target="tokenizer")
    other = 'target_tokenizer = AutoTokenizer.from_pretrained("FOLDER/target_tokenizer")\n'
    return head + other + TRANSLATE.format(target="target_tokenizer")
