"""Measures a gradient of ILQL with GPT-2's vocabulary: heads at actions alone, against all heads at
every position.

Value: tokens a second of loss and gradient, with two trained trunks, a target trunk, double Q and
the conservative term. Half of the tokens are actions. Baseline: the same losses from logits, V, Q
and target Q of all tokens at all positions. `gradients_apart` is the norm of the gradients'
difference, relative to one of them. `flops_ratio` is the ratio of matrix-product operations.

`step` has numbers of a whole training step of `micro_batches` such batches: `compile_seconds`, and
by the compiler's account the megabytes of the state (parameters, targets, optimiser) and of all
memory (`memory_megabytes`). It takes about three minutes on two cores with `--config.repeats=3`;
`--config.options.step=skip` leaves the step out, and `step=run` runs it, for `tokens_per_second`
and its share of the rate of matrix products. `:text_train_gpu` has more tokens, in bfloat16.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, print_early, result
from motif_jax.core import resources
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.training.task import shapes_of
from motif_jax.core.training.trainer import Carry, make_train_steps
from motif_jax.ilql import methods
from motif_jax.ilql.agent.text_agent import (
    POLICY,
    TARGET,
    VALUES,
    Design,
    TextAgentNetwork,
    V,
)
from motif_jax.ilql.config import LossWeights, TextConfig
from motif_jax.ilql.dialogues import dialogue_tokens
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.methods import ActionQ, Estimates, TextBatch
from motif_jax.ilql.objective import CountedBatch, Objective
from motif_jax.ilql.text_task import TextState, TextTraining
from motif_jax.lm import config as configs
from motif_jax.lm.generation import token_log_probs
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.sums_task import TrainingData
from motif_jax.schema import read_section

GPU_SIZE = {"batch_size": 16, "length": 512, "dtype": "bfloat16"}
_PAD = 0
_ACTION_TOKENS = 16  # of each action


def options() -> ConfigDict:
    """The agent's size; texts of a batch, their tokens, batches of a step, and whether the step is
    left out, compiled or run (skip, compile, run); `seconds` of each repeat and side.
    """
    return ConfigDict(
        {
            "width": 768,
            "layers": 12,
            "vocabulary": 50_264,
            "dtype": "float32",
            "batch_size": 4,
            "length": 128,
            "micro_batches": 4,
            "step": "compile",
            "baseline": True,
            "seconds": 2.0,
        }
    )


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    _language.print_phase("devices")
    jax.local_devices()
    _language.print_phase("parameters")
    objective, learned, frozen = subject(config)
    gradients = {"ours": _gradient(objective.terms)}
    if chosen.baseline:
        gradients["plain"] = _gradient(functools.partial(_plain, objective))
    batch = batch_of(chosen, config.seed)
    arguments = (learned, frozen, CountedBatch(batch, objective.counts(batch)))
    sides = {side: _language.compiled(gradient, *arguments) for side, gradient in gradients.items()}
    first = _language.first_step_seconds(sides["ours"])
    apart = _apart(sides["ours"](), sides["plain"]()) if chosen.baseline else None
    rates = _language.rates(config, sides, batch.tokens.size)
    print_early(config, "tokens/s", rates["ours"], first_step_seconds=first)
    flops = {
        side: _language.product_flops(gradient, *arguments) for side, gradient in gradients.items()
    }
    ratio = flops["plain"] / flops["ours"] if chosen.baseline else None
    share = _language.peak_share(
        config, flops["ours"], batch.tokens.size / float(np.median(rates["ours"]))
    )
    more: dict[str, Any] = dict(share)
    print_early(config, "tokens/s", rates["ours"], first_step_seconds=first, **more)
    if chosen.step != "skip":
        step_of_training = TrainingStep(
            objective, learned, frozen["target"], batch, chosen.micro_batches
        )
        is_run = chosen.step == "run"
        step_arguments = step_of_training.arguments() if is_run else step_of_training.shapes()
        compiled, more["step"] = _compile_step(step_of_training, step_arguments)
        if is_run:
            print_early(config, "tokens/s", rates["ours"], first_step_seconds=first, **more)
            more["step"] |= _run_step(
                config, step_of_training, compiled, step_arguments, flops["ours"]
            )
    return result(
        config,
        "tokens/s",
        rates["ours"],
        "all heads at every position",
        rates.get("plain"),
        first_step_seconds=first,
        gradients_apart=apart,
        flops_ratio=ratio,
        threads=_language.usable_cores(),
        **more,
    )


def _apart(ours: Any, theirs: Any) -> float:
    """The norm of the gradients' difference, relative to one of them."""
    return float(optax.tree.norm(optax.tree.sub(ours, theirs)) / optax.tree.norm(theirs))


