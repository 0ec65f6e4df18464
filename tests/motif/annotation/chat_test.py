"""What annotators by language models share: labels of log-probabilities, and what is said to be
sent back.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, PAIR, SECOND, SINGLE, TIE, UNKNOWN, YES
from motif_jax.motif.annotation.annotator import (
    Annotator,
    Question,
    make_annotator,
    with_annotator_defaults,
)
from motif_jax.motif.annotation.chat import without_surrogates
from tests.reward_fixtures import annotation_config

REPOSITORY = Path(__file__).parents[3]


def openai(**values):
    return annotation_config({"annotator": "openai", "openai.model": "m", **values})


@pytest.mark.parametrize(
    ("version", "key"), [("default", "config.prompt.file"), ("small", ""), ("minigrid", "")]
)
def test_a_prompt_says_whether_it_is_about_nethack(version: str, key: str) -> None:
    assert make_annotator(openai(**{"prompt.version": version})).nethack_key == key


def seeds(**values):
    annotator = make_annotator(openai(**values), PAIR)
    questions = [Question("a" * 32, ("x", "y"), attempt=attempt) for attempt in (0, 1)]
    return [annotator.seed(annotator.open(question)) for question in questions]


def test_each_attempt_has_a_seed_of_its_own():
    first, second = seeds()
    assert first != second
    assert seeds() == [first, second]
    assert seeds(seed=3) != [first, second]


def test_a_seed_has_at_most_31_bits():
    assert all(0 <= seed < 2**31 for seed in [*seeds(), *seeds(seed=3)])


@pytest.mark.parametrize(
    "values",
    [
        {"sampling.temperature": 0.0, "answer.retry": False},
        {"answer.mode": "soft"},
    ],
)
def test_answers_that_draw_nothing_have_no_seed(values):
    assert seeds(**values) == [None, None]


def identity(**values):
    return make_annotator(openai(**values), PAIR).identity


@pytest.mark.parametrize(
    "values",
    [
        {"openai.model": "other"},
        {"goal": "gold"},
        {"prompt.version": "reworded"},
        {"answer.mode": "verdict"},
        {"answer.retry": False},
        {"sampling.temperature": 0.0},
        {"seed": 3},
        {"compat.answer_first_match": True},
        {"compat.oni_label_anywhere": True},
    ],
    ids=str,
)
def test_the_identity_holds_what_an_answer_depends_on(values):
    assert identity(**values) != identity()


def test_soft_answers_are_known_by_how_they_are_read() -> None:
    soft = identity(**{"answer.mode": "soft"})
    assert soft["parsing"] == "token_probabilities"
    assert soft["reading"] == {
        "version": 1,
        "prefill": '("best_description": "',
        "request": {"max_tokens": 2, "logprobs": True, "top_logprobs": 20},
    }
    # The rules for texts read no probabilities.
    for rule in ("answer_first_match", "oni_label_anywhere"):
        assert identity(**{"answer.mode": "soft", f"compat.{rule}": True}) == soft
    assert "reading" not in identity()


@pytest.mark.parametrize(
    "values", [{"openai.retries": 1}, {"openai.concurrency": 3}, {"openai.base_url": "http://x/v1"}]
)
def test_the_servers_address_is_no_part_of_the_identity(values):
    assert identity(**values) == identity()


def test_an_annotation_is_called_by_model_goal_and_prompt():
    names = {
        "m_msg_defaultgoal_default": {},
        "m_msg_minbl_defaultgoal_default": {"captions.status": True},
        "m_minbl_defaultgoal_default": {"captions.status": True, "captions.messages": False},
        "m_msg_gold_reworded": {"prompt.version": "reworded", "goal": "gold"},
    }
    for name, values in names.items():
        assert make_annotator(openai(**values), PAIR).short_name == name


def soft_answer(masses, **values):
    form = PAIR if len(masses) == 3 else SINGLE
    annotator = make_annotator(openai(**{"answer.mode": "soft", **values}), form)
    dialogue = annotator.open(Question("a" * 32, ("text",) * len(form.items), form))
    return annotator.answer_from_log_probabilities(
        dialogue, [math.log(mass) if mass else -math.inf for mass in masses]
    )


@pytest.mark.parametrize(
    ("masses", "label"),
    [
        ((0.5, 0.2, 0.1), FIRST),
        ((0.1, 0.2, 0.1), SECOND),
        ((0.1, 0.2, 0.3), TIE),
        ((0.25, 0.125, 0.25), TIE),
        ((0.0, 0.5, 0.0), SECOND),
        ((0.025, 0.025, 0.0), TIE),
        ((0.7, 0.2, 0.2), FIRST),
        ((0.0, 0.25), YES),
        ((0.25, 0.25), UNKNOWN),
    ],
)
def test_a_soft_answer_is_the_share_of_each_verdict(masses, label):
    answer = soft_answer(masses)
    assert answer.probabilities == pytest.approx([mass / sum(masses) for mass in masses])
    assert answer.label == label
    assert answer.mass == pytest.approx(min(sum(masses), 1.0))


@pytest.mark.parametrize("masses", [(0.01, 0.01, 0.02), (0.0, 0.0)])
def test_verdicts_of_little_probability_are_no_answer(masses):
    answer = soft_answer(masses)
    assert (answer.label, answer.probabilities) == (UNKNOWN, None)
    assert answer.note == "the verdicts have little probability"


def test_halves_of_characters_are_replaced():
    assert without_surrogates("\ud83d\ude00 é a\ud83db\udc00") == "\U0001f600 é a\ufffdb\ufffd"


class OllamaServer(HTTPServer):
    """Speaks Ollama's protocol on a free port; its model says `texts` one after the other."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), OllamaHandler)
        self.texts = texts
        self.requests: list[dict[str, Any]] = []


