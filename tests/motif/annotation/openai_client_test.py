"""What one question to a server becomes: the key is never shown or kept, and nothing that a server says is more than an answer."""

from __future__ import annotations

import asyncio
import copy
import json
from types import SimpleNamespace

import pytest

from motif_jax.core.verdicts import FIRST, SECOND, SINGLE, UNKNOWN, YES
from motif_jax.motif.annotation import chat, openai_client
from motif_jax.motif.annotation.annotator import Question, check_annotator, make_annotator
from motif_jax.motif.annotation.chat_client import ChatClient, NoConnectionError
from motif_jax.motif.annotation.replies import ServerError
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text
from tests.reward_fixtures import annotation_config

KEY = "sk-Zq/8Xw0Vb5%Kj7Tn"
ASKED = Question("0" * 32, ("You kill the newt!",), SINGLE)
# Further than anything is shown.
OFFSETS = range(420)
GOOD = '("good_news": "Yes")'


def config(**values):
    return annotation_config({"annotator": "openai", "openai.model": "judge", "openai.retries": 0, **values})


def reply(content, tokens=None, **more):
    counts = tokens and {"prompt_tokens": 100 + tokens, "completion_tokens": tokens}
    return json.dumps({"choices": [{"message": {"content": content}, **more}], "usage": counts})


