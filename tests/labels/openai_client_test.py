"""What one question to a server becomes: the key is never shown or kept, and nothing that a server says is more than an answer."""

from __future__ import annotations

import asyncio
import copy
import json
from types import SimpleNamespace

import pytest

from motif_jax.datasets.verdicts import SINGLE, UNKNOWN, YES
from motif_jax.labels import openai_client
from motif_jax.labels.annotator import Question, check_annotator, make_annotator
from motif_jax.labels.chat_client import ChatClient, NoConnectionError
from motif_jax.labels.replies import ServerError
from tests.labels.said import said
from tests.recorded_outputs import compared
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
    "analysis": {"openai.extra_body": '{"x": 1}', "openai.prices.completion": 8.0, "openai.prices.prompt": 2.0},
    "verdict": {"answer.mode": "verdict", "openai.send_seed": False, "openai.prices.cached": 0.5},
    "schema": {"answer.mode": "verdict", "openai.structured": "response_format", "sampling.temperature": 0.0, "openai.send_top_k": False},
    "soft": {"answer.mode": "soft"},
}  # fmt: skip


def test_what_is_sent_and_what_the_answers_become(server, record):
    parts = {}
    for mode, values in ASKING.items():
        annotator = server.start(**values)
        server.requests, server.replies = [], [(200, reply(text, n, logprobs={"content": SURE})) for n, text in enumerate((None, GOOD, ""))]  # fmt: skip
        found = [annotator.submit(ASKED).result(), annotator.ping().result(), annotator.live()]
        found += [annotator.prices, annotator.identity, annotator.concurrency, server.requests]
        parts[mode] = json.dumps(found, default=str, indent=1)
    compared("openai_requests", parts, record)


def test_what_may_pass_is_tried_again_later_and_later_but_not_while_the_server_wants_no_requests(server):
    annotator = server.start(**{"openai.retries": 4})
    wait = (429, "slow down", {"retry-after": "8"})
    server.replies += [(500, "dead"), (200, "<html>"), wait, (408, ""), (200, reply(GOOD))]
    ((place, answer),) = filter(None, annotator.annotate([ASKED]))
    assert (place, answer.label) == (0, YES)
    # 1, 2, 4, 8 seconds, up to a quarter more or less by the question; of the 8 that the server wants, some are left.
    assert server.pauses == (pauses := [1.188, 1.871, 3.609, 4.391, 8.446])
    causes = {"HTTP 500": 1, "rubbish": 1, "HTTP 429": 1, "HTTP 408": 1}
    counts = {"retries": 4, "retry_causes": causes, "refused": 0, "answer_limit": "max_tokens"}
    assert annotator.summary() == counts
    assert annotator.live() == {"in_flight": 0, "retries": 4, "last_for": "HTTP 408"}
    server.replies += [(500, "dead")] * 5
    with pytest.raises(ServerError, match="HTTP 500") as caught:
        list(annotator.annotate([ASKED]))
    assert (caught.value.kind, len(server.requests), server.pauses[5:]) == ("HTTP 500", 10, [*pauses[:3], pauses[4]])  # fmt: skip
    for seconds, kind in (("3600", "HTTP 503"), ("7200", "")):
        server.replies += [(503, "", {"retry-after": seconds})]
        with pytest.raises(ServerError) as caught:
            annotator.submit(ASKED).result()
        assert (annotator.quiet_seconds(), caught.value.kind) == (3600, kind)


