"""The intrinsic reward round environments of gymnasium: paid as an agent's training pays it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from motif_jax import wrappers
from motif_jax.core.errors import UserError
from motif_jax.envs.gym_task import text_readers
from motif_jax.rl.algorithms import total_reward
from tests.reward_fixtures import load_config

MESSAGES = ("You see here a key.", "It's a wall.", "It's a wall.", "", "You die...")


class Talking(gymnasium.Env):
    """Says `MESSAGES` one after the other and pays 1, 2, 3, ...; ends at the last."""

    observation_space = gymnasium.spaces.Dict(
        {"message": gymnasium.spaces.Box(0, 255, (256,), np.uint8)}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, start: int = 0) -> None:
        self._start = start

    def _observation(self) -> dict[str, np.ndarray]:
        return {
            "message": np.frombuffer(MESSAGES[self.position].encode().ljust(256, b"\0"), np.uint8)
        }

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[dict[str, np.ndarray], dict]:
        super().reset(seed=seed)
        self.position = self._start
        return self._observation(), {}

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool, dict]:
        self.position += 1
        return (
            self._observation(),
            float(100 * self.position),
            self.position == len(MESSAGES) - 1,
            False,
            {},
        )


def worth(texts: Any) -> np.ndarray:
    return np.array([len(text) for text in texts], np.float32)


TERMS = wrappers.Terms.nethack(
    count_exponent=2.0, intrinsic_coefficient=0.5, extrinsic_coefficient=2.0, extrinsic_clip=25.0
)
COUNTED = np.array([19, 12, 12 / 4, 0])
LAST = len(MESSAGES[-1])
TASK = np.array([10, 20, 25, 25])


def play(env: gymnasium.Env) -> tuple[list[float], list[dict[str, Any]]]:
    env.reset(seed=0)
    paid = []
    infos = []
    ended = False
    while not ended:
        _, reward, ended, _, info = env.step(0)
        paid.append(reward)
        infos.append(info)
    return paid, infos


def test_a_step_is_paid_for_its_actions_observation() -> None:
    env = wrappers.IntrinsicReward(Talking(), worth, TERMS, last_text=False)
    for _ in range(2):
        paid, infos = play(env)
        np.testing.assert_allclose(paid, 2 * TASK + 0.5 * COUNTED, rtol=1e-6)
        parts = [
            (info["reward_parts"]["visits"], info["reward_parts"]["extrinsic"]) for info in infos
        ]
        assert parts == [(1, 100), (1, 200), (2, 300), (1, 400)]
        assert ["reward_episode" in info for info in infos] == [False] * 3 + [True]
        assert infos[-1]["reward_episode"] == {
            "extrinsic_return": 1000, "intrinsic_return": 43, "counted_return": 34, "length": 4,
            "total_return": pytest.approx(sum(paid)),
        }  # fmt: skip


def test_an_episodes_last_step_is_paid_for_its_text() -> None:
    env = wrappers.IntrinsicReward(Talking(), worth, TERMS)
    paid, infos = play(env)
    np.testing.assert_allclose(
        paid, 2 * TASK + 0.5 * (COUNTED + np.array([0, 0, 0, LAST])), rtol=1e-6
    )
    assert infos[-1]["reward_parts"]["counted"] == LAST
    assert infos[-1]["reward_episode"]["intrinsic_return"] == 43 + LAST


@pytest.mark.parametrize("last_text", [True, False])
def test_a_step_is_paid_for_the_text_that_it_caused(last_text: bool) -> None:
    terms = dataclasses.replace(TERMS, pay="caused")
    env = wrappers.IntrinsicReward(Talking(), worth, terms, last_text=last_text)
    counted = np.array([12, 12 / 4, 0, LAST * last_text])
    for _ in range(2):
        paid, infos = play(env)
        np.testing.assert_allclose(paid, 2 * TASK + 0.5 * counted, rtol=1e-6)
        assert [info["reward_parts"]["visits"] for info in infos] == [1, 2, 1, 1]
        assert infos[-1]["reward_episode"]["counted_return"] == counted.sum()


JOINED = ["You hit.  You wake.", "You wake.", "You faint.  You wake.", "", "You wake."]


class Joining(Talking):
    """`Talking` with several sentences in `info`."""

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool, dict]:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"joined": JOINED[self.position]}


def joined_text(environment: gymnasium.Env) -> str:
    return JOINED[environment.unwrapped.position]


def test_sentences_are_paid_apart_each_by_its_own_count() -> None:
    terms = dataclasses.replace(TERMS, by="sentence")
    env = wrappers.IntrinsicReward(Talking(), worth, terms, text=joined_text)

    for _ in range(2):
        _, infos = play(env)
        counted = [info["reward_parts"]["counted"] for info in infos]
        uncounted = [info["reward_parts"]["intrinsic"] for info in infos]

        np.testing.assert_allclose(counted, [8 + 9, 9 / 4, 10 + 9 / 9, 0 + 9 / 16], rtol=1e-6)
        assert uncounted == [17, 9, 19, 9]


def test_sentences_are_paid_in_vectors_as_in_each_by_itself() -> None:
    terms = dataclasses.replace(TERMS, by="sentence")
    expected = play(wrappers.IntrinsicReward(Joining(), worth, terms, text="info:joined"))[0]
    envs = SyncVectorEnv([Joining, Joining], autoreset_mode=AutoresetMode.SAME_STEP)
    env = wrappers.VectorIntrinsicReward(envs, worth, terms, text="info:joined")
    env.reset(seed=0)

    paid = [env.step(np.zeros(2, int))[1] for _ in expected]

    np.testing.assert_allclose(paid, np.array([expected, expected]).T, rtol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        lambda observation: observation["message"],
        lambda info, reward, terminated: f"{reward:.0f} {terminated}" if info else "",
        lambda obs, inf, env, act: "" if act is None else f"{act} {env.unwrapped.position}",
        lambda action, truncated: f"{action} {truncated}",
        "info:said.text",
        "obs:message",
    ],
)
def test_one_kind_of_caption_function_serves_single_environments_and_vectors(text: Any) -> None:
    assert_vectors_pay_alike(TalkingWithFields, text)


def assert_vectors_pay_alike(kind: type[Talking], text: Any) -> None:
    """A vector of two such environments pays each as the environment alone is paid."""
    single = wrappers.IntrinsicReward(kind(), worth, TERMS, text=text)
    expected = play(single)[0]
    envs = SyncVectorEnv([kind, kind], autoreset_mode=AutoresetMode.SAME_STEP)
    env = wrappers.VectorIntrinsicReward(envs, worth, TERMS, text=text)
    env.reset(seed=0)
    paid = [env.step(np.zeros(2, int))[1] for _ in expected]
    np.testing.assert_allclose(paid, np.array([expected, expected]).T, rtol=1e-6)
    assert len(set(expected)) > 1


class TalkingWithFields(Talking):
    """`Talking` with its text in a nested `info`."""

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool, dict]:
        observation, reward, terminated, truncated, _ = super().step(action)
        return (
            observation,
            reward,
            terminated,
            truncated,
            {"said": {"text": MESSAGES[self.position]}},
        )


class TalkingInStrings(Talking):
    """`Talking` with its text as a string, of which vectors make a tuple."""

    observation_space = gymnasium.spaces.Dict({"message": gymnasium.spaces.Text(256, min_length=0)})

    def _observation(self) -> Any:
        return {"message": MESSAGES[self.position]}


@pytest.mark.parametrize(
    "text", ["message", "obs:message", lambda observation: f"{observation['message']}!"]
)
def test_strings_of_a_vector_are_those_of_its_environments(text: Any) -> None:
    assert_vectors_pay_alike(TalkingInStrings, text)


class StepsOfEpisode:
    """A caption that remembers: the steps of the episode."""

    def __init__(self) -> None:
        self._steps = 0

    def __call__(self, action: Any) -> str:
        self._steps = 0 if action is None else self._steps + 1
        return "x" * self._steps


def test_a_caption_that_remembers_is_made_for_each_column() -> None:
    assert_vectors_pay_alike(Talking, StepsOfEpisode)


def test_an_environment_that_resets_itself_begins_its_episodes_anew() -> None:
    env = wrappers.IntrinsicReward(gymnasium.wrappers.Autoreset(Talking()), worth, TERMS)
    expected, infos = play(wrappers.IntrinsicReward(Talking(), worth, TERMS))
    env.reset(seed=0)

    steps = [env.step(0) for _ in range(2 * len(expected) + 1)]

    rewards = [step[1] for step in steps]
    np.testing.assert_allclose(rewards, [*expected, 0.0, *expected], rtol=1e-6)
    sums = [info["reward_episode"] for *_, info in steps if "reward_episode" in info]
    assert sums == [pytest.approx(infos[-1]["reward_episode"])] * 2


def play_often(env: gymnasium.Env, episodes: int) -> None:
    for _ in range(episodes):
        play(env)


def test_a_key_that_no_step_has_is_warned_of_once() -> None:
    env = wrappers.IntrinsicReward(TalkingWithFields(), worth, TERMS, text="info:sad.text")

    with pytest.warns(
        UserWarning, match=r"text=info:sad\.text: none of the first 1000 steps .*: said\)"
    ) as warned:
        play_often(env, 500)

    assert len(warned) == 1


def test_a_path_that_observations_do_not_have_is_refused() -> None:
    with pytest.raises(
        UserError, match="text=obs:massage: the observations have no 'massage' but message"
    ):
        wrappers.IntrinsicReward(Talking(), worth, TERMS, text="obs:massage")


@pytest.mark.parametrize("source", ["obs:1", "obs:0.a.b"])
def test_a_path_may_lead_through_tuples_and_keys_with_dots(source: str) -> None:
    text = gymnasium.spaces.Text(8)
    space = gymnasium.spaces.Tuple([gymnasium.spaces.Dict({"a.b": text}), text])

    text_readers.require_path(space, source)
    with pytest.raises(UserError, match=f"the observations have no '{source[4:]}!' but 0, 1"):
        text_readers.require_path(space, f"{source}!")


class WithoutMasks(gymnasium.vector.VectorWrapper):
    """A vector whose infos have a value for each environment and no masks, as some libraries'
    have.
    """

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, _ = self.env.step(actions)
        return (
            observations,
            rewards,
            terminated,
            truncated,
            {"event": np.array(["a", "bcd"], object)},
        )


def test_infos_without_masks_are_of_all_environments() -> None:
    envs = WithoutMasks(SyncVectorEnv([Talking, Talking]))
    env = wrappers.VectorIntrinsicReward(envs, worth, TERMS, text="info:event")
    env.reset(seed=0)
    env.step(np.zeros(2, int))

    infos = env.step(np.zeros(2, int))[4]

    assert infos["reward_parts"]["intrinsic"].tolist() == [1.0, 3.0]


def test_a_function_of_a_batch_of_observations_still_serves_vectors() -> None:
    envs = SyncVectorEnv([Talking, Talking])
    by_batch = wrappers.VectorIntrinsicReward(
        envs, worth, TERMS, text=lambda rows: list(rows["message"])
    )
    by_field = wrappers.VectorIntrinsicReward(SyncVectorEnv([Talking, Talking]), worth, TERMS)
    for env in (by_batch, by_field):
        env.reset(seed=0)
    for _ in range(6):
        np.testing.assert_array_equal(
            by_batch.step(np.zeros(2, int))[1], by_field.step(np.zeros(2, int))[1]
        )


def test_nethack_is_not_paid_for_its_last_text() -> None:
    assert wrappers.pays_last_text(Talking())
    for name, pays in (("NetHackScore-v1", False), ("MiniGrid-DoorKey-5x5-v0", True)):
        make = functools.partial(gymnasium.make, f"motif_jax:motif_jax/{name}")
        with make() as env:
            assert wrappers.pays_last_text(env) is pays
        processes = AsyncVectorEnv([make])
        assert wrappers.pays_last_text(processes) is pays
        processes.close()


def test_its_terms_are_those_of_the_learner() -> None:
    rng = np.random.default_rng(0)
    task, paid = rng.normal(size=(2, 50)).astype(np.float32) * 200
    count = rng.integers(1, 9, 50)
    terms = wrappers.Terms.nethack()
    scaled = total_reward.scale_reward(task, terms.extrinsic_scale, terms.extrinsic_clip)
    counted = total_reward.discount_by_count(paid, jax.numpy.asarray(count), terms.count_exponent)
    np.testing.assert_allclose(terms.task(task), scaled, rtol=1e-6)
    np.testing.assert_allclose(terms.counted(paid, count), counted, rtol=1e-6)
    rewarded = total_reward.total_reward(
        scaled, counted, terms.extrinsic_coefficient, terms.intrinsic_coefficient
    )
    np.testing.assert_allclose(
        terms.total(terms.task(task), terms.counted(paid, count)), rewarded, rtol=1e-5
    )


def test_terms_pay_the_task_whole_as_train_agent_outside_nethack() -> None:
    """Its defaults there: a tenth, clipped at 10, times 10."""
    task = np.array([-1000, -3, 0, 0.5, 1, 99, 101], np.float32)
    paid = np.array([0, 1, 2, 0, 0, -1, 1], np.float32)
    trained = wrappers.Terms.nethack(extrinsic_coefficient=10.0)
    scaled = total_reward.scale_reward(task, trained.extrinsic_scale, trained.extrinsic_clip)
    expected = total_reward.total_reward(
        scaled, paid, trained.extrinsic_coefficient, trained.intrinsic_coefficient
    )
    terms = wrappers.Terms()
    assert terms.extrinsic_scale == terms.extrinsic_coefficient == 1.0
    assert terms.pay == load_config("train_agent", "gym", {}).reward.pay == "caused"
    np.testing.assert_allclose(terms.total(terms.task(task), paid), expected, rtol=1e-6)


def test_nethacks_terms_are_the_published_numbers() -> None:
    terms = wrappers.Terms.nethack()
    assert (terms.extrinsic_coefficient, terms.intrinsic_coefficient) == (0.1, 0.1)
    assert terms.pay == load_config("train_agent", "", {}).reward.pay == "read"
    assert (terms.extrinsic_scale, terms.extrinsic_clip) == (0.1, 10.0)
    assert (terms.count_exponent, terms.quantile) == (3.0, 0.5)
    assert wrappers.Terms.nethack(quantile=0.85) == dataclasses.replace(terms, quantile=0.85)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_of_environments_is_paid_as_each_by_itself(mode: AutoresetMode) -> None:
    starts = (0, 2)  # so that they end at different times
    envs = SyncVectorEnv([lambda s=s: Talking(s) for s in starts], autoreset_mode=mode)
    env = wrappers.VectorIntrinsicReward(envs, worth, TERMS)
    expected = [play(wrappers.IntrinsicReward(Talking(s), worth, TERMS)) for s in starts]
    env.reset(seed=0)
    paid: Any = [[], []]
    sums: Any = [[], []]
    while min(map(len, sums)) < 2:
        _, reward, terminated, _, infos = env.step(np.zeros(2, int))
        for column in range(2):
            if infos["_reward_parts"][column]:
                paid[column].append(float(reward[column]))
                assert infos["reward_parts"]["total"][column] == reward[column]
            else:
                assert reward[column] == 0
            if terminated[column]:
                assert infos["_reward_episode"][column]
                sums[column].append({k: v[column] for k, v in infos["reward_episode"].items()})
        if mode == AutoresetMode.DISABLED and terminated.any():
            env.reset(options={"reset_mask": terminated})
    for payments, episodes, (rewards_, infos_) in zip(paid, sums, expected, strict=True):
        complete = payments[: len(payments) // len(rewards_) * len(rewards_)]
        np.testing.assert_allclose(complete, np.resize(rewards_, len(complete)), rtol=1e-6)
        assert all(one == pytest.approx(infos_[-1]["reward_episode"]) for one in episodes)
