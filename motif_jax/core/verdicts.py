"""Forms of verdicts on texts, and the codes and names of labels."""

from __future__ import annotations

import dataclasses

from motif_jax.core.errors import UserError

# Label without a verdict; other labels are indices of verdicts in the form. Label files hold it, so
# that it stays.
UNKNOWN = 3
UNKNOWN_NAME = "unknown"


@dataclasses.dataclass(frozen=True)
class Form:
    """A form of verdict.

    Attributes:
      name: of the form.
      items: names of a question's texts in order, which are the placeholders of prompt files.
      verdicts: names of the verdicts; the label of a verdict is its index.
      undecided: the label where no verdict is more probable than all others.
      json_labels: (word in small letters, label) of JSON's values that stand for a verdict: null,
          true, false.

    Raises:
      UserError: there are fewer than two verdicts, or so many that the last ones have no label.
    """

    name: str
    items: tuple[str, ...]
    verdicts: tuple[str, ...]
    undecided: int
    json_labels: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        count = len(self.verdicts)
        if not 2 <= count <= UNKNOWN:
            raise UserError(
                f"the form {self.name} has {count} verdicts: must be 2 or {UNKNOWN}, as label {UNKNOWN} is {UNKNOWN_NAME}, and labels "
                f"and targets have {UNKNOWN} columns"
            )

    @property
    def labels(self) -> dict[int, str]:
        """The name of each label."""
        return {**dict(enumerate(self.verdicts)), UNKNOWN: UNKNOWN_NAME}

    def certain(self, label: int) -> tuple[float, ...]:
        """Probabilities of the verdicts for a label: one-hot; NaN for UNKNOWN."""
        if label == UNKNOWN:
            return (float("nan"),) * len(self.verdicts)
        return tuple(float(label == verdict) for verdict in range(len(self.verdicts)))


FIRST = 0
SECOND = 1
TIE = 2
NO = 0
YES = 1
PAIR = Form(
    "pair",
    ("first", "second"),
    ("first", "second", "tie"),
    undecided=TIE,
    json_labels=(("null", TIE),),
)
SINGLE = Form(
    "single",
    ("item",),
    ("no", "yes"),
    undecided=UNKNOWN,
    json_labels=(("true", YES), ("false", NO)),
)
FORMS = (PAIR, SINGLE)


def label_by_numbers(first: float, second: float) -> int:
    """The label of a pair whose texts are worth two numbers: the greater one wins, equal ones are a
    tie.
    """
    if first > second:
        return FIRST
    return SECOND if second > first else TIE
