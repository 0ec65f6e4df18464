"""Texts that grow in all trunks at once: what is written is what running every text from its start
would write.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.ilql.agent import decoding as decodings
from motif_jax.ilql.agent.decoding import Decoding
from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.ilql.agent.text_session import AgentDecoder, TextSession
from motif_jax.ilql.dialogues.dialogue_tokens import Delimiters
from motif_jax.lm.config import parse
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.tokens import padded

MARKS = Delimiters(*range(10, 16))
CONFIG = parse(
    {
        "model_type": "gpt2", "vocab_size": 16, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "pad_token_id": 10, "bos_token_id": None,
        "eos_token_id": None, "initializer_range": 0.5,
    }
)  # fmt: skip


def made(design: Design, seed: int = 0) -> tuple[AgentDecoder, Any]:
    """An agent whose parts differ from each other, targets too."""
    network = TextAgentNetwork(LanguageModel(CONFIG), design)
    params = network.init(jax.random.key(seed))
    other = network.init(jax.random.key(seed + 1))
    if "target_heads" in params:
        params["target_heads"] = other["target_heads"]
    if "target" in params["trunks"]:
        params["trunks"]["target"] = other["trunks"]["target"]
    return AgentDecoder(network), params


@functools.lru_cache
def _look(decoder: AgentDecoder) -> Any:
    return jax.jit(decoder.network.readouts)


def at_the_end(decoder: AgentDecoder, params: Any, text: list[int], target_return: float) -> Any:
    """What the agent says of a text's end, every text run from its start."""
    tokens, valid = padded([text], 39)
    returns = jnp.full((1,), target_return) if decoder.network.design.prefix else None
    readout = _look(decoder)(params, tokens, valid, returns)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0, len(text) - 1], readout)


def expected(decoder: AgentDecoder, params: Any, text: list[int], how: Decoding) -> list[int]:
    action: list[int] = []
    while len(action) < how.max_tokens and MARKS.action_end not in action:
        end = at_the_end(decoder, params, [*text, *action], how.target_return)
        tokenwise = decoder.network.design.q == "token"
        values = (end.target_q, end.values) if tokenwise else (None, None)
        outputs = decodings.TokenOutputs(end.logits, *values)
        action.append(int(decodings.steered(outputs, how, MARKS.pad).argmax()))
    return action


def keys(seed: int, rows: int = 3) -> jax.Array:
    return jax.random.split(jax.random.key(seed), rows)


def extra(*designs: Design) -> list[Any]:
    return [pytest.param(design, marks=pytest.mark.extra) for design in designs]


SHARED = Design(separate_policy=False, separate_target=False)
TURNS = [
    [[11, 1, 2, 13], [12], [11, 3, 13]],
    [[4, 13], [5, 6, 7, 13], []],
    [[1, 13], [2, 13], [3, 13]],
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "design", [Design(), *extra(SHARED, Design(q="none", v=False, prefix=True))]
)
def test_greedy_actions_turn_by_turn_are_those_without_a_cache(design: Design) -> None:
    decoder, params = made(design)
    how = Decoding(
        "greedy", max_tokens=4, advantage_weight=3.0, advantage_clip=1.0, target_return=-2.0
    )
    # So small that padding is squeezed out and the cache grows on the way.
    session = TextSession(decoder, params, 3, how, MARKS, capacity=12)
    texts: list[list[int]] = [[], [], []]
    for number, turn in enumerate(TURNS):
        texts = [text + more for text, more in zip(texts, turn, strict=True)]
        if number == 1:
            # what was said is taken back, and said otherwise
            texts[0] = [*texts[0][:3], 9, *texts[0][3:]]
        rows = np.array([True, number != 1, True])
        session.read(texts)
        written = session.write(keys(number), rows)
        for row, text in enumerate(texts):
            action = written.tokens[row][written.valid[row]].tolist()
            assert action == (expected(decoder, params, text, how) if rows[row] else [])
        texts = [list(text) for text in session.texts]
        if number == 1:
            session.pick([2, 0, 1])
            texts = [texts[2], texts[0], texts[1]]


