"""Runs a language model on texts: scores of candidates, continuations, states."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core import hub
from motif_jax.core.devices import jax_options
from motif_jax.core.errors import UserError
from motif_jax.core.joint_tokens import JointRows
from motif_jax.lm import beams, chat_template, scoring, weights
from motif_jax.lm.chat_template import ChatTemplate, Prompt
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.generation import Limits, Sampling, Segments
from motif_jax.lm.gguf import files as gguf_files
from motif_jax.lm.gguf import folder as gguf_folder
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.tokens import (
    Tokenizer,
    TokenRows,
    batches_of_like_length,
    bucket,
    candidate_rows,
    padded,
)

# What a decoder writes for a part of a letter.
_REPLACEMENT = "\ufffd"
# Types of numbers that a loaded network may have.
DTYPES = ("float32", "bfloat16", "float16")


class TokenLogProbs(NamedTuple):
    """A text token by token; for a decoder the prompt's tokens come first, and the first has no
    prediction.
    """

    pieces: list[str]  # each token as text
    log_probs: np.ndarray  # float32 [tokens], NaN for a decoder's first token
    entropies: np.ndarray  # float32 [tokens], of the predictions, in nats
    start: int  # number of prompt tokens


class TextModel:
    """A network, its parameters and its tokenizer; at most `batch` prompts of like length run at
    once.

    A prompt is a text, or turns {"role": ..., "content": ...} of a conversation where the model has
    a chat template: its answer follows, and no blank stands before it.
    """

    @jax_options.defaults()
    def __init__(
        self,
        model: LanguageModel,
        params: Any,
        tokenizer: Tokenizer,
        batch: int = 32,
        template: ChatTemplate | None = None,
    ) -> None:
        self.model, self.tokenizer, self._batch = model, tokenizer, batch
        self.template = template
        self.params = jax.device_put(params)
        self._score = jax.jit(functools.partial(scoring.score, model), static_argnames="by_length")
        self._states = jax.jit(model.prefill)
        self._segments = Segments(model)
        self._token_log_probs = jax.jit(functools.partial(scoring.token_log_probs, model))
        search = functools.partial(beams.beam_search, model)
        self._search = jax.jit(search, static_argnames=("limits", "beams"))

    @jax_options.defaults()
    def score(
        self,
        prompts: Sequence[Prompt],
        candidates: Sequence[str] | Sequence[Sequence[str]],
        by_length: bool = False,
    ) -> list[np.ndarray]:
        """Log-probabilities of candidates, the same for all prompts or a list for each: for each
        prompt float32 [candidates].

        An encoder reads the prompt, and its decoder begins a text of its own: the candidate is
        tokenised alone. A decoder reads prompt and candidate as one text, and they are tokenised
        together: a candidate has the blank that stands between the words ("The door is", " open").
        Its tokens are those after the longest common beginning of the prompt's tokens and those of
        both; where the tokenizer merges letters across the place where they meet, the tokens that
        differ from the prompt's are scored as the candidate's (`core.joint_tokens`).

        `by_length` divides by the candidate's number of tokens.

        Raises:
          UserError: two candidates have the same tokens, one has none, or a text is too long for
            the model; or a score is no number, since the weights hold values that are not finite.
        """
        prompts, special = chat_template.write_prompts(prompts, self.template)
        chat_template.require_list(candidates, "candidates")
        names_of: Sequence[Any] = candidates
        # Texts are for all prompts, lists are one for each.
        if all(isinstance(candidate, str) for candidate in candidates):
            names_of = [candidates] * len(prompts)
        # All are tokenised before the first batch, which has the longest prompts.
        encoded = encode_candidates(self.tokenizer, self.model.config, prompts, names_of, special)
        # Of all prompts, and not of a batch: the candidates' shape is the same in all batches.
        longest = max((len(row) for rows in encoded for row in rows.candidates), default=0)
        count = max((len(rows.candidates) for rows in encoded), default=0)
        scores: dict[int, np.ndarray] = {}
        # All candidates of a prompt are in memory at once, with the logits of their tokens.
        for positions in self._batches([rows.prompt for rows in encoded], count * longest):
            part = [prompts[position] for position in positions]
            chosen = [encoded[position] for position in positions]
            candidate_lengths = [max(map(len, options.candidates)) for options in chosen]
            rows = self._rows(part, candidate_lengths, [options.prompt for options in chosen])
            # Prompts with fewer candidates, and batches with fewer prompts, are filled with the
            # first ones.
            batch = [*chosen, *[chosen[0]] * (len(rows.tokens) - len(part))]
            filled = [_filled(options.candidates, count) for options in batch]
            flat = padded([row for options in filled for row in options], longest)
            shape = (len(filled), count, longest)
            inputs = (*rows, flat.tokens.reshape(shape), flat.valid.reshape(shape))
            # Of a decoder alone: tokens of the prompt at the beginning of a candidate's row
            # (`JointRows`).
            starts = np.array([_filled(options.starts, count) for options in batch], np.int32)
            totals = np.asarray(
                self._score(self.params, *inputs, by_length=by_length, starts=starts).total
            )
            # The rows behind are copies that fill the batch.
            _require_numbers(totals[: len(part)])
            for position, options, total in zip(positions, chosen, totals, strict=False):
                scores[position] = total[: len(options.candidates)]
        return [scores[position] for position in range(len(prompts))]

    @jax_options.defaults()
    def generate(
        self,
        prompts: Sequence[Prompt],
        max_new_tokens: int = 64,
        sampling: Sampling | None = None,
        count: int = 1,
        search: bool = False,
        stops: Sequence[str] = (),
        seed: int = 0,
    ) -> list[list[str]]:
        """Writes `count` continuations of each prompt, of at most `max_new_tokens` tokens.

        Args:
          sampling: None: greedy.
          search: search `count` beams instead of drawing, whatever `sampling` says; the best comes
              first.
          stops: texts that end a continuation and are cut off: special tokens (`</s>`) or any text.
              A beam ends at a stop that is a token of the model; before others it is cut.
          seed: of the draws, which depend on it and the prompt's index alone.

        Raises:
          UserError: a text is too long for the model, or the weights hold values that are not
            finite.
        """
        prompts, special = chat_template.write_prompts(prompts, self.template)
        chat_template.require_list(stops, "stops")
        sampling = sampling or Sampling(greedy=True)
        ends = (*self.model.config.end_ids, *stop_tokens(self.tokenizer, stops))
        limits = Limits(max_new_tokens, ends)
        # By the prompt's index in the call, whatever batch it runs in.
        of_prompt = jax.vmap(jax.random.fold_in, (None, 0))(
            jax.random.key(seed), jnp.arange(len(prompts))
        )
        keys = jax.vmap(lambda key: jax.random.split(key, count))(of_prompt)
        # A decoder goes on with the prompt: a token that the tokenizer adds after a text would end
        # it before its answer.
        closed = self.model.config.encoder_layers > 0
        prompt_rows = self.tokenizer.encode(prompts, special, closed)
        written: dict[int, list[str]] = {}
        for positions in self._batches(prompt_rows, max_new_tokens):
            part = [prompts[position] for position in positions]
            rows = self._rows(
                part, max_new_tokens, [prompt_rows[position] for position in positions]
            )
            if search:
                best = self._search(self.params, *rows, limits=limits, beams=count)
                tokens, valid, log_probs = best[:3]
            else:
                spare = [positions[0]] * (len(rows.tokens) - len(positions))
                row_keys = keys[jnp.asarray([*positions, *spare])]
                tokens, valid, log_probs = self._segments.write(
                    self.params, *rows, row_keys, limits, sampling, count,
                    functools.partial(self._says, stops) if stops else None,
                )  # fmt: skip
            _require_numbers(log_probs[: len(positions)])
            for position, row, is_token in zip(
                positions, np.asarray(tokens), np.asarray(valid), strict=False
            ):
                # A stop token ends a text and is not part of what is returned.
                texts = (
                    x[y & ~np.isin(x, limits.stops)] for x, y in zip(row, is_token, strict=True)
                )
                written[position] = [_before(self.tokenizer.decode(text), stops) for text in texts]
        return [written[position] for position in range(len(prompts))]

    def _says(self, stops: Sequence[str], tokens: Sequence[int]) -> bool:
        return any(stop in self.tokenizer.decode(tokens) for stop in stops)

    @jax_options.defaults()
    def token_log_probs(
        self, prompts: Sequence[Prompt], texts: Sequence[str]
    ) -> list[TokenLogProbs]:
        """The model's log-probabilities and entropies at each token of texts after their prompts;
        see `display.token_page`.

        For a decoder alone a prompt may be empty.

        Raises:
          UserError: a text has no tokens or is too long for the model, or a log-probability is no
            number.
        """
        settings = self.model.config
        log_probs_of: dict[int, TokenLogProbs] = {}
        chat_template.require_list(texts, "texts")
        prompts, special = chat_template.write_prompts(prompts, self.template)
        both = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
        for positions in self._batches(self.tokenizer.encode(both, special), 0):
            read_prompts = [prompts[position] for position in positions]
            answers = [texts[position] for position in positions]
            if settings.encoder_layers:
                shown = self.tokenizer.encode(answers, special=False)
                starts = [0] * len(shown)
                rows = self._rows(read_prompts, 0, self.tokenizer.encode(read_prompts, special))
                # An encoder and its decoder: the prompt and the text are two rows.
                more = self._rows(answers, 0, shown)
            else:
                joint = self.tokenizer.encode_joint(
                    read_prompts, [[answer] for answer in answers], special
                )
                shown = [[*one.prompt, *one.candidates[0]] for one in joint]
                starts = [len(one.prompt) for one in joint]
                # A decoder alone reads both as one row, of which `starts` tokens are the prompt's.
                rows = more = self._rows([both[position] for position in positions], 0, shown)
            outputs = self._token_log_probs(self.params, *rows, *more)
            log_probs = np.array(outputs[0])
            entropies = np.array(outputs[1])
            if not settings.encoder_layers:  # a decoder alone does not predict its first token
                log_probs[:, 0] = np.nan
                entropies[:, 0] = np.nan
            first_predicted = 0 if settings.encoder_layers else 1
            for i, (row, start) in enumerate(zip(shown, starts, strict=True)):
                numbers = (log_probs[i, : len(row)], entropies[i, : len(row)])
                _require_numbers(numbers[0][first_predicted:])
                log_probs_of[positions[i]] = TokenLogProbs(
                    self.tokenizer.pieces(row), *numbers, start
                )
        return [log_probs_of[position] for position in range(len(texts))]

    @jax_options.defaults()
    def states(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Hidden states float32 [tokens, D] of texts, after the last norm (an encoder's where there
        is one).
        """
        chat_template.require_list(texts, "texts")
        text_rows = self.tokenizer.encode(list(texts))
        states_of: dict[int, np.ndarray] = {}
        for positions in self._batches(text_rows, 0):
            part = [texts[position] for position in positions]
            rows = self._rows(part, 0, [text_rows[position] for position in positions])
            # An encoder's states where there is one: `prefill` runs that, and no decoder.
            states = np.asarray(self._states(self.params, *rows)[0].after, np.float32)
            for position, of_text, valid in zip(positions, states, rows.valid, strict=False):
                states_of[position] = of_text[valid]
        return [states_of[position] for position in range(len(texts))]

    def _batches(self, rows: Sequence[Sequence[int]], more: int) -> list[list[int]]:
        """Positions of the texts that run together (`batches_of_like_length`); `more` tokens follow
        each of `rows`.
        """
        return batches_of_like_length([len(row) + more for row in rows], self._batch)

    def _rows(self, texts: list[str], more: int | list[int], encoded: list[list[int]]) -> TokenRows:
        """Pads texts to a bucket's length and to a full batch, so that one program serves every
        part of a list.

        `more` tokens follow each text, or all of them.
        """
        settings = self.model.config
        more_of_each = [more] * len(texts) if isinstance(more, int) else more
        require_prompts(texts, encoded, settings, more_of_each)
        room = None if settings.max_length is None else settings.max_length - max(more_of_each)
        rows = padded(encoded, bucket(max(map(len, encoded)), room), settings.pad_id)
        # Up to a power of two, so that a short list does not compute a whole batch.
        spare = min(self._batch, 1 << (len(texts) - 1).bit_length()) - len(texts)
        return TokenRows(*(np.concatenate([x, np.repeat(x[:1], spare, axis=0)]) for x in rows))


