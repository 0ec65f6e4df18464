"""Conversations of annotators by language models, in process or behind a server."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json
from motif_jax.core.seeds import derive
from motif_jax.core.verdicts import FORMS, PAIR, UNKNOWN, Form
from motif_jax.motif.annotation.annotator import Annotator, Answer, Question
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.parsing import AnswerParser
from motif_jax.motif.annotation.prompts import PromptTexts, Turns, label_name, load_prompt, prompt_path
from motif_jax.motif.annotation.reasoning import as_earlier_turn

# Default of sampling.verdict_tokens, which is no part of what answers depend on.
_VERDICT_TOKENS = 64
# Words of the reason for which an answer ended before the model ended it, as servers name it.
_CUT_REASON = re.compile(
    "length|max|limit|trunc|incomplete|abort|interrupt|insufficient|time|error", re.IGNORECASE
)
CUT = "cut before its end"
UNFINISHED = "ends within its reasoning"
TOO_LONG = "prompt too long for the model"
IMPROBABLE = "the verdicts have little probability"


def check_chat(config: AnnotatorConfig, form: Form = PAIR) -> PromptTexts:
    """The prompt for questions of `form`. Raises UserError: a bad value, or a prompt file that cannot be used."""
    top_k = config.sampling.top_k
    checks.require(top_k == -1 or top_k >= 1, "sampling.top_k", top_k, "at least 1, or -1 for no limit")
    path = prompt_path(config.prompt.version, config.prompt.file, form)
    return load_prompt(path, config.goal, config.answer.mode, form)


def json_option(config: object, key: str) -> dict[str, Any]:
    """A config value that must hold a JSON object."""
    text = checks.dotted(config, key)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise UserError(f"config.{key}={text}: must be a JSON object ({error})") from None
    checks.require(isinstance(value, dict), key, text, "a JSON object")
    return value


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

    def cost(self, prompt: int, completion: int, cached: int) -> None:
        self.tokens = self.tokens[0] + prompt, self.tokens[1] + completion, self.tokens[2] + cached

    def answer(self, label: int, probabilities: tuple[float, ...] | None = None, **more: Any) -> Answer:
        turns = tuple(self.turns)
        return Answer(label, probabilities, self.tokens, turns, retried=self.retried, cut=self.cut, **more)


class ChatAnnotator(Annotator):
    """Holds conversations, parses answers, and retries once; subclasses reach the model."""

    forms = FORMS
    reads_prompt = True

    def __init__(self, config: AnnotatorConfig, form: Form, model: Mapping[str, Any]) -> None:
        """`model` identifies the model: annotator, model, revision, and whatever changes its answers."""
        self.prompt = check_chat(config, form)
        self.mode: str = config.answer.mode
        self._retry = config.answer.retry and self.mode != "soft"
        self._minimum_mass: float = config.answer.minimum_mass
        limit_key = "sampling.verdict_tokens" if self.mode == "verdict" else "sampling.max_tokens"
        self._token_limit = f"config.{limit_key}={checks.dotted(config, limit_key)}"
        self._seed: int | None = config.seed if self._draws(config) and config.sampling.seeded else None
        first_match = config.compat.answer_first_match
        anywhere = config.compat.oni_label_anywhere
        self._parse = AnswerParser(self.prompt.answer, first_match, anywhere)
        identity = {
            **model,
            "goal": config.goal,
            "prompt": self.prompt.identity(),
            "mode": self.mode,
            "parsing": "anywhere"
            if anywhere
            else "first_match"
            if first_match
            else "last_line_after_reasoning",
            "retry": self._retry,
            "sampling": self._sampling_identity(config),
        }
        self.identity = json.loads(json.dumps(identity))
        version = config.prompt.file.rpartition("/")[2].removesuffix(".yaml") or config.prompt.version
        self.short_name = label_name(model["model"], config.captions.status, config.goal, version)

    @staticmethod
    def _draws(config: AnnotatorConfig) -> bool:
        temperature = config.sampling.temperature
        return config.answer.mode != "soft" and (temperature is None or temperature > 0)

    def _sampling_identity(self, config: AnnotatorConfig) -> dict[str, Any]:
        if self.mode == "soft":
            return {"minimum_mass": self._minimum_mass}
        given = config.sampling
        sampling: dict[str, Any] = {"temperature": given.temperature, "max_tokens": given.max_tokens}
        if self.mode == "verdict" and given.verdict_tokens != _VERDICT_TOKENS:
            sampling["verdict_tokens"] = given.verdict_tokens
        if self._draws(config):
            sampling |= {"top_k": given.top_k, "top_p": given.top_p, "seed": self._seed}
        return sampling

    def open(self, question: Question, position: int = 0) -> Conversation:
        return Conversation(position, question, self.prompt.conversation(*question.items))

    def seed(self, dialogue: Conversation) -> int | None:
        """The seed of a dialogue's next turn, independent of other questions; None for no seed."""
        if self._seed is None:
            return None
        path = (dialogue.question.id, dialogue.question.attempt, int(dialogue.retried))
        return derive(self._seed, "annotate", *path) % 2**31

    def summary(self) -> dict[str, Any]:
        return {} if self.mode == "soft" else {"token_limit": self._token_limit}

    def read_answer(self, dialogue: Conversation, text: str, finish_reason: object = None) -> Answer | None:
        """Parses an answer; None if the conversation continues with the retry turn.

        One that was cut, by `finish_reason` or within its reasoning, has no verdict. Published rules read it all the same.
        """
        text = without_surrogates(text)
        label, unfinished = self._parse.read(text)
        cut = isinstance(finish_reason, str) and _CUT_REASON.search(finish_reason) is not None
        dialogue.cut += cut or unfinished
        if cut and not self._parse.is_published:
            label = UNKNOWN
        if label == UNKNOWN and self._retry and not dialogue.retried:
            earlier = text if self._parse.is_published else as_earlier_turn(text)
            dialogue.turns = self.prompt.retried(dialogue.turns, earlier)
            dialogue.retried = True
            return None
        dialogue.turns = [*dialogue.turns, {"role": "assistant", "content": text}]
        note = CUT if cut else UNFINISHED if unfinished else ""
        return dialogue.answer(label, note=note if label == UNKNOWN else "")

    def soft(self, dialogue: Conversation, log_probabilities: Sequence[float], prefill: str) -> Answer:
        """The answer from log-probabilities of the verdicts (-inf allowed) after a prefilled answer."""
        masses = [math.exp(value) for value in log_probabilities]
        total = math.fsum(masses)
        mass = min(total, 1.0)
        # A model whose weights are broken has probabilities that are no numbers.
        if not mass > 0 or mass < self._minimum_mass:
            mass = mass if mass > 0 else 0.0
            dialogue.turns = [*dialogue.turns, {"role": "assistant", "content": prefill}]
            return dialogue.answer(UNKNOWN, mass=mass, note=IMPROBABLE)
        shares = tuple(value / total for value in masses)
        best = [label for label, share in enumerate(shares) if share == max(shares)]
        label = best[0] if len(best) == 1 else self.prompt.form.undecided
        said = f"{prefill} [{', '.join(f'{share:.4f}' for share in shares)}]"
        dialogue.turns = [*dialogue.turns, {"role": "assistant", "content": said}]
        return dialogue.answer(label, shares, mass=mass)
