"""Captions against the published grouping."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from motif_jax.core.verdicts import UNKNOWN
from motif_jax.motif.annotation import captions, labels
from motif_jax.motif.annotation.questions import QuestionHasher, caption_questions


def encode(messages):
    data = b"".join(text.encode("latin-1").ljust(256, b"\0") for text in messages)
    return np.frombuffer(data, np.uint8).reshape(-1, 256)


def test_grouping_golden(golden):
    for case in golden("caption_grouping.json")["pairs"]:
        for side, name in enumerate(("seq_1", "seq_2")):
            encoded = encode(case[name])
            decoded = [captions.decode_message(row) for row in encoded]
            assert decoded == case["decoded"][side]
            grouped = case["condensed"][side], case["first_step_index"][side]
            assert captions.group_messages(decoded) == grouped
            assert captions.caption(encoded) == case["joined"][side]
        listed = caption_questions([tuple(case["joined"])], 1, QuestionHasher({}), "given")
        assert len(listed.questions) == case["prompted"]
        # Nobody has answered anything: unknown, or a tie without asking.
        label = labels.labels_of_pairs(listed, [None] * len(listed.questions)).labels[0]
        assert label == (UNKNOWN if case["prompted"] else case["label_if_not_prompted"])


def test_status_golden(golden):
    status = golden("caption_grouping.json")["blstats_caption"]
    for rows, texts in zip(status["blstats"], status["text"], strict=True):
        for status_rows in (np.array(rows), np.array(rows, float)[:, :26]):
            assert list(map(captions.status_line, status_rows)) == texts


@pytest.mark.parametrize("length", [1, 3])
def test_pairs_have_the_captions_of_their_sub_sequences(length):
    rng = np.random.default_rng(0)
    drawn = rng.choice(["", "a", "b", "a"], 100 * length)
    messages = encode(drawn.tolist()).reshape(50, 2, length, 256)
    blstats = rng.integers(0, 6, (50, 2, length, 27))
    for status in (None, blstats):
        got = list(captions.pair_captions(messages, status, block=7))
        for pair in range(50):
            for side in range(2):
                state = None if status is None else status[pair, side]
                assert got[pair][side] == captions.caption(messages[pair, side], state)
    texts = itertools.chain(*captions.pair_captions(messages, blstats, use_messages=False))
    assert all(re.fullmatch(r"\[Dlvl:[^]]*\]", line) for text in texts for line in text.split("\n"))
