"""README.md of folders that CTranslate2 opens: how, with nothing but ctranslate2 and tokenizers."""

from __future__ import annotations

from regard.core.search_config import SearchConfig
from regard.models.bert import BertConfig

HEAD = """# A model for CTranslate2

Written by `regard export --to ctranslate2`; parity.json says how closely it agrees with the model it was made of.

    pip install ctranslate2 tokenizers

```python
"""


def translator_readme(search: SearchConfig, longest: int, joint: bool) -> str:
    source, target = ("tokenizer.json",) * 2 if joint else ("tokenizer.src.json", "tokenizer.tgt.json")
    return (
        HEAD
        + f"""import ctranslate2, tokenizers

translator = ctranslate2.Translator("FOLDER", device="cpu")
source = tokenizers.Tokenizer.from_file("FOLDER/{source}")
target = tokenizers.Tokenizer.from_file("FOLDER/{target}")
source.encode_special_tokens = True  # "</s>" inside a text is text

def translate(texts):
    tokens = [source.encode(text, add_special_tokens=False).tokens + ["</s>"] for text in texts]
    results = translator.translate_batch(
        tokens, beam_size={search.beam}, length_penalty={search.alpha}, max_decoding_length={min(256, longest)},
        min_decoding_length=0, disable_unk={search.ban_unknown}, suppress_sequences=[["<pad>"], ["<s>"]],
    )
    return [target.decode([target.token_to_id(t) for t in r.hypotheses[0]]) for r in results]
```

A text is one sentence, of at most {longest - 1} tokens; the model was trained on sentences, so split longer texts.
"""
    )


def generator_readme(context: int) -> str:
    return (
        HEAD
        + f"""import ctranslate2, tokenizers

generator = ctranslate2.Generator("FOLDER", device="cpu")
tokenizer = tokenizers.Tokenizer.from_file("FOLDER/tokenizer.json")
tokenizer.encode_special_tokens = True  # "</s>" inside a text is text

def go_on(prompt, count=40):
    tokens = ["<s>"] + tokenizer.encode(prompt, add_special_tokens=False).tokens
    result = generator.generate_batch(
        [tokens], max_length=count, sampling_topk=0, sampling_temperature=0.8, include_prompt_in_result=False,
        disable_unk=True, suppress_sequences=[["<pad>"], ["<s>"]],
    )[0]
    return tokenizer.decode(result.sequences_ids[0])
```

Prompt and what is written have at most {context} tokens together.
"""
    )


def encoder_readme(config: BertConfig) -> str:
    return (
        HEAD
        + f"""import ctranslate2, numpy, tokenizers

encoder = ctranslate2.Encoder("FOLDER", device="cpu")
tokenizer = tokenizers.Tokenizer.from_file("FOLDER/tokenizer.json")
tokenizer.encode_special_tokens = True  # "</s>" inside a text is text

def states(text):
    ids = [1] + tokenizer.encode(text, add_special_tokens=False).ids + [2]  # 1 is [CLS], 2 is [SEP]
    output = encoder.forward_batch([ids], token_type_ids=[[0] * len(ids)])
    return numpy.asarray(output.last_hidden_state)[0]  # a vector of {config.width} numbers for each id
```

A text has at most {config.context - 2} tokens. CTranslate2's encoders give states and, where the model has a pooler,
`pooler_output`. The heads that fill in words and judge whether a text follows another are not in the file: export with
`--to onnx` or `--to huggingface` to have them.
"""
    )
