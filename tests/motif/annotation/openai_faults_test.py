"""Faults of servers: which are tried again, which leave a question without an answer, which end the
run, and that none shows the key.
"""

from __future__ import annotations

import json
from concurrent.futures import Future

import aiohttp
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import SINGLE, UNKNOWN, YES
from motif_jax.motif.annotation.annotator import ServerError, check_annotator
from tests.motif.annotation.scripted_server import ASKED, GOOD, KEY, config, reply

pytestmark = pytest.mark.slow

# Further than anything is shown.
OFFSETS = range(420)


@pytest.fixture
def ask(server):
    """Asks a question that gets such a reply."""
    asking = {mode: server.start(**{"answer.mode": mode}) for mode in ("analysis", "soft")}

    def ask(status, body, headers=(), mode="analysis"):
        server.replies[:] = [(status, body, headers)]
        return asking[mode].submit(ASKED).result()

    return ask


@pytest.fixture
def tried(server):
    """Asks questions one after the other of an annotator that tries each five times."""

    def tried(*replies, mode="analysis", questions=1):
        annotator = server.start(**{"openai.retries": 4, "answer.mode": mode})
        server.replies[:] = replies
        answers = []
        for _ in range(questions):
            answers += [answer for _, answer in filter(None, annotator.annotate([ASKED]))]
        return annotator, answers

    return tried


WELL = (200, reply(GOOD))


def test_what_may_pass_is_tried_again_with_growing_pauses(tried, server):
    faults = [(500, "dead"), (200, "<html>"), (429, "slow down"), (408, "")]
    annotator, answers = tried(*faults, WELL)
    assert [answer.label for answer in answers] == [YES]
    # About 1, 2, 4 and 8 seconds.
    for pause, around in zip(server.pauses, (1, 2, 4, 8), strict=True):
        assert 0.5 * around <= pause <= 1.5 * around
    causes = {"HTTP 500": 1, "rubbish": 1, "HTTP 429": 1, "HTTP 408": 1}
    assert annotator.summary()["retry_causes"] == causes
    assert annotator.live()["last_for"] == "HTTP 408"


def test_the_fifth_failure_ends_the_annotation(tried, server):
    with pytest.raises(
        ServerError, match=r"answers with HTTP 500 \(dead\); everything answered so far is kept"
    ):
        tried(*[(500, "dead")] * 5)
    assert len(server.requests) == 5


def test_a_server_that_asks_to_wait_gets_its_pause(tried, server):
    annotator, answers = tried(
        (429, "", {"Retry-After": "8"}), (429, "", {"Retry-After": "30"}), WELL
    )
    assert len(answers) == 1
    assert sum(server.pauses) == pytest.approx(38, abs=0.01)
    assert annotator.quiet_seconds() == 0


def test_a_server_that_asks_for_hours_ends_the_annotation(tried, server):
    with pytest.raises(ServerError, match=r"asks to wait 2 h;"):
        tried((503, "", {"Retry-After": "7200"}))
    assert server.pauses == []


