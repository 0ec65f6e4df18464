"""Reads dialogues from a file or a folder, in any of the known formats, and writes parquet.

* Our parquet has a row per dialogue: `texts` (list of string), `rewards` (list of double, null for
  the environment's utterances), `terminal` (bool), `meta` (string, a JSON object).
* JSON lines are LMRL-Gym's {sequence, reward, done}, or chat's
  {messages: [{role, content}, ...], reward}; parquet of others with a column `messages` has rows of
  that form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json, replaced_file
from motif_jax.ilql.dialogues.dialogue import (
    ROLES,
    SYSTEM,
    TOOL,
    Dialogue,
    Dialogues,
)

# A collection, and what `collect_text` writes beside it.
DIALOGUES, META = "dialogues.parquet", "dialogues.json"
SUFFIXES = (".parquet", ".jsonl", ".json")
# Rows of a parquet file that are read at once.
_ROWS = 1024
FORMAT, VERSION = b"motif_jax.dialogues", 1
SCHEMA = pa.schema(
    [
        ("texts", pa.list_(pa.string())),
        ("rewards", pa.list_(pa.float64())),
        ("terminal", pa.bool_()),
        ("meta", pa.string()),
    ]
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


def find(value: str, key: str) -> Path:
    """The file of the config's `key`; for a folder its dialogues.parquet, or its only file of
    dialogues; UserError for several.
    """
    path = Path(value)
    if path.is_dir() and (path / DIALOGUES).is_file():
        return path / DIALOGUES
    if path.is_dir():
        # A folder's .json may be anything.
        files = sorted(
            file for file in path.iterdir() if file.suffix in SUFFIXES[:2] and file.is_file()
        )
        if len(files) > 1:
            raise UserError(
                f"config.{key}={value}: has {len(files)} files of dialogues, name one: {files[0].name}, ..."
            )
        if files:
            path = files[0]
    return path


def read(path: Path) -> Dialogues:
    """Reads all dialogues of a file: our parquet, parquet with a column `messages`, or JSON
    lines.
    """
    if path.suffix != ".parquet":
        return Dialogues.joined(list(read_json_lines(path)))
    columns = pq.read_schema(Path(path).absolute()).names
    if "messages" in columns and "texts" not in columns:
        return Dialogues.joined(list(_read_messages(path, columns)))
    return read_parquet(path)


def _read_messages(path: Path, columns: list[str]) -> Iterator[Dialogues]:
    """The dialogues of a parquet file whose rows are objects of `json_lines`."""
    first = 0
    with pq.ParquetFile(path.absolute()) as file:
        for batch in file.iter_batches(_ROWS, columns=columns):
            # Values without a JSON form, such as a time, become text.
            rows = json.loads(json.dumps(batch.to_pylist(), default=str))
            yield Dialogues.of(parsed(row, f"{path}: row {n}") for n, row in enumerate(rows, first))
            first += len(rows)


def _table(dialogues: Dialogues, schema: pa.Schema) -> pa.Table:
    # Lists of Arrow have int32 offsets.
    offsets = pa.array((dialogues.starts - dialogues.starts[0]).astype(np.int32))
    rewards = pa.array(dialogues.rewards, mask=~dialogues.actions)
    return pa.Table.from_arrays(
        [
            pa.ListArray.from_arrays(offsets, pa.array(dialogues.texts, pa.string())),
            pa.ListArray.from_arrays(offsets, rewards),
            pa.array(dialogues.terminals),
            pa.array(dialogues.metas, pa.string()),
        ],
        schema=schema,
    )


def write(path: str | Path, parts: Iterable[Dialogues], about: Mapping[str, Any]) -> None:
    """Writes `parts` to one file atomically, a row group per part, and `about`, their origin as
    JSON, in its metadata.
    """
    metadata = {
        FORMAT: str(VERSION).encode(),
        b"about": json.dumps(dict(about), sort_keys=True).encode(),
    }
    schema = SCHEMA.with_metadata(metadata)
    with (
        replaced_file(Path(path)) as file,
        pq.ParquetWriter(file.absolute(), schema, compression="zstd") as writer,
    ):
        for part in parts:
            writer.write_table(_table(part, schema))


def read_parquet(path: str | Path) -> Dialogues:
    """Reads a file with the columns of `write`, from any writer; UserError for inconsistent
    rows.
    """
    with pq.ParquetFile(Path(path).absolute()) as file:
        table = file.read(SCHEMA.names).select(SCHEMA.names)
    # Other writers have large strings, or numbers of other widths.
    table = table.cast(SCHEMA)
    nulls = [name for name in SCHEMA.names if table.column(name).null_count]
    if nulls:
        raise UserError(f"{path}: values of {', '.join(nulls)} are missing")
    texts = table.column("texts").combine_chunks()
    rewards = table.column("rewards").combine_chunks()
    starts = np.asarray(texts.offsets, np.int64)
    if not np.array_equal(np.diff(starts), np.diff(rewards.offsets)):
        raise UserError(f"{path}: each dialogue must have as many rewards as texts")
    # Without what stands before the first offset, hence `starts - starts[0]` below.
    flat_texts = texts.flatten()
    flat_rewards = rewards.flatten()
    if flat_texts.null_count:
        raise UserError(f"{path}: {flat_texts.null_count} texts are missing")
    values = flat_rewards.to_numpy(zero_copy_only=False)
    actions = np.asarray(flat_rewards.is_valid())
    return Dialogues(
        starts=starts - starts[0],
        texts=np.array(flat_texts.to_pylist(), object),
        rewards=np.where(actions, values, 0.0),
        actions=actions,
        terminals=np.asarray(table.column("terminal").combine_chunks(), bool),
        metas=np.array(table.column("meta").to_pylist(), object),
    )


def about(path: str | Path) -> dict[str, Any]:
    """The `about` of `write`; {} for files of other writers."""
    metadata = pq.read_schema(Path(path).absolute()).metadata or {}
    return parse_json(metadata.get(b"about", b"{}"), dict)


def read_json_lines(path: str | Path) -> Iterator[Dialogues]:
    """Yields the dialogues of a file in parts; UserError names a line that is not a dialogue."""
    part: list[Dialogue] = []
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            # Read within `parsed`, so that a line without JSON has the same refusal.
            part.append(parsed(lambda line=line: parse_json(line), f"{path}: line {number}"))  # type: ignore[misc]
            if len(part) == PART_DIALOGUES:
                yield Dialogues.of(part)
                part = []
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
    if not isinstance(done, bool):
        raise TypeError("done is neither true nor false")
    # Raises TypeError for what is no text, and ValueError for surrogates, which JSON may have.
    "".join(texts).encode()
    if any(reward != 0 for reward, action in zip(paid, actions, strict=True) if not action):
        raise ValueError("an utterance of the environment is paid")
    rewards = tuple(
        float(reward) if action else None for reward, action in zip(paid, actions, strict=True)
    )
    meta = {key: value for key, value in content.items() if key not in _KEYS}
    return Dialogue(tuple(texts), rewards, done, meta)
