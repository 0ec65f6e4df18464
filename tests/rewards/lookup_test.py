"""The reward of texts beside a learner: where it is computed, and what a batch waits for."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.rewards import reward_model as module
from motif_jax.rewards.normalisation import QUANTILE_LEVELS
from motif_jax.rewards.reward_model import CHUNK, read_run
from motif_jax.sections.agents import AgentReward

pytestmark = pytest.mark.usefixtures("compiled_quickly")
SPEC = EnvironmentSpec({"message": ArraySpec((256,), "uint8")}, 3, text_field="message")
LENGTHS = (96, None)


def distinct_messages(count: int, long: bool) -> np.ndarray:
    rows = np.zeros((count, 256), np.uint8)
    rows[:, :4] = 1 + np.array([np.unravel_index(i, (9, 9, 9, 9)) for i in range(count)])
    rows[:, 200] = long
    return rows


def test_all_parts_are_on_their_way_before_the_first_is_read(trained, monkeypatch) -> None:
    model, events = read_run(trained), []

    class Part:
        """Rewards that say when somebody waits for them."""

        def __init__(self, size: int) -> None:
            events.append("launch")
            self.size = size

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            events.append("read")
            return np.zeros((1, self.size), np.float32)

    monkeypatch.setattr(module, "_message_program", lambda *_: lambda params, padded: Part(len(padded)))
    texts = np.concatenate([distinct_messages(CHUNK + 1, False), distinct_messages(3, True)])
    model.of_messages(model.params, texts)
    assert events == ["launch"] * 3 + ["read"] * 3


@pytest.mark.slow
def test_the_lookup_computes_where_it_was_told_with_programs_that_are_ready(trained) -> None:
    device = jax.devices()[1]
    config = AgentReward(dir=str(trained))
    reward = rewards.load_intrinsic(config, SPEC, device=device)
    assert {d for leaf in jax.tree.leaves(reward.table.params) for d in leaf.devices()} == {device}
    model = read_run(trained)
    programs = [module._message_program(model.network.architecture, 1, length) for length in LENGTHS]
    reward.start()
    compiled = [program._cache_size() for program in programs]
    assert min(compiled) >= 1
    sizes = (1, 8, CHUNK, 3 * CHUNK + 1)
    found, texts = [], {long: distinct_messages(sum(sizes), long) for long in (False, True)}
    count = 0
    for size in sizes:
        # Texts of their own for each size: nothing of them is in the table.
        found += [reward.lookup(texts[long][count : count + size]).values for long in (False, True)]
        count += size
    assert len(reward.table) == 2 * sum(sizes)
    assert [program._cache_size() for program in programs] == compiled
    expected = model.normalisation(True, 0.5)(model.of_messages(model.params, texts[True]))
    np.testing.assert_array_equal(np.concatenate(found[1::2]), expected)


@pytest.mark.slow
def test_a_message_has_one_value_whatever_it_is_computed_with(trained) -> None:
    """A quantile is some message's own reward: one that rounds otherwise beside others would be paid here, not there."""
    rng = np.random.default_rng(0)
    letters = rng.integers(32, 127, (3 * CHUNK + 4, 256))
    table = np.where(np.arange(256) < rng.integers(1, 120, (len(letters), 1)), letters, 0).astype(np.uint8)
    reward = rewards.load(trained)
    texts = [row.tobytes() for row in table]
    together = reward(texts)
    order = rng.permutation(len(table))
    np.testing.assert_array_equal([reward(text) for text in texts], together)
    np.testing.assert_array_equal([reward([text, "a"])[0] for text in texts], together)
    np.testing.assert_array_equal(reward([texts[i] for i in order]), together[order])
    for level in QUANTILE_LEVELS[::9]:
        section = {"dir": str(trained), "step": None, "normalise": True, "quantile": level}
        for device in (None, jax.devices()[1]):
            in_training = rewards.load_intrinsic(AgentReward(**section), SPEC, device=device)
            assert in_training is not None
            found = [in_training.lookup(part).values for part in (table[:5], table[5:])]
            np.testing.assert_array_equal(np.concatenate(found), reward.intrinsic(texts, level))