def subject(config: ConfigDict) -> tuple[Objective, Any, Any]:
    """ILQL's objective for a fresh agent of the options' size, trained parameters, and frozen ones
    with the targets.
    """
    network = _network(config.options)
    params = jax.device_put(network.init(jax.random.key(config.seed)))
    # The target differs from the values, as in the middle of a training.
    other = jax.device_put(network.init(jax.random.key(config.seed + 1)))
    trunks = {name: params["trunks"][name] for name in (POLICY, VALUES)}
    learned = {"trunks": trunks, "heads": params["heads"]}
    frozen = {
        "target": {"trunks": {TARGET: other["trunks"][TARGET]}, "heads": other["target_heads"]}
    }
    objective = Objective(TextConfig(loss=LossWeights(cql=1e-4)), network)
    return objective, learned, frozen


def _network(chosen: ConfigDict) -> TextAgentNetwork:
    """An agent with two Qs, and a trunk each for policy, values and target; attention heads are 64
    wide, as in GPT-2.
    """
    shape = {
        "model_type": "gpt2", "vocab_size": chosen.vocabulary, "n_positions": chosen.length, "n_embd": chosen.width,
        "n_layer": chosen.layers, "n_head": max(1, chosen.width // 64),
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": _PAD,
    }  # fmt: skip
    settings = dataclasses.replace(configs.parse(shape), initializer=0.1)
    dtype = jnp.dtype(chosen.dtype)
    return TextAgentNetwork(LanguageModel(settings, dtype), Design(), dtype)


class _Loss(NamedTuple):
    """The loss of the baseline, named as in the terms of an objective."""

    loss: jax.Array


class _NoBatches:
    """Data of a step whose batch is passed to it."""

    batch_size = 1
    steps_per_pass = None

    def all_batches(self, max_batches: int) -> list[TextBatch]:
        return []


class TrainingStep:
    """A training step of `micro` micro-batches like `batch`.

    Attributes:
      program: the function (Carry, batches) -> (Carry, metrics); it takes over the memory of its
          state.
      carry, rows: shapes of its arguments.
    """

    def __init__(
        self, objective: Objective, learned: Any, target: Any, batch: TextBatch, micro: int
    ) -> None:
        config = read_section(TextConfig, resources.config("train_text", "wordle_ilql"))
        self._parallel = DataParallel(jax.local_devices()[:1])
        no_batches: Any = _NoBatches()
        data = TrainingData(no_batches, no_batches, {}, "")
        learned_shapes = shapes_of(learned)
        target_shapes = shapes_of(target)
        task = TextTraining(
            config, objective, (learned_shapes, target_shapes, {}), data, self._parallel
        )
        self._learned = learned
        self._target = target
        self._batch = batch
        self._optimizer = task.optimizer
        self.micro = micro
        self.program: Any = self._parallel.wrap(
            make_train_steps(task.guarded_step), donate_state=True
        )
        self.carry = jax.eval_shape(self._first_carry, learned_shapes, target_shapes)
        self.rows = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((1, 1, micro, *leaf.shape), leaf.dtype), batch
        )

    def _first_carry(self, learned: Any, target: Any) -> Carry:
        state = TextState(learned, target, self._optimizer.init(learned), jnp.int32(0))
        return Carry(state, jnp.int32(0), None)

    def shapes(self) -> tuple[Carry, TextBatch]:
        """Shapes of `arguments`."""
        return self.carry, self.rows

    def arguments(self) -> tuple[Carry, TextBatch]:
        """Arrays on the device: fresh ones for the program to take over, and batches."""
        carry = self._parallel.replicate(jax.jit(self._first_carry)(self._learned, self._target))
        rows = jax.tree.map(lambda leaf: jnp.stack([leaf] * self.micro)[None], self._batch)
        return carry, self._parallel.put_batch(rows, 1)


def _compile_step(step: TrainingStep, arguments: tuple[Any, Any]) -> tuple[Any, dict[str, float]]:
    """The compiled program of a step for arguments, or their shapes; its compile time and
    memory.
    """
    start = time.monotonic()
    compiled = step.program.lower(*arguments).compile()
    seconds = time.monotonic() - start
    memory = compiled.memory_analysis()
    # Outputs that take over the memory of arguments count once.
    live = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    state_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(step.carry.state))
    return compiled, {
        "compile_seconds": seconds,
        "state_megabytes": state_bytes / 1e6,
        "memory_megabytes": (live + memory.temp_size_in_bytes) / 1e6,
    }


