"""What the served lexicon replies: to this project's questions, and to anything else."""

from __future__ import annotations

import json
import math

import pytest

from motif_jax.core.verdicts import SINGLE
from motif_jax.motif import serve_annotator
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.prompts import MODES, load_prompt, prompt_path
from motif_jax.motif.annotation.serve import ChatJudge, handle
from tests.reward_fixtures import load_config

GOLD = "$ - 24 gold pieces."
CHAT = "/v1/chat/completions"


@pytest.fixture
def judge(tmp_path):
    """The lexicon, which also understands a prompt file of one's own."""
    path = tmp_path / "own.yaml"
    text = prompt_path("default", "", SINGLE).read_text().replace("  gold:", "  shiny:")
    path.write_text(text.replace('{"text": {item}}', "The line: {item}"))
    return ChatJudge(AnnotatorConfig(), "lexicon", str(path))


def test_models_are_listed(judge):
    status, reply = handle(judge, "GET", "/v1/models/", b"")
    assert (status, [model["id"] for model in reply["data"]]) == (200, ["lexicon"])


@pytest.mark.parametrize(
    ("method", "route"), [("GET", "/v1/other"), ("POST", "/v1/models"), ("GET", CHAT)]
)
def test_another_route_is_not_there(judge, method, route):
    status, reply = handle(judge, method, route, b"")
    assert (status, reply["error"]["message"]) == (404, f"there is no {route} here")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "no JSON object"),
        (b"[1]", 400, "no JSON object"),
        (b"{}", 404, "The model `None` does not exist."),
        (b'{"model": "gpt"}', 404, "The model `gpt` does not exist."),
        (b'{"model": "lexicon"}', 400, "messages must hold a user turn"),
        (
            b'{"model": "lexicon", "messages": [1, {"role": "user", "content": 7}]}',
            400,
            "messages must hold a user turn",
        ),
    ],
)
def test_a_request_that_is_none_is_refused(judge, body, status, message):
    reply_status, reply = handle(judge, "POST", CHAT, body)
    assert (reply_status, reply["error"]["message"]) == (status, message)


def content(judge, messages, **more):
    status, reply = judge.reply({"model": "lexicon", "messages": messages, **more})
    assert status == 200
    return reply["choices"][0]["message"]["content"]


@pytest.mark.parametrize("mode", MODES)
def test_a_pair_is_judged_in_the_form_of_its_prompt(judge, mode):
    """To find gold is worth more than to kill by the goal of gold."""
    prompt = load_prompt(prompt_path("default", ""), "gold", mode)
    messages = prompt.conversation("You kill the newt!", GOLD)
    assert content(judge, messages).splitlines()[-1] == '("best_description": "2")'
    as_json = content(judge, messages, response_format={"type": "json_schema"})
    assert json.loads(as_json) == {"best_description": "2"}


def test_only_an_analysis_explains_itself(judge):
    lines = [
        content(
            judge, load_prompt(prompt_path("default", ""), "gold", mode).conversation("a", GOLD)
        ).splitlines()
        for mode in MODES
    ]
    assert [len(texts) for texts in lines] == [2 if mode == "analysis" else 1 for mode in MODES]


def test_equal_texts_are_a_tie(judge):
    prompt = load_prompt(prompt_path("default", ""), "gold", "verdict")
    assert content(judge, prompt.conversation(GOLD, GOLD)) == '("best_description": "None")'


def test_a_single_text_and_a_retried_one_get_their_verdict(judge):
    prompt = load_prompt(prompt_path("default", "", SINGLE), "combat", "verdict", SINGLE)
    messages = prompt.conversation(GOLD)
    assert content(judge, messages) == '("good_news": "No")'
    assert content(judge, prompt.retried(messages, "Hm.")) == '("good_news": "No")'
    assert content(judge, prompt.conversation("You kill the newt!")) == '("good_news": "Yes")'


def test_log_probabilities_are_those_of_all_verdicts(judge):
    prompt = load_prompt(prompt_path("default", ""), "gold", "soft")
    request = {
        "model": "lexicon",
        "messages": prompt.conversation("You kill the newt!", GOLD),
        "logprobs": True,
    }
    first = judge.reply(request)[1]["choices"][0]["logprobs"]["content"][0]
    candidates = {
        candidate["token"]: math.exp(candidate["logprob"]) for candidate in first["top_logprobs"]
    }
    assert set(candidates) == {"1", "2", "None"}
    assert sum(candidates.values()) == pytest.approx(1)
    assert first["token"] == max(candidates, key=candidates.__getitem__) == "2"


def test_another_conversation_gets_no_verdict(judge):
    text = content(judge, [{"role": "user", "content": "Hello?"}])
    assert "verdict" not in text
    assert text.startswith("I only judge what happens in games")


def test_tokens_are_counted(judge):
    messages = [{"role": "user", "content": "Hello?"}]
    usage = judge.reply({"model": "lexicon", "messages": messages})[1]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert min(usage.values()) > 0


def test_a_goal_that_the_annotator_does_not_know_is_refused(judge, tmp_path):
    prompt = load_prompt(tmp_path / "own.yaml", "shiny", "verdict", SINGLE)
    status, reply = judge.reply({"model": "lexicon", "messages": prompt.conversation(GOLD)})
    assert status == 400
    assert reply["error"]["message"].startswith("config.goal=shiny: must be one of zeroknowledge")


@pytest.mark.parametrize(
    ("values", "address", "key", "words"),
    [
        ({}, "http://127.0.0.1:80/v1", "", ""),
        (
            {"key_variable": "A_KEY", "open_to_all": True},
            "http://127.0.0.1:80/v1",
            "sk-1",
            "it asks for the key in A_KEY",
        ),
        (
            {"host": "::", "open_to_all": True},
            "http://[::]:80/v1",
            "",
            "open to all: it asks for no key",
        ),
    ],
    ids=["here", "key", "open"],
)
def test_the_line_of_the_start_says_who_is_served(monkeypatch, capsys, values, address, key, words):
    monkeypatch.setenv("A_KEY", "sk-1")
    keys = []

    async def serve(handle, host, port, latency_seconds, listening, key, open_to_all):
        keys.append(key)
        listening(80)

    monkeypatch.setattr(serve_annotator.http_server, "serve", serve)
    assert serve_annotator.run(load_config("serve_annotator", "", values), None) == 0
    printed = capsys.readouterr().out
    assert f"lexicon answers as lexicon (pair, single) at {address}" in printed
    assert words in printed
    assert keys == [key]
    assert "sk-1" not in printed
