"""The headline of a run: a few numbers, and one sentence that weighs intrinsic reward against
progress.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motif_jax.display.charts import short
from motif_jax.display.measures import alike, progress_keys, with_unit
from motif_jax.reports import hacking, success, text_section
from motif_jax.reports.evaluation_sections import otherwise_rated, rows_of
from motif_jax.reports.run_data import RunData

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
    text_games = text_section.headline(data)
    if text_games is not None:
        return text_games
    if len(success.rates(data)) > 1:
        return success.headline(data)
    if success.task_alone(data) and len(data.evaluations) < 2:
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


def _accuracy(data: RunData) -> list[tuple[str, str, str]]:
    summary = data.reward_summary
    if "validation/accuracy" not in summary:
        # A run of the published code has no summary.
        column = data.reward_validation.get("validation_accs")
        if column is None or not len(column) or np.isnan(column[-1]):
            return []
        epochs = len(column) - 1
        note = f"pairs without ties, after {epochs} {'epoch' if epochs == 1 else 'epochs'}"
        return [("validation accuracy", f"{100 * column[-1]:.1f} %", note)]
    parts = (
        ("validation", "validation accuracy", "pairs without ties"),
        ("validation_unseen", "on new messages", "of them: both messages never trained on"),
    )
    items = []
    for part, title, meaning in parts:
        pairs = summary.get(f"{part}/accuracy_pairs", 0)
        if pairs:  # there may be none, or ties alone
            items.append(
                (title, f"{100 * summary[f'{part}/accuracy']:.1f} %", f"{pairs:,.0f} {meaning}")
            )
    return items


def _held_out(data: RunData) -> list[tuple[str, str, str]]:
    curves = {
        "perplexity": data.language.get("validation/perplexity"),
        "held-out loss": data.text.get("validation/loss"),
    }
    items = []
    for title, curve in curves.items():
        if curve is None:
            continue
        finite = np.flatnonzero(np.isfinite(curve.y))
        if not len(finite):
            continue
        best = finite[np.argmin(curve.y[finite])]
        last = finite[-1]
        note = f"at step {int(curve.x[last]):,}; best {curve.y[best]:.4g} at step {int(curve.x[best]):,}"
        items.append((title, f"{curve.y[last]:.4g}", note))
    return items


def facts(data: RunData) -> list[tuple[str, str, str]]:
    """The numbers at the top of the page: (name, value, note)."""
    items = []
    if "pairs" in data.dataset:
        items.append(("preference pairs", data.dataset["pairs"], data.dataset.get("origin", "")))
    items += _accuracy(data)
    steps = max((curve.x[-1] for curve in data.metrics.values() if len(curve)), default=None)
    if steps is not None:
        items.append(("training steps", short(float(steps)), "steps of the environments"))
    items += _held_out(data)
    for name, evaluation in data.evaluations.items():
        unit = "actions" if text_section.is_text(evaluation) else "steps"
        speed = f"{evaluation['steps']:,} {unit}, {evaluation['steps_per_second']:,.0f} {unit}/s"
        items.append((f"episodes of {name}", f"{evaluation['episodes']:,}", speed))
    return items
