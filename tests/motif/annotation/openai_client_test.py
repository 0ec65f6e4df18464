"""What one question to a server becomes: the key is never shown or kept, and nothing that a server
says is more than an answer.
"""

from __future__ import annotations

import json

import pytest

from motif_jax.core.verdicts import FIRST, SECOND, UNKNOWN, YES
from motif_jax.motif.annotation import chat, parsing
from motif_jax.motif.annotation.annotator import Question, make_annotator
from tests.motif.annotation.scripted_server import ASKED, GOOD, config, reply


def request_of(server, **values):
    """What an annotator sends for one question."""
    annotator = server.start(**values)
    sure = [{"token": "Yes", "logprob": -0.5, "top_logprobs": [{"token": "Yes", "logprob": -0.5}]}]
    server.replies[:] = [(200, reply(GOOD, 1, logprobs={"content": sure}))]
    annotator.submit(ASKED).result()
    return server.requests[-1]


def test_an_analysis_is_sampled_with_a_seed(server):
    request = request_of(server, **{"openai.extra_body": '{"x": 1}'})
    assert [turn["role"] for turn in request.pop("messages")] == ["system", "user"]
    assert request.pop("seed") > 0
    assert request == {
        "model": "judge",
        "temperature": 0.1,
        "top_p": 0.95,
        "top_k": 50,
        "max_tokens": 4096,
        "x": 1,
    }


@pytest.mark.parametrize(
    ("values", "absent"),
    [({"openai.send_seed": False}, "seed"), ({"openai.send_top_k": False}, "top_k")],
)
def test_fields_that_a_server_does_not_know_are_left_out(server, values, absent):
    assert absent not in request_of(server, **values)


def test_answers_at_a_servers_default_temperature_are_stored_apart(server):
    """Without the field a server takes another `top_k` than the config's."""
    sampling = {
        is_sent: server.start(**{"openai.send_top_k": is_sent}).identity["sampling"]
        for is_sent in (True, False)
    }

    assert sampling[True]["top_k"] == 50
    assert sampling[False] == {**sampling[True], "top_k": None}


@pytest.mark.parametrize("structured", ["structured_outputs", "response_format"])
def test_a_verdict_is_asked_for_in_a_structure(server, structured):
    request = request_of(server, **{"answer.mode": "verdict", "openai.structured": structured})
    assert request["max_tokens"] == 64
    for verdict in ("Yes", "No"):
        assert verdict in json.dumps(request[structured])


def test_a_soft_answer_asks_for_log_probabilities(server):
    request = request_of(server, **{"answer.mode": "soft"})
    assert (request["logprobs"], request["top_logprobs"], request["temperature"]) == (True, 20, 0)
    assert request["max_tokens"] == 2


def test_an_answer_without_a_verdict_is_retried_once(server):
    annotator = server.start()
    server.replies[:] = [(200, reply(None)), (200, reply(GOOD, 1))]
    answer = annotator.submit(ASKED).result()
    assert answer.label == YES
    # An empty answer is not sent back: some servers refuse an empty turn of the assistant.
    assert [turn["role"] for turn in server.requests[-1]["messages"]] == ["system", "user"]
    assert answer.tokens == (101, 1, 0)


def test_a_ping_is_one_token(server):
    annotator = server.start()
    server.replies[:] = [(200, reply(""))]
    annotator.ping().result()
    assert server.requests[-1]["max_tokens"] == 1


@pytest.mark.parametrize(
    ("values", "prices"),
    [
        ({"openai.prices.prompt": 2.0, "openai.prices.completion": 8.0}, (2.0, 2.0, 8.0)),
        ({"openai.prices.cached": 0.5}, (0.0, 0.5, 0.0)),
        ({}, None),
    ],
)
def test_prices_are_those_of_the_config(server, values, prices):
    assert server.start(**values).prices == prices


def pair_asked(server, *replies, **values):
    """The answer to a question about two texts from a server that gives these replies."""
    annotator = make_annotator(config(**values))
    annotator.start()
    server.replies[:] = [(200, body) if isinstance(body, str) else body for body in replies]
    try:
        return annotator.submit(Question("0" * 32, ("a", "b"))).result()
    finally:
        annotator.close()


ONE = '("best_description": "1")'
TWO = '("best_description": "2")'


@pytest.mark.parametrize(
    "reason", ["length", "max_tokens", "MAX_TOKENS", "model_length", "insufficient_system_resource"]
)
def test_a_cut_answer_has_no_verdict_and_is_asked_again(server, reason):
    answer = pair_asked(
        server,
        reply(f"If it were {ONE} then", finish_reason=reason),
        reply(TWO, finish_reason="stop"),
    )
    assert (answer.label, answer.cut, answer.retried) == (SECOND, 1, True)


def test_an_answer_cut_twice_is_unknown_and_says_so(server):
    cut = reply(f"<think>It may be {ONE}", finish_reason="length")
    answer = pair_asked(server, cut, cut)
    assert (answer.label, answer.cut, answer.note) == (UNKNOWN, 2, chat.CUT)


def test_cut_reasoning_without_a_servers_notice_is_no_answer(server):
    answer = pair_asked(
        server, reply(f"<think>It may be {ONE}", finish_reason="stop"), **{"answer.retry": False}
    )
    assert (answer.label, answer.cut, answer.note) == (UNKNOWN, 1, parsing.UNFINISHED)


def test_a_cut_answer_reported_as_an_error_is_unknown(server):
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
    assert again["messages"][-1]["content"].startswith(
        server.requests[0]["messages"][-1]["content"].rstrip()
    )


def test_reasoning_is_not_sent_back(server):
    pair_asked(server, reply("<think>hm</think>Neither."), reply(ONE))
    assert server.requests[-1]["messages"][-2] == {"role": "assistant", "content": "Neither."}


def test_parts_of_an_answer_are_joined_without_those_that_reason(server):
    thoughts = {"type": "thinking", "thinking": [{"type": "text", "text": ONE}]}
    answer = pair_asked(server, reply([thoughts, {"type": "text", "text": TWO}]))
    assert answer.label == SECOND


@pytest.mark.parametrize("mode", ["analysis", "verdict", "soft"])
def test_fields_that_are_none_are_not_sent(server, mode):
    choice = (
        {"content": "1"}
        if mode != "soft"
        else {"content": "1", "logprobs": {"content": SURE_OF_ONE}}
    )
    pair_asked(
        server,
        reply(**choice),
        **{"answer.mode": mode, "sampling.temperature": None, "sampling.top_p": None},
    )
    assert not {"temperature", "top_p"} & server.requests[0].keys()


SURE_OF_ONE = [{"token": "1", "logprob": -0.1, "top_logprobs": [{"token": "1", "logprob": -0.1}]}]


def test_a_verdict_has_its_own_limit(server):
    pair_asked(server, reply(ONE), **{"answer.mode": "verdict", "sampling.verdict_tokens": 2000})
    assert server.requests[0]["max_tokens"] == 2000
