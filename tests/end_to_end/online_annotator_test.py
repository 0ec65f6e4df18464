"""A server that is asked while an agent trains: one that behaves, one that is killed and comes back, and ones that misbehave."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from motif_jax.datasets.verdicts import PAIR, SINGLE
from motif_jax.labels import online
from motif_jax.labels.label_service import LabelService
from motif_jax.labels.lexicon import LexiconJudge, load_lexicon
from motif_jax.sections.agents import agent_config
from motif_jax.support.errors import UserError
from tests.end_to_end.served_lexicon import serve_lexicon
from tests.processes import ended, free_port, wait_until
from tests.reward_fixtures import load_config

KILLS = [f"You kill the newt!  You see here {n} daggers." for n in range(40)]
PLAIN = [f"You see here {n} daggers." for n in range(2, 40)]


@pytest.fixture
def make(tmp_path):
    made = []

    def make(url, form=SINGLE, start=True, **values):
        openai = {"base_url": url, "model": "judge", "timeout_seconds": 60.0, "concurrency": 4}
        given = {f"annotator.openai.{key}": value for key, value in openai.items()}
        given |= {"annotator.kind": "openai", "annotator.store_dir": str(tmp_path / "store")}
        given |= {"annotator.wait_seconds": 120.0, **{key.replace("__", "."): x for key, x in values.items()}}
        config = agent_config(load_config("oni", "", given))
        online.check(config, form)
        source = LabelService(config, form)
        made.append(source)
        if start:
            source.start()
        return source

    yield make
    for source in made:
        source.close()


def ask(source, *texts):
    source.enqueue([(text,) for text in texts], [1] * len(texts), None, 0)


def answers(source, count, seconds=500.0):
    told = []
    wait_until(lambda: told.extend(source.poll()) or len(told) >= count, "labels", seconds, 0.01)
    return {entry.items: entry for entry in told}


@pytest.mark.parametrize("form", [SINGLE, PAIR])
@pytest.mark.parametrize(
    "mode", [{"mode": "analysis"}, {"mode": "soft"}, {"mode": "verdict", "structured": "response_format"}]
)
def test_the_served_lexicon_answers_like_the_lexicon(make, lexicon_url, form, mode):
    values = {"annotator__answer__mode": mode["mode"], "annotator__goal": "gold"}
    values["annotator__openai__structured"] = mode.get("structured", "structured_outputs")
    source = make(
        lexicon_url, form, annotator__openai__model="lexicon", annotator__prompt__version="reworded", **values
    )
    texts = ["$ - 24 gold pieces.", "You kill the newt!", "", 'It\'s a "wall".', "You find a hidden door."]
    items = [(text,) for text in texts] if form is SINGLE else [(a, b) for a in texts for b in texts]
    source.enqueue(items, [1] * len(items), None, 0)
    told = answers(source, len(items))
    judge = LexiconJudge(load_lexicon(), "gold")
    expected = {item: judge.answer(*item) for item in items}
    assert {item: entry.label for item, entry in told.items()} == {
        item: a.label for item, a in expected.items()
    }
    if mode["mode"] == "soft" and form is SINGLE:
        for item, entry in told.items():
            assert entry.probability == pytest.approx(expected[item].probabilities[1], abs=1e-6)
    assert source.metrics()["annotator/tokens"] > 0


def test_a_server_that_is_killed_and_comes_back_costs_no_label(make, tmp_path):
    port = free_port()
    # So slow that it is killed before it has answered all.
    first = serve_lexicon(tmp_path / "first", port, latency_seconds=0.5)
    with ended([first]):
        source = make(f"http://127.0.0.1:{port}/v1", annotator__openai__model="lexicon")
        ask(source, *KILLS)
        told = answers(source, 3)
        first.send(signal.SIGKILL)
        wait_until(
            lambda: told.update(answers(source, 0)) or not source.metrics()["annotator/server_up"],
            "it is missed",
        )
        ask(source, *PLAIN)
        assert source.metrics()["annotator/queued"] > 0
    second = serve_lexicon(tmp_path / "second", port)
    with ended([second]):
        told |= answers(source, len(KILLS) + len(PLAIN) - len(told))
        figures = source.metrics()
    assert {entry.label for (text,), entry in told.items() if text in KILLS} == {1}
    assert {text for (text,) in told} == {*KILLS, *PLAIN}
    assert figures["annotator/server_up"] == 1
    assert figures["annotator/failures"] > 0
    assert figures["annotator/questions"] == len(told) + 1  # and the one at the start


def hang(number, request):
    time.sleep(1.0)
    return 200, {}


FAULTS = {
    "never answers": hang,
    "500": lambda number, request: (500, {"error": "engine dead"}),
    "HTML": lambda number, request: (200, "<html>It works!</html>"),
    "cut off": lambda number, request: (200, b'HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{"choices": ['),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_after_the_first_answer_is_told_and_what_failed_is_asked_again(make, server, fault):
    source = make(server.url, annotator__openai__timeout_seconds=0.4)
    down = threading.Event()
    down.set()
    server.behave = lambda number, request: FAULTS[fault](number, request) if down.is_set() else None
    texts = KILLS[:6] + PLAIN[:2]
    ask(source, *texts)
    wait_until(lambda: not source.metrics()["annotator/server_up"], "the fault is told", interval=0.02)
    assert source.poll() == []
    down.clear()
    told = answers(source, len(texts))
    assert {text: entry.label for (text,), entry in told.items()} == {
        text: int(text in KILLS) for text in texts
    }
    figures = source.metrics()
    assert figures["annotator/server_up"] == 1
    assert figures["annotator/failures"] > 0
    assert figures["annotator/questions"] == len(texts) + 1


def test_a_server_that_is_away_is_left_alone_between_batches_as_published(make, server):
    source = make(server.url, compat__oni_requeue=True, queue__batch=2)
    server.behave = lambda number, request: (500, {"error": "boom"})
    before = len(server.requests)
    ask(source, *KILLS[:2])
    wait_until(lambda: len(server.requests) > before + 3, "it is asked again")
    time.sleep(0.3)
    assert len(server.requests) <= before + 6
    server.behave = lambda number, request: None
    assert len(answers(source, 2)) == 2


@pytest.mark.parametrize(
    ("behave", "told"),
    [
        (lambda n, r: (404, {"error": "x"}), r"does not know config.annotator.openai.model=judge"),
        (lambda n, r: (401, {"error": "x"}), r"refuses the key of the environment variable OPENAI_API_KEY"),
        (lambda n, r: (200, "<html>It works!</html>"), r"returns rubbish"),
        (hang, r"hangs: no answer within 0.4 s"),
    ],
)
def test_a_fault_before_the_first_answer_ends_the_start_with_one_line(make, server, behave, told):
    server.behave = behave
    # Where an answer is to come, a busy machine may take its time.
    timeout = 0.4 if behave is hang else 60.0
    source = make(
        server.url, start=False, annotator__wait_seconds=0.2, annotator__openai__timeout_seconds=timeout
    )
    with pytest.raises(UserError, match=told) as error:
        source.start()
    assert "\n" not in str(error.value)


def test_a_silent_server_holds_up_no_end_and_what_it_owes_is_asked_again(make, server):
    free = threading.Event()
    source = make(server.url, annotator__openai__timeout_seconds=3600.0)
    server.behave = lambda number, request: free.wait(3600) and None
    ask(source, *KILLS[:2])
    wait_until(lambda: len(server.requests) > 2, "they are asked")
    state = source.state()
    source.close()
    assert not {thread.name for thread in threading.enumerate()} & {"annotator", "openai"}
    free.set()
    again = make(server.url, start=False)
    again.restore(state)
    again.start()
    assert {text for (text,) in answers(again, 2)} == set(KILLS[:2])


def test_a_greeting_takes_the_place_of_a_question_that_was_answered(make, server):
    make(server.url).close()
    before = len(server.requests)
    source = make(server.url)
    assert len(server.requests) == before + 1
    assert server.requests[-1]["max_tokens"] == 1
    assert source.metrics()["annotator/questions"] == 0
