"""Dialogues that are tokenised, held out, and kept on disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.config import HeldOutDialogues, TextConfig, TokenRewardSection
from motif_jax.ilql.dialogues import (
    dialogue,
    dialogue_data,
    dialogue_files,
    dialogue_tokens,
)
from motif_jax.lm import token_data
from tests import resumed
from tests.toy_text import Letters


def splitter(tmp_path: Path, share: float, groups: list[Any]) -> Callable[..., Any]:
    """(folder, stopped) -> the two parts of dialogues with these groups, which are paid their
    numbers.
    """
    dialogues = []
    for number, group in enumerate(groups):
        meta = {} if group is None else {"group": group}
        dialogues.append(dialogue.Dialogue(("a",), (float(number),), True, meta))
    dialogue_files.write(tmp_path / "d.parquet", [dialogue.Dialogues.of(dialogues)], {})
    config = TextConfig(data=str(tmp_path / "d.parquet"), held_out=HeldOutDialogues(share=share))
    source = dialogue_data.source_of(config)

    def split(folder: str, stopped: Callable[[], bool] = lambda: False) -> Any:
        return dialogue_data.split_tokens(config, source, Letters(), tmp_path / folder, stopped)

    return split


@pytest.mark.parametrize(("saved", "lost"), [(16, 0), (16, 2), (32, 2)])
def test_saved_dialogues_are_not_tokenised_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: int, lost: int
) -> None:
    """Of 40, of which the last 10 are held out: a first run is asked to stop after those that are
    saved, or killed later.
    """
    monkeypatch.setattr(token_data, "GROUP_ITEMS", 2)
    monkeypatch.setattr(token_data, "SAVE_EVERY_GROUPS", 2)
    split = splitter(tmp_path, 0.25, [None] * 40)
    with resumed.tokenised(saved + lost if lost else None) as items:
        assert split("run", lambda: not lost and len(items) == saved) is None
    assert len(items) == saved + lost

    with resumed.tokenised() as items:
        parts = split("run")

    assert len(items) == 40 - saved
    undisturbed = split("undisturbed")
    assert [part.manifest for part in parts.values()] == [
        part.manifest for part in undisturbed.values()
    ]


def test_dialogues_of_a_group_are_held_out_together(tmp_path: Path) -> None:
    of_dialogues = [None, None, *[number // 3 for number in range(60)], "last", 0, "last", None]

    parts = splitter(tmp_path, 0.25, of_dialogues)("tokens").values()

    train, held_out = ([int(number) for number in part.item_columns["return"]] for part in parts)
    assert sorted([*train, *held_out]) == list(range(len(of_dialogues)))
    train_groups = {of_dialogues[number] for number in train}
    held_out_groups = {of_dialogues[number] for number in held_out}
    assert train_groups & held_out_groups <= {None}
    assert abs(len(held_out) / len(of_dialogues) - 0.25) < 0.05


def test_a_part_of_an_older_split_is_written_again(tmp_path: Path) -> None:
    """An older version was killed between the two parts."""
    split = splitter(tmp_path, 0.4, [None] * 20)
    split("tokens")
    path = tmp_path / "tokens" / "train" / "tokens.json"
    manifest = json.loads(path.read_text())
    shutil.rmtree(tmp_path / "tokens" / "held_out")
    path.write_text(json.dumps({**manifest, "source": {**manifest["source"], "split": None}}))

    parts = split("tokens")

    assert [part.num_items for part in parts.values()] == [12, 8]
    assert json.loads(path.read_text()) == manifest


def test_a_part_by_another_tokenizer_is_refused(tmp_path: Path) -> None:
    split = splitter(tmp_path, 0.4, [None] * 20)
    split("tokens")
    path = tmp_path / "tokens" / "train" / "tokens.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer": "another"}))

    with pytest.raises(UserError, match="train was tokenised by another tokenizer"):
        split("tokens")


def test_data_that_changed_after_they_were_tokenised_are_refused(tmp_path: Path) -> None:
    splitter(tmp_path, 0.25, [None] * 20)("tokens")
    changed = splitter(tmp_path, 0.25, [None] * 40)

    with pytest.raises(UserError, match="train was tokenised from data that have changed since"):
        changed("tokens")


def test_data_that_moved_are_the_same(tmp_path: Path) -> None:
    splitter(tmp_path, 0.25, [None] * 20)("tokens")
    (tmp_path / "d.parquet").rename(tmp_path / "moved.parquet")
    config = TextConfig(data=str(tmp_path / "moved.parquet"), held_out=HeldOutDialogues(share=0.25))
    source = dialogue_data.source_of(config)

    parts = dialogue_data.split_tokens(
        config, source, Letters(), tmp_path / "tokens", lambda: False
    )

    assert parts is not None


@pytest.mark.parametrize("wrong", [3, 17, 38])
def test_a_dialogue_that_does_not_fit_is_named(tmp_path: Path, wrong: int) -> None:
    """By its number in the file, whichever part it is in."""
    texts = ["?" if number == wrong else "a" for number in range(40)]
    dialogues = dialogue.Dialogues.of(dialogue.Dialogue((text,), (1.0,), True) for text in texts)
    dialogue_files.write(tmp_path / "d.parquet", [dialogues], {})
    held_out = HeldOutDialogues(share=0.5)
    config = TextConfig(data=str(tmp_path / "d.parquet"), held_out=held_out)
    source = dialogue_data.source_of(config)
    with pytest.raises(UserError, match=rf"config\.data: dialogue {wrong} does not fit"):
        dialogue_data.split_tokens(config, source, Letters(), tmp_path / "run", lambda: False)


def test_dialogues_are_read_back_with_the_rewards_of_their_actions(tmp_path: Path) -> None:
    """Tokens are paid, too, in a training and not in its data."""
    talk = dialogue.Dialogue(("ab", "c", "", "abc"), (1.5, None, -0.7, 0.0), False)
    dialogue_files.write(tmp_path / "d.parquet", [dialogue.Dialogues.of([talk] * 4)], {})
    token_reward = TokenRewardSection(constant=-0.1)
    config = TextConfig(
        data=str(tmp_path / "d.parquet"),
        held_out=HeldOutDialogues(share=0.5),
        token_reward=token_reward,
    )
    source = dialogue_data.source_of(config)
    dialogue_data.split_tokens(config, source, Letters(), tmp_path / "run", lambda: False)

    folder = tmp_path / "run" / "held_out"
    reward = dialogue_data.token_reward_of(token_reward)
    dialogues = list(dialogue_tokens.stored_dialogues(folder, Letters(), reward))
    assert len(dialogues) == 2
    for read in dialogues:
        assert read.texts == talk.texts
        assert read.rewards == (1.5, None, pytest.approx(-0.7), 0.0)
