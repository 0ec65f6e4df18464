"""A stand-in for vLLM, with what the annotator reads of it: an engine that answers all questions
alike, and counts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from tests.reward_fixtures import annotation_config


def write_model(folder, tokenizer="{}"):
    """Writes a folder with the files of a model; returns its path."""
    folder.mkdir()
    for name, text in {
        "config.json": "{}",
        "tokenizer.json": tokenizer,
        "weights.bin": "x",
    }.items():
        (folder / name).write_text(text)
    return str(folder)


def make_config(model, **values):
    named = {f"vllm.{name}": value for name, value in values.items()}
    return annotation_config({"annotator": "vllm", "vllm.model": model, **named})


class Parameters:
    """Keeps what it is made with as attributes, as vLLM's SamplingParams and
    StructuredOutputsParams do.
    """

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


@dataclass(frozen=True)
class Logprob:
    logprob: float


@dataclass(frozen=True)
class Completion:
    """The attributes of vLLM's CompletionOutput that the annotator reads."""

    text: str
    finish_reason: str
    token_ids: tuple[int, ...] = (1, 2)
    logprobs: tuple[dict[int, Logprob], ...] = ({ord("1"): Logprob(-0.5), ord("N"): Logprob(-2.0)},)


@dataclass(frozen=True)
class Output:
    """The attributes of vLLM's RequestOutput that the annotator reads."""

    request_id: str
    finished: bool
    outputs: tuple[Completion, ...] = ()
    prompt_token_ids: tuple[int, ...] = (1, 2, 3)
    num_cached_tokens: int = 1


@dataclass
class Platform:
    on_cpu: bool = False

    def is_cpu(self) -> bool:
        return self.on_cpu


class Engine:
    """Answers `at_once` of what is queued a step, the oldest first.

    Attributes:
      levels: how much was queued at each step.
      request: turns, sampling parameters and options of the last `enqueue_chat`.
    """

    text = '("best_description": "1")'
    finish_reason = "stop"

    def __init__(self, at_once):
        self.at_once = at_once
        self.queued = []
        self.levels = []
        self.request = []
        self.llm_engine = self
        self._ids = itertools.count()

    def enqueue_chat(self, turns, parameters, **options):
        self.request = [*turns, *map(vars, parameters), options]
        ids = [f"{next(self._ids)}-random" for _ in turns]
        self.queued += ids
        return ids

    def step(self):
        self.levels.append(len(self.queued))
        finished = self.queued[: self.at_once]
        self.queued = self.queued[self.at_once :]
        completion = Completion(self.text, self.finish_reason)
        # Outputs have a request's id without its random suffix.
        names = [request.partition("-")[0] for request in finished]
        return [Output("none", False), *(Output(name, True, (completion,)) for name in names)]


class Tokenizer:
    """Each character is a token."""

    def apply_chat_template(self, turns, **options):
        return f"{options}" + "|".join(turn["content"] for turn in turns)

    def encode(self, text, add_special_tokens):
        return [ord(character) for character in text]


class Loaded(Engine):
    """An engine as `vllm.LLM` makes it; a question of gold is too long, and one of a boulder is
    refused.
    """

    def __init__(self, **options):
        super().__init__(2)
        self.options = options
        self.engine_core = self
        self.ended = []

    def get_tokenizer(self):
        return Tokenizer()

    def enqueue_chat(self, turns, parameters, **options):
        texts = " ".join(turn["content"] for conversation in turns for turn in conversation[1:])
        if "gold" in texts:
            raise ValueError("the context length is 8")
        if "boulder" in texts:
            raise ValueError("no\nboulder")
        return super().enqueue_chat(turns, parameters, **options)

    def abort_request(self, requests):
        self.ended += requests

    def shutdown(self):
        self.ended += ["shut down"]
