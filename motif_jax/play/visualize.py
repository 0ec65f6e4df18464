"""Shows episodes on the terminal and as films: those that a policy plays now, or recorded ones with
the values of an agent and of a reward.
"""

from __future__ import annotations

import collections
import contextlib
import math
import signal
import termios
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict
from rich.console import Console, Group
from rich.live import Live

from motif_jax.core import config as checks
from motif_jax.core import interruption, run_folder, seeds
from motif_jax.core.errors import UserError, printable
from motif_jax.envs import determinism, registry
from motif_jax.envs.recording import Recording, differences, record_actions
from motif_jax.envs.spec import OBSERVED, EnvironmentSpec
from motif_jax.play import (
    evaluation_files,
    evaluation_setup,
    messages,
    ratings,
    terminal,
    watching,
)
from motif_jax.play.config import RecordedEpisodes, VisualizeConfig
from motif_jax.play.evaluate import recorded, return_key
from motif_jax.play.films import film_files
from motif_jax.play.films.film_files import FilmForms, Films
from motif_jax.play.ratings import RatingReward
from motif_jax.rl.config import agent_reward
from motif_jax.schema import read_section

# Messages that an episode's tables list, as many as the published script prints.
TOP_MESSAGES = 100
# Files of a run folder that are not recordings.
_OTHER_FILES = frozenset({"config.json", "versions.json", film_files.LEDGER})


class _Show(NamedTuple):
    """An episode to show.

    Attributes:
      stem: name of its files.
      origin: where it was recorded, for errors.
      actions: [steps, ...] of a recorded one.
      load: the recording; None where a policy plays it now. Raises UserError where it does not
          replay as written.
    """

    stem: str
    title: str
    task: str
    options: Mapping[str, Any]
    seed: int
    origin: str = ""
    actions: np.ndarray | None = None
    load: Callable[[], Recording] | None = None

    def is_same_episode(self, other: _Show) -> bool:
        """Whether two recorded ones are the same episode."""
        assert self.actions is not None
        assert other.actions is not None
        is_same_start = (self.task, self.seed) == (other.task, other.seed)
        return is_same_start and np.array_equal(self.actions, other.actions)


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree)
    config = read_section(VisualizeConfig, config_tree)
    forms = FilmForms(**vars(config.forms))
    forms.check()
    if not _is_recorded(config):
        setup = evaluation_setup.check(config)
        forms.check_screen(setup.environment, setup.options)
        determinism.require(setup.environment, setup.options, "a recording")
        return
    # What `run` will read is read now: damaged files and misfits end before the folder is made.
    episodes = _RecordedShows(config)
    for show in episodes.shows:
        determinism.require(show.task, show.options, "a film")
        forms.check_screen(show.task, show.options)
    episodes.check()


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    """Shows or records the episodes; returns 75 after a request to stop while nobody watches."""
    config = read_section(VisualizeConfig, config_tree)
    console = Console()
    with run_folder.opened(workdir, config_tree):
        episodes = _RecordedShows(config) if _is_recorded(config) else _PlayedShows(config)
        folder = _FilmFolder(workdir, FilmForms(**vars(config.forms)), console)
        if config.live and terminal.is_terminal():
            _show(episodes, folder, config.seconds_per_step, console)
            return None
        with interruption.Interruption() as stop:
            return _record(episodes, folder, stop)


def _is_recorded(config: VisualizeConfig) -> bool:
    return bool(config.recorded.evaluation or config.recorded.files)


def _record(
    episodes: _PlayedShows | _RecordedShows, folder: _FilmFolder, stop: interruption.Interruption
) -> int | None:
    for show in episodes.shows:
        source = episodes.source(show)
        if folder.has(show, source):
            continue
        if stop.requested:
            return interruption.EXIT_CODE
        recording = None if show.load is None else show.load()
        with contextlib.closing(episodes.screening(show, recording)) as screening:
            _play_on(screening.steps())
            folder.keep(show, screening.film(recording), source)
    return None


def _show(
    episodes: _PlayedShows | _RecordedShows,
    folder: _FilmFolder,
    seconds_per_step: float,
    console: Console,
) -> None:
    for show in episodes.shows:
        recording = None if show.load is None else show.load()
        with contextlib.closing(episodes.screening(show, recording)) as screening:
            viewer = _Viewer(show, screening, seconds_per_step, console)
            viewer.show()
            # A viewer may leave early: without a source `_record` makes the film again.
            source = None
            if recording is not None:
                _play_on(viewer.steps)
                source = episodes.source(show)
            folder.keep(show, screening.film(recording), source)
        if viewer.playback.quit:
            return


