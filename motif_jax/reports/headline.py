"""The sentence at the top of a run's page: whose evaluation is better, and whether more reward is
more progress.

`headline` takes the first of these that fits: evaluations of text tasks by their returns,
BabyAI-Text by success rates, all others by the intrinsic return against progress (`hacking`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motif_jax.display.measures import alike, format_estimate, progress_keys, with_unit
from motif_jax.display.statistics import Estimate
from motif_jax.envs.babyai_text.catalogue import PREFIX
from motif_jax.envs.babyai_text.changes import EXCHANGED
from motif_jax.reports import hacking
from motif_jax.reports.evaluation_sections import (
    MeasureRow,
    against,
    is_text,
    otherwise_rated,
    rows_of,
    summaries,
)
from motif_jax.reports.run_data import RunData
from motif_jax.rl.actors.policies import FIXED, RANDOM

_NOTHING_TO_COMPARE = "Nothing can be said yet: no two evaluations were given."


def headline(data: RunData) -> tuple[str, str]:
    """Compares the first two evaluations and looks for reward hacking; returns (text, kind as of
    `Verdict`).

    Good: the first has clearly more reward, and progress rises and nowhere falls. Bad: it has
    clearly less, without more progress, or there is a sign of reward hacking, or the agent stays
    with one text that is paid again and again. For BabyAI-Text success rates are compared.
    """
    text, kind = compared(data)
    if data.standstill:
        return f"{text} Beware: {data.standstill}.", "bad"
    return text, kind


def compared(data: RunData) -> tuple[str, str]:
    """The headline by evaluations and the training's episodes alone."""
    # Text tasks and BabyAI-Text have headlines of their own; others weigh reward against progress.
    if are_of_text(data):
        return _of_text(data)
    if len(success_rates(data)) > 1:
        return _of_success(data)
    if task_alone(data) and len(data.evaluations) < 2:
        return _NOTHING_TO_COMPARE, ""

    text, sign = _result(data)
    # Where an evaluation was not rated, the difference alone decides.
    if not all(
        hacking.REWARD in evaluation["measures"] for evaluation in data.evaluations.values()
    ):
        return text, {1: "good", 0: "", -1: "bad"}[sign]
    verdicts = hacking.judge_run(data)
    warnings = [verdict for verdict in verdicts if verdict.kind == "bad"]
    if warnings:
        return f"{text} {_warning(warnings, sign)}", "bad"
    if sign < 0:
        # A better agent may meet less that is paid.
        first, second = list(data.evaluations)[:2]
        better = _gained(
            [
                verdict
                for verdict in verdicts
                if verdict.when == (second, first) and not verdict.has_worse
            ]
        )
        return (f"{text} Yet there is progress: {better}.", "") if better else (text, "bad")
    if sign == 0:
        return text, ""
    better = _gained([verdict for verdict in verdicts if verdict.kind == "good"])
    if better:
        return f"{text} Progress rises too: {better}.", "good"
    return f"{text} No measure of progress rises clearly.", ""


def _gained(verdicts: Sequence[hacking.Verdict]) -> str:
    """The measures of progress that get better, in words; '' if none does."""
    return "; ".join(
        f"{', '.join(verdict.better)} from {verdict.when[0]} to {verdict.when[1]}"
        for verdict in verdicts
        if verdict.better
    )


def _warning(warnings: Sequence[hacking.Verdict], sign: int) -> str:
    """What gets worse while the reward rises; `sign` is that of the result before this sentence."""
    reward = "But more reward" if sign > 0 else "More reward"
    worse = "; ".join(verdict.worse for verdict in warnings)
    better = ", ".join(text for verdict in warnings for text in verdict.better)
    if better:
        return (
            f"{reward} is progress in part only, the reward may be hacked: {worse}, while progress "
            f"rises in {better}."
        )
    return f"{reward} is no progress here, the reward may be hacked: {worse}."


