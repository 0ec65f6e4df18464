"""Every text that an agent has seen, with its state: counts, label, first payment."""

from __future__ import annotations

import io
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

NO_LABEL = -1
_FIRST_ROOM = 1024


class TextsMet:
    """Texts in the order of their first step; about 200 bytes each. One thread changes it, others may `pack` it.

    Args:
      undone: so many of the newest batches can be left out by `pack`.

    Attributes:
      texts: the texts, as annotators read them.
      count: int64 [room], steps that showed the text.
      first_step: int64 [room], environment steps of the run before the batch that showed it first.
      first_number: int64 [room], number of that batch.
      first_time: float64 [room], seconds of the clock when it was made.
      label: int8 [room], NO_LABEL where there is none.
      probability: float32 [room], of yes, NaN where none is known.
      used: bool [room], whether a batch was paid since it has its label.
      paid: bool [room], whether it was ever paid for.
      earned: float64 [room], what was paid for it in all, each step by its count in the episode, without coefficient.
    """

    _COLUMNS = (
        ("count", np.int64, 0),
        ("first_step", np.int64, 0),
        ("first_number", np.int64, 0),
        ("first_time", np.float64, 0.0),
        ("label", np.int8, NO_LABEL),
        ("probability", np.float32, np.nan),
        ("used", np.bool_, False),
        ("paid", np.bool_, False),
        ("earned", np.float64, 0.0),
    )
    count: np.ndarray
    first_step: np.ndarray
    first_number: np.ndarray
    first_time: np.ndarray
    label: np.ndarray
    probability: np.ndarray
    used: np.ndarray
    paid: np.ndarray
    earned: np.ndarray

    def __init__(self, undone: int = 0) -> None:
        # Of each of the newest batches its number, the rows of its texts, and their counts and sums before it.
        self._newest: deque[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = deque(maxlen=undone)
        self._counting = threading.Lock()
        self.texts: list[str] = []
        self._rows: dict[str, int] = {}
        for name, dtype, empty in self._COLUMNS:
            setattr(self, name, np.full(_FIRST_ROOM, empty, dtype))

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.texts)

    def row(self, text: str) -> int | None:
        """The row of a text, None for one that was never seen."""
        return self._rows.get(text)

    def rows(self, texts: Iterable[str], step: int, number: int) -> np.ndarray:
        """Rows int64 [N] of texts; new ones are added as first seen at `step`, in batch `number`."""
        found = []
        for text in texts:
            row = self._rows.get(text)
            if row is None:
                row = self._rows[text] = len(self.texts)
                self._reserve(row + 1)
                # From here on it counts: another thread may be packing.
                self.texts.append(text)
                self.first_step[row], self.first_number[row] = step, number
                self.first_time[row] = time.time()
            found.append(row)
        return np.array(found, np.int64)

    def _reserve(self, rows: int) -> None:
        room = len(self.count)
        if rows > room:
            for name, dtype, empty in self._COLUMNS:
                setattr(self, name, np.concatenate([getattr(self, name), np.full(room, empty, dtype)]))

    # Two rows of a batch may be one text: they differ in bytes that annotators do not read.

    def show(self, rows: np.ndarray, counts: np.ndarray, number: int) -> None:
        """Takes note of batch `number`, which showed the texts at `rows` in so many steps, int [N] both."""
        with self._counting:
            self._newest.append((number, rows, self.count[rows], self.earned[rows]))
            np.add.at(self.count, rows, counts)

    def pay(self, rows: np.ndarray, values: np.ndarray, earned: np.ndarray) -> dict[str, float]:
        """Takes note of what a batch was paid for the texts at `rows`.

        Args:
          rows: int64 [N].
          values: float32 [N], of each text.
          earned: float [N], what its steps came to.

        Returns:
          The values of those texts that were never paid for before.
        """
        with self._counting:
            np.add.at(self.earned, rows, earned)
        new = (values != 0) & ~self.paid[rows]
        self.paid[rows[new]] = True
        pairs = zip(rows[new].tolist(), values[new].tolist(), strict=True)
        return {self.texts[row]: round(value, 6) for row, value in pairs}

    def use(self, rows: np.ndarray) -> np.ndarray:
        """Takes note that labels of the texts at `rows` were paid by; returns the rows of those for which it is the first time."""
        first = rows[~self.used[rows]]
        self.used[first] = True
        return first

    def most_earned(self, most: int) -> tuple[dict[str, float], float]:
        """The texts with the largest absolute sums of reward, at most so many, and the sum of all."""
        earned = self.earned[: len(self)]
        rows = np.argsort(-np.abs(earned), kind="stable")[:most]
        best = {self.texts[row]: round(float(earned[row]), 4) for row in rows.tolist() if earned[row]}
        return best, round(float(earned.sum()), 4)

    def forget(self) -> None:
        """Takes away all labels, and which texts were paid for."""
        self.label[:], self.probability[:], self.paid[:] = NO_LABEL, np.nan, False

    def pack(self, number: int) -> np.ndarray:
        """All of it as bytes, uint8 [n]; another thread may continue meeting texts, of which those up to now are packed.

        Counts and sums are those before batch `number`: a run that is resumed from there plays it, and later ones, again.
        """
        file, size = io.BytesIO(), len(self)
        with self._counting:
            columns = {name: getattr(self, name)[:size].copy() for name, *_ in self._COLUMNS}
            later = [one for one in reversed(self._newest) if one[0] >= number]
        for _, rows, count, earned in later:
            inside = rows < size
            columns["count"][rows[inside]], columns["earned"][rows[inside]] = count[inside], earned[inside]
        texts = [text.encode() for text in self.texts[:size]]
        lengths = np.array([len(text) for text in texts], np.int64)
        np.savez_compressed(
            file, _texts=np.frombuffer(b"".join(texts), np.uint8), _lengths=lengths, **columns
        )
        return np.frombuffer(file.getvalue(), np.uint8)

    @classmethod
    def unpack(cls, data: np.ndarray, undone: int = 0) -> TextsMet:
        """The inverse of `pack`; `undone` as of the class."""
        with np.load(io.BytesIO(data.tobytes())) as arrays:
            made, joined = cls(undone), arrays["_texts"].tobytes()
            made.texts = _split(joined, arrays["_lengths"])
            made._rows = {text: row for row, text in enumerate(made.texts)}
            while len(made.count) < len(made):
                made._reserve(len(made.count) + 1)
            for name, *_ in cls._COLUMNS:
                if name in arrays:  # checkpoints did not always hold all of them
                    getattr(made, name)[: len(made)] = arrays[name]
        return made


def _split(joined: bytes, lengths: Sequence[int] | np.ndarray) -> list[str]:
    ends = np.cumsum(lengths).tolist()
    return [joined[end - size : end].decode() for size, end in zip(list(lengths), ends, strict=True)]
