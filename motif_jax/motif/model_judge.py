"""A language model in this process as the annotator: one token's probabilities, by `lm/`, on a CPU
or a GPU.

It answers in mode `soft` alone. A question is the model's chat template with the beginning of the
answer in it (`JudgePrompts`); the answer is the probabilities of the verdicts' tokens right
after it. `openai` in this mode asks a server the same.
"""

from __future__ import annotations

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
from motif_jax.lm import chat_template, next_token, text, weights
from motif_jax.lm.chat_template import Turn
from motif_jax.lm.gguf import folder as gguf_folder
from motif_jax.lm.next_token import NextToken
from motif_jax.lm.tokens import Tokenizer
from motif_jax.motif.annotation import chat, model_files
from motif_jax.motif.annotation.annotator import Answer, Preview, Question
from motif_jax.motif.annotation.chat import Conversation
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.prompts import PromptTexts
from motif_jax.nets import products

# Texts of made-up questions: what their prompts share at the beginning, the prompts of all
# questions share.
_PROBING_TEXTS = ("", "A", "You see here a key.", "1", "(", "\n")
# A batch has so many times 32 tokens, and no more than lm.tokens.TOKENS_OF_BATCH: beyond it
# attention would take gigabytes.
_LARGEST_BATCH = 128
# Where the config leaves it open: states of more than 512 tokens are too large for a CPU's caches.
_BATCH_OF_CPU = 16
# Questions that are tokenised and sorted at a time: the tokens of a million questions would take
# gigabytes.
_SORTED_TOGETHER = 2048


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
            # Few CPUs multiply bfloat16 themselves; on others a model of 0.5B had no answer after
            # six minutes.
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
        self._prompts = _read_prompts(self._path, self.prompt)
        # Answers depend on the tokens that count as verdicts, and these on `find_prefill`.
        reading = {**self.identity["reading"], **self._prompts.identity()}
        self.identity = {**self.identity, "reading": reading}
        self._scorer: NextToken | None = None
        self._max_tokens: int | None = None

    @classmethod
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        texts = chat.check_chat(config, form)
        mode = config.answer.mode
        checks.require(
            mode in cls.modes, "answer.mode", mode, "soft, or auto, with annotator=model"
        )
        model = config.model.model
        # A model that the hub names is fetched and read by the constructor: a check downloads
        # nothing.
        if model_files.is_path(model) and not hub.is_named(model):
            _read_prompts(text.fetch(model, "model.model"), texts)

    def start(self) -> None:
        print(self._prompts.in_words, flush=True)
        on_cpu = jax.default_backend() == "cpu"
        if on_cpu and self._dtype == "float32" and products.has_bfloat16_products():
            print(
                "this processor multiplies bfloat16: with model.dtype=bfloat16 the judge is about twice as fast (stored answers are of one dtype)",
                flush=True,
            )
        # XLA multiplies faster on a CPU by kernels that are kept as [out, in], as files have them.
        output_major = products.prefers_output_major()
        loaded = lm.load(self._path, jnp.dtype(self._dtype), output_major=output_major)
        self._max_tokens = loaded.model.config.max_length
        rows = [self._prompts.tokens(self._prompts.made_up_prompt(item)) for item in _PROBING_TEXTS]
        shared = rows[0][: next_token.shared_beginning_length(rows)]
        tokens = self._prompts.prefill.tokens
        self._scorer = NextToken(loaded.model, loaded.params, tokens, shared, self._batch())

    def _batch(self) -> int:
        if self._settings.batch is not None:
            return self._settings.batch
        return _BATCH_OF_CPU if jax.default_backend() == "cpu" else _LARGEST_BATCH

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer] | None]:
        for start in range(0, len(questions), _SORTED_TOGETHER):
            part = questions[start : start + _SORTED_TOGETHER]
            positioned = enumerate(part, start=start)
            yield from self._answers(
                [self.open(question, position) for position, question in positioned]
            )
            yield None

    def _answers(self, conversations: Sequence[Conversation]) -> Iterator[tuple[int, Answer]]:
        assert self._scorer is not None
        prompts = [self._prompts.prompt(conversation.turns) for conversation in conversations]
        rows = [self._prompts.tokens(prompt) for prompt in prompts]
        fitting = []
        for index, row in enumerate(rows):
            # Unknown at once; the others are packed together.
            if self._max_tokens is not None and len(row) > self._max_tokens:
                yield (
                    conversations[index].position,
                    conversations[index].answer(UNKNOWN, note=chat.TOO_LONG),
                )
            else:
                fitting.append(index)
        for answered in self._scorer([rows[index] for index in fitting]):
            parts = zip(answered.positions, answered.log_probs, answered.computed, strict=True)
            for position, values, computed in parts:
                row = rows[fitting[position]]
                conversation = conversations[fitting[position]]
                # Tokens that were run for another question count as a server's cached ones.
                conversation.add_tokens(len(row), 1, len(row) - computed)
                yield (
                    conversation.position,
                    self.answer_from_log_probabilities(conversation, values.tolist()),
                )

    def preview(self, question: Question) -> Preview:
        prompt = self._prompts.prompt(self.open(question).turns)
        return Preview(prompt, len(self._prompts.tokens(prompt)))

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), "prompts": self._prompts.turns_by}

    def close(self) -> None:
        self._scorer = None


