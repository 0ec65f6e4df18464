"""The annotator's own process: real ones, really killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from motif_jax.annotation import online, supervised
from motif_jax.annotation.annotator import Annotator, Answer
from motif_jax.annotation.store import AnswerStore
from motif_jax.datasets.verdicts import PAIR, SINGLE, YES
from motif_jax.support.checked_lines import read_lines
from motif_jax.support.errors import UserError
from motif_jax.support.interruption import StoppedError
from tests.processes import Program, ended, processes_with, small_disk, still_there, wait_until


class Slow(Annotator):
    """Says yes after a while."""

    forms = (SINGLE, PAIR)
    at_once = 4
    identity = {"annotator": "slow"}
    short_name = "slow"
    seconds = 0.02

    def __init__(self, config, form, dataset=None):
        pass

    def annotate(self, questions):
        for place, question in enumerate(questions):
            if "never" in question.items[0]:
                time.sleep(3600)
            if "die" in question.items[0]:
                os._exit(3)
            if "raise" in question.items[0]:
                raise ZeroDivisionError("a fault of its own")
            if "refuse" in question.items[0]:
                raise UserError("config.vllm.model=x: it answers no more")
            time.sleep(self.seconds)
            yield place, Answer(YES, prompt_tokens=3)


class Broken(Slow):
    """Cannot be started."""

    def start(self):
        raise UserError("config.vllm.model=x: there is no such thing")


class Loading(Slow):
    """Starts for an hour."""

    def start(self):
        time.sleep(3600)


class Dying(Slow):
    """Dies while it starts."""

    def start(self):
        os._exit(5)


def make_config(folder, kind="Slow", **values):
    config = online.default_config()
    config.compat = ConfigDict({})
    config.annotator.kind = f"{__name__}:{kind}" if kind[0].isupper() else kind
    config.annotator.store_dir = str(folder / "store")
    for name, value in values.items():
        config.update_from_flattened_dict({name.replace("__", "."): value})
    online.check(config, SINGLE)
    return config


@pytest.fixture
def make(tmp_path):
    made = []

    def make(kind="Slow", form=SINGLE, start=True, **values):
        source = online.make_source(make_config(tmp_path, kind, **values), form)
        made.append(source)
        if start:
            source.start()
        return source

    yield make
    for source in made:
        source.close()


def meet(source, *names):
    source.meet([(name,) for name in names], [1] * len(names), None, 0)


def labelled(source, count, seconds=240.0):
    """The next `count` labels."""
    told = []
    wait_until(lambda: told.extend(source.poll()) or len(told) >= count, "labels", seconds, 0.01)
    return sorted(entry.item[0] for entry in told)


def test_labels_come_from_a_process_that_has_no_jax_and_ends_with_its_source(make):
    source = make("lexicon")
    first = source.metrics()
    meet(source, *(f"You kill the newt {n}!" for n in range(300)))
    assert len(labelled(source, 300)) == 300
    figures = source.metrics()
    assert list(figures) == list(first)
    assert (figures["annotator/answers"], figures["annotator/in_flight"]) == (301, 0)  # one at the start
    assert figures["annotator/server_up"] == 1
    assert 0 < figures["annotator/megabytes"] < 100
    assert "jaxlib" not in Path(f"/proc/{source.pid}/maps").read_text()
    pid = source.pid
    source.close()
    assert not still_there({pid})


def test_one_question_is_answered_before_the_start_ends(make, tmp_path):
    make(form=PAIR)
    (path,) = (tmp_path / "store").iterdir()
    assert len(list(read_lines(path))) == 1


def test_known_labels_are_told_at_once(make):
    source = make()
    meet(source, "a", "b")
    labelled(source, 2)
    source.close()
    again = make()
    assert sorted(entry.item for entry in again.known([("a",), ("c",), ("b",)])) == [("a",), ("b",)]
    assert again.metrics()["annotator/questions"] == 0
    meet(again, "a", "c")
    assert labelled(again, 1) == ["c"]


def test_a_killed_process_is_started_again_and_nothing_is_lost(make):
    source = make()
    names = [f"{n}" for n in range(60)]
    meet(source, *names)
    told = labelled(source, 5)
    before = source.pid
    os.kill(before, signal.SIGKILL)
    told += labelled(source, 60 - len(told))
    assert sorted(told) == sorted(names)
    # All may have been answered before the kill.
    wait_until(lambda: source.metrics()["annotator/restarts"], "it is started again")
    figures = source.metrics()
    assert figures["annotator/restarts"] == 1
    assert figures["annotator/questions"] <= 61 + 4  # what was in flight, and the one at the start
    # It is counted before the new process is there.
    wait_until(lambda: source.pid != before, "a new process")
    assert not still_there({before})
    wait_until(lambda: source.metrics()["annotator/server_up"] == 1, "it is up again")


@pytest.mark.slow
def test_a_process_that_hangs_is_ended_and_started_again(make, monkeypatch):
    # On a busy machine a process that is well may be taken for one that hangs, too: it may be started often.
    monkeypatch.setattr(supervised, "_HANG_SECONDS", 1.0)
    source = make(annotator__openai__timeout_seconds=0.1, annotator__restarts=100)
    meet(source, "a")
    assert labelled(source, 1) == ["a"]
    before = source.pid
    os.kill(before, signal.SIGSTOP)
    meet(source, "b", "c")
    assert sorted(labelled(source, 2)) == ["b", "c"]
    assert source.metrics()["annotator/restarts"] >= 1
    assert not still_there({before})
    # Nor does a look into the store wait for ever.
    before = source.pid
    os.kill(before, signal.SIGSTOP)
    assert [entry.item for entry in source.known([("a",), ("never met",)])] == [("a",)]
    assert not still_there({before})


@pytest.mark.parametrize(("name", "cause"), [("die", "exit code 3"), ("raise", "a fault of its own")])
def test_a_process_that_dies_too_often_ends_the_run_with_its_cause(make, name, cause):
    source = make(annotator__restarts=1)
    meet(source, "fine", name)
    with pytest.raises(
        UserError, match=rf"died 2 times within an hour.*{cause}.*config.annotator.restarts=1"
    ):
        labelled(source, 3)
    with pytest.raises(UserError, match="died 2 times"):
        meet(source, "more")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("raise", "died 2 times within an hour, at last by ZeroDivisionError: a fault of its own"),
        ("refuse", r"^config.annotator.vllm.model=x: it answers no more$"),
    ],
)
def test_the_last_words_of_a_process_are_heard_though_it_was_being_asked_more(make, monkeypatch, name, told):
    source = make(start=False, annotator__restarts=1)
    source._deaths.append(time.monotonic())  # another one may not die
    tell = source._tell

    def tell_when_it_has_ended():
        tell()
        if source.in_flight():
            source._process.wait()
            meet(source, "more")
            tell()

    monkeypatch.setattr(source, "_tell", tell_when_it_has_ended)
    source.start()
    source.meet([("fine",), (name,)], [2, 1], None, 0)
    with pytest.raises(UserError, match=told):
        labelled(source, 3)
    # What it had answered before was heard as well.
    assert source.metrics()["annotator/answers"] == 2  # with the one at the start


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("Broken", r"^config.annotator.vllm.model=x: there is no such thing$"),
        ("Dying", "while it started: exit code 5"),
    ],
)
def test_a_fault_before_the_first_answer_ends_the_start(make, kind, told):
    source = make(kind, start=False)
    with pytest.raises(UserError, match=told):
        source.start()
    assert not still_there({source.pid})


def test_a_start_that_waits_ends_when_it_is_asked_to(make):
    source = make("Loading", start=False)
    asked = iter((False, True))
    with pytest.raises(StoppedError):
        source.start(lambda: next(asked))
    assert not still_there({source.pid})


def test_a_full_disk_ends_the_run_with_one_line(make, tmp_path):
    with small_disk(tmp_path / "store", 4096):
        source = make()
        meet(source, *(f"{n}" for n in range(120)))
        with pytest.raises(UserError, match=r"cannot be written: No space left.*is kept"):
            labelled(source, 121)
        source.close()


def test_a_python_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"config.annotator.python='python9': must be a program"):
        make_config(tmp_path, annotator__python="python9")


def test_what_waits_goes_through_a_checkpoint(make):
    source = make(queue__budget__questions=3)
    source.meet([("a",), ("b",), ("c",), ("d",)], [4, 3, 2, 1], None, 5)
    assert labelled(source, 2) == ["a", "b"]
    state = source.state()
    source.close()
    again = make(start=False)
    again.restore(state)
    again.start()
    assert labelled(again, 2) == ["c", "d"]


TRAINING = """
import sys, time
from pathlib import Path
from tests.annotation.supervised_test import make_config, meet
from motif_jax.annotation import online, supervised
from motif_jax.datasets.verdicts import SINGLE

