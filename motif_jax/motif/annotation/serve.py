"""Serves an annotator by the OpenAI chat protocol, in place of a language model's server.

It recognises the questions of this project's prompt files in all answer modes, and judges by the
goal in them. Supported are /v1/models and /v1/chat/completions, as far as the clients of this
package and of vLLM need them. So the whole way of a question through a server can be tried on a
laptop, without a language model.
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
# Smallest probability, as 0 has no logarithm, and the lead of the verdict over equally probable
# ones.
_SMALLEST_PROBABILITY = 1e-9


class _Prompt(NamedTuple):
    """A prompt file's texts for one goal and answer mode."""

    texts: PromptTexts
    goal: str
    mode: str


class ChatJudge:
    """Makes the body of the reply to a chat request."""

    def __init__(self, config: AnnotatorConfig, model: str, prompt_file: str) -> None:
        """The goal of `config` is replaced by that of each question; clients ask for `model`."""
        self._config = config
        self._model = model
        self._prompts: list[_Prompt] = []
        for form in FORMS:
            for path in prompt_files(form):
                self._prompts += _prompts_in(path, form)
        self._prompts += own_prompts(prompt_file)

    def models(self) -> dict[str, Any]:
        """The body of the reply to /v1/models."""
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "motif_jax"}
        return {"object": "list", "data": [model]}

    def reply(self, request: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body of the reply to a request at /v1/chat/completions."""
        if request.get("model") != self._model:
            message = f"The model `{str(request.get('model'))[:200]}` does not exist."
            return 404, {"error": {"message": message, "type": "NotFoundError", "code": 404}}

        messages = request.get("messages")
        turns = (
            [turn for turn in messages if isinstance(turn, dict)]
            if isinstance(messages, list)
            else []
        )
        # The first turn of the user holds the question; a second one asks once more for the
        # verdict.
        question = next((turn.get("content") for turn in turns if turn.get("role") == "user"), None)
        if not isinstance(question, str):
            return _bad_request("messages must hold a user turn")

        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        try:
            text = self._answer(question, request, choice)
        except (
            UserError
        ) as error:  # the annotator does not know the goal, or cannot judge such items
            return _bad_request(str(error))
        choice["message"] = {"role": "assistant", "content": text}

        prompt_tokens = (
            sum(len(str(turn.get("content"))) for turn in turns) // _CHARACTERS_PER_TOKEN
        )
        completion_tokens = 1 + len(text) // _CHARACTERS_PER_TOKEN
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
        return 200, {
            "id": "chatcmpl-0",
            "object": "chat.completion",
            "created": 0,
            "model": self._model,
            "choices": [choice],
            "usage": usage,
        }

    def _answer(self, text: str, request: Mapping[str, Any], choice: dict[str, Any]) -> str:
        """The text that answers a question; adds log-probabilities to `choice` where the request
        wants them.
        """
        prompt, items = self._recognise(text)
        if prompt is None:
            return "I only judge what happens in games, and see no question about that here."

        form = prompt.texts.form
        answers = self._annotator(form, prompt.goal).annotate([Question("", items, form)])
        # An annotator may yield None before its answer.
        answer = next(answered[1] for answered in answers if answered is not None)
        if not request.get("logprobs"):
            return _words(prompt, answer, request)
        token = _log_probabilities(prompt, answer)
        choice["logprobs"] = {"content": [token]}
        return token["token"]

    def _recognise(self, text: str) -> tuple[_Prompt | None, tuple[str, ...]]:
        """The prompt that wrote a question, and the question's items; None for a text that none of
        them wrote.
        """
        for prompt in self._prompts:
            items = prompt.texts.items_of(text)
            if items is not None:
                # To the front: the next question is likely of the same kind.
                self._prompts.remove(prompt)
                self._prompts.insert(0, prompt)
                return prompt, items
        return None, ()

    @functools.cache  # noqa: B019 (a server has one)
    def _annotator(self, form: Form, goal: str) -> Annotator:
        return make_annotator(dataclasses.replace(self._config, goal=goal), form)


def own_prompts(prompt_file: str) -> list[_Prompt]:
    """The prompts of the user's file, for the forms whose placeholders it has. Raises UserError: it
    cannot be used.
    """
    if not prompt_file:
        return []
    path = Path(prompt_file)
    forms = forms_of(path)
    placeholders = ", or ".join(
        " and ".join(f"{{{item}}}" for item in form.items) for form in FORMS
    )
    allowed = f"a prompt file whose questions hold {placeholders}"
    checks.require(bool(forms), "prompt_file", prompt_file, allowed)
    return [prompt for form in forms for prompt in _prompts_in(path, form)]


def _prompts_in(path: Path, form: Form) -> list[_Prompt]:
    # Without goals an empty one is tried, whose error names the fault.
    goals = goals_of(path) or [""]
    # Modes analysis and verdict; soft asks as verdict does.
    return [
        _Prompt(load_prompt(path, goal, mode, form), goal, mode)
        for goal in goals
        for mode in MODES[:2]
    ]


def _words(prompt: _Prompt, answer: Answer, request: Mapping[str, Any]) -> str:
    """The text of an answer as a language model would write it in the prompt's mode."""
    if answer.label == UNKNOWN:
        return "I cannot tell."
    form = prompt.texts.answer
    if request.get("response_format"):
        return json.dumps({form.key.replace(" ", "_"): form.verdicts[answer.label]})
    verdict = form.answers[answer.label]
    if prompt.mode == "verdict":
        return verdict
    analysis = "I went by a list of words and what they are worth"
    if answer.probabilities:
        analysis += ": " + ", ".join(f"{share:.2f}" for share in answer.probabilities)
    return f"{analysis}.\n{verdict}"


def _log_probabilities(prompt: _Prompt, answer: Answer) -> dict[str, Any]:
    """The most probable verdict as the protocol lists a token, with those of all verdicts."""
    form = prompt.texts.form
    shares = list(answer.probabilities or form.certain(answer.label))
    if answer.label == UNKNOWN:
        shares = [0.0] * len(shares)
    elif shares[answer.label] == max(shares) and shares.count(max(shares)) > 1:
        # Of equally probable verdicts a client takes the first; the lead makes it the label.
        shares[answer.label] += _SMALLEST_PROBABILITY
    tokens: list[dict[str, Any]] = [
        {"token": word, "logprob": math.log(max(share, _SMALLEST_PROBABILITY)), "bytes": None}
        for word, share in zip(prompt.texts.answer.verdicts, shares, strict=True)
    ]
    likeliest = tokens[shares.index(max(shares))]
    return {**likeliest, "top_logprobs": tokens}


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
    return 404, {
        "error": {"message": f"there is no {path} here", "type": "NotFoundError", "code": 404}
    }