def _play_on(steps: Iterator[watching.WatchedStep]) -> None:
    """Plays the rest of an episode, which nobody watches."""
    collections.deque(steps, maxlen=0)


class _FilmFolder:
    """The files of the episodes."""

    def __init__(self, workdir: Path, forms: FilmForms, console: Console) -> None:
        self.films = Films(workdir, workdir, forms)
        self._workdir = workdir
        self._console = console

    def has(self, show: _Show, source: list[Any]) -> bool:
        """Whether the files of an episode are there."""
        has_recording = show.load is not None or self._recording_path(show).exists()
        if not has_recording or not self.films.has(show.stem, source):
            return False
        self._say(f"exists already: {self._workdir / show.stem}.html")
        return True

    def keep(self, show: _Show, film: watching.Film, source: list[Any] | None) -> None:
        """Writes an episode's film, and prints its numbers; of one that was played now also its
        recording and its messages.
        """
        if show.load is None:
            self._write_recording(show, film)
            for table in terminal.message_tables(_tallies(film), show.stem, TOP_MESSAGES):
                self._console.print(table)
        written = self.films.write(show.stem, film, source)
        end = ", ".join(f"{key} {value:g}" for key, value in film.info.items())
        self._say(printable(f"{show.title}, seed {show.seed}: {end}"))
        self._say(f"written: {', '.join(map(str, written))}")

    def _write_recording(self, show: _Show, film: watching.Film) -> None:
        # Playing the actions again makes the recording, and shows that they give the same game.
        recording = record_actions(show.task, show.options, film.seed, film.played)
        differing = differences(recording.info, film.info)
        if differing:
            raise UserError(
                f"{show.task} with seed {film.seed} does not play the same way twice ({'; '.join(differing)}): "
                f"{determinism.REMEDY}"
            )
        recording.save(self._recording_path(show))

    def _recording_path(self, show: _Show) -> Path:
        return self._workdir / f"{show.stem}.json"

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _tallies(film: watching.Film) -> list[messages.MessageTally]:
    width = max(map(len, film.texts))
    # A text stands in the film once for every reward that it had.
    distinct = list(dict.fromkeys(film.texts))
    texts = np.array([list(text.ljust(width, b"\0")) for text in distinct], np.uint8)
    index = np.array([distinct.index(text) for text in film.texts])[film.text_index]
    if film.normalised is None or film.intrinsic is None:
        return messages.tally_episode(texts, index)
    return messages.tally_episode(texts, index, film.normalised[film.text_index], film.intrinsic)


class _Viewer:
    """Shows one episode on the terminal.

    Attributes:
      steps: those that were not shown yet.
    """

    def __init__(
        self,
        show: _Show,
        screening: watching.Screening,
        seconds_per_step: float,
        console: Console,
    ) -> None:
        self._console = console
        self._title = f"{show.title}, seed {show.seed}"
        self._label = screening.spec.action_label
        self._totals = terminal.RewardTotals()
        self.steps = self._counted(screening)
        speed = 1 / seconds_per_step if seconds_per_step else math.inf
        self.playback = terminal.Playback(speed)

    def _counted(self, screening: watching.Screening) -> Iterator[watching.WatchedStep]:
        for watched in screening.steps():
            self._totals.task += watched.task_reward
            self._totals.intrinsic += watched.intrinsic
            yield watched

    def show(self) -> None:
        """Shows the episode, by the keys of `terminal.HELP`, until it ends or the viewer leaves."""
        with interruption.Interruption(quiet=True) as stop:
            try:
                with (
                    terminal.single_keys() as key_of,
                    Live(console=self._console, screen=True, auto_refresh=False) as live,
                ):
                    self._draw(key_of, live, stop)
            except (EOFError, OSError, termios.error):
                if terminal.is_terminal() and not stop.requested:
                    raise
                # It was closed, which counts as the signal of that.
                stop.requested = True
                stop.signal_name = signal.SIGHUP.name
            if stop.requested:
                stop.leave()

    def _draw(self, key_of: terminal.KeyOf, live: Live, stop: interruption.Interruption) -> None:
        def draw(watched: watching.WatchedStep) -> None:
            live.update(self._view(watched, live.console.size.height), refresh=True)

        self.playback.show(self.steps, draw, key_of, stop)

    def _view(self, watched: watching.WatchedStep, height: int) -> Group:
        speed = self.playback.speed
        state = f"{speed:g} steps/s" if speed < math.inf else "full speed"
        if self.playback.paused:
            state = "paused"
        return terminal.view(
            watched, self._totals, self._label, self._title, state, terminal.HELP, height
        )


