"""The reward of texts beside a learner: where it is computed, and what a batch waits for."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.motif.reward import reward_model as module
from motif_jax.motif.reward.normalisation import QUANTILE_LEVELS, Normalisation
from motif_jax.motif.reward.reward_model import CHUNK, RewardModel, read_run
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork
from motif_jax.oni.online_model import OnlineRewardModel
from motif_jax.rl.config import AgentReward
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

pytestmark = pytest.mark.usefixtures("compiled_quickly")
SPEC = EnvironmentSpec({"message": ArraySpec((256,), "uint8")}, 3, text_field="message")
LENGTHS = (96, None)


def distinct_messages(count: int, long: bool) -> np.ndarray:
    rows = np.zeros((count, 256), np.uint8)
    rows[:, :4] = 1 + np.array([np.unravel_index(i, (9, 9, 9, 9)) for i in range(count)])
    rows[:, 200] = long
    return rows


@pytest.mark.slow
def test_the_lookup_computes_where_it_was_told_with_programs_that_are_ready(trained) -> None:
    device = jax.devices()[1]
    reward = rewards.load_intrinsic(AgentReward(dir=str(trained)), SPEC, device=device)
    assert {d for leaf in jax.tree.leaves(reward.table.params) for d in leaf.devices()} == {device}
    model = read_run(trained)
    programs = [module._message_program(model.network.architecture, 1, length) for length in LENGTHS]
    reward.start()
    compiled = [program._cache_size() for program in programs]
    assert min(compiled) >= 1
    texts = {long: distinct_messages(3 * CHUNK + 10, long) for long in (False, True)}
    # Texts of their own for each size: nothing of them is in the table.
    parts = [slice(*ends) for ends in ((0, 1), (1, 9), (9, 3 * CHUNK + 10))]
    found = [[reward.lookup(rows[part]).values for part in parts] for rows in texts.values()][1]
    assert [program._cache_size() for program in programs] == compiled
    expected = model.normalisation(True, 0.5)(model.of_messages(model.params, texts[True]))
    np.testing.assert_array_equal(np.concatenate(found), expected)


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
        for device in (None, jax.devices()[1]):
            section = AgentReward(dir=str(trained), quantile=level)
            in_training = rewards.load_intrinsic(section, SPEC, device=device)
            assert in_training is not None
            found = [in_training.lookup(part).values for part in (table[:5], table[5:])]
            np.testing.assert_array_equal(np.concatenate(found), reward.intrinsic(texts, level))


def test_parts_keep_their_places_and_all_are_on_their_way_before_the_first_is_read() -> None:
    """Long texts have a program of their own."""
    texts = np.random.default_rng(0).integers(0, 9, (75, 99)).astype(np.uint8)
    texts[::2, 96:] = 0
    texts[::3, :] = 0
    texts[3::9, 95], texts[6::9, 96] = 5, 7

    def program_of(length: int | None) -> Any:
        weights = np.arange(1, 257) * (3 if length is None else 1)
        return lambda params, padded: Part([padded @ weights + length_of[length], params * padded.sum(1)])

    class Part(list[Any]):
        def __init__(self, values: list[Any]) -> None:
            super().__init__(values)
            events.append("launch")

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            events.append("read")
            return np.array([*self])

    events: list[str] = []
    length_of = {96: 0.5, None: 0.25}
    found = module.in_chunks(program_of, 4.0, texts, 2)
    sums = texts @ np.arange(1, 100)
    long = texts[:, 96:].any(1)
    expected = [np.where(long, 3 * sums + 0.25, sums + 0.5), 4.0 * texts.sum(1)]
    np.testing.assert_array_equal(found, np.array(expected, np.float32), strict=True)
    assert events == ["launch"] * 4 + ["read"] * 4
    assert module.in_chunks(program_of, 4.0, texts[:0], 2).shape == (2, 0)
    assert (
        outcome_text(module.in_chunks, program_of, 4.0, np.zeros((1, 256), np.uint8), 2) == "[[0.5]\n [0. ]]"
    )
    long_by_one = outcome_text(module.pad_messages, np.zeros((1, 257), np.uint8))
    assert long_by_one == "UserError: a message of 257 bytes: reward models read at most 256"


LEARNED = {
    "kind": ("retrieval", "classification", "ranking"),
    "value": ("label", "probability"),
    "normalise": (True, False),
    "quantile": (None, 0.5),
    "untrained": (True, False),
    "raw": (True, False),
    "taken": (0, 3),
}


def test_statistics_become_a_normalisation_with_a_threshold_or_an_error(tmp_path: Path, record: bool) -> None:
    moments = {"mean": 0.5, "variance": 4.0, "member_mean": [0.5, 1.0], "member_variance": [4.0, 0.25]}
    lines = []
    whole = moments | {"quantile_levels": list(QUANTILE_LEVELS), "quantiles": (np.arange(19) / 7).tolist()}
    plain = RewardNetwork(RewardArchitecture(message="lt_cnn_small"))
    for statistics in (
        whole,
        moments | {"quantiles": [], "quantile_levels": []},
        whole | {"mean": np.nan},
        whole | {"advice": {"threshold": 0.25}},
    ):
        for rounds in (True, False):
            config = {"compat": {"quantile_two_decimals": rounds}}
            model = RewardModel(Path("run"), 7, plain, {}, 2, statistics, config, [])
            asked = [
                (),
                (False,),
                (True, 0.05),
                (False, 0.95),
                (True, 0.5, False),
                (True, 0.5, True),
                (True, 0.52),
                (True, "auto"),
            ]
            lines += [f"{given} {outcome_text(model.normalisation, *given)}" for given in asked]
    members = np.array([[0.1, 0.9, 2.0], [0.3, 0.25, 0.0]], np.float32)
    lines += [f"{model.disagreement(members)} {model.together(members)}"]
    texts = np.array([[97, 0], [98, 0], [99, 0]], np.uint8)
    for given in itertools.product(*LEARNED.values()):
        kind, value, normalise, quantile, untrained, raw, taken = given
        reward = {
            "kind": kind,
            "value": value,
            "normalise": normalise,
            "threshold": 0.75,
            "training": {"deviations": 0.5},
        }
        config = {
            "reward": {**reward, "classifier": {"threshold": 0.2}},
            "compat": {"oni_untrained_reward": untrained, "oni_ranking_raw_reward": raw},
        }
        learned = OnlineRewardModel(
            Path("run"), 7, plain, {}, 1, moments, config, [], {"a": (1, 0.75), "b": (0, None)}, taken
        )
        normalisation, values = learned.normalisation(normalise, quantile), learned.together(members)
        lines += [f"{given} {normalisation} {values} {normalisation(values)}"]
        if kind == "retrieval":
            lines += [f"{learned.of_messages({}, texts)} {learned.header()}"]
    for numbers in (
        (np.nan, 1.0),
        (0.0, -1e-9),
        (0.0, 1.0, np.inf),
        (1.0, 0.0, -0.5),
        (1.0, 4.0, 0.5),
        (1.0, 4.0, 0.5, False),
    ):
        lines += [outcome_text(lambda given=numbers: Normalisation(*given)(np.float32([0.5, 1.5, 2.0, 3.0])))]
    status = RewardModel(Path("run"), 7, RewardNetwork(RewardArchitecture(status=True)), {}, 1, whole, {}, [])
    lines += [
        outcome_text(status.require_message_only),
        outcome_text(plain.architecture.message_only.__str__),
    ]
    for config in (
        {"stage": "collect"},
        {"stage": "train_reward"},
        {"stage": "train_agent", "reward": {"kind": "none"}},
    ):
        (tmp_path / "config.json").write_text(json.dumps(config))
        lines += [outcome_text(module.read_architecture, tmp_path, folder=tmp_path)]
    assert_matches_packed_recording("reward_statistics", {"lines": "\n".join(lines)}, record)
