"""Dialogues as LMRL-Gym publishes them: JSON lines {sequence: [[text, is_action], ...], reward: [...], done}."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from motif_jax.datasets.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError
from motif_jax.support.files import parse_json

_TOGETHER = 1024
_FORM = "{sequence: [[text, is_action], ...], reward: [a number for each], done}"


def read(path: str | Path) -> Iterator[Dialogues]:
    """Yields the dialogues of a file, some together.

    `reward` has a number for each utterance, those of the environment 0, or one for each action. What else an object has goes into `meta`.

    Raises:
      UserError: the file cannot be read, or a line is no dialogue; says which.
    """
    part: list[Dialogue] = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    part.append(_dialogue(parse_json(line)))
                except (ValueError, KeyError, TypeError) as error:
                    what = f"no {error}" if isinstance(error, KeyError) else str(error)
                    raise UserError(
                        f"{path}: line {number} is no dialogue ({what}): must be {_FORM}"
                    ) from None
                if len(part) == _TOGETHER:
                    yield Dialogues.of(part)
                    part = []
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if part:
        yield Dialogues.of(part)


def _dialogue(content: Any) -> Dialogue:
    if not isinstance(content, dict):
        raise TypeError(f"a {type(content).__name__}")
    sequence, paid, done = content["sequence"], content["reward"], content["done"]
    texts = [text for text, _ in sequence]
    actions = [bool(action) for _, action in sequence]
    if not all(isinstance(text, str) for text in texts) or not isinstance(done, bool):
        raise TypeError("a text is none, or done neither true nor false")
    "".join(texts).encode()  # half a character, as JSON may have it, is a ValueError that says so
    if not all(checks.is_finite(reward) for reward in paid):
        raise ValueError("a reward is no finite number")
    if len(paid) == sum(actions) != len(actions):
        of_actions = iter(paid)
        paid = [next(of_actions) if action else 0.0 for action in actions]
    if len(paid) != len(actions):
        raise ValueError(f"{len(paid)} rewards for {len(actions)} utterances")
    if any(reward != 0 for reward, action in zip(paid, actions, strict=True) if not action):
        raise ValueError("an utterance of the environment is paid")
    rewards = tuple(float(reward) if action else None for reward, action in zip(paid, actions, strict=True))
    meta = {key: value for key, value in content.items() if key not in ("sequence", "reward", "done")}
    return Dialogue(tuple(texts), rewards, done, meta)
