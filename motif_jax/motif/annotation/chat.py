"""Conversations of annotators by language models, in process or behind a server."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from motif_jax.core import config as checks
from motif_jax.core.seeds import derive
from motif_jax.core.verdicts import FORMS, PAIR, UNKNOWN, Form
from motif_jax.motif.annotation.annotator import Annotator, Answer, Question
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.parsing import UNFINISHED, AnswerParser, spoken
from motif_jax.motif.annotation.prompts import (
    PromptTexts,
    Turns,
    label_name,
    load_prompt,
    prompt_path,
)

# Default of sampling.verdict_tokens, which the identity leaves out.
_VERDICT_TOKENS = 64
# How mode soft reads verdicts' probabilities, as a number in the identity of stored answers. Raise
# it with any change of what is asked or read there: `answer_from_log_probabilities` of this file,
# `verdict_log_probabilities` of openai_client.py, `_find_prefill` of vllm_engine.py, and
# `find_prefill` and the texts of ../model_judge.py.
_SOFT_VERSION = 1
# Words of the reason for which an answer ended before the model ended it, as servers name it.
_CUT_REASON = re.compile(
    "length|max|limit|trunc|incomplete|abort|interrupt|insufficient|time|error", re.IGNORECASE
)
# Notes of answers without a verdict, beside those of parsing.py.
CUT = "cut before its end"
TOO_LONG = "prompt too long for the model"
IMPROBABLE = "the verdicts have little probability"


def check_chat(config: AnnotatorConfig, form: Form = PAIR) -> PromptTexts:
    """The prompt for questions of `form`. Raises UserError: nothing would read a part of its
    file.
    """
    path = prompt_path(config.prompt.version, config.prompt.file, form)
    return load_prompt(path, config.goal, config.answer.mode, form)


def without_surrogates(text: str) -> str:
    """Replaces lone surrogates, which JSON can hold but servers cannot be sent."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclasses.dataclass
class Conversation:
    """One question's conversation so far."""

    position: int
    question: Question
    turns: Turns
    retried: bool = False
    tokens: tuple[int, int, int] = (0, 0, 0)
    # Turns that ended before the model had answered.
    cut: int = 0

    def add_tokens(self, prompt: int, completion: int, cached: int) -> None:
        """Adds the tokens of one request: of the prompt, of the answer, and of the prompt's cached
        part.
        """
        prompts, completions, cached_parts = self.tokens
        self.tokens = (prompts + prompt, completions + completion, cached_parts + cached)

    def answer(
        self,
        label: int,
        probabilities: tuple[float, ...] | None = None,
        mass: float | None = None,
        note: str = "",
    ) -> Answer:
        """The answer that ends the conversation, with what the model said and its cost so far."""
        said = [turn["content"] for turn in self.turns if turn["role"] == "assistant"]
        return Answer(
            label=label,
            probabilities=probabilities,
            tokens=self.tokens,
            text="\n\n".join(said),
            mass=mass,
            note=note,
            retried=self.retried,
            cut=self.cut,
        )


