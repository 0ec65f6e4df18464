"""The index of a store that others write to."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import pytest

from motif_jax.datasets.verdicts import UNKNOWN
from motif_jax.labels.answer_index import AnswerIndex
from motif_jax.labels.store import AnswerStore, StoredAnswer
from motif_jax.support.checked_lines import encode_line


def key(number: int) -> str:
    return f"{(number + 1) * 0x9E3779B97F4A7C15 % 2**64:016x}{number:016x}"


@pytest.fixture
def store(tmp_path):
    store = AnswerStore(tmp_path)
    yield store
    store.close()


@pytest.fixture
def index(tmp_path):
    index = AnswerIndex(tmp_path, refresh_seconds=0.0)
    yield index
    index.close()


def test_finds_what_the_store_finds_and_what_is_appended_later(store, index, tmp_path):
    assert index.get(key(0)) is None
    store.add([(key(0), StoredAnswer(1, (0.25, 0.75)), {"tokens": [5, 6, 0]})])
    assert index.get(key(0)) == StoredAnswer(1, (0.25, 0.75))
    store.add((key(n), StoredAnswer(n % 2), {}) for n in range(1, 500))
    other = AnswerStore(tmp_path)
    other.add((key(n), StoredAnswer(n % 2), {}) for n in range(500, 600))
    other.close()
    assert len(list(tmp_path.iterdir())) == 2
    wanted = {key(n) for n in range(700)}
    assert {k: found for k in wanted if (found := index.get(k))} == store.find(wanted)
    assert len(index) == 600


def test_another_process_appends(index, tmp_path):
    index.refresh()
    code = (
        "from motif_jax.labels.store import AnswerStore, StoredAnswer\n"
        f"AnswerStore({str(tmp_path)!r}).add([({key(1)!r}, StoredAnswer(2), {{}})])"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert index.get(key(1)) == StoredAnswer(2)


def test_a_known_label_counts_before_an_unknown_one_and_the_first_of_its_kind(store, index):
    answers = [
        (key(1), StoredAnswer(UNKNOWN), {}),
        (key(1), StoredAnswer(UNKNOWN, attempts=2), {}),
        (key(2), StoredAnswer(0), {}),
        (key(2), StoredAnswer(1), {}),
        (key(3), StoredAnswer(0), {}),
        (key(3), StoredAnswer(UNKNOWN), {}),
    ]
    for answer in answers:
        store.add([answer])
        index.refresh()
    assert index.get(key(1)) == StoredAnswer(UNKNOWN, attempts=2)
    store.add([(key(1), StoredAnswer(1, attempts=3), {})])
    assert {k: index.get(k) for k in map(key, (1, 2, 3))} == store.find({key(n) for n in (1, 2, 3)})


def test_torn_and_damaged_lines_cost_one_answer_each(index, tmp_path):
    whole = [encode_line(key(n), {"label": 0}) for n in range(4)]
    damaged = whole[1].replace(b'"label":0', b'"label":1')
    path = tmp_path / "host-0000.jsonl"
    path.write_bytes(whole[0] + damaged + whole[2][:30])
    assert [index.get(key(n)) for n in range(4)] == [StoredAnswer(0), None, None, None]
    with open(path, "ab") as file:
        file.write(whole[2][30:-1])
    assert index.get(key(2)) is None  # its end is still to come
    with open(path, "ab") as file:
        file.write(b"\n" + whole[3])
    assert [index.get(key(n)) for n in range(4)] == [StoredAnswer(0), None, StoredAnswer(0), StoredAnswer(0)]


def test_ids_that_begin_alike_are_told_apart(store, index):
    first, second = "a" * 16 + "0" * 16, "a" * 16 + "1" * 16
    store.add([(first, StoredAnswer(1), {})])
    assert index.get(second) is None


@pytest.mark.slow
def test_an_answer_takes_at_most_200_bytes(tmp_path):
    path = tmp_path / "host-0000.jsonl"
    count = 30_000
    path.write_bytes(
        b"".join(encode_line(key(n), {"label": n % 3, "p": [0.2, 0.3, 0.5]}) for n in range(count))
    )
    index = AnswerIndex(tmp_path)
    tracemalloc.start()
    index.refresh()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    index.close()
    assert held / count <= 200
