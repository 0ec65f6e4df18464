"""An intrinsic reward around any gymnasium environment, combined as in training.

    import gymnasium
    from motif_jax import wrappers

    env = wrappers.IntrinsicReward(
        gymnasium.make("NetHackScore-v0"), "runs/reward", wrappers.Terms.nethack()
    )

A step's intrinsic reward is that of the text to which its action led (`Terms.pay` 'caused'), or on
which its action was chosen ('read'). With 'read' the first text of an episode is paid, too, and the
final one with the step that led there, except in NetHack (`last_text`).

The reward is the sum of two parts. The first is g, the normalised reward of the text (0 at or below
the threshold), divided by a power of the text's count in the episode, times a coefficient. The
second is the task's reward, scaled and clipped, times another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate

from motif_jax import rewards
from motif_jax.core import entry_points, hub, text_bytes
from motif_jax.core.devices import jax_options
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.config import REWARD_TEXT_BYTES
from motif_jax.envs.gym_task import captions
from motif_jax.envs.gym_task.captions import CaptionedStep
from motif_jax.envs.gym_task.text_readers import (
    BatchReader,
    TextReader,
    TextSource,
    info_of,
    pays_last_text,
)
from motif_jax.motif.reward.reward_function import encode
from motif_jax.rl.episode_rewards import EpisodeRewards, Pay, Terms
from motif_jax.rl.episode_rewards import Parts as Parts  # for users

if TYPE_CHECKING:
    from motif_jax.play.evaluation_setup import EvalSetup

PARTS = "reward_parts"
EPISODE = "reward_episode"
TERMS = Terms()


def _bytes(text: Any) -> bytes:
    """A text as a reward reads it; one that an environment wrote as str is cut to
    `REWARD_TEXT_BYTES`.
    """
    if text is None or isinstance(text, str):
        return text_bytes.cut(captions.text_bytes_of(text), REWARD_TEXT_BYTES).rstrip(b"\0")
    return encode(text)


def _payment(reward: Any, terms: Terms) -> Pay:
    """The function of texts for the argument `reward` of the wrappers."""
    if isinstance(reward, str | Path):
        reward = rewards.load(reward)
    if isinstance(reward, rewards.RewardFunction):
        raw = reward.raw
        normalise = reward.normalisation(terms.normalise, terms.quantile, terms.two_decimals)
        return lambda texts: np.asarray(normalise(raw(texts)))
    if callable(reward):
        return functools.partial(_pay_by_function, reward)
    raise UserError(
        f"reward={reward!r}: must be a folder of train_reward, a .safetensors file, what rewards.load returned, or a function of texts"
    )


def _pay_by_function(
    function: Callable[[Sequence[bytes]], Any], texts: Sequence[bytes]
) -> np.ndarray:
    """g of each text, float32 [N], by a user's function.

    Raises UserError: the function gives anything else. numpy would pay one number for all texts,
    and None as NaN.
    """
    result = function(texts)
    try:
        values = np.asarray(result, np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"the reward's function must return numbers: {error}") from None
    if values.shape != (len(texts),):
        raise UserError(
            f"the reward's function must return a number for each of {len(texts)} texts, [{len(texts)}], and gave {list(values.shape)}"
        )
    if not np.isfinite(values).all():
        text = texts[int(np.flatnonzero(~np.isfinite(values))[0])]
        raise UserError(f"the reward's function gives no finite number for the text {text!r}")
    return values


class IntrinsicReward(gymnasium.Wrapper):
    """A single environment whose reward combines the task's and the intrinsic one as `terms` say.

    `info["reward_parts"]` has every step's `Parts` as numbers. At the end of an episode
    `info["reward_episode"]` has its sums: extrinsic_return, intrinsic_return (g), counted_return,
    total_return, length.

    Args:
      env: any environment that shows text: NLE's own, MiniHack's, this package's.
      reward: a folder of `train_reward` or a .safetensors file; an object from `rewards.load`; or a
        function of a list of bytes that returns g of each, a finite number (then `terms.quantile`
        and `terms.normalise` are not used).
      terms: coefficients, threshold, count.
      text: observation field with the text, as bytes (an array of integers up to 256 long, ended by
        zeros) or str; or 'info:KEY', 'obs:KEY', 'module:function'; or a function as in
        `config.environment.text` (docs/environments.md).
      count: observation field with the count of the text in the episode; None: the wrapper counts.
      last_text: whether the step that ends an episode is also paid for the text of the final
        observation; None: yes, but not in NetHack, where the published systems do not.

    Raises:
      UserError: there is no reward, it reads more than the text, or the observations have no text;
        in a step, a function gives anything but a finite number for each text.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        reward: Any,
        terms: Terms = TERMS,
        text: TextSource = "message",
        count: str | None = None,
        last_text: bool | None = None,
    ) -> None:
        super().__init__(env)
        pays_last = pays_last_text(env) if last_text is None else last_text
        self._episode_rewards = EpisodeRewards(_payment(reward, terms), terms, 1, pays_last)
        self._reader = TextReader(text, count, env.observation_space)
        self._ended = False

    @classmethod
    def of_agent(cls, env: gymnasium.Env, folder: str | Path, trust: Iterable[str] = ()) -> Self:
        """The reward of the agent in a run folder of `train_agent` during its training, with the
        same threshold.

        `trust` is as in `agents.load`.

        Raises:
          UserError: there is no agent, it had no intrinsic reward, or its reward reads more than
              the text.
        """
        return cls(env, **_as_trained(folder, env.observation_space, trust))

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        self._begin(observation, info)
        return observation, info

    def _begin(self, observation: Any, info: dict[str, Any]) -> None:
        self._ended = False
        self._episode_rewards.begin_episode(0)
        self._take_text(CaptionedStep(observation, info, self.env))

    def _take_text(self, step: CaptionedStep) -> None:
        self._episode_rewards.take_text(
            0, _bytes(self._reader.text(step)), self._reader.count(step.observation)
        )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # type: ignore[override]
        """Plays one action; it is paid for the text to which it led, or on which it was chosen, as
        `terms.pay` says.

        After the end of an episode an environment that resets itself (gymnasium's `Autoreset`)
        takes no action and shows the first observation of the next one: nothing is paid.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        resets_itself = self._ended
        running = np.array([not resets_itself])
        # Before the new text is taken: may pay the one on which this action was chosen.
        parts = self._episode_rewards.pay_step(np.array([reward], np.float32), running)
        ended = bool(terminated or truncated) and not resets_itself
        if not resets_itself:
            step = CaptionedStep(
                observation,
                info,
                self.env,
                action,
                float(reward),
                bool(terminated),
                bool(truncated),
            )
            self._take_text(step)
        # After it was taken: pays the new text, or a final one, which has no further action.
        parts = self._episode_rewards.finish_step(parts, running, np.array([ended]))
        if resets_itself:
            # What this step shows belongs to the next episode.
            self._begin(observation, info)
        self._ended = ended
        info = {**info, PARTS: {name: values[0].item() for name, values in parts._asdict().items()}}
        if ended:
            info[EPISODE] = {
                name: values[0].item()
                for name, values in self._episode_rewards.episode_sums().items()
            }
        return observation, float(parts.total[0]), terminated, truncated, info


class VectorIntrinsicReward(VectorWrapper):
    """`IntrinsicReward` for a vector of environments in any autoreset mode, with one look-up for
    all of them.

    `infos["reward_parts"]` has `Parts` as arrays [N], `infos["reward_episode"]` the sums of the
    episodes that ended. Each has its mask beside it, as always in gymnasium's infos
    (`_reward_parts`, `_reward_episode`).

    Args:
      reward: as in `IntrinsicReward`.
      terms: as in `IntrinsicReward`.
      count: as in `IntrinsicReward`.
      last_text: as in `IntrinsicReward`.
      text: as in `IntrinsicReward`, for each environment by itself; a function whose one argument
        is not named as in `config.environment.text`, such as `observations`, gets the whole batch
        and returns one text for each environment.
    """

    def __init__(
        self,
        env: VectorEnv,
        reward: Any,
        terms: Terms = TERMS,
        text: TextSource = "message",
        count: str | None = None,
        last_text: bool | None = None,
    ) -> None:
        super().__init__(env)
        pays_last = pays_last_text(env) if last_text is None else last_text
        self._episode_rewards = EpisodeRewards(
            _payment(reward, terms), terms, env.num_envs, pays_last
        )
        self._reader = BatchReader(text, count, env)
        self._ended = np.zeros(env.num_envs, bool)
        # An `AutoresetMode` of gymnasium, or its value; a vector may say nothing.
        mode = (env.metadata or {}).get("autoreset_mode", "NextStep")
        self._mode = getattr(mode, "value", mode)

    @classmethod
    def of_agent(cls, env: VectorEnv, folder: str | Path, trust: Iterable[str] = ()) -> Self:
        """See `IntrinsicReward.of_agent`."""
        return cls(env, **_as_trained(folder, env.observation_space, trust))

    def _take_text(self, steps: Mapping[int, CaptionedStep]) -> None:
        for column, text in self._reader.texts(steps).items():
            self._episode_rewards.take_text(
                column, _bytes(text), self._reader.count(steps[column].observation)
            )

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts episodes: all, or those of `options["reset_mask"]`."""
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        observations, infos = self.env.reset(seed=seed, options=options)
        self._begin(observations, infos, mask)
        return observations, infos

    def _begin(self, observations: Any, infos: Mapping[str, Any], mask: np.ndarray) -> None:
        columns = np.flatnonzero(mask).tolist()
        for column in columns:
            self._episode_rewards.begin_episode(column)
        # A vector holds the columns of each space in its own way, texts as a tuple of strings.
        observation_of = list(iterate(self.env.observation_space, observations))
        firsts = {
            column: CaptionedStep(observation_of[column], info_of(infos, column), None)
            for column in columns
        }
        self._take_text(firsts)
        self._ended = self._ended & ~mask

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, extrinsic, terminated, truncated, infos = self.env.step(actions)
        # With next-step autoreset an environment that ended takes no action: it shows a new
        # episode's first observation.
        running = ~self._ended
        parts = self._episode_rewards.pay_step(np.asarray(extrinsic, np.float32), running)
        ended = (np.asarray(terminated, bool) | np.asarray(truncated, bool)) & running
        same_step = self._mode == "SameStep"
        observation_of = list(iterate(self.env.observation_space, observations))
        action_of = list(iterate(self.env.action_space, actions))

        def step_of(column: int) -> CaptionedStep:
            observation = observation_of[column]
            info = info_of(infos, column)
            # `observations` has the first one of the next episode already.
            if same_step and ended[column]:
                observation = infos["final_obs"][column]
                info = info_of(infos.get("final_info", {}), column)
            reward = float(extrinsic[column])
            return CaptionedStep(
                observation,
                info,
                None,
                action_of[column],
                reward,
                bool(terminated[column]),
                bool(truncated[column]),
            )

        self._take_text({column: step_of(column) for column in np.flatnonzero(running).tolist()})
        parts = self._episode_rewards.finish_step(parts, running, ended)
        more = {PARTS: parts._asdict(), f"_{PARTS}": running}
        if ended.any():
            more |= {EPISODE: self._episode_rewards.episode_sums(), f"_{EPISODE}": ended}
        # Columns whose observation is a first one; where nothing resets itself, `reset` says which.
        fresh = {"NextStep": ~running, "SameStep": ended}.get(self._mode, np.zeros_like(ended))
        # Before `_begin`, which takes out the columns that have begun again.
        self._ended = self._ended | ended
        self._begin(observations, infos, fresh)
        return observations, parts.total, terminated, truncated, {**infos, **more}


