"""The methods that train agents on dialogues."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax

from motif_jax.core import config as checks
from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.ilql.methods import implicit_q
from motif_jax.ilql.methods.implicit_q import (
    ActionQ,
    Estimates,
    ImplicitQSettings,
    LossSums,
    TextBatch,
)

# What a user's rule may choose; Q of the mean of states is CHAI's, whose policy proposes.
_QS = ("token", "utterance", "none")
_BOOTSTRAPS = ("value", "best", "soft", "prior")


@dataclasses.dataclass(frozen=True)
class Rule:
    """The choices of a method; a user's own method is a subclass, made without arguments
    (docs/ilql.md), whose class attributes are its choices.
    """

    q: str = "token"  # see `ilql.agent.text_agent.Design.q`
    # Q bootstraps from V of the next state ('value'), or from its target Qs: their maximum
    # ('best'), the log of the sum of their exponentials ('soft'), or that sum weighted by the
    # policy ('prior').
    bootstrap: str = "value"
    huber: bool = False  # Q has Huber's loss
    prior_reward: bool = False  # add log pi of the action to its reward
    prefix: bool = False  # the policy is conditioned on the return (decision transformer)
    proposes: bool = False  # the policy is frozen; Q is compared with Q of actions that it proposes

    def __post_init__(self) -> None:
        # A subclass need not be a dataclass. `__init__` knows the defaults of this class alone, and
        # would hide the subclass's own attributes behind them.
        for field in dataclasses.fields(self):
            if getattr(self, field.name) == field.default:
                of_class = getattr(type(self), field.name)
                object.__setattr__(self, field.name, of_class)

    def losses(
        self, batch: TextBatch, estimates: Estimates, settings: ImplicitQSettings
    ) -> LossSums:
        """Sums of the loss terms over a batch, see `implicit_q.losses`.

        The caller divides them by `Counts` and multiplies them by `config.loss`. What only terms of
        weight 0 need is not computed: `ActionQ.conservative` and `ActionQ.margin` are zeros unless
        `loss.cql` and `loss.margin` are above 0.
        """
        return implicit_q.losses(batch, estimates, settings, self.huber)

    def action_q(
        self,
        q: jax.Array,
        actions: jax.Array,
        settings: ImplicitQSettings,
        conservative: bool,
        margin: bool,
    ) -> ActionQ:
        """The terms of one Q of all tokens float32 [..., V] at the actions int32 [...], see
        `implicit_q.action_q`.

        `conservative` and `margin` say which of the two terms have a weight.
        """
        return implicit_q.action_q(q, actions, settings, conservative, margin)


# ilql, sarsa and awac are one rule, and so are bc and bc_top: expectile, beta and filter tell them
# apart, which the variants of configs/train_text.py set. Snell et al. 2022, section 5 and appendix
# A; Jaques et al. 2017 and 2019 (psi, bcq, g); Chen et al. 2021 (dt); Verma et al. 2022 (chai).
RULES: Mapping[str, Rule] = {
    "bc": Rule(q="none"),
    "bc_top": Rule(q="none"),
    "dt": Rule(q="none", prefix=True),
    "ilql": Rule(),
    "sarsa": Rule(),
    "awac": Rule(),
    "ilql_utterance": Rule(q="utterance"),
    "cql": Rule(bootstrap="best"),
    # KL-control with the policy as prior: BCQ takes the best action where Psi takes the soft
    # maximum.
    "psi": Rule(bootstrap="soft", huber=True, prior_reward=True),
    "bcq": Rule(bootstrap="best", huber=True, prior_reward=True),
    "g": Rule(bootstrap="prior", huber=True),
    "chai": Rule(q="mean", proposes=True),
}


def rule_of(name: str) -> Rule:
    """The rule of a method: one of `RULES`, or an instance of 'module:Class'; else UserError."""
    if not entry_points.is_entry_point(name):
        checks.require(
            name in RULES, "method.name", name, f"one of {', '.join(RULES)}, or module:Class"
        )
        return RULES[name]
    loaded = entry_points.load("method.name", name)
    is_rule = isinstance(loaded, type) and issubclass(loaded, Rule)
    checks.require(is_rule, "method.name", name, f"a subclass of {Rule.__module__}.Rule")
    entry_points.require_signature("method.name", name, loaded)
    rule: Rule = loaded()
    allowed = "a method whose Rule does not propose"
    checks.require(not rule.proposes, "method.name", name, allowed)
    _check_choices(rule, name)
    return rule


def _check_choices(rule: Rule, name: str) -> None:
    """Raises UserError for choices of a user's rule that no training can follow."""

    def require(field: str, fits: bool, allowed: str) -> None:
        if not fits:
            value = getattr(rule, field)
            raise UserError(
                f"config.method.name={name}: its Rule has {field}={value!r}: must be {allowed}"
            )

    for field in ("huber", "prior_reward", "prefix"):
        require(field, isinstance(getattr(rule, field), bool), "True or False")
    require("q", rule.q in _QS, f"one of {', '.join(_QS)}")
    require("bootstrap", rule.bootstrap in _BOOTSTRAPS, f"one of {', '.join(_BOOTSTRAPS)}")
    if rule.q != "token":
        reason = f"with q={rule.q!r}: there is no Q of every token"
        require("bootstrap", rule.bootstrap == "value", f"'value' {reason}")
        require("prior_reward", not rule.prior_reward, f"False {reason}")
