"""Adds candidates of a frozen policy to each state of batches of dialogues (CHAI)."""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.core import seeds
from motif_jax.core.progress import Progress
from motif_jax.ilql.agent import candidates
from motif_jax.ilql.agent.agent_start import Start
from motif_jax.ilql.agent.text_agent import POLICY, TextAgentNetwork
from motif_jax.ilql.config import CandidateTexts, TextConfig
from motif_jax.ilql.dialogues.candidate_cache import KEY_BYTES, CachedCandidates, CandidateCache
from motif_jax.ilql.dialogues.dialogue_batches import DialogueBatches
from motif_jax.ilql.dialogues.items import Delimiters
from motif_jax.ilql.methods.chai import Candidates
from motif_jax.ilql.methods.implicit_q import TextBatch
from motif_jax.lm.bucket_batches import stacked
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.sampling import Limits, Sampling
from motif_jax.lm.tokens import bucket, padded

FOLDER = "candidates"


class Proposer:
    """Candidates of texts, from the cache or drawn from the policy; they depend on the text and the seed alone."""

    def __init__(
        self, model: LanguageModel, params: Any, pad: int, end: int, config: CandidateTexts, seed: int, cache: CandidateCache
    ) -> None:  # fmt: skip
        self._params, self._pad, self._seed, self._cache = jax.device_put(params), pad, seed, cache
        self.count, self._together = config.count, config.together
        sampling = Sampling(False, config.temperature, config.top_k, config.top_p)
        limits = Limits(config.max_tokens, (end,))

        @jax.jit
        def write(params: Any, tokens: Any, valid: Any, words: Any) -> candidates.WrittenCandidates:
            split = functools.partial(jax.random.split, num=config.count)
            keys = jax.vmap(lambda pair: split(jax.random.fold_in(jax.random.key(pair[0]), pair[1])))(words)
            return candidates.write(model, params, tokens, valid, keys, limits, sampling, pad)

        self._write = write

    def _key(self, text: np.ndarray) -> bytes:
        words = np.asarray(text, "<i4").tobytes()
        return hashlib.blake2b(words, digest_size=KEY_BYTES, salt=self._seed.to_bytes(8, "little")).digest()

    def of(self, texts: Sequence[np.ndarray]) -> list[CachedCandidates]:
        """The candidates of each text, int32 [T]."""
        keys = [self._key(text) for text in texts]
        found = {key: entry for key in dict.fromkeys(keys) if (entry := self._cache.find(key)) is not None}
        missing: Mapping[int, dict[bytes, np.ndarray]] = defaultdict(dict)
        for key, text in zip(keys, texts, strict=True):
            if key not in found:
                missing[bucket(len(text))][key] = text
        for width, part in sorted(missing.items()):
            items = list(part.items())
            for start in range(0, len(items), self._together):
                found |= self._written(dict(items[start : start + self._together]), width)
        return [found[key] for key in keys]

    def _written(self, texts: Mapping[bytes, np.ndarray], width: int) -> dict[bytes, CachedCandidates]:
        """Draws candidates of a few texts of similar length, in a program of constant batch size, so that none depends on the others."""
        rows = [text.tolist() for text in texts.values()]
        rows += [rows[-1]] * (self._together - len(rows))
        words = [np.frombuffer(key[:8], np.uint32) for key in texts]
        words += [words[-1]] * (self._together - len(words))
        tokens, valid = padded(rows, width, self._pad)
        written = jax.device_get(self._write(self._params, tokens, valid, np.stack(words)))
        found = {}
        for row, key in enumerate(texts):
            found[key] = CachedCandidates(written.means[row], written.log_probs[row], written.counts[row])
            self._cache.add(key, found[key])
        return found


class CandidateBatches:
    """The batches of `inner` with candidates of states of `width` D; `seed` is that of the random states.

    With `sums`, candidates have the sum of their states, not the mean, in the first pass over the data (`compat.chai_scores`).
    """

    def __init__(
        self,
        inner: DialogueBatches,
        proposer: Proposer,
        width: int,
        seed: int,
        sums: bool,
        stopped: Callable[[], bool],
    ) -> None:
        self._first_pass = inner.steps_per_pass
        self._inner, self._proposer, self._width = inner, proposer, width
        self._seed, self._sums, self._stopped = seed, sums, stopped

    def batches(self, first: int, count: int) -> TextBatch:
        plain, found = self._inner.batches(first, count), []
        for place in range(count):
            batch, step = jax.tree.map(lambda leaf: leaf[place], plain), first + place  # noqa: B023
            found.append(self._of(batch, "train", step, self._first_pass is None or step < self._first_pass))
        return plain._replace(candidates=stacked(found))

    def whole(self, most: int) -> list[TextBatch]:
        """See `BucketBatches.whole`; fewer batches after a request to stop."""
        plain, found = self._inner.whole(most), []
        with Progress(len(plain), "batches", "propose") as progress:
            for number, batch in enumerate(plain):
                if self._stopped():
                    break
                found.append(batch._replace(candidates=self._of(batch, "held out", number, False)))
                progress.update(len(found))
        return found

    def _of(self, batch: TextBatch, part: str, number: int, fresh: bool) -> Candidates:
        """The candidates of a batch [B, ...]; zeros at states that a dialogue does not have, and at its end."""
        rows, states = batch.states.shape
        there = np.concatenate([batch.live, np.zeros((rows, 1), bool)], axis=1)
        there[:, 1:] |= batch.live & (batch.terminals[:, 1:] == 0)
        places = np.argwhere(there)
        texts = [batch.tokens[row, : batch.states[row, state] + 1] for row, state in places]
        means = np.zeros((rows, states, self._proposer.count, self._width), np.float32)
        log_probs = np.zeros(means.shape[:3], np.float32)
        for (row, state), entry in zip(places, self._proposer.of(texts), strict=True):
            means[row, state] = entry.means * (entry.counts[:, None] if self._sums and fresh else 1)
            log_probs[row, state] = entry.log_probs
        drawn = seeds.rng(self._seed, "random states", part, number).integers(0, 2**32, rows, np.uint32)
        return Candidates(means, log_probs, drawn)


def with_candidates(
    config: TextConfig,
    workdir: Path,
    agent: TextAgentNetwork,
    start: Start,
    marks: Delimiters,
    batches: tuple[DialogueBatches, DialogueBatches],
    stopped: Callable[[], bool],
) -> tuple[CandidateBatches, CandidateBatches]:
    """Adds candidates of the run's policy, which is frozen, to its batches; their cache is in `workdir` or `candidates.folder`."""
    chosen, width = config.candidates, agent.model.config.width
    seed = seeds.derive(config.seed, "candidates") % 2**63
    names = ("max_tokens", "temperature", "top_k", "top_p", "together")
    about = {name: getattr(chosen, name) for name in names}
    about |= {"policy": start.digests["initial policy"], "seed": seed, "dtype": config.dtype}
    folder = Path(chosen.folder or workdir / FOLDER)
    cache = CandidateCache(folder, about, chosen.count, width, chosen.cache_mebibytes)
    policy = start.frozen["trunks"][agent.design.roles.trunk_of[POLICY]]
    proposer = Proposer(agent.model, policy, marks.pad, marks.action_end, chosen, seed, cache)
    more = (proposer, width, config.seed, config.compat.chai_scores, stopped)
    return CandidateBatches(batches[0], *more), CandidateBatches(batches[1], *more)
