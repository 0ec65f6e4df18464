"""Plays the generalisation tests on BabyAI-Text and writes the effect of each test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import capacity, interruption, run_folder, seeds
from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.display import text_tables
from motif_jax.display.statistics import CONFIDENCE, RESAMPLES
from motif_jax.envs.babyai_text import catalogue, prompts
from motif_jax.glam import eval_agents, generalisation_files
from motif_jax.glam.config import GeneralisationConfig
from motif_jax.glam.generalisation import GeneralisationTest, PlayedLevel
from motif_jax.glam.generalisation_files import RETURNS, SUMMARY, TABLE, Rows
from motif_jax.play.evaluation_files import Journal, episode_row
from motif_jax.play.evaluation_tables import write_table
from motif_jax.play.journal import play_policy
from motif_jax.rl.actors.episodes import PlaySettings
from motif_jax.schema import read_section

# Keys that a result depends on; a resumed run may add tests and episodes.
IDENTITY = (
    "seed",
    "greedy",
    "lanes",
    "policy",
    "agent",
    "environment",
    "network",
    "action_names",
    "prompt_tokens",
)


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree, IDENTITY)
    config = read_section(GeneralisationConfig, config_tree)
    capacity.require_workers("workers", min(config.workers, config.episodes))
    player = eval_agents.open_pinned(config, workdir)
    _tests(config, player)


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    config = read_section(GeneralisationConfig, config_tree)
    with interruption.Interruption() as stop, run_folder.opened(workdir, config_tree, IDENTITY):
        player = eval_agents.open_pinned(config, workdir)
        eval_agents.pin(workdir, player)
        tests, left_out = _tests(config, player)
        results: list[dict[str, Any]] = []
        base: Rows = ()
        episode_seeds = _episode_seeds(config)
        play_settings = PlaySettings(
            workers=config.workers, lanes=config.lanes, greedy=config.greedy
        )
        # A folder for each test: a resumed run reads its journal and plays what is missing.
        for number, (test, played_level) in enumerate(tests, start=1):
            folder = workdir / generalisation_files.FOLDER / test.name
            title = f"test {number}/{len(tests)} {test.name}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                game = (played_level.environment, played_level.options)
                policy = player.policy(played_level)
                with Journal(folder) as journal:
                    rows = play_policy(
                        journal,
                        title,
                        game,
                        policy,
                        episode_seeds,
                        play_settings,
                        stop,
                        episode_row,
                    )
            except UserError as error:  # a prompt longer than those that were tried
                optional = eval_agents.may_be_left_out(test, checks.listed(config.tests))
                # By its text: a worker process passes on the text of a UserError, not its class.
                is_too_long = str(error).startswith(prompts.TOO_LONG_PREFIX)
                if not optional or not is_too_long:
                    raise
                left_out[test.name] = str(error)
            else:
                # A stop was requested; the journal has what was played.
                if len(rows) < config.episodes:
                    return interruption.EXIT_CODE
                # The first test is the unchanged level, which is never left out
                # (`eval_agents.may_be_left_out`).
                base = base or rows
                results.append(_result(config, test, played_level, rows, base))
                generalisation_files.write_returns(workdir, test.name, rows)
            # After each test, so that the results of those that are done can be looked at.
            finished = number == len(tests)
            _write(
                config,
                workdir,
                player,
                {"finished": finished, "left_out": left_out, "tests": results},
            )
        _show(config, workdir, player)
        return None


def _episode_seeds(config: GeneralisationConfig) -> list[int]:
    return [seeds.derive(config.seed, "test", index) for index in range(config.episodes)]


def _tests(
    config: GeneralisationConfig, player: eval_agents.EvalAgent
) -> tuple[list[tuple[GeneralisationTest, PlayedLevel]], dict[str, str]]:
    """The tests that the agent can take, with their levels, and the reasons of those that are left
    out (`EvalAgent.takeable`).
    """
    return player.takeable(
        checks.listed(config.tests),
        _episode_seeds(config),
        "prompt_tokens",
        config.action_names,
        config.prompt_tokens,
    )


def _result(
    config: GeneralisationConfig,
    test: GeneralisationTest,
    played_level: PlayedLevel,
    rows: Rows,
    base: Rows,
) -> dict[str, Any]:
    level = catalogue.find(played_level.environment)
    assert level is not None
    # One kind alone: its numbers would be those of the test.
    kinds = () if played_level.options.get("kind") else level.kinds
    numbers = generalisation_files.summarise(rows, base, kinds)
    return {
        "name": test.name,
        "what": test.description,
        "environment": played_level.environment,
        "options": dict(played_level.options),
        **numbers,
    }


def _write(
    config: GeneralisationConfig,
    workdir: Path,
    player: eval_agents.EvalAgent,
    results: Mapping[str, Any],
) -> None:
    summary = {
        "player": player.name,
        "policy": config.policy,
        "checkpoint": player.checkpoint,
        "base": {"environment": player.base.environment, "options": dict(player.base.options)},
        "seed": config.seed,
        "episodes": config.episodes,
        "confidence": CONFIDENCE,
        "intervals": f"success: Wilson, its change: Newcombe; the rest: percentile bootstrap over episodes, {RESAMPLES} resamples",
        **results,
    }
    generalisation_files.write(workdir, summary)


def _show(config: GeneralisationConfig, workdir: Path, player: eval_agents.EvalAgent) -> None:
    summary = generalisation_files.read(workdir)
    header = generalisation_files.HEADER
    cells = generalisation_files.table(summary)
    title = f"{player.name} tested, {player.base.environment}"
    note = (
        f"{config.episodes} episodes of the same seeds in each test; changes are relative to the first; brackets: "
        f"{100 * CONFIDENCE:g} % intervals ({summary['intervals']})"
    )
    write_table(workdir, title, note, header, cells)
    text_tables.show(header, cells, title, note)
    for name, reason in summary["left_out"].items():
        print(f"left out: {name}: {reason}")
    print(f"written: {workdir / SUMMARY}, {TABLE}, table.md, {RETURNS}/")
