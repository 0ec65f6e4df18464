"""The headline of a run: a few numbers, and one sentence that weighs intrinsic reward against progress."""

from __future__ import annotations

import numpy as np

from motif_jax.display.charts import short
from motif_jax.display.measures import alike, progress_keys, with_unit
from motif_jax.reports import hacking, success, text_section
from motif_jax.reports.evaluation_sections import otherwise_rated, rows_of
from motif_jax.reports.run_data import RunData


def headline(data: RunData) -> tuple[str, str]:
    """Compares the first two evaluations and looks for reward hacking; returns (text, kind as of `Verdict`).

    Good: the first has clearly more reward, and progress in the game rises and nowhere falls. Bad: it has clearly less, or
    there is a sign of reward hacking. For BabyAI-Text success rates are compared.
    """
    if (found := text_section.headline(data)) is not None:
        return found
    if len(success.rates(data)) > 1:
        return success.headline(data)
    if success.task_alone(data) and len(data.evaluations) < 2:
        return "Nothing can be said yet: no two evaluations were given.", ""
    text, sign = _result(data)
    if not all(hacking.REWARD in evaluation["measures"] for evaluation in data.evaluations.values()):
        return text, ("", "good", "bad")[sign]
    verdicts = hacking.judge_run(data)
    warnings = [verdict for verdict in verdicts if verdict.kind == "bad"]
    if warnings:
        but = "But more reward" if sign > 0 else "More reward"
        fallen = "; ".join(verdict.fallen for verdict in warnings)
        risen = "; ".join(verdict.risen for verdict in warnings if verdict.risen)
        if risen:
            return (
                f"{text} {but} is progress in part only, the reward may be hacked: {fallen}, while {risen}.",
                "bad",
            )
        return f"{text} {but} is no progress here, the reward may be hacked: {fallen}.", "bad"
    if sign <= 0:
        return text, "bad" if sign < 0 else ""
    rising = [
        f"{', '.join(str(c) for c in verdict.changes if c.key != hacking.REWARD and c.sign > 0)} from {verdict.when[0]} to {verdict.when[1]}"
        for verdict in verdicts
        if verdict.kind == "good"
    ]
    if rising:
        return f"{text} Progress rises too: {'; '.join(rising)}.", "good"
    return f"{text} No measure of progress rises clearly.", ""


def _result(data: RunData) -> tuple[str, int]:
    """Compares two intrinsic returns, else a shared measure of progress: (text, sign of the difference)."""
    names = list(data.evaluations)[:2]
    if len(names) == 2 and (why := otherwise_rated(data, names[1])):
        return why, 0
    rows = {row.what.key: row for row in rows_of(data) if names[1] in row.against} if len(names) == 2 else {}
    key = next((key for key in (hacking.REWARD, *progress_keys(rows)) if key in rows), None)
    if key is None:
        shared = "no measure of reward or progress that is above 0"
        return f"Agent and baseline share {shared}, so nothing can be said yet.", 0
    row, (gap, _) = rows[key], rows[key].against[names[1]]
    *shown, difference = alike(row.of[names[0]].mean, row.of[names[1]].mean, gap)
    told = zip(names, shown, strict=True)
    means = ", ".join(f"{name} {mean} (n = {row.of[name].n})" for name, mean in told)
    if key != hacking.REWARD:
        said = ("no clear difference", f"{names[0]} is better", f"{names[0]} is WORSE")[gap.sign]
        return f"Mean {with_unit(row.what)}: {means}; difference {difference}: {said}.", gap.sign
    said = ("no clear difference", f"{names[0]} collects more", f"{names[0]} collects LESS")[gap.sign]
    level = f"{100 * data.evaluations[names[0]]['confidence']:g} %"
    over = f"over {gap.pairs:,} games that both played" if gap.pairs else "each over its own games"
    text = f"Mean intrinsic return per episode: {means}; difference {difference} ({level} interval, {over}): {said}."
    return text, gap.sign


def _accuracy(data: RunData) -> list[tuple[str, str, str]]:
    summary, column = data.reward_summary, data.reward_validation.get("validation_accs")
    if "validation/accuracy" not in summary:
        if column is None or not len(column) or np.isnan(column[-1]):
            return []
        note = f"pairs without ties, after {len(column) - 1} epochs"
        return [("validation accuracy", f"{100 * column[-1]:.1f} %", note)]
    titled = {
        "validation": ("validation accuracy", "pairs without ties"),
        "validation_unseen": ("on new messages", "of them: both messages never trained on"),
    }
    return [
        (title, f"{100 * summary[f'{part}/accuracy']:.1f} %", f"{pairs:,.0f} {what}")
        for part, (title, what) in titled.items()
        if (pairs := summary.get(f"{part}/accuracy_pairs", 0))  # none, or ties alone
    ]


def _held_out(data: RunData) -> list[tuple[str, str, str]]:
    items = []
    perplexity, loss = data.language.get("validation/perplexity"), data.text.get("validation/loss")
    for title, curve in (("perplexity", perplexity), ("held-out loss", loss)):
        if curve is not None and len(known := np.flatnonzero(np.isfinite(curve.y))):
            best, last = known[np.argmin(curve.y[known])], known[-1]
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
        speed = f"{evaluation['steps']:,} steps, {evaluation['steps_per_second']:,.0f} steps/s"
        items.append((f"episodes of {name}", f"{evaluation['episodes']:,}", speed))
    return items
