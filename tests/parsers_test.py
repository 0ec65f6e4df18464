"""Every parser of what people, models and servers write: whatever comes, it is read or refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict

from motif_jax.support.errors import UserError


def text_policy(text: str) -> None:
    from motif_jax.envs.wordle import policies

    policies.parse(text)


def methods(text: str) -> None:
    from motif_jax.stages import compare

    compare.read_methods(text)


def agents(text: str) -> None:
    from motif_jax.rollouts.agents import resolve

    resolve(text)


def json_option(text: str) -> None:
    from motif_jax.labels.chat import json_option

    json_option(ConfigDict({"options": text}), "options")


def cores(text: str) -> None:
    from motif_jax.rl import settings

    settings.actor_cores(ConfigDict({"actors": {"cores": text, "workers": 2}}))


def environment(text: str) -> None:
    from motif_jax.envs import registry

    registry.check(text)


def text_task(text: str) -> None:
    from motif_jax.envs.text import registry

    registry.make(text, {})


def coordinator(text: str) -> None:
    from motif_jax.support import cluster

    config = ConfigDict(
        {
            "hosts": {
                "coordinator": text,
                "count": 2,
                "index": 0,
                "heartbeat_timeout_seconds": 100.0,
                "connect_timeout_seconds": 9.0,
            }
        }
    )
    cluster.place(config, {})


def verdict(text: str) -> None:
    from motif_jax.labels.parsing import AnswerParser, make_form

    AnswerParser(make_form('("best_description": {verdict})', ("1", "2", "None")))(text)


def tweet(text: str) -> None:
    from motif_jax.envs.wordle import tweets

    tweets.rows_of(text)


def judge_request(text: str) -> None:
    """A request to the stand-in of a language model's server: always an answer."""
    from motif_jax.labels import serve

    judge: Any = SimpleNamespace(models=lambda: {}, reply=lambda request: (200, {}))
    for method in ("GET", "POST"):
        status, body = serve.handle(judge, method, "/v1/chat/completions", text.encode("utf-8", "replace"))
        assert status in (200, 400, 404)
        json.dumps(body)


# Of each, pieces of what it reads; mixed, repeated and cut they are nearly right.
PARSERS: dict[Callable[[str], None], tuple[str, ...]] = {
    text_policy: ("mixture(", "0.5", ", ", "optimal", "repeat(", ")", "start(", "'wordle_official_200'", "None", "-1", "[", "lambda: 0", "1e999"),
    methods: ("a=", "/no/such", ",", ";", " ", "b"),
    agents: ("/no/such", "@", "all", "best", ",", "12", " "),
    json_option: ("{", "}", '"a"', ":", "1", "[", "]", ",", "NaN", "null", "[" * 3000),
    cores: ("0", ",", "1", "auto", "-1", "²", " ", "99999999999999999999"),
    environment: ("NetHackScore-v1", "BabyAI-", "Recall", ":", "tests.toys:", "Corridor", "nothing.", "os:system", " "),
    text_task: ("wordle", "tests.toy_text", ":", "Task", "os:", "system", ".", "json"),
    coordinator: ("localhost", ":", "1", "[::1]", "slurm", "99999", "-1", "%", " "),
    verdict: ('("best_description": ', "1", "2", "None", ")", "**", "description_", "\n", "none"),
    tweet: ("🟩", "⬛", "🟨", "⬜", "\n", "Wordle 210 2/6", " "),
    judge_request: ("{", "}", '"model"', ":", '"messages"', "[", "]", "null", ",", "1"),
}  # fmt: skip


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
def test_nothing_but_one_line(parse: Callable[[str], None]) -> None:
    pieces = st.sampled_from(PARSERS[parse]) | st.text(st.characters(codec="utf-8"), max_size=3)

    @settings(
        max_examples=60,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(pieces, max_size=9).map("".join))
    def try_it(text: str) -> None:
        said = "nothing is wrong"
        try:
            parse(text)
        except UserError as error:
            said = str(error)
        assert said.strip(), text

    try_it()
