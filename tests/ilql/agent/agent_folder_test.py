"""An agent's folder: what is written is read; parts that do not belong together, and other damage,
are told in one line.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer, models

from docs.examples import backwards
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.ilql.dialogues.dialogue_tokens import Delimiters, Vocabulary
from motif_jax.ilql.tasks import registry
from motif_jax.ilql.tasks.contract import TextEnvironment, TextPolicy, TextTask
from motif_jax.ilql.tasks.wordle.environment import WordleTokenizer
from motif_jax.lm.model import LanguageModel
from tests import text_agents, toy_text
from tests.toy_text import Letters

_INIT = TextAgentNetwork.init


@functools.cache
def shapes(config: Any, design: Design) -> Any:
    return jax.eval_shape(
        _INIT.__get__(TextAgentNetwork(LanguageModel(config), design)), jax.random.key(0)
    )


def drawn(config: Any, design: Design, seed: int = 0) -> Callable[[Any], Any]:
    """As `TextAgentNetwork.init`, without a compiled program; no two parts are alike."""
    draws = np.random.default_rng(seed)
    return lambda key: jax.tree.map(
        lambda x: draws.normal(size=x.shape).astype("f4"), shapes(config, design)
    )


@pytest.fixture(autouse=True)
def _drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_agents, "initialiser", drawn)


@pytest.mark.parametrize(
    "design",
    [
        Design(),
        Design("none", prefix=True),
        Design("utterance", double_q=False, separate_target=False),
    ],
)
def test_an_agent_is_read_as_it_was_written(tmp_path: Path, design: Design) -> None:
    for folder in (tmp_path, tmp_path / "agent"):
        text_agents.write(tmp_path, design, settings={"discount": 0.9})
        saved = agent_folder.load(folder)
        assert (saved.folder, saved.method, saved.task_name) == (
            tmp_path / "agent",
            "ilql",
            "wordle",
        )
        assert saved.options == {"num_words": 20}
        assert (saved.settings, saved.network.design) == (
            {"longest_action": 6, "discount": 0.9},
            design,
        )
        assert saved.about == agent_folder.describe(folder, "agent")
        wanted = drawn(saved.network.model.config, design)(jax.random.key(0))
        jax.tree.map(np.testing.assert_array_equal, saved.params, wanted)
    words = registry.make("wordle", {"num_words": 20})
    assert agent_folder.load(tmp_path, task=words).task is words


def test_a_tasks_vocabulary_has_the_texts_of_its_tokens() -> None:
    vocabulary = agent_folder.vocabulary_of(toy_text.Task({}))

    texts = (*string.ascii_lowercase, "<|pad|>", "<s>", "<a>", "</s>", "</a>", "</eod>")
    assert vocabulary == Vocabulary(
        32, Letters.delimiters, agent_folder.vocabulary_digest(Letters()), texts
    )


def test_a_vocabulary_to_be_learned_has_size_and_delimiters() -> None:
    vocabulary = agent_folder.vocabulary_of(backwards.Task({"vocab_size": 40}))

    assert vocabulary == Vocabulary(46, Delimiters(40, 41, 42, 43, 44, 45), None)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run of Wordle."""
    return text_agents.write(tmp_path / "run")


def change(run: Path, **values: Any) -> None:
    """Changes entries of the agent's description."""
    path = run / "agent" / "agent.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_description_has_the_folder_and_what_was_written(run: Path) -> None:
    about = agent_folder.describe(run, "key")

    assert about == {
        "layout": run_folder.LAYOUT,
        "method": "ilql",
        "task": "wordle",
        "options": {"num_words": 20},
        "design": dataclasses.asdict(Design()),
        "settings": {"longest_action": 6},
        "vocabulary": agent_folder.vocabulary_digest(WordleTokenizer()),
        "folder": str(run / "agent"),
    }


def test_settings_need_no_longest_action(run: Path) -> None:
    change(run, settings={})

    assert agent_folder.load(run).settings == {}


def test_an_agent_of_another_layout_is_refused(run: Path) -> None:
    change(run, layout=0)

    with pytest.raises(
        UserError, match=f"config.key={run}: holds an agent of layout 0, this version reads"
    ):
        agent_folder.describe(run, "key")


def test_an_agent_with_other_tokens_is_refused(run: Path) -> None:
    change(run, vocabulary="another")

    with pytest.raises(
        UserError, match=f"config.key={run}: was trained with other tokens than Wordle has"
    ):
        agent_folder.load(run, "key")


def test_a_training_that_has_not_ended_has_no_agent(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()

    with pytest.raises(
        UserError,
        match=r"must be the run folder of a train_text that has ended, .* has no agent/agent\.json",
    ):
        agent_folder.find(tmp_path, "key")


def test_a_moved_agent_has_its_own_tokenizer(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "hello": 1}, "<unk>"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for named in (tmp_path, tmp_path / "tokenizer.json"):
        text_agents.write(tmp_path / "run", task="visdial", options={"tokenizer": str(named)})
    run = tmp_path / "run"
    (tmp_path / "tokenizer.json").unlink()
    moved = run.rename(tmp_path / "moved")
    assert str(tmp_path) not in (moved / "agent" / "agent.json").read_text()
    assert agent_folder.load(moved).options["tokenizer"] == str(moved / "agent")


class Spelled(TextTask):
    """A task whose option `tokenizer` is no file."""

    defaults = {"tokenizer": "letters"}

    def tokenizer(self) -> Letters:
        return Letters()

    def environment(self) -> TextEnvironment:
        return toy_text.Key()

    def policy(self, name: str) -> TextPolicy:
        raise UserError(f"config.policy={name}: must be None: nobody else plays")


@pytest.mark.parametrize("named", ["letters", "folder"])
def test_a_task_may_mean_something_else_by_a_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    name = f"{__name__}:Spelled"
    monkeypatch.setenv("MOTIF_JAX_TRUST", name)
    options = {"tokenizer": str(tmp_path) if named == "folder" else named}
    run = text_agents.write(tmp_path / "run", Design(q="none"), "bc", name, options)
    assert agent_folder.load(run).options == options
    assert not (run / "agent" / "tokenizer.json").exists()