class ChatAnnotator(Annotator):
    """Opens conversations, parses answers, and asks once more where a verdict is missing;
    subclasses reach the model.

    A subclass writes `annotate`: for each question it calls `open`, sends the conversation's turns,
    and hands the text to `read_answer`, which returns None where the conversation has to be sent
    once more. In mode `soft` it hands the log-probabilities of the verdicts to
    `answer_from_log_probabilities` instead.
    """

    forms = FORMS
    reads_prompt = True

    def __init__(self, config: AnnotatorConfig, form: Form, model: Mapping[str, Any]) -> None:
        """`model` identifies the model: the keys annotator, model, revision, and all else that
        changes its answers.
        """
        self.prompt = check_chat(config, form)
        if "NetHack" in f"{self.prompt.system} {self.prompt.question}":
            self.nethack_key = "config.prompt.file"
        self.mode: str = config.answer.mode
        self._retry = config.answer.retry and self.mode != "soft"
        self._minimum_mass: float = config.answer.minimum_mass
        limit_key = "sampling.verdict_tokens" if self.mode == "verdict" else "sampling.max_tokens"
        self._token_limit = f"config.{limit_key}={checks.dotted(config, limit_key)}"
        self._seed: int | None = config.seed if self._draws(config) else None
        first_match = config.compat.answer_first_match
        anywhere = config.compat.oni_label_anywhere
        self._parse = AnswerParser(self.prompt.answer, first_match, anywhere)
        if self.mode == "soft":
            parsing = "token_probabilities"
        elif anywhere:
            parsing = "anywhere"
        elif first_match:
            parsing = "first_match"
        else:
            parsing = "last_line_after_reasoning"
        identity = {
            **model,
            "goal": config.goal,
            "prompt": self.prompt.identity(),
            "mode": self.mode,
            "parsing": parsing,
            "retry": self._retry,
            "sampling": self._sampling_identity(config),
        }
        if self.mode == "soft":
            # Subclasses add what they read besides; of vLLM's the tokenizer decides it, which the
            # identity names.
            identity["reading"] = {"version": _SOFT_VERSION}
        # Through JSON, as it is compared with identities that were read from files, where tuples
        # are lists.
        self.identity = json.loads(json.dumps(identity))
        version = (
            config.prompt.file.rpartition("/")[2].removesuffix(".yaml") or config.prompt.version
        )
        self.short_name = label_name(model["model"], config.captions, config.goal, version)

    @staticmethod
    def _draws(config: AnnotatorConfig) -> bool:
        """Whether answers are random, so that a seed changes them."""
        # None leaves it to the server, which may draw.
        temperature = config.sampling.temperature
        return config.answer.mode != "soft" and (temperature is None or temperature > 0)

    def _sampling_identity(self, config: AnnotatorConfig) -> dict[str, Any]:
        """The values of `config.sampling` that an answer depends on."""
        if self.mode == "soft":
            return {"minimum_mass": self._minimum_mass}
        sampling = config.sampling
        identity: dict[str, Any] = {
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
        }
        if self.mode == "verdict" and sampling.verdict_tokens != _VERDICT_TOKENS:
            identity["verdict_tokens"] = sampling.verdict_tokens
        if self._draws(config):
            identity |= {"top_k": sampling.top_k, "top_p": sampling.top_p, "seed": self._seed}
        return identity

    def open(self, question: Question, position: int = 0) -> Conversation:
        """The conversation that asks a question; `position` is its index in the call of
        `annotate`.
        """
        return Conversation(position, question, self.prompt.conversation(*question.items))

    def seed(self, conversation: Conversation) -> int | None:
        """The seed of a conversation's next turn, independent of other questions; None for no
        seed.
        """
        if self._seed is None:
            return None
        path = (conversation.question.id, conversation.question.attempt, int(conversation.retried))
        return derive(self._seed, "annotate", *path) % 2**31

    def summary(self) -> dict[str, Any]:
        return {} if self.mode == "soft" else {"token_limit": self._token_limit}

    def read_answer(
        self, conversation: Conversation, text: str, finish_reason: object = None
    ) -> Answer | None:
        """Reads the label of an answer; where it has none, adds the retry turn and returns None:
        the conversation is sent once more.

        An answer that was cut, by `finish_reason` or within its reasoning, has no verdict.
        Published rules read it all the same.
        """
        # The text may be sent back in a second turn, which half a character would break.
        text = without_surrogates(text)
        label, note = self._parse.read(text)
        is_cut = isinstance(finish_reason, str) and _CUT_REASON.search(finish_reason) is not None
        if is_cut or note == UNFINISHED:
            conversation.cut += 1
        if is_cut and not self._parse.is_published:
            label = UNKNOWN
        if is_cut and label == UNKNOWN:
            note = CUT

        if label == UNKNOWN and self._retry and not conversation.retried:
            # Templates of prompts refuse marks of reasoning in an earlier turn.
            earlier = text if self._parse.is_published else spoken(text)[0]
            conversation.turns = self.prompt.retried(conversation.turns, earlier)
            conversation.retried = True
            return None

        conversation.turns = [*conversation.turns, {"role": "assistant", "content": text}]
        return conversation.answer(label, note=note)

    def answer_from_log_probabilities(
        self, conversation: Conversation, log_probabilities: Sequence[float]
    ) -> Answer:
        """The answer from the natural log-probabilities of the verdicts (-inf allowed) after a
        prefilled answer.

        The probabilities are normalised over the verdicts. They are not a label where all verdicts
        together have less than `answer.minimum_mass`: the model would have written something else.
        """
        masses = [math.exp(log_probability) for log_probability in log_probabilities]
        total = math.fsum(masses)
        # The sum of rounded probabilities may be a little above 1.
        mass = min(total, 1.0)

        # `not mass > 0` is also true of NaN, the probability that a model with broken weights has.
        if not mass > 0 or mass < self._minimum_mass:
            return conversation.answer(UNKNOWN, mass=mass if mass > 0 else 0.0, note=IMPROBABLE)

        shares = tuple(verdict_mass / total for verdict_mass in masses)
        # Verdicts that are equally probable decide nothing.
        best = [label for label, share in enumerate(shares) if share == max(shares)]
        label = best[0] if len(best) == 1 else self.prompt.form.undecided
        return conversation.answer(label, shares, mass=mass)
