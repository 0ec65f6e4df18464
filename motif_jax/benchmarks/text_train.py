"""Measures a gradient of ILQL with GPT-2's vocabulary: heads at actions alone, against all heads at every position.

Value: tokens a second of loss and gradient, with two trained trunks, a target trunk, double Q and the conservative term. Half of the tokens
are actions. Baseline: the same losses from logits, V, Q and target Q of all tokens at all positions.
`gradients_apart` is the norm of the gradients' difference, relative to one of them. `flops_ratio` is the ratio of matrix-product operations.

`step` has numbers of a whole training step of `micro_batches` such batches: `compile_seconds`, and by the compiler's account the megabytes
of the state (parameters, targets, optimiser) and of all memory (`memory_megabytes`). It takes about three minutes on two cores with
`--config.repeats=3`. `:text_train_gpu` has more tokens, in bfloat16.
"""

from __future__ import annotations

import functools
import time
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, _text_agents, result
from motif_jax.core import config as checks
from motif_jax.core import resources
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.training.task import shapes_of
from motif_jax.core.training.train_steps import Carry, make_train_steps
from motif_jax.ilql.agent.text_agent import POLICY, TARGET, VALUES, TextAgentNetwork, V
from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.dialogues import token_columns
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.methods import implicit_q
from motif_jax.ilql.methods.implicit_q import ActionQ, Estimates, ImplicitQSettings, TextBatch
from motif_jax.ilql.methods.text_methods import RULES
from motif_jax.ilql.methods.text_objective import Objective, Part, Weights
from motif_jax.ilql.text_task import TextState, TextTraining
from motif_jax.lm.sampling import token_log_probs
from motif_jax.lm.sums_task import TrainingData
from motif_jax.schema import read_section

GPU_SIZE = {"batch_size": 16, "length": 512, "dtype": "bfloat16"}
_PAD = 0
_RUN = 16  # tokens of an action


def options() -> ConfigDict:
    network = {"width": 768, "layers": 12, "vocabulary": 50_264, "dtype": "float32"}
    sizes = {"batch_size": 4, "length": 128, "micro_batches": 4}
    return ConfigDict({**network, **sizes, "baseline": True, "seconds": 2.0})


def check(config: ConfigDict) -> None:
    length = config.options.length
    checks.require(length > _RUN, "options.length", length, f"at least {_RUN + 1}")


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    _language.phase("devices")
    jax.local_devices()
    _language.phase("parameters")
    objective, learned, frozen = subject(config)
    gradients = {"ours": _gradient(objective.terms)}
    if chosen.baseline:
        gradients["plain"] = _gradient(functools.partial(_plain, objective))
    batch = batch_of(chosen, config.seed)
    arguments = learned, frozen, Part(batch, implicit_q.counts(batch, objective.settings))
    sides = {side: _language.compiled(gradient, *arguments) for side, gradient in gradients.items()}
    first = _language.first_step_seconds(sides["ours"])
    apart = _apart(sides["ours"](), sides["plain"]()) if chosen.baseline else None
    flops = {side: _language.product_flops(gradient, *arguments) for side, gradient in gradients.items()}
    rates = _language.rates(config, sides, batch.tokens.size)
    ratio = flops["plain"] / flops["ours"] if chosen.baseline else None
    share = _language.peak_share(config, flops["ours"], batch.tokens.size / float(np.median(rates["ours"])))
    return result(
        config, "tokens/s", rates["ours"], "all heads at every position", rates.get("plain"), first_step_seconds=first,
        gradients_apart=apart, flops_ratio=ratio, threads=_language.threads(), **share,
        step=_step(objective, learned, frozen["target"], batch, chosen.micro_batches),
    )  # fmt: skip


def _apart(ours: Any, theirs: Any) -> float:
    """The norm of the gradients' difference, relative to one of them."""
    return float(optax.tree.norm(optax.tree.sub(ours, theirs)) / optax.tree.norm(theirs))


