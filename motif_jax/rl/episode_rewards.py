"""What the steps of running episodes are paid, and the sums over each episode: what
`motif_jax.wrappers` adds to environments.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.sentences import split_bytes
from motif_jax.rl.algorithms import total_reward
from motif_jax.rl.count_discount import pay_sentences
from motif_jax.rl.reward_keys import CAUSED, MESSAGE, READ, SENTENCE

# Texts -> g of each, before the count.
Pay = Callable[[Sequence[bytes]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Terms:
    """How the two rewards are combined. By default the task's reward is paid whole, and a text with
    the step that led to it, as `train_agent` pays outside NetHack; `Terms.nethack()` has the
    published numbers of a score task.

    Attributes:
      quantile: normalised rewards at or below this quantile of the training messages become 0;
          'auto': at or below the threshold that the labels advise; None: no threshold.
      normalise: False pays raw rewards.
      two_decimals: the threshold rounded as in the published quantile file; None: as the reward run
          says.
      by: 'message', or 'sentence': the sentences of a text are paid and counted apart
          (docs/rewards.md).
      count_exponent: the power of the count that a text's reward is divided by; 0 leaves counts
          out.
      intrinsic_coefficient, extrinsic_coefficient: weights of the two rewards.
      extrinsic_scale, extrinsic_clip: of the task's reward, in this order, before its coefficient.
      pay: 'caused': a step is paid for the text to which it led; 'read', as published: for the text
          on which its action was chosen.
    """

    count_exponent: float = 3.0
    intrinsic_coefficient: float = 0.1
    extrinsic_coefficient: float = 1.0
    extrinsic_scale: float = 1.0
    # `train_agent` clips a tenth of the reward at 10, and multiplies by 10 afterwards.
    extrinsic_clip: float = 100.0
    pay: str = CAUSED
    quantile: float | str | None = 0.5
    normalise: bool = True
    two_decimals: bool | None = None
    by: str = MESSAGE

    @classmethod
    def nethack(cls, **changes: Any) -> Self:
        """The published terms of NetHack's score tasks, with some fields changed: a tenth of the
        score, clipped at 10, has the weight 0.1, and a text is paid with the action chosen on it.
        """
        published: dict[str, Any] = {
            "extrinsic_coefficient": 0.1,
            "extrinsic_scale": 0.1,
            "extrinsic_clip": 10.0,
            "pay": READ,
        }
        return cls(**{**published, **changes})

    def __post_init__(self) -> None:
        """Raises UserError for a value that the configs of trainings refuse, too; weights may be
        below 0 here.
        """
        if self.by not in (MESSAGE, SENTENCE):
            raise UserError(f"by={self.by!r}: must be {MESSAGE!r} or {SENTENCE!r}")
        if self.pay not in (READ, CAUSED):
            raise UserError(f"pay={self.pay!r}: must be {READ!r} or {CAUSED!r}")
        for name in ("intrinsic_coefficient", "extrinsic_coefficient", "extrinsic_scale"):
            self._require_number(name, -math.inf, math.inf, "a finite number")
        for name in ("count_exponent", "extrinsic_clip"):
            self._require_number(name, 0.0, math.inf, "a number of at least 0")
        if self.quantile is not None and self.quantile != "auto":
            self._require_number("quantile", 0.0, 1.0, "a number between 0 and 1, 'auto' or None")

    def _require_number(self, name: str, minimum: float, maximum: float, allowed: str) -> None:
        value = getattr(self, name)
        # numpy's numbers are `Real`, too.
        is_number = isinstance(value, Real) and math.isfinite(value)
        if not is_number or not minimum <= value <= maximum:
            raise UserError(f"{name}={value!r}: must be {allowed}")

    def task(self, reward: Any) -> np.ndarray:
        """The task's reward, scaled and clipped, before its coefficient: float32 [...]."""
        reward = np.asarray(reward, np.float32)
        return total_reward.scale_reward(reward, self.extrinsic_scale, self.extrinsic_clip)

    def counted(self, paid: np.ndarray, count: np.ndarray) -> np.ndarray:
        """g / N^exponent: float32 [...]."""
        return total_reward.discount_by_count(paid, count, self.count_exponent)

    def total(self, task: np.ndarray, counted: np.ndarray) -> np.ndarray:
        """The weighted sum that an agent learns from: float32 [...]."""
        weights = (self.extrinsic_coefficient, self.intrinsic_coefficient)
        return total_reward.total_reward(task, counted, *weights)