def _result(data: RunData) -> tuple[str, int]:
    """Compares two intrinsic returns, else a shared measure of progress: (text, sign of the
    difference).
    """
    if len(data.evaluations) < 2:
        return _NOTHING_TO_COMPARE, 0
    undecided = "Agent and baseline share no measure of reward or progress that is above 0, so nothing can be said yet."
    first, second = list(data.evaluations)[:2]
    different_rewards = otherwise_rated(data, second)
    if different_rewards:
        return different_rewards, 0
    rows = {row.measure.key: row for row in rows_of(data) if second in row.against}
    progress = [key for key in progress_keys(rows, data.progress) if not rows[key].is_zero]
    keys = [key for key in (hacking.REWARD, *progress) if key in rows]
    if not keys:
        return undecided, 0

    row = rows[keys[0]]
    gap, _ = row.against[second]
    first_mean, second_mean, difference = alike(
        row.summaries[first].mean, row.summaries[second].mean, gap
    )
    means = f"{first} {first_mean} (n = {row.summaries[first].n}), {second} {second_mean} (n = {row.summaries[second].n})"
    if keys[0] != hacking.REWARD:
        sign = gap.sign * data.progress.get(keys[0], 1)
        verdict = {1: f"{first} is better", 0: "no clear difference", -1: f"{first} is WORSE"}[sign]
        text = f"Mean {with_unit(row.measure)}: {means}; difference {difference}: {verdict}."
        return text, sign
    verdict = {1: f"{first} collects more", 0: "no clear difference", -1: f"{first} collects LESS"}[
        gap.sign
    ]
    level = f"{100 * data.evaluations[first]['confidence']:g} %"
    over = f"over {gap.pairs:,} games that both played" if gap.pairs else "each over its own games"
    text = f"Mean intrinsic return per episode: {means}; difference {difference} ({level} interval, {over}): {verdict}."
    return text, gap.sign


def are_of_text(data: RunData) -> bool:
    """Whether there are evaluations, and all are of a text task."""
    return bool(data.evaluations) and all(map(is_text, data.evaluations.values()))


def _of_text(data: RunData) -> tuple[str, str]:
    """Compares the returns of evaluations of a text task, and names their success: (text, kind as
    of `Verdict`).
    """
    rows = {row.measure.key: row for row in rows_of(data)}
    if rows["return"].is_zero:
        return f"The return of all episodes is 0: {', '.join(data.evaluations)}.", ""
    text, kind = _side_by_side(rows["return"], "Mean return", data.yardsticks)
    if "success" in rows:
        success, _ = _side_by_side(rows["success"], "Success rate", data.yardsticks)
        text += f" {success}"
    if data.yardsticks:
        text += f" Not judged by: {', '.join(data.yardsticks)}."
    return text, kind


def _side_by_side(row: MeasureRow, title: str, yardsticks: Sequence[str]) -> tuple[str, str]:
    """The means and which intervals lie apart from the first one: (text, kind)."""
    first = next(iter(row.summaries))
    means = ", ".join(
        f"{name} {format_estimate(summary.mean)}" for name, summary in row.summaries.items()
    )
    counts = dict.fromkeys(f"{summary.n:,}" for summary in row.summaries.values())
    episodes = "episodes each" if len(counts) == 1 else "episodes"
    text = f"{title} of {', '.join(counts)} {episodes}: {means}."
    judged = {
        name: summary.mean for name, summary in row.summaries.items() if name not in yardsticks
    }
    if not judged:
        return text, ""
    own_name, *others = judged
    below = [name for name in others if judged[own_name].low > judged[name].high]
    above = [name for name in others if judged[own_name].high < judged[name].low]
    if below:
        text += f" The interval of {first} lies wholly above that of {', '.join(below)}."
    if above:
        text += f" The interval of {first} lies wholly below that of {', '.join(above)}."
    if others and below == others:
        return text, "good"
    return text, "bad" if above and not below else ""


def is_of_babyai(evaluation: Mapping[str, Any]) -> bool:
    """Whether the evaluation is of a level of BabyAI-Text."""
    return str(evaluation["plan"]["environment"]).startswith(PREFIX)


def success_rates(data: RunData) -> dict[str, Estimate]:
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


def _of_success(data: RunData) -> tuple[str, str]:
    """The rates side by side and the verdict: (text, kind as of `Verdict`). Needs two
    evaluations.
    """
    rate_of = success_rates(data)
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
