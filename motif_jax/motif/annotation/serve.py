"""Serves an annotator by the OpenAI chat protocol, in place of a language model's server.

It parses the questions of this project's prompt files in all answer modes, and judges by the goal in them. Supported:
/v1/models and /v1/chat/completions, as far as our client and vLLM's need them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json
from motif_jax.core.verdicts import FORMS, UNKNOWN, Form
from motif_jax.motif.annotation.annotator import Annotator, Answer, Question, make_annotator
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.prompts import (
    MODES,
    PromptTexts,
    forms_of,
    goals_of,
    load_prompt,
    prompt_files,
)

_CHARACTERS_PER_TOKEN = 4
# Smallest probability, and the lead of the verdict over equally probable ones.
_LEAST = 1e-9


class _Prompt(NamedTuple):
    texts: PromptTexts
    goal: str
    mode: str


class ChatJudge:
    """Makes the body of the reply to a chat request."""

    def __init__(self, config: AnnotatorConfig, model: str, prompt_file: str) -> None:
        """The goal of `config` is that of each question; clients ask for `model`."""
        self._config, self._model = config, model
        files = [(path, form) for form in FORMS for path in prompt_files(form)]
        self._prompts = [prompt for file in files for prompt in _prompts_in(*file)] + own_prompts(prompt_file)

    def models(self) -> dict[str, Any]:
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "motif_jax"}
        return {"object": "list", "data": [model]}

    def reply(self, request: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        if request.get("model") != self._model:
            message = f"The model `{str(request.get('model'))[:200]}` does not exist."
            return 404, {"error": {"message": message, "type": "NotFoundError", "code": 404}}
        turns = request.get("messages")
        said = [turn for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
        first = next((turn.get("content") for turn in said if turn.get("role") == "user"), None)
        if not isinstance(first, str):
            return _bad_request("messages must hold a user turn")
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        try:
            text = self._answer(first, request, choice)
        except UserError as error:  # the annotator does not know the goal, or cannot judge such items
            return _bad_request(str(error))
        choice["message"] = {"role": "assistant", "content": text}
        prompt = sum(len(str(turn.get("content"))) for turn in said) // _CHARACTERS_PER_TOKEN
        words = 1 + len(text) // _CHARACTERS_PER_TOKEN
        usage = {"prompt_tokens": prompt, "completion_tokens": words, "total_tokens": prompt + words}
        about = {"id": "chatcmpl-0", "object": "chat.completion", "created": 0, "model": self._model}
        return 200, {**about, "choices": [choice], "usage": usage}

    def _answer(self, text: str, request: Mapping[str, Any], choice: dict[str, Any]) -> str:
        for prompt in self._prompts:
            if (items := prompt.texts.items_of(text)) is not None:
                break
        else:
            return "I only judge what happens in games, and see no question about that here."
        self._prompts.remove(prompt)
        self._prompts.insert(0, prompt)  # the next question is likely of the same kind
        form = prompt.texts.form
        answers = self._annotator(form, prompt.goal).annotate([Question("", items, form)])
        answer = next(found for found in answers if found is not None)[1]
        if not request.get("logprobs"):
            return _words(prompt, answer, request)
        token = _log_probabilities(prompt, answer)
        choice["logprobs"] = {"content": [token]}
        return token["token"]

    @functools.cache  # noqa: B019 (a server has one)
    def _annotator(self, form: Form, goal: str) -> Annotator:
        return make_annotator(dataclasses.replace(self._config, goal=goal), form)


def own_prompts(prompt_file: str) -> list[_Prompt]:
    """The prompts of the user's file, for the forms whose placeholders it has. Raises UserError: it cannot be used."""
    if not prompt_file:
        return []
    path = Path(prompt_file)
    forms = forms_of(path)
    placeholders = ", or ".join(" and ".join(f"{{{item}}}" for item in form.items) for form in FORMS)
    allowed = f"a prompt file whose questions hold {placeholders}"
    checks.require(bool(forms), "prompt_file", prompt_file, allowed)
    return [prompt for form in forms for prompt in _prompts_in(path, form)]


def _prompts_in(path: Path, form: Form) -> list[_Prompt]:
    # Without goals an empty one is tried, whose error names the fault.
    goals = goals_of(path) or [""]
    # Modes analysis and verdict; soft asks as verdict does.
    return [_Prompt(load_prompt(path, goal, mode, form), goal, mode) for goal in goals for mode in MODES[:2]]


def _words(asked: _Prompt, answer: Answer, request: Mapping[str, Any]) -> str:
    if answer.label == UNKNOWN:
        return "I cannot tell."
    form = asked.texts.answer
    if request.get("response_format"):
        return json.dumps({form.key.replace(" ", "_"): form.verdicts[answer.label]})
    verdict = form.answers[answer.label]
    if asked.mode == "verdict":
        return verdict
    shown = ", ".join(f"{share:.2f}" for share in answer.probabilities or ())
    return f"I went by a list of words and what they are worth{f': {shown}' if shown else ''}.\n{verdict}"


def _log_probabilities(asked: _Prompt, answer: Answer) -> dict[str, Any]:
    form = asked.texts.form
    shares = list(answer.probabilities or form.certain(answer.label))
    if answer.label == UNKNOWN:
        shares = [0.0] * len(shares)
    elif shares[answer.label] == max(shares) and shares.count(max(shares)) > 1:
        # The lead makes the decided verdict the most probable one.
        shares[answer.label] += _LEAST
    tokens: list[dict[str, Any]] = [
        {"token": word, "logprob": math.log(max(share, _LEAST)), "bytes": None}
        for word, share in zip(asked.texts.answer.verdicts, shares, strict=True)
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
            return judge.reply(parse_json(body, dict))
        return _bad_request("no JSON object")
    return 404, {"error": {"message": f"there is no {path} here", "type": "NotFoundError", "code": 404}}
