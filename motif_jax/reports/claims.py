"""Compares methods in the same games, and checks claims that one does more of something than
another.

A measure is a number of every game. The evaluation records some (`kills`, `gold`, a task's own);
others count messages about a lexicon's events: `fights` (the hero's attacks), `finds` (gold picked
up). `gathered` is the amount of that gold without vaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.display.measures import BY_KEY, in_order, is_rate
from motif_jax.display.statistics import Difference, Estimate, gap, mean_of
from motif_jax.motif.annotation.lexicon import Lexicon, sentences
from motif_jax.play import messages
from motif_jax.play.evaluation_files import games

FIGHTS = "fights"
FINDS = "finds"
GATHERED = "gathered"
# Measures that count messages, by the lexicon's events.
_EVENTS = {FIGHTS: frozenset(("kill", "hit", "miss")), FINDS: frozenset(("gold_taken",))}
_TAKEN = re.compile(r"(?:\$ - |You (?:find|collect|gain|take) )(an?|\d+) gold")
# A vault's heaps have 51 pieces or more, and no other heap of the first levels does. One vault
# outweighs hundreds of games.
_LARGEST_HEAP = 50
# A minus stands between blanks: names of methods may have one.
_PLAIN_CLAIM = re.compile(r"\s*(?P<more>.+?)\s*>\s*(?P<less>.+?)\s*:\s*(?P<measure>[^\s:]+)\s*")
_CLAIM = re.compile(
    r"\s*(?P<more>.+?)\s*>\s*(?P<less>.+?)(?:(?P<sign>\s*\+|\s-\s)\s*(?P<margin>\d+(?:\.\d+)?))?\s*:\s*(?P<measure>[^\s:]+)\s*"
)


class Claim(NamedTuple):
    """That `more` does more of `measure` than `less`, by more than `margin`; with a negative
    margin, that it does hardly less.
    """

    more: str
    less: str
    measure: str
    margin: float = 0.0

    def __str__(self) -> str:
        return f"{self.more} > {self.other_side}: {self.measure}"

    @property
    def other_side(self) -> str:
        """What `more` is compared with: the other method, and the margin."""
        if not self.margin:
            return self.less
        sign = "+" if self.margin > 0 else "-"
        return f"{self.less} {sign} {abs(self.margin):g}"


class Finding(NamedTuple):
    """A claim, the difference of its methods, and whether the whole interval lies above the
    margin.
    """

    claim: Claim
    difference: Difference

    @property
    def holds(self) -> bool:
        return self.difference.low > self.claim.margin


def require_measure(
    key: str, evaluations: Mapping[str, Mapping[str, Any]], config_key: str
) -> None:
    """Raises UserError, naming `config.{config_key}`, if `key` is neither listed nor in any of
    `evaluations` (method -> evaluation).
    """
    measured = in_order(
        key for evaluation in evaluations.values() for key in evaluation["measures"]
    )
    allowed = list(dict.fromkeys([*BY_KEY, *measured]))
    if key not in allowed:
        raise UserError(f"config.{config_key}={key}: must be one of {', '.join(allowed)}")


def parsed_claims(text: str, methods: Sequence[str]) -> list[Claim]:
    """Reads 'A > B: measure; A > B + 0.3: measure; A > B - 0.1: measure'. Raises UserError: another
    form, an unknown method, or one method twice.
    """
    claims = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        # The name of a method may end as a margin does: 'lr=1e+3'.
        match = _PLAIN_CLAIM.fullmatch(part)
        if match is None or {match["more"], match["less"]} - set(methods):
            match = _CLAIM.fullmatch(part)
        if match is None or {match["more"], match["less"]} - set(methods):
            raise UserError(
                f"config.claims={part}: must be 'A > B: measure; A > B + NUMBER: measure; A > B - NUMBER: measure; ...' with A and B of "
                f"{', '.join(methods)} (in compare, methods with a single evaluation; in a study, those in its tables)"
            )
        if match["more"] == match["less"]:
            raise UserError(f"config.claims={part}: compares {match['more']} with itself")
        claims.append(Claim(match["more"], match["less"], match["measure"], _margin(match)))
    return claims


def _margin(match: re.Match[str]) -> float:
    """The margin of a claim, 0 where it has none."""
    parts = match.groupdict()
    margin = float(parts.get("margin") or 0)
    return -margin if (parts.get("sign") or "").strip() == "-" else margin


def numbers(
    evaluation: Mapping[str, Any], key: str, lexicon: Lexicon, config_key: str = "measures"
) -> dict[Any, float]:
    """Game -> the number `key` of an evaluation. Raises UserError, naming `config.{config_key}`:
    its episodes lack the number.
    """
    if key in (*_EVENTS, GATHERED):
        rows = [{**row, key: _number_of_messages(row, key, lexicon)} for row in evaluation["rows"]]
        evaluation = {**evaluation, "rows": rows}
    by_game = games(evaluation, key)
    if len(by_game) < len(evaluation["rows"]):
        raise UserError(
            f"config.{config_key}={key}: the episodes of {evaluation['plan']['policy']} have no such number (evaluated by an "
            "earlier version, or another kind of game)"
        )
    return by_game


def _number_of_messages(row: Mapping[str, Any], key: str, lexicon: Lexicon) -> float | None:
    """The events or the gold that an episode's messages tell of; None without messages."""
    if "messages" not in row:
        return None
    if key == GATHERED:
        return float(gathered(row["messages"]))
    shown = 0
    for tally in messages.unpack(row["messages"]):
        # A message of several sentences counts once.
        if any(lexicon.event(sentence) in _EVENTS[key] for sentence in sentences(tally.text)):
            shown += tally.count
    return float(shown)