@jax_options.defaults()
def _as_trained(folder: str | Path, space: gymnasium.Space, trust: Iterable[str]) -> dict[str, Any]:
    """The wrappers' arguments for the rewards of the agent in `folder`; they count texts where
    `space` has no counts.
    """
    from motif_jax.play import agent_policy, evaluation_setup
    from motif_jax.rl import settings

    entry_points.trust(trust)
    folder = hub.local(folder)
    setup = evaluation_setup.open_setup(evaluation_setup.of_folder(folder))
    if setup.reward is None:
        raise UserError(f"{folder}: this agent has no intrinsic reward to pay")
    reward = setup.reward.load(setup.spec)
    if reward.in_step is not None:
        raise UserError(f"{folder}: the agent's reward reads more than the text")
    trained = agent_policy.read_config(folder)
    # Its `quantile` is not applied: the reward below is a function, which has the agent's threshold
    # in it.
    terms = Terms(
        by=setup.reward.section.by,
        pay=setup.reward.section.pay,
        count_exponent=setup.reward.count_exponent(setup.spec),
        intrinsic_coefficient=trained.reward.intrinsic_coefficient,
        extrinsic_coefficient=settings.extrinsic_coefficient(trained),
        extrinsic_scale=trained.reward.extrinsic_scale,
        extrinsic_clip=trained.reward.extrinsic_clip,
    )
    count = setup.spec.count_field
    has_count = isinstance(space, gymnasium.spaces.Dict) and count in space.spaces
    return {
        "reward": jax_options.defaults()(lambda texts: reward.lookup(_rows(texts)).values),
        "terms": terms,
        "text": _text_source(setup, space),
        "last_text": setup.spec.last_text,
        "count": count if has_count else None,
    }


