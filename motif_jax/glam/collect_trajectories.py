"""Plays episodes of BabyAI-Text until there are enough steps, and writes the prompt and action of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import capacity, digests, interruption, run_folder, seeds
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json
from motif_jax.envs import registry
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.episode import given_actions, play
from motif_jax.envs.spec import OBSERVED
from motif_jax.glam import eval_agents
from motif_jax.glam import published_trajectories as published
from motif_jax.glam import trajectories as parquet
from motif_jax.glam.generalisation import PlayedLevel
from motif_jax.play import evaluation_files, policies
from motif_jax.play.config import LevelPolicy
from motif_jax.play.episodes import PlaySettings
from motif_jax.play.journal import play_policy
from motif_jax.schema import read_section

# What the trajectories depend on.
IDENTITY = "seed greedy lanes policy agent environment network steps successes".split()
# Without a success among so many episodes, those that are asked for are not to be had.
MOST_FAILURES = 1_000
_EPISODES = ".episodes"  # seeds and actions of what was played


def check(config: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config, IDENTITY)
    capacity.require_workers("workers", config.workers)
    eval_agents.open_pinned(read_section(LevelPolicy, config), workdir)


def run(config: ConfigDict, workdir: Path) -> int | None:
    with interruption.Interruption() as stop, run_folder.opened(workdir, config, IDENTITY):
        meta = workdir / parquet.META
        player = eval_agents.open_pinned(read_section(LevelPolicy, config), workdir)
        eval_agents.pin(workdir, player)
        rows = _enough(config, workdir, player, stop)
        if rows is None:
            return interruption.EXIT_CODE
        options = _options(player.base)
        about = {
            "origin": "motif_jax collect_trajectories",
            "player": player.name,
            "checkpoint": player.checkpoint,
            "environment": player.base.environment,
            "options": options,
            "actions": list(registry.spec(player.base.environment, **options).action_names),
            "seed": config.seed,
        }
        if not meta.exists():
            file = workdir / parquet.FILE
            steps = parquet.write(file, _replayed(player.base, rows), about)
            success, earned = (float(np.mean([row[key] for row in rows])) for key in ("success", "return"))
            counts = {"episodes": len(rows), "steps": steps, "success": success, "mean_return": earned}
            atomic_write_json(meta, {**about, **counts, "digest": digests.of_file(file)})
        if config.published and not (workdir / published.STATUS).exists():
            pairs = parquet.read(workdir / parquet.FILE)
            name, longest = published.NAMES[config.policy == policies.BOT], max(map(len, pairs.prompts))
            told = zip(pairs.prompts, pairs.actions, strict=True)
            published.write(workdir, name, told, len(pairs.actions), longest)
        print(_in_words(read_json(meta, "remove it, and the same command writes it again")))
    return None


def _enough(
    config: ConfigDict, workdir: Path, player: eval_agents.EvalAgent, stop: interruption.Interruption
) -> list[dict[str, Any]] | None:
    policy = player.policy(player.base)
    how = PlaySettings(workers=config.workers, lanes=config.lanes, greedy=config.greedy)
    count, folder, game = config.lanes, workdir / _EPISODES, (player.base.environment, player.base.options)
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        numbers = [seeds.derive(config.seed, "trajectories", index) for index in range(count)]
        title = f"collect {config.steps:,} steps"
        with evaluation_files.Journal(folder) as journal:
            rows = play_policy(journal, title, game, policy, numbers, how, stop, evaluation_files.episode_row)
        if len(rows) < count:
            return None
        kept = [row for row in rows if row["success"] or not config.successes]
        total = np.cumsum([row["length"] for row in kept])
        if len(total) and total[-1] >= config.steps:
            return kept[: int(np.searchsorted(total, config.steps)) + 1]
        if len(total):
            each = total[-1] / count
            # As many as are expected to do, but no more than ten times as many as there are: the mean is a guess at first.
            count = int(min(10 * count, max(1.02 * config.steps / each, count + config.lanes)))
        elif count < MOST_FAILURES:
            count = min(10 * count, MOST_FAILURES)
        else:
            raise UserError(
                f"config.successes=True: none of {count:,} episodes by {player.name} on {player.base.environment} reached its "
                "goal; choose another config.policy or level, or --config.successes=False, with another --workdir"
            )


def _options(base: PlayedLevel) -> dict[str, Any]:
    return {name: value for name, value in base.options.items() if name not in OBSERVED}


def _replayed(base: PlayedLevel, rows: Sequence[Mapping[str, Any]]) -> Iterator[parquet.TrajectoryEpisode]:
    env = registry.make(base.environment, **_options(base), fields=("prompt",))
    with contextlib.closing(env):
        for row in rows:
            seed, actions = row["seed"], evaluation_files.decode_actions(row["actions"])
            prompts, rewards = [], []
            for moment in play(env, seed, given_actions(actions)):
                prompts.append(decoded(moment.observation["prompt"]))
                rewards.append(moment.reward)
            if len(prompts) != len(actions) + 1:
                raise RuntimeError(f"the episode with seed {seed} does not play the same way twice")
            yield parquet.TrajectoryEpisode(row["index"], seed, prompts[:-1], actions.tolist(), rewards[1:])


def _in_words(meta: Mapping[str, Any]) -> str:
    return (
        f"{meta['steps']:,} steps of {meta['episodes']:,} episodes by {meta['player']} on {meta['environment']}: "
        f"success {meta['success']:.3f}, mean return {meta['mean_return']:.3f}"
    )
