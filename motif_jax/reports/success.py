"""Compares success rates, for the verdict on a run whose task rewards only success."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motif_jax.display.measures import format_estimate
from motif_jax.display.statistics import Estimate
from motif_jax.envs.babyai_text.catalogue import PREFIX
from motif_jax.envs.babyai_text.changes import EXCHANGED
from motif_jax.play.policies import FIXED, RANDOM
from motif_jax.reports import hacking
from motif_jax.reports.evaluation_sections import against, summaries
from motif_jax.reports.run_data import RunData


def is_of_babyai(evaluation: Mapping[str, Any]) -> bool:
    """Whether the evaluation is of a level of BabyAI-Text."""
    return str(evaluation["plan"]["environment"]).startswith(PREFIX)


def rates(data: RunData) -> dict[str, Estimate]:
    """The success rate of each evaluation; {} unless all are of levels of BabyAI-Text."""
    if not all(map(is_of_babyai, data.evaluations.values())):
        return {}
    measures = {name: summaries(evaluation) for name, evaluation in data.evaluations.items()}
    return {
        name: summary["success"].mean for name, summary in measures.items() if "success" in summary
    }


def task_alone(data: RunData) -> bool:
    """Whether play and training used no reward but the task's."""
    has_run = bool(data.evaluations or data.episodes or data.metrics or data.text)
    is_rated = any(evaluation["plan"].get("reward") for evaluation in data.evaluations.values())
    has_reward = data.reward_train or data.dataset or data.learned is not None or data.reward_reads
    return has_run and not is_rated and not has_reward and not hacking.recorded(data.episodes)


def headline(data: RunData) -> tuple[str, str]:
    """The rates side by side and the verdict: (text, kind as of `Verdict`). Needs two
    evaluations.
    """
    rate_of = rates(data)
    first, first_evaluation = next(iter(data.evaluations.items()))
    gaps = {name: gap for name, (gap, _) in against(data, "success").items()}
    # Two checkpoints of an agent that both solve all differ in how soon they do.
    return_gaps = {
        name: gap
        for name, (gap, _) in against(data, "return").items()
        if _is_earlier(first_evaluation, data.evaluations[name])
    }

    signs = {
        name: return_gaps.get(name, gap).sign
        for name, gap in gaps.items()
        if name not in data.yardsticks
    }
    better = [name for name, sign in signs.items() if sign == 1]
    worse = [name for name, sign in signs.items() if sign == -1]
    unclear = [name for name, sign in signs.items() if sign == 0]
    verdicts = []
    if better:
        verdicts.append(f"{first} does better than {' and '.join(better)}")
    if worse:
        verdicts.append(f"{first} does WORSE than {' and '.join(worse)}")
    if unclear:
        verdicts.append(f"no clear difference to {' and '.join(unclear)}")

    # A lead over players that do not read is only one if it has the margin and the intervals lie
    # apart.
    not_led = []
    for name in signs:
        if data.lead and _is_blind(data.evaluations[name]):
            is_narrow = gaps[name].value < data.lead
            if is_narrow or rate_of[first].low <= rate_of[name].high:
                not_led.append(name)
    if not_led:
        verdicts.append(
            f"not {data.lead:g} ahead, with intervals apart, of {' and '.join(not_led)}"
        )

    shown_rates = ", ".join(
        f"{name} {format_estimate(rate)} (n = {data.evaluations[name]['episodes']})"
        for name, rate in rate_of.items()
    )
    shown_gaps = ", ".join(f"{name} {format_estimate(gap)}" for name, gap in gaps.items())
    for name, gap in return_gaps.items():
        shown_gaps += f"; mean return minus that {name} {format_estimate(gap)}"
    confidence = f"{100 * first_evaluation['confidence']:g} %"
    # Beside a yardstick alone there is no verdict.
    verdict = f": {'; '.join(verdicts)}" if verdicts else ""
    text = (
        f"Success rate: {shown_rates}; {first} minus {shown_gaps}; {confidence} intervals, of pairs where the episodes are the same"
        f"{verdict}."
    )
    if signs and len(better) == len(signs) and not not_led:
        return text, "good"
    return text, "bad" if worse and not better else ""


def _is_earlier(first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether `other` evaluates an earlier checkpoint of the first's agent."""
    plan = first["plan"]
    other_plan = other["plan"]
    is_same_agent = all(plan.get(key) == other_plan.get(key) for key in ("policy", "options"))
    return is_same_agent and (other_plan.get("checkpoint") or 0) < (plan.get("checkpoint") or 0)


def _is_blind(evaluation: Mapping[str, Any]) -> bool:
    """Whether the player does not read its prompt, or reads an exchanged one."""
    plan = evaluation["plan"]
    return (
        plan["policy"] in (RANDOM, FIXED) or (plan.get("options") or {}).get("change") in EXCHANGED
    )