@jax_options.defaults()
def load(
    folder: str | Path, dtype: Any = jnp.float32, batch: int = 32, output_major: bool = False
) -> TextModel:
    """Loads a checkpoint in the layout of transformers (config.json, safetensors, tokenizer.json),
    or a GGUF file.

    Args:
      folder: of the checkpoint, a GGUF file, or a model on the Hugging Face hub: OWNER/NAME,
        hf://OWNER/NAME@REVISION, or hf://OWNER/NAME/FILE.gguf.
      dtype: of parameters and computation.
      batch: so many prompts run at once, at most.
      output_major: kernels of `params` are [out, in], see `LanguageModel`.

    Raises:
      UserError: a file's content is unknown, or files do not fit together; `batch` is below 1; or
        `dtype` is none of `DTYPES`.
    """
    # Parameters of whole numbers would all be 0, and batches of no prompts never end.
    if batch < 1 or jnp.dtype(dtype).name not in DTYPES:
        raise UserError(
            f"batch={batch} must be at least 1, and dtype={jnp.dtype(dtype).name} one of {', '.join(DTYPES)}"
        )
    path = fetch(folder)
    settings = weights.read_config(path)
    tokenizer = Tokenizer.read(path, settings.vocab_size)
    params = weights.load(path, settings, dtype, jax.device_put, output_major)
    model = LanguageModel(settings, dtype, output_major=output_major)
    return TextModel(model, params, tokenizer, batch, chat_template.read(path))