class OllamaHandler(BaseHTTPRequestHandler):
    server: OllamaServer

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.requests.append({"path": self.path, **json.loads(self.rfile.read(length))})
        text = self.server.texts.pop(0)
        reply = json.dumps(
            {"message": {"role": "assistant", "content": text}, "done_reason": "stop"}
        )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(reply.encode())

    def log_message(self, *arguments: object) -> None:
        """Writes nothing to the tests' output."""


@pytest.fixture
def ollama() -> Iterator[OllamaServer]:
    server = OllamaServer(
        ['("best_description": "2")', "I cannot say.", '("best_description": "1")']
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def documented_judge(port: int, monkeypatch: pytest.MonkeyPatch) -> Annotator:
    """The judge of docs/annotation.md, which asks a server at `port`."""
    page = (REPOSITORY / "docs/annotation.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (example,) = (code for code in examples if "ChatAnnotator" in code)
    scope: dict[str, Any] = {}
    exec(example, scope)
    monkeypatch.setenv("OLLAMA_HOST", f"http://127.0.0.1:{port}")
    config = with_annotator_defaults(
        annotation_config({"options": json.dumps({"model": "llama3.2"})})
    )
    judge: Annotator = scope["Ollama"](config, PAIR, None)
    return judge


def test_the_documented_judge_asks_a_second_time_without_a_verdict(
    ollama: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = documented_judge(ollama.server_port, monkeypatch)
    questions = [Question("a" * 32, ("x", "y")), Question("b" * 32, ("z", "y"))]

    answers = dict(judge.annotate(questions))

    assert [answers[position].label for position in (0, 1)] == [SECOND, FIRST]
    assert [answers[position].retried for position in (0, 1)] == [False, True]
    assert {request["path"] for request in ollama.requests} == {"/api/chat"}
    assert [len(request["messages"]) for request in ollama.requests] == [2, 2, 4]


def test_the_documented_judge_names_a_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = documented_judge(1, monkeypatch)

    with pytest.raises(
        UserError, match=r"127\.0\.0\.1:1/api/chat: .* start the server, or set OLLAMA_HOST"
    ):
        dict(judge.annotate([Question("a" * 32, ("x", "y"))]))


def test_a_moved_server_is_the_same_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    identities = [documented_judge(port, monkeypatch).identity for port in (1, 2)]

    assert identities[0] == identities[1]
