"""Serves an annotator by the OpenAI chat protocol, in place of a language model's server.

It parses the questions of this project's prompt files in all answer modes, and judges by the goal in them. Supported:
/v1/models and /v1/chat/completions, as far as our client and vLLM's need them.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from motif_jax.datasets.verdicts import FORMS, UNKNOWN, Form
from motif_jax.labels.annotator import Annotator, Answer, Question, make_annotator
from motif_jax.labels.prompts import MODES, PromptTexts, forms_of, goals_of, load_prompt, prompt_files
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError
from motif_jax.support.files import parse_json

_CHARACTERS_PER_TOKEN = 4
_PUZZLED = "I only judge what happens in games, and see no question about that here."
# Smallest probability, and the lead of the verdict over equally probable ones.
_LEAST = 1e-9


class _Asked(NamedTuple):
    prompt: PromptTexts
    goal: str
    mode: str
    items: tuple[str, ...]


class ChatJudge:
    """Makes the body of the reply to a chat request."""

    def __init__(self, config: ConfigDict) -> None:
        """`config`: annotator, the sections that it reads, prompt_file, and model, the name that clients ask for."""
        self._config = embedded_config(config)
        self._model: str = config.model
        self._prompts = _prompts(config)
        self._newest: tuple[PromptTexts, str, str] | None = None

    def models(self) -> dict[str, Any]:
        return {
            "object": "list",
            "data": [{"id": self._model, "object": "model", "created": 0, "owned_by": "motif_jax"}],
        }

    def reply(self, request: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        if request.get("model") != self._model:
            message = f"The model `{str(request.get('model'))[:200]}` does not exist."
            return 404, {"error": {"message": message, "type": "NotFoundError", "code": 404}}
        turns = request.get("messages")
        said = [turn for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
        first = next((turn.get("content") for turn in said if turn.get("role") == "user"), None)
        if not isinstance(first, str):
            return _bad_request("messages must hold a user turn")
        asked = self._understand(first)
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        if asked is None:
            choice["message"] = {"role": "assistant", "content": _PUZZLED}
        else:
            try:
                answer = self._answer(asked)
            except UserError as error:  # the annotator does not know the goal, or cannot judge such items
                return _bad_request(str(error))
            choice["message"] = {"role": "assistant", "content": _words(asked, answer, request)}
            if request.get("logprobs"):
                choice["logprobs"] = {"content": [_log_probabilities(asked, answer)]}
                choice["message"]["content"] = choice["logprobs"]["content"][0]["token"]
        prompt = sum(len(str(turn.get("content"))) for turn in said) // _CHARACTERS_PER_TOKEN
        words = 1 + len(choice["message"]["content"]) // _CHARACTERS_PER_TOKEN
        usage = {"prompt_tokens": prompt, "completion_tokens": words, "total_tokens": prompt + words}
        about = {"id": "chatcmpl-0", "object": "chat.completion", "created": 0, "model": self._model}
        return 200, {**about, "choices": [choice], "usage": usage}

    def _understand(self, text: str) -> _Asked | None:
        """The question in a user turn; tries the last matching prompt first."""
        newest = [] if self._newest is None else [self._newest]
        for entry in (*newest, *self._prompts):
            items = entry[0].items_of(text)
            if items is not None:
                self._newest = entry
                return _Asked(*entry, items)
        return None

    def _answer(self, asked: _Asked) -> Answer:
        form = asked.prompt.form
        answers = self._annotator(form, asked.goal).annotate([Question("", asked.items, form)])
        return next(found for found in answers if found is not None)[1]

    @functools.cache  # noqa: B019 (a server has one)
    def _annotator(self, form: Form, goal: str) -> Annotator:
        config = ConfigDict(self._config.to_dict())
        config.goal = goal
        return make_annotator(config, form)


def embedded_config(config: ConfigDict) -> ConfigDict:
    """The config completed for annotators; the goal is that of each question."""
    made = ConfigDict(config.to_dict())
    made.goal = "defaultgoal"
    made.prompt = ConfigDict({"version": "default", "file": ""})
    made.answer = ConfigDict({"mode": "analysis"})
    made.captions = ConfigDict({"messages": True, "status": False})
    return made


def _prompts(config: ConfigDict) -> list[tuple[PromptTexts, str, str]]:
    found = [entry for form in FORMS for path in prompt_files(form) for entry in _prompts_in(path, form)]
    return [*found, *own_prompts(config)]


def own_prompts(config: ConfigDict) -> list[tuple[PromptTexts, str, str]]:
    """The prompts of the user's file, for the forms whose placeholders it has; [] without a file.

    Raises:
      UserError: it cannot be used.
    """
    if not config.prompt_file:
        return []
    path = Path(config.prompt_file)
    forms = forms_of(path)
    placeholders = ", or ".join(" and ".join(f"{{{item}}}" for item in form.items) for form in FORMS)
    allowed = f"a prompt file whose questions hold {placeholders}"
    checks.require(bool(forms), "prompt_file", config.prompt_file, allowed)
    return [entry for form in forms for entry in _prompts_in(path, form)]


def _prompts_in(path: Path, form: Form) -> list[tuple[PromptTexts, str, str]]:
    # Without goals an empty one is tried, whose error names the fault.
    goals = goals_of(path) or [""]
    # Modes analysis and verdict; soft asks as verdict does.
    return [(load_prompt(path, goal, mode, form), goal, mode) for goal in goals for mode in MODES[:2]]


def _words(asked: _Asked, answer: Answer, request: Mapping[str, Any]) -> str:
    if answer.label == UNKNOWN:
        return "I cannot tell."
    if request.get("response_format"):
        form = asked.prompt.answer
        return json.dumps({form.key.replace(" ", "_"): form.verdicts[answer.label]})
    verdict = asked.prompt.answer.answers[answer.label]
    if asked.mode == "verdict":
        return verdict
    shown = ", ".join(f"{share:.2f}" for share in answer.probabilities or ())
    return f"I went by a list of words and what they are worth{f': {shown}' if shown else ''}.\n{verdict}"


def _log_probabilities(asked: _Asked, answer: Answer) -> dict[str, Any]:
    form = asked.prompt.form
    shares = list(answer.probabilities or form.certain(answer.label))
    if answer.label == UNKNOWN:
        shares = [0.0] * len(shares)
    elif shares[answer.label] == max(shares) and shares.count(max(shares)) > 1:
        # The lead makes the decided verdict the most probable one.
        shares[answer.label] += _LEAST
    tokens: list[dict[str, Any]] = [
        {"token": word, "logprob": math.log(max(share, _LEAST)), "bytes": None}
        for word, share in zip(asked.prompt.answer.verdicts, shares, strict=True)
    ]
    return {**tokens[shares.index(max(shares))], "top_logprobs": tokens}


def _bad_request(message: str) -> tuple[int, dict[str, Any]]:
    return 400, {"error": {"message": message, "type": "BadRequestError", "code": 400}}


def handle(judge: ChatJudge, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
    """Status and JSON body of the reply to a request."""
    if method == "GET" and path.rstrip("/").endswith("/models"):
        return 200, judge.models()
    if method == "POST" and path.endswith("/chat/completions"):
        with contextlib.suppress(ValueError):
            request = parse_json(body)
            if isinstance(request, dict):
                return judge.reply(request)
        return _bad_request("no JSON object")
    return 404, {"error": {"message": f"there is no {path} here", "type": "NotFoundError", "code": 404}}
