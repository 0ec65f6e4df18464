"""Plays episodes of BabyAI-Text until there are enough steps, and writes the prompt and action of
each.
"""

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
from motif_jax.envs.babyai_text import prompt_lengths
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.episode import EpisodePlayer, fixed_actions
from motif_jax.envs.spec import OBSERVED
from motif_jax.glam import eval_agents
from motif_jax.glam import trajectories as parquet
from motif_jax.glam.config import CollectTrajectoriesConfig
from motif_jax.glam.generalisation import PlayedLevel
from motif_jax.play import evaluation_files
from motif_jax.play.journal import play_policy
from motif_jax.rl.actors import policies
from motif_jax.rl.actors.episodes import PlaySettings
from motif_jax.schema import read_section

# What the trajectories depend on.
IDENTITY = (
    "seed",
    "greedy",
    "lanes",
    "policy",
    "agent",
    "environment",
    "network",
    "steps",
    "successes",
)
# Without a success among so many episodes it gives up `config.successes`.
MAX_FAILURES = 1_000
_EPISODES = ".episodes"  # seeds and actions of what was played


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree, IDENTITY)
    config = read_section(CollectTrajectoriesConfig, config_tree)
    capacity.require_workers("workers", config.workers)
    # Files are read here, so that a player that does not fit is refused before anything is written.
    player = eval_agents.open_pinned(config, workdir)
    base = player.base
    key = f"environment.name={base.environment}"
    remedy = (
        "choose another level, or an agent that was trained with more config.network.prompt_tokens"
    )
    # Its room is the config's; that of a trained agent is fixed.
    if config.policy == eval_agents.ZERO_SHOT:
        key = f"network.prompt_tokens={config.network.prompt_tokens}"
        remedy = "raise it (if the model has the positions), or choose another level"
    episode_seeds = _episode_seeds(config, prompt_lengths.TRIED_EPISODES)
    prompt_lengths.require_room(base.environment, base.options, episode_seeds, key, remedy)


def _episode_seeds(config: CollectTrajectoriesConfig, count: int) -> list[int]:
    return [seeds.derive(config.seed, "trajectories", index) for index in range(count)]


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    config = read_section(CollectTrajectoriesConfig, config_tree)
    with interruption.Interruption() as stop, run_folder.opened(workdir, config_tree, IDENTITY):
        meta = workdir / parquet.META
        player = eval_agents.open_pinned(config, workdir)
        # Before the first episode: a resumed run plays with the same checkpoint, even if there is a
        # newer one.
        eval_agents.pin(workdir, player)
        rows = play_until_enough(config, workdir, player, stop)
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
        # The description is written after the file: without it the file is written again.
        if not meta.exists():
            file = workdir / parquet.FILE
            figures = {
                "episodes": len(rows),
                "steps": parquet.write(file, _replayed(player.base, rows), about),
                "success": float(np.mean([row["success"] for row in rows])),
                "mean_return": float(np.mean([row["return"] for row in rows])),
            }
            atomic_write_json(meta, {**about, **figures, "digest": digests.of_file(file)})
        if config.published and not (workdir / parquet.STATUS).exists():
            _write_published(workdir, config.policy)
        print(_in_words(read_json(meta, "remove it, and the same command writes it again")))
    return None


def _write_published(workdir: Path, policy: str) -> None:
    """Writes the trajectories of `workdir` in the published tool's format as well."""
    pairs = parquet.read(workdir / parquet.FILE)
    name = parquet.BOT_NAME if policy == policies.BOT else parquet.NAME
    longest = max(map(len, pairs.prompts))
    steps = zip(pairs.prompts, pairs.actions, strict=True)
    parquet.write_published(workdir, name, steps, len(pairs.actions), longest)


def play_until_enough(
    config: CollectTrajectoriesConfig,
    workdir: Path,
    player: eval_agents.EvalAgent,
    stop: interruption.Interruption,
) -> list[dict[str, Any]] | None:
    """Rows of episodes with `config.steps` steps, played in ever larger numbers; None after a
    request to stop.
    """
    policy = player.policy(player.base)
    play_settings = PlaySettings(workers=config.workers, lanes=config.lanes, greedy=config.greedy)
    folder = workdir / _EPISODES
    folder.mkdir(parents=True, exist_ok=True)
    game = (player.base.environment, player.base.options)
    title = f"collect {config.steps:,} steps"
    count = config.lanes
    while True:
        episode_seeds = _episode_seeds(config, count)
        # The journal holds what was played: each turn, and each start, plays only what is missing.
        with evaluation_files.Journal(folder) as journal:
            rows = play_policy(
                journal,
                title,
                game,
                policy,
                episode_seeds,
                play_settings,
                stop,
                evaluation_files.episode_row,
            )
        if len(rows) < count:
            return None

        # By the index of the seeds, in whatever order the lanes ended.
        used = [row for row in rows if row["success"] or not config.successes]
        total_steps = np.cumsum([row["length"] for row in used])
        if len(total_steps) and total_steps[-1] >= config.steps:
            # Whole episodes up to the one in which the steps are reached.
            return used[: int(np.searchsorted(total_steps, config.steps)) + 1]
        if len(total_steps):
            # The number that is expected to suffice, but at most ten times the present one: the
            # mean is a guess at first.
            steps_per_episode = total_steps[-1] / count
            expected = 1.02 * config.steps / steps_per_episode
            count = int(min(10 * count, max(expected, count + config.lanes)))
        elif count < MAX_FAILURES:
            count = min(10 * count, MAX_FAILURES)
        else:
            raise UserError(
                f"config.successes=True: none of {count:,} episodes by {player.name} on {player.base.environment} reached its "
                "goal; choose another config.policy or level, or --config.successes=False, with another --workdir"
            )


def _options(base: PlayedLevel) -> dict[str, Any]:
    """The options that decide the games, without those of observations."""
    return {name: value for name, value in base.options.items() if name not in OBSERVED}


def _replayed(
    base: PlayedLevel, rows: Sequence[Mapping[str, Any]]
) -> Iterator[parquet.TrajectoryEpisode]:
    """Plays the episodes of `rows` again, for their prompts, which no journal has."""
    environment = registry.make(base.environment, **_options(base), fields=("prompt",))
    player = EpisodePlayer(environment, keep_fields=("prompt",), keep_texts=False)
    with contextlib.closing(player):
        for row in rows:
            seed = row["seed"]
            # An episode is a function of its seed and actions.
            actions = evaluation_files.decode_actions(row["actions"])
            episode = player.play(seed, fixed_actions(actions))
            if len(episode) != len(actions):
                raise RuntimeError(f"the episode with seed {seed} does not play the same way twice")
            # Without the observation after the last action, where the player has it.
            prompts = [decoded(prompt) for prompt in episode.fields["prompt"][: len(episode)]]
            yield parquet.TrajectoryEpisode(
                row["index"], seed, prompts, actions.tolist(), episode.rewards.tolist()
            )


def _in_words(meta: Mapping[str, Any]) -> str:
    return (
        f"{meta['steps']:,} steps of {meta['episodes']:,} episodes by {meta['player']} on {meta['environment']}: "
        f"success {meta['success']:.3f}, mean return {meta['mean_return']:.3f}"
    )