@pytest.fixture
def server(monkeypatch):
    """Starts annotators whose server says `replies` one after the other; notes requests, and pauses of its own clock."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    told, now, started = SimpleNamespace(requests=[], pauses=[], replies=[]), [100.0], []

    async def post(self, request):
        told.requests.append(copy.deepcopy(dict(request)))
        status, body, *headers = told.replies.pop(0)
        if isinstance(status, Exception):
            raise status
        return SimpleNamespace(status=status, headers=dict(*headers)), body.encode()

    async def sleep(seconds):
        told.pauses.append(round(seconds, 3))
        now[0] += seconds

    def start(**values):
        started.append(make_annotator(config(**values), SINGLE))
        started[-1].start()
        return started[-1]

    monkeypatch.setattr(ChatClient, "_post", post)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(openai_client, "time", SimpleNamespace(monotonic=lambda: now[0]))
    told.start = start
    yield told
    for one in started * 2:  # the second time there is nothing to do
        one.close()


@pytest.fixture
def ask(server):
    """Asks a question that gets such a reply."""
    asking = {mode: server.start(**{"answer.mode": mode}) for mode in ("analysis", "soft")}

    def ask(status, body, headers=(), mode="analysis"):
        server.replies[:] = [(status, body, headers)]
        return asking[mode].submit(ASKED).result()

    return ask


SURE = [{"token": "Yes", "logprob": -0.5, "top_logprobs": [{"token": "Yes", "logprob": -0.5}]}]
ASKING = {
    "analysis": {
        "openai.extra_body": '{"x": 1}',
        "openai.prices.completion": 8.0,
        "openai.prices.prompt": 2.0,
    },
    "verdict": {"answer.mode": "verdict", "openai.send_seed": False, "openai.prices.cached": 0.5},
    "schema": {
        "answer.mode": "verdict",
        "openai.structured": "response_format",
        "sampling.temperature": 0.0,
        "openai.send_top_k": False,
    },
    "soft": {"answer.mode": "soft"},
}


def test_what_is_sent_and_what_the_answers_become(server, record):
    parts = {}
    for mode, values in ASKING.items():
        annotator = server.start(**values)
        server.requests, server.replies = (
            [],
            [(200, reply(text, n, logprobs={"content": SURE})) for n, text in enumerate((None, GOOD, ""))],
        )
        found = [annotator.submit(ASKED).result(), annotator.ping().result(), annotator.live()]
        found += [annotator.prices, annotator.identity, annotator.concurrency]
        found += [server.requests, annotator.preview(ASKED)]
        parts[mode] = json.dumps(found, default=str, indent=1)
    assert_matches_packed_recording("openai_requests", parts, record)


REFUSED, WELL = [(status, "flagged by moderation") for status in (400, 403, 422)], (200, reply(GOOD))
OTHER_LIMIT = (400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
TOO_LARGE = (400, "max_tokens is too large: the maximum context length is 8")
COURSES = {
    "may pass": [
        (500, "dead"),
        (200, "<html>"),
        (429, "slow down", {"retry-after": "8"}),
        (408, ""),
        WELL,
        *[(500, "dead")] * 5,
    ],
    "waits": [*[(503, "", {"retry-after": "3600"})] * 5, (503, "", {"retry-after": "7200"}), WELL],
    "limits": [WELL, OTHER_LIMIT, WELL, TOO_LARGE, WELL, TOO_LARGE, OTHER_LIMIT],
    "verdict": [TOO_LARGE, (400, "max_tokens cannot be greater than 8"), OTHER_LIMIT, WELL],
    "refuses all": [(200, reply("?", finish_reason="content_filter")), *REFUSED * 10, *REFUSED[:2]],
    "refuses most": [WELL, *REFUSED * 11],
}


@pytest.mark.parametrize("course", COURSES)
def test_a_server_in_the_course_of_time(server, course, record):
    """Each question is tried five times, after about 1, 2, 4, 8 seconds, but not while the server wants no requests."""
    mode = course if course == "verdict" else "analysis"
    annotator, lines = server.start(**{"openai.retries": 4, "answer.mode": mode}), []
    server.replies += COURSES[course]
    while server.replies:
        answers = outcome_text(
            lambda: [(place, a.label, a.note) for place, a in filter(None, annotator.annotate([ASKED]))]
        )
        limits = {name: most for name, most in server.requests[-1].items() if name.startswith("max_")}
        lines += [f"{answers} {limits} {len(server.requests)} {server.pauses} {annotator.quiet_seconds()}"]
        lines += [f"{annotator.live()} {annotator.summary()}"]
    assert_matches_packed_recording(f"openai_{course}".replace(" ", "_"), {"lines": "\n".join(lines)}, record)


LASTING = [
    (308, "", {"location": "https://me:word@other/v1/chat/completions"}),
    (301, ""),
    (401, "who?"),
    (403, "no"),
    (404, "no judge"),
    (404, "content filter"),
    (400, "a\nb" + "x" * 300),
    (418, "too long"),
    (200, "[]"),
    (300, ""),
    (599, "dead"),
    (600, "late"),
    (409, ""),
    (425, ""),
    (429, ""),
    (TimeoutError(), ""),
    (NoConnectionError("nobody"), ""),
    (503, "", {"retry-after": "7200"}),
]
WRONG = [
    {"openai.base_url": "judge:8000/v1"},
    {"openai.model": ""},
    {"openai.extra_body": '{"model": "other"}'},
    {"openai.extra_body": "[1]"},
    {"openai.key_variable": "TWO_LINES"},
    {"sampling.top_k": 0},
    {"sampling.top_k": -1, "openai.key_variable": "ONE_LINE"},
    {"sampling.top_k": 1},
]


def test_a_fault_is_one_line(ask, monkeypatch, record):
    lines = []
    for fault in LASTING:
        with pytest.raises(ServerError) as caught:
            ask(*fault)
        lines += [f"{fault[0]} {caught.value.kind!r}: {caught.value}"]
    monkeypatch.setenv("TWO_LINES", "a\nb")
    monkeypatch.setenv("ONE_LINE", "a\n")
    lines += [
        outcome_text(lambda values=values: check_annotator(config(**values), SINGLE)) for values in WRONG
    ]
    assert_matches_packed_recording("openai_faults", {"said": "\n".join(lines)}, record)


# Every place of a reply that is shown where something is wrong: status, body, headers, mode.
FAULTS = {
    "no JSON": lambda said: (200, said),
    "no choices": lambda said: (200, json.dumps({"error": said})),
    "no text": lambda said: (200, reply([said])),
    "no log-probabilities": lambda said: (200, reply("", logprobs={"content": [{"token": said}]}), (), "soft"),
    "too likely": lambda said: (200, reply("", logprobs={"content": [{"token": said, "top_logprobs": [{"token": "yes", "logprob": 709}]}]}), (), "soft"),
    "401": lambda said: (401, said),
    "500": lambda said: (500, said),
    "escaped": lambda said: (400, json.dumps(said).replace("/", "\\/").replace("Z", "\\u005A")),
    "moved": lambda said: (308, "", {"location": f"https://other/{said}"}),
    "moved, escaped": lambda said: (308, "", {"location": f"https://other/{said}".replace("%", "%25").replace("/", "%2F")}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_no_part_of_the_key_is_shown(ask, fault):
    parts = ["".join(part) for part in zip(*(KEY[place:] for place in range(4)), strict=False)]
    # Blanks are taken out of what is shown, so that what is behind many comes to its front.
    for before in (*("x" * offset for offset in OFFSETS), "\n" * 9990):
        with pytest.raises(ServerError) as caught:
            ask(*FAULTS[fault](before + KEY))
        assert not [part for part in parts if part in str(caught.value) + caught.value.cause], len(before)


def test_no_key_is_kept_with_a_conversation(ask):
    for offset in OFFSETS:
        answer = ask(200, reply("x" * offset + f'{KEY}\n("good_news": "Yes")'))
        assert answer.label == YES
        assert KEY not in str(answer)
    assert "x***" in str(answer.turns)


def test_nothing_that_a_server_says_steers_the_terminal(ask):
    said = "\x1b]0;owned\x07\x9b2J\u202e"
    for said_so in ((500, said), (308, "", {"location": f"http://{said}"}), (200, reply([said]))):
        with pytest.raises(ServerError, match="owned") as caught:
            ask(*said_so)
        assert str(caught.value).isprintable()
        assert "everything answered so far is kept" in str(caught.value)
        assert caught.value.cause.isprintable()


def pair_asked(server, *replies, **values):
    """The answer to a question about two texts from a server that gives these replies."""
    annotator = make_annotator(config(**values))
    annotator.start()
    server.replies[:] = [(200, body) if isinstance(body, str) else body for body in replies]
    try:
        return annotator.submit(Question("0" * 32, ("a", "b"))).result()
    finally:
        annotator.close()


ONE, TWO = '("best_description": "1")', '("best_description": "2")'


@pytest.mark.parametrize(
    "reason", ["length", "max_tokens", "MAX_TOKENS", "model_length", "insufficient_system_resource"]
)
def test_a_cut_answer_has_no_verdict_and_is_asked_again(server, reason):
    answer = pair_asked(
        server, reply(f"If it were {ONE} then", finish_reason=reason), reply(TWO, finish_reason="stop")
    )
    assert (answer.label, answer.cut, answer.retried) == (SECOND, 1, True)


def test_an_answer_cut_twice_is_unknown_and_says_so(server):
    cut = reply(f"<think>It may be {ONE}", finish_reason="length")
    answer = pair_asked(server, cut, cut)
    assert (answer.label, answer.cut, answer.note) == (UNKNOWN, 2, chat.CUT)


def test_reasoning_that_a_server_does_not_call_cut_is_told_from_an_answer(server):
    answer = pair_asked(
        server, reply(f"<think>It may be {ONE}", finish_reason="stop"), **{"answer.retry": False}
    )
    assert (answer.label, answer.cut, answer.note) == (UNKNOWN, 1, chat.UNFINISHED)


def test_a_server_that_reports_a_cut_answer_as_an_error_leaves_it_unknown(server):
    text = "Could not finish the message because max_tokens or model output limit was reached."
    answer = pair_asked(server, (400, text))
    assert (answer.label, answer.cut, answer.note) == (UNKNOWN, 1, chat.CUT)


def test_published_rules_read_cut_answers(server):
    cut = reply(ONE, finish_reason="length")
    answer = pair_asked(server, cut, **{"compat.answer_first_match": True})
    assert (answer.label, answer.cut) == (FIRST, 1)


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_an_empty_answer_is_not_sent_back(server, content):
    answer = pair_asked(server, reply(content), reply(ONE))
    *_, again = server.requests
    assert answer.label == FIRST
    assert [turn["role"] for turn in again["messages"]] == ["system", "user"]
    assert all(turn["content"].strip() for turn in again["messages"])
    assert again["messages"][-1]["content"].startswith(server.requests[0]["messages"][-1]["content"].rstrip())


def test_reasoning_is_not_sent_back(server):
    pair_asked(server, reply("<think>hm</think>Neither."), reply(ONE))
    assert server.requests[-1]["messages"][-2] == {"role": "assistant", "content": "Neither."}


def test_parts_of_an_answer_are_joined_without_those_that_reason(server):
    thoughts = {"type": "thinking", "thinking": [{"type": "text", "text": ONE}]}
    answer = pair_asked(server, reply([thoughts, {"type": "text", "text": TWO}]))
    assert answer.label == SECOND


@pytest.mark.parametrize("mode", ["analysis", "verdict", "soft"])
def test_fields_that_are_none_are_not_sent(server, mode):
    choice = {"content": "1"} if mode != "soft" else {"content": "1", "logprobs": {"content": SURE_OF_ONE}}
    pair_asked(
        server, reply(**choice), **{"answer.mode": mode, "sampling.temperature": None, "sampling.top_p": None}
    )
    assert not {"temperature", "top_p"} & server.requests[0].keys()


SURE_OF_ONE = [{"token": "1", "logprob": -0.1, "top_logprobs": [{"token": "1", "logprob": -0.1}]}]


def test_a_verdict_has_its_own_limit(server):
    pair_asked(server, reply(ONE), **{"answer.mode": "verdict", "sampling.verdict_tokens": 2000})
    assert server.requests[0]["max_tokens"] == 2000


@pytest.mark.parametrize(
    ("field", "remedy"),
    [
        ("top_p", "config.sampling.top_p=None"),
        ("temperature", "config.sampling.temperature=None"),
        ("seed", "config.openai.send_seed=False"),
    ],
)
def test_a_refused_field_names_the_key_that_leaves_it_out(ask, field, remedy):
    with pytest.raises(ServerError, match=f"set {remedy}"):
        ask(400, f"Unsupported parameter: '{field}' is not supported with this model.")
