"""Measures the PPO update of a language agent: samples a second against a row for every action with
its prompt.

A sample is a step of play: a prompt with its actions. Both sides run the whole update of
`algorithm.name=ppo` (targets, minibatches, gradients, optimiser) on the same random batch and
weights, in turns. The JSON line has the difference of their new parameters, relative to the largest
change. It takes two minutes on CPU. `configs/benchmark.py:language_update_gpu`: Flan-T5-large in
bfloat16, with the share of the matrix-product rate, and memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, print_early, result
from motif_jax.core import resources
from motif_jax.core.training import schedules
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.glam.agent import TOKENS, LanguageAgent
from motif_jax.lm import config as configs
from motif_jax.lm import scoring
from motif_jax.lm.finetune_params import Adaptation
from motif_jax.lm.heads import HeadConfig, Heads
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.scoring import LOG_PROBABILITY
from motif_jax.lm.tokens import TokenRows
from motif_jax.rl.algorithms.ppo import PpoAlgorithm
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.config import AgentConfig, agent_config

GPU_SIZE = {
    "model": "flan_t5_large", "prompt_tokens": 400, "rollout": 16, "batch_size": 256, "minibatch": 64, "microbatch": 16,
    "dtype": "bfloat16", "remat": True,
}  # fmt: skip


def options() -> ConfigDict:
    """The model's shape; steps of a batch, its rollouts, a minibatch and a micro-batch; actions and
    their tokens.
    """
    options = _language.options(
        model="flan_t5_small",
        candidates=6,
        candidate_tokens=2,
        rollout=2,
        batch_size=4,
        minibatch=4,
        microbatch=2,
        remat=False,
    )
    options.prompt_tokens = 200  # about the length of prompts in a training
    return options


def training_config(chosen: ConfigDict) -> AgentConfig:
    """The stage's config with these options; one epoch, since all epochs take the same time."""
    config = resources.config("train_language_agent", "")
    config.batch_size = chosen.batch_size
    config.rollout = chosen.rollout
    config.algorithm.epochs = 1
    config.algorithm.minibatch_size = chosen.minibatch
    config.algorithm.microbatch_size = chosen.microbatch
    return agent_config(config)