def test_the_longest_answer_is_limited_as_the_server_lets_it(server):
    other = (400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    too_large = (400, "max_tokens is too large: the maximum context length is 8")
    annotator = server.start()
    for faults, limit in (([], "max_tokens"), ([other], "max_completion_tokens"), ([too_large], None)):
        server.replies += [*faults, (200, reply(GOOD))]
        assert annotator.submit(ASKED).result().label == YES
        limits = {name: value for name, value in server.requests[-1].items() if name.startswith("max_")}
        assert limits == ({limit: 4096} if limit else {})
        assert annotator.summary()["answer_limit"] == (limit or "the server's own")
    server.replies += [too_large]
    assert annotator.submit(ASKED).result().note == "prompt too long for the model"
    server.replies += [too_large]  # where so little is asked for, it is the prompt
    assert server.start(**{"answer.mode": "verdict"}).submit(ASKED).result().label == UNKNOWN
    assert (server.replies, annotator.summary()["refused"]) == ([], 0)


def test_a_server_that_refuses_all_questions_is_named_unless_it_answered_one(server):
    annotator, other = server.start(), server.start()
    filtered = [(status, "flagged by moderation") for status in (400, 403, 422)] * 10
    server.replies += [(200, reply("?", finish_reason="content_filter")), *filtered]
    answers = [annotator.submit(ASKED).result() for _ in range(31)]
    said = {(answer.label, answer.note) for answer in answers}
    assert said == {(UNKNOWN, "refused by the server's content filter")}
    assert annotator.live() == {"in_flight": 0, "refused": 31}
    server.replies += filtered[:1]
    with pytest.raises(ServerError, match=r"refused all of 32 questions by their content \(flagged by mod"):
        annotator.submit(ASKED).result()
    server.replies += [(200, reply(GOOD)), *filtered, *filtered]
    assert [other.submit(ASKED).result().label for _ in range(61)] == [YES] + [UNKNOWN] * 60


LASTING = [
    (308, "", {"location": "https://me:word@other/v1/chat/completions"}), (301, ""), (401, "who?"), (403, "no"), (404, "no judge"),
    (404, "content filter"), (400, "a\nb" + "x" * 300), (418, "too long"), (200, "[]"), (300, ""), (599, "dead"), (600, "late"), (409, ""), (425, ""), (429, ""),
    (TimeoutError(), ""), (NoConnectionError("nobody"), ""),
    (503, "", {"retry-after": "7200"}),
]  # fmt: skip
WRONG = [
    {"openai.base_url": "judge:8000/v1"}, {"openai.model": ""}, {"openai.extra_body": '{"model": "other"}'}, {"openai.extra_body": "[1]"},
    {"openai.key_variable": "TWO_LINES"}, {"sampling.top_k": 0}, {"sampling.top_k": -1, "openai.key_variable": "ONE_LINE"}, {"sampling.top_k": 1},
]  # fmt: skip


def test_a_fault_is_one_line(ask, monkeypatch, record):
    lines = []
    for fault in LASTING:
        with pytest.raises(ServerError) as caught:
            ask(*fault)
        lines += [f"{fault[0]} {caught.value.kind!r}: {caught.value}"]
    monkeypatch.setenv("TWO_LINES", "a\nb")
    monkeypatch.setenv("ONE_LINE", "a\n")
    lines += [said(lambda values=values: check_annotator(config(**values), SINGLE)) for values in WRONG]
    compared("openai_faults", {"said": "\n".join(lines)}, record)


def test_so_many_are_asked_at_a_time(server, monkeypatch):
    annotator, two, flying = server.start(**{"openai.concurrency": 2}), asyncio.Barrier(2), []

    async def post(self, request):
        flying.append(annotator.live()["in_flight"])
        await asyncio.wait_for(two.wait(), 20)
        return SimpleNamespace(status=200, headers={}), reply(GOOD).encode()

    monkeypatch.setattr(ChatClient, "_post", post)
    questions = [Question(f"{n:032x}", ("newt",), SINGLE) for n in range(6)]
    answered = [place for place, _ in filter(None, annotator.annotate(questions))]
    assert (sorted(answered), max(flying), annotator.live()) == ([*range(6)], 2, {"in_flight": 0})
    left = annotator.annotate(questions)
    assert next(filter(None, left))
    left.close()  # what is asked and not wanted any more


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


def test_a_preview_shows_the_turns_and_about_how_many_tokens_they_have():
    shown, begun = (
        make_annotator(config(**{"answer.mode": mode}), SINGLE).preview(ASKED)
        for mode in ("analysis", "soft")
    )
    assert shown.text.startswith("[system]\n")
    assert begun.text.endswith('{"text": "You kill the newt!"}\n[assistant]\n("good_news": "')
    assert (len(shown.text), shown.tokens, shown.exact) == (4 * shown.tokens - 3, shown.tokens, False)


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
