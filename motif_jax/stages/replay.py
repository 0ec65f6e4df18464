"""Plays recorded episodes again, with a reward and an agent's opinion laid over them, and writes players and movies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.envs.replay import Recording
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.reports import films, journal
from motif_jax.runtime import watch
from motif_jax.runtime.episode_rewards import TextRater
from motif_jax.runtime.rerecord import record_actions
from motif_jax.support import config as checks
from motif_jax.support import run_folder
from motif_jax.support.errors import UserError
from motif_jax.support.files import FolderLock
from motif_jax.support.progress import Progress


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for values that cannot work, before anything is played."""
    films.check(config)
    given = bool(config.evaluation) or bool(config.recordings)
    checks.require(given, "evaluation", config.evaluation, "given, or recordings")
    for key in ("evaluation", "agent.dir", "reward.dir"):
        if checks.dotted(config, key):
            checks.existing_folder(config, key)
    for path in _recording_paths(config):
        checks.require(path.exists(), "recordings", str(path), "files or folders that exist")
        Recording.load(path)
    plan = _plan(config)
    if config.evaluation:
        _chosen_rows(config)
    _policy(config, plan)
    reward = _reward(config, plan)
    if reward is not None:
        from motif_jax import rewards

        rewards.check(reward)


def _plan(config: ConfigDict) -> dict[str, Any]:
    return journal.read_evaluation(config.evaluation)["plan"] if config.evaluation else {}


def run(config: ConfigDict, workdir: Path) -> None:
    """Writes every form that `config.forms` asks for of every episode."""
    with FolderLock(workdir):
        run_folder.prepare(workdir, config)
        plan = _plan(config)
        policy, reward = _policy(config, plan), _reward(config, plan)
        rater_of = None if reward is None else _Overlay(reward)
        total = len(_recording_paths(config)) + (len(_chosen_rows(config)) if config.evaluation else 0)
        with Progress(total, "episodes", "replay") as progress:
            for done, (stem, title, recording) in enumerate(_recordings(config, plan), start=1):
                film = watch.film_recording(recording, title, policy, rater_of)
                for path in films.write(workdir, stem, film, config.forms):
                    progress.log(f"written: {path}")
                progress.update(done)


class _Overlay:
    """The reward that is laid over all episodes, loaded once."""

    def __init__(self, config: ConfigDict) -> None:
        self._config = config
        self._rater: TextRater | None = None

    def __call__(self, spec: EnvironmentSpec) -> TextRater:
        if self._rater is None:
            self._rater = TextRater(self._config, spec)
        return self._rater


def _recording_paths(config: ConfigDict) -> list[Path]:
    paths: list[Path] = []
    for part in filter(None, (part.strip() for part in config.recordings.split(","))):
        path = Path(part)
        paths += sorted(path.glob("*.json")) if path.is_dir() else [path]
    return paths


def _chosen_rows(config: ConfigDict) -> list[dict[str, Any]]:
    """The rows of the evaluation that `config.episodes` names."""
    rows = journal.read_evaluation(config.evaluation)["rows"]
    by_index = {row["index"]: row for row in rows}
    key = "intrinsic_return" if all(row.get("intrinsic_return") is not None for row in rows) else "return"
    named = {
        "best": [max(rows, key=lambda row: row[key])["index"]],
        "worst": [min(rows, key=lambda row: row[key])["index"]],
        "all": sorted(by_index),
    }
    chosen: list[int] = []
    for part in (part.strip() for part in str(config.episodes).split(",")):
        good = part in named or (part.isdigit() and int(part) in by_index)
        checks.require(good, "episodes", part, f"best, worst, all, or an index from 0 to {max(by_index)}")
        chosen += named[part] if part in named else [int(part)]
    return [by_index[index] for index in dict.fromkeys(chosen)]


def _recordings(config: ConfigDict, plan: dict[str, Any]) -> Iterator[tuple[str, str, Recording]]:
    for path in _recording_paths(config):
        recording = Recording.load(path)
        yield path.stem, f"{path.stem} of {recording.task}", recording
    if config.evaluation:
        for row in _chosen_rows(config):
            actions = journal.decode_actions(row["actions"])
            recording = record_actions(plan["environment"], plan["options"], row["seed"], actions)
            if abs(recording.info["return"] - row["return"]) > 1e-6:
                raise UserError(
                    f"episode {row['index']} of {config.evaluation} plays with return {recording.info['return']:g}, "
                    f"written was {row['return']:g}: the engine is another one now"
                )
            yield f"episode-{row['index']:05d}", f"Episode {row['index']} of {plan['policy']}", recording


def _policy(config: ConfigDict, plan: dict[str, Any]) -> Any:
    folder, checkpoint = config.agent.dir, config.agent.checkpoint
    if folder is None and plan.get("checkpoint") is not None and Path(plan["policy"]).is_dir():
        folder, checkpoint = plan["policy"], str(plan["checkpoint"])
    if folder is None:
        return None
    from motif_jax.runtime import agent_policy

    return agent_policy.load(folder, checkpoint)[0]


def _reward(config: ConfigDict, plan: dict[str, Any]) -> ConfigDict | None:
    if config.reward.dir is not None:
        return config.reward
    planned = plan.get("reward")
    return ConfigDict(planned) if planned and Path(planned["dir"]).is_dir() else None
