"""The reward of texts beside a learner: where it is computed, and what a batch waits for."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.motif.reward import reward_model as module
from motif_jax.motif.reward.motif import MotifReward
from motif_jax.motif.reward.normalisation import QUANTILE_LEVELS, Normalisation
from motif_jax.motif.reward.reward_function import RewardFunction
from motif_jax.motif.reward.reward_model import CHUNK, RewardModel, read_run
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork
from motif_jax.oni.online_model import OnlineRewardModel
from motif_jax.rl.config import AgentReward
from tests.compiling import compilations

SPEC = EnvironmentSpec({"message": ArraySpec((256,), "uint8")}, 3, text_field="message")


def distinct_messages(count: int, long: bool) -> np.ndarray:
    rows = np.zeros((count, 256), np.uint8)
    rows[:, :4] = 1 + np.array([np.unravel_index(i, (9, 9, 9, 9)) for i in range(count)])
    rows[:, 200] = long
    return rows


@pytest.fixture
def lookup_beside_a_learner(trained: Path) -> MotifReward:
    """The trained reward on the second device."""
    return rewards.load_intrinsic(AgentReward(dir=str(trained)), SPEC, device=jax.devices()[1])


def test_the_lookup_keeps_its_parameters_on_its_device(
    lookup_beside_a_learner: MotifReward,
) -> None:
    leaves = jax.tree.leaves(lookup_beside_a_learner.table.params)

    assert {device for leaf in leaves for device in leaf.devices()} == {jax.devices()[1]}


def test_the_start_of_a_lookup_compiles_its_programs(lookup_beside_a_learner: MotifReward) -> None:
    # Another test may have compiled them.
    module.message_program.cache_clear()
    with compilations() as at_the_start:
        lookup_beside_a_learner.start()

    with compilations() as afterwards:
        for count, is_long in itertools.product((1, 8, 3 * CHUNK + 1), (False, True)):
            lookup_beside_a_learner.lookup(distinct_messages(count, is_long))

    # One for short and one for long messages.
    assert at_the_start.count("jit(message_rewards)") == 2
    assert afterwards.count("jit(message_rewards)") == 0


def test_the_lookup_pays_the_models_normalised_reward(
    trained: Path, lookup_beside_a_learner: MotifReward
) -> None:
    model = read_run(trained)
    messages = distinct_messages(3 * CHUNK + 10, long=True)

    # None of a call's messages is in the table of those before.
    values = [lookup_beside_a_learner.lookup(part).values for part in np.split(messages, (1, 9))]

    expected = model.normalisation(True, 0.5)(model.of_messages(model.params, messages))
    np.testing.assert_array_equal(np.concatenate(values), expected)


@pytest.fixture(scope="module")
def drawn_messages() -> np.ndarray:
    """Messages of 1 to 119 bytes that a keyboard has, in more than three chunks: uint8 [N, 256]."""
    rng = np.random.default_rng(0)
    letters = rng.integers(32, 127, (3 * CHUNK + 4, 256))
    lengths = rng.integers(1, 120, (len(letters), 1))
    return np.where(np.arange(256) < lengths, letters, 0).astype(np.uint8)


# A quantile is some message's own reward: one that rounds otherwise beside others would be paid in
# one batch, and not in another.
def test_a_messages_reward_does_not_depend_on_its_batch(
    trained: Path, drawn_messages: np.ndarray
) -> None:
    reward = rewards.load(trained)
    texts = [row.tobytes() for row in drawn_messages]
    order = np.random.default_rng(1).permutation(len(texts))

    values = reward(texts)

    np.testing.assert_array_equal([reward(text) for text in texts], values)
    np.testing.assert_array_equal([reward([text, "a"])[0] for text in texts], values)
    np.testing.assert_array_equal(reward([texts[i] for i in order]), values[order])


@pytest.mark.parametrize("level", QUANTILE_LEVELS[::9])
@pytest.mark.parametrize("device", [None, 1])
def test_a_training_pays_what_the_loaded_reward_pays(
    trained: Path, drawn_messages: np.ndarray, level: float, device: int | None
) -> None:
    section = AgentReward(dir=str(trained), quantile=level)
    in_training = rewards.load_intrinsic(
        section, SPEC, device=None if device is None else jax.devices()[device]
    )
    texts = [row.tobytes() for row in drawn_messages]

    values = [in_training.lookup(part).values for part in np.split(drawn_messages, [5])]

    np.testing.assert_array_equal(
        np.concatenate(values), rewards.load(trained).intrinsic(texts, level)
    )


def test_all_chunks_are_launched_before_the_first_is_read() -> None:
    """Long texts have a program of their own."""
    texts = np.random.default_rng(0).integers(0, 9, (75, 99)).astype(np.uint8)
    texts[::2, 96:] = 0
    texts[::3, :] = 0
    texts[3::9, 95] = 5
    texts[6::9, 96] = 7

    def program_of(length: int | None) -> Any:
        weights = np.arange(1, 257) * (3 if length is None else 1)
        return lambda params, padded: Part(
            [padded @ weights + length_of[length], params * padded.sum(1)]
        )

    class Part(list[Any]):
        def __init__(self, values: list[Any]) -> None:
            super().__init__(values)
            events.append("launch")

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            events.append("read")
            return np.array([*self])

    events: list[str] = []
    length_of = {96: 0.5, None: 0.25}
    values = module.in_chunks(program_of, 4.0, texts, 2)
    sums = texts @ np.arange(1, 100)
    long = texts[:, 96:].any(1)
    expected = [np.where(long, 3 * sums + 0.25, sums + 0.5), 4.0 * texts.sum(1)]
    np.testing.assert_array_equal(values, np.array(expected, np.float32), strict=True)
    assert events == ["launch"] * 4 + ["read"] * 4
    assert module.in_chunks(program_of, 4.0, texts[:0], 2).shape == (2, 0)


MOMENTS = {"mean": 0.5, "variance": 4.0, "member_mean": [0.5, 1.0], "member_variance": [4.0, 0.25]}
# Quantiles of sevenths: none has two decimals.
QUANTILES = {"quantile_levels": list(QUANTILE_LEVELS), "quantiles": (np.arange(19) / 7).tolist()}
PLAIN = RewardNetwork(RewardArchitecture(message="lt_cnn_small"))
# Raw rewards of three texts by two members.
MEMBERS = np.array([[0.1, 0.9, 2.0], [0.3, 0.25, 0.0]], np.float32)


def frozen_model(statistics: dict[str, Any], rounds: bool = False) -> RewardModel:
    config = {"compat": {"quantile_two_decimals": rounds}}
    return RewardModel(Path("run"), 7, PLAIN, {}, 2, statistics, config, [])


@pytest.mark.parametrize(
    ("arguments", "threshold", "enabled"),
    [
        ((), None, True),
        ((False,), None, False),
        ((True, 0.05), 0.0, True),
        ((False, 0.95), 18 / 7, False),
        ((True, 0.5, False), 9 / 7, True),
        ((True, 0.5, True), 1.29, True),
    ],
)
def test_a_quantile_is_the_threshold_of_the_normalisation(
    arguments: tuple[Any, ...], threshold: float | None, enabled: bool
) -> None:
    normalisation = frozen_model(MOMENTS | QUANTILES).normalisation(*arguments)

    assert normalisation == Normalisation(0.5, 4.0, threshold, enabled)


def test_compat_rounds_a_quantile_to_two_decimals_unless_overruled() -> None:
    model = frozen_model(MOMENTS | QUANTILES, rounds=True)

    assert model.normalisation(True, 0.95).threshold == 2.57
    assert model.normalisation(True, 0.95, False).threshold == 18 / 7


def test_auto_is_the_advised_threshold() -> None:
    advised = MOMENTS | QUANTILES | {"advice": {"threshold": 0.25}}

    assert frozen_model(advised).normalisation(True, "auto").threshold == 0.25


@pytest.mark.parametrize(
    ("statistics", "quantile", "message"),
    [
        (
            QUANTILES,
            0.52,
            r"^config\.reward\.quantile=0.52: run has the levels 0.05, .*, 0.95, and None",
        ),
        (
            QUANTILES,
            "auto",
            r"^config\.reward\.threshold=auto: run recommends none .*: use config.reward.quantile",
        ),
        (
            {"quantiles": [], "quantile_levels": []},
            0.5,
            r"^config\.reward\.quantile=0.5: run has the levels none, and None",
        ),
    ],
)
def test_a_threshold_that_statistics_do_not_have_is_refused(
    statistics: dict[str, Any], quantile: Any, message: str
) -> None:
    model = frozen_model(MOMENTS | statistics)

    with pytest.raises(UserError, match=message):
        model.normalisation(True, quantile)


def test_an_ensemble_pays_its_mean_and_disagrees_by_its_deviation() -> None:
    model = frozen_model(MOMENTS | QUANTILES)
    normalised = np.array([(MEMBERS[0] - 0.5) / 2, (MEMBERS[1] - 1) / 0.5])

    np.testing.assert_allclose(model.disagreement(MEMBERS), normalised.std(axis=0), rtol=1e-6)
    np.testing.assert_allclose(model.combine_members(MEMBERS), [0.2, 0.575, 1.0], rtol=1e-6)


def learned_model(
    kind: str, value: str = "label", taken: int = 3, **changes: bool
) -> OnlineRewardModel:
    config = {
        "reward": {
            "kind": kind,
            "value": value,
            "normalise": changes.get("normalise", True),
            "threshold": 0.75,
            "classifier": {"threshold": 0.3},
        },
        "compat": {
            "oni_untrained_reward": changes.get("untrained", False),
            "oni_ranking_raw_reward": changes.get("raw", False),
        },
    }
    labels = {"a": (1, 0.75), "b": (0, None)}
    return OnlineRewardModel(Path("run"), 7, PLAIN, {}, 1, MOMENTS, config, [], labels, taken)


# Of the members.
MEANS = np.float32([0.2, 0.575, 1.0])


@pytest.mark.parametrize("value", ["label", "probability"])
def test_retrieved_rewards_are_labels_without_threshold(value: str) -> None:
    model = learned_model("retrieval", value)
    texts = np.array([[97, 0], [98, 0], [99, 0]], np.uint8)

    np.testing.assert_array_equal(
        model.of_messages({}, texts), [1 if value == "label" else 0.75, 0, 0]
    )
    np.testing.assert_array_equal(model.normalisation(True, 0.5)(MEMBERS), MEMBERS)
    np.testing.assert_allclose(model.combine_members(MEMBERS), MEMBERS.mean(axis=0))
    assert model.header() == {"taken": 3, "labels": {"a": [1, 0.75], "b": [0, None]}}


@pytest.mark.parametrize(
    ("value", "quantile", "expected"),
    [("label", 0.5, [0, 1, 1]), ("label", None, MEANS), ("probability", 0.5, MEANS)],
)
def test_a_classified_label_is_a_step_at_its_threshold(
    value: str, quantile: float | None, expected: list[float]
) -> None:
    model = learned_model("classification", value)

    np.testing.assert_allclose(model.combine_members(MEMBERS), MEANS, rtol=1e-6)
    paid = model.normalisation(True, quantile)(model.combine_members(MEMBERS))
    np.testing.assert_allclose(paid, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("normalise", "changes", "quantile", "expected"),
    [
        (True, {}, None, Normalisation(0.5, 4.0)),
        (True, {}, 0.5, Normalisation(0.5, 4.0, 0.75)),
        (False, {}, 0.5, Normalisation(enabled=False)),
        (True, {"normalise": False}, 0.5, Normalisation(enabled=False)),
        (True, {"raw": True}, 0.5, Normalisation(enabled=False)),
    ],
)
def test_ranked_rewards_have_the_moments_and_threshold_of_their_run(
    normalise: bool, changes: dict[str, bool], quantile: float | None, expected: Normalisation
) -> None:
    assert learned_model("ranking", **changes).normalisation(normalise, quantile) == expected


@pytest.mark.parametrize("kind", ["classification", "ranking"])
def test_an_untrained_network_pays_nothing_unless_compat_wants_it(kind: str) -> None:
    np.testing.assert_array_equal(
        learned_model(kind, taken=0).combine_members(MEMBERS), np.zeros(3)
    )
    paid = learned_model(kind, taken=0, untrained=True).combine_members(MEMBERS)
    np.testing.assert_allclose(paid, MEANS, rtol=1e-6)


@pytest.mark.parametrize("numbers", [(np.nan, 1.0), (0.0, -1e-9), (0.0, 1.0, np.inf)])
def test_a_normalisation_of_no_finite_numbers_is_refused(numbers: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="finite, and a variance of at least 0 expected"):
        Normalisation(*numbers)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        # Without variance it only centres; what is at the threshold itself is not paid.
        ((1.0, 0.0, -0.5), [0, 0.5, 1, 2]),
        ((1.0, 4.0, 0.5), [0, 0, 0, 1]),
        ((1.0, 4.0, 0.5, False), [0, 1.5, 2, 3]),
    ],
)
def test_what_is_not_above_the_threshold_is_zero(
    numbers: tuple[Any, ...], expected: list[float]
) -> None:
    np.testing.assert_array_equal(
        Normalisation(*numbers)(np.float32([0.5, 1.5, 2.0, 3.0])), expected
    )


def test_a_reward_that_reads_more_than_messages_is_refused() -> None:
    network = RewardNetwork(RewardArchitecture(status=True))
    model = RewardModel(Path("run"), 7, network, {}, 1, MOMENTS | QUANTILES, {}, [])

    with pytest.raises(
        UserError, match=r"^run: this reward reads message, blstats, not the message alone"
    ):
        RewardFunction(model)
    assert PLAIN.architecture.message_only
