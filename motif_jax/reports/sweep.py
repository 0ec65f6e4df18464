"""The combinations of values that a study trains with: all of a grid, or some that are drawn at
random.

    optimizer.learning_rate=1e-4,1e-3; algorithm.exploration_coefficient=log 1e-4..1e-2;
    rollout=16..64

A key has a list of values, or a range: `low..high` is uniform (of whole numbers where both ends
are), `log low..high` is uniform in the logarithm.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.reports.study_config import StudyConfig

_LOGARITHMIC = "log "
# Between values; one inside brackets belongs to a value, as in (64,).
_COMMA = re.compile(r",(?![^(\[]*[)\]])")
_ALLOWED = "'key=value,value; key=low..high; key=log low..high'"
_UNFIT = re.compile(r"[^\w.+-]+")
# Draws for each combination that is wanted: of two that are alike only one counts.
_ATTEMPTS = 1000


class Range(NamedTuple):
    """Numbers from `low` to `high`."""

    low: float
    high: float
    is_integer: bool
    logarithmic: bool

    def draw(self, generator: np.random.Generator) -> str:
        """A number as a flag has it."""
        if self.is_integer and not self.logarithmic:
            return str(generator.integers(int(self.low), int(self.high), endpoint=True))
        if self.logarithmic:
            number = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        else:
            number = generator.uniform(self.low, self.high)
        if self.is_integer:
            return str(round(number))
        shown = f"{number:.3g}"
        # Three digits may lie outside, as 1 for the range 0.9..0.9999.
        return shown if self.low <= float(shown) <= self.high else repr(number)


Values = list[str] | Range


def parse(text: str) -> dict[str, Values]:
    """The values of each key. Raises UserError: the text is not a list of keys with values, or a
    key stands twice.
    """
    values_of_key: dict[str, Values] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        key, _, values = part.partition("=")
        key = key.strip().removeprefix("--").removeprefix("config.")
        is_complete = bool(key) and bool(values.strip())
        checks.require(
            is_complete and key not in values_of_key, "sweep.over", part, f"{_ALLOWED}, a key once"
        )
        if _is_range(values):
            values_of_key[key] = _range(part, values)
            continue
        listed = [value.strip() for value in _COMMA.split(values) if value.strip()]
        checks.require(bool(listed), "sweep.over", part, _ALLOWED)
        # A study splits its commands at blanks.
        has_blank = any(" " in value for value in listed)
        checks.require(
            not has_blank and len(set(listed)) == len(listed),
            "sweep.over",
            part,
            "different values without blanks",
        )
        values_of_key[key] = listed
    return values_of_key


def _is_range(text: str) -> bool:
    """Whether a text has two dots between numbers; in a path they lead to the folder above."""
    before, dots, after = text.strip().removeprefix(_LOGARITHMIC).partition("..")
    return bool(dots) and "/" not in before + after and not before.strip().startswith("..")


def _range(part: str, text: str) -> Range:
    stripped = text.strip()
    logarithmic = stripped.startswith(_LOGARITHMIC)
    ends = stripped.removeprefix(_LOGARITHMIC).split("..")
    try:
        low, high = map(float, ends)
    except ValueError:
        raise UserError(f"config.sweep.over={part}: must be {_ALLOWED}") from None
    is_ordered = math.isfinite(low) and math.isfinite(high) and low < high
    checks.require(is_ordered, "sweep.over", part, "a range from a lower to a higher number")
    checks.require(
        low > 0 or not logarithmic, "sweep.over", part, "a range above 0 where it is logarithmic"
    )
    is_integer = all(end.strip().lstrip("+-").isdigit() for end in ends)
    return Range(low, high, is_integer, logarithmic)


def combinations(
    values_of_key: Mapping[str, Values], draws: int | None, seed: int
) -> list[dict[str, str]]:
    """Key -> value of each combination: all of them, or `draws` different ones, where more draws
    begin with the same ones.

    Raises UserError: a range without draws, or fewer combinations than draws.
    """
    if draws is None:
        grid: list[list[str]] = []
        for key, values in values_of_key.items():
            if isinstance(values, Range):
                raise UserError(
                    f"config.sweep.draws: must be given, as {key} of config.sweep.over has a range"
                )
            grid.append(values)
        return [
            dict(zip(values_of_key, chosen, strict=True)) for chosen in itertools.product(*grid)
        ]

    generator = np.random.default_rng(seed)
    drawn: list[dict[str, str]] = []
    for _ in range(draws * _ATTEMPTS):
        combination = {}
        for key, values in values_of_key.items():
            if isinstance(values, Range):
                combination[key] = values.draw(generator)
            else:
                combination[key] = str(generator.choice(values))
        if combination not in drawn:
            drawn.append(combination)
        if len(drawn) == draws:
            return drawn
    raise UserError(
        f"config.sweep.draws={draws}: must be the number of different combinations at most, {len(drawn)} are"
    )


def expand(config: StudyConfig) -> StudyConfig:
    """The study whose methods are those of `config`, each with every combination of `config.sweep`,
    which is then empty.

    Its tables list all combinations of the methods that they had. Raises UserError: `config.sweep`
    cannot be read.
    """
    values_of_key = parse(config.sweep.over)
    if not values_of_key:
        checks.require_key(
            config,
            "sweep.draws",
            config.sweep.draws is None,
            "None where config.sweep.over is empty",
        )
        return config
    names = _short_names(values_of_key)
    has_one_method = len(config.methods) == 1
    methods = {}
    names_of_method: dict[str, list[str]] = {method: [] for method in config.methods}
    games = {}
    for combination in combinations(values_of_key, config.sweep.draws, config.sweep.seed):
        # A method's name is that of its folders, and stands in lists with commas.
        values = "_".join(
            f"{names[key]}={_UNFIT.sub('_', value)}" for key, value in combination.items()
        )
        flags = " ".join(f"--config.{key}={value}" for key, value in combination.items())
        for method, flags_of_method in config.methods.items():
            name = values if has_one_method else f"{method}_{values}"
            allowed = "values whose names differ in more than signs"
            checks.require(name not in methods, "sweep.over", config.sweep.over, allowed)
            methods[name] = f"{flags_of_method} {flags}".strip()
            names_of_method[method].append(name)
            if method in config.games:
                games[name] = config.games[method]

    tables = {
        title: ",".join(
            name
            for method in checks.listed(listed)
            for name in names_of_method.get(method, [method])
        )
        for title, listed in config.tables.items()
    }
    # Methods stay sorted, as those of a config are.
    sorted_methods = dict(sorted(methods.items()))
    empty = dataclasses.replace(config.sweep, over="", draws=None)
    return dataclasses.replace(
        config, methods=sorted_methods, games=games, tables=tables, sweep=empty
    )


def _short_names(keys: Iterable[str]) -> dict[str, str]:
    """Key -> its last part, or the whole key where another one ends alike."""
    counts = Counter(key.rpartition(".")[2] for key in keys)
    names = {}
    for key in keys:
        last_part = key.rpartition(".")[2]
        names[key] = last_part if counts[last_part] == 1 else key
    return names
