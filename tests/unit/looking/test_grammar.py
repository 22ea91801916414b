"""Heads and grammar: words from columns, and counts that are right for heads made on purpose."""

from __future__ import annotations

import numpy as np
import pytest

from regard.core.errors import DataError
from regard.core.types import EOS
from regard.data.word_tokens import WordTokenizer
from regard.looking import grammar
from regard.looking.grammar import best_heads, count_heads, load_heads, read_parsed, save_heads, sayings
from regard.tasks.pretrained import load_translator

# "She didn't give him it." with a contraction, and glued punctuation
PARSED = """# text = She didn't give him it.
1\tShe\tshe\tPRON\t_\t_\t4\tnsubj\t_\t_
2-3\tdidn't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdid\tdo\tAUX\t_\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\t_\t_\t4\tadvmod\t_\t_
4\tgive\tgive\tVERB\t_\t_\t0\troot\t_\t_
5\thim\the\tPRON\t_\t_\t4\tiobj\t_\t_
6\tit\tit\tPRON\t_\t_\t4\tobj\t_\tSpaceAfter=No
7\t.\t.\tPUNCT\t_\t_\t4\tpunct\t_\t_

# text = Birds sing songs
1\tBirds\t_\t_\t_\t_\t2\tnsubj:x\t_\t_
2\tsing\t_\t_\t_\t_\t0\troot\t_\t_
3\tsongs\t_\t_\t_\t_\t2\tobj\t_\t_
"""


@pytest.fixture
def parsed(tmp_path):
    path = tmp_path / "some.conllu"
    path.write_text(PARSED)
    return path


def test_words_and_relations_come_from_the_columns(parsed):
    first, second = read_parsed(parsed)
    assert first.text == "She didn't give him it."
    assert first.relations == [("nsubj", 0, 2), ("iobj", 3, 2), ("obj", 4, 2)]
    assert second.text == "Birds sing songs"
    assert second.relations == [("nsubj", 0, 1), ("obj", 2, 1)]


@pytest.mark.parametrize("content", ["a b c\n\n", *(f"1\tx\t_\t_\t_\t_\t{head}\tobj\t_\t_\n\n" for head in ("q", "9"))])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "bad").write_text(content)
    with pytest.raises(DataError, match="CoNLL-U"):
        read_parsed(tmp_path / "bad")


def test_a_head_that_follows_a_relation_is_found(parsed, monkeypatch):
    """Weights are made up: head 0 of layer 0 looks at the verb from everywhere, head 1 at the word before."""
    task = load_translator(None, "cpu")
    tokenizer = WordTokenizer(task.tokenizers.source)
    verbs = {"She didn't give him it.": 2, "Birds sing songs": 1}
    texts = iter(verbs)

    def made_up(tensors, *, reads_only):
        text = next(texts)
        (tokens,) = tokenizer.encode([text])
        words = np.asarray([*tokens.words, tokens.count])
        n = len(words)
        weights = np.full((1, 2, n, n), 1e-6)
        for t in range(n):
            weights[0, 0, t, np.flatnonzero(words == verbs[text])[0]] = 1.0
            before = np.flatnonzero(words == words[t] - 1)
            if len(before):
                weights[0, 1, t, before[0]] = 1.0
        return {"encoder.self": grammar_part(weights)}

    monkeypatch.setattr(grammar, "parts_of", made_up)
    found = count_heads(task, read_parsed(parsed))
    relations = found["relations"]
    assert relations["nsubj"]["count"] == 2
    assert relations["obj"]["dependent"][0][0] == 1.0
    assert relations["nsubj"]["dependent"][0] == [1.0, 0.0]
    assert relations["iobj"]["dependent"][0] == [1.0, 1.0]  # the word before "him" is the verb
    assert relations["obj"]["distance"] == 0.5  # two and one words away
    assert sayings(found)["encoder.self"][0] == ["nsubj 100%, obj 100%, iobj 100%", "iobj 100%, nsubj 50%, obj 50%"]
    assert grammar.baselines(found) == {"nsubj": 0.5, "obj": 0.5, "iobj": 1.0}
    (nsubj,) = [row for row in best_heads(found) if row["relation"] == "nsubj"]
    assert (nsubj["layer"], nsubj["head"], nsubj["from"], nsubj["share"]) == (0, 0, "dependent", 1.0)


def grammar_part(weights):
    from regard.looking.part import Part

    return Part("encoder.self", "source", "source", weights, False)


def test_the_bundled_model_is_counted_and_kept(parsed, tmp_path, command):
    found = command("heads", parsed, "--out", tmp_path / "heads.json", "--device", "cpu")
    assert found.code == 0, found.err
    assert "nsubj (who)" in found.out
    kept = load_heads(tmp_path)
    assert kept is not None
    assert np.shape(kept["relations"]["obj"]["head"]) == (5, 4)
    assert EOS == 2


def test_damaged_counts_are_left_out(tmp_path):
    assert load_heads(tmp_path) is None
    for content in (
        "[]",
        "{",
        '{"part": "encoder.self", "relations": {}}',
        '{"relations": {"obj": {"dependent": [[1]]}}}',
    ):
        (tmp_path / "heads.json").write_text(content)
        assert load_heads(tmp_path) is None
    save_heads(
        {"part": "x", "relations": {"obj": {"count": 1, "distance": 0.1, "dependent": [[0.2]], "head": [[0.0]]}}},
        tmp_path / "heads.json",
    )
    assert load_heads(tmp_path) is not None
