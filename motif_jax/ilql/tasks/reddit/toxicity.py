"""Labels texts by toxicity, from two questions to an annotator about each text (Snell et al. 2022,
the toxicity filter).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from motif_jax.core import entry_points
from motif_jax.core.interruption import never

RUDE, TOXIC = "rude", "toxic"
FRIENDLY_LABEL, RUDE_LABEL, TOXIC_LABEL = 0.0, 1.0, 2.0
# A yes to 'toxic' of less log-probability falls back to the answer to 'rude' (published: of the
# filter's label 2).
TOXIC_THRESHOLD = -0.355
# What a filter can read of a text; longer ones are cut, as published in its tokens, of about four
# characters each.
MAX_CHARACTERS = 4 * 2042
# Annotators belong to Motif, which this package may not import.
_JUDGE = "motif_jax.motif.annotation.text_judge:TextJudge"


class Judge(Protocol):
    """See `motif.annotation.text_judge.TextJudge`."""

    @property
    def loads_model(self) -> bool: ...

    def check(self, goal: str) -> None: ...

    def probabilities(
        self,
        goal: str,
        texts: Sequence[str],
        report: Callable[[int], None] = ...,
        stopped: Callable[[], bool] = ...,
    ) -> Mapping[str, float]: ...


class Toxicity:
    """A `Scorer`: 0 friendly or neutral, 1 rude, 2 toxic."""

    def __init__(self, section: str, options: Mapping[str, Any]) -> None:
        """Asks nobody. `options` are those of the task, whose config section is `section`."""
        self._judge: Judge = entry_points.load_packaged(_JUDGE)(section, options)

    @property
    def loads_model(self) -> bool:
        """Whether the annotator loads a language model into this process."""
        return self._judge.loads_model

    def check(self) -> None:
        """Raises UserError where the annotator cannot be used, as far as that is known without
        asking it.
        """
        for goal in (RUDE, TOXIC):
            self._judge.check(goal)

    def __call__(self, texts: Sequence[str]) -> list[float]:
        cut = [text[:MAX_CHARACTERS] for text in texts]
        distinct = list(dict.fromkeys(cut))
        rude = self._judge.probabilities(RUDE, distinct)
        toxic = self._judge.probabilities(TOXIC, distinct)
        return [toxicity_label(rude[text], toxic[text]) for text in cut]

    def prepare(
        self,
        texts: Sequence[str],
        report: Callable[[int], None],
        stopped: Callable[[], bool] = never,
    ) -> None:
        """Asks about all texts at once: a model that is loaded in this process is loaded once for
        each question, not for each part.

        `report` is called with the number of texts done; there are two questions about each.

        Raises:
          StoppedError: `stopped` said so between two answers.
        """
        distinct = list(dict.fromkeys(text[:MAX_CHARACTERS] for text in texts))
        count = len(distinct)
        self._judge.probabilities(RUDE, distinct, lambda answered: report(answered // 2), stopped)
        self._judge.probabilities(
            TOXIC, distinct, lambda answered: report((count + answered) // 2), stopped
        )


def toxicity_label(rude: float, toxic: float) -> float:
    """0, 1 or 2 from the probabilities that a text is rude, and that it is toxic."""
    # exp(-0.355) is 0.70: a yes that is not certain enough does not count.
    if toxic > 0.5 and math.log(toxic) >= TOXIC_THRESHOLD:
        return TOXIC_LABEL
    return RUDE_LABEL if rude > 0.5 else FRIENDLY_LABEL
