"""A gradient of ILQL at GPT-2's vocabulary, by what each action needs, against one with all heads at every position.

    python -m motif_jax.launch --config=configs/benchmark.py:text_train

Tokens a second of loss and gradient, with two trunks learned, one that follows, double Q, the conservative term: once with half of the
tokens actions, and with a quarter (`quarter`). Yardstick: the same losses of logits, V, Q and target Q of all tokens at all positions, of
which those of actions are taken. `gradients_apart` is the norm of their difference, by that of one. `flops_ratio` is
that of all matrix products. `buckets` trains a small agent on dialogues of 48 to 256 tokens: tokens a second in buckets of about one
length, against padding to the longest; `waiting` is the share of that training's time by which it is slower than with batches made beforehand.
Some five minutes on two cores with `--config.repeats=3`; `:text_train_gpu` has more tokens, in bfloat16.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from motif_jax.algorithms import implicit_q
from motif_jax.algorithms.implicit_q import ActionQ, Estimates, Settings, TextBatch
from motif_jax.benchmarks import _language, _text_agents, beside, result
from motif_jax.datasets.dialogues import token_columns
from motif_jax.datasets.tokens.dataset import TokensDataset
from motif_jax.datasets.tokens.writer import TokensWriter
from motif_jax.devices.parallel import DataParallel
from motif_jax.language.sampling import token_log_probs
from motif_jax.language.targets import Following
from motif_jax.language.text_agent import POLICY, TARGET, VALUES, TextAgent, V
from motif_jax.offline.dialogue_batches import Layout, ListBatches
from motif_jax.offline.text_objective import RULES, Objective, Part, Weights
from motif_jax.offline.text_task import TextTraining
from motif_jax.offline.trainer import OfflineTrainer
from motif_jax.support import config as checks
from motif_jax.support import resources

GPU_SIZE = {"batch_size": 16, "length": 512, "dtype": "bfloat16"}
_PAD, _SHARES = 0, {"half": 0.5, "quarter": 0.25}
# Tokens of an action.
_RUN = 16


def options() -> ConfigDict:
    """Settings: the network's size, rows and tokens of a gradient, and of the small training its size, batch and steps."""
    return ConfigDict(
        {
            "width": 768, "layers": 12, "vocabulary": 50_264, "dtype": "float32", "batch_size": 4, "length": 128, "seconds": 2.0,
            "small_width": 64, "small_layers": 1, "small_batch": 16, "small_steps": 40, "shortest": 48, "longest": 256,
        }
    )  # fmt: skip


