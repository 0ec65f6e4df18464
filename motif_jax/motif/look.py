"""A look at an environment before anything is collected: `collect --config.look=True`.

Random players play some games, and one page says whether games are repeatable, what is observed,
what is measured, and which captions a collection would hold.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text
from motif_jax.core.metric_files import FALLEN_SUCCESS, SUCCESS, success_falls, without_success
from motif_jax.core.progress import format_number, printable
from motif_jax.display import html, page
from motif_jax.display.html import TableCell, message_cell, number_cell
from motif_jax.display.page import Section, Table
from motif_jax.envs import determinism, registry
from motif_jax.envs.checked import unplayable
from motif_jax.envs.episode import EpisodePlayer
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.motif.annotation.captions import caption
from motif_jax.motif.sampling import SamplingPlan, chunk_arrays, row_rewards
from motif_jax.rl.actors.policies import RandomPolicy

PAGE = "look.html"
# Games are played until one of these is reached.
_STEPS = 10_000
_SECONDS = 40.0
# What `start_share` is tried at, with spread=messages.
SHARES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
# Captions are balanced where the share of the most frequent one is this near to its least.
_NEAR = 0.05
# Rows of a table before "show all" is pressed.
_SHOWN = 50
_ACTIONS_SHOWN = 30
_CAPTIONS_NOTE = (
    "Steps: the share of steps with this text. Games: the share of games that show it. "
    "Drawn: the share of what a collection with the start_share below would hold."
)
_DRAWS_NOTE = (
    "What a collection draws from these games. With spread=messages the different texts of a game are drawn alike, until there is no other left: "
    "a lower start_share takes fewer from each game and plays more games. Equal pairs are ties, and ask a judge nothing."
)
_MEASURES_NOTE = (
    "The last value that a game showed. Numbers of info keep their names, but for is_success, which is called success, "
    "and names that rows have already, which get the prefix info_."
)


class Draw(NamedTuple):
    """A way to draw sub-sequences from a game: the keys `spread` and `start_share`."""

    spread: str
    share: float


DRAWS = (Draw("steps", 1.0), *(Draw("messages", share) for share in SHARES))


class RandomGames(NamedTuple):
    """What was seen in games of a random player.

    Attributes:
      steps, games: how many were played.
      shown: text of a step -> number of steps on which it would be collected.
      games_with: text of a step -> number of games that show it.
      drawn: caption -> how many sub-sequences have it, for each of DRAWS.
      measures: name -> value at the end of each game that has it.
      ranges: observation field -> its least and greatest number.
    """

    steps: int
    games: int
    shown: collections.Counter[str]
    games_with: collections.Counter[str]
    drawn: dict[Draw, collections.Counter[str]]
    measures: dict[str, list[float]]
    ranges: dict[str, tuple[float, float]]


def play(plan: SamplingPlan) -> RandomGames:
    """Plays the first games of a collection with `plan` by random actions. Raises UserError: the
    environment fails.
    """
    shown: collections.Counter[str] = collections.Counter()
    games_with: collections.Counter[str] = collections.Counter()
    drawn: dict[Draw, collections.Counter[str]] = {draw: collections.Counter() for draw in DRAWS}
    rows: list[dict[str, float]] = []
    ranges: dict[str, tuple[float, float]] = {}
    steps = 0
    game = 0
    began = time.monotonic()
    with contextlib.closing(registry.make(plan.environment, **plan.options)) as environment:
        player = EpisodePlayer(environment, tuple(environment.spec.observation), keep_texts=False)
        policy = RandomPolicy()
        while steps < _STEPS and time.monotonic() - began < _SECONDS:
            # The seeds of the collection, see `sampling.Players`.
            seed = seeds.derive(plan.seed, "episode", game)
            try:
                episode = player.play(seed, policy.player(seed, environment.spec), game)
            except UserError:
                raise
            except Exception as error:
                raise unplayable(plan.environment, error) from error
            texts = collections.Counter(_texts(episode.fields[plan.text][:, None]))
            shown.update(texts)
            games_with.update(texts.keys())
            for draw in DRAWS:
                drawing = dataclasses.replace(
                    plan, share=draw.share, even=draw.spread == "messages"
                )
                chunk = chunk_arrays(episode, 0, drawing)
                drawn[draw].update(_texts(chunk["data/message"]))

            rows.append(episode.info)
            for name, array in {**episode.fields, "rewards": row_rewards(episode, plan)}.items():
                if array.size:
                    low, high = ranges.get(name, (np.inf, -np.inf))
                    ranges[name] = (min(low, float(array.min())), max(high, float(array.max())))
            steps += len(episode)
            game += 1
    if success_falls(rows):
        rows = [without_success(row) for row in rows]
    measures: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            measures.setdefault(name, []).append(value)
    return RandomGames(steps, game, shown, games_with, drawn, measures, ranges)


def _texts(messages: np.ndarray) -> list[str]:
    """The captions of sub-sequences uint8 [rows, length, bytes]."""
    known: dict[bytes, str] = {}
    for message in messages:
        raw = message.tobytes()
        if raw not in known:
            # Once for equal bytes, since most messages of a game repeat.
            known[raw] = caption(message)
    return [known[message.tobytes()] for message in messages]


def balanced(drawn: dict[Draw, collections.Counter[str]]) -> Draw:
    """The draw of the fewest games in which no caption is much more frequent than it has to be."""
    most = {draw: _most(drawn[draw]) for draw in DRAWS if draw.spread == "messages"}
    return next(draw for draw in most if most[draw] <= min(most.values()) + _NEAR)


def _most(counts: collections.Counter[str]) -> float:
    """The share of the most frequent caption."""
    return max(counts.values(), default=0) / max(1, counts.total())


def _equal_pairs(counts: collections.Counter[str]) -> float:
    """The share of pairs whose two captions are equal, which are ties."""
    return sum(count**2 for count in counts.values()) / max(1, counts.total()) ** 2


def repeatable(plan: SamplingPlan) -> tuple[str, str]:
    """Whether games are functions of their seeds: (a sentence, its kind as of `html.verdict`)."""
    if not determinism.is_outside(plan.environment):
        return "Seeded: each of the package's games is a function of its seed and actions.", "good"
    try:
        determinism.require(plan.environment, plan.options, "config.look=True")
    except UserError as error:
        return f"Games cannot be played again: {error}", "bad"
    return (
        "Seeded: short games with the same seed and actions were the same, also after other games.",
        "good",
    )


def write(plan: SamplingPlan, num_pairs: int, workdir: Path) -> None:
    """Plays, writes look.html, and prints its main figures.

    `plan` has the collection's environment, seed and length; `num_pairs` is the dataset's size.
    """
    spec = registry.spec(plan.environment, **plan.options)
    sentence, kind = repeatable(plan)
    games = play(plan)
    draw = balanced(games.drawn)
    measures: list[str | Table] = [_measure_table(games)]
    if FALLEN_SUCCESS in games.measures:
        measures.insert(0, html.verdict(determinism.success_remark(plan.environment), "bad"))

    sections = [
        Section("At a glance", "glance", [_tiles(games, draw), html.verdict(sentence, kind)]),
        Section("Captions", "captions", [_caption_table(games, draw)], _CAPTIONS_NOTE),
        Section("Which start_share", "draws", [_draw_table(games, draw, num_pairs)], _DRAWS_NOTE),
        Section("Measures of a game", "measures", measures, _MEASURES_NOTE),
        Section("Observation", "observation", [_observation_table(games, spec)]),
        Section("Actions", "actions", [html.verdict(_actions(spec))]),
    ]
    title = f"{plan.environment} before a collection"
    subtitle = f"{games.games:,} games of a random player, {games.steps:,} steps"
    atomic_write_text(workdir / PAGE, page.render(title, subtitle, sections))

    print(printable(sentence))
    print(
        f"{games.games:,} random games, {games.steps:,} steps: {_percent(games.shown, '')} without a text, "
        f"{len(games.shown):,} different texts"
    )
    for name, values in sorted(games.measures.items()):
        taken = ", taken for success" if name == SUCCESS else ""
        taken = ", which falls again, and is no success" if name == FALLEN_SUCCESS else taken
        print(printable(f"  {name}: {format_number(float(np.mean(values)))} a game{taken}"))
    print(
        f"--config.spread={draw.spread} --config.start_share={draw.share:g} balances the captions: "
        f"{_percent(games.drawn[draw], '')} empty"
    )
    print(f"written: {workdir / PAGE}", flush=True)


def _share(counts: collections.Counter[str], text: str) -> float:
    return counts[text] / max(1, counts.total())


def _percent(counts: collections.Counter[str], text: str) -> str:
    return f"{100 * _share(counts, text):.3g} %"


def _tiles(games: RandomGames, draw: Draw) -> str:
    best = games.drawn[draw]
    rare = sum(count == 1 for count in games.games_with.values())
    items = [
        ("without a text", _percent(games.shown, ""), "of the steps"),
        ("different texts", f"{len(games.shown):,}", f"{rare:,} of them in one game alone"),
        (
            "start_share",
            f"{draw.share:g}",
            f"balances them with spread=messages: {_percent(best, '')} empty",
        ),
    ]
    if SUCCESS in games.measures:
        rate = float(np.mean(games.measures[SUCCESS]))
        items.append(("success", f"{100 * rate:.3g} %", "of the random games"))
    return html.tiles(items)


def _caption_table(games: RandomGames, draw: Draw) -> Table:
    rows = [
        [
            message_cell(text),
            number_cell(100 * _share(games.shown, text), ".3g"),
            number_cell(100 * games.games_with[text] / games.games, ".3g"),
            number_cell(100 * _share(games.drawn[draw], text), ".3g"),
        ]
        for text, _ in games.shown.most_common()
    ]
    header = ["text", "steps, %", "games, %", "drawn, %"]
    return Table("texts", header, rows, search=True, limit=_SHOWN)


def _draw_table(games: RandomGames, advised: Draw, num_pairs: int) -> Table:
    rows = []
    for draw, counts in games.drawn.items():
        a_game = counts.total() / games.games
        needed = math.ceil(2 * num_pairs / a_game) if a_game else math.nan
        rows.append(
            [
                TableCell(draw.spread, note="balances" if draw == advised else ""),
                number_cell(draw.share, "g"),
                number_cell(100 * _share(counts, ""), ".3g"),
                number_cell(100 * _most(counts), ".3g"),
                number_cell(100 * _equal_pairs(counts), ".3g"),
                number_cell(len(counts), ",d"),
                number_cell(needed, ",.0f"),
            ]
        )
    header = [
        "spread",
        "start_share",
        "empty, %",
        "most frequent, %",
        "equal pairs, %",
        "different captions",
        f"games for {num_pairs:,} pairs",
    ]
    return Table("draws", header, rows)


def _measure_table(games: RandomGames) -> Table:
    rows = []
    for name, values in sorted(games.measures.items()):
        rows.append(
            [
                TableCell(name),
                TableCell("yes" if name == SUCCESS else ""),
                number_cell(min(values), ".4g"),
                number_cell(float(np.mean(values)), ".4g"),
                number_cell(max(values), ".4g"),
                number_cell(len(values), ",d"),
            ]
        )
    header = ["measure", "taken for success", "least", "mean", "greatest", "games that show it"]
    return Table("measures", header, rows)


def _observation_table(games: RandomGames, spec: EnvironmentSpec) -> Table:
    rows = []
    for name, field in spec.observation.items():
        low, high = games.ranges.get(name, (math.nan, math.nan))
        rows.append(
            [
                TableCell(name),
                TableCell(f"{field.dtype} {list(field.shape)}"),
                TableCell(_use(name, spec)),
                number_cell(low, ".4g"),
                number_cell(high, ".4g"),
            ]
        )
    return Table("fields", ["field", "type", "read as", "least", "greatest"], rows)


def _use(name: str, spec: EnvironmentSpec) -> str:
    """What a field of the observation is for."""
    if name == spec.text_field:
        if spec.observed_text:
            return "text, for the reward and the network"
        return "text, for the reward; for the network with network.read_text=True"
    if name == spec.count_field:
        return "how often the text was seen, for the reward"
    if name == spec.mask_field:
        return "mask of the actions"
    return "picture" if name in spec.image_fields else "numbers"


def _actions(spec: EnvironmentSpec) -> str:
    if spec.action_size:
        return f"{spec.action_size} real numbers from -1 to 1, spread over the bounds of the environment."
    names = ", ".join(spec.action_names[:_ACTIONS_SHOWN])
    more = ", …" if spec.num_actions > _ACTIONS_SHOWN else ""
    return f"{spec.num_actions} actions: {names}{more}."
