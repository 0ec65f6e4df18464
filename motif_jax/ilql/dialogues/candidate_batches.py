"""Adds candidates of a frozen policy to each state of batches of dialogues (CHAI)."""

from __future__ import annotations

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
from motif_jax.lm.generation import Limits, Sampling
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.token_batches import stacked
from motif_jax.lm.tokens import bucket, padded

FOLDER = "candidates"


class Proposer:
    """Candidates of texts, from the cache or drawn from the policy; they depend on the text and the
    seed alone.
    """

    def __init__(
        self,
        model: LanguageModel,
        params: Any,
        pad: int,
        end: int,
        config: CandidateTexts,
        seed: int,
        cache: CandidateCache,
    ) -> None:
        self._params = jax.device_put(params)
        self._pad = pad
        self._seed = seed
        self._cache = cache
        self.count = config.count
        self._together = config.together
        sampling = Sampling(False, config.temperature, config.top_k, config.top_p)
        limits = Limits(config.max_tokens, (end,))

        @jax.jit
        def write(params: Any, tokens: Any, valid: Any, words: Any) -> candidates.WrittenCandidates:
            def keys_of(words: Any) -> Any:
                key = jax.random.fold_in(jax.random.key(words[0]), words[1])
                return jax.random.split(key, config.count)

            keys = jax.vmap(keys_of)(words)
            return candidates.write(model, params, tokens, valid, keys, limits, sampling, pad)

        self._write = write

    def _key(self, text: np.ndarray) -> bytes:
        # Of one byte order, so that all machines find a folder's candidates.
        words = np.asarray(text, "<i4").tobytes()
        return hashlib.blake2b(
            words, digest_size=KEY_BYTES, salt=self._seed.to_bytes(8, "little")
        ).digest()

    def of(self, texts: Sequence[np.ndarray]) -> list[CachedCandidates]:
        """The candidates of each text, int32 [T]."""
        keys = [self._key(text) for text in texts]
        entries: dict[bytes, CachedCandidates] = {}
        # Equal texts, such as the first states of all dialogues, have one entry.
        for key in dict.fromkeys(keys):
            entry = self._cache.find(key)
            if entry is not None:
                entries[key] = entry
        missing: Mapping[int, dict[bytes, np.ndarray]] = defaultdict(dict)  # by width
        for key, text in zip(keys, texts, strict=True):
            if key not in entries:
                missing[bucket(len(text))][key] = text
        # Texts of one width together: each width is a program.
        for width, part in sorted(missing.items()):
            items = list(part.items())
            for start in range(0, len(items), self._together):
                entries |= self._draw(dict(items[start : start + self._together]), width)
        return [entries[key] for key in keys]

    def _draw(self, texts: Mapping[bytes, np.ndarray], width: int) -> dict[bytes, CachedCandidates]:
        """Draws candidates of a few texts of similar length, in a program of constant batch size,
        so that none depends on the others.
        """
        rows = [text.tolist() for text in texts.values()]
        rows += [rows[-1]] * (self._together - len(rows))
        # The draws' key is the text's own hash, which has the seed as its salt.
        words = [np.frombuffer(key[:8], np.uint32) for key in texts]
        words += [words[-1]] * (self._together - len(words))
        tokens, valid = padded(rows, width, self._pad)
        written = jax.device_get(self._write(self._params, tokens, valid, np.stack(words)))
        entries = {}
        for row, key in enumerate(texts):
            entries[key] = CachedCandidates(
                written.means[row], written.log_probs[row], written.counts[row]
            )
            self._cache.add(key, entries[key])
        return entries


