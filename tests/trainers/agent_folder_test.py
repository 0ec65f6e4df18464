"""An agent's folder whose parts do not belong together is told in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer as Backend
from tokenizers import models

from motif_jax.language.text_agent import Design
from motif_jax.support.errors import UserError
from motif_jax.trainers import agent_folder
from tests import text_agents

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow
def test_an_agent_that_was_moved_has_its_own_tokenizer_and_names_no_other_folder(tmp_path: Path) -> None:
    made = Backend(models.WordLevel({"<unk>": 0, "hello": 1}, "<unk>"))
    made.save(str(tmp_path / "tokenizer.json"))
    run = text_agents.write(tmp_path / "run", task="visdial", options={"tokenizer": str(tmp_path)})
    (tmp_path / "tokenizer.json").unlink()
    moved = run.rename(tmp_path / "moved")
    assert str(tmp_path) not in (moved / "agent" / "agent.json").read_text()
    assert agent_folder.load(moved).options["tokenizer"] == str(moved / "agent")


@pytest.mark.slow
def test_heads_that_are_lost_or_another_agents_are_told(tmp_path: Path) -> None:
    folder = text_agents.write(tmp_path / "run") / "agent"
    for name, words in (("heads", "has heads none of other forms than v, q1, q2"), ("target_heads", "target_heads has heads none")):  # fmt: skip
        path = folder / name / "heads.json"
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(UserError, match=words):
            agent_folder.load(folder)
        path.write_bytes(content)


@pytest.mark.slow
def test_a_prefix_of_another_width_is_told(tmp_path: Path) -> None:
    folder = text_agents.write(tmp_path / "run", Design(q="none", prefix=True), "dt") / "agent"
    agent_folder.load(folder)
    save_file({"kernel": np.zeros(3, np.float32)}, folder / agent_folder.PREFIX)
    with pytest.raises(UserError, match=r"prefix\.safetensors does not fit a model of width 16"):
        agent_folder.load(folder)
