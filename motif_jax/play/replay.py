"""Replays recorded episodes with a reward's and an agent's values, and writes players and movies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import interruption, run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.progress import Progress
from motif_jax.core.sections import Scoring
from motif_jax.envs.replay import Recording
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.play import evaluation_files, evaluation_setup, ratings, watching
from motif_jax.play.evaluate import recorded, return_key
from motif_jax.play.ratings import RatingReward
from motif_jax.reports import film_files
from motif_jax.reports.film_files import FilmForms, Films
from motif_jax.rl.config import agent_reward

# What a run folder holds besides recordings.
_OTHER_FILES = frozenset({"config.json", "versions.json", film_files.LEDGER})


class _Game(NamedTuple):
    """An episode to play again, found at `origin`; `load` raises UserError where it does not replay as written."""

    stem: str
    title: str
    task: str
    options: Mapping[str, Any]
    seed: int
    actions: np.ndarray
    origin: str
    load: Callable[[], Recording]

    def same(self, other: _Game) -> bool:
        mine, its = ((each.task, each.seed, each.actions.tolist()) for each in (self, other))
        return mine == its


def check(config: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config)
    forms = FilmForms(**config.forms)
    forms.check()
    given = bool(config.evaluation) or bool(config.recordings)
    checks.require_key(config, "evaluation", given, "given, or recordings")
    for key in ("evaluation", "agent.dir"):
        if checks.dotted(config, key):
            checks.existing_folder(config, key)
    evaluation_setup.check_checkpoint(config.agent.checkpoint)
    if config.reward.dir:
        from motif_jax.motif.reward.reward_function import check_place

        check_place(config.reward.dir, "reward.dir")
    plan = _plan(config)
    for game in _games(config, plan):
        forms.check_screen(game.task, game.options)
    overlay = _Overlay(config, plan)
    if overlay.reward is not None:
        from motif_jax import rewards

        rewards.check(overlay.reward.section)


def _plan(config: ConfigDict) -> dict[str, Any]:
    return evaluation_files.read_evaluation(config.evaluation)["plan"] if config.evaluation else {}


def run(config: ConfigDict, workdir: Path) -> int | None:
    with interruption.Interruption() as stop, run_folder.opened(workdir, config):
        plan = _plan(config)
        games, overlay = _games(config, plan), _Overlay(config, plan)
        made = Films(workdir, workdir, FilmForms(**config.forms))
        with Progress(len(games), "episodes", "replay") as progress:
            for done, game in enumerate(games, start=1):
                source = [game.title, game.task, game.seed, game.actions.tolist(), overlay.source]
                if not made.has(game.stem, source):
                    if stop.requested:
                        return interruption.EXIT_CODE
                    for path in made.write(game.stem, overlay.film(game), source):
                        progress.log(f"written: {path}")
                progress.update(done)
        made.check_movies()
    return None


class _Overlay:
    """An agent's and a reward's values of the episodes; `source` names both, JSON-able."""

    def __init__(self, config: ConfigDict, plan: dict[str, Any]) -> None:
        folder, checkpoint = _agent(config, plan)
        self._policy, step, rounded = None, None, None
        if folder:
            from motif_jax.play import agent_policy

            self._policy, step = agent_policy.load(folder, checkpoint)
            rounded = agent_policy.rounded_threshold(agent_policy.read_config(folder).compat)
        owner = f"the evaluation in {config.evaluation}" if config.evaluation else "a recording"
        asked = Scoring(**config.reward)
        own = None
        if rated := plan.get("reward"):
            own = RatingReward(agent_reward(rated), rated.get("two_decimals", rounded))
        self.reward = ratings.choose_reward(asked, own, owner, rounded)
        self._rater: ratings.LiveRater | None = None
        about = None if self.reward is None else self.reward.plan()
        self.source = [folder, step, about, evaluation_setup.digests_of(folder, step, self.reward)]

    def film(self, game: _Game) -> watching.Film:
        recording, fields = game.load(), ()
        if self.reward is not None:
            from motif_jax.rl import settings

            shown = settings.fields_option(recording.task, recording.options, self.reward.section)
            fields = shown.get("fields", ())
        return watching.film_recording(recording, game.title, self._policy, self._rater_of, fields)

    def _rater_of(self, spec: EnvironmentSpec) -> ratings.LiveRater | None:
        if self._rater is None and self.reward is not None:
            self._rater = ratings.LiveRater(self.reward, spec)
        return self._rater


def _agent(config: ConfigDict, plan: dict[str, Any]) -> tuple[str | None, str]:
    if config.agent.dir is not None or plan.get("checkpoint") is None:
        return config.agent.dir, config.agent.checkpoint
    if not Path(plan["policy"]).is_dir():
        raise UserError(
            f"config.agent.dir=None: the agent of {config.evaluation} was in {plan['policy']}, which does not exist: give "
            "--config.agent.dir=DIR, or --config.agent.dir= to go without"
        )
    return plan["policy"], str(plan["checkpoint"])


def _games(config: ConfigDict, plan: dict[str, Any]) -> list[_Game]:
    """The episodes that the config names, each once; UserError if two of them would get the same file names."""
    found: dict[str, _Game] = {}
    rows = _chosen_rows(config) if config.evaluation else []
    for game in (*map(_recorded, _recording_paths(config)), *(_written(config, plan, row) for row in rows)):
        there = found.setdefault(game.stem, game)
        if not there.same(game):
            raise UserError(
                f"config.recordings: {there.origin} and {game.origin} are two episodes that would both become "
                f"{game.stem}: give each a --workdir of its own"
            )
    return list(found.values())


def _recording_paths(config: ConfigDict) -> list[Path]:
    paths: list[Path] = []
    for part in checks.listed(config.recordings):
        path = Path(part)
        checks.require(path.exists(), "recordings", part, "files or folders that exist")
        inside = sorted(p for p in path.glob("*.json") if p.name not in _OTHER_FILES)
        checks.require(bool(inside) or path.is_file(), "recordings", part, "folders with recordings (*.json)")
        paths += inside or [path]
    return paths


def _recorded(path: Path) -> _Game:
    recording = Recording.load(path)
    title = f"{path.stem} of {recording.task}"
    place = (recording.task, recording.options, recording.seed, recording.actions, str(path))
    return _Game(path.stem, title, *place, lambda: recording)


def _written(config: ConfigDict, plan: dict[str, Any], row: dict[str, Any]) -> _Game:
    actions, index = evaluation_files.decode_actions(row["actions"]), row["index"]
    title, origin = f"Episode {index} of {plan['policy']}", f"episode {index} of {config.evaluation}"
    place = (plan["environment"], plan["options"], row["seed"], actions, origin)
    return _Game(f"episode-{index:05d}", title, *place, lambda: recorded(plan, row, config.evaluation))


def _chosen_rows(config: ConfigDict) -> list[dict[str, Any]]:
    rows = evaluation_files.read_evaluation(config.evaluation)["rows"]
    by_index = {row["index"]: row for row in rows}
    key = return_key(rows)
    named = {
        "best": [max(rows, key=lambda row: row[key])["index"]],
        "worst": [min(rows, key=lambda row: row[key])["index"]],
        "all": sorted(by_index),
    }
    chosen: list[int] = []
    for part in (part.strip() for part in str(config.episodes).split(",")):
        good = part in named or (checks.is_natural(part) and int(part) in by_index)
        checks.require(good, "episodes", part, f"best, worst, all, or an index from 0 to {max(by_index)}")
        chosen += named[part] if part in named else [int(part)]
    return [by_index[index] for index in dict.fromkeys(chosen)]