OTHER_LIMIT = (400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
MOST_TOKENS = (400, "max_tokens is too large: 4096, this model writes at most 2048 tokens")
TOO_LARGE = (400, "max_tokens is too large: the maximum context length is 8")


def limits_of(server):
    return {name: limit for name, limit in server.requests[-1].items() if name.startswith("max_")}


def test_a_limit_of_another_name_is_sent_from_then_on(tried, server):
    _, answers = tried(OTHER_LIMIT, WELL, WELL, questions=2)
    assert len(answers) == 2
    assert len(server.requests) == 3
    assert limits_of(server) == {"max_completion_tokens": 4096}


def test_a_request_resent_with_another_limit_counts_once(server, monkeypatch):
    annotator = server.start()
    server.replies[:] = [OTHER_LIMIT, WELL]
    answered = server.post
    in_flight = []

    async def post(request):
        in_flight.append(annotator.live()["in_flight"])
        return await answered(request)

    monkeypatch.setattr(server, "post", post)
    annotator.submit(ASKED).result()

    assert in_flight == [1, 1]


def test_a_limit_in_extra_body_counts(server):
    annotator = server.start(**{"openai.extra_body": '{"max_completion_tokens": 9}'})
    server.replies[:] = [OTHER_LIMIT, WELL]
    annotator.submit(ASKED).result()
    assert limits_of(server) == {"max_completion_tokens": 9}


@pytest.mark.parametrize("refusal", [TOO_LARGE, MOST_TOKENS], ids=["context", "answer"])
def test_a_too_large_limit_is_left_to_the_server(tried, server, refusal):
    """Of this request alone, and of those that repeat it."""
    _, answers = tried(refusal, (500, "dead"), WELL, WELL, questions=2)
    assert [answer.label for answer in answers] == [YES, YES]
    limits = [request.get("max_tokens") for request in server.requests]
    assert limits == [4096, None, None, 4096]


def test_a_too_long_prompt_without_a_limit_has_no_answer(tried):
    _, answers = tried(TOO_LARGE, WELL, TOO_LARGE, TOO_LARGE, questions=2)
    assert [answer.note for answer in answers] == ["", "prompt too long for the model"]
    assert answers[1].label == UNKNOWN


def test_a_verdicts_small_limit_is_not_what_is_too_large(tried, server):
    _, answers = tried(TOO_LARGE, mode="verdict")
    assert answers[0].note == "prompt too long for the model"
    assert limits_of(server) == {"max_tokens": 64}


REFUSALS = [(status, "flagged by moderation") for status in (400, 403, 422)]


@pytest.mark.parametrize(
    "refusal", [(200, reply("?", finish_reason="content_filter")), *REFUSALS], ids=str
)
def test_a_question_that_the_filter_refuses_has_no_answer(tried, refusal):
    annotator, answers = tried(refusal)
    assert (answers[0].label, answers[0].note) == (
        UNKNOWN,
        "refused by the server's content filter",
    )
    assert annotator.summary()["refused"] == 1


def test_a_server_that_refuses_every_question_ends_the_annotation(tried):
    with pytest.raises(
        ServerError, match=r"refused all 32 questions by its content filter \(flagged"
    ):
        tried(*REFUSALS * 14, questions=40)


def test_a_server_that_has_answered_may_refuse_the_rest(tried):
    annotator, answers = tried(WELL, *REFUSALS * 13, questions=40)
    assert [answer.label for answer in answers] == [YES, *[UNKNOWN] * 39]
    assert annotator.summary()["refused"] == 39


REFUSES = (
    r"refuses a request for config\.openai\.model=judge with the key of OPENAI_API_KEY by HTTP"
)


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ((400, "a\nb" + "x" * 400), "", rf"{REFUSES} 400 \(a bx{{200,300}}\)"),
        ((400, "no 'top_p' here"), "", rf"{REFUSES} 400 \(no 'top_p' here\)"),
        ((401, "who?"), "", rf"{REFUSES} 401 \(who\?\)"),
        ((404, "no judge"), "", rf"{REFUSES} 404 \(no judge\)"),
        ((418, "too long"), "", rf"{REFUSES} 418"),
        (
            (308, "", {"Location": "https://me:word@other/v1/chat/completions"}),
            "",
            rf"{REFUSES} 308 \(redirects to https://other/v1/chat/completions\)",
        ),
        ((200, "[]"), "rubbish", r"returned a malformed reply \(no choices in the reply \[\]"),
        ((599, "dead"), "HTTP 599", r"answers with HTTP 599 \(dead\)"),
        ((409, ""), "HTTP 409", r"answers with HTTP 409;"),
        ((425, ""), "HTTP 425", r"answers with HTTP 425;"),
        ((TimeoutError(), ""), "no answer in time", r"did not answer within 600 s;"),
        (
            (aiohttp.ServerDisconnectedError(), ""),
            "no connection",
            r"cannot be reached \(ServerDisconnectedError\)",
        ),
    ],
    ids=str,
)
def test_a_servers_fault_is_one_line_that_quotes_it(ask, monkeypatch, fault, kind, words):
    """One of a kind may pass, so that an online annotator tries again."""
    with pytest.raises(ServerError, match=words) as caught:
        ask(*fault)
    assert caught.value.kind == kind
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("the server http://127.0.0.1:8000/v1 ")
    assert "word" not in str(caught.value)


