"""Reads JSON lines: LMRL-Gym's {sequence, reward, done}, or chat's
{messages: [{role, content}, ...], reward}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json
from motif_jax.ilql.dialogues.dialogue import (
    LARGEST_REWARD,
    ROLES,
    SYSTEM,
    TOOL,
    Dialogue,
    Dialogues,
)

# Dialogues of a part.
PART_DIALOGUES = 1024
AGENT = "assistant"
CHAT_ROLES = (SYSTEM, "user", AGENT, TOOL)
# Of either form; other keys become a dialogue's `meta`.
_KEYS = ("sequence", "messages", "reward", "rewards", "done")
_FORM = (
    "{sequence: [[text, is_action], ...], reward: [a number for each], done}, or {messages: [{role, content, reward?}, ...], "
    "reward: the last action's, or rewards: [a number for each action]}"
)


def read(path: str | Path) -> Iterator[Dialogues]:
    """Yields the dialogues of a file in parts; UserError names a line that is not a dialogue."""
    part: list[Dialogue] = []
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                # Read within `parsed`, so that a line without JSON has the same refusal.
                part.append(parsed(lambda line=line: parse_json(line), f"{path}: line {number}"))  # type: ignore[misc]
                if len(part) == PART_DIALOGUES:
                    yield Dialogues.of(part)
                    part = []
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if part:
        yield Dialogues.of(part)


def parsed(content: Any, where: str) -> Dialogue:
    """The dialogue from an object of either form, or from a function that returns it; else
    UserError, which begins with `where`.
    """
    try:
        content = content() if callable(content) else content
        if not isinstance(content, dict):
            raise TypeError(f"a {type(content).__name__}")
        return _messages(content) if "messages" in content else _sequence(content)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{where} is not a dialogue ({reason}): must be {_FORM}") from None


def _sequence(content: Mapping[str, Any]) -> Dialogue:
    """LMRL-Gym's form: `reward` has a number per utterance, 0 for the environment's, or a number
    per action.
    """
    sequence = content["sequence"]
    rewards = content["reward"]
    done = content["done"]
    texts = [text for text, _ in sequence]
    actions = [bool(is_action) for _, is_action in sequence]
    if any(is_action not in (True, False) for _, is_action in sequence):
        raise TypeError("is_action is neither true nor false")
    # Where all utterances are actions, both forms are the same.
    if len(rewards) == sum(actions) and len(rewards) != len(actions):
        rewards = _spread_over_actions(rewards, actions)
    if len(rewards) != len(actions):
        raise ValueError(f"{len(rewards)} rewards for {len(actions)} utterances")
    return _dialogue(texts, actions, rewards, done, content)


def _spread_over_actions(rewards: Sequence[Any], actions: Sequence[bool]) -> list[Any]:
    """A reward for each utterance, of one for each action; 0 for the environment's."""
    of_actions = iter(rewards)
    return [next(of_actions) if is_action else 0.0 for is_action in actions]


def _messages(content: Mapping[str, Any]) -> Dialogue:
    """Chat's form: the assistant is the agent; `done` is true by default.

    `reward` has a number per message, a number per action, or is one number for the end.
    """
    messages = content["messages"]
    if not isinstance(messages, Sequence) or not all(
        isinstance(message, Mapping) for message in messages
    ):
        raise TypeError("messages is not a list of objects")
    for message in messages:
        if message["role"] not in CHAT_ROLES:
            raise ValueError(f"the role {message['role']!r} is not one of {', '.join(CHAT_ROLES)}")
    # As `meta`: a chat model's own turns tell a system message from the user's.
    content = {**content, **meta_of_roles([message["role"] for message in messages])}
    actions = [message["role"] == AGENT for message in messages]

    rewards = [0.0 if message.get("reward") is None else message["reward"] for message in messages]
    of_actions = content.get("rewards")
    if of_actions is not None:
        if any(message.get("reward") is not None for message in messages):
            raise ValueError("both messages with a reward and rewards")
        if len(of_actions) != sum(actions):
            raise ValueError(f"{len(of_actions)} rewards for {sum(actions)} actions")
        rewards = _spread_over_actions(of_actions, actions)
    of_end = content.get("reward")
    if of_end is not None:
        if not any(actions):
            raise ValueError("a reward and no action")
        last_action = max(index for index, is_action in enumerate(actions) if is_action)
        rewards[last_action] = rewards[last_action] + of_end

    done = content.get("done")
    texts = [message["content"] for message in messages]
    return _dialogue(texts, actions, rewards, True if done is None else done, content)


def meta_of_roles(roles: Sequence[str]) -> dict[str, Any]:
    """The entry of a dialogue's `meta` for the roles of its messages; {} for those of user and
    assistant alone.
    """
    return {ROLES: list(roles)} if {SYSTEM, TOOL} & set(roles) else {}


def _dialogue(
    texts: Sequence[Any],
    actions: Sequence[bool],
    paid: Sequence[Any],
    done: bool,
    content: Mapping[str, Any],
) -> Dialogue:
    """The dialogue of texts with a reward each; raises TypeError or ValueError for what no dialogue
    may have.
    """
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text is not a string")
    if not isinstance(done, bool):
        raise TypeError("done is neither true nor false")
    "".join(texts).encode()  # raises ValueError for surrogates, which JSON may have
    if not all(checks.is_finite(reward) and abs(reward) <= LARGEST_REWARD for reward in paid):
        raise ValueError(f"a reward is not a number from {-LARGEST_REWARD:g} to {LARGEST_REWARD:g}")
    if any(reward != 0 for reward, action in zip(paid, actions, strict=True) if not action):
        raise ValueError("an utterance of the environment is paid")
    rewards = tuple(
        float(reward) if action else None for reward, action in zip(paid, actions, strict=True)
    )
    meta = {key: value for key, value in content.items() if key not in _KEYS}
    return Dialogue(tuple(texts), rewards, done, meta)
