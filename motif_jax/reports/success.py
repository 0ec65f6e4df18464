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
    found = {name: summaries(evaluation) for name, evaluation in data.evaluations.items()}
    return {name: summary["success"].mean for name, summary in found.items() if "success" in summary}


def task_alone(data: RunData) -> bool:
    """Whether play and training used no reward but the task's."""
    paid = any(evaluation["plan"].get("reward") for evaluation in data.evaluations.values())
    rewarded = data.reward_train or data.dataset or data.learned is not None or data.reward_reads
    known = bool(data.evaluations or data.episodes or data.metrics or data.text)
    return known and not paid and not rewarded and not hacking.recorded(data.episodes)


def headline(data: RunData) -> tuple[str, str]:
    """The rates side by side and the verdict: (text, kind as of `Verdict`). Needs two evaluations."""
    found = rates(data)
    first, own = next(iter(data.evaluations.items()))
    numbers = {name: evaluation["episodes"] for name, evaluation in data.evaluations.items()}
    rows = ", ".join(f"{name} {format_estimate(rate)} (n = {numbers[name]})" for name, rate in found.items())
    gaps = {name: gap for name, (gap, _) in against(data, "success").items()}
    earned = against(data, "return").items()
    returns = {name: gap for name, (gap, _) in earned if _is_earlier(own, data.evaluations[name])}
    apart = ", ".join(f"{name} {format_estimate(gap)}" for name, gap in gaps.items())
    for name, gap in returns.items():
        apart += f"; mean return minus that {name} {format_estimate(gap)}"
    judged = {name: returns.get(name, gap).sign for name, gap in gaps.items() if name not in data.yardsticks}
    signs = {1: f"{first} does better than", -1: f"{first} does WORSE than", 0: "no clear difference to"}
    sides = {wanted: [name for name, sign in judged.items() if sign == wanted] for wanted in signs}
    said = [f"{signs[sign]} {' and '.join(names)}" for sign, names in sides.items() if names]
    blind = [name for name in judged if data.lead and _is_blind(data.evaluations[name])]
    close = [name for name in blind if gaps[name].value < data.lead or found[first].low <= found[name].high]
    if close:
        said.append(f"not {data.lead:g} ahead, with intervals apart, of {' and '.join(close)}")
    text = (
        f"Success rate: {rows}; {first} minus {apart}; {100 * own['confidence']:g} % intervals, of pairs where the episodes are the same: "
        f"{'; '.join(said)}."
    )
    good = len(sides[1]) == len(judged) > 0 and not close
    return text, "good" if good else "bad" if sides[-1] and not sides[1] else ""


def _is_earlier(first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether `other` evaluates an earlier checkpoint of the first's agent: their returns differ where both solve all."""
    one, two = first["plan"], other["plan"]
    same = all(one.get(key) == two.get(key) for key in ("policy", "options"))
    return same and (two.get("checkpoint") or 0) < (one.get("checkpoint") or 0)


def _is_blind(evaluation: Mapping[str, Any]) -> bool:
    plan = evaluation["plan"]
    return plan["policy"] in (RANDOM, FIXED) or (plan.get("options") or {}).get("change") in EXCHANGED
