"""The openai annotator against a server that behaves well, badly, or not at all."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import socket
import subprocess
import threading
import time

import numpy as np
import pytest

from motif_jax.annotation.annotator import check_annotator, make_annotator
from motif_jax.annotation.conversations import read_conversations
from motif_jax.annotation.prompts import MODES
from motif_jax.annotation.session import Session
from motif_jax.annotation.store import AnswerStore
from motif_jax.benchmarks._tiny_judge import good, message, pair, rule
from motif_jax.datasets.verdicts import NO, SINGLE, UNKNOWN, YES
from motif_jax.support.errors import UserError
from tests.chat_server import Server
from tests.end_to_end.annotate_datasets import (
    REPOSITORY,
    annotate,
    command,
    expected,
    get_config,
    run_stage,
    summary,
    write_dataset,
)

NAME = "judge_msg_defaultgoal_default"
KEY = "sk-a-secret-that-nobody-may-see"


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def dataset(tmp_path):
    rng = random.Random(4)
    return write_dataset(tmp_path / "dataset", [pair(rng) for _ in range(120)])


@pytest.fixture
def run(server, dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def run(**values):
        fixed = {"annotator": "openai", "openai__base_url": server.url, "openai__model": "judge"}
        fixed |= {"openai__retries": 1, "openai__concurrency": 8, "flush_seconds": 0.1}
        assert run_stage(dataset, tmp_path / "run", tmp_path / "store", **{**fixed, **values}) == 0
        return summary(tmp_path / "run")

    return run


def labels(dataset, name=NAME):
    return np.load(dataset / "preference" / f"{name}.npy")


@pytest.mark.parametrize("mode", ["analysis", pytest.param("verdict", marks=pytest.mark.slow), "soft"])
def test_labels_follow_the_server(run, server, dataset, mode, tmp_path):
    server.met.clear()
    done = run(answer__mode=mode, keep_conversations=True)
    assert (labels(dataset) == expected(dataset, rule)).all()
    assert done["asked"] == len(server.requests)
    assert done["prompt_tokens"] == 100 * done["asked"]
    assert 1 < server.most <= 8
    request = server.requests[0]
    assert (request["temperature"] == 0) == (mode == "soft")
    assert ("structured_outputs" in request) == (mode == "verdict")
    if mode == "soft":
        assert request["messages"][-1]["content"] == '("best_description": "'
        assert request["continue_final_message"] is True
        probabilities = np.load(dataset / "annotations" / NAME / "probabilities.npy")
        winner = probabilities[labels(dataset) == 0][0]
        np.testing.assert_allclose(winner, [0.8, 0.1, 0.1], rtol=1e-5)
        assert done["mean_verdict_mass"] == pytest.approx(1)
    else:
        assert len({one["seed"] for one in server.requests}) == len(server.requests)
    # The key goes to the server and nowhere else.
    assert server.keys == {f"Bearer {KEY}"}
    for path in [*tmp_path.rglob("*.json"), *tmp_path.rglob("*.jsonl")]:
        assert KEY not in path.read_text()
    (kept,) = (tmp_path / "run" / "conversations").glob("*.gz")
    talks = list(read_conversations(kept))
    assert len(talks) == done["asked"]
    assert talks[0]["turns"][0]["role"] == "system"


@pytest.mark.parametrize("mode", MODES)
def test_single_messages(server, tmp_path, mode):
    """Questions about one message with two verdicts, as a service asks them."""
    rng = random.Random(5)
    texts = [message(rng, number % 2 == 0) for number in range(40)]
    config = get_config()
    config.annotator, config.openai.base_url, config.openai.model = "openai", server.url, "judge"
    config.answer.mode = mode
    check_annotator(config, SINGLE)
    with Session(make_annotator(config, SINGLE), tmp_path / "store", SINGLE) as session:
        questions = {text: session.question(text) for text in texts}
        answers = session.ask(list(questions.values()))
        assert {text: answers[question.id].label for text, question in questions.items()} == {
            text: YES if good(text) else NO for text in questions
        }
    request = server.requests[0]
    if mode == "verdict":
        assert request["structured_outputs"]["choice"] == ['("good_news": "No")', '("good_news": "Yes")']
    elif mode == "soft":
        assert request["messages"][-1]["content"] == '("good_news": "'
        assert all(answer.probabilities[answer.label] == pytest.approx(8 / 9) for answer in answers.values())
    assert AnswerStore(tmp_path / "store").find(answers) == answers


def test_retry_turn_and_unknown_alone(run, server, dataset):
    def hesitate(number, request):
        turns = request["messages"]
        if "fountain" in turns[1]["content"] and len(turns) < 4:
            return 200, {
                "choices": [
                    {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hm."}}
                ]
            }
        return None

    server.behave = hesitate
    alone = run(answer__retry=False, name="alone")
    unknown = labels(dataset, "alone") == 3
    assert unknown.any()
    assert alone["merged"]["unknown"] == unknown.sum()
    assert np.isnan(np.load(dataset / "annotations" / "alone" / "probabilities.npy")[unknown]).all()
    # The same command asks nothing; one more attempt asks the unknown ones alone.
    assert run(answer__retry=False, name="alone")["asked"] == 0
    server.behave = lambda number, request: None
    again = run(answer__retry=False, name="alone", attempts=2)
    assert 0 < again["asked"] < 40
    assert again["unknown_share"] == 0
    assert (labels(dataset, "alone") == expected(dataset, rule)).all()
    server.behave = hesitate
    retried = run()
    assert retried["retried_share"] > 0
    assert (labels(dataset) == expected(dataset, rule)).all()


def reply(text, **more):
    """The body of a reply."""
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": message, **more}]}


FILTERED = {
    "error": {
        "message": "The response was filtered due to the prompt triggering the content management policy.",
        "code": "content_filter",
        "innererror": {"code": "ResponsibleAIPolicyViolation"},
    }
}


@pytest.mark.parametrize("refusal", [(400, FILTERED), (200, reply("", finish_reason="content_filter"))])
def test_a_server_that_refuses_everything_ends_the_run(run, server, refusal):
    server.behave = lambda number, request: refusal
    with pytest.raises(UserError, match="refused all of 32 questions by their content"):
        run()


@pytest.mark.parametrize(
    "refusal",
    [
        (400, FILTERED),
        (403, {"error": {"message": "Your input was flagged by moderation."}}),
        (200, reply(None, finish_reason="content_filter")),
    ],
)
def test_a_question_that_a_content_filter_refuses_is_unknown_and_counted(run, server, dataset, refusal):
    def behave(number, request):
        return refusal if "newt" in "".join(server.captions(request)) else None

    server.behave = behave
    done = run(keep_conversations=True)
    assert done["finished"]
    assert 0 < done["refused"] < done["asked"]
    assert done["unknown_notes"] == {"refused by the server's content filter": done["refused"]}
    got, messages = labels(dataset), np.load(dataset / "data" / "message.npy")[:, :, 0]
    newt = np.array([b"newt" in first.tobytes() + second.tobytes() for first, second in messages])
    want = expected(dataset, rule)
    equal = (messages[:, 0] == messages[:, 1]).all(-1)
    assert (got == np.where(newt & ~equal, UNKNOWN, want)).all()


@pytest.mark.slow
def test_retry_after_is_kept_by_all(run, server, dataset):
    waits = {3: ("Retry-After", "1"), 30: ("retry-after-ms", "700")}

    def behave(number, request):
        return (429, "{}", waits[number]) if number in waits else None

    server.behave = behave
    done = run(openai__retries=3, openai__concurrency=1)
    # Nobody asks in the time that the server wanted for itself.
    assert server.times[3] - server.times[2] >= 1
    assert server.times[30] - server.times[29] >= 0.7
    assert done["retries"] == 2
    assert done["retry_causes"] == {"HTTP 429": 2}
    assert (labels(dataset) == expected(dataset, rule)).all()


def test_too_long_a_wait_ends_the_run(run, server):
    server.behave = lambda number, request: (429, "{}", ("Retry-After", "7200"))
    with pytest.raises(UserError, match=r"asks to wait 2 h .*the same command goes on"):
        run(openai__retries=3)


@pytest.mark.slow
def test_a_server_that_bears_little_is_asked_less_at_a_time(run, server, dataset):
    refused = []

    def behave(number, request):
        if server._running > 2:
            refused.append(number)
            return 503, "{}"
        return None

    server.behave = behave
    done = run(openai__retries=10, openai__concurrency=8)
    assert done["retries"] == len(refused) > 0
    assert done["retry_causes"].keys() == {"HTTP 503"}
    assert 1 <= done["in_flight_limit"] <= 8
    assert (labels(dataset) == expected(dataset, rule)).all()


def test_what_answers_cost(run, server, tmp_path, capsys):
    prices = {"openai__prices__prompt": 2.0, "openai__prices__completion": 8.0}
    done = run(**prices)
    assert done["cost"] == pytest.approx(done["asked"] * (100 * 2 + 5 * 8) / 1e6)
    run(**prices, dry_run=True)
    assert re.search(r"cost +about 0\.00, by config.openai.prices", capsys.readouterr().out)


def test_half_a_character_is_no_fault_of_the_server(run, server, dataset):
    """JSON may hold a lone surrogate, which nothing can be sent with: neither retry nor conversation breaks."""

    def behave(number, request):
        return (200, reply("Hm. \ud83d")) if len(request["messages"]) < 4 else None

    server.behave = behave
    done = run(keep_conversations=True)
    assert done["retried_share"] == 1
    assert server.requests[-1]["messages"][2]["content"] == "Hm. \ufffd"
    assert (labels(dataset) == expected(dataset, rule)).all()


def test_a_hanging_server_keeps_no_session_from_its_end(server, tmp_path):
    server.met.clear()  # the one request that comes is held
    config = get_config()
    config.annotator, config.openai.base_url, config.openai.model = "openai", server.url, "judge"
    config.openai.concurrency = 1
    session = Session(make_annotator(config, SINGLE), tmp_path / "store", SINGLE)
    thread = threading.Thread(target=session.ask, args=([session.question("a"), session.question("b")],))
    thread.start()
    while not server.requests:
        time.sleep(0.01)
    session.close()
    thread.join(60)
    assert not thread.is_alive()
    assert not server.met.is_set()
    server.met.set()


@pytest.mark.slow
def test_a_stop_is_heard_while_a_server_hangs(server, dataset, tmp_path):
    server.met.clear()  # the one request that comes is held
    flags = [
        "annotator=openai",
        f"openai.base_url={server.url}",
        "openai.model=judge",
        "openai.concurrency=1",
    ]
    line = command(dataset, tmp_path / "run", tmp_path / "store", *(f"--config.{flag}" for flag in flags))
    process = subprocess.Popen(line, cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    while not server.requests:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    # The request itself would take ten minutes, and the server holds it for one.
    assert process.wait(50) == 75
    assert not server.met.is_set()
    server.met.set()


def test_a_failure_leaves_a_summary(run, server, tmp_path):
    server.behave = lambda number, request: (500, "{}") if number > 20 else None
    with pytest.raises(UserError, match="HTTP 500") as caught:
        run()
    assert caught.value.__cause__ is not None
    left = summary(tmp_path / "run")
    assert not left["finished"]
    assert left["retries"] >= 1
    assert left["retry_causes"].keys() == {"HTTP 500"}
    assert left["asked"] == 20


def test_soft_labels_of_a_server_without_log_probabilities(run, server):
    server.behave = lambda number, request: (200, reply("1"))
    with pytest.raises(UserError, match=r"config\.answer\.mode=soft needs"):
        run(answer__mode="soft")


def test_both_orders_show_position_bias(run, server, dataset):
    def always_first(number, request):
        body = server.judge(request)
        body["choices"][0]["message"]["content"] = '("best_description": "1")'
        return 200, body

    server.behave = always_first
    done = run(orders="both")
    assert done["merged"]["position_bias"]["first_share"] == 1
    assert done["merged"]["position_bias"]["consistent"] == 0
    assert (labels(dataset) == 2).all()


def test_faults_that_pass_are_waited_for(run, server, dataset):
    server.behave = lambda number, request: (
        (503, "{}") if number == 3 else (429, "{}") if number == 9 else None
    )
    done = run(openai__retries=3)
    assert len(server.requests) == done["asked"] + 2
    assert (labels(dataset) == expected(dataset, rule)).all()


CASES = {
    "http 500": (lambda n, r: (500, '{"error": "boom"}'), "answers with HTTP 500"),
    "html": (lambda n, r: (200, "<html>gateway</html>"), "returns rubbish"),
    "json": (lambda n, r: (200, {"choices": []}), "returns rubbish"),
    "other json": (lambda n, r: (200, [1, 2]), "returns rubbish"),
    "not a text": (lambda n, r: (200, {"choices": [{"message": {"content": [1]}}]}), "returns rubbish"),
    "hangs": (lambda n, r: time.sleep(8), "hangs: no answer within 3 s"),
    "key": (lambda n, r: (401, {"error": {"message": f"no such key {KEY}"}}), "refuses the key"),
    "model": (lambda n, r: (404, "{}"), "does not know config.openai.model=judge"),
    "request": (lambda n, r: (400, '{"error": "no such field"}'), "refuses the request"),
}


@pytest.mark.parametrize(
    "case",
    [case if case in ("http 500", "json") else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
)
def test_a_bad_server_is_one_line_and_all_answers_are_kept(run, server, dataset, case):
    bad, said = CASES[case]
    server.behave = lambda number, request: bad(number, request) if number > 40 else None
    with pytest.raises(UserError, match=said) as caught:
        # Where nothing hangs, an answer of a busy machine is never too late.
        run(openai__timeout_seconds=3.0 if case == "hangs" else 100.0)
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)
    assert server.url in str(caught.value)
    server.behave = lambda number, request: None
    done = run()
    assert done["store_hits"] >= 32
    assert done["asked"] + done["store_hits"] == done["questions"]
    assert (labels(dataset) == expected(dataset, rule)).all()


def test_a_prompt_that_is_too_long_is_unknown(run, server, dataset):
    long = {"error": {"message": "This model's maximum context length is 10 tokens."}}
    server.behave = lambda number, request: (400, long) if number == 5 else None
    done = run()
    assert done["unknown_notes"] == {"prompt too long for the model": 1}
    assert (labels(dataset) == 3).sum() >= 1


@pytest.mark.parametrize(
    "said",
    [
        "'max_tokens' is too large: 4096. The maximum context length is 4096 tokens.",
        "max_tokens=4096 cannot be greater than max_model_len=512. Please request fewer output tokens.",
    ],
)
def test_an_answer_longer_than_the_context_is_left_to_the_server(run, server, dataset, said):
    refusal = {"error": {"message": said}}
    server.behave = lambda number, request: (400, refusal) if "max_tokens" in request else None
    assert run()["answer_limit"] == "the server's own"
    assert (labels(dataset) == expected(dataset, rule)).all()


UNSUPPORTED = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


@pytest.mark.parametrize("mode", ["analysis", "verdict"])
def test_a_server_with_another_name_for_the_answer_limit_is_given_that(run, server, dataset, mode):
    refusal = (400, {"error": {"message": UNSUPPORTED}})
    server.behave = lambda number, request: refusal if "max_tokens" in request else None
    done = run(answer__mode=mode)
    assert done["answer_limit"] == "max_completion_tokens"
    assert (labels(dataset) == expected(dataset, rule)).all()
    limits = {
        request.get("max_completion_tokens") for request in server.requests if "max_tokens" not in request
    }
    assert limits == {request["max_tokens"] for request in server.requests if "max_tokens" in request}


def test_an_answer_limit_may_have_another_name_and_still_be_too_large(run, server, dataset):
    large = "'max_tokens' or 'max_completion_tokens' is too large: 4096. The maximum context length is 4096 tokens."

    def behave(number, request):
        said = (
            UNSUPPORTED if "max_tokens" in request else large if "max_completion_tokens" in request else None
        )
        return said and (400, {"error": {"message": said}})

    server.behave = behave
    assert run()["answer_limit"] == "the server's own"
    assert (labels(dataset) == expected(dataset, rule)).all()


@pytest.mark.parametrize(
    "said", ["max_tokens: must be an integer", "max_tokens is refused, as is max_completion_tokens"]
)
def test_a_refused_answer_limit_is_not_left_out_in_silence(run, server, said):
    limited = ("max_tokens", "max_completion_tokens")
    refusal = (400, {"error": {"message": said}})
    server.behave = lambda number, request: refusal if any(name in request for name in limited) else None
    with pytest.raises(UserError, match=f"refuses the request with HTTP 400 .*{said}"):
        run()


def test_a_server_that_is_down_is_one_line(dataset, tmp_path):
    with socket.socket() as deaf:  # nobody listens on it, and nobody else can meanwhile
        deaf.bind(("127.0.0.1", 0))
        flags = [
            "annotator=openai",
            f"openai.base_url=http://127.0.0.1:{deaf.getsockname()[1]}/v1",
            "openai.model=m",
            "openai.retries=1",
        ]
        flags = [f"--config.{flag}" for flag in flags]
        done = annotate(dataset, tmp_path / "run", tmp_path / "store", *flags)
    assert done.returncode == 2
    error = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(error) == 1
    assert "cannot be reached" in error[0]
    # What it tried meanwhile is told.
    assert re.search(r"retries \d+  last for no connection", done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"openai__base_url": "127.0.0.1"}, "config.openai.base_url"),
        ({"openai__model": ""}, "config.openai.model"),
        ({"openai__extra_body": "[1]"}, "config.openai.extra_body"),
        ({"openai__concurrency": 0}, "config.openai.concurrency"),
        ({"answer__mode": "loud"}, "config.answer.mode"),
        (
            {"goal": "peace"},
            "config.goal=peace: must be one of defaultgoal, zeroknowledge, combat, gold, stairs",
        ),
        ({"prompt__file": "nowhere.yaml"}, "nowhere.yaml cannot be read"),
        ({"sampling__top_k": 0}, "config.sampling.top_k"),
    ],
)
def test_bad_values(run, server, values, said):
    with pytest.raises(UserError, match=said):
        run(**values)
    assert not server.requests


def test_dry_run_asks_nothing(run, server, tmp_path, capsys):
    with contextlib.suppress(FileNotFoundError):
        run(dry_run=True, measured_rate=10.0)
    said = capsys.readouterr().out
    assert '{"description_1": ' in said
    assert "[system]" in said
    assert re.search(r"questions +\d+ distinct", said)
    assert "at 10.00 questions/s" in said
    assert not server.requests
