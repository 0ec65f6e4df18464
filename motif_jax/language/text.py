"""A language model as functions of texts: scores of candidates, continuations, states."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.language import beams, config, generation, scoring, weights
from motif_jax.language.model import LanguageModel
from motif_jax.language.sampling import Limits, Sampling
from motif_jax.language.tokens import Rows, Tokenizer, bucket, candidate_rows, padded
from motif_jax.support.errors import UserError


class TextModel:
    """A network, its parameters and its tokenizer.

    Args:
      model: the network.
      params: its parameters.
      tokenizer: of its texts.
      batch: prompts that are run at a time.
    """

    def __init__(self, model: LanguageModel, params: Any, tokenizer: Tokenizer, batch: int = 32) -> None:
        self.model, self.tokenizer, self._batch = model, tokenizer, batch
        self.params = jax.device_put(params)
        self._score = jax.jit(functools.partial(scoring.score, model), static_argnames="by_length")
        self._states = jax.jit(model.prefill)
        self._generate = jax.jit(
            functools.partial(generation.generate, model),
            static_argnames=("limits", "sampling", "branches"),
        )
        self._search = jax.jit(
            functools.partial(beams.beam_search, model), static_argnames=("limits", "beams")
        )

    def score(
        self,
        prompts: Sequence[str],
        candidates: Sequence[str] | Sequence[Sequence[str]],
        by_length: bool = False,
    ) -> list[np.ndarray]:
        """Log-probabilities of candidates after prompts.

        Args:
          prompts: texts.
          candidates: texts, the same for all prompts, or a list of them for each.
          by_length: divide by the number of tokens of a candidate.

        Returns:
          For each prompt float32 [candidates].

        Raises:
          UserError: candidates that tokenise alike or to nothing, or a text too long for the model.
        """
        self._require_decoder("scores")
        each = [candidates if _is_shared(candidates) else candidates[i] for i in range(len(prompts))]
        encoded = {key: candidate_rows(self.tokenizer, list(key)) for key in dict.fromkeys(map(tuple, each))}  # type: ignore[arg-type]
        longest = max((len(row) for rows in encoded.values() for row in rows), default=0)
        count = max((len(rows) for rows in encoded.values()), default=0)
        found = []
        for start in range(0, len(prompts), self._batch):
            part = list(prompts[start : start + self._batch])
            chosen = [encoded[tuple(names)] for names in each[start : start + self._batch]]  # type: ignore[arg-type]
            rows = self._prompts(part, longest)
            filled = [[*options, *[options[0]] * (count - len(options))] for options in chosen]
            filled += [filled[0]] * (len(rows.tokens) - len(part))
            flat = padded([row for options in filled for row in options], longest)
            shape = (len(filled), count, longest)
            scores = self._score(
                self.params, *rows, flat.tokens.reshape(shape), flat.valid.reshape(shape), by_length=by_length
            )
            totals = np.asarray(scores.total)
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
        """Continues prompts.

        Args:
          prompts: texts.
          most: tokens at most.
          sampling: how tokens are drawn; None: greedily.
          count: continuations of each prompt.
          search: search `count` beams instead of drawing.
          stops: tokens, by their text, that end a continuation beside the model's own.
          seed: of the draws.

        Returns:
          For each prompt its continuations; of beams the best first.

        Raises:
          UserError: a text too long for the model, a model without a decoder, or no such stop token.
        """
        self._require_decoder("writes")
        sampling = sampling or Sampling(greedy=True)
        ends = (*self.model.config.end_ids, *(self.tokenizer.token(stop) for stop in stops))
        limits, key, found = Limits(most, ends), jax.random.key(seed), []
        for start in range(0, len(prompts), self._batch):
            part = list(prompts[start : start + self._batch])
            rows = self._prompts(part, most)
            if search:
                tokens, valid = self._search(self.params, *rows, limits=limits, beams=count)[:2]
            else:
                now = jax.random.fold_in(key, start)
                written = self._generate(
                    self.params, *rows, now, limits=limits, sampling=sampling, branches=count
                )
                tokens, valid = written.tokens, written.valid
            for row, good in zip(
                np.asarray(tokens)[: len(part)], np.asarray(valid)[: len(part)], strict=True
            ):
                found.append(
                    [self.tokenizer.decode(x[y & ~np.isin(x, ends)]) for x, y in zip(row, good, strict=True)]
                )
        return found

    def states(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Hidden states float32 [tokens, D] of texts, after the last norm (an encoder's where there is one)."""
        found = []
        for start in range(0, len(texts), self._batch):
            part = list(texts[start : start + self._batch])
            rows = self._prompts(part, 0)
            states = np.asarray(self._states(self.params, *rows)[0].after, np.float32)
            found += [states[i][rows.valid[i]] for i in range(len(part))]
        return found

    def _require_decoder(self, does: str) -> None:
        config.require_decoder(self.model.config, does)

    def _prompts(self, texts: list[str], more: int) -> Rows:
        """Prompts as rows of a bucket's length, and so many that one program serves every part of a list."""
        settings = self.model.config
        encoded = self.tokenizer.encode(texts)
        # An encoder's prompt and a decoder's text have their positions apart.
        room = (
            None
            if settings.max_length is None
            else settings.max_length - (0 if settings.encoder_layers else more)
        )
        for text, row in zip(texts, encoded, strict=True):
            if not row:
                raise UserError(f"prompt {text!r} has no tokens")
            if room is not None and len(row) > room:
                raise UserError(
                    f"a prompt of {len(row)} tokens ({text[:40]!r}...) and {more} more do not fit a model of "
                    f"{settings.max_length} positions"
                )
        rows = padded(encoded, bucket(max(map(len, encoded)), room), settings.pad_id)
        spare = min(self._batch, 1 << (len(texts) - 1).bit_length()) - len(texts)
        tokens = np.concatenate([rows.tokens, np.repeat(rows.tokens[:1], spare, axis=0)])
        return Rows(tokens, np.concatenate([rows.valid, np.repeat(rows.valid[:1], spare, axis=0)]))


def _is_shared(candidates: Any) -> bool:
    return all(isinstance(candidate, str) for candidate in candidates)


def load(folder: str | Path, dtype: Any = jnp.float32, batch: int = 32) -> TextModel:
    """Loads a checkpoint in the layout of transformers: config.json, safetensors, tokenizer.json.

    Args:
      folder: of the checkpoint, or the name of a model on the Hugging Face hub.
      dtype: of parameters and computation.
      batch: prompts that are run at a time.

    Raises:
      UserError: something is missing, unknown or does not fit together.
    """
    path = fetch(folder)
    settings = weights.settle_head(path, config.read(path))
    tokenizer = Tokenizer.read(path, settings.vocab_size)
    params = weights.load(path, settings, dtype)
    return TextModel(LanguageModel(settings, dtype), params, tokenizer, batch)


def fetch(name: str | Path) -> Path:
    """The folder of a checkpoint: `name` itself, or the hub's copy of it.

    Raises:
      UserError: there is no such folder, and it is no model of the hub either.
    """
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(snapshot_download(str(name), allow_patterns=["*.json", "*.safetensors"]))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise UserError(f"{name} is neither a folder nor a model that the hub gives: {error}") from None
