"""Forms of verdicts on texts, and the codes and names of labels."""

from __future__ import annotations

import dataclasses

UNKNOWN = 3  # label without a verdict; other labels are indices of verdicts in the form
UNKNOWN_NAME = "unknown"


@dataclasses.dataclass(frozen=True)
class Form:
    """A form of verdict."""

    name: str
    items: tuple[str, ...]  # names of a question's texts in order, the placeholders of prompt files
    verdicts: tuple[str, ...]  # a verdict's label is its index
    undecided: int  # the label if no verdict is more probable than all others

    @property
    def labels(self) -> dict[int, str]:
        return {**dict(enumerate(self.verdicts)), UNKNOWN: UNKNOWN_NAME}

    def certain(self, label: int) -> tuple[float, ...]:
        """Probabilities of the verdicts for a label: one-hot; NaN for UNKNOWN."""
        if label == UNKNOWN:
            return (float("nan"),) * len(self.verdicts)
        return tuple(float(label == verdict) for verdict in range(len(self.verdicts)))


FIRST, SECOND, TIE = 0, 1, 2
NO, YES = 0, 1
PAIR = Form("pair", ("first", "second"), ("first", "second", "tie"), undecided=TIE)
SINGLE = Form("single", ("item",), ("no", "yes"), undecided=UNKNOWN)
FORMS = (PAIR, SINGLE)
