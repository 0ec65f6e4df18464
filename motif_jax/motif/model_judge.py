"""A language model in this process as the annotator: one token's probabilities, by `lm/`, on a CPU or a GPU.

It answers in mode `soft` alone. A question is the model's chat template with the beginning of the answer in it; the answer is the
probabilities of the verdicts' tokens right after it. `openai` in this mode asks a server the same.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax import lm
from motif_jax.core import config as checks
from motif_jax.core import hub
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import UNKNOWN, Form
from motif_jax.lm import chat_template, next_token, text
from motif_jax.lm.gguf import folder as gguf_folder
from motif_jax.lm.next_token import NextToken
from motif_jax.lm.tokens import Tokenizer
from motif_jax.motif.annotation import chat, model_files
from motif_jax.motif.annotation.annotator import Answer, Preview, Question
from motif_jax.motif.annotation.chat import Conversation
from motif_jax.motif.annotation.config import AnnotatorConfig

# Texts of made-up questions: what their prompts share at the beginning, the prompts of all questions share.
_PROBING_TEXTS = ("", "A", "You see here a key.", "1", "(", "\n")
# Questions that are tokenised and sorted at a time: the tokens of a million questions would take gigabytes.
_SORTED_TOGETHER = 2048


class Prefill(NamedTuple):
    """The beginning of an answer, and for each verdict the tokens that say it right after."""

    text: str
    tokens: list[list[int]]


def _file_or_name(model: str) -> str:
    """The model as it is named; of a folder whose only model is a GGUF file that file."""
    file = gguf_folder.only_file(model) if model and Path(model).is_dir() else None
    return model if file is None else str(file)


class ModelAnnotator(chat.ChatAnnotator):
    """Asks a model of `config.model` for the token after a prefilled answer."""

    loads_model = True
    modes = ("soft",)
    default_mode = "soft"
    default_orders = "both"
    default_prompt = "small"
    questions_at_once = 32

    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any = None) -> None:
        settings = config.model
        model_path = Path(_file_or_name(settings.model))
        self._settings = settings
        self._dtype = settings.dtype
        if self._dtype == "auto":
            self._dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
        # A model that the hub names is fetched here: its files are part of the identity.
        self._path = text.fetch(settings.model, "model.model")
        identity = {
            "annotator": "model",
            "model": model_files.short_name(settings.model),
            "revision": model_files.fingerprint(
                model_path if model_files.is_gguf(model_path) else self._path, model_files.READ_HERE
            ),
            "dtype": self._dtype,
        }
        super().__init__(config, form, identity)
        self._scorer: NextToken | None = None
        self._max_tokens: int | None = None

    @classmethod
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        chat.check_chat(config, form)
        mode = config.answer.mode
        checks.require(mode in cls.modes, "answer.mode", mode, "soft, or auto, with annotator=model")
        if not hub.is_named(config.model.model):
            model_files.check_model(_file_or_name(config.model.model), "model.model")

    @functools.cached_property
    def _template(self) -> chat_template.ChatTemplate | None:
        return chat_template.read(self._path)

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.read(self._path)

    @functools.cached_property
    def _prefill(self) -> Prefill:
        return find_prefill(self)

    def start(self) -> None:
        loaded = lm.load(self._path, jnp.dtype(self._dtype))
        if not loaded.model.config.has_decoder or loaded.model.config.encoder_layers:
            raise UserError(
                f"config.model.model={self._settings.model}: a judge must be a decoder (Llama, Qwen, Gemma, GPT-2), "
                f"this is a {loaded.model.config.architecture} model"
            )
        self._max_tokens = loaded.model.config.max_length
        rows = [self._tokens(self._prompt(*self._made_up(text))) for text in _PROBING_TEXTS]
        shared = rows[0][: next_token.shared_beginning_length(rows)]
        self._scorer = NextToken(
            loaded.model, loaded.params, self._prefill.tokens, shared, self._settings.batch
        )

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer] | None]:
        for start in range(0, len(questions), _SORTED_TOGETHER):
            part = questions[start : start + _SORTED_TOGETHER]
            positioned = enumerate(part, start=start)
            yield from self._answers([self.open(question, position) for position, question in positioned])
            yield None

    def _answers(self, conversations: Sequence[Conversation]) -> Iterator[tuple[int, Answer]]:
        assert self._scorer is not None
        rows = [self._tokens(self._render(conversation.turns)) for conversation in conversations]
        fitting = []
        for index, row in enumerate(rows):
            if self._max_tokens is not None and len(row) > self._max_tokens:
                yield conversations[index].position, conversations[index].answer(UNKNOWN, note=chat.TOO_LONG)
            else:
                fitting.append(index)
        for answered in self._scorer([rows[index] for index in fitting]):
            parts = zip(answered.positions, answered.log_probs, answered.computed, strict=True)
            for position, values, computed in parts:
                row = rows[fitting[position]]
                conversation = conversations[fitting[position]]
                conversation.add_tokens(len(row), 1, len(row) - computed)
                yield (
                    conversation.position,
                    self.answer_from_log_probabilities(conversation, values.tolist(), self._prefill.text),
                )

    def preview(self, question: Question) -> Preview:
        prompt = self._render(self.open(question).turns)
        return Preview(prompt, len(self._tokens(prompt)))

    def close(self) -> None:
        self._scorer = None

    def _made_up(self, item: str) -> tuple[str, ...]:
        return (item,) * len(self.prompt.form.items)

    def _prompt(self, *items: str) -> str:
        return self._render(self.prompt.conversation(*items))

    def _render(self, turns: Sequence[chat_template.Turn], beginning: str | None = None) -> str:
        """The prompt of a conversation with the beginning of the answer, by default that of `_prefill`."""
        beginning = self._prefill.text if beginning is None else beginning
        if self._template is None:  # a base model: plain text, turns apart by an empty line
            return "\n\n".join([*(turn["content"] for turn in turns), beginning])
        if not beginning.strip():
            return self._template.prompt(turns)
        continued = self._template.continued([*turns, {"role": "assistant", "content": beginning}])
        return continued + beginning[len(beginning.rstrip()) :]

    def _tokens(self, prompt: str) -> list[int]:
        # A template writes the special tokens itself.
        return self._tokenizer.encode([prompt], special=self._template is None)[0]


def find_prefill(annotator: ModelAnnotator) -> Prefill:
    """The beginning of an answer after which one token tells the verdicts apart, with the tokens of each verdict.

    As a server's reply is read, all tokens count that say a verdict's word, in small or capital letters, with a blank or without.

    Raises:
      UserError: two verdicts begin with the same token.
    """
    form = annotator.prompt.answer
    tail = form.template.partition("{verdict}")[2]
    turns = annotator.prompt.conversation(*annotator._made_up(""))
    spellings = _spellings(annotator._tokenizer, form.verdicts)
    for beginning in dict.fromkeys((form.prefix.rstrip(), form.prefix)):
        prompt = annotator._render(turns, beginning)
        start = annotator._tokens(prompt)
        rest = form.prefix[len(beginning) :]
        rows = [annotator._tokens(prompt + rest + word + tail) for word in form.verdicts]
        if any(row[: len(start)] != start for row in rows):
            continue  # the verdict's first letters are in one token with the beginning
        groups = [{row[len(start)], *known} for row, known in zip(rows, spellings, strict=True)]
        if len(set().union(*groups)) == sum(map(len, groups)):
            return Prefill(beginning, [sorted(group) for group in groups])
    raise UserError(
        f"config.model.model={annotator._settings.model}: no single token of this model distinguishes "
        f"{', '.join(form.verdicts)} after {form.prefix!r}; use other verdicts in the prompt file"
    )


def _spellings(tokenizer: Tokenizer, words: Sequence[str]) -> list[set[int]]:
    """For each word the tokens whose text it is, whatever the case and the blanks around it."""
    group_of_word = {word.lower(): number for number, word in enumerate(words)}
    groups: list[set[int]] = [set() for _ in words]
    for token, piece in enumerate(tokenizer.pieces(range(tokenizer.size))):
        number = group_of_word.get(piece.strip().lower())
        if number is not None:
            groups[number].add(token)
    return groups
