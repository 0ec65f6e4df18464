"""train_text on a chat model: utterances are the model's own turns in training, in play and in what
is exported.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from motif_jax import lm, text_agents
from motif_jax.core.errors import UserError
from motif_jax.ilql import train_text
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.dialogues import dialogue_files, dialogue_tokens
from motif_jax.ilql.dialogues.dialogue import ROLES, Dialogue
from motif_jax.ilql.dialogues.dialogue_tokens import constant_reward, tokenise
from motif_jax.lm import chat_template
from motif_jax.lm import config as lm_config
from motif_jax.lm.token_data import TokensWriter
from tests import made_up_judge
from tests.ilql import chat_dialogues
from tests.ilql.chat_dialogues import ANSWER, QUESTION
from tests.reward_fixtures import load_config, run_config, run_stage

pytestmark = pytest.mark.slow

CHANGES = {
    "max_steps": 2,
}


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return {**chat_dialogues.write(tmp_path_factory.mktemp("inputs")), **CHANGES}


@pytest.fixture(scope="module")
def printed_run(
    tmp_path_factory: pytest.TempPathFactory, values: Mapping[str, Any]
) -> tuple[Path, str]:
    """A run, and what it printed."""
    config = load_config("train_text", "bc", dict(values))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        workdir = run_config(config, tmp_path_factory.mktemp("run"))
    return workdir, printed.getvalue()


@pytest.fixture(scope="module")
def run(printed_run: tuple[Path, str]) -> Path:
    return printed_run[0]


def test_a_chat_models_agent_has_its_turns_and_tokens(run: Path) -> None:
    agent = agent_folder.load(run)

    assert agent.options["turns"] == "own"
    assert agent.network.model.config.vocab_size == made_up_judge.tokenizer().get_vocab_size()
    spoken = Dialogue((QUESTION["content"],), (None,), False)
    tokens = tokenise(spoken, agent.tokenizer, constant_reward(0.0)).tokens.tolist()
    assert agent.tokenizer.decode(tokens) == (
        "<|im_start|>user\nYou see a key<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.extra
def test_an_agent_keeps_the_rates_of_dropout_of_its_checkpoint(
    values: Mapping[str, Any], run: Path, tmp_path: Path
) -> None:
    checkpoint = lm_config.read(values["network.checkpoint"])
    assert agent_folder.load(run).network.model.config.dropout == checkpoint.dropout

    begun = {**values, "network.checkpoint": None, "initial.policy": str(run), "dropout": 0.25}
    after = run_stage("train_text", tmp_path, "bc", **begun)
    assert agent_folder.load(after).network.model.config.dropout == checkpoint.dropout


def test_an_agent_of_a_chat_model_speaks_and_ranks(run: Path) -> None:
    agent = text_agents.load(run)

    assert isinstance(agent.say([QUESTION], seed=1), str)
    assert isinstance(agent.say([QUESTION, ANSWER], seed=1), str)
    assert isinstance(agent.say([], seed=1), str)


def test_held_out_dialogues_are_read_back_as_texts(run: Path, tmp_path: Path) -> None:
    run_config(load_config("evaluate_text", "", {"agent": str(run), "show": 1}), tmp_path)

    dialogues = dialogue_files.read_parquet(tmp_path / "dialogues.parquet")
    assert {dialogue.texts for dialogue in dialogues} == {(QUESTION["content"], ANSWER["content"])}


def test_a_run_inherits_the_turns_of_its_initial_run(
    values: Mapping[str, Any], run: Path, tmp_path: Path
) -> None:
    begun = {**values, "network.checkpoint": None, "initial.policy": str(run)}
    train_text.check(load_config("train_text", "bc", begun), tmp_path)

    other = load_config("train_text", "bc", {**begun, "turns": "new"})
    with pytest.raises(
        UserError, match=r"config\.turns='new': must be auto, or own as in config\.initial\.policy"
    ):
        train_text.check(other, tmp_path)


def test_other_tasks_have_no_turns_of_a_model(tmp_path: Path) -> None:
    config = load_config("train_text", "wordle_bc", {"turns": "own"})

    with pytest.raises(
        UserError, match=r"config\.turns=own: must be auto or new with config\.task=wordle"
    ):
        train_text.check(config, tmp_path)


def test_an_export_reads_its_template_as_training_did(run: Path, tmp_path: Path) -> None:
    model = run_stage("export", tmp_path, "text_agent", agent=str(run)) / "model"

    template = chat_template.read(model)
    assert template is not None
    assert template.text == made_up_judge.CHATML
    rendered = template.prompt([QUESTION])
    opened = lm.load(model)
    agent = agent_folder.load(run)
    spoken = Dialogue((QUESTION["content"],), (None,), False)
    tokens = tokenise(spoken, agent.tokenizer, constant_reward(0.0)).tokens.tolist()
    assert opened.tokenizer.encode([rendered]) == [tokens]
    assert opened.model.config.end_ids == (agent.tokenizer.delimiters.action_end,)


def test_an_export_plays_as_an_agent_with_its_turns(run: Path, tmp_path: Path) -> None:
    model = run_stage("export", tmp_path / "export", "text_agent", agent=str(run)) / "model"
    values = {
        "agent": str(model),
        "task": "tests.toy_text:Task",
        "decode.max_tokens": 3,
        "episodes": 2,
        "lanes": 2,
    }

    run_config(load_config("evaluate_text", "wordle", values), tmp_path / "played")

    assert (tmp_path / "played" / "evaluation.json").is_file()


def test_a_system_message_is_read_back_as_such(run: Path, tmp_path: Path) -> None:
    tokenizer = agent_folder.load(run).tokenizer
    roles = {ROLES: ["system", "user", "assistant"]}
    guided = Dialogue(("You kill", "You see a key", "You kill it"), (None, None, 1.0), True, roles)
    plain = Dialogue(("You see a key", "You kill it"), (None, 1.0), True)
    items = [tokenise(dialogue, tokenizer, constant_reward(0.0)) for dialogue in (guided, plain)]
    columns = (dialogue_tokens.TOKEN_COLUMNS, dialogue_tokens.ITEM_COLUMNS)
    with TokensWriter(tmp_path, tokenizer.size, "", *columns) as writer:
        for item in items:
            dialogue_tokens.add_item(writer, item, 1.0)
        writer.commit()

    read = list(dialogue_tokens.stored_dialogues(tmp_path, tokenizer, constant_reward(0.0)))

    assert [dialogue.texts for dialogue in read] == [guided.texts, plain.texts]
    for dialogue, item in zip(read, items, strict=True):
        again = tokenise(dialogue, tokenizer, constant_reward(0.0)).tokens
        assert again.tolist() == item.tokens.tolist()


@pytest.mark.extra
def test_an_export_plays_in_a_dialogue_files_environment(run: Path, tmp_path: Path) -> None:
    """Its task has no tokenizer, and its training data are gone."""
    model = run_stage("export", tmp_path / "export", "text_agent", agent=str(run)) / "model"
    options = {"environment": "tests.toy_text:Key", "data": str(tmp_path / "gone.jsonl")}
    values = {
        "agent": str(model),
        "task": "dialogues",
        "options": json.dumps(options),
        "decode.max_tokens": 3,
        "episodes": 2,
    }

    run_config(load_config("evaluate_text", "", values), tmp_path / "played")

    assert json.loads((tmp_path / "played" / "evaluation.json").read_text())["measures"]["return"]
