"""Compares methods in the same games, and checks claims that one does more of something than another.

A measure is a number of every game. The evaluation records some (`kills`, `gold`, a task's own); others count messages
about a lexicon's events: `fights` (the hero's attacks), `finds` (gold picked up). `gathered` is the amount of that gold
without vaults.
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

FIGHTS, FINDS, GATHERED = "fights", "finds", "gathered"
# Measures that count messages, by the lexicon's events.
_EVENTS = {FIGHTS: frozenset(("kill", "hit", "miss")), FINDS: frozenset(("gold_taken",))}
_TAKEN = re.compile(r"(?:\$ - |You (?:find|collect|gain|take) )(an?|\d+) gold")
# A vault's heaps have 51 pieces or more, and no other heap of the first levels does. One vault outweighs hundreds of games.
_LARGEST_HEAP = 50
_CLAIM = re.compile(r"\s*(.+?)\s*>\s*(.+?)\s*(?:\+\s*(\d+(?:\.\d+)?)\s*)?:\s*([^\s:]+)\s*")


class Claim(NamedTuple):
    """That `more` does more of `measure` than `less`, by more than `margin`."""

    more: str
    less: str
    measure: str
    margin: float = 0.0

    def __str__(self) -> str:
        margin = f" + {self.margin:g}" if self.margin else ""
        return f"{self.more} > {self.less}{margin}: {self.measure}"


class Finding(NamedTuple):
    """A claim, the difference of its methods, and whether the whole interval lies above the margin."""

    claim: Claim
    difference: Difference

    @property
    def holds(self) -> bool:
        return self.difference.low > self.claim.margin


def require_measure(key: str, evaluations: Mapping[str, Mapping[str, Any]], given: str) -> None:
    """Raises UserError, naming `config.{given}`, if `key` is neither listed nor in any of `evaluations` (method -> evaluation)."""
    measured = in_order(key for evaluation in evaluations.values() for key in evaluation["measures"])
    known = list(dict.fromkeys([*BY_KEY, *measured]))
    if key not in known:
        raise UserError(f"config.{given}={key}: must be one of {', '.join(known)}")


def parsed_claims(text: str, methods: Sequence[str]) -> list[Claim]:
    """Reads 'A > B: measure; A > B + 0.3: measure; ...'. Raises UserError: another form, or an unknown method."""
    claims = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        match = _CLAIM.fullmatch(part)
        if match is None or {match[1], match[2]} - set(methods):
            raise UserError(
                f"config.claims={part}: must be 'A > B: measure; A > B + NUMBER: measure; ...' with A and B of {', '.join(methods)} (in compare, "
                "methods with a single evaluation)"
            )
        claims.append(Claim(match[1], match[2], match[4], float(match[3] or 0)))
    return claims


def numbers(
    evaluation: Mapping[str, Any], key: str, lexicon: Lexicon, given: str = "measures"
) -> dict[Any, float]:
    """Game -> the number `key` of an evaluation. Raises UserError, naming `config.{given}`: its episodes lack the number."""
    if key in (*_EVENTS, GATHERED):
        rows = [{**row, key: _made(row, key, lexicon)} for row in evaluation["rows"]]
        evaluation = {**evaluation, "rows": rows}
    found = games(evaluation, key)
    if len(found) < len(evaluation["rows"]):
        raise UserError(
            f"config.{given}={key}: the episodes of {evaluation['plan']['policy']} have no such number (evaluated by an "
            "earlier version, or another kind of game)"
        )
    return found


def _made(row: Mapping[str, Any], key: str, lexicon: Lexicon) -> float | None:
    if "messages" not in row:
        return None
    if key == GATHERED:
        return float(gathered(row["messages"]))

    def counts(text: str) -> bool:
        return any(lexicon.event(part) in _EVENTS[key] for part in sentences(text))

    return float(sum(tally.count for tally in messages.unpack(row["messages"]) if counts(tally.text)))


def gathered(packed: str) -> int:
    """The gold that the hero picked up outside vaults, by an episode's packed messages."""
    pieces = 0
    for tally in messages.unpack(packed):
        for sentence in sentences(tally.text):
            if taken := _TAKEN.match(sentence):
                heap = int(taken[1]) if taken[1].isdigit() else 1
                pieces += tally.count * heap * (heap <= _LARGEST_HEAP)
    return pieces


class SideBySide(NamedTuple):
    """The result of `side_by_side`; `means`: measure -> method -> mean with its interval."""

    means: Mapping[str, Mapping[str, Estimate]]
    findings: Sequence[Finding]

    def as_json(self) -> dict[str, Any]:
        found = [
            {**one.claim._asdict(), "difference": asdict(one.difference), "holds": one.holds}
            for one in self.findings
        ]
        means = {key: {name: asdict(mean) for name, mean in of.items()} for key, of in self.means.items()}
        return {"means": means, "claims": found}


def side_by_side(
    evaluations: Mapping[str, Mapping[str, Any]],
    measures: Sequence[str],
    claims: Sequence[Claim],
    lexicon: Lexicon,
    resamples: int,
) -> SideBySide:
    """Compares evaluations (by method) in `measures` and in the measures of `claims`. Raises UserError as `numbers` does."""
    keys = dict.fromkeys((claim.measure for claim in claims), "claims") | dict.fromkeys(measures, "measures")
    values: dict[str, dict[str, dict[Any, float]]] = {}
    means: dict[str, dict[str, Estimate]] = {}
    for key in dict.fromkeys([*measures, *keys]):
        values[key] = {name: numbers(of, key, lexicon, keys[key]) for name, of in evaluations.items()}
        played = {name: list(of.values()) for name, of in values[key].items()}
        means[key] = {name: mean_of(of, is_rate(key, np.array(of)), resamples) for name, of in played.items()}
    findings = []
    for claim in claims:
        more, less = (values[claim.measure][name] for name in (claim.more, claim.less))
        rate = is_rate(claim.measure, np.array([*more.values(), *less.values()]))
        findings.append(Finding(claim, gap(more, less, rate, resamples)))
    return SideBySide(means, findings)
