"""The intrinsic reward that rates played episodes: which reward it is, and its values along an
episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.sentences import split_rows
from motif_jax.envs.episode import PlayedEpisode
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.rl import count_discount
from motif_jax.rl.config import AgentReward
from motif_jax.rl.count_discount import Visits, pay_sentences, rate_sentences
from motif_jax.rl.reward_keys import CAUSED, MESSAGE, READ, SENTENCE, Scoring
from motif_jax.schema import read_section

# Observations that a reward of more than the text reads at a time.
_ROWS = 64
_NEEDS_TEXT = "a reward of the text rates environments that show one"
_SETTINGS = {name: default for name, default in asdict(Scoring()).items() if name != "dir"}


@dataclass(frozen=True)
class RatingReward:
    """The reward that rates episodes.

    Attributes:
      two_decimals: see `agent_policy.rounded_threshold`.
    """

    section: AgentReward
    two_decimals: bool | None = None

    @property
    def is_trained(self) -> bool:
        """Whether it lies in a folder or file."""
        return self.section.kind == "motif"

    def plan(self) -> dict[str, Any]:
        """All that decides its values, JSON-able."""
        section = read_section(Scoring, vars(self.section)) if self.is_trained else self.section
        return {**run_folder.as_plain(asdict(section)), "two_decimals": self.two_decimals}

    def count_exponent(self, spec: EnvironmentSpec) -> float:
        """The exponent of counts if the task of `spec` shows them, else 0, as in training;
        sentences are counted here.
        """
        if spec.count_field is None and self.section.by == MESSAGE:
            return 0.0
        return float(self.section.count_exponent)

    def load(self, spec: EnvironmentSpec) -> Any:
        """The reward of the setup. Raises UserError where it reads what `spec` does not show."""
        from motif_jax.rl import intrinsic

        return intrinsic.load_intrinsic(self.section, spec, self.two_decimals)

    def rater(self, spec: EnvironmentSpec) -> EpisodeRater:
        """Loads it for whole episodes; UserError as `load`."""
        reward = self.load(spec)
        exponent = self.count_exponent(spec)
        description = reward.description or self.section.kind
        pay = self.section.pay
        # It reads more than the text, so that each observation is rated by itself.
        if reward.in_step is not None:
            return EpisodeRater(
                _observation_lookup(reward), exponent, tuple(reward.fields), description, pay=pay
            )
        by = self.section.by
        if by == SENTENCE:
            description = f"{description}, by sentence"
        return EpisodeRater(
            lambda texts: reward.lookup(texts).values, exponent, (), description, by, pay
        )


def choose_reward(
    config: Scoring,
    default: RatingReward | None,
    owner: str,
    two_decimals: bool | None = None,
    pinned: int | None = None,
) -> RatingReward | None:
    """The reward that rates episodes, with the evaluation resolved; None for none.

    Args:
      config: the section `config.reward`; with `dir` None it leaves the choice to `default`.
      default: the reward of the agent or recordings that are played, None where they have none.
      owner: their name, for errors.
      two_decimals: `RatingReward.two_decimals` of a reward that `config` names.
      pinned: the evaluation of the reward's training to use in place of the newest.

    Raises:
      UserError: there is no such folder or evaluation, or there are settings without a reward.
    """
    if config.dir is None:
        _check_settings_unused(config, default, owner)
        chosen = default
    elif config.dir:
        chosen = RatingReward(read_section(AgentReward, vars(config)), two_decimals)
    else:
        chosen = None
    if chosen is None:
        return None
    if not chosen.is_trained:
        # Only a trained reward has a threshold that is rounded.
        return replace(chosen, two_decimals=None)

    from motif_jax.rl import intrinsic

    # A number in place of "the newest": the plan names it, and a resumed run pins it.
    section = chosen.section if pinned is None else replace(chosen.section, step=pinned)
    step = intrinsic.kind_of(section).step_to_pin(section)
    return replace(chosen, section=replace(section, step=step))


def _check_settings_unused(config: Scoring, reward: RatingReward | None, owner: str) -> None:
    """Refuses settings of a reward that nothing reads: `reward` is the owner's, with settings of
    its training.
    """
    for key, default in _SETTINGS.items():
        trained = default
        allowed = f"left at {default}, or given together with reward.dir"
        if reward is not None:
            trained = getattr(reward.section, key)
            folder = reward.section.dir or "DIR"
            allowed = f"left at {default}: {owner} keeps its own {trained}; give --config.reward.dir={folder} to score otherwise"
        value = getattr(config, key)
        checks.require(value in (default, trained), f"reward.{key}", value, allowed)


class RatedEpisode(NamedTuple):
    """Intrinsic reward of an episode's observations that are paid, float64 [S] each (see
    `PlayedEpisode`).

    Attributes:
      uncounted: normalised and thresholded, g(m_t).
      discounted: g(m_t) / N_t ** beta, N_t the count of the message in the episode so far.
    """

    uncounted: np.ndarray
    discounted: np.ndarray


@dataclass(frozen=True)
class EpisodeRater:
    """Computes what an intrinsic reward would have paid along an episode.

    As in training, each observation is paid, the final one where the environment's `last_text` says
    so, and the first one only where texts are paid with the action chosen on them.

    Attributes:
      lookup: texts uint8 [N, L] (with `fields`, observations [T, ...]) -> rewards float32 [N],
          normalised and thresholded.
      fields: observation fields that the episodes must keep to be rated; () for a reward of the
          text alone.
      description: the reward in one line for people.
      by: what is paid and counted, see `reward_keys.BY`.
      pay: with which action, see `reward_keys.PAY`.
    """

    lookup: Callable[[Any], np.ndarray]
    count_exponent: float
    fields: tuple[str, ...] = ()
    description: str = ""
    by: str = MESSAGE
    pay: str = READ

    def rate(self, record: PlayedEpisode) -> RatedEpisode:
        """The reward of each observation of an episode that was played with `fields`."""
        if self.by == SENTENCE:
            return self._rate_sentences(record)
        if self.fields:
            rewards = self.lookup({name: record.fields[name] for name in self.fields})
        else:
            # One call for the distinct texts, then a row for each step.
            rewards = np.asarray(self.lookup(record.texts))[record.text_index]
        uncounted = np.array(rewards, np.float64)
        if self.pay == CAUSED:
            uncounted[0] = 0.0
        counts = np.asarray(record.text_count, np.float64)
        return RatedEpisode(
            uncounted, count_discount.discount(uncounted, counts, self.count_exponent)
        )

    def _rate_sentences(self, record: PlayedEpisode) -> RatedEpisode:
        assert record.texts is not None, _NEEDS_TEXT
        assert record.text_index is not None
        divided = split_rows(record.texts)
        sentences_of, value_of = rate_sentences(divided, self.lookup(divided.sentences))
        visits: dict[bytes, int] = {}
        uncounted = []
        discounted = []
        for row, index in enumerate(record.text_index.tolist()):
            # No action led to the first text.
            sentences = sentences_of[index] if row or self.pay == READ else []
            uncounted.append(sum(value_of[sentence] for sentence in sentences))
            discounted.append(sum(pay_sentences(sentences, value_of, visits, self.count_exponent)))
        return RatedEpisode(np.array(uncounted, np.float64), np.array(discounted, np.float64))


def _observation_lookup(reward: Any) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Returns fields [T, ...] -> rewards float32 [T], a few rows at a time: one program and little
    memory.
    """
    import jax

    program = jax.jit(reward.in_step)

    def compute(fields: Mapping[str, np.ndarray]) -> np.ndarray:
        length = len(fields[reward.fields[0]])
        # A single row is one that `LiveRater` shows, at each step.
        size = 1 if length == 1 else _ROWS
        # Filled up to a multiple of `size`, so that all parts have one shape.
        missing = -length % size
        padded = {
            name: np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
            for name, array in fields.items()
        }
        values = []
        for start in range(0, length, size):
            # [rows, 1, ...]: `in_step` reads [T, B, ...].
            part = {name: padded[name][start : start + size, None] for name in reward.fields}
            values.append(np.asarray(program(reward.params, part))[:, 0])
        return np.concatenate(values)[:length]

    return compute


