"""Keys of a reward that an agent is paid or rated by: its run, checkpoint, threshold and counts."""

from __future__ import annotations

from typing import Any

from motif_jax.schema import fraction, non_negative, one_of, plain_key, section_class

REWARD_STEP = non_negative(
    None,
    "evaluation of the reward's training, by its number (0: untrained; of an online run: steps); None: the newest, or the best with early stopping",
    int,
)


QUANTILE = fraction(
    0.5, "values at or below this quantile become 0; None: no threshold", allow_none=True
)


THRESHOLD = one_of(
    ("quantile", "auto"),
    "'quantile', or 'auto': above the texts that the judge called ties and above the empty text, on half of the steps at most (docs/rewards.md)",
)


# The default of reward.threshold in configs/oni.py, whose kind 'ranking' reads a number.
RANKING_THRESHOLD = -0.5
NORMALISE = plain_key(True, "subtracts the rewards' mean and divides by their standard deviation")


COUNT_EXPONENT = non_negative(
    3.0, "a message's reward is divided by its count in the episode to this power"
)


MESSAGE = "message"
SENTENCE = "sentence"
BY = one_of(
    (MESSAGE, SENTENCE),
    "'message', as published; 'sentence': the sentences of a message are paid and counted apart (frozen rewards of the text)",
)


READ = "read"
CAUSED = "caused"
PAY = one_of(
    (READ, CAUSED),
    "'read', as published: a text is paid with the action chosen on it; 'caused': with the action that led to it",
)


@section_class
class RewardCheckpoint:
    """A trained reward, and which evaluation of its training."""

    dir: str | None = plain_key(None, "run folder of train_reward or of configs/oni.py")
    step: int | None = REWARD_STEP


@section_class
class ThresholdedReward(RewardCheckpoint):
    """A trained reward, and the threshold above which it pays."""

    quantile: float | None = QUANTILE
    threshold: Any = THRESHOLD

    @property
    def level(self) -> float | str | None:
        """The argument `quantile` of `RewardModel.normalisation`."""
        return "auto" if self.threshold == "auto" else self.quantile


@section_class
class Scoring(ThresholdedReward):
    """The reward that rates episodes."""

    dir: str | None = plain_key(
        None,
        "a reward run, or its .safetensors file; None: the agent's (or evaluation's) own, if there is one, with its settings; empty: none",
    )
    normalise: bool = NORMALISE
    count_exponent: float = COUNT_EXPONENT
    by: str = BY
    pay: str = PAY
