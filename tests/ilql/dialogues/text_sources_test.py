"""Dialogues that are collected, and the files that a task's dialogues need."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from docs.examples import backwards
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError
from motif_jax.ilql import collect_text
from motif_jax.ilql.dialogues import dialogue_files, task_files
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.tasks import file_tokens
from tests import toy_text
from tests.play.stand_ins import RecordedProgress, StopsAfter, jobs_here

TOY = "tests.toy_text:Task"
GAMES = ("games", "half")


@pytest.fixture(autouse=True)
def progress(monkeypatch: pytest.MonkeyPatch) -> RecordedProgress:
    """What is shown of the progress; dialogues are drawn in this process."""
    progress = RecordedProgress()
    for module in (collect_text, task_files):
        monkeypatch.setattr(module, "Progress", progress)
    monkeypatch.setattr(collect_text, "run_jobs", jobs_here)
    return progress


def collect(folder: Path, stops_after: int = 99) -> bool:
    """Collects 11 dialogues in parts of 4; returns whether all are there."""
    plan = collect_text.DialoguePlan(TOY, {"length": 4}, *GAMES, 3, 11, 4, str(folder / ".staging"))
    return collect_text.collect(plan, folder, {"about": 1}, 1, StopsAfter(stops_after))


def test_parts_of_other_files_are_not_mixed(tmp_path: Path) -> None:
    """As where a word list is replaced between a stop and the same command again."""
    plan = collect_text.DialoguePlan(
        TOY, {"length": 4}, *GAMES, 3, 11, 4, str(tmp_path / ".staging")
    )

    def collect_with(words: str, stops_after: int = 99) -> bool:
        inputs = {"words": words, "length": 4}
        return collect_text.collect(plan, tmp_path, {}, 1, StopsAfter(stops_after), inputs=inputs)

    assert not collect_with("digest 1", stops_after=1)
    with pytest.raises(
        UserError, match=r"words changed since the first dialogues in .* were drawn"
    ):
        collect_with("digest 2")
    assert collect_with("digest 1")


def dialogues_of(folder: Path) -> list[Dialogue]:
    return list(Dialogues.of(dialogue_files.read_parquet(folder / dialogue_files.DIALOGUES)))


def test_collected_dialogues_are_games_of_the_policy(tmp_path: Path) -> None:
    assert collect(tmp_path)

    dialogues = dialogues_of(tmp_path)
    assert len(dialogues) == 11
    for dialogue in dialogues:
        word, *letters = dialogue.texts
        assert dialogue.rewards == (
            None,
            *[float(a == b) for a, b in zip(letters, word[::-1], strict=True)],
        )
        assert dialogue.terminal
    # Half of the letters are right on purpose, a third of the others by chance.
    returns = [dialogue.total for dialogue in dialogues]
    assert np.mean(returns) == pytest.approx(4 * 2 / 3, abs=1.0)
    assert not (tmp_path / ".staging").exists()


def test_a_collection_is_summed_up(tmp_path: Path) -> None:
    collect(tmp_path)

    summary = json.loads((tmp_path / dialogue_files.META).read_text())
    returns = [dialogue.total for dialogue in dialogues_of(tmp_path)]
    assert len(summary.pop("digest")) >= 32
    assert summary.pop("mean_return") == pytest.approx(np.mean(returns))
    assert summary.pop("standard_error") == pytest.approx(np.std(returns, ddof=1) / np.sqrt(11))
    assert summary == {"about": 1, "dialogues": 11, "actions": 44, "failed_requests": 0}


def test_a_stopped_collection_goes_on_to_the_same_dialogues(
    tmp_path: Path, progress: RecordedProgress
) -> None:
    undisturbed = tmp_path / "undisturbed"
    stopped = tmp_path / "stopped"
    collect(undisturbed)
    progress.entries.clear()

    assert not collect(stopped, stops_after=2)
    assert collect(stopped)

    assert dialogues_of(stopped) == dialogues_of(undisturbed)
    assert (stopped / dialogue_files.META).read_text() == (
        undisturbed / dialogue_files.META
    ).read_text()
    # The second time begins with the 8 dialogues of two parts.
    begins = [line for line in progress.entries if isinstance(line, tuple) and "collect" in line]
    assert begins == [(11, "dialogues", "collect", 0), (11, "dialogues", "collect", 8)]


@pytest.fixture
def finite(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy has 130 dialogues, which are drawn 64 at a time."""
    monkeypatch.setattr(toy_text.Task, "count", lambda self, kind: 130)


def write_all(folder: Path, stops_after: int = 99) -> Path:
    stop = StopsAfter(stops_after)
    return task_files.write_dialogues(TOY, {"length": 2}, *GAMES, folder, stop.stopped)


@pytest.mark.usefixtures("finite")
def test_all_dialogues_of_a_finite_kind_are_written(tmp_path: Path) -> None:
    path = write_all(tmp_path)

    assert path == tmp_path / dialogue_files.DIALOGUES
    dialogues = dialogues_of(tmp_path)
    assert len(dialogues) == 130
    assert {len(dialogue.texts) for dialogue in dialogues} == {3}
    assert {dialogue.total for dialogue in dialogues} == {0.0, 1.0, 2.0}


@pytest.mark.usefixtures("finite")
def test_a_stop_leaves_no_file_of_all_dialogues(tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        write_all(tmp_path, stops_after=1)

    assert not (tmp_path / dialogue_files.DIALOGUES).exists()


@pytest.mark.usefixtures("finite")
def test_a_file_of_all_dialogues_that_exists_is_kept(tmp_path: Path) -> None:
    path = write_all(tmp_path)
    content = path.read_bytes()

    assert write_all(tmp_path, stops_after=0) == path
    assert path.read_bytes() == content


def test_a_task_that_learns_no_tokens_needs_no_files(tmp_path: Path) -> None:
    options = task_files.prepare_files(TOY, {"length": 2}, *GAMES, tmp_path, 3)

    assert options == {"length": 2}
    assert list(tmp_path.iterdir()) == []


def learn(folder: Path, stops_after: int = 99) -> dict[str, object]:
    task = backwards.Task({"vocab_size": 300})
    return task_files.with_tokenizer(task, *GAMES, folder, 3, StopsAfter(stops_after).stopped)


def test_a_task_gets_a_tokenizer_of_its_dialogues(tmp_path: Path) -> None:
    options = learn(tmp_path)

    assert options == {"length": 3, "tokenizer": str(tmp_path), "vocab_size": 300}
    vocabulary = json.loads((tmp_path / file_tokens.FILE).read_text())["model"]["vocab"]
    assert len(vocabulary) <= 300
    # Words of three letters of a, b and c are what dialogues have.
    assert {token for token in vocabulary if len(token) == 3} <= {
        a + b + c for a in "abc" for b in "abc" for c in "abc"
    }
    tokenizer = backwards.Task(options).tokenizer()
    assert tokenizer.decode(tokenizer.encode("cab")) == "cab"
    assert len(tokenizer.encode("cab")) < 3


def test_a_tokenizer_is_learned_once(tmp_path: Path) -> None:
    learn(tmp_path)
    content = (tmp_path / file_tokens.FILE).read_bytes()

    # A stop at once would be noticed before the first dialogue.
    learn(tmp_path, stops_after=0)

    assert (tmp_path / file_tokens.FILE).read_bytes() == content


def test_a_stop_while_dialogues_are_drawn_leaves_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        learn(tmp_path, stops_after=1)

    assert not (tmp_path / file_tokens.FILE).exists()
