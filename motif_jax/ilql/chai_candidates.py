"""Candidates of a frozen policy in each state of batches of dialogues (CHAI): several continuations
of each text, with their log-probabilities and the mean of all states up to their ends.

They are kept in a file of bounded size: new entries replace the oldest, and a kill loses at most
the last write.
"""

from __future__ import annotations

import hashlib
import json
import os
import weakref
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core import seeds
from motif_jax.core.files import naming, regular_file
from motif_jax.core.progress import Progress
from motif_jax.ilql.agent.agent_start import Start
from motif_jax.ilql.agent.decoding import without
from motif_jax.ilql.agent.text_agent import POLICY, TextAgentNetwork
from motif_jax.ilql.config import CandidateTexts, TextConfig
from motif_jax.ilql.dialogues.dialogue_batches import DialogueBatches
from motif_jax.ilql.dialogues.dialogue_tokens import Delimiters
from motif_jax.ilql.methods import Candidates, TextBatch
from motif_jax.lm import generation
from motif_jax.lm.generation import Limits, Sampling
from motif_jax.lm.model import Cache, LanguageModel
from motif_jax.lm.network import States
from motif_jax.lm.scoring import last_state
from motif_jax.lm.token_batches import stacked
from motif_jax.lm.tokens import bucket, padded

FOLDER = "candidates"
KEY_BYTES = 16


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
        def write(params: Any, tokens: Any, valid: Any, words: Any) -> WrittenCandidates:
            def keys_of(words: Any) -> Any:
                key = jax.random.fold_in(jax.random.key(words[0]), words[1])
                return jax.random.split(key, config.count)

            keys = jax.vmap(keys_of)(words)
            return write_candidates(model, params, tokens, valid, keys, limits, sampling, pad)

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


class CachedCandidates(NamedTuple):
    """The candidates of a text: means float32 [N, D], log-probabilities float32 [N], numbers of
    tokens int32 [N].
    """

    means: np.ndarray
    log_probs: np.ndarray
    counts: np.ndarray


class CandidateCache:
    """Records of N = `count` candidates of D = `width` in a ring of a file in `folder`, of at most
    `mebibytes`.

    Several processes may open it. Entries that another process overwrote, or of other settings
    (`about`), are not found.
    """

    def __init__(
        self, folder: Path, about: Mapping[str, Any], count: int, width: int, mebibytes: int
    ) -> None:
        record = np.dtype(
            [
                ("key", f"V{KEY_BYTES}"),
                ("sequence", "<u8"),  # number of the write, from 1; 0 in an unused record
                ("means", "<f4", (count, width)),
                ("log_probs", "<f4", (count,)),
                ("counts", "<i4", (count,)),
                ("check", "<u4"),  # CRC of the record before it, salted
            ]
        )
        self.capacity = mebibytes * 2**20 // record.itemsize
        # A record of another `about` fails the check, as a torn one does.
        self._salt = zlib.crc32(
            json.dumps({**about, "shape": [count, width]}, sort_keys=True).encode()
        )
        self._path = folder / "candidates.bin"
        size = self.capacity * record.itemsize
        if not self._path.exists() or self._path.stat().st_size != size:
            _make(self._path, size)
        # Memory-mapped for reading only: on a full disk a write to mapped memory would kill the
        # process.
        self._file = open(self._path, "r+b", buffering=0, opener=regular_file)  # noqa: SIM115 - closed by the finalizer
        weakref.finalize(self, self._file.close)
        self._records = np.memmap(self._file, record, "r", shape=(self.capacity,))
        sequences = np.asarray(self._records["sequence"])
        # By the order of writing, without records that were never written.
        order = np.argsort(sequences, kind="stable")
        order = order[sequences[order] > 0]
        keys = self._records["key"]
        # Of equal keys the newest stays.
        self._index = {bytes(keys[record]): int(record) for record in order}
        self._written = int(sequences.max(initial=0))

    def find(self, key: bytes) -> CachedCandidates | None:
        """The entry of a key; None if it is missing or torn."""
        index = self._index.get(key)
        if index is None:
            return None
        record = self._records[index].copy()
        if bytes(record["key"]) != key or int(record["check"]) != self._check(record):
            return None
        return CachedCandidates(record["means"], record["log_probs"], record["counts"])

    def add(self, key: bytes, entry: CachedCandidates) -> None:
        """Adds an entry; a full cache drops its oldest."""
        index = self._written % self.capacity
        self._written += 1
        old = bytes(self._records["key"][index])
        # Unless a newer record has the same key.
        if self._index.get(old) == index:
            del self._index[old]
        record = np.zeros((), self._records.dtype)
        # A numpy bytes field would drop zeros at its end.
        record["key"] = np.void(key)
        record["sequence"] = self._written
        record["means"] = entry.means
        record["log_probs"] = entry.log_probs
        record["counts"] = entry.counts
        record["check"] = self._check(record)
        data = record.tobytes()
        written = 0
        with naming(self._path):
            while written < len(data):  # one call may write a part only
                offset = index * len(data) + written
                written += os.pwrite(self._file.fileno(), data[written:], offset)
        self._index[key] = index

    def _check(self, record: Any) -> int:
        return zlib.crc32(np.asarray(record).tobytes()[:-4], self._salt)


