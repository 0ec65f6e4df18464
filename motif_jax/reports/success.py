"""Which share of its episodes an agent solves, beside others: the verdict on a run whose task pays for success alone."""

from __future__ import annotations

from motif_jax.envs.babyai_text.catalogue import PREFIX
from motif_jax.reports.evaluation_sections import summaries
from motif_jax.reports.measures import format_estimate
from motif_jax.reports.run_data import RunData
from motif_jax.reports.statistics import Estimate


def rates(data: RunData) -> dict[str, Estimate]:
    """The success rate of each evaluation; empty unless all are of levels of BabyAI-Text."""
    plans = [evaluation["plan"]["environment"] for evaluation in data.evaluations.values()]
    if not all(name.startswith(PREFIX) for name in plans):
        return {}
    found = {name: summaries(evaluation) for name, evaluation in data.evaluations.items()}
    return {name: summary["success"].mean for name, summary in found.items() if "success" in summary}


def task_alone(data: RunData) -> bool:
    """Whether all evaluations are of BabyAI-Text, and no reward but the task's has any part in them or in what was trained."""
    paid = any(evaluation["plan"].get("reward") for evaluation in data.evaluations.values())
    rewarded = bool(data.reward_train or data.dataset or data.learned is not None)
    return bool(rates(data)) and not paid and not rewarded


def leads(data: RunData) -> bool:
    """Whether the interval of the first evaluation's success lies wholly above those of all others."""
    first, *others = rates(data).values()
    return all(first.low > other.high for other in others)


def headline(data: RunData) -> tuple[str, str]:
    """The rates side by side and what they say; returns (text, kind as of `Verdict`). Needs two evaluations."""
    found = rates(data)
    first, *others = found
    level = f"{100 * data.evaluations[first]['confidence']:g} %"
    rows = ", ".join(
        f"{name} {format_estimate(rate)} (n = {data.evaluations[name]['episodes']})"
        for name, rate in found.items()
    )
    below = [name for name in others if found[first].low > found[name].high]
    above = [name for name in others if found[first].high < found[name].low]
    said = []
    if below:
        said.append(f"{first} succeeds more often than {' and '.join(below)}")
    if above:
        said.append(f"{first} succeeds LESS often than {' and '.join(above)}")
    if unclear := [name for name in others if name not in (*below, *above)]:
        said.append(f"no clear difference to {' and '.join(unclear)}: the intervals overlap")
    text = f"Success rate: {rows}; {level} intervals: {'; '.join(said)}."
    return text, "bad" if above else "good" if len(below) == len(others) else ""
