"""Every parser of what people, models and servers write: whatever comes, it is read or refused in
one line.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict

from motif_jax.core import cluster
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.ilql.tasks import registry as text_registry
from motif_jax.ilql.tasks.wordle import policies, tweets
from motif_jax.motif.annotation import chat, serve
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.parsing import AnswerParser, make_form
from motif_jax.play import agents
from motif_jax.reports import compare
from motif_jax.rl.config import Actors
from motif_jax.rl.settings import actor_cores

FORM = make_form('("best_description": {verdict})', ("1", "2", "None"))
OURS = AnswerParser(FORM)
PUBLISHED = AnswerParser(FORM, first_match=True)
JUDGE = serve.ChatJudge(AnnotatorConfig(), "lexicon", "")


def coordinator(text: str) -> None:
    cluster.position(text, 2, 0)


def judge_request(text: str) -> None:
    """A request to the stand-in of a language model's server: always an answer."""
    for method in ("GET", "POST"):
        status, body = serve.handle(
            JUDGE, method, "/v1/chat/completions", text.encode("utf-8", "replace")
        )
        assert status in (200, 400, 404)
        json.dumps(body)


# Of each, pieces of what it reads; mixed, repeated and cut they are nearly right.
PARSERS: dict[str, tuple[Any, ...]] = {
    "text_policy": (policies.parse, "mixture(", "0.5", ", ", "optimal", "repeat(", ")", "start(", "'wordle_official_200'", "None", "-1", "[", "lambda: 0", "1e999"),
    "methods": (compare.read_methods, "a=", "/no/such", ",", ";", " ", "b"),
    "agents": (agents.resolve, "/no/such", "@", "all", "best", ",", "12", " "),
    "json_option": (lambda text: chat.json_option(ConfigDict({"options": text}), "options"), "{", "}", '"a"', ":", "1", "[", "]", ",", "NaN", "null", "[" * 3000),
    "cores": (lambda text: actor_cores(Actors(cores=text, workers=2)), "0", ",", "1", "auto", "-1", "²", " ", "99999999999999999999"),
    "environment": (registry.check, "NetHackScore-v1", "BabyAI-", "Recall", ":", "tests.toys:", "Corridor", "nothing.", "os:system", " "),
    "text_task": (lambda text: text_registry.make(text, {}), "wordle", "tests.toy_text", ":", "Task", "os:", "system", ".", "json"),
    "coordinator": (coordinator, "localhost", ":", "1", "[::1]", "slurm", "99999", "-1", "%", " "),
    "verdict": (lambda text: (OURS(text), PUBLISHED(text)), '("best_description": ', "1", "2", "None", ")", "**", "description_", "\n", "none"),
    "tweet": (tweets.rows_of, "🟩", "⬛", "🟨", "⬜", "\n", "Wordle 210 2/6", " "),
    "judge_request": (judge_request, "{", "}", '"model"', ":", '"messages"', "[", "]", "null", ",", "1"),
}  # fmt: skip


@pytest.mark.parametrize("name", PARSERS)
def test_nothing_but_one_line(name: str) -> None:
    parse, *texts = PARSERS[name]
    pieces = st.sampled_from(texts) | st.text(st.characters(codec="utf-8"), max_size=3)

    @settings(
        max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.lists(pieces, max_size=9).map("".join))
    def try_it(text: str) -> None:
        line = "nothing is wrong"
        try:
            parse(text)
        except UserError as error:
            line = str(error)
        assert line.strip(), text

    try_it()