def _make(path: Path, size: int) -> None:
    """Replaces the file by an empty sparse one; processes that have the old one open keep it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with naming(path), open(fresh, "wb", opener=regular_file) as file:
        file.truncate(size)
    os.replace(fresh, path)


class WrittenCandidates(NamedTuple):
    """N continuations of each of B texts."""

    tokens: jax.Array  # int32 [B, N, M]
    valid: jax.Array  # bool [B, N, M], True up to and with the stop token
    log_probs: jax.Array  # float32 [B, N], under the filtered logits
    means: jax.Array  # float32 [B, N, D], mean state after the last norm over `counts` tokens
    counts: jax.Array  # int32 [B, N], number of tokens of text and continuation


def write_candidates(
    model: LanguageModel,
    params: Any,
    tokens: jax.Array,
    valid: jax.Array,
    keys: jax.Array,
    limits: Limits,
    sampling: Sampling,
    pad: int,
) -> WrittenCandidates:
    """Draws a decoder's continuations of texts int32 [B, T], one for each of `keys` [B, N]; the
    token `pad` is never drawn.
    """
    chex.assert_rank(keys, 2)
    states, prompt = model.prefill(params, tokens, valid)
    branch = (*keys.shape, states.after.shape[-1])
    total = jnp.where(valid[..., None], states.after.astype(jnp.float32), 0.0).sum(axis=1)
    # [B, D] becomes [B, N, D]: all candidates of a text begin at its last state.
    last = States(*(jnp.broadcast_to(x[:, None], branch) for x in last_state(states, valid)))

    def logits_of(last: States) -> jax.Array:
        return without(model.logits(params, last.after), pad)

    def step(
        carry: tuple[Cache, jax.Array], drawn: jax.Array, alive: jax.Array
    ) -> tuple[jax.Array, tuple[Cache, jax.Array]]:
        cache, total = carry
        states, cache = model.extend(params, prompt, drawn[..., None], alive[..., None], cache)  # type: ignore[assignment]
        last = States(*(x[:, :, 0] for x in states))
        # The stop token counts, the padding after it does not.
        total = total + jnp.where(alive[..., None], last.after.astype(jnp.float32), 0.0)
        return logits_of(last), (cache, total)

    cache = model.start(keys.shape[0], keys.shape[1], limits.max_new_tokens)
    carry = (cache, jnp.broadcast_to(total[:, None], branch))
    written = generation.write(step, carry, logits_of(last), keys, limits, sampling, pad)
    _, total = written.carry
    counts = prompt.length[:, None] + written.valid.sum(axis=-1, dtype=jnp.int32)
    means = total / counts[..., None].astype(jnp.float32)
    return WrittenCandidates(
        written.tokens, written.valid, written.log_probs.sum(axis=-1), means, counts
    )