class RowForEachAction(LanguageAgent):
    """The same agent, which runs the prompt again with every action."""

    def logits_and_values(
        self,
        params: Any,
        tokens: jax.Array,
        candidates: jax.Array | None = None,
        candidate_starts: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        # all prompts of the benchmark have the agent's own actions
        del candidates, candidate_starts
        words, is_word = self._candidates(None)
        count = len(words)
        # One row for each prompt and action, with one candidate.
        prompts = jnp.repeat(tokens, count, axis=0)
        candidate = jnp.tile(words, (len(tokens), 1))[:, None]
        is_token = jnp.tile(is_word, (len(tokens), 1))[:, None]
        # Negative tokens are padding.
        scores = scoring.score(
            self.model, params["model"], jnp.maximum(prompts, 0), prompts >= 0, candidate, is_token
        )
        value = self.heads.apply(params["heads"], "value", scores.states)
        return scores.total.reshape(-1, count), value.reshape(-1, count)[:, 0]


def agent(
    chosen: ConfigDict, seed: int, kind: type[LanguageAgent] = LanguageAgent
) -> LanguageAgent:
    """An agent of the options' shape, with fresh weights and random actions."""
    settings = configs.parse(_language.SHAPES[chosen.model])
    model = LanguageModel(settings, jnp.dtype(chosen.dtype), chosen.remat)
    shape = (chosen.candidates, chosen.candidate_tokens)
    words = np.random.default_rng(seed).integers(2, settings.vocab_size - 1, shape).astype(np.int32)
    return kind(
        spec=EnvironmentSpec(
            {TOKENS: ArraySpec((chosen.prompt_tokens,), "int32")}, chosen.candidates
        ),
        model=model,
        heads=Heads(settings.width, {"value": HeadConfig(1, (1024, 1024), "sigmoid")}),
        candidates=TokenRows(words, np.ones(shape, bool)),
        form=LOG_PROBABILITY,
        by_length=False,
        pad_plus_one=False,
        source=None,
        keep_embedding=None,
        dropout=False,
        adaptation=Adaptation(model),
    )


def batch(chosen: ConfigDict, vocab_size: int, seed: int) -> TrajectoryBatch:
    """Random rollouts with full prompts and without episode ends."""
    rng = np.random.default_rng(seed)
    rollouts = chosen.batch_size // chosen.rollout
    shape = (chosen.rollout, rollouts)
    rows = (chosen.rollout + 1, rollouts)
    zeros = np.zeros(shape, np.float32)
    no_ends = np.zeros(shape, bool)
    return TrajectoryBatch(
        observation={
            TOKENS: rng.integers(2, vocab_size - 1, (*rows, chosen.prompt_tokens)).astype(np.int32)
        },
        first=np.zeros(rows, bool),
        last=np.zeros(rows, bool),
        action=rng.integers(0, chosen.candidates, shape).astype(np.int32),
        behaviour_log_prob=np.full(shape, -np.log(chosen.candidates), np.float32),
        behaviour_value=zeros,
        parameter_version=np.zeros(shape, np.int32),
        reward=rng.random(shape).astype(np.float32),
        intrinsic_reward=zeros,
        terminated=no_ends,
        truncated=no_ends,
        initial_state=np.zeros((rollouts, 0), np.int32),
    )


def algorithm_of(config: ConfigDict, network: LanguageAgent) -> PpoAlgorithm:
    """The algorithm that trains an agent."""
    training = training_config(config.options)
    return PpoAlgorithm(training, network, schedules.make_optimizer(training.optimizer))


def update_flops(config: ConfigDict, state: Any, data: TrajectoryBatch) -> float:
    """Model FLOPs of an update in matrix products; what `remat` computes again does not count."""
    chosen = ConfigDict({**config.options.to_dict(), "remat": False})
    algorithm = algorithm_of(config, agent(chosen, config.seed))
    return _language.product_flops(algorithm.update, state, data)


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    # Both sides have the same actions, by the seed, and start from the same state below.
    network = agent(chosen, config.seed)
    algorithm = algorithm_of(config, network)
    updates = {"shared": algorithm.update}
    if chosen.baseline:
        rows = agent(chosen, config.seed, RowForEachAction)
        updates["rows"] = algorithm_of(config, rows).update
    _language.print_phase("devices")
    jax.local_devices()
    _language.print_phase("parameters")
    state = algorithm.init(jax.random.key(config.seed))
    data = jax.device_put(batch(chosen, network.model.config.vocab_size, config.seed))
    programs = {
        name: _language.compiled(function, state, data) for name, function in updates.items()
    }
    # The metrics alone: new parameters and moments are released.
    calls = {name: functools.partial(_metrics, program) for name, program in programs.items()}
    first = _language.first_step_seconds(calls["shared"])
    # Before the other side has run, which takes more; None where the device does not report it.
    memory = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    apart = _changes_apart(programs, state) if chosen.baseline else None
    rates = _language.rates(config, calls, chosen.batch_size)
    print_early(config, "samples/s", rates["shared"], first_step_seconds=first)
    flops = update_flops(config, jax.eval_shape(lambda: state), data)
    seconds = chosen.batch_size / float(np.median(rates["shared"]))
    return result(
        config,
        "samples/s",
        rates["shared"],
        "every action with its prompt a row of its own",
        rates.get("rows"),
        first_step_seconds=first,
        changes_apart=apart,
        memory_megabytes=None if memory is None else memory / 1e6,
        **_language.peak_share(config, flops, seconds),
    )


def _changes_apart(programs: Mapping[str, Callable[[], Any]], state: Any) -> float:
    """The mean over parameters of the largest difference of both sides' changes, relative to the
    largest change.
    """
    after = {name: program()[0].params for name, program in programs.items()}
    changes = {
        name: jax.tree.map(jnp.subtract, params, state.params) for name, params in after.items()
    }
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(changes["rows"]))
    gaps = jax.tree.map(
        lambda a, b: jnp.abs(a - b).max() / largest, changes["shared"], changes["rows"]
    )
    return float(np.mean([float(gap) for gap in jax.tree.leaves(gaps)]))


def _metrics(program: Callable[[], Any]) -> Any:
    return program()[1]
