"""The page of `behaviour`: what agents do in the same games, side by side, whether the claims hold, and a replay of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motif_jax.reports import charts, html, text_tables
from motif_jax.reports.behaviour import Behaviour, Finding, described, difference
from motif_jax.reports.charts import Interval
from motif_jax.reports.html import Cell, Markup
from motif_jax.reports.measures import format_estimate, format_interval, format_pairs, format_value, with_unit


def told(found: Finding) -> str:
    """A claim in words."""
    claim, gap = found.claim, found.difference
    verb = "has more" if found.holds else "is not shown to have more"
    return (
        f"{claim.more} {verb} {described(claim.measure).title} than {claim.less}: {gap.value:+.3g} a game, 95 % interval "
        f"{format_interval(gap)} over {format_pairs(gap)}."
    )


def table(result: Behaviour, methods: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """A row a measure, a column a method."""
    header = ["a game", *methods]
    rows = [
        [with_unit(described(key)), *(format_estimate(of[name]) for name in methods)]
        for key, of in result.means.items()
    ]
    return header, rows


def markdown(result: Behaviour, methods: Sequence[str], games: str) -> str:
    """The table and the claims as Markdown."""
    escape = text_tables.markdown_escape
    claims = "\n".join(f"* {escape(told(found))}" for found in result.findings)
    return f"{text_tables.markdown(*table(result, methods))}\n{escape(games)}\n\n{claims}\n"


def render(
    result: Behaviour,
    title: str,
    games: str,
    words: Mapping[str, str],
    replays: Mapping[str, Sequence[tuple[str, str]]],
    resamples: int,
) -> str:
    """The page.

    Args:
      result: what it shows.
      title: heading.
      games: which games were played, a line.
      words: method -> what its reward was asked for; '' where nobody says.
      replays: method -> (what it is, file beside the page).
      resamples: of the bootstrap.
    """
    methods = list(words)
    sections = [
        html.section(
            "Claims",
            "claims",
            *(html.verdict(told(one), "good" if one.holds else "bad") for one in result.findings),
        ),
        html.section(
            "Side by side",
            "table",
            _means(result, methods),
            html.grid(*_figures(result, methods)),
            note=games,
        ),
        html.section(
            "Differences", "differences", _differences(result, methods, resamples), note=_DIFFERENCES
        ),
    ]
    links = {"claims": "Claims", "table": "Side by side", "differences": "Differences"}
    if not result.findings:
        del sections[0], links["claims"]
    if any(words.values()) or any(replays.values()):
        sections.append(html.section("Goals and replays", "replays", _replays(words, replays), note=_REPLAYS))
        links["replays"] = "Goals and replays"
    return html.page(title, games, sections, links)


_DIFFERENCES = "Row above column, game by game where both played the same; 95 % intervals. An interval that holds 0 tells the two not apart."
_REPLAYS = "The words of the goal decide what the annotator prefers, and by that what the reward pays. Players are files beside this page."


def _means(result: Behaviour, methods: Sequence[str]) -> str:
    rows = [
        [
            Cell(with_unit(described(key)), note=described(key).meaning),
            *(
                Cell(format_value(of[name].value), of[name].value, note=format_interval(of[name]))
                for name in methods
            ),
        ]
        for key, of in result.means.items()
    ]
    return html.table(["mean of a game", *methods], rows, "means")


def _figures(result: Behaviour, methods: Sequence[str]) -> list[str]:
    figures = []
    for key, of in result.means.items():
        rows = [
            Interval(name, of[name].value, of[name].low, of[name].high, place)
            for place, name in enumerate(methods)
        ]
        label = with_unit(described(key))
        figures.append(html.figure(label, charts.interval_chart(rows, label, label)))
    return figures


def _differences(result: Behaviour, methods: Sequence[str], resamples: int) -> str:
    rows = []
    for key, of in result.values.items():
        for place, first in enumerate(methods):
            for second in methods[place + 1 :]:
                gap = difference(of[first], of[second], key, resamples)
                sign = {1: "more", -1: "less", 0: "not told apart"}[gap.sign]
                rows.append(
                    [
                        Cell(described(key).title),
                        Cell(first),
                        Cell(second),
                        Cell(f"{gap.value:+.3g}", gap.value, note=format_interval(gap)),
                        Cell(sign),
                        Cell(format_pairs(gap)),
                    ]
                )
    return html.table(
        ["measure", "of", "against", "difference", "", "over"], rows, "differences-table", search=True
    )


def _replays(words: Mapping[str, str], replays: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    rows = []
    for name, asked in words.items():
        links = " ".join(html.link(file, what) for what, file in replays.get(name, ()))
        rows.append([Cell(name), Cell(asked), Markup(links or "none recorded")])
    return html.table(["agent", "goal", "replay"], rows, "replays-table")