class _PlayedShows:
    """Episodes that the config's policy plays now."""

    def __init__(self, config: VisualizeConfig) -> None:
        self._setup = evaluation_setup.open_setup(config)
        self._rater = self._setup.live_rater()
        self._greedy = bool(config.greedy)
        self.shows = [
            _Show(
                stem=f"episode-{index:05d}",
                title=f"episode {index}: {self._setup.plan['policy']} on {self._setup.environment}",
                task=self._setup.environment,
                options=self._setup.options,
                seed=seeds.derive(config.seed, "evaluate", index),
            )
            for index in range(config.episodes)
        ]

    def source(self, show: _Show) -> list[Any]:
        """What decides the film of an episode, JSON-able."""
        return [self._setup.plan, self._setup.digests, show.seed, self._greedy]

    def screening(self, show: _Show, recording: Recording | None) -> watching.Screening:
        """The episode, played by the policy; it has no recording."""
        policy = self._setup.policy
        return watching.Screening(
            show.task,
            show.options,
            show.seed,
            show.title,
            lambda spec: watching.policy_actions(policy, show.seed, spec, self._greedy),
            lambda spec: self._rater,
        )


class _RecordedShows:
    """Recorded episodes, with the values of an agent and of a reward."""

    def __init__(self, config: VisualizeConfig) -> None:
        chosen = config.recorded
        evaluation = chosen.evaluation
        plan = evaluation_files.read_evaluation(evaluation)["plan"] if evaluation else {}
        self.shows = _recorded_shows(chosen, plan)
        folder, checkpoint = agent_of(chosen, plan)
        self._folder = folder
        self._policy = None
        self._trained_on: EnvironmentSpec | None = None
        # Options of the training that decide what the agent reads.
        self._observed: dict[str, Any] = {}
        step = None
        rounded = None
        if folder:
            from motif_jax.play import agent_policy

            self._policy, step = agent_policy.load(folder, checkpoint)
            trained = agent_policy.read_config(folder)
            rounded = agent_policy.rounded_threshold(trained.compat)
            name, options = agent_policy.environment_of(trained)
            self._trained_on = registry.spec(name, **options)
            self._observed = {key: options[key] for key in OBSERVED if key in options}
        owner = f"the evaluation in {evaluation}" if evaluation else "a recording"
        section = plan.get("reward")
        evaluation_reward = None
        if section:
            # Plans without the key leave the rounding to the agent's config.
            two_decimals = section.get("two_decimals", rounded)
            evaluation_reward = RatingReward(agent_reward(section), two_decimals)
        self._reward = ratings.choose_reward(config.reward, evaluation_reward, owner, rounded)
        self._rater_of = None if self._reward is None else ratings.LiveRaters(self._reward).of

        reward_plan = None if self._reward is None else self._reward.plan()
        digests = evaluation_setup.digests_of(folder, step, self._reward)
        self._source = [folder, step, reward_plan, digests]

    def check(self) -> None:
        """Raises UserError where the reward cannot be loaded, or the agent cannot read an episode
        or has other actions.
        """
        if self._reward is not None:
            from motif_jax.rl import intrinsic

            intrinsic.check(self._reward.section)
        if self._trained_on is None:
            return
        for show in self.shows:
            spec = registry.spec(show.task, **{**show.options, **self._observed})
            allowed = f"an agent that can play {show.task} of {show.origin}, or empty: it was trained with other fields or actions"
            fits = spec.fits(self._trained_on)
            checks.require(fits, "recorded.agent.dir", self._folder, allowed)

    def source(self, show: _Show) -> list[Any]:
        """What decides the film of an episode, JSON-able."""
        assert show.actions is not None
        return [show.title, show.task, show.seed, show.actions.tolist(), self._source]

    def screening(self, show: _Show, recording: Recording | None) -> watching.Screening:
        """The episode of the recording, with the values."""
        assert recording is not None
        fields: tuple[str, ...] = ()
        if self._reward is not None:
            from motif_jax.rl import settings

            section = self._reward.section
            options = settings.fields_option(recording.task, recording.options, section)
            fields = tuple(options.get("fields", ()))
        return watching.screening_of(
            recording, show.title, self._policy, self._rater_of, fields, self._observed
        )