def subject(config: ConfigDict) -> tuple[Objective, Any, Any]:
    """ILQL's objective for a fresh agent of the options' size, trained parameters, and frozen ones with the targets."""
    chosen = config.options
    made = _text_agents.make(chosen, chosen.vocabulary, chosen.length, config.seed)
    params = jax.device_put(made.params)
    trunks = {name: params["trunks"][name] for name in (POLICY, VALUES)}
    learned = {"trunks": trunks, "heads": params["heads"]}
    frozen = {"target": {"trunks": {TARGET: params["trunks"][TARGET]}, "heads": params["target_heads"]}}
    network, weights = made.decoder.network, Weights(conservative=1e-4)
    return Objective(network, RULES["ilql"], ImplicitQSettings(0.99, 0.7), weights), learned, frozen


def step(
    objective: Objective, learned: Any, target: Any, batch: TextBatch, micro: int
) -> tuple[Any, Carry, Any]:
    """The program of a training step of `micro` micro-batches like `batch`, and the shapes of its arguments."""
    config = read_section(TextConfig, resources.config("train_text", "wordle_ilql"))
    parallel = DataParallel(jax.local_devices()[:1])
    none: Any = SimpleNamespace(batch_size=1, steps_per_pass=None, whole=lambda most: [])
    learned, target = shapes_of((learned, target))
    task = TextTraining(config, objective, (learned, target, {}), TrainingData(none, none, {}, ""), parallel)
    state = TextState(learned, target, jax.eval_shape(task.optimizer.init, learned), jnp.int32(0))
    rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, 1, micro, *leaf.shape), leaf.dtype), batch)
    program = parallel.wrap(make_train_steps(task.guarded_step), donate_state=True)
    return program, Carry(state, jnp.int32(0), None), rows


def _step(objective: Objective, learned: Any, target: Any, batch: TextBatch, micro: int) -> dict[str, float]:
    """Compile time and memory of a step of `micro` micro-batches like `batch`, which does not run."""
    program, carry, rows = step(objective, learned, target, batch, micro)
    start = time.monotonic()
    compiled = program.lower(carry, rows).compile()
    state = carry.state
    seconds, memory = time.monotonic() - start, compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return {
        "compile_seconds": seconds,
        "state_megabytes": sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) / 1e6,
        "memory_megabytes": (held + memory.temp_size_in_bytes) / 1e6,
    }


def _gradient(terms: Any) -> Any:
    def call(learned: Any, frozen: Any, part: Part) -> Any:
        return jax.grad(lambda x: terms(x, frozen, part, None).loss)(learned)

    return call


def batch_of(chosen: ConfigDict, seed: int) -> TextBatch:
    """Dialogues of `length` tokens; half of them belong to actions of `_RUN` tokens."""
    rows, length = chosen.batch_size, chosen.length
    tokens = np.random.default_rng(seed).integers(6, chosen.vocabulary, (rows, length))
    ours = (np.arange(length) // _RUN % 2 == 1) & (np.arange(length) > 0)
    kinds = np.where(ours, token_columns.ACTION, token_columns.CONTEXT).astype(np.uint8)
    kinds[np.flatnonzero(ours & ~np.append(ours[1:], False))] = token_columns.ACTION_END
    items = [token_columns.rebuilt(row.astype(np.int32), kinds, np.where(kinds == 2, -1.0, 0.0).astype(np.float32), True) for row in tokens]  # fmt: skip
    return jax.tree.map(jnp.asarray, ItemLayout(_PAD).batch(items, length, int(ours.sum()), 1))


def _plain(objective: Objective, learned: Any, frozen: Any, part: Part, key: Any) -> Any:
    """The losses with all outputs computed at every position, of which the actions' are taken, as published."""
    agent: TextAgentNetwork = objective.agent
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

    settings = objective.settings
    rows = [implicit_q.action_q(taken(q), after, settings, True, False) for q in qs]
    least = implicit_q.target_of([implicit_q.chosen(taken(q), after) for q in of_target], settings)
    v = jnp.take_along_axis(values, batch.states, axis=1)
    logs = token_log_probs(logits[:, :-1], batch.tokens[:, 1:])
    logs = jnp.take_along_axis(logs, batch.action_tokens, axis=1)
    following = jax.lax.stop_gradient(v[:, 1:])
    estimates = Estimates(v, [ActionQ(*row) for row in rows], least, following, logs)
    found = implicit_q.losses(batch, estimates, settings)
    actions, policy = part.counts
    loss = (found.q + found.v + 1e-4 * found.conservative) / actions + found.policy / policy
    return SimpleNamespace(loss=loss)