def _run_step(
    config: ConfigDict,
    step: TrainingStep,
    compiled: Any,
    arguments: tuple[Any, Any],
    gradient_flops: float,
) -> dict[str, float]:
    """Rate of steps and their share of the peak, in model FLOPs: those of the micro-batches'
    gradients.
    """
    carry, rows = arguments

    def call() -> Any:
        # A step takes over its state's memory, so that the next one has to begin with what it
        # returns.
        nonlocal carry
        carry, metrics = compiled(carry, rows)
        return metrics

    count = step.micro * config.options.batch_size * config.options.length
    rates = _language.rates(config, {"step": call}, count)["step"]
    seconds = count / float(np.median(rates))
    share = _language.peak_share(config, step.micro * gradient_flops, seconds)
    return {"tokens_per_second": count / seconds, **share}


def _gradient(terms: Any) -> Any:
    """The gradient of a function's loss to the learned parameters."""

    def call(learned: Any, frozen: Any, part: CountedBatch) -> Any:
        return jax.grad(lambda x: terms(x, frozen, part, None).loss)(learned)

    return call


def batch_of(chosen: ConfigDict, seed: int) -> TextBatch:
    """Dialogues of `length` tokens; half of the tokens belong to actions of `_ACTION_TOKENS`
    tokens.
    """
    length = chosen.length
    tokens = np.random.default_rng(seed).integers(6, chosen.vocabulary, (chosen.batch_size, length))
    is_action = np.arange(length) // _ACTION_TOKENS % 2 == 1
    # The last token of each action.
    is_action_end = is_action & ~np.append(is_action[1:], False)
    kinds = np.where(is_action, dialogue_tokens.ACTION, dialogue_tokens.CONTEXT).astype(np.uint8)
    kinds[is_action_end] = dialogue_tokens.ACTION_END
    rewards = np.where(is_action_end, -1.0, 0.0).astype(np.float32)
    items = [
        dialogue_tokens.rebuilt_item(row.astype(np.int32), kinds, rewards, True) for row in tokens
    ]
    return jax.tree.map(jnp.asarray, ItemLayout(_PAD).batch(items, length, int(is_action.sum()), 1))


def _plain(objective: Objective, learned: Any, frozen: Any, part: CountedBatch, key: Any) -> Any:
    """The losses with all outputs computed at every position, of which the actions' are taken, as
    published.
    """
    agent: TextAgentNetwork = objective.agent
    method = objective.config.method
    batch = part.batch
    target = frozen["target"]

    # All outputs at all positions.
    params = {"trunks": {**learned["trunks"], **target["trunks"]}}
    states = agent.run(params, batch.tokens, batch.valid)
    states[TARGET] = jax.lax.stop_gradient(states[TARGET])
    logits = agent.model.logits(params["trunks"][POLICY], states[POLICY].after)
    values = agent.heads.apply(learned["heads"], V, states[VALUES])
    qs = [agent.heads.apply(learned["heads"], name, states[VALUES]) for name in agent.design.qs]
    target_qs = []
    for name in agent.design.qs:
        target_qs.append(agent.target_heads.apply(target["heads"], name, states[TARGET]))

    # Those of actions.
    def at_actions(of_all: jax.Array) -> jax.Array:
        return jnp.take_along_axis(of_all, batch.action_positions[..., None], axis=1)

    tokens = methods.action_tokens(batch)
    rows = [objective.rule.action_q(at_actions(q), tokens, method, True, False) for q in qs]
    chosen_qs = [methods.chosen(at_actions(q), tokens) for q in target_qs]
    target_q = methods.target_of(chosen_qs, method)
    v = jnp.take_along_axis(values, batch.state_positions, axis=1)
    next_v = jax.lax.stop_gradient(v[:, 1:])
    log_probs = token_log_probs(logits[:, :-1], batch.tokens[:, 1:])
    log_probs = jnp.take_along_axis(log_probs, batch.action_token_positions, axis=1)

    estimates = Estimates(v, [ActionQ(*row) for row in rows], target_q, next_v, log_probs)
    sums = objective.rule.losses(batch, estimates, method)
    actions, policy_tokens = part.counts
    # With the conservative weight of `subject`.
    loss = (sums.q + sums.v + 1e-4 * sums.conservative) / actions + sums.policy / policy_tokens
    return _Loss(loss)