@pytest.mark.extra
def test_one_beam_is_greedy_and_more_find_likelier_actions() -> None:
    decoder, params = made(Design())
    texts = [[11, 1, 2, 13], [12], [11, 3, 13]]
    actions = {}
    scores = {}
    for name, kind, width in [("greedy", "greedy", 1), ("one", "beam", 1), ("many", "beam", 4)]:
        session = TextSession(
            decoder, params, 3, Decoding(kind, 4, width, advantage_weight=1.0), MARKS
        )
        session.read(texts)
        written = session.write(keys(0), np.array([True, False, True]))
        actions[name] = written.tokens * written.valid
        scores[name] = (written.facts.steered * written.valid).sum(1)
        assert not written.valid[1].any()
        assert session.texts[1] == texts[1]
    np.testing.assert_array_equal(actions["greedy"], actions["one"])
    assert (scores["many"] >= scores["greedy"] - 1e-5).all()


@pytest.mark.extra
@pytest.mark.parametrize(
    "design", [Design(q="utterance"), *extra(Design(), Design(q="mean", v=False))]
)
def test_the_best_of_many_samples_continues_with_its_text(design: Design) -> None:
    decoder, params = made(design)
    texts = [[11, 1, 2, 13], [12], [11, 3, 13]]
    how = Decoding("rerank", 3, width=4, batches=2, advantage_weight=0.5, log_prob_weight=0.1)
    session = TextSession(decoder, params, 3, how, MARKS)
    session.read(texts)
    written = session.write(keys(5), np.ones(3, bool))

    def score(text: list[int], action: list[int]) -> float:
        if design.q != "token":
            value = float(at_the_end(decoder, params, [*text, *action], 0.0).target_q)
            logs = [
                float(jax.nn.log_softmax(decodings.without(at_the_end(decoder, params, [*text, *action[:i]], 0.0).logits, MARKS.pad))[token])
                for i, token in enumerate(action)
            ]  # fmt: skip
            return value + 0.1 * sum(logs)
        ends = [at_the_end(decoder, params, [*text, *action[:i]], 0.0) for i in range(len(action))]
        return sum(
            float(end.target_q[token] - end.values) for end, token in zip(ends, action, strict=True)
        )

    # The candidates are what single samples with the same keys say.
    alone = TextSession(decoder, params, 3 * 8, Decoding("sample", 3, advantage_weight=0.5), MARKS)
    alone.read([text for text in texts for _ in range(8)])
    sample_keys = jax.vmap(
        lambda k: jax.vmap(lambda b: jax.random.split(b, 4))(jax.random.split(k, 2))
    )(keys(5))
    single = alone.write(sample_keys.reshape(-1), np.ones(24, bool))
    for row, text in enumerate(texts):
        options = [single.tokens[i][single.valid[i]].tolist() for i in range(8 * row, 8 * row + 8)]
        best = max(options, key=lambda action: score(text, action))
        action = written.tokens[row][written.valid[row]].tolist()
        assert action in options
        np.testing.assert_allclose(score(text, action), score(text, best), rtol=1e-4)
    # The chosen one's keys are the text's now.
    texts = [[*text, 1, 13] for text in session.texts]
    session.read(texts)
    following = session.write(keys(6), np.ones(3, bool))
    fresh = TextSession(decoder, params, 3, how, MARKS)
    fresh.read(texts)
    np.testing.assert_array_equal(following.tokens, fresh.write(keys(6), np.ones(3, bool)).tokens)


@pytest.mark.slow
def test_a_text_longer_than_the_model_loses_its_beginning() -> None:
    decoder, params = made(Design())
    how = Decoding("greedy", max_tokens=4, advantage_weight=2.0)
    session = TextSession(decoder, params, 1, how, MARKS)
    text = np.random.default_rng(0).integers(0, 10, 60).tolist()
    session.read([text])
    written = session.write(keys(0, 1), np.ones(1, bool))
    assert written.tokens[0][written.valid[0]].tolist() == expected(
        decoder, params, text[-36:], how
    )