class TextReward(NamedTuple):
    """The reward of one observation.

    Attributes:
      raw: the model's output.
      normalised: mean 0, variance 1 over the training messages.
      paid: after the threshold, before the count discount.
    """

    raw: float
    normalised: float
    paid: float


class LiveRater:
    """Rates single observations for people who watch; a reward of the text alone is computed once
    for each text.

    Where sentences are paid, the model's output and the normalised reward are those of the whole
    message, and what is paid is the sum over its sentences.
    """

    def __init__(self, rating: RatingReward, spec: EnvironmentSpec) -> None:
        from motif_jax.rl import intrinsic

        self.count_exponent = rating.count_exponent(spec)
        self._rewards: dict[bytes, TextReward] = {}
        self._stages = intrinsic.kind_of(rating.section).stages(rating.section, rating.two_decimals)
        # People see the model's output, too.
        reward = replace(rating, section=self._stages.config).load(spec)
        self._of_text = reward.lookup
        self._fields = reward.fields
        self._of_observation = None if reward.in_step is None else _observation_lookup(reward)
        self._by = rating.section.by
        self.pays_first = rating.section.pay == READ
        self._sentences: dict[bytes, tuple[list[bytes], dict[bytes, float]]] = {}

    def discount(
        self, text: np.ndarray | None, reward: TextReward, count: int, visits: Visits
    ) -> float:
        """What an observation is paid.

        Args:
          text: uint8 [L], None where the environment shows none; `reward` is the observation's
              reward.
          count: occurrences of the text in the episode, the present observation included; 1 without
              a text.
          visits: how often the episode's sentences were paid before, to which this adds.
        """
        if self._by == MESSAGE:
            return float(count_discount.discount(reward.paid, count, self.count_exponent))
        assert text is not None, _NEEDS_TEXT
        return sum(pay_sentences(*self._rated_sentences(text), visits, self.count_exponent))

    def _rated_sentences(self, text: np.ndarray) -> tuple[list[bytes], dict[bytes, float]]:
        """The sentences of a text uint8 [L], and what each is paid before the counts."""
        key = text.tobytes()
        if key not in self._sentences:
            divided = split_rows(text[None])
            values = self._stages.pay(self._of_text(divided.sentences).values)
            sentences_of, value_of = rate_sentences(divided, values)
            self._sentences[key] = (sentences_of[0], value_of)
        return self._sentences[key]

    def __call__(
        self, text: np.ndarray | None, observation: Mapping[str, np.ndarray]
    ) -> TextReward:
        if self._of_observation is not None:
            fields = {name: observation[name][None] for name in self._fields}
            return self._numbers(self._of_observation(fields))
        assert text is not None, _NEEDS_TEXT
        key = text.tobytes()
        if key not in self._rewards:
            reward = self._numbers(self._of_text(text[None]).values)
            if self._by == SENTENCE:
                sentences, value_of = self._rated_sentences(text)
                reward = reward._replace(paid=sum(value_of[sentence] for sentence in sentences))
            self._rewards[key] = reward
        return self._rewards[key]

    def _numbers(self, raw: np.ndarray) -> TextReward:
        return TextReward(
            float(raw[0]), float(self._stages.normalise(raw)[0]), float(self._stages.pay(raw)[0])
        )


class LiveRaters:
    """The raters of a reward, one for each environment: what it reads of an observation, and
    whether it counts, is the environment's. A text's reward is computed once in each.
    """

    def __init__(self, rating: RatingReward) -> None:
        self._rating = rating
        self._raters: list[tuple[EnvironmentSpec, LiveRater]] = []

    def of(self, spec: EnvironmentSpec) -> LiveRater:
        """The rater of an environment; the same one for equal specs."""
        for known, rater in self._raters:
            if known == spec:
                return rater
        rater = LiveRater(self._rating, spec)
        self._raters.append((spec, rater))
        return rater
