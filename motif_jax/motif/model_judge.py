"""A language model in this process as the annotator: one token's probabilities, by `lm/`, on a CPU
or a GPU.

It answers in mode `soft` alone. A question is the model's chat template with the beginning of the
answer in it (`judge_prompts.py`); the answer is the probabilities of the verdicts' tokens right
after it. `openai` in this mode asks a server the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from motif_jax import lm
from motif_jax.core import config as checks
from motif_jax.core import hub
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import UNKNOWN, Form
from motif_jax.lm import next_token, text, weights
from motif_jax.lm.gguf import folder as gguf_folder
from motif_jax.lm.next_token import NextToken
from motif_jax.lm.tokens import TOKENS_OF_BATCH
from motif_jax.motif.annotation import chat, model_files
from motif_jax.motif.annotation.annotator import Answer, Preview, Question
from motif_jax.motif.annotation.chat import Conversation
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.prompts import PromptTexts
from motif_jax.motif.judge_prompts import JudgePrompts
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
        self._prompts = _read_prompts(self._path, self.prompt, settings.model)
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
        batch = config.model.batch
        allowed = f"at most {_LARGEST_BATCH}: a batch holds {TOKENS_OF_BATCH:,} tokens at most, 32 for each question"
        checks.require(batch is None or batch <= _LARGEST_BATCH, "model.batch", batch, allowed)
        model = config.model.model
        if hub.is_named(model):
            return
        model_files.check_model(_file_or_name(model), "model.model")
        # A model that the hub names is fetched and read by the constructor: a check downloads
        # nothing.
        if model_files.is_path(model):
            _read_prompts(text.fetch(model, "model.model"), texts, model)

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
        prefill = self._prompts.prefill.text
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
                    self.answer_from_log_probabilities(conversation, values.tolist(), prefill),
                )

    def preview(self, question: Question) -> Preview:
        prompt = self._prompts.prompt(self.open(question).turns)
        return Preview(prompt, len(self._prompts.tokens(prompt)))

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), "prompts": self._prompts.turns_by}

    def close(self) -> None:
        self._scorer = None


def _read_prompts(folder: Path, texts: PromptTexts, model: str) -> JudgePrompts:
    """The prompts of a model that can judge, of which no tensor is read.

    Raises:
      UserError: its config, weights, tokenizer or chat template cannot be used, it is no decoder,
        or none of its tokens distinguishes the verdicts; the message names config.model.model.
    """
    try:
        settings = weights.read_config(folder)
        if not settings.has_decoder or settings.encoder_layers:
            raise UserError(
                "a judge must be a decoder (Llama, Qwen, Gemma, GPT-2), "
                f"this is a {settings.architecture} model"
            )
        weights.check(folder, settings)
        return JudgePrompts(folder, texts, settings.vocab_size)
    except UserError as error:
        raise UserError(f"config.model.model={model}: {error}") from None