def gathered(packed: str) -> int:
    """The gold that the hero picked up outside vaults, by an episode's packed messages."""
    pieces = 0
    for tally in messages.unpack(packed):
        for sentence in sentences(tally.text):
            taken = _TAKEN.match(sentence)
            if taken is None:
                continue
            heap = int(taken[1]) if taken[1].isdigit() else 1
            if heap <= _LARGEST_HEAP:
                pieces += tally.count * heap
    return pieces


class SideBySide(NamedTuple):
    """The result of `side_by_side`; `means`: measure -> method -> mean with its interval."""

    means: Mapping[str, Mapping[str, Estimate]]
    findings: Sequence[Finding]

    def as_json(self) -> dict[str, Any]:
        claims = [
            {
                **finding.claim._asdict(),
                "difference": asdict(finding.difference),
                "holds": finding.holds,
            }
            for finding in self.findings
        ]
        means = {
            key: {method: asdict(mean) for method, mean in by_method.items()}
            for key, by_method in self.means.items()
        }
        return {"means": means, "claims": claims}


def side_by_side(
    evaluations: Mapping[str, Mapping[str, Any]],
    measures: Sequence[str],
    claims: Sequence[Claim],
    lexicon: Lexicon,
    resamples: int,
) -> SideBySide:
    """Compares evaluations (by method) in `measures` and in the measures of `claims`. Raises
    UserError as `numbers` does.
    """
    # Measure -> the config key that an error names; `measures` come first, in their order.
    config_keys = dict.fromkeys(measures, "measures")
    for claim in claims:
        config_keys.setdefault(claim.measure, "claims")

    values: dict[str, dict[str, dict[Any, float]]] = {}
    means: dict[str, dict[str, Estimate]] = {}
    for key, config_key in config_keys.items():
        values[key] = {}
        means[key] = {}
        for method, evaluation in evaluations.items():
            by_game = numbers(evaluation, key, lexicon, config_key)
            episodes = np.array(list(by_game.values()))
            values[key][method] = by_game
            means[key][method] = mean_of(episodes, is_rate(key, episodes), resamples)

    findings = []
    for claim in claims:
        more = values[claim.measure][claim.more]
        less = values[claim.measure][claim.less]
        rate = is_rate(claim.measure, np.array([*more.values(), *less.values()]))
        findings.append(Finding(claim, gap(more, less, rate, resamples)))
    return SideBySide(means, findings)
