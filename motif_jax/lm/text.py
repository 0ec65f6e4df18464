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
from motif_jax.core.errors import UserError
from motif_jax.lm import beams, config, prompt_length, scoring, weights
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.sampling import Limits, Sampling
from motif_jax.lm.segments import Segments
from motif_jax.lm.tokens import Tokenizer, TokenRows, bucket, candidate_rows, padded


class TokenLogProbs(NamedTuple):
    """A text token by token; for a decoder the prompt's tokens come first, and the first has no prediction."""

    pieces: list[str]  # each token as text
    log_probs: np.ndarray  # float32 [tokens], NaN for a decoder's first token
    entropies: np.ndarray  # float32 [tokens], of the predictions, in nats
    start: int  # number of prompt tokens


class TextModel:
    """A network, its parameters and its tokenizer; `batch` prompts run at once."""

    def __init__(self, model: LanguageModel, params: Any, tokenizer: Tokenizer, batch: int = 32) -> None:
        self.model, self.tokenizer, self._batch = model, tokenizer, batch
        self.params = jax.device_put(params)
        self._score = jax.jit(functools.partial(scoring.score, model), static_argnames="by_length")
        self._states = jax.jit(model.prefill)
        self._segments = Segments(model)
        self._looked = jax.jit(functools.partial(scoring.look, model))
        search = functools.partial(beams.beam_search, model)
        self._search = jax.jit(search, static_argnames=("limits", "beams"))

    def score(
        self,
        prompts: Sequence[str],
        candidates: Sequence[str] | Sequence[Sequence[str]],
        by_length: bool = False,
    ) -> list[np.ndarray]:
        """Log-probabilities of candidates, the same for all prompts or a list for each: for each prompt float32 [candidates].

        `by_length` divides by the candidate's number of tokens.

        Raises:
          UserError: two candidates have the same tokens, one has none, or a text is too long for the model; or a score is no
            number, since the weights hold values that are not finite.
        """
        config.require_decoder(self.model.config, "scores")
        each = prompt_length.each_prompts(prompts, candidates)
        encoded = {names: candidate_rows(self.tokenizer, names) for names in dict.fromkeys(each)}
        longest = max((len(row) for rows in encoded.values() for row in rows), default=0)
        count = max((len(rows) for rows in encoded.values()), default=0)
        found = []
        for start in range(0, len(prompts), self._batch):
            part = list(prompts[start : start + self._batch])
            chosen = [encoded[names] for names in each[start : start + self._batch]]
            rows = self._rows(part, longest)
            filled = [[*options, *[options[0]] * (count - len(options))] for options in chosen]
            filled += [filled[0]] * (len(rows.tokens) - len(part))
            flat = padded([row for options in filled for row in options], longest)
            shape = (len(filled), count, longest)
            given = (*rows, flat.tokens.reshape(shape), flat.valid.reshape(shape))
            totals = np.asarray(self._score(self.params, *given, by_length=by_length).total)
            if np.isnan(totals[: len(part)]).any():
                raise UserError(
                    "the model's scores are not numbers: its weights hold values that are not finite, so that no text is the best; "
                    "load another checkpoint, or another type of numbers where they are too large for this one"
                )
            found += [totals[i, : len(options)] for i, options in enumerate(chosen)]
        return found

    def generate(
        self,
        prompts: Sequence[str],
        most: int = 64,
        sampling: Sampling | None = None,
        count: int = 1,
        search: bool = False,
        stops: Sequence[str] = (),
        seed: int = 0,
    ) -> list[list[str]]:
        """Writes `count` continuations of each prompt, of at most `most` tokens.

        Args:
          sampling: None: greedy.
          search: search `count` beams instead of drawing; the best comes first.
          stops: texts that end a continuation and are cut off: special tokens (`</s>`) or any text.
          seed: of the draws, which depend on it and the prompt's index alone.

        Raises:
          UserError: a text is too long for the model, the model has no decoder, or a stop is empty.
        """
        config.require_decoder(self.model.config, "writes")
        if "" in stops:
            raise UserError("a stop is empty: it would end every text")
        sampling = sampling or Sampling(greedy=True)
        named = (self.tokenizer.find(stop) for stop in stops)
        limits = Limits(most, (*self.model.config.end_ids, *(token for token in named if token is not None)))
        of_prompt = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(len(prompts)))
        keys = jax.vmap(lambda key: jax.random.split(key, count))(of_prompt)
        found: list[list[str]] = []
        for start in range(0, len(prompts), self._batch):
            part = list(prompts[start : start + self._batch])
            rows = self._rows(part, most)
            if search:
                tokens, valid = self._search(self.params, *rows, limits=limits, beams=count)[:2]
            else:
                own = keys[start : start + len(rows.tokens)]
                spare = jnp.broadcast_to(own[:1], (len(rows.tokens) - len(own), count))
                tokens, valid, _ = self._segments.write(
                    self.params, *rows, jnp.concatenate([own, spare]), limits, sampling, count,
                    functools.partial(self._says, stops) if stops else None,
                )  # fmt: skip
            for row, good in list(zip(np.asarray(tokens), np.asarray(valid), strict=True))[: len(part)]:
                texts = (x[y & ~np.isin(x, limits.stops)] for x, y in zip(row, good, strict=True))
                found.append([_before(self.tokenizer.decode(text), stops) for text in texts])
        return found

    def _says(self, stops: Sequence[str], tokens: Sequence[int]) -> bool:
        return any(stop in self.tokenizer.decode(tokens) for stop in stops)

    def look(self, prompts: Sequence[str], texts: Sequence[str]) -> list[TokenLogProbs]:
        """The model's log-probabilities and entropies at each token of texts after their prompts; see `display.token_page`.

        For a decoder alone a prompt may be empty.

        Raises:
          UserError: a text has no tokens or is too long for the model, or the model has no decoder.
        """
        settings, found = self.model.config, []
        config.require_decoder(settings, "scores")
        for first in range(0, len(texts), self._batch):
            asked, answers = (list(each[first : first + self._batch]) for each in (prompts, texts))
            before, shown = self.tokenizer.encode(asked), self.tokenizer.encode(answers, special=False)
            if settings.encoder_layers:
                starts = [0] * len(shown)
                rows, more = self._rows(asked, 0, before), self._rows(answers, 0, shown)
            else:
                shown = [a + b for a, b in zip(before, shown, strict=True)]
                starts = list(map(len, before))
                rows = more = self._rows([a + b for a, b in zip(asked, answers, strict=True)], 0, shown)
            log_probs, entropies = (np.array(x) for x in self._looked(self.params, *rows, *more))
            if not settings.encoder_layers:  # a decoder alone does not predict its first token
                log_probs[:, 0] = entropies[:, 0] = np.nan
            for i, (row, start) in enumerate(zip(shown, starts, strict=True)):
                numbers = (log_probs[i, : len(row)], entropies[i, : len(row)])
                found.append(TokenLogProbs(self.tokenizer.pieces(row), *numbers, start))
        return found

    def states(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Hidden states float32 [tokens, D] of texts, after the last norm (an encoder's where there is one)."""
        found = []
        for start in range(0, len(texts), self._batch):
            part = list(texts[start : start + self._batch])
            rows = self._rows(part, 0)
            states = np.asarray(self._states(self.params, *rows)[0].after, np.float32)
            found += [states[i][rows.valid[i]] for i in range(len(part))]
        return found

    def _rows(self, texts: list[str], more: int, encoded: list[list[int]] | None = None) -> TokenRows:
        """Pads texts to a bucket's length and to a full batch, so that one program serves every part of a list."""
        settings = self.model.config
        encoded = self.tokenizer.encode(texts) if encoded is None else encoded
        prompt_length.require_prompts(texts, encoded, settings, more)
        room = prompt_length.prompt_room(settings, more)
        rows = padded(encoded, bucket(max(map(len, encoded)), room), settings.pad_id)
        spare = min(self._batch, 1 << (len(texts) - 1).bit_length()) - len(texts)
        return TokenRows(*(np.concatenate([x, np.repeat(x[:1], spare, axis=0)]) for x in rows))


def _before(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop in it."""
    return text[: min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))]


def load(folder: str | Path, dtype: Any = jnp.float32, batch: int = 32) -> TextModel:
    """Loads a checkpoint in the layout of transformers: config.json, safetensors, tokenizer.json.

    Args:
      folder: of the checkpoint, or a model on the Hugging Face hub: OWNER/NAME or hf://OWNER/NAME@REVISION.
      dtype: of parameters and computation.

    Raises:
      UserError: a file is missing, its content is unknown, or files do not fit together.
    """
    path = fetch(folder)
    settings = weights.read_config(path)
    tokenizer = Tokenizer.read(path, settings.vocab_size)
    params = weights.load(path, settings, dtype, jax.device_put)
    return TextModel(LanguageModel(settings, dtype), params, tokenizer, batch)


def fetch(name: str | Path, key: str = "") -> Path:
    """The folder of a checkpoint: `name` itself, or a copy of the hub's model; errors name `key` of the config."""
    if str(name) and Path(name).is_dir():
        return Path(name)
    if hub.is_named(name):
        return Path(hub.local(name, key))
    where = f"config.{key}={name}" if key else str(name)
    missing = f"{where} is neither a folder nor a model of the hub"
    return hub.snapshot(str(name), None, missing, hub.MODEL_FILES)
