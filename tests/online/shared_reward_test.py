"""A reward on two hosts: what the first one hears and learns takes effect before the same batch on both."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.rewards import Met, RunSetup, load_intrinsic
from motif_jax.rewards.label_log import FILE, Label, Training, read_log
from tests.online import oni_runs
from tests.online.learned_reward_test import ROWS, SMALL, SPEC

pytestmark = pytest.mark.usefixtures("compiled_quickly")
# What each host's batches show: some texts are met by the second host alone.
SHOWN = ([0, 1, 2], [2, 3, 4])
AHEAD = 1


class Settled(oni_runs.Answers):
    """Leaves out what it has answered, as the books of the annotator do: the hosts have not heard of it yet."""

    def meet(self, items: Any, counts: Any, scores: Any, step: int) -> None:
        new = [place for place, item in enumerate(items) if item not in self.answered]
        super().meet([items[place] for place in new], [counts[place] for place in new], None, step)


@pytest.fixture
def annotator(monkeypatch: pytest.MonkeyPatch) -> oni_runs.Annotator:
    monkeypatch.setattr(oni_runs, "Answers", Settled)
    return oni_runs.answer(monkeypatch, delay=2)


class Wire:
    """Two hosts in threads; `gather` and `broadcast` as `devices.hosts.Hosts` has them."""

    def __init__(self) -> None:
        self.barrier, self.values = threading.Barrier(2, timeout=240), [None, None]

    def end(self, index: int) -> Any:
        wire = self

        class End:
            is_first = index == 0

            def _all(self, value: Any) -> list[Any]:
                wire.values[index] = value
                wire.barrier.wait()
                found = list(wire.values)
                wire.barrier.wait()
                return found

            def gather(self, value: Any) -> list[Any]:
                return json.loads(json.dumps(self._all(json.loads(json.dumps(value)))))

            def broadcast(self, value: np.ndarray) -> np.ndarray:
                first, other = self._all(value)
                assert first.shape == other.shape
                return first

        return End()


def hosts(folder: Path, kind: str, **changes: Any) -> list[Any]:
    folder.mkdir(exist_ok=True)
    small = {} if kind == "retrieval" else SMALL
    made = []
    for index in range(2):
        config = oni_runs.oni_config(kind, **{**small, "hosts__count": 2, "hosts__index": index, **changes})
        made.append(load_intrinsic(config.reward, SPEC, run=RunSetup(config, folder, AHEAD)))
    return made


def batch(host: int, number: int) -> Met:
    counts = np.array([1 + (number + row) % 3 for row in SHOWN[host]])
    return Met(ROWS[SHOWN[host]], counts, int(counts.sum()), number)


def play(rewards: list[Any], first: int, last: int) -> dict[int, list[tuple[int, dict[int, float]]]]:
    """Batches [first, last) of both: number -> of each host the version and the values of its texts."""
    ends = [wire.end(index) for wire in [Wire()] for index in range(2)]
    seen: dict[int, list[Any]] = {number: [None, None] for number in range(first, last)}

    def host(index: int) -> None:
        paid = first
        for number in range(first, last):
            # The second host's batcher is as far ahead as it may be, the first one's is not.
            while paid < min(last, number + 1 + AHEAD * index):
                values, version = rewards[index].pay(batch(index, paid))
                seen[paid][index] = (version, dict(zip(SHOWN[index], values.tolist(), strict=True)))
                paid += 1
            rewards[index].exchange(ends[index], number + 1)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(host, range(2)))
    return seen


@pytest.mark.parametrize("kind", ["retrieval", "classification", "ranking"])
def test_two_hosts_pay_alike_and_ask_once(tmp_path: Path, annotator: oni_runs.Annotator, kind: str) -> None:
    one, other = rewards = hosts(tmp_path, kind)
    seen = play(rewards, 0, 14)
    [source] = annotator.made
    assert len(set(source.asked)) == len(source.asked)
    if kind != "ranking":
        assert len(source.asked) == len(ROWS), "the first one asks for both"
    assert len({versions[0][0] for versions in seen.values()}) > 1
    for number, (first, second) in seen.items():
        assert first[0] == second[0], f"another version in batch {number}"
        # The text that both show.
        assert first[1][2] == second[1][2]
    log = list(read_log(tmp_path / FILE))
    assert {record.number for record in log if isinstance(record, Label)}
    if kind == "retrieval":
        return
    assert any(isinstance(record, Training) for record in log)
    assert one.taken == other.taken > 0
    jax.tree.map(np.testing.assert_array_equal, one.table.params, other.table.params)
    if kind == "ranking":
        assert one.moments == other.moments
        assert one.moments.count > 10


def test_two_hosts_go_on_from_a_checkpoint_of_the_first(
    tmp_path: Path, annotator: oni_runs.Annotator
) -> None:
    rewards = hosts(tmp_path, "classification")
    play(rewards, 0, 12)
    state, asked = rewards[0].state(12), len(annotator.made[0].asked)
    jax.tree.map(np.shape, rewards[1].state(12))  # the others are asked for theirs too
    taken = rewards[0].taken
    assert taken > 0
    play(rewards, 12, 15)  # is lost
    for reward in rewards:
        reward.close()
    again = hosts(tmp_path, "classification")
    for reward in again:
        reward.restore(state)
        reward.start()
    assert [reward.taken for reward in again] == [taken, taken]
    seen = play(again, 12, 18)
    assert all(first[0] == second[0] for first, second in seen.values())
    assert again[0].taken == again[1].taken > taken
    assert len(annotator.made[0].asked) + len(annotator.made[1].asked) == asked, "nothing is asked again"