def fetch(name: str | Path, key: str = "") -> Path:
    """The folder of a checkpoint: `name` itself, one that stands for a GGUF file, or a copy of the
    hub's model.

    Raises:
      UserError: there is no such folder, file or model, or the GGUF file cannot be used; it names
          `key` of the config.
    """
    # Only hf:// is surely the hub's. A bare OWNER/NAME may be a folder, which comes first.
    if hub.is_named(name):
        return gguf_folder.resolved(hub.local(name, key))
    if gguf_files.is_gguf(name) or (str(name) and Path(name).is_dir()):
        return gguf_folder.resolved(name)
    where = f"config.{key}={name}" if key else str(name)
    missing = f"{where} is neither a folder nor a model of the hub"
    return hub.snapshot(str(name), None, missing, hub.MODEL_FILES)


def require_prompts(
    texts: Sequence[str],
    rows: Sequence[Sequence[int]],
    settings: ModelConfig,
    more: Sequence[int],
) -> None:
    """Raises UserError for a text without tokens, or without room for `more` tokens after it, of
    each text.

    `rows` are the texts' tokens.
    """
    for text, row, following in zip(texts, rows, more, strict=True):
        # A decoder has no state after it from which a first token could be predicted.
        if not row:
            raise UserError(f"text {text!r} has no tokens")
        if settings.max_length is not None and len(row) + following > settings.max_length:
            raise UserError(
                f"a prompt of {len(row)} tokens ({text[:40]!r}...) and {following} more do not fit a model of {settings.max_length} positions"
            )


