"""An agent's folder: what is written is read; parts that do not belong together, and other damage, are told in one line."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models

from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.ilql.dialogues.items import Delimiters, Vocabulary
from motif_jax.ilql.tasks import registry
from motif_jax.lm.model import LanguageModel
from tests import text_agents
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text
from tests.toy_text import Letters

_INIT = TextAgentNetwork.init


@functools.cache
def shapes(config: Any, design: Design) -> Any:
    return jax.eval_shape(_INIT.__get__(TextAgentNetwork(LanguageModel(config), design)), jax.random.key(0))


def drawn(config: Any, design: Design, seed: int = 0) -> Callable[[Any], Any]:
    """As `TextAgentNetwork.init`, without a compiled program; no two parts are alike."""
    draws = np.random.default_rng(seed)
    return lambda key: jax.tree.map(lambda x: draws.normal(size=x.shape).astype("f4"), shapes(config, design))


@pytest.fixture(autouse=True)
def _drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_agents, "_initialiser", drawn)


@pytest.mark.parametrize(
    "design",
    [Design(), Design("none", prefix=True), Design("utterance", double_q=False, separate_target=False)],
)
def test_an_agent_is_read_as_it_was_written(tmp_path: Path, design: Design) -> None:
    for folder in (tmp_path, tmp_path / "agent"):
        text_agents.write(tmp_path, design, settings={"discount": 0.9})
        saved = agent_folder.load(folder)
        assert (saved.folder, saved.method, saved.task_name) == (tmp_path / "agent", "ilql", "wordle")
        assert saved.options == {"num_words": 20}
        assert (saved.settings, saved.network.design) == ({"longest_action": 6, "discount": 0.9}, design)
        assert saved.about == agent_folder.describe(folder, "agent")
        wanted = drawn(saved.network.model.config, design)(jax.random.key(0))
        jax.tree.map(np.testing.assert_array_equal, saved.params, wanted)
    assert agent_folder.options_for("wordle", tmp_path, "agent") == {"num_words": 20}
    words = registry.make("wordle", {"num_words": 20})
    assert agent_folder.load(tmp_path, task=words).task is words


def test_the_vocabulary_of_a_task() -> None:
    made: Any = SimpleNamespace(tokenizer=Letters, learned_tokens=lambda: 0)
    found = agent_folder.vocabulary_of(made)
    texts = (*"abcdefghijklmnopqrstuvwxyz", "<|pad|>", "<s>", "<a>", "</s>", "</a>", "</eod>")
    assert found == Vocabulary(32, Letters.delimiters, agent_folder.vocabulary_digest(Letters()), texts)
    made.learned_tokens = lambda: 40
    assert agent_folder.vocabulary_of(made) == Vocabulary(46, Delimiters(40, 41, 42, 43, 44, 45), None)


def test_what_is_no_agent_is_told(tmp_path: Path, record: bool) -> None:
    path = text_agents.write(tmp_path / "run") / "agent" / "agent.json"
    about, run, found = json.loads(path.read_text()), path.parent.parent, {}
    for change in (
        {},
        {"version": 2},
        {"settings": {"longest_action": 0}},
        {"settings": {"longest_action": True}},
        {"settings": {}},
        {"settings": []},
        {"method": 3},
        {"task": None},
        {"design": {"odd": 1}},
        {"options": 1},
        {"vocabulary": "another"},
    ):
        path.write_text(json.dumps(about | change))
        calls = agent_folder.describe, functools.partial(agent_folder.options_for, "reddit")
        found[str(change)] = "".join(outcome_text(call, run, "key", folder=tmp_path) for call in calls)
        found[str(change)] += outcome_text(
            lambda: agent_folder.load(path.parent, "key").about, folder=tmp_path
        )
    path.unlink()
    found["none"] = outcome_text(agent_folder.find, run, "key", folder=tmp_path)
    (run / "checkpoints").mkdir()
    found["unfinished"] = outcome_text(agent_folder.find, run, "key", folder=tmp_path)
    for name in ("heads", "target_heads"):
        folder = text_agents.write(tmp_path / name) / "agent"
        (folder / name / "heads.json").unlink()
        found[name] = outcome_text(agent_folder.load, folder, folder=tmp_path)
    folder = text_agents.write(tmp_path / "dt", Design(q="none", prefix=True), "dt") / "agent"
    save_file({"kernel": np.zeros(3, np.float32)}, folder / agent_folder.PREFIX)
    found["prefix"] = outcome_text(agent_folder.load, folder, folder=tmp_path)
    (folder / agent_folder.PREFIX).write_text("no")
    found["no prefix"] = outcome_text(agent_folder.load, folder, folder=tmp_path)
    assert_matches_packed_recording("agents_told", found, record)


def test_an_agent_that_was_moved_has_its_own_tokenizer_and_names_no_other_folder(tmp_path: Path) -> None:
    made = Tokenizer(models.WordLevel({"<unk>": 0, "hello": 1}, "<unk>"))
    made.save(str(tmp_path / "tokenizer.json"))
    for named in (tmp_path, tmp_path / "tokenizer.json"):
        text_agents.write(tmp_path / "run", task="visdial", options={"tokenizer": str(named)})
    run = tmp_path / "run"
    (tmp_path / "tokenizer.json").unlink()
    moved = run.rename(tmp_path / "moved")
    assert str(tmp_path) not in (moved / "agent" / "agent.json").read_text()
    assert agent_folder.load(moved).options["tokenizer"] == str(moved / "agent")