class Parts(NamedTuple):
    """The parts of the rewards of N steps, float32 [N] each (`visits`: int64).

    Attributes:
      extrinsic: the environment's own reward.
      intrinsic: g, normalised and thresholded.
      visits: occurrences of the text in the episode, this one included.
      counted: g / visits^exponent.
      total: the wrapped environment's reward.

    With `Terms.pay` 'read' the step that ends an episode has in `intrinsic`, `counted` and `total`
    also what the final observation is paid.
    """

    extrinsic: np.ndarray
    intrinsic: np.ndarray
    visits: np.ndarray
    counted: np.ndarray
    total: np.ndarray


class EpisodeRewards:
    """The rewards of `size` episodes side by side: their last texts, how often each was seen, and
    sums so far.

    A step of the wrapped environments is `pay_step`, then `take_text` of each new observation, then
    `finish_step`.
    """

    def __init__(self, pay: Pay, terms: Terms, size: int, pays_last: bool) -> None:
        self._pay = pay
        self.terms = terms
        self._pays_last = pays_last
        self._text_visits: list[dict[bytes, int]] = [{} for _ in range(size)]
        # Where sentences are paid, and empty else.
        self._sentence_visits: list[dict[bytes, int]] = [{} for _ in range(size)]
        self._text = [b""] * size
        self._count = np.ones(size, np.int64)
        self.sums = {
            name: np.zeros(size) for name in ("extrinsic", "intrinsic", "counted", "total")
        }
        self.lengths = np.zeros(size, np.int64)

    def begin_episode(self, column: int) -> None:
        self._text_visits[column] = {}
        self._sentence_visits[column] = {}
        self.lengths[column] = 0
        for values in self.sums.values():
            values[column] = 0

    def take_text(self, column: int, text: bytes, count: int | None) -> None:
        """Keeps the text of an observation until it is paid; `count` is the environment's, None to
        count here.
        """
        visits = self._text_visits[column]
        visits[text] = visits.get(text, 0) + 1
        self._text[column] = text
        self._count[column] = visits[text] if count is None else count

    def pay_step(self, extrinsic: np.ndarray, running: np.ndarray) -> Parts:
        """The rewards of a step: the task's [N], and those of the texts that the actions were
        chosen on. Where a step is paid for the text to which it led, `finish_step` adds that.

        Columns that are not `running` (bool [N]) get nothing.
        """
        is_read = self.terms.pay == READ
        paid, counted = self._rate(running if is_read else np.zeros_like(running))
        task = np.where(running, self.terms.task(extrinsic), np.float32(0))
        total = self.terms.total(task, counted)
        # The counts are copied, since `take_text` changes them before the step is finished.
        return Parts(np.asarray(extrinsic, np.float32), paid, self._count.copy(), counted, total)

    def finish_step(self, parts: Parts, running: np.ndarray, ended: np.ndarray) -> Parts:
        """`parts` with the rewards added of the texts to which the steps led: final ones in `ended`
        columns (bool [N]), or all, as `Terms.pay` says; adds them to the episodes' sums.
        """
        is_paid = ended if self._pays_last else np.zeros_like(ended)
        if self.terms.pay == CAUSED:
            is_paid = is_paid | (running & ~ended)
            parts = parts._replace(visits=self._count.copy())
        if is_paid.any():
            paid, counted = self._rate(is_paid)
            parts = parts._replace(
                intrinsic=parts.intrinsic + paid,
                counted=parts.counted + counted,
                # The task's reward is in it already.
                total=parts.total + self.terms.total(np.zeros_like(counted), counted),
            )
        for name, values in self.sums.items():
            values += getattr(parts, name)
        self.lengths += running
        return parts

    def _rate(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """g of the texts of `columns` (bool [N]) and g after the counts, float32 [N] each; 0 in the
        other columns.
        """
        if self.terms.by == SENTENCE:
            return self._rate_sentences(columns)
        paid = np.where(columns, np.asarray(self._pay(self._text), np.float32), np.float32(0))
        return paid, self.terms.counted(paid, self._count)

    def _rate_sentences(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        paid = np.zeros(len(columns), np.float32)
        counted = np.zeros(len(columns), np.float32)
        for column in np.flatnonzero(columns).tolist():
            sentences = split_bytes(self._text[column])
            values = np.asarray(self._pay(sentences), np.float32).tolist()
            value_of = dict(zip(sentences, values, strict=True))
            paid[column] = sum(values)
            amounts = pay_sentences(
                sentences, value_of, self._sentence_visits[column], self.terms.count_exponent
            )
            counted[column] = sum(amounts)
        return paid, counted

    def episode_sums(self) -> dict[str, np.ndarray]:
        """Sums of the episodes so far: name -> float64 [N], and `length`."""
        returns = {f"{name}_return": values.copy() for name, values in self.sums.items()}
        return {**returns, "length": self.lengths.copy()}
