"""The section of a comparison that shows measures of methods side by side, and claims about them."""

from __future__ import annotations

from motif_jax.reports import html
from motif_jax.reports.claims import Finding, SideBySide
from motif_jax.reports.html import TableCell
from motif_jax.reports.measures import format_interval, format_pairs, measure, with_unit
from motif_jax.reports.page import Section, Table, estimate_cell

_NOTE = "Means of a game with intervals of 95 %. A claim holds where the whole interval of its difference, game by game where both played the same, lies above 0, or above the number that is added."


def sentence(found: Finding) -> str:
    """A claim in words."""
    claim, gap = found.claim, found.difference
    verb = "has more" if found.holds else "is not shown to have more"
    margin = f" + {claim.margin:g}" if claim.margin else ""
    return (
        f"{claim.more} {verb} {measure(claim.measure).title} than {claim.less}{margin}: {gap.value:+.3g} a game, 95 % interval "
        f"{format_interval(gap)} over {format_pairs(gap)}."
    )


def section(result: SideBySide) -> Section:
    """A table with a row per measure and a column per method, and each claim in words."""
    rows = [
        [TableCell(with_unit(measure(key)), note=measure(key).meaning), *map(estimate_cell, of.values())]
        for key, of in result.means.items()
    ]
    note = " ".join([_NOTE, *map(sentence, result.findings)])
    table = Table(
        "means", ["mean of a game", *next(iter(result.means.values()), {})], rows, note=note, in_files=True
    )
    verdicts = [html.verdict(sentence(one), "good" if one.holds else "bad") for one in result.findings]
    return Section("Side by side", "claims", [*verdicts, table], _NOTE)
