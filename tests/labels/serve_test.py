"""What the served lexicon replies: to this project's questions, and to anything else."""

from __future__ import annotations

import json
import math

import pytest

from motif_jax.datasets.verdicts import SINGLE, YES
from motif_jax.labels.prompts import load_prompt, prompt_path
from motif_jax.labels.serve import ChatJudge, handle
from motif_jax.sections.annotators import AnnotatorConfig
from motif_jax.stages import serve_annotator
from tests.reward_fixtures import load_config

GOLD = "$ - 24 gold pieces."


@pytest.fixture(scope="module")
def judge():
    return ChatJudge(AnnotatorConfig(), "lexicon", "")


def test_requests_that_are_refused(judge):
    messages = [1, {"role": "user", "content": 7}]
    of_the_lexicon = {"model": "lexicon"}, {"model": "lexicon", "messages": messages}, [1]
    for body, status in (({"model": "gpt"}, 404), *((body, 400) for body in of_the_lexicon)):
        got, reply = handle(judge, "POST", "/v1/chat/completions", json.dumps(body).encode())
        assert (got, reply["error"]["code"]) == (status, status), body


def test_its_model_is_listed(judge):
    status, reply = handle(judge, "GET", "/v1/models/", b"")
    assert (status, [model["id"] for model in reply["data"]]) == (200, ["lexicon"])
    assert handle(judge, "GET", "/v1/other", b"")[0] == 404


def test_log_probabilities_lead_with_the_decided_verdict(judge):
    prompt = load_prompt(prompt_path("default", ""), "gold", "soft")
    turns = prompt.conversation("You kill the newt!", GOLD)
    _, body = judge.reply({"model": "lexicon", "messages": turns, "logprobs": True})
    (token,) = body["choices"][0]["logprobs"]["content"]
    assert token["token"] == body["choices"][0]["message"]["content"] == "2"
    shares = [math.exp(one["logprob"]) for one in token["top_logprobs"]]
    assert [one["token"] for one in token["top_logprobs"]] == list(prompt.answer.verdicts)
    assert sum(shares) == pytest.approx(1, abs=1e-6)
    assert max(shares) == shares[1] > 0.9


def test_a_prompt_file_of_ones_own_is_understood(tmp_path):
    text = prompt_path("default", "", SINGLE).read_text().replace('{"text": {item}}', "The line: {item}")
    path = tmp_path / "own.yaml"
    path.write_text(text)
    judge = ChatJudge(AnnotatorConfig(), "lexicon", str(path))
    prompt = load_prompt(path, "gold", "verdict", SINGLE)
    turns = prompt.conversation(GOLD)
    for asked in (turns, prompt.retried(turns, "Hm.")):
        status, body = judge.reply({"model": "lexicon", "messages": asked})
        said = body["choices"][0]["message"]["content"]
        assert (status, said) == (200, prompt.answer.answers[YES])


def test_a_goal_that_the_annotator_does_not_know_is_told_to_who_asks(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(prompt_path("default", "", SINGLE).read_text().replace("  gold:", "  shiny:"))
    judge = ChatJudge(AnnotatorConfig(), "lexicon", str(path))
    turns = load_prompt(path, "shiny", "verdict", SINGLE).conversation(GOLD)
    status, body = judge.reply({"model": "lexicon", "messages": turns})
    assert status == 400
    assert "config.goal=shiny: must be one of" in body["error"]["message"]


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ({}, "http://127.0.0.1:80/v1"),
        ({"key_variable": "A_KEY", "open_to_all": True}, "; it asks for the key in A_KEY"),
        ({"host": "::", "open_to_all": True}, "http://[::]:80/v1; open to all: it asks for no key"),
    ],
)
def test_the_line_of_the_start_says_who_is_served(values, end, monkeypatch, capsys):
    monkeypatch.setenv("A_KEY", "sk-1")
    served = []

    async def serve(handle, host, port, latency_seconds, listening, key, open_to_all):
        served.append((key, open_to_all))
        listening(80)

    monkeypatch.setattr(serve_annotator.http_server, "serve", serve)
    config = load_config("serve_annotator", "", values)
    assert serve_annotator.run(config, None) == 0
    line = capsys.readouterr().out.strip()
    assert line.endswith(end)
    assert "sk-1" not in line
    assert served == [("sk-1" if "key_variable" in values else "", config.open_to_all)]
