"""Plays N seeded episodes of an agent or of the random policy and writes a table, JSON and parquet."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from rich.console import Console

from motif_jax.envs import vitals
from motif_jax.envs.spec import TRUNCATED
from motif_jax.reports import films, journal, measures, messages, text_tables
from motif_jax.runtime import contest, watch
from motif_jax.runtime.episode_worker import EpisodeRecord
from motif_jax.runtime.episodes import play_episodes
from motif_jax.runtime.rerecord import record_actions
from motif_jax.support import config as checks
from motif_jax.support import interruption, run_folder, seeds
from motif_jax.support.files import FolderLock, atomic_write_json, atomic_write_text
from motif_jax.support.progress import Progress

IDENTITY = ("seed", "greedy", "lanes", *contest.IDENTITY)
PLAN = "plan.json"
RECORDINGS = "recordings"


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for values that cannot work, before anything is played."""
    for key in ("episodes", "workers", "resamples"):
        checks.positive(config, key)
    for key in ("record_every", "show_best"):
        checks.positive(config, key, allow_zero=True)
    films.check(config)
    checks.fraction(config, "confidence")
    checks.require(config.lanes >= 2 and config.lanes % 2 == 0, "lanes", config.lanes, "even and at least 2")
    run_folder.check_identity(workdir, config, IDENTITY)
    contest.check(config, _pinned(workdir))


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Plays what is missing, then writes the tables; returns 75 when it was asked to stop before the end."""
    with FolderLock(workdir), interruption.Interruption() as stop:
        run_folder.prepare(workdir, config, IDENTITY)
        return _evaluate(config, workdir, stop)


def _evaluate(config: ConfigDict, workdir: Path, stop: interruption.Interruption) -> int | None:
    with journal.Journal(workdir) as rows:
        player = _Player(config, workdir)
        player.play(rows, stop)
        if len(rows.done) < config.episodes:
            return interruption.EXIT_CODE
        if config.show_best or config.record_every:
            player.film([row for row in rows.rows if row["index"] < config.episodes])
        _write(config, workdir, player.plan, rows.rows)
    return None


def _write(
    config: ConfigDict, workdir: Path, plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> None:
    rows = sorted((row for row in rows if row["index"] < config.episodes), key=lambda row: row["index"])
    summaries = measures.summarise_rows(rows, config.resamples, config.confidence)
    rate, seconds = journal.speed(rows)
    summary = {
        "plan": plan,
        "episodes": len(rows),
        "steps": sum(row["length"] for row in rows),
        "seconds": seconds,
        "steps_per_second": rate,
        "confidence": config.confidence,
        "intervals": f"percentile bootstrap over episodes, {config.resamples} resamples; success rate: Wilson",
        "measures": {key: summary.as_dict() for key, summary in summaries.items()},
    }
    tallies = messages.merge(messages.unpack(row["messages"]) for row in rows if "messages" in row)
    journal.write_parquet(
        workdir / journal.TABLE, [{k: v for k, v in row.items() if k != "messages"} for row in rows]
    )
    atomic_write_json(workdir / journal.MESSAGES, messages.as_rows(tallies))
    cells = measures.table_rows(summaries)
    title = f"{plan['policy']} on {plan['environment']}"
    note = (
        f"{len(rows)} episodes, {summary['steps']:,} steps, {rate:,.0f} steps/s; brackets: "
        f"{100 * config.confidence:g} % intervals ({summary['intervals']})"
    )
    atomic_write_text(
        workdir / "table.md", f"{title}\n\n{text_tables.markdown(measures.HEADER, cells)}\n{note}\n"
    )
    atomic_write_json(workdir / journal.SUMMARY, summary)
    console = Console()
    header, shown = measures.fit_width(cells, console.width)
    console.print(text_tables.terminal(header, shown, title, note))
    print(f"written: {workdir / journal.SUMMARY}, {journal.TABLE}, table.md")


def _pinned(workdir: Path) -> int | None:
    """A training that goes on saves newer checkpoints: a resumed evaluation keeps the one that it began with."""
    path = workdir / PLAN
    return json.loads(path.read_text(encoding="utf-8"))["checkpoint"] if path.exists() else None


class _Player:
    """Plays a contest as config and plan.json say."""

    def __init__(self, config: ConfigDict, workdir: Path) -> None:
        self._config, self._workdir = config, workdir
        self._contest = contest.open_contest(config, _pinned(workdir))
        self.plan = {**self._contest.plan, "greedy": bool(config.greedy), "seed": config.seed}
        atomic_write_json(workdir / PLAN, self.plan)

    def play(self, rows: journal.Journal, stop: interruption.Interruption) -> None:
        """Plays the episodes that are not in the journal yet."""
        config, session, started = self._config, rows.session, time.monotonic()
        keep = (vitals.STATUS_FIELD,) if vitals.STATUS_FIELD in self._contest.spec.observation else ()
        with Progress(config.episodes, "episodes", f"evaluate {config.policy}", len(rows.done)) as progress:
            records = play_episodes(
                self._contest.environment,
                self._contest.options,
                [seeds.derive(config.seed, "evaluate", index) for index in range(config.episodes)],
                self._contest.policy,
                workers=config.workers,
                lanes=config.lanes,
                keep_fields=keep,
                skip=rows.done,
                greedy=config.greedy,
                stop=stop,
                on_death=lambda deaths: progress.log(
                    f"worker processes that died and were replaced: {deaths}"
                ),
            )
            steps = 0
            for record in records:
                if config.record_every and record.index % config.record_every == 0:
                    self._record(record)
                row = self._row(record)
                rows.append(
                    {**row, "session": session, "session_seconds": round(time.monotonic() - started, 3)}
                )
                steps += len(record)
                rate = steps / (time.monotonic() - started)
                progress.update(len(rows.done), **{"return": row["return"], "steps/s": rate})

    def _record(self, record: EpisodeRecord) -> None:
        """Leaves the episode as seed and actions, checked by playing it again."""
        who = self._contest
        recording = record_actions(who.environment, who.options, record.seed, record.actions)
        if recording.info != record.info:
            raise RuntimeError(
                f"episode {record.index} with seed {record.seed} does not play the same way twice"
            )
        recording.save(self._workdir / RECORDINGS / f"episode-{record.index:05d}.json")

    def film(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Makes players of the recorded episodes, and of the best and the worst ones."""
        folder, count = self._workdir / RECORDINGS, self._config.show_best
        key = "intrinsic_return" if all("intrinsic_return" in row for row in rows) else "return"
        ranked = sorted(rows, key=lambda row: -row[key])
        extremes = {row["index"] for row in (*ranked[:count], *ranked[len(ranked) - count :])}
        who, rater = self._contest, self._contest.text_rater()
        policy = None if who.checkpoint is None else who.policy
        for row in rows:
            stem = f"episode-{row['index']:05d}"
            recorded = (folder / f"{stem}.json").exists()
            if (folder / f"{stem}.html").exists() or not (recorded or row["index"] in extremes):
                continue
            actions = journal.decode_actions(row["actions"])
            recording = record_actions(who.environment, who.options, row["seed"], actions)
            recording.save(folder / f"{stem}.json")
            title = f"Episode {row['index']} of {who.plan['policy']}"
            film = watch.film_recording(
                recording, title, policy, None if rater is None else lambda spec: rater
            )
            films.write(folder, stem, film, self._config.forms)

    def _row(self, record: EpisodeRecord) -> dict[str, Any]:
        row: dict[str, Any] = {"index": record.index, "seed": record.seed}
        row |= record.info
        row["length"] = len(record)
        row["end_reason"] = measures.end_reason(record.end == TRUNCATED, record.info.get("end"))
        if vitals.STATUS_FIELD in record.fields:
            row["hallucination"] = float(vitals.hallucinating(record.fields[vitals.STATUS_FIELD]).mean())
        rated = None if self._contest.rater is None else self._contest.rater.rate(record)
        if rated is not None:
            row["intrinsic_return"] = float(rated.discounted.sum())
            row["intrinsic_return_uncounted"] = float(rated.uncounted.sum())
        if record.texts is not None and record.text_index is not None:
            paid = (None, None) if rated is None else (rated.uncounted, rated.discounted)
            row["messages"] = messages.pack(messages.tally_episode(record.texts, record.text_index, *paid))
        row["actions"] = journal.encode_actions(record.actions)
        return row
