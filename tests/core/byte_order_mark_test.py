"""A byte order mark at the start of a user's text file is no part of its text."""

from __future__ import annotations

import codecs

import numpy as np

from motif_jax.core.files import read_json
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.tasks.wordle import game
from motif_jax.lm import text_data
from motif_jax.motif.annotation import lexicon, prompts
from motif_jax.motif.reward import frozen_text
from motif_jax.oni import bag_of_words
from motif_jax.published import import_motif


def marked(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(codecs.BOM_UTF8 + text.encode())
    return path


def test_words(tmp_path):
    path = marked(tmp_path, "words.txt", "about\r\ncrane\r\n")
    assert game.read_words("words", str(path)) == ("about", "crane")


def test_texts_to_learn_from(tmp_path):
    path = marked(tmp_path, "texts.txt", "about\n")
    assert next(iter(text_data.read_items([path]))).text.strip() == "about"


def test_json(tmp_path):
    path = marked(tmp_path, "table.json", '{"You win!": 1}')
    assert read_json(path, "") == {"You win!": 1}
    assert frozen_text.read_table(str(path)) == {"You win!": 1.0}


def test_dialogues(tmp_path):
    path = marked(
        tmp_path, "d.jsonl", '{"sequence": [["a", 0], ["b", 1]], "reward": [1], "done": true}\n'
    )
    assert sum(len(batch.metas) for batch in dialogue_files.read_json_lines(path)) == 1


def test_prompt_files(tmp_path):
    text = prompts.prompt_path("default", "").read_text(encoding="utf-8")
    assert prompts.load_prompt(marked(tmp_path, "p.yaml", text), "gold", "analysis").goal


def test_lexicons(tmp_path):
    text = (lexicon.Path(lexicon.__file__).parent / "lexicons" / "minigrid.yaml").read_text(
        encoding="utf-8"
    )
    assert lexicon.load_lexicon(marked(tmp_path, "l.yaml", text)).events


def test_quantiles(tmp_path):
    path = marked(tmp_path, "q.csv", ",".join(map(str, range(19))) + "\n")
    np.testing.assert_array_equal(import_motif.read_quantiles(path, 0), np.arange(19))


def test_word_vectors(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = marked(tmp_path, "v.vec", "1 2\nkey 0.5 1\n")
    np.testing.assert_array_equal(bag_of_words.FileVectors(str(path)).of(b"key"), [0.5, 1])
