"""A person and who speaks at the terminal: together, one after the other, or as two sides of a dialogue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.support import config as checks
from motif_jax.support import run_folder
from motif_jax.support.files import append_lines, regular_file
from motif_jax.support.locks import FolderLock

GAMES = "games.jsonl"


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for values that cannot work."""
    from motif_jax.rollouts import text_setup

    run_folder.check_identity(workdir, config)
    agent = config.mode != "answer" or not config.policy
    checks.require(agent, "policy", config.policy, "None with config.mode=answer: an agent has to speak")
    text_setup.check(config)


def run(config: ConfigDict, workdir: Path) -> None:
    """Plays until the games are over, or there is no more to read."""
    from motif_jax.rollouts import text_setup
    from motif_jax.rollouts.text_terminal import Terminal, TextTable

    setup = text_setup.open_setup(config)
    table = TextTable(setup.task, setup.actor, Terminal(), setup.tokenizer, config.seed)
    with FolderLock(workdir):
        run_folder.prepare(workdir, config)
        path = workdir / GAMES
        append_lines(path, keep=lambda line: True).close()
        begun = len(path.read_text(encoding="utf-8").splitlines())
        for game in range(begun, begun + config.games):
            try:
                found: list[dict[str, Any]] = table.play(game, config.mode)
            except EOFError:
                print("\nno more to read: the game is left as it is")
                return
            with open(path, "a", encoding="utf-8", opener=regular_file) as file:
                file.write(json.dumps({"game": game, "mode": config.mode, "dialogues": found}) + "\n")
