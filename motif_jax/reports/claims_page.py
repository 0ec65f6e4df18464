"""Measures of methods side by side, and claims about them, in a comparison's page and tables."""

from __future__ import annotations

from motif_jax.reports import html
from motif_jax.reports.claims import Finding, SideBySide, described
from motif_jax.reports.html import TableCell
from motif_jax.reports.measures import format_estimate, format_interval, format_pairs, format_value, with_unit

_NOTE = "Means of a game with intervals of 95 %. A claim holds where the whole interval of its difference, game by game where both played the same, lies above 0, or above the number that is added."


def sentence(found: Finding) -> str:
    """A claim in words."""
    claim, gap = found.claim, found.difference
    verb = "has more" if found.holds else "is not shown to have more"
    margin = f" + {claim.margin:g}" if claim.margin else ""
    return (
        f"{claim.more} {verb} {described(claim.measure).title} than {claim.less}{margin}: {gap.value:+.3g} a game, 95 % interval "
        f"{format_interval(gap)} over {format_pairs(gap)}."
    )


def note(result: SideBySide) -> str:
    """The method behind the numbers, and each claim in words."""
    return " ".join([_NOTE, *map(sentence, result.findings)])


def table(result: SideBySide) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows: a row a measure, a column a method."""
    rows: list[tuple[str, ...]] = [
        (with_unit(described(key)), *map(format_estimate, of.values())) for key, of in result.means.items()
    ]
    return ("a game", *result.methods), rows


def section(result: SideBySide) -> str:
    """The section of the page."""
    rows = [
        [
            TableCell(with_unit(described(key)), note=described(key).meaning),
            *(
                TableCell(format_value(one.value), one.value, note=format_interval(one))
                for one in of.values()
            ),
        ]
        for key, of in result.means.items()
    ]
    return html.section(
        "Side by side",
        "claims",
        *(html.verdict(sentence(one), "good" if one.holds else "bad") for one in result.findings),
        html.table(["mean of a game", *result.methods], rows, "means"),
        note=_NOTE,
    )