def test_a_request_without_a_key_is_refused_as_such(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    annotator = server.start()
    server.replies[:] = [(401, "who?")]
    with pytest.raises(ServerError, match=r"with no key by HTTP 401 \(who\?\)"):
        annotator.submit(ASKED).result()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"openai.base_url": "judge:8000/v1"},
            r"config\.openai\.base_url=.*: must be a URL such as",
        ),
        (
            {"openai.extra_body": '{"model": "other"}'},
            r"config\.openai\.extra_body=.*without model, messages, n and stream",
        ),
        ({"openai.extra_body": '{"n": 4}'}, r"config\.openai\.extra_body=.*of one whole answer"),
        (
            {"openai.extra_body": '{"stream": true}'},
            r"config\.openai\.extra_body=.*one whole answer",
        ),
    ],
)
def test_values_that_no_server_takes_are_refused(values, words):
    with pytest.raises(UserError, match=words):
        check_annotator(config(**values), SINGLE)


def test_a_line_end_behind_a_key_is_no_fault(monkeypatch):
    monkeypatch.setenv("ONE_LINE", "a\n")
    check_annotator(config(**{"openai.key_variable": "ONE_LINE", "sampling.top_k": -1}), SINGLE)


# Every place of a reply that is shown where something is wrong: status, body, headers, mode.
FAULTS = {
    "no JSON": lambda text: (200, text),
    "no choices": lambda text: (200, json.dumps({"error": text})),
    "no text": lambda text: (200, reply([text])),
    "no log-probabilities": lambda text: (200, reply("", logprobs={"content": [{"token": text}]}), (), "soft"),
    "too likely": lambda text: (200, reply("", logprobs={"content": [{"token": text, "top_logprobs": [{"token": "yes", "logprob": 709}]}]}), (), "soft"),
    "401": lambda text: (401, text),
    "500": lambda text: (500, text),
    "escaped": lambda text: (400, json.dumps(text).replace("/", "\\/").replace("Z", "\\u005A")),
    "moved": lambda text: (308, "", {"Location": f"https://other/{text}"}),
    "moved, escaped": lambda text: (308, "", {"Location": f"https://other/{text}".replace("%", "%25").replace("/", "%2F")}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_no_part_of_the_key_is_shown(ask, fault):
    parts = ["".join(part) for part in zip(*(KEY[offset:] for offset in range(4)), strict=False)]
    # Blanks are taken out of what is shown, so that what is behind many comes to its front.
    for before in (*("x" * offset for offset in OFFSETS), "\n" * 9990):
        with pytest.raises(ServerError) as caught:
            ask(*FAULTS[fault](before + KEY))
        assert not [part for part in parts if part in str(caught.value) + caught.value.cause], len(
            before
        )


def test_no_key_is_kept_with_a_conversation(ask):
    for offset in OFFSETS:
        answer = ask(200, reply("x" * offset + f'{KEY}\n("good_news": "Yes")'))
        assert answer.label == YES
        assert KEY not in str(answer)
    assert "x***" in answer.text


def test_nothing_that_a_server_says_steers_the_terminal(ask):
    text = "\x1b]0;owned\x07\x9b2J\u202e"
    for response in ((500, text), (308, "", {"Location": f"http://{text}"}), (200, reply([text]))):
        with pytest.raises(ServerError, match="owned") as caught:
            ask(*response)
        assert str(caught.value).isprintable()
        assert "everything answered so far is kept" in str(caught.value)
        assert caught.value.cause.isprintable()


def test_answers_that_arrived_before_a_fault_are_handed_on(server, monkeypatch) -> None:
    annotator = server.start(**{"openai.concurrency": 8})

    def submit(question, retries):
        future = Future()
        if question == 1:
            future.set_exception(ServerError("it broke", ""))
        else:
            future.set_result(f"answer {question}")
        return future

    monkeypatch.setattr(annotator, "submit", submit)
    answers = []
    with pytest.raises(ServerError, match="it broke"):
        answers.extend(annotator.annotate(range(8)))

    assert sorted(answers) == [(number, f"answer {number}") for number in (0, 2, 3, 4, 5, 6, 7)]