def _read_prompts(folder: Path, texts: PromptTexts) -> JudgePrompts:
    """The prompts of a model that can judge, of which no tensor is read.

    Raises:
      UserError: its config, weights, tokenizer or chat template cannot be used, it is no decoder,
        or none of its tokens distinguishes the verdicts.
    """
    settings = weights.read_config(folder)
    if not settings.has_decoder or settings.encoder_layers:
        raise UserError(
            "a judge must be a decoder (Llama, Qwen, Gemma, GPT-2), "
            f"this is a {settings.architecture} model"
        )
    weights.check(folder, settings)
    return JudgePrompts(folder, texts, settings.vocab_size)


# Prompts: turns as text, the beginning of the answer, and the tokens that say each verdict. They
# need a model's tokenizer and chat template, and none of its weights: a command checks them before
# it begins.


class Prefill(NamedTuple):
    """The beginning of an answer, and for each verdict the tokens that say it right after."""

    text: str
    tokens: list[list[int]]


class JudgePrompts:
    """The questions of one prompt file as a model of one folder reads them.

    Attributes:
      prefill: the beginning of every answer.
    """

    def __init__(self, folder: Path, texts: PromptTexts, vocab_size: int) -> None:
        """Reads the tokenizer and the chat template of `folder`; `vocab_size` is that of the model.

        Raises:
          UserError: one of the two cannot be used, or they do not fit the prompt file.
        """
        self.texts = texts
        self.tokenizer = Tokenizer.read(folder, vocab_size)
        self._template = chat_template.read(folder)
        self.prefill = find_prefill(self)

    @property
    def turns_by(self) -> str:
        """What writes the turns: 'chat template' or 'plain text'."""
        return "plain text" if self._template is None else "chat template"

    def identity(self) -> dict[str, Any]:
        """What answers depend on besides the model's files and the prompt's texts."""
        return {"turns": self.turns_by, "prefill": self.prefill.text, "tokens": self.prefill.tokens}

    @property
    def in_words(self) -> str:
        """One line: how the prompts are written."""
        if self._template is None:
            return (
                "prompts: plain text, an empty line between turns (the model has no chat template)"
            )
        return "prompts: turns by the model's own chat template"

    def prompt(self, turns: Sequence[Turn]) -> str:
        """The text of a conversation with the beginning of its answer."""
        return self.prompt_with(turns, self.prefill.text)

    def made_up_prompt(self, item: str) -> str:
        """The prompt of a question all of whose texts are `item`."""
        return self.prompt(self.made_up_turns(item))

    def made_up_turns(self, item: str) -> list[dict[str, str]]:
        """The turns of a question all of whose texts are `item`."""
        return self.texts.conversation(*[item] * len(self.texts.form.items))

    def prompt_with(self, turns: Sequence[Turn], beginning: str) -> str:
        """The text of a conversation with `beginning` as that of its answer.

        Raises:
          UserError: the chat template refuses the turns, as some do those of the system.
        """
        if self._template is None:
            return "\n\n".join([*(turn["content"] for turn in turns), beginning])
        if not beginning.strip():
            return self._template.prompt(turns)
        continued = self._template.continued([*turns, {"role": "assistant", "content": beginning}])
        # `continued` ends at the last letter; the blank behind it decides the verdict's tokens.
        return continued + beginning[len(beginning.rstrip()) :]

    def tokens(self, prompt: str) -> list[int]:
        """Tokens of a prompt, with special tokens in front of it and none after it: the answer goes
        on.
        """
        # A template writes the special tokens itself.
        has_special = self._template is None
        (row,) = self.tokenizer.encode([prompt], special=has_special, closed=False)
        return row


def find_prefill(prompts: JudgePrompts) -> Prefill:
    """The beginning of an answer after which one token tells the verdicts apart, with the tokens of
    each verdict.

    As a server's reply is read, all tokens count that say a verdict's word, in small or capital
    letters, with a blank or without.

    Raises:
      UserError: two verdicts begin with the same token, or one has none.
    """
    form = prompts.texts.answer
    tail = form.template.partition("{verdict}")[2]
    turns = prompts.made_up_turns("")
    spellings = _spellings(prompts.tokenizer, form.verdicts)
    for beginning in dict.fromkeys((form.prefix.rstrip(), form.prefix)):
        prompt = prompts.prompt_with(turns, beginning)
        start = prompts.tokens(prompt)
        rest = form.prefix[len(beginning) :]
        rows = [prompts.tokens(prompt + rest + word + tail) for word in form.verdicts]
        # The verdict's first letters may be in one token with the beginning.
        begin_alike = all(row[: len(start)] == start for row in rows)
        # A tokenizer may drop letters that it does not know.
        have_verdicts = start and all(len(row) > len(start) for row in rows)
        if not (begin_alike and have_verdicts):
            continue
        groups = [{row[len(start)], *known} for row, known in zip(rows, spellings, strict=True)]
        if len(set().union(*groups)) == sum(map(len, groups)):
            return Prefill(beginning, [sorted(group) for group in groups])
    raise UserError(
        f"no single token of this model distinguishes {', '.join(form.verdicts)} after {form.prefix!r}; "
        "use other verdicts in the prompt file"
    )


def _spellings(tokenizer: Tokenizer, words: Sequence[str]) -> list[set[int]]:
    """For each word the tokens whose text it is, whatever the case and the blanks around it."""
    group_of_word = {word.lower(): number for number, word in enumerate(words)}
    groups: list[set[int]] = [set() for _ in words]
    for token, token_text in enumerate(tokenizer.all_texts):
        number = group_of_word.get(token_text.strip().lower())
        if number is not None:
            groups[number].add(token)
    return groups
