"""A server that is asked while an agent trains: one that behaves, one that is killed and comes
back, and one that is silent.
"""

from __future__ import annotations

import signal
import sys
import threading

import pytest

from motif_jax.core.verdicts import PAIR, SINGLE
from motif_jax.oni import label_service as online
from motif_jax.oni.label_service import LabelService
from motif_jax.rl.config import agent_config
from tests.processes import Program, ended, free_port, wait_until
from tests.reward_fixtures import load_config
from tests.tiny_judge import good, rule

KILLS = [f"You kill the newt!  You see here {n} daggers." for n in range(40)]
PLAIN = [f"You see here {n} daggers." for n in range(2, 40)]


@pytest.fixture
def make(tmp_path):
    annotators = []

    def make(url, form=SINGLE, start=True, **values):
        openai = {"base_url": url, "model": "judge", "timeout_seconds": 60.0, "concurrency": 4}
        settings = {f"annotator.openai.{key}": value for key, value in openai.items()}
        settings |= {"annotator.kind": "openai", "annotator.store_dir": str(tmp_path / "store")}
        settings |= {
            "annotator.wait_seconds": 120.0,
            **{key.replace("__", "."): x for key, x in values.items()},
        }
        config = agent_config(load_config("oni", "", settings))
        online.check(config, form)
        source = LabelService(config, form)
        annotators.append(source)
        if start:
            source.start()
        return source

    yield make
    for source in annotators:
        source.close()


def ask(source, *texts):
    source.enqueue([(text,) for text in texts], [1] * len(texts), None, 0)


def answers(source, count, seconds=500.0):
    lines = []
    wait_until(lambda: lines.extend(source.poll()) or len(lines) >= count, "labels", seconds, 0.01)
    return {entry.items: entry for entry in lines}


@pytest.mark.parametrize("form", [SINGLE, PAIR])
@pytest.mark.parametrize(
    "mode",
    [{"mode": "analysis"}, {"mode": "soft"}, {"mode": "verdict", "structured": "response_format"}],
)
def test_a_server_is_asked_in_every_mode(make, server, form, mode):
    values = {"annotator__answer__mode": mode["mode"]}
    values["annotator__openai__structured"] = mode.get("structured", "structured_outputs")
    source = make(server.url, form, **values)
    texts = [
        "$ - 24 gold pieces.",
        "You kill the newt!",
        "",
        'It\'s a "wall".',
        "You find a hidden door.",
    ]
    pairs = [(first, second) for first in texts for second in texts]
    items = [(text,) for text in texts] if form is SINGLE else pairs
    source.enqueue(items, [1] * len(items), None, 0)

    labels = answers(source, len(items))

    judge = good if form is SINGLE else rule
    assert {item: entry.label for item, entry in labels.items()} == {
        item: int(judge(*item)) for item in items
    }
    if mode["mode"] == "soft" and form is SINGLE:
        # The server gives .8 to its verdict and .1 to the other.
        for (text,), entry in labels.items():
            assert entry.probability == pytest.approx(8 / 9 if good(text) else 1 / 9, abs=1e-6)
    assert source.metrics()["annotator/tokens"] > 0


def serve(log, port, seconds):
    """A server in a process of its own, which takes some seconds for an answer."""
    arguments = [sys.executable, "-m", "tests.chat_server", str(port), str(seconds)]
    return Program(arguments, log, {})


def test_a_server_that_restarts_costs_no_label(make, tmp_path):
    port = free_port()
    # So slow that it is killed before it has answered all.
    first = serve(tmp_path / "first", port, 0.5)
    with ended([first]):
        source = make(f"http://127.0.0.1:{port}/v1")
        ask(source, *KILLS)
        labels = answers(source, 3)
        first.send(signal.SIGKILL)
        wait_until(
            lambda: (
                labels.update(answers(source, 0)) or not source.metrics()["annotator/server_up"]
            ),
            "it is missed",
        )
        ask(source, *PLAIN)
        assert source.metrics()["annotator/queued"] > 0
    second = serve(tmp_path / "second", port, 0.0)
    with ended([second]):
        labels |= answers(source, len(KILLS) + len(PLAIN) - len(labels))
        figures = source.metrics()
    assert {entry.label for (text,), entry in labels.items() if text in KILLS} == {1}
    assert {text for (text,) in labels} == {*KILLS, *PLAIN}
    assert figures["annotator/server_up"] == 1
    assert figures["annotator/failures"] > 0
    assert figures["annotator/questions"] == len(labels) + 1  # and the one at the start


def test_a_silent_server_delays_no_end_and_is_asked_again(make, server):
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


def test_a_greeting_replaces_a_question_that_was_answered(make, server):
    make(server.url).close()
    before = len(server.requests)
    source = make(server.url)
    assert len(server.requests) == before + 1
    assert server.requests[-1]["max_tokens"] == 1
    assert source.metrics()["annotator/questions"] == 0