def encode_candidates(
    tokenizer: Tokenizer,
    settings: ModelConfig,
    prompts: Sequence[str],
    candidates: Sequence[Sequence[str]],
    special: bool = True,
) -> list[JointRows]:
    """The tokens of each prompt and of its candidates: tokenised together for a decoder, apart for
    an encoder and its decoder.

    `special`: prompts have the special tokens that the tokenizer adds.

    Raises:
      UserError: see `Tokenizer.encode_joint`.
    """
    if not settings.encoder_layers:
        return tokenizer.encode_joint(prompts, candidates, special)
    # Many prompts share their candidates, which are tokenised once.
    distinct = dict.fromkeys(tuple(texts) for texts in candidates)
    rows_of = {texts: candidate_rows(tokenizer, texts) for texts in distinct}
    prompt_rows = tokenizer.encode(prompts, special)
    encoded = []
    for row, texts in zip(prompt_rows, candidates, strict=True):
        candidate_tokens = rows_of[tuple(texts)]
        encoded.append(JointRows(row, candidate_tokens, [0] * len(candidate_tokens)))
    return encoded


def stop_tokens(tokenizer: Tokenizer, stops: Sequence[str]) -> tuple[int, ...]:
    """The tokens that are one of the stops by themselves: the loop on the device ends at them. A
    stop may have none; it is looked for in the decoded text.

    They are known by their decoded text: a tokenizer of bytes names bytes by other letters, so that
    a line break is its token "\u010a", and its token "\u00e9" a part of other letters.
    """
    if not stops:
        return ()
    # A stop with U+FFFD would match every token that is a part of a letter.
    wanted = {stop for stop in stops if _REPLACEMENT not in stop}
    # Several tokens may decode to one text: all of them end it.
    return tuple(token for token, text in enumerate(tokenizer.all_texts) if text in wanted)


def _before(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop in it: the device ends at tokens alone, and a stop may lie
    within one or have several.
    """
    starts = [text.find(stop) for stop in stops if stop in text]
    return text[: min(starts, default=len(text))]


def _require_numbers(log_probs: Any) -> None:
    """Raises UserError where a score or a log-probability is NaN."""
    if np.isnan(np.asarray(log_probs)).any():
        raise UserError(
            "the model's scores are not numbers: its weights hold values that are not finite, so that no text is the best; "
            "load another checkpoint, or another type of numbers where they are too large for this one"
        )


def _filled(values: Sequence[Any], count: int) -> list[Any]:
    """`count` values, the first one again after the last."""
    return [*values, *[values[0]] * (count - len(values))]
