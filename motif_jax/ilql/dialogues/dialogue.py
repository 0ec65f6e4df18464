"""A dialogue, and many dialogues as columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# Entry of `meta`: the role of each utterance, where some are messages of the system or of a tool.
ROLES = "message_roles"
SYSTEM = "system"
TOOL = "tool"


class Dialogue(NamedTuple):
    """One dialogue (a trajectory of Snell et al. 2022)."""

    # the utterances in order, the agent's (actions) and the environment's (states)
    texts: tuple[str, ...]
    rewards: tuple[float | None, ...]  # one per utterance; None for the environment's
    terminal: bool  # False if the dialogue was truncated
    meta: Mapping[str, Any] = {}

    @property
    def total(self) -> float:
        """The undiscounted return."""
        return float(sum(reward for reward in self.rewards if reward is not None))


class Dialogues(Sequence[Dialogue]):
    """N dialogues as columns; indexing gives a `Dialogue`.

    Dialogue i has the utterances starts[i] to starts[i + 1], of int64 [N + 1]. `texts` are
    [utterances] of str, `rewards` float64, 0 where `actions`, bool, is False; `terminals` are bool
    [N], `metas` [N] of str, each a JSON object.
    """

    def __init__(
        self,
        starts: np.ndarray,
        texts: np.ndarray,
        rewards: np.ndarray,
        actions: np.ndarray,
        terminals: np.ndarray,
        metas: np.ndarray,
    ) -> None:
        self.starts = starts
        self.texts = texts
        self.rewards = rewards
        self.actions = actions
        self.terminals = terminals
        self.metas = metas

    @classmethod
    def of(cls, dialogues: Iterable[Dialogue]) -> Dialogues:
        """The columns of `dialogues`, in their order."""
        items = list(dialogues)
        lengths = [len(dialogue.texts) for dialogue in items]
        texts = [text for dialogue in items for text in dialogue.texts]
        rewards = [reward for dialogue in items for reward in dialogue.rewards]
        return cls(
            starts=np.cumsum([0, *lengths], dtype=np.int64),
            texts=np.array(texts, object),
            rewards=np.array([0.0 if reward is None else reward for reward in rewards], np.float64),
            actions=np.array([reward is not None for reward in rewards], bool),
            terminals=np.array([dialogue.terminal for dialogue in items], bool),
            metas=np.array([encode_meta(dialogue.meta) for dialogue in items], object),
        )

    @classmethod
    def joined(cls, parts: Sequence[Dialogues]) -> Dialogues:
        """The dialogues of all parts (at least one), one after the other."""
        lengths = np.concatenate([np.diff(part.starts) for part in parts])
        return cls(
            starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            texts=np.concatenate([part.texts for part in parts]),
            rewards=np.concatenate([part.rewards for part in parts]),
            actions=np.concatenate([part.actions for part in parts]),
            terminals=np.concatenate([part.terminals for part in parts]),
            metas=np.concatenate([part.metas for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.terminals)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Dialogues.of(self[i] for i in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        rows = slice(int(self.starts[index]), int(self.starts[index + 1]))
        rewards = zip(self.rewards[rows].tolist(), self.actions[rows].tolist(), strict=True)
        return Dialogue(
            texts=tuple(map(str, self.texts[rows])),
            rewards=tuple(reward if action else None for reward, action in rewards),
            terminal=bool(self.terminals[index]),
            meta=json.loads(self.metas[index]),
        )

    def returns(self) -> np.ndarray:
        """Undiscounted returns, float64 [N]."""
        dialogue = np.repeat(np.arange(len(self)), np.diff(self.starts))
        # Rewards of the environment's utterances are 0 in their column.
        return np.bincount(dialogue, self.rewards, len(self))

    def action_counts(self) -> np.ndarray:
        """Actions of each dialogue, int64 [N]."""
        # By differences, since `np.add.reduceat` gives an empty dialogue the entry after it.
        return np.diff(np.concatenate([[0], np.cumsum(self.actions)])[self.starts])


def share_of(count: int, share: float) -> int:
    """A `share` of `count`, rounded down: 29 of 100 for 0.29, although the product of floats is
    below 29.
    """
    return int(count * share + 1e-9)


# An endless source of dialogues: (rng, count, first) -> the next `count` dialogues, or groups of
# related ones, numbered from `first` in their `meta`; they depend only on `rng`.
DialogueStream = Callable[[np.random.Generator, int, int], Dialogues]


def encode_meta(meta: Mapping[str, Any]) -> str:
    """A dialogue's `meta` as text for `metas`; equal values give equal texts."""
    return json.dumps(dict(meta), sort_keys=True, separators=(",", ":"))