def check(config: ConfigDict) -> None:
    """Raises UserError for what cannot be measured."""
    keys = (
        "width layers vocabulary batch_size seconds small_width small_layers small_batch small_steps shortest"
    )
    for key in keys.split():
        checks.positive(config, f"options.{key}")
    # So many tokens have an action in them.
    for key, least in (("length", _RUN + 1), ("longest", max(_RUN + 1, config.options.shortest))):
        size = config.options[key]
        checks.require(size >= least, f"options.{key}", size, f"at least {least}")
    checks.choice(config, "options.dtype", ("float32", "bfloat16"))


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line."""
    chosen = config.options
    made = _text_agents.make(
        chosen.width, chosen.layers, chosen.vocabulary, chosen.length, chosen.dtype, config.seed
    )
    network = made.speaker.network
    params = jax.device_put(made.params)
    learned = {
        "trunks": {name: params["trunks"][name] for name in (POLICY, VALUES)},
        "heads": params["heads"],
    }
    frozen = {"target": {"trunks": {TARGET: params["trunks"][TARGET]}, "heads": params["target_heads"]}}
    objective = Objective(network, RULES["ilql"], Settings(0.99, 0.7), Weights(conservative=1e-4))
    plain = _Plain(objective)
    ours, theirs = (_gradient(each, learned, frozen) for each in (objective.terms, plain.terms))
    found: dict[str, Any] = {}
    for name, share in _SHARES.items():
        batch = _batch(chosen, share, config.seed)
        part = Part(batch, implicit_q.counts(batch, objective.settings))
        sides = {"ours": functools.partial(ours, part), "plain": functools.partial(theirs, part)}
        apart = _apart(*(side() for side in sides.values()))
        tokens = batch.tokens.size
        rates = {side: _language.rate(call, tokens, chosen.seconds) for side, call in sides.items()}
        flops = [_flops(method, learned, frozen, part) for method in (objective.terms, plain.terms)]
        found[name] = {
            **_language.in_turns(rates, config.repeats),
            "apart": apart,
            "flops": flops[1] / flops[0],
        }
    jax.clear_caches()
    del learned, frozen, params, made
    half, quarter = found["half"], found["quarter"]
    return result(
        "text_train", "tokens/s", half["ours"], "all heads at every position", half["plain"], chosen.to_dict(),
        gradients_apart=max(half["apart"], quarter["apart"]), flops_ratio=half["flops"],
        quarter={
            "value": float(np.median(quarter["ours"])), **beside(quarter["ours"], quarter["plain"]),
            "flops_ratio": quarter["flops"],
        },
        **_small(config), threads=_language.threads(),
    )  # fmt: skip


def _apart(ours: Any, theirs: Any) -> float:
    """The norm of the difference of two gradients, by that of one."""
    difference = optax.tree.norm(optax.tree.sub(ours, theirs))
    return float(difference / optax.tree.norm(theirs))


def _flops(terms: Any, learned: Any, frozen: Any, part: Part) -> float:
    def call(learned: Any, part: Part) -> Any:
        return jax.grad(lambda x: terms(x, frozen, part, None).loss)(learned)

    return _language.product_flops(call, learned, part)


def _gradient(terms: Any, learned: Any, frozen: Any) -> Any:
    @jax.jit
    def call(learned: Any, frozen: Any, part: Part) -> Any:
        return jax.grad(lambda x: terms(x, frozen, part, None).loss)(learned)

    return lambda part: jax.block_until_ready(call(learned, frozen, part))


def _batch(chosen: ConfigDict, share: float, seed: int) -> TextBatch:
    """Dialogues of `length` tokens, `share` of them of actions, in runs of `_RUN` tokens."""
    rows, length = chosen.batch_size, chosen.length
    tokens = np.random.default_rng(seed).integers(6, chosen.vocabulary, (rows, length))
    ours = (np.arange(length) // _RUN % round(1 / share) == 1) & (np.arange(length) > 0)
    kinds = np.where(ours, token_columns.ACTION, token_columns.CONTEXT).astype(np.uint8)
    kinds[np.flatnonzero(ours & ~np.append(ours[1:], False))] = token_columns.ACTION_END
    items = [token_columns.rebuilt(row.astype(np.int32), kinds, np.where(kinds == 2, -1.0, 0.0).astype(np.float32), True) for row in tokens]  # fmt: skip
    return jax.tree.map(jnp.asarray, Layout(_PAD).batch(items, length, int(ours.sum()), 1))


@dataclasses.dataclass(frozen=True)
class _Plain:
    """The losses as the published code computes them: everything at every position, and then the actions' taken."""

    objective: Objective

    def terms(self, learned: Any, frozen: Any, part: Part, key: Any) -> Any:
        """See `Objective.terms`."""
        del key
        agent: TextAgent = self.objective.agent
        batch, target = part.batch, frozen["target"]
        params = {"trunks": {**learned["trunks"], **target["trunks"]}}
        states = agent.run(params, batch.tokens, batch.valid)
        states[TARGET] = jax.lax.stop_gradient(states[TARGET])
        logits = agent.model.logits(params["trunks"][POLICY], states[POLICY].after)
        values = agent.heads.apply(learned["heads"], V, states[VALUES])
        qs = [agent.heads.apply(learned["heads"], name, states[VALUES]) for name in agent.design.qs]
        of_target = [agent.target_heads.apply(target["heads"], name, states[TARGET]) for name in agent.design.qs]  # fmt: skip
        after = implicit_q.next_tokens(batch)

        def taken(of_all: jax.Array) -> jax.Array:
            return jnp.take_along_axis(of_all, batch.actions[..., None], axis=1)

        settings = self.objective.settings
        rows = [implicit_q.action_q(taken(q), after, settings, True, False) for q in qs]
        least = implicit_q.target_of([implicit_q.chosen(taken(q), after) for q in of_target], settings)
        v = jnp.take_along_axis(values, batch.states, axis=1)
        logs = jnp.take_along_axis(
            token_log_probs(logits[:, :-1], batch.tokens[:, 1:]), batch.action_tokens, axis=1
        )
        estimates = Estimates(
            v, [ActionQ(*row) for row in rows], least, jax.lax.stop_gradient(v[:, 1:]), logs
        )
        found = implicit_q.losses(batch, estimates, settings)
        actions, policy = part.counts
        loss = (found.q + found.v + 1e-4 * found.conservative) / actions + found.policy / policy
        return _Loss(loss)


