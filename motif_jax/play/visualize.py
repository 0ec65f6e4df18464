"""Plays episodes on the terminal, or records them without one."""

from __future__ import annotations

import math
import signal
import termios
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict
from rich.console import Console, Group
from rich.live import Live

from motif_jax.core import interruption, run_folder, seeds
from motif_jax.core.errors import UserError, printable
from motif_jax.envs import determinism, registry
from motif_jax.envs.episode import EpisodePlayer
from motif_jax.envs.recording import differences, record_actions
from motif_jax.play import (
    drawn_fields,
    evaluation_setup,
    keyboard,
    messages,
    playback,
    terminal,
    watching,
)
from motif_jax.play.config import VisualizeConfig
from motif_jax.play.films.film_files import FilmForms, Films
from motif_jax.schema import read_section

# Messages that an episode's tables list, as many as the published script prints.
TOP_MESSAGES = 100


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree)
    config = read_section(VisualizeConfig, config_tree)
    forms = FilmForms(**vars(config.forms))
    forms.check()
    setup = evaluation_setup.check(config)
    forms.check_screen(setup.environment, setup.options)
    determinism.require(setup.environment, setup.options, "a recording")


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    """Plays `config.episodes` episodes; returns 75 after a request to stop while nobody watches."""
    config = read_section(VisualizeConfig, config_tree)
    console = Console()
    with run_folder.opened(workdir, config_tree):
        episodes = _Episodes(config, workdir, console)
        if config.live and keyboard.is_terminal():
            episodes.show()
            return None
        with interruption.Interruption() as stop:
            return episodes.record(stop)


class _Episodes:
    """The episodes of the config, each shown or recorded, and their files."""

    def __init__(self, config: VisualizeConfig, workdir: Path, console: Console) -> None:
        self._config = config
        self._workdir = workdir
        self._console = console
        self._films = Films(workdir, workdir, FilmForms(**vars(config.forms)))
        self._setup = evaluation_setup.open_setup(config)
        self._rater = self._setup.live_rater()

    def show(self) -> None:
        for index in range(self._config.episodes):
            player = self._player(index)
            # Without a source: a viewer may leave early, and `record` then makes the film again.
            self._keep(index, player.title, player.show(self._console))
            if player.playback.quit:
                return

    def record(self, stop: interruption.Interruption) -> int | None:
        for index in range(self._config.episodes):
            path = self._workdir / f"{_stem(index)}.json"
            source = [
                self._setup.plan,
                self._setup.digests,
                self._seed(index),
                bool(self._config.greedy),
            ]
            if path.exists() and self._films.has(_stem(index), source):
                self._say(f"exists already: {path}")
                continue
            if stop.requested:
                return interruption.EXIT_CODE
            player = self._player(index)
            self._keep(index, player.title, player.play(), source)
        self._films.check_movies()
        return None

    def _seed(self, index: int) -> int:
        return seeds.derive(self._config.seed, "evaluate", index)

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _player(self, index: int) -> _Player:
        title = f"episode {index}: {self._setup.plan['policy']} on {self._setup.environment}"
        return _Player(self._config, self._setup, self._rater, self._seed(index), title)

    def _keep(self, index: int, title: str, film: watching.Film, source: object = None) -> None:
        """Writes an episode's recording and film, and prints its messages and numbers."""
        setup = self._setup
        # Playing the actions again makes the recording, and shows that they give the same game.
        recording = record_actions(setup.environment, setup.options, film.seed, film.played)
        differing = differences(recording.info, film.info)
        if differing:
            raise UserError(
                f"{setup.environment} with seed {film.seed} does not play the same way twice ({'; '.join(differing)}): "
                f"{determinism.REMEDY}"
            )
        recording.save(self._workdir / f"{_stem(index)}.json")
        written = self._films.write(_stem(index), film, source)
        for table in terminal.message_tables(_tallies(film), f"episode {index}", TOP_MESSAGES):
            self._console.print(table)
        end = ", ".join(f"{key} {value:g}" for key, value in film.info.items())
        self._say(printable(f"{title}: {end}"))
        self._say(f"written: {', '.join(map(str, written))}")


def _stem(index: int) -> str:
    return f"episode-{index:05d}"


def _tallies(film: watching.Film) -> list[messages.MessageTally]:
    width = max(map(len, film.texts))
    # A text stands in the film once for every reward that it had.
    distinct = list(dict.fromkeys(film.texts))
    texts = np.array([list(text.ljust(width, b"\0")) for text in distinct], np.uint8)
    index = np.array([distinct.index(text) for text in film.texts])[film.text_index]
    if film.normalised is None or film.intrinsic is None:
        return messages.tally_episode(texts, index)
    return messages.tally_episode(texts, index, film.normalised[film.text_index], film.intrinsic)


class _Player:
    """Plays one episode, on the terminal or without one, and films it."""

    def __init__(
        self,
        config: VisualizeConfig,
        setup: evaluation_setup.EvalSetup,
        rater: object,
        seed: int,
        title: str,
    ) -> None:
        options = drawn_fields.with_screen(setup.environment, setup.options)
        environment = registry.make(setup.environment, **options)
        self._player = EpisodePlayer(environment, keep_texts=False)
        spec = environment.spec
        self._label = spec.action_label
        chooser = watching.policy_actions(setup.policy, seed, spec, config.greedy)
        self._steps = watching.watch(self._player, seed, chooser, rater)
        self._maker = watching.FilmMaker(setup.environment, setup.options, spec, title)
        self.title = f"{title}, seed {seed}"
        self._totals = terminal.RewardTotals()
        speed = 1 / config.seconds_per_step if config.seconds_per_step else math.inf
        self.playback = playback.Playback(speed)

    def _next(self) -> Iterator[watching.WatchedStep]:
        for watched in self._steps:
            self._maker.add(watched)
            self._totals.task += watched.task_reward
            self._totals.intrinsic += watched.intrinsic
            yield watched

    def _finish(self) -> watching.Film:
        film = self._maker.film(self._player.episode())
        self._player.close()
        return film

    def play(self) -> watching.Film:
        """Plays the episode without showing it."""
        for _ in self._next():
            pass
        return self._finish()

    def show(self, console: Console) -> watching.Film:
        """Plays the episode on the terminal, by the keys of `playback.HELP`."""
        with interruption.Interruption(quiet=True) as stop:
            try:
                with (
                    keyboard.single_keys() as key_of,
                    Live(console=console, screen=True, auto_refresh=False) as live,
                ):
                    self._show(key_of, live, stop)
            except (EOFError, OSError, termios.error):
                if keyboard.is_terminal() and not stop.requested:
                    raise
                # It was closed, which counts as the signal of that.
                stop.requested = True
                stop.signal_name = signal.SIGHUP.name
            if stop.requested:
                self._player.close()
                stop.leave()
        return self._finish()

    def _show(self, key_of: playback.KeyOf, live: Live, stop: interruption.Interruption) -> None:
        def draw(watched: watching.WatchedStep) -> None:
            live.update(self._view(watched, live.console.size.height), refresh=True)

        self.playback.show(self._next(), draw, key_of, stop)

    def _view(self, watched: watching.WatchedStep, height: int) -> Group:
        speed = self.playback.speed
        state = f"{speed:g} steps/s" if speed < math.inf else "full speed"
        if self.playback.paused:
            state = "paused"
        return terminal.view(
            watched, self._totals, self._label, self.title, state, playback.HELP, height
        )
