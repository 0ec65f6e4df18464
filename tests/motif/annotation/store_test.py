"""The answer store: many writers, all are read, a known label counts before an unknown one."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.checked_lines import encode_line, read_lines
from motif_jax.core.verdicts import FIRST, SECOND, UNKNOWN
from motif_jax.motif.annotation.annotator import Answer, Question
from motif_jax.motif.annotation.store import AnswerStore, StoredAnswer, better


def key(number: int) -> str:
    return f"{(number + 1) * 0x9E3779B97F4A7C15 % 2**64:016x}{number:016x}"


KEYS = [key(number) for number in range(6)]


def test_answers_are_written_with_their_texts_and_cost(tmp_path):
    store = AnswerStore(tmp_path, judge="0123abcd")

    stored = store.keep(
        [
            (Question(KEYS[0], ("a", "b")), Answer(0, tokens=(1, 2, 3), note="n", text="a it is")),
            (Question(KEYS[3], attempt=1), Answer(UNKNOWN)),
        ]
    )

    assert stored == [StoredAnswer(0), StoredAnswer(UNKNOWN, None, 2)]
    (path,) = tmp_path.iterdir()
    texts = {"items": ["a", "b"], "text": "a it is", "judge": "0123abcd"}
    assert list(read_lines(path)) == [
        (KEYS[0], {"label": 0, **texts, "tokens": [1, 2, 3], "note": "n"}),
        (KEYS[3], {"label": 3, "attempts": 2, "judge": "0123abcd"}),
    ]


def test_a_store_of_before_it_had_texts_is_read(tmp_path):
    """Its lines, written by hand: what was paid for is not asked again."""
    lines = [
        b'{"label":0,"p":[0.5,0.25,0.25],"mass":0.75,"tokens":[9,1,0]}',
        b'{"label":3,"attempts":2,"note":"cut before its end","cut":1}',
        b'{"label":1}',
    ]
    bodies = [KEYS[number].encode() + b" " + line for number, line in enumerate(lines)]
    content = [b"%08x %b\n" % (zlib.crc32(body), body) for body in bodies]
    (tmp_path / "host-0000.jsonl").write_bytes(b"".join(content))

    assert AnswerStore(tmp_path).find(set(KEYS)) == {
        KEYS[0]: StoredAnswer(0, (0.5, 0.25, 0.25), 1, 0.75),
        KEYS[1]: StoredAnswer(UNKNOWN, None, 2),
        KEYS[2]: StoredAnswer(1),
    }


def test_writers_side_by_side_have_files_of_their_own(tmp_path):
    first = AnswerStore(tmp_path)
    second = AnswerStore(tmp_path)

    first.keep([(Question(KEYS[0]), Answer(0))])
    second.keep([(Question(KEYS[1]), Answer(1, (0.25, 0.5, 0.25)))])

    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    answers = AnswerStore(tmp_path).find(set(KEYS[:2]))
    assert answers == {KEYS[0]: StoredAnswer(0), KEYS[1]: StoredAnswer(1, (0.25, 0.5, 0.25))}


def test_a_later_writer_appends_to_a_file_that_is_free(tmp_path):
    for number in range(3):
        store = AnswerStore(tmp_path)
        store.keep([(Question(KEYS[number]), Answer(0))])
        store.close()

    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    assert set(AnswerStore(tmp_path).find({KEYS[2], KEYS[5]})) == {KEYS[2]}


def test_stores_of_one_host_can_be_merged_repeatedly(tmp_path):
    source = tmp_path / "source"
    target = tmp_path / "target"
    for number in (0, 2):
        for folder, key in ((source, KEYS[number]), (target, KEYS[number + 1])):
            store = AnswerStore(folder)
            store.keep([(Question(key), Answer(0))])
            store.close()
        shutil.copytree(source, target, dirs_exist_ok=True)
        assert set(AnswerStore(target).find(set(KEYS))) == set(KEYS[: number + 2])


UNKNOWN_ONCE = StoredAnswer(UNKNOWN)
UNKNOWN_TWICE = StoredAnswer(UNKNOWN, None, 2)
KNOWN = StoredAnswer(1, None, 3)


@pytest.mark.parametrize(
    ("old", "new", "best"),
    [
        (None, UNKNOWN_ONCE, UNKNOWN_ONCE),
        (UNKNOWN_ONCE, UNKNOWN_TWICE, UNKNOWN_TWICE),
        (UNKNOWN_TWICE, UNKNOWN_ONCE, UNKNOWN_TWICE),
        (KNOWN, UNKNOWN_TWICE, KNOWN),
        (UNKNOWN_TWICE, KNOWN, KNOWN),
        (KNOWN, StoredAnswer(0), KNOWN),
    ],
)
def test_a_known_answer_counts_before_an_unknown_one(old, new, best):
    assert better(old, new) == best


@pytest.mark.parametrize(
    "value", [{}, {"label": 4}, {"label": "1"}, {"label": 1, "p": [1]}, {"label": 0, "p": "x"}]
)
def test_foreign_objects_are_no_answers(value):
    assert StoredAnswer.from_json(value) is None


def test_get_finds_what_find_does_and_what_is_appended_later(tmp_path):
    index = AnswerStore(tmp_path, refresh_seconds=0.0)
    store = AnswerStore(tmp_path)
    assert index.get(key(0)) is None
    store.keep([(Question(key(0)), Answer(1, (0.25, 0.75), tokens=(5, 6, 0)))])
    assert index.get(key(0)) == StoredAnswer(1, (0.25, 0.75))
    store.keep([(Question(key(n)), Answer(n % 2)) for n in range(1, 500)])
    second_store = AnswerStore(tmp_path)
    second_store.keep([(Question(key(n)), Answer(n % 2)) for n in range(500, 600)])
    second_store.close()
    store.close()
    assert len(list(tmp_path.iterdir())) == 2
    keys = {key(n) for n in range(700)}
    answers = {k: index.get(k) for k in keys}
    assert {k: answer for k, answer in answers.items() if answer is not None} == store.find(keys)


def test_torn_and_damaged_lines_cost_one_answer_each(tmp_path):
    index = AnswerStore(tmp_path, refresh_seconds=0.0)
    lines = [encode_line(key(n), {"label": 0}) for n in range(4)]
    damaged = lines[1].replace(b'"label":0', b'"label":1')
    path = tmp_path / "host-0000.jsonl"
    path.write_bytes(lines[0] + damaged + lines[2][:30])
    assert [index.get(key(n)) for n in range(4)] == [StoredAnswer(0), None, None, None]
    with open(path, "ab") as file:
        file.write(lines[2][30:-1])
    assert index.get(key(2)) is None  # its end is still to come
    with open(path, "ab") as file:
        file.write(b"\n" + lines[3])
    assert [index.get(key(n)) for n in range(4)] == [
        StoredAnswer(0),
        None,
        StoredAnswer(0),
        StoredAnswer(0),
    ]


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_users_of_one_host_share_a_store():
    # Not in pytest's own folder, which other users may not enter.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        with contextlib.closing(AnswerStore(folder)) as store:
            store.keep([(Question("0" * 32, ("a", "b")), Answer(FIRST))])
        # Its imports first: others may not read every file of an environment.
        write = (
            "import os; from motif_jax.core.verdicts import SECOND; from motif_jax.motif.annotation.annotator import Answer, Question; "
            "from motif_jax.motif.annotation.store import AnswerStore; os.setuid(65534); "
            f"AnswerStore({folder!r}).keep([(Question('1' * 32, ('c', 'd')), Answer(SECOND))])"
        )
        subprocess.run([sys.executable, "-c", write], check=True)

        assert len(list(Path(folder).glob("*.jsonl"))) == 2
        answers = AnswerStore(folder).find({"0" * 32, "1" * 32})
        assert {key[0]: answer.label for key, answer in answers.items()} == {
            "0": FIRST,
            "1": SECOND,
        }


def test_numpys_numbers_are_stored(tmp_path):
    answer = Answer(
        np.int8(FIRST),
        tuple(np.float32([0.5, 0.25, 0.25])),
        tuple(np.int64([3, 1, 0])),
        mass=np.float32(0.5),
        cut=np.int64(1),
    )
    with contextlib.closing(AnswerStore(tmp_path)) as store:
        store.keep([(Question("0" * 32, ("a", "b")), answer)])

    assert AnswerStore(tmp_path).get("0" * 32) == StoredAnswer(FIRST, (0.5, 0.25, 0.25), 1, 0.5)
