"""A decoder's candidates, tokenised together with their prompts, and what they score."""

from __future__ import annotations

import functools
import itertools
import shutil
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest

from motif_jax import lm
from motif_jax.core.errors import UserError
from motif_jax.lm import text
from motif_jax.lm.tokens import Tokenizer, padded
from tests.lm import merging, models
from tests.sets import extra

DECODERS = ("gpt2", "llama", "qwen2", "qwen2_windows", "qwen3", "gemma3")
PROMPTS = ["ab:", "ab: ", "b", "cb", "c", "ac:c"]
CANDIDATES = [" a", " ab", "a", " ", "c", " b"]


def all_texts(longest: int) -> list[str]:
    """All texts of up to `longest` letters."""
    lengths = range(1, longest + 1)
    return [
        "".join(letters)
        for length in lengths
        for letters in itertools.product(merging.ALPHABET, repeat=length)
    ]


@pytest.mark.parametrize("begins", [False, True])
def test_rows_are_the_whole_texts_tokens(begins: bool) -> None:
    tokenizer = Tokenizer(merging.tokenizer(begins))
    prompts = [f"b{text}" for text in all_texts(3)]

    joint = tokenizer.encode_joint(
        [f"c{prompt}" for prompt in prompts], [CANDIDATES] * len(prompts)
    )

    for prompt, rows in zip(prompts, joint, strict=True):
        texts = [f"c{prompt}{candidate}" for candidate in CANDIDATES]
        assert [[*rows.prompt, *row] for row in rows.candidates] == tokenizer.encode(texts)


def test_a_candidate_begins_where_its_text_leaves_the_prompts_tokens() -> None:
    tokenizer = Tokenizer(merging.tokenizer())
    prompts = [f"cb{text}" for text in all_texts(3)]
    alone = tokenizer.encode(prompts)

    joint = tokenizer.encode_joint(prompts, [CANDIDATES] * len(prompts))

    for row, rows in zip(alone, joint, strict=True):
        for candidate, start in zip(rows.candidates, rows.starts, strict=True):
            whole = [*rows.prompt, *candidate]
            length = len(rows.prompt) + start
            assert whole[:length] == row[:length]
            assert length == len(row) or whole[length] != row[length]


def test_a_merged_boundary_is_the_candidates() -> None:
    tokenizer = Tokenizer(merging.tokenizer())

    (joint,) = tokenizer.encode_joint(["ab:"], [[" a", "c"]])

    # "ab", ":" and "ab", ": a": the prompt's colon is scored with " a", and stands before "c".
    assert tokenizer.pieces(joint.prompt) == ["ab"]
    assert [tokenizer.pieces(row) for row in joint.candidates] == [[": a"], [":", "c"]]
    assert joint.starts == [0, 1]


def test_an_end_token_does_not_stand_between_prompt_and_candidate() -> None:
    plain = Tokenizer(merging.tokenizer(begins=True))
    closing = Tokenizer(merging.tokenizer(begins=True, ends=True))

    assert closing.encode_joint(["ab:"], [[" a", "c"]]) == plain.encode_joint(
        ["ab:"], [[" a", "c"]]
    )


@functools.cache
def model_of(name: str) -> lm.TextModel:
    """A small model of an architecture, whose tokenizer merges across blanks."""
    folder = models.write(Path(tempfile.mkdtemp()), name)
    merging.tokenizer(begins=name in ("llama", "gemma3")).save(str(folder / "tokenizer.json"))
    model = lm.load(folder, batch=8)
    shutil.rmtree(folder)
    return model


def whole_text_scores(model: lm.TextModel, prompt: str) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of the candidates' tokens, each by a run over the whole text, and how many
    they are.
    """
    (alone,) = model.tokenizer.encode([prompt])
    texts = model.tokenizer.encode([prompt + candidate for candidate in CANDIDATES])
    rows = padded(texts, 16)
    states, _ = jax.jit(model.model.prefill)(model.params, *rows)
    log_probs = jax.nn.log_softmax(model.model.logits(model.params, states.after))

    totals = []
    counts = []
    for index, tokens in enumerate(texts):
        common = [one == other for one, other in zip(alone, tokens, strict=False)]
        start = common.index(False) if False in common else len(alone)
        scored = [log_probs[index, place - 1, tokens[place]] for place in range(start, len(tokens))]
        totals.append(sum(scored))
        counts.append(len(scored))
    return np.array(totals), np.array(counts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", *(extra(name) for name in DECODERS if name != "gpt2")])
def test_shared_prompts_score_as_whole_texts_do(name: str) -> None:
    model = model_of(name)
    prompts = [f"cab{prompt}" for prompt in PROMPTS]

    scores = model.score(prompts, CANDIDATES)

    expected = [whole_text_scores(model, prompt)[0] for prompt in prompts]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_score_by_length_counts_the_candidates_tokens_alone() -> None:
    model = model_of("llama")

    (scores,) = model.score(["cab:"], CANDIDATES, by_length=True)

    totals, counts = whole_text_scores(model, "cab:")
    assert len(set(counts)) > 1
    np.testing.assert_allclose(scores, totals / counts, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_score_does_not_depend_on_the_other_candidates() -> None:
    model = model_of("llama")

    joint, alone = model.score(["cab:", "cab:"], [CANDIDATES, CANDIDATES[4:5]])

    np.testing.assert_allclose(joint[4], alone[0], rtol=1e-5, atol=1e-5)


@pytest.mark.extra
def test_a_look_has_the_tokens_that_are_scored() -> None:
    model = model_of("llama")

    looks = model.token_log_probs(["cab:"] * len(CANDIDATES), CANDIDATES)

    totals = [look.log_probs[look.start :].sum() for look in looks]
    np.testing.assert_allclose(totals, model.score(["cab:"], CANDIDATES)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_t5_s_candidates_begin_anew(tmp_path: Path) -> None:
    folder = models.write(tmp_path / "t5", "t5")
    merging.tokenizer(ends=True).save(str(folder / "tokenizer.json"))
    model = lm.load(folder)

    (rows,) = text.encode_candidates(model.tokenizer, model.model.config, ["ab:"], [("ab", " a")])

    assert model.tokenizer.pieces(rows.prompt) == ["ab", ":", "</s>"]
    assert [model.tokenizer.pieces(row) for row in rows.candidates] == [["ab"], [" a"]]
    assert rows.starts == [0, 0]


def test_an_empty_prompt_has_the_beginning_token_alone() -> None:
    joint = Tokenizer(merging.tokenizer(begins=True, ends=True)).encode_joint([""], [["ab", "c"]])
    begin = merging.tokenizer().token_to_id("<s>")

    assert joint[0].prompt == [begin]
    assert joint[0].starts == [0, 0]


@pytest.mark.extra
def test_each_prompt_needs_room_for_its_own_candidates() -> None:
    model = model_of("llama")
    room = model.model.config.max_length
    assert room is not None
    long = "c" * (room - 3)
    short = "b" * (room - 3)
    prompts = [long, "c"]
    candidates = [[" a", " b"], [f" {short}", " b"]]

    joint = model.score(prompts, candidates)

    for prompt, texts, scores in zip(prompts, candidates, joint, strict=True):
        np.testing.assert_allclose(scores, model.score([prompt], [texts])[0], rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match="do not fit a model"):
        model.score([long], [[f" {short}", " b"]])
