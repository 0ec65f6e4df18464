"""Frozen rewards of the text: their base, and the kinds 'any_text' and 'table'."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Any, Self

import numpy as np

from motif_jax.core import text_bytes
from motif_jax.core.config import is_finite
from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json
from motif_jax.core.verdicts import YES
from motif_jax.motif.reward import reward_model
from motif_jax.motif.reward.reward_function import encode
from motif_jax.rl.config import AgentReward
from motif_jax.rl.intrinsic import RewardKind, RewardSetup
from motif_jax.rl.message_table import MessageTable, Values


class FrozenTextReward(RewardKind):
    """A reward that is a function `value` of a text's bytes, computed once for each distinct
    text.
    """

    reads_dir = False

    def __init__(self, setup: RewardSetup) -> None:
        field = setup.spec.text_field
        if field is None:
            raise UserError(
                f"config.reward.kind={setup.config.kind}: the environment shows no text to reward"
            )
        self.fields = (field,)
        self._table = MessageTable(self._compute, None)

    @classmethod
    def rates(cls, config: AgentReward) -> bool:
        return True

    def value(self, text: bytes) -> float:
        """The reward of a text in UTF-8, without zero bytes."""
        raise NotImplementedError

    def _compute(self, params: None, texts: np.ndarray) -> np.ndarray:
        """Rewards float32 [N] of texts uint8 [N, L]."""
        return np.array(
            [self.value(row.tobytes().replace(b"\0", b"")) for row in texts], np.float32
        )

    def lookup(self, texts: np.ndarray) -> Values:
        return self._table.lookup(texts)


class AnyTextReward(FrozenTextReward):
    """Kind 'any_text': 1 for every text but the empty one.

    With `reward.count_exponent` it pays for texts that are new in an episode, as a count-based
    bonus does.
    """

    description = "1 for every text but the empty one"

    @classmethod
    def make(cls, setup: RewardSetup) -> Self:
        return cls(setup)

    def value(self, text: bytes) -> float:
        return 1.0 if text else 0.0


class TableReward(FrozenTextReward):
    """Kind 'table': a text's number in the file `table`; 0 for texts that it does not have.

    The file is a JSON object, text -> number. A text has at most 256 bytes of UTF-8. `table` may
    also be the folder of a run that learned its reward online: then its labels of single texts are
    the table, 1 for yes. A game's bytes that are no UTF-8 are read as `text_bytes.decode` does, as
    annotators read them.
    """

    def __init__(self, values: dict[str, float], setup: RewardSetup) -> None:
        super().__init__(setup)
        self._values = values
        self.description = f"table of {len(values):,} texts, {setup.config.table}"

    @classmethod
    def check(cls, config: AgentReward) -> None:
        read_table(config.table)

    @classmethod
    def files(cls, config: AgentReward) -> tuple[Path, ...]:
        path = Path(config.table or "")
        return (path / reward_model.ONLINE_LABELS if path.is_dir() else path,)

    @classmethod
    def make(cls, setup: RewardSetup) -> Self:
        return cls(read_table(setup.config.table), setup)

    def value(self, text: bytes) -> float:
        return self._values.get(text_bytes.decode(text), 0.0)


def read_table(path: str | None) -> dict[str, float]:
    """Text -> reward of the file that `config.reward.table` names; UserError if it is not of that
    form.
    """
    key = f"config.reward.table={path}"
    if path and (Path(path) / reward_model.ONLINE_LABELS).is_file():
        return _of_run(key, Path(path))
    content = read_json(
        path or "",
        'config.reward.table must name an object of texts and numbers, {"You kill the newt!": 1}',
    )
    return {_normal(text): _number(key, text, value) for text, value in content.items()}


def _of_run(key: str, folder: Path) -> dict[str, float]:
    """Text -> 1 for yes, 0 for no, of the labels of an online run."""
    labels = reward_model.online_reader().labels(folder / reward_model.ONLINE_LABELS)
    if any(len(label.items) != 1 for label in labels):
        raise UserError(
            f"{key}: its labels compare pairs of texts, and a table needs a label of each text"
        )
    return {label.items[0]: 1.0 if label.label == YES else 0.0 for label in labels}


def _normal(text: str) -> str:
    """The text as its bytes are read in a game."""
    return text_bytes.decode(encode(text).replace(b"\0", b""))


def _number(key: str, text: str, value: Any) -> float:
    if not is_finite(value):
        raise UserError(
            f"{key}: the reward of {text!r} is {reprlib.repr(value)}, a finite number is needed"
        )
    return float(value)