def agent_of(chosen: RecordedEpisodes, plan: dict[str, Any]) -> tuple[str | None, str]:
    """(folder, checkpoint) of the agent whose values are shown; the folder is None or '' for
    none.
    """
    checkpoint = chosen.agent.checkpoint
    # '' goes without an agent; None takes the one that the evaluation played.
    if chosen.agent.dir is not None or plan.get("checkpoint") is None:
        return chosen.agent.dir, checkpoint or "latest"
    if not Path(plan["policy"]).is_dir():
        raise UserError(
            f"config.recorded.agent.dir=None: the agent of {chosen.evaluation} was in {plan['policy']}, which does not exist: give "
            "--config.recorded.agent.dir=DIR, or --config.recorded.agent.dir= to go without"
        )
    return plan["policy"], checkpoint or str(plan["checkpoint"])


def _recorded_shows(chosen: RecordedEpisodes, plan: dict[str, Any]) -> list[_Show]:
    """The episodes that the config names, each once; UserError if two of them would get the same
    file names.
    """
    shows = [_show_of_recording(path) for path in _recording_paths(chosen)]
    if chosen.evaluation:
        rows = chosen_rows(chosen.evaluation, chosen.episodes)
        shows += [_show_of_row(chosen.evaluation, plan, row) for row in rows]
    by_stem: dict[str, _Show] = {}
    # A recording and a row of the evaluation may be the same episode, which is shown once.
    for show in shows:
        first = by_stem.setdefault(show.stem, show)
        if not first.is_same_episode(show):
            raise UserError(
                f"config.recorded.files: {first.origin} and {show.origin} are two episodes that would both become "
                f"{show.stem}: give each a --workdir of its own"
            )
    return list(by_stem.values())


def _recording_paths(chosen: RecordedEpisodes) -> list[Path]:
    paths: list[Path] = []
    for part in checks.listed(chosen.files):
        path = Path(part)
        recordings = sorted(file for file in path.glob("*.json") if file.name not in _OTHER_FILES)
        has_recordings = bool(recordings) or path.is_file()
        allowed = "recordings, or folders with recordings (*.json)"
        checks.require(has_recordings, "recorded.files", part, allowed)
        paths += recordings or [path]
    return paths


def _show_of_recording(path: Path) -> _Show:
    recording = Recording.load(path)
    return _Show(
        stem=path.stem,
        title=f"{path.stem} of {recording.task}",
        task=recording.task,
        options=recording.options,
        seed=recording.seed,
        actions=recording.actions,
        origin=str(path),
        load=lambda: recording,
    )


def _show_of_row(evaluation: str, plan: dict[str, Any], row: dict[str, Any]) -> _Show:
    index = row["index"]
    return _Show(
        stem=f"episode-{index:05d}",
        title=f"Episode {index} of {plan['policy']}",
        task=plan["environment"],
        options=plan["options"],
        seed=row["seed"],
        actions=evaluation_files.decode_actions(row["actions"]),
        origin=f"episode {index} of {evaluation}",
        # Only when it is shown: this plays the game to record it.
        load=lambda: recorded(plan, row, evaluation),
    )


def chosen_rows(evaluation: str, episodes: str) -> list[dict[str, Any]]:
    """The rows of the episodes of an evaluation that `RecordedEpisodes.episodes` names."""
    rows = evaluation_files.read_evaluation(evaluation)["rows"]
    allowed = "an evaluation of games by evaluate; those of texts are read on their own page"
    checks.require(
        all("actions" in row for row in rows), "recorded.evaluation", evaluation, allowed
    )
    by_index = {row["index"]: row for row in rows}
    key = return_key(rows)
    # A return that is no number, as after an infinite reward, is neither.
    ranked = sorted((row for row in rows if row[key] is not None), key=lambda row: row[key])
    by_word = {"all": sorted(by_index)}
    if ranked:
        by_word |= {"best": [ranked[-1]["index"]], "worst": [ranked[0]["index"]]}
    chosen: list[int] = []
    for part in (part.strip() for part in episodes.split(",")):
        is_valid = part in by_word or (checks.is_natural(part) and int(part) in by_index)
        allowed = f"best, worst, all, or an index from 0 to {max(by_index)}"
        checks.require(is_valid, "recorded.episodes", part, allowed)
        chosen += by_word[part] if part in by_word else [int(part)]
    return [by_index[index] for index in dict.fromkeys(chosen)]
