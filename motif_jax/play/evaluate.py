"""Plays N seeded episodes of a policy and writes a table, JSON and parquet."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import capacity, interruption, metric_files, run_folder, seeds
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json
from motif_jax.display import measures
from motif_jax.envs import determinism
from motif_jax.envs.episode import PlayedEpisode
from motif_jax.envs.recording import Recording, differences, record_actions
from motif_jax.play import evaluation_files, evaluation_setup, evaluation_tables, messages, watching
from motif_jax.play.config import EvaluateConfig
from motif_jax.play.evaluation_files import Journal
from motif_jax.play.films.film_files import FilmForms, Films
from motif_jax.play.journal import play_policy
from motif_jax.rl.actors.episodes import PlaySettings
from motif_jax.schema import read_section

# What a resumed evaluation must share; it may play more episodes, or with other workers.
IDENTITY = (
    "seed",
    "greedy",
    "lanes",
    "bot_agreement",
    "policy",
    "agent",
    "environment",
    "reward",
    "compat",
)
PLAN = "plan.json"
RECORDINGS = "recordings"


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree, IDENTITY)
    config = read_section(EvaluateConfig, config_tree)
    capacity.require_workers("workers", min(config.workers, config.episodes))
    forms = FilmForms(**vars(config.forms))
    forms.check()
    setup = evaluation_setup.check(config, _pinned(workdir))
    determinism.require_forgetful(setup.environment, setup.options)
    if config.show_best or config.record_every:
        forms.check_screen(setup.environment, setup.options)
        use = f"config.record_every={config.record_every}"
        if not config.record_every:
            use = f"config.show_best={config.show_best}"
        determinism.require(setup.environment, setup.options, use)


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    config = read_section(EvaluateConfig, config_tree)
    with interruption.Interruption() as stop, run_folder.opened(workdir, config_tree, IDENTITY):
        # Before the journal: its rows are of the agent and reward that `_Evaluation` requires to be
        # those of its plan.
        evaluation = _Evaluation(config, workdir)
        with Journal(workdir) as journal:
            rows = evaluation.play(journal, stop)
        if len(rows) < config.episodes:
            return interruption.EXIT_CODE
        # Before the films, which can fail and take long.
        _write(config, workdir, evaluation.plan, evaluation.reward, rows)
        if config.show_best or config.record_every:
            return evaluation.film(rows, stop)
        return None


def _write(
    config: EvaluateConfig,
    workdir: Path,
    plan: Mapping[str, Any],
    reward: str,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    # As read_evaluation has them.
    rows_read = evaluation_files.comparable_rows(plan, rows)
    if metric_files.success_falls(rows) and not plan.get(evaluation_files.SUCCESS_FALLS):
        # The look before the first game did not meet it.
        print(determinism.success_remark(plan["environment"]), file=sys.stderr, flush=True)
    summary, summaries = evaluation_tables.summarise(plan, rows_read)
    tallies = messages.merge(messages.unpack(row["messages"]) for row in rows if "messages" in row)
    # The messages of all episodes have a file of their own.
    table = [
        {name: value for name, value in row.items() if name != "messages"} for row in rows_read
    ]
    evaluation_files.write_parquet(workdir / evaluation_files.TABLE, table)
    atomic_write_json(workdir / evaluation_files.MESSAGES, list(map(asdict, tallies)))
    evaluation_files.write_summary(workdir, summary, rows)
    more = f"; intrinsic reward: {reward}"
    partly = measures.partly_shown(table)
    if partly:
        listed = ", ".join(f"{key} ({count:,} of {len(table):,})" for key, count in partly.items())
        more += f"; left out, since only some episodes have them: {listed}"
    evaluation_tables.show(workdir, summary, summaries, "steps", more)
    print(f"written: {workdir / evaluation_files.SUMMARY}, {evaluation_files.TABLE}, table.md")


def _pinned(workdir: Path) -> evaluation_setup.PinnedVersions:
    """The checkpoint and reward that a resumed evaluation started with; a training may have saved
    newer ones.
    """
    path = workdir / PLAN
    if not path.exists():
        return evaluation_setup.PinnedVersions()
    remedy = "restore a copy of it, or evaluate into another --workdir"
    plan = read_json(path, remedy, keys=("checkpoint", "reward", "digests"))
    reward = plan["reward"] or {}
    shares = plan.get("shares")
    return evaluation_setup.PinnedVersions(
        plan["checkpoint"],
        reward.get("step"),
        plan["digests"],
        None if shares is None else tuple(shares),
    )


class _Evaluation:
    """Plays a setup as config and plan.json say; `reward` describes the intrinsic reward in one
    line.
    """

    def __init__(self, config: EvaluateConfig, workdir: Path) -> None:
        self._config = config
        self._workdir = workdir
        self._setup = evaluation_setup.open_setup(config, _pinned(workdir))
        rater = self._setup.rater
        self.reward = "none"
        if rater is not None:
            self.reward = f"{rater.description}, count exponent {rater.count_exponent:g}"
        setup = self._setup
        seen = determinism.look(setup.environment, setup.options)
        for remark in determinism.remarks(setup.environment, setup.options):
            print(remark, file=sys.stderr, flush=True)
        self._expert = self._setup.spec.expert_field if config.bot_agreement else None
        self.plan = {
            **self._setup.plan,
            "greedy": bool(config.greedy),
            "seed": config.seed,
            "digests": self._setup.digests,
        }
        # Only where they say something: most plans lack both.
        if seen.fault:
            self.plan[evaluation_files.SEEDED] = False
        if seen.success_falls:
            self.plan[evaluation_files.SUCCESS_FALLS] = True
        # Before the first episode: a start after a kill reads it to keep these versions
        # (`_pinned`).
        atomic_write_json(workdir / PLAN, self.plan)

    def play(self, journal: Journal, stop: interruption.Interruption) -> list[dict[str, Any]]:
        """Plays the episodes that the journal lacks; returns the rows by index, fewer after a
        stop.
        """
        config = self._config
        setup = self._setup
        keep_fields = list(setup.rater.fields) if setup.rater else []
        if self._expert is not None:
            keep_fields.append(self._expert)
        how = PlaySettings(
            workers=config.workers,
            lanes=config.lanes,
            keep_fields=tuple(keep_fields),
            greedy=config.greedy,
        )
        episode_seeds = [
            seeds.derive(config.seed, "evaluate", index) for index in range(config.episodes)
        ]
        game = (setup.environment, setup.options)
        title = f"evaluate {config.policy}"
        return play_policy(journal, title, game, setup.policy, episode_seeds, how, stop, self._row)

    def film(
        self, rows: Sequence[Mapping[str, Any]], stop: interruption.Interruption
    ) -> int | None:
        """Films the best and worst episodes, every n-th, and those that have a recording; an exit
        code after a stop.
        """
        setup = self._setup
        folder = self._workdir / RECORDINGS
        films = Films(self._workdir, folder, FilmForms(**vars(self._config.forms)))
        rater = setup.live_rater()
        # One rater for all films, so that a text is computed once.
        rater_of = None if rater is None else lambda spec: rater
        policy = None if setup.policy.in_workers else setup.policy
        indices = self._filmed_indices(rows)

        for row in rows:
            stem = f"episode-{row['index']:05d}"
            path = folder / f"{stem}.json"
            source = [row["seed"], row["actions"], self.plan]
            is_filmed = path.exists() or row["index"] in indices
            if not is_filmed or films.has(stem, source):
                continue
            if stop.requested:
                return interruption.EXIT_CODE
            recording = recorded(setup.plan, row, self._workdir, path)
            recording.save(path)
            title = f"Episode {row['index']} of {setup.plan['policy']}"
            fields = setup.options.get("fields", ())
            film = watching.film_recording(recording, title, policy, rater_of, fields)
            films.write(stem, film, source)
        return None

    def _filmed_indices(self, rows: Sequence[Mapping[str, Any]]) -> set[int]:
        every = self._config.record_every
        count = self._config.show_best
        key = return_key(rows)
        # JSON holds no infinite numbers: they are null.
        finite_rows = [row for row in rows if row[key] is not None]
        ranked = sorted(finite_rows, key=lambda row: (-row[key], row["index"]))
        indices = {row["index"] for row in (*ranked[:count], *ranked[len(ranked) - count :])}
        if every:
            indices |= {row["index"] for row in rows if row["index"] % every == 0}
        return indices

    def _row(self, record: PlayedEpisode) -> dict[str, Any]:
        row = evaluation_files.episode_row(record)
        # A kept field may have a last row, the final observation, on which nobody acts.
        if self._expert is not None:
            row["bot_agreement"] = agreement(
                record.actions, record.fields[self._expert][: len(record)]
            )
        rated = None if self._setup.rater is None else self._setup.rater.rate(record)
        if rated is not None:
            row["intrinsic_return"] = float(rated.discounted.sum())
            row["intrinsic_return_uncounted"] = float(rated.uncounted.sum())
        if record.texts is not None and record.text_index is not None:
            uncounted = None if rated is None else rated.uncounted
            discounted = None if rated is None else rated.discounted
            tallies = messages.tally_episode(record.texts, record.text_index, uncounted, discounted)
            row["messages"] = messages.pack(tallies)
        return row


def return_key(rows: Sequence[Mapping[str, Any]]) -> str:
    """The number of an episode's row by which episodes are ranked."""
    are_rated = all(row.get("intrinsic_return") is not None for row in rows)
    return "intrinsic_return" if are_rated else "return"


def recorded(
    plan: Mapping[str, Any], row: Mapping[str, Any], folder: str | Path, path: Path | None = None
) -> Recording:
    """The recording of an episode, from `path` if it exists. Raises UserError: the episode does not
    replay as written.
    """
    actions = evaluation_files.decode_actions(row["actions"])
    if path is not None and path.exists():
        recording = Recording.load(path)
    else:
        recording = record_actions(plan["environment"], plan["options"], row["seed"], actions)
    numbers = differences(recording.info, row)
    if numbers or not np.array_equal(recording.actions, actions):
        cause = "the game or the file has changed"
        if determinism.is_outside(recording.task):
            cause += f", or the environment is not a function of its seed and actions: {determinism.REMEDY}"
        raise UserError(
            f"episode {row['index']} of {folder} does not replay as recorded "
            f"({', '.join(numbers) or 'other actions'}): {cause}"
        )
    return recording


def agreement(actions: np.ndarray, expert: np.ndarray) -> float:
    """The share of steps, int [T], at which the scripted player did the same; the greatest number
    of its type is not an answer.
    """
    return float(np.mean(actions == expert.astype(np.int64))) if len(actions) else 0.0