@dataclasses.dataclass(frozen=True)
class _Loss:
    loss: jax.Array


def _small(config: ConfigDict) -> dict[str, Any]:
    """A training of a small agent on dialogues of all lengths: in buckets, padded, and in buckets that were made beforehand."""
    chosen = config.options
    with tempfile.TemporaryDirectory() as folder:
        dataset = _dialogues(Path(folder) / "tokens", config)
        tasks = {
            name: _Course(config, dataset, by_length) for name, by_length in (("buckets", True), ("padded", False))
        }  # fmt: skip
        sides: dict[str, Callable[[], float]] = {
            "buckets": tasks["buckets"].rate,
            "made": functools.partial(tasks["buckets"].rate, made=True),
            "padded": tasks["padded"].rate,
        }
        for side in sides.values():
            side()
        found = _language.in_turns(sides, max(2, config.repeats // 2))
    middle = {name: float(np.median(rates)) for name, rates in found.items()}
    return {
        "buckets": {"value": middle["buckets"], **beside(found["buckets"], found["padded"])},
        "waiting": max(0.0, 1 - middle["buckets"] / middle["made"]),
        "dialogues_of_small_training": chosen.small_batch * chosen.small_steps,
    }


def _dialogues(folder: Path, config: ConfigDict) -> TokensDataset:
    draws, chosen = np.random.default_rng(config.seed), config.options
    ends = np.log(chosen.shortest), np.log(chosen.longest + 1)
    with TokensWriter(folder, 512, "none", token_columns.TOKEN_COLUMNS, token_columns.ITEM_COLUMNS) as writer:
        for _ in range(2_000):
            length = int(np.exp(draws.uniform(*ends)))
            kinds = np.where(np.arange(length) // 8 % 2, token_columns.ACTION, token_columns.CONTEXT)
            kinds[7::16], kinds[15::16] = token_columns.CONTEXT, token_columns.ACTION_END
            columns = {"kinds": kinds, "rewards": np.zeros(length, np.float32)}
            writer.add(draws.integers(6, 512, length), columns, {"terminal": True, "return": 0.0})
        writer.commit()
    return TokensDataset(folder)


class _Course:
    """The same steps of a training, again and again."""

    def __init__(self, config: ConfigDict, dataset: TokensDataset, by_length: bool) -> None:
        chosen = config.options
        self._steps = chosen.small_steps
        settings = resources.config("train_text", "wordle_ilql")
        settings.update({"batch_size": chosen.small_batch, "max_steps": 1_000_000, "dropout": 0.0})
        made = _text_agents.make(chosen.small_width, chosen.small_layers, 512, chosen.longest, "float32", 1)
        objective = Objective(
            made.speaker.network, RULES["ilql"], Settings(0.99, 0.7), Weights(conservative=1e-4)
        )
        params = jax.device_get(made.params)
        learned = {
            "trunks": {n: params["trunks"][n] for n in (POLICY, VALUES)},
            "heads": params["heads"],
        }
        target = {"trunks": {TARGET: params["trunks"][TARGET]}, "heads": params["target_heads"]}
        batches = ListBatches(
            dataset,
            np.arange(dataset.num_items),
            Layout(_PAD),
            chosen.small_batch,
            config.seed,
            settings.chunk_steps,
            by_length,
        )
        parallel = DataParallel(jax.local_devices()[:1])
        self._task = TextTraining(
            settings, objective, learned, target, {}, Following(), batches, batches, parallel, {}, "made up"
        )
        self._trainer = OfflineTrainer(self._task, parallel)
        self._carry = self._trainer.place(self._task.init_state())
        self._chunks = [
            self._task.batches(first, settings.chunk_steps)
            for first in range(0, self._steps, settings.chunk_steps)
        ]
        self._tokens = sum(int(chunk.valid.sum()) for chunk in self._chunks)

    def rate(self, made: bool = False) -> float:
        """Tokens without padding a second; `made`: of batches that are there already."""
        start, size = time.perf_counter(), self._task.chunk_steps
        numbers: Any = None
        for place, chunk in enumerate(self._chunks):
            batches = chunk if made else self._task.batches(place * size, size)
            last = numbers
            self._carry, numbers = self._trainer.train_chunk(self._carry, batches)
            if last is not None:
                jax.device_get(last)
        jax.device_get(numbers)
        return self._tokens / (time.perf_counter() - start)
