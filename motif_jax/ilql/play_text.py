"""A person plays a text task at the terminal with an agent or a policy, against it, or as the other
side.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.files import append_lines, regular_file
from motif_jax.ilql.evaluation import text_setup
from motif_jax.ilql.evaluation.config import PlayTextConfig
from motif_jax.ilql.evaluation.text_terminal import Terminal, TextTable
from motif_jax.schema import read_section

GAMES = "games.jsonl"


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree)
    config = read_section(PlayTextConfig, config_tree)
    is_allowed = config.mode != "answer" or not config.policy
    checks.require_key(
        config, "policy", is_allowed, "None with config.mode=answer: an agent has to speak"
    )
    text_setup.check(config, plays=config.mode != "answer")


def run(config_tree: ConfigDict, workdir: Path) -> None:
    config = read_section(PlayTextConfig, config_tree)
    setup = text_setup.open_setup(config)
    table = TextTable(setup.task, setup.actor, Terminal(), setup.tokenizer, config.seed)
    with run_folder.opened(workdir, config_tree):
        path = workdir / GAMES
        # Drops a last line that a kill has torn, so that the next one does not continue it.
        append_lines(path, keep=lambda line: True).close()
        first = len(path.read_text(encoding="utf-8").splitlines())  # games of earlier starts stay
        for game in range(first, first + config.games):
            try:
                dialogues: list[dict[str, Any]] = table.play(game, config.mode)
            except EOFError:
                print("\nend of input: this game is left out")
                return
            with open(path, "a", encoding="utf-8", opener=regular_file) as file:
                file.write(
                    json.dumps({"game": game, "mode": config.mode, "dialogues": dialogues}) + "\n"
                )
