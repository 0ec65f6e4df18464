"""Learning rates and the optimiser of the agent."""

from __future__ import annotations

import optax
from ml_collections import ConfigDict

from motif_jax.support.config import choice, fraction, positive, require

SCHEDULES = ("constant", "linear", "cosine")


def check(config: ConfigDict) -> None:
    """Checks the values of `config.optimizer`.

    Raises:
      UserError: a value is not allowed; says the key and what is.
    """
    choice(config, "optimizer.schedule", SCHEDULES)
    positive(config, "optimizer.learning_rate")
    positive(config, "optimizer.eps")
    for key in ("warmup_steps", "max_gradient_norm"):
        positive(config, f"optimizer.{key}", allow_zero=True)
    fraction(config, "optimizer.final_fraction")
    for key in ("b1", "b2"):
        value = config.optimizer[key]
        require(0 <= value < 1, f"optimizer.{key}", value, "at least 0 and below 1")


def make_schedule(config: ConfigDict, total_steps: int) -> optax.Schedule:
    """The learning rate as a function of the number of optimiser steps taken.

    Args:
      config: `config.optimizer`: learning_rate, the peak; schedule 'constant', 'linear' or 'cosine';
        warmup_steps from 0 up to the peak; final_fraction, the part of the peak at the end.
      total_steps: optimiser steps of the whole run, warm-up included; used by schedules that fall.

    Returns:
      A function step -> learning rate.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    fall = max(total_steps - warmup, 1)
    if config.schedule == "constant":
        schedule = optax.constant_schedule(peak)
    elif config.schedule == "linear":
        schedule = optax.linear_schedule(peak, peak * config.final_fraction, fall)
    else:
        schedule = optax.cosine_decay_schedule(peak, fall, alpha=config.final_fraction)
    if not warmup:
        return schedule
    # The first step already moves: the ramp ends, not starts, with the steps that it counts.
    ramp = optax.linear_schedule(peak / warmup, peak, max(warmup - 1, 1))
    return optax.join_schedules([ramp, schedule], [warmup])


def make_optimizer(config: ConfigDict, total_steps: int) -> optax.GradientTransformation:
    """Adam (Kingma and Ba 2015) behind a clip of the global gradient norm.

    Args:
      config: `config.optimizer`: as `make_schedule`, and b1, b2, eps, max_gradient_norm (0 is no clip).
      total_steps: optimiser steps of the whole run.
    """
    clip = (
        optax.clip_by_global_norm(config.max_gradient_norm) if config.max_gradient_norm else optax.identity()
    )
    return optax.chain(
        clip,
        optax.scale_by_adam(config.b1, config.b2, config.eps),
        optax.scale_by_learning_rate(make_schedule(config, total_steps)),
    )