def _text_source(setup: EvalSetup, space: gymnasium.Space) -> str | Callable[..., bytes]:
    """Where the observations of `space` have the agent's text: in a field, or where its training
    found it in a step of `gym:ID`.
    """
    field = setup.spec.text_field
    assert field is not None, "the agent's reward reads the text"
    if not registry.is_gym(setup.environment) or field in getattr(space, "spaces", ()):
        return field
    text: str = setup.options["text"]
    if not text.startswith((captions.INFO, captions.OBSERVATION)):
        # Refused where the call does not trust it: a file of data names it.
        entry_points.load(captions.KEY, text)
    size = setup.options.get("text_bytes", REWARD_TEXT_BYTES)
    # The wrapper cuts to this size by itself; a training may have cut its texts shorter.
    if size == REWARD_TEXT_BYTES:
        return text
    caption = captions.make(text)

    def shortened(**step: Any) -> bytes:
        """The text as the training cut it."""
        return text_bytes.cut(captions.text_bytes_of(caption(CaptionedStep(**step))), size)

    return shortened


def _rows(texts: Sequence[bytes]) -> np.ndarray:
    padded = [text.ljust(REWARD_TEXT_BYTES, b"\0") for text in texts]
    return np.frombuffer(b"".join(padded), np.uint8).reshape(-1, REWARD_TEXT_BYTES)
