"""Data of cloning: tokenised prompts and actions, divided into a training and a held-out part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.core.joint_tokens import JointRows
from motif_jax.envs.babyai_text.prompts import after_prompt, in_turn
from motif_jax.glam import trajectories as parquet
from motif_jax.glam.config import CloningConfig
from motif_jax.glam.trajectories import Pairs
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer, padded

_TOKENISED_AT_ONCE = 1024  # prompts
# Of the steps, where config.train_pairs does not say how many are learned from.
HELD_OUT_SHARE = 0.05


class JointActions(NamedTuple):
    """The actions' tokens after the prompts, where both are tokenised together; most prompts have
    the same.

    A prompt has one of K lists; of each action's row the first `starts` tokens are the prompt's
    (`core.joint_tokens.JointRows`).
    """

    list_of_prompt: np.ndarray  # int32 [N], which of the lists
    candidates: np.ndarray  # int32 [K, A, S], padded with -1
    starts: np.ndarray  # int32 [K, A]


class CloningData(NamedTuple):
    """The expert's steps, one a row."""

    tokens: np.ndarray  # int32 [total], the prompts end to end
    offsets: np.ndarray  # int64 [N + 1], where each prompt begins
    actions: np.ndarray  # int32 [N]
    train: np.ndarray  # int64 [..], rows of each part
    held_out: np.ndarray
    digest: str  # of the files
    joint: JointActions | None = None  # None: the actions are tokenised apart

    def prompts(self, rows: np.ndarray, length: int) -> np.ndarray:
        """The prompts of `rows` [...], int32 [..., length], padded with -1; row -1 is empty."""
        prompts = np.full((*rows.shape, length), -1, np.int32)
        for index, row in np.ndenumerate(rows):
            # An empty row stays -1 in all places.
            if row >= 0:
                start, stop = self.offsets[row : row + 2]
                prompts[index][: stop - start] = self.tokens[start:stop]
        return prompts


def files(config: CloningConfig) -> list[Path]:
    """The files that `config` names; UserError if it names none, or files of two kinds."""
    published_files = config.published
    allowed = "a folder of collect_trajectories, or None with config.published.dir"
    checks.require_key(
        config, "trajectories", bool(config.trajectories) != bool(published_files.dir), allowed
    )
    # Two files, of prompts and of actions; trajectories of this package are one.
    if published_files.dir:
        return list(
            parquet.published_paths(
                published_files.dir, published_files.name, published_files.number
            )
        )
    return [Path(config.trajectories or "") / parquet.FILE]


def read(config: CloningConfig) -> Pairs:
    """Prompts and actions."""
    published_files = config.published
    if not published_files.dir:
        return parquet.read(files(config)[0])
    return parquet.read_published(published_files.dir, published_files.name, published_files.number)


def about(config: CloningConfig) -> dict[str, Any]:
    """The description of trajectories of this package; {} for published ones."""
    paths = files(config)
    return parquet.about(paths[0]) if config.trajectories else {}


def load(
    config: CloningConfig,
    pairs: Pairs,
    actions: int,
    special: bool,
    joint_actions: Sequence[str] = (),
    turn: Sequence[str] = (),
) -> CloningData:
    """Tokenises the prompts, with the tokenizer's `special` tokens or without, and divides them;
    UserError for invalid steps.

    `joint_actions` are the names of the actions where they are tokenised together with each prompt,
    `turn` is that of `PromptTokens`.
    """
    count = len(pairs.actions)
    numbers = np.array(pairs.actions, np.int64)
    if count < 2 or numbers.min() < 0 or numbers.max() >= actions:
        highest = f" with actions up to {numbers.max()}" if count else ""
        raise UserError(
            f"config.trajectories={config.source}: must hold at least 2 steps with actions from 0 to "
            f"{actions - 1}, it has {count}{highest}"
        )
    # The last steps, so that at most one episode lies in both parts.
    held_out = max(1, round(count * HELD_OUT_SHARE))
    train = config.train_pairs or count - held_out
    allowed = f"below the {count:,} steps that there are: the rest is what is measured with"
    checks.require(train < count, "train_pairs", config.train_pairs, allowed)
    # End to end: prompts differ much in length, and padding all of them would take several times
    # the memory.
    tokens, offsets, joint = _tokens(config, pairs.prompts, special, joint_actions, turn)
    rows = np.arange(count, dtype=np.int64)
    digest = digests.of_bytes("".join(digests.of_file(path) for path in files(config)).encode())
    return CloningData(
        tokens, offsets, numbers.astype(np.int32), rows[:train], rows[train:], digest, joint
    )


def _tokens(
    config: CloningConfig,
    prompts: list[str],
    special: bool,
    joint_actions: Sequence[str],
    turn: Sequence[str],
) -> tuple[np.ndarray, np.ndarray, JointActions | None]:
    """`CloningData.tokens`, `.offsets` and `.joint` of `prompts`."""
    # The model's own, as in acting: `LanguageNetworkKind.environment_options` names the same file.
    tokenizer = Tokenizer.read(fetch(config.network.model, "network.model"))
    names = [after_prompt(name, bool(turn)) for name in joint_actions]
    # A template writes the special tokens itself.
    special = special and not turn
    limit = config.network.prompt_tokens
    # An empty row in front, whose length 0 is the first offset.
    rows = [np.zeros(0, np.int32)]
    lengths = [0]
    number_of_list: dict[tuple[tuple[int, ...], ...], int] = {}
    lists: list[JointRows] = []
    list_of_prompt = []
    # A part at a time: the tokenizer's encodings take many times the memory of the tokens.
    for start in range(0, len(prompts), _TOKENISED_AT_ONCE):
        part = prompts[start : start + _TOKENISED_AT_ONCE]
        if names:
            before = [in_turn(prompt, turn) for prompt in part]
            joint = tokenizer.encode_joint(before, [names] * len(part), special)
            encoded = [joint_rows.prompt for joint_rows in joint]
            for joint_rows in joint:
                # Most prompts end alike, so that few different lists of tokens are kept.
                key = (tuple(joint_rows.starts), *map(tuple, joint_rows.candidates))
                if key not in number_of_list:
                    number_of_list[key] = len(lists)
                    lists.append(joint_rows)
                list_of_prompt.append(number_of_list[key])
        else:
            encoded = tokenizer.encode(part, special)
        for prompt, tokens in zip(part, encoded, strict=True):
            # Never cut: a prompt without its end has no question.
            if len(tokens) > limit:
                raise UserError(
                    f"config.network.prompt_tokens={limit}: must be at least {len(tokens)}, the tokens of the prompt {prompt[:120]!r}..."
                )
            lengths.append(len(tokens))
            rows.append(np.array(tokens, np.int32))

    offsets = np.cumsum(lengths, dtype=np.int64)
    if not names:
        return np.concatenate(rows), offsets, None
    candidates = padded([row for one in lists for row in one.candidates], pad=-1).tokens
    joint_actions_of_all = JointActions(
        np.array(list_of_prompt, np.int32),
        candidates.reshape(len(lists), len(names), -1),
        np.array([one.starts for one in lists], np.int32),
    )
    return np.concatenate(rows), offsets, joint_actions_of_all
