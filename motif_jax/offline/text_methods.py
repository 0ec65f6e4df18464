"""The methods that agents learn from dialogues by, and what tells them apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

# What a Q bootstraps from: V of the next state; of the target Qs there the greatest, the log of the sum of their exponentials, or that
# weighted by the policy.
BOOTSTRAPS = ("value", "best", "soft", "prior")


@dataclasses.dataclass(frozen=True)
class Rule:
    """What tells a method from the others.

    Attributes:
      q: see `language.text_agent.Design.q`.
      bootstrap: one of `BOOTSTRAPS`.
      huber: Q's errors are Huber's.
      prior_reward: log pi of the action is added to its reward.
      prefix: the policy is told the return (decision transformer).
      proposes: the policy stays as it is, and what it would say in each state is what Q is compared with.
    """

    q: str = "token"
    bootstrap: str = "value"
    huber: bool = False
    prior_reward: bool = False
    prefix: bool = False
    proposes: bool = False


# Snell et al. 2022, section 5 and appendix A; Jaques et al. 2017 and 2019 (psi, bcq, g); Chen et al. 2021 (dt); Verma
# et al. 2022 (chai).
RULES: Mapping[str, Rule] = {
    "bc": Rule(q="none"),
    "bc_top": Rule(q="none"),
    "dt": Rule(q="none", prefix=True),
    "ilql": Rule(),
    "sarsa": Rule(),
    "awac": Rule(),
    "ilql_utterance": Rule(q="utterance"),
    "cql": Rule(bootstrap="best"),
    "psi": Rule(bootstrap="soft", huber=True, prior_reward=True),
    "bcq": Rule(bootstrap="best", huber=True, prior_reward=True),
    "g": Rule(bootstrap="prior", huber=True),
    "chai": Rule(q="mean", proposes=True),
}