source = online.make_source(make_config(Path(sys.argv[1])), SINGLE)
source.start()
meet(source, *(f"{n}" for n in range(100)))
told = 0
while told < 100:
    told += len(source.poll())
    print(told, flush=True)
    time.sleep(0.01)
print("all", int(source.metrics()["annotator/questions"]))
source.close()
"""


@pytest.mark.slow
def test_a_killed_training_leaves_no_process_and_asks_nothing_again_but_what_was_in_flight(tmp_path):
    def run(log):
        return Program(
            [sys.executable, "-c", TRAINING, str(tmp_path)], tmp_path / log, {"TRAINED": str(tmp_path)}
        )

    program = run("first")
    with ended([program]):
        wait_until(lambda: len(program.text().split()) > 20, "labels")
        program.send(signal.SIGKILL)
        program.wait()
        wait_until(lambda: not processes_with("TRAINED", str(tmp_path)), "all of it has ended", 90)
    kept = len(AnswerStore(tmp_path / "store").find(_Everything()))
    assert kept >= int(program.text().split()[-1])
    program = run("second")
    with ended([program]):
        assert program.wait() == 0
        questions = int(program.text().split()[-1])
    assert kept + questions == 101
    lines = sum(len(list(read_lines(path))) for path in (tmp_path / "store").iterdir())
    assert lines == 101


class _Everything(frozenset):
    def __contains__(self, item):
        return True
