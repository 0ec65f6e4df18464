"""Replays recorded episodes with a reward's and an agent's values, and writes players and
movies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import interruption, run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.progress import Progress
from motif_jax.envs import determinism, registry
from motif_jax.envs.recording import Recording
from motif_jax.envs.spec import OBSERVED, EnvironmentSpec
from motif_jax.play import evaluation_files, evaluation_setup, ratings, watching
from motif_jax.play.config import ReplayConfig
from motif_jax.play.evaluate import recorded, return_key
from motif_jax.play.films import film_files
from motif_jax.play.films.film_files import FilmForms, Films
from motif_jax.play.keys import EPISODES
from motif_jax.play.ratings import RatingReward
from motif_jax.rl.config import agent_reward
from motif_jax.schema import read_section

# Files of a run folder that are not recordings.
_OTHER_FILES = frozenset({"config.json", "versions.json", film_files.LEDGER})


class _Game(NamedTuple):
    """An episode to play again, from `origin`; `load` raises UserError where it does not replay as
    written.
    """

    stem: str
    title: str
    task: str
    options: Mapping[str, Any]
    seed: int
    actions: np.ndarray
    origin: str
    load: Callable[[], Recording]

    def is_same_episode(self, other: _Game) -> bool:
        is_same_start = (self.task, self.seed) == (other.task, other.seed)
        return is_same_start and self.actions.tolist() == other.actions.tolist()


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree)
    config = read_section(ReplayConfig, config_tree)
    forms = FilmForms(**vars(config.forms))
    forms.check()
    has_episodes = bool(config.evaluation) or bool(config.recordings)
    checks.require_key(config, "evaluation", has_episodes, "given, or recordings")
    for key in ("evaluation", "agent.dir"):
        if checks.dotted(config, key):
            checks.existing_folder(config, key)
    if config.agent.checkpoint is not None:
        evaluation_setup.check_checkpoint(config.agent.checkpoint)
    is_read = bool(config.evaluation) or config.episodes == EPISODES
    allowed = (
        f"left at {EPISODES}: it chooses among the episodes of config.evaluation, and there is none"
    )
    checks.require_key(config, "episodes", is_read, allowed)
    # What `run` will read is read now: damaged files and misfits end before the folder is made.
    plan = _plan(config)
    games = _games(config, plan)
    for game in games:
        determinism.require(game.task, game.options, "replay")
        forms.check_screen(game.task, game.options)
    overlay = _Overlay(config, plan)
    for game in games:
        overlay.check_game(game)
    if overlay.reward is not None:
        from motif_jax.rl import intrinsic

        intrinsic.check(overlay.reward.section)


def _plan(config: ReplayConfig) -> dict[str, Any]:
    return evaluation_files.read_evaluation(config.evaluation)["plan"] if config.evaluation else {}


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    config = read_section(ReplayConfig, config_tree)
    with interruption.Interruption() as stop, run_folder.opened(workdir, config_tree):
        plan = _plan(config)
        games = _games(config, plan)
        overlay = _Overlay(config, plan)
        films = Films(workdir, workdir, FilmForms(**vars(config.forms)))
        with Progress(len(games), "episodes", "replay") as progress:
            for done, game in enumerate(games, start=1):
                source = [game.title, game.task, game.seed, game.actions.tolist(), overlay.source]
                if not films.has(game.stem, source):
                    if stop.requested:
                        return interruption.EXIT_CODE
                    for path in films.write(game.stem, overlay.film(game), source):
                        progress.log(f"written: {path}")
                progress.update(done)
        films.check_movies()
    return None


class _Overlay:
    """An agent's and a reward's values of the episodes; `source` names both, JSON-able."""

    def __init__(self, config: ReplayConfig, plan: dict[str, Any]) -> None:
        folder, checkpoint = agent_of(config, plan)
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
        owner = f"the evaluation in {config.evaluation}" if config.evaluation else "a recording"
        section = plan.get("reward")
        evaluation_reward = None
        if section:
            # Plans without the key leave the rounding to the agent's config.
            two_decimals = section.get("two_decimals", rounded)
            evaluation_reward = RatingReward(agent_reward(section), two_decimals)
        self.reward = ratings.choose_reward(config.reward, evaluation_reward, owner, rounded)
        self._rater_of = None if self.reward is None else ratings.LiveRaters(self.reward).of

        reward_plan = None if self.reward is None else self.reward.plan()
        digests = evaluation_setup.digests_of(folder, step, self.reward)
        self.source = [folder, step, reward_plan, digests]

    def film(self, game: _Game) -> watching.Film:
        """The film of a game. Raises UserError: the episode does not replay as recorded."""
        recording = game.load()
        fields: Sequence[str] = ()
        if self.reward is not None:
            from motif_jax.rl import settings

            options = settings.fields_option(recording.task, recording.options, self.reward.section)
            fields = options.get("fields", ())
        return watching.film_recording(
            recording, game.title, self._policy, self._rater_of, fields, self._observed
        )

    def check_game(self, game: _Game) -> None:
        """Raises UserError where the agent cannot read the game or has other actions."""
        if self._trained_on is None:
            return
        shown = registry.spec(game.task, **{**game.options, **self._observed})
        allowed = f"an agent that can play {game.task} of {game.origin}, or empty: it was trained with other fields or actions"
        checks.require(shown.fits(self._trained_on), "agent.dir", self._folder, allowed)


def agent_of(config: ReplayConfig, plan: dict[str, Any]) -> tuple[str | None, str]:
    """(folder, checkpoint) of the agent whose values are shown; the folder is None or '' for
    none.
    """
    checkpoint = config.agent.checkpoint
    # '' goes without an agent; None takes the one that the evaluation played.
    if config.agent.dir is not None or plan.get("checkpoint") is None:
        allowed = "None without an agent, whose checkpoint it is: give config.agent.dir"
        checks.require_key(
            config, "agent.checkpoint", bool(config.agent.dir) or checkpoint is None, allowed
        )
        return config.agent.dir, checkpoint or "latest"
    if not Path(plan["policy"]).is_dir():
        raise UserError(
            f"config.agent.dir=None: the agent of {config.evaluation} was in {plan['policy']}, which does not exist: give "
            "--config.agent.dir=DIR, or --config.agent.dir= to go without"
        )
    return plan["policy"], checkpoint or str(plan["checkpoint"])


def _games(config: ReplayConfig, plan: dict[str, Any]) -> list[_Game]:
    """The episodes that the config names, each once; UserError if two of them would get the same
    file names.
    """
    games = [_game_of_recording(path) for path in _recording_paths(config)]
    if config.evaluation:
        rows = chosen_rows(config.evaluation, config.episodes)
        games += [_game_of_row(config.evaluation, plan, row) for row in rows]
    by_stem: dict[str, _Game] = {}
    # A recording and a row of the evaluation may be the same episode, which is shown once.
    for game in games:
        first = by_stem.setdefault(game.stem, game)
        if not first.is_same_episode(game):
            raise UserError(
                f"config.recordings: {first.origin} and {game.origin} are two episodes that would both become "
                f"{game.stem}: give each a --workdir of its own"
            )
    return list(by_stem.values())


def _recording_paths(config: ReplayConfig) -> list[Path]:
    paths: list[Path] = []
    for part in checks.listed(config.recordings):
        path = Path(part)
        checks.require(path.exists(), "recordings", part, "files or folders that exist")
        recordings = sorted(file for file in path.glob("*.json") if file.name not in _OTHER_FILES)
        has_recordings = bool(recordings) or path.is_file()
        checks.require(has_recordings, "recordings", part, "folders with recordings (*.json)")
        paths += recordings or [path]
    return paths


def _game_of_recording(path: Path) -> _Game:
    recording = Recording.load(path)
    return _Game(
        stem=path.stem,
        title=f"{path.stem} of {recording.task}",
        task=recording.task,
        options=recording.options,
        seed=recording.seed,
        actions=recording.actions,
        origin=str(path),
        load=lambda: recording,
    )


def _game_of_row(evaluation: str, plan: dict[str, Any], row: dict[str, Any]) -> _Game:
    index = row["index"]
    return _Game(
        stem=f"episode-{index:05d}",
        title=f"Episode {index} of {plan['policy']}",
        task=plan["environment"],
        options=plan["options"],
        seed=row["seed"],
        actions=evaluation_files.decode_actions(row["actions"]),
        origin=f"episode {index} of {evaluation}",
        # Only when it is filmed: this plays the game to record it.
        load=lambda: recorded(plan, row, evaluation),
    )


def chosen_rows(evaluation: str, episodes: str) -> list[dict[str, Any]]:
    rows = evaluation_files.read_evaluation(evaluation)["rows"]
    allowed = "an evaluation of games by evaluate; those of texts are read on their own page"
    checks.require(all("actions" in row for row in rows), "evaluation", evaluation, allowed)
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
        checks.require(
            is_valid, "episodes", part, f"best, worst, all, or an index from 0 to {max(by_index)}"
        )
        chosen += by_word[part] if part in by_word else [int(part)]
    return [by_index[index] for index in dict.fromkeys(chosen)]