class CandidateBatches:
    """The batches of `inner` with candidates of states of `width` D; `seed` is that of the random
    states.

    With `sums`, candidates have the sum of their states, not the mean, in the first pass over the
    data (`compat.chai_scores`).
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
        self._inner = inner
        self._proposer = proposer
        self._width = width
        self._seed = seed
        self._sums = sums
        self._stopped = stopped

    def batches(self, first: int, count: int) -> TextBatch:
        """The batches of steps `first` to `first + count`, with an axis of steps in front."""
        batches = self._inner.batches(first, count)
        steps_per_pass = self._inner.steps_per_pass
        candidates = []
        for index in range(count):
            batch = jax.tree.map(lambda leaf: leaf[index], batches)  # noqa: B023
            step = first + index
            # Published: fresh candidates have sums, those from the cache means, which are all of
            # a later pass.
            in_first_pass = steps_per_pass is None or step < steps_per_pass
            candidates.append(self._of(batch, "train", step, sums=self._sums and in_first_pass))
        return batches._replace(candidates=stacked(candidates))

    def all_batches(self, max_batches: int) -> list[TextBatch]:
        """See `BucketBatches.all_batches`; fewer batches after a request to stop."""
        batches = self._inner.all_batches(max_batches)
        with_candidates = []
        with Progress(len(batches), "batches", "propose") as progress:
            for number, batch in enumerate(batches):
                if self._stopped():
                    break
                candidates = self._of(batch, "held out", number, sums=False)
                with_candidates.append(batch._replace(candidates=candidates))
                progress.update(len(with_candidates))
        return with_candidates

    def _of(self, batch: TextBatch, part: str, number: int, sums: bool) -> Candidates:
        """The candidates of a batch [B, ...]; zeros at states that a dialogue does not have, and at
        its end.
        """
        rows, states = batch.state_positions.shape
        exists = np.concatenate([batch.action_mask, np.zeros((rows, 1), bool)], axis=1)
        # The state after an action, unless the dialogue ends there: Q bootstraps from it.
        exists[:, 1:] |= batch.action_mask & (batch.terminals[:, 1:] == 0)
        indices = np.argwhere(exists)
        texts = [
            batch.tokens[row, : batch.state_positions[row, state] + 1] for row, state in indices
        ]
        means = np.zeros((rows, states, self._proposer.count, self._width), np.float32)
        log_probs = np.zeros(means.shape[:3], np.float32)
        for (row, state), entry in zip(indices, self._proposer.of(texts), strict=True):
            means[row, state] = entry.means * entry.counts[:, None] if sums else entry.means
            log_probs[row, state] = entry.log_probs
        rng = seeds.rng(self._seed, "random states", part, number)
        return Candidates(means, log_probs, rng.integers(0, 2**32, rows, np.uint32))


def with_candidates(
    config: TextConfig,
    workdir: Path,
    agent: TextAgentNetwork,
    start: Start,
    marks: Delimiters,
    batches: tuple[DialogueBatches, DialogueBatches],
    stopped: Callable[[], bool],
) -> tuple[CandidateBatches, CandidateBatches]:
    """Adds candidates of the run's policy, which is frozen, to its batches; their cache is in
    `workdir` or `candidates.folder`.
    """
    settings = config.candidates
    width = agent.model.config.width
    seed = seeds.derive(config.seed, "candidates") % 2**63
    # What candidates depend on: entries of other values are not found.
    about = {
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_k": settings.top_k,
        "top_p": settings.top_p,
        "together": settings.together,
        "policy": start.digests["initial policy"],
        "seed": seed,
        "dtype": config.dtype,
    }
    folder = Path(settings.folder or workdir / FOLDER)
    cache = CandidateCache(folder, about, settings.count, width, settings.cache_mebibytes)
    policy = start.frozen["trunks"][agent.design.roles.trunk_of[POLICY]]
    proposer = Proposer(agent.model, policy, marks.pad, marks.action_end, settings, seed, cache)

    def with_proposals(inner: DialogueBatches) -> CandidateBatches:
        return CandidateBatches(
            inner, proposer, width, config.seed, config.compat.chai_scores, stopped
        )

    training, held_out = batches
    return with_proposals(training), with_proposals(held_out)
