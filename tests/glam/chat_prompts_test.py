"""A chat model as the agent: a prompt is the user's turn by its template, and an action the
beginning of the answer.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from motif_jax import lm
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.episode import fixed_actions, play
from motif_jax.glam import clone_behaviour, cloning_data
from motif_jax.glam.config import CloningConfig
from motif_jax.glam.trajectories import FILE, Pairs
from motif_jax.lm import chat_template, folder
from motif_jax.lm import config as language_config
from motif_jax.lm.model import LanguageModel
from motif_jax.rl import agent_networks
from motif_jax.rl.config import AgentConfig, agent_config
from motif_jax.schema import read_section
from tests import chat_families
from tests.lm import talkers
from tests.reward_fixtures import load_config

LEVEL = "BabyAI-GoToLocal-v0"
ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
PROMPT_TOKENS = 900


def write_model(path: Path, family: str) -> Path:
    """A tiny GPT-2 with the tokens and the template of a family of chat models; the tokenizer
    begins texts, too.
    """
    chosen = chat_families.FAMILIES[family]
    chat_families.write(path, chosen, adds_bos=bool(chosen.bos))
    size = Backend.from_file(str(path / "tokenizer.json")).get_vocab_size()
    settings = talkers.GPT2 | {"n_positions": 1000, "vocab_size": size}
    (path / "config.json").write_text(json.dumps(settings))
    model = lm.config.read(path)
    folder.write(path, model, LanguageModel(model).init(jax.random.key(0)))
    return path


@pytest.fixture(scope="module")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("chatml"), "chatml")


def trained(model: Path, **values: Any) -> AgentConfig:
    """The config of an agent whose prompts are turns where that can be."""
    sizes = {"network.model": str(model), "network.prompt_tokens": PROMPT_TOKENS}
    values = {**sizes, "network.chat": "auto", **values}
    return agent_config(load_config("train_language_agent", "smoke", values))


def options_of(agent: AgentConfig) -> dict[str, Any]:
    return agent_networks.class_of(agent).environment_options(agent)


def steps_of(agent: AgentConfig) -> list[dict[str, np.ndarray]]:
    """Observations of an episode's first steps."""
    game = registry.make(LEVEL, fields=("prompt",), **options_of(agent), observations=2)
    steps = [
        {name: rows.copy() for name, rows in transition.observation.items()}
        for transition in play(game, 3, fixed_actions(np.array([0, 1])))
    ]
    game.close()
    return steps


def rendered(model: Path, prompt: str, action: str) -> list[int]:
    """The tokens of the prompt as the template writes it, and of the action as the answer's
    beginning.
    """
    template = chat_template.read(model)
    assert template is not None
    text = template.prompt([{"role": "user", "content": prompt.rstrip(" ")}]) + action
    return (
        Backend.from_file(str(model / "tokenizer.json")).encode(text, add_special_tokens=False).ids
    )


def tokens_in(row: np.ndarray) -> list[int]:
    return row[row >= 0].tolist()


@pytest.mark.parametrize("family", ["chatml", "headers", "instructions"])
def test_the_level_shows_the_tokens_of_the_rendered_template(tmp_path: Path, family: str) -> None:
    model = write_model(tmp_path, family)

    for step in steps_of(trained(model)):
        prompt = decoded(step["prompt"])
        for action, candidate in zip(ACTIONS, step["candidates"], strict=True):
            shown = [*tokens_in(step["tokens"]), *tokens_in(candidate)]
            assert shown == rendered(model, prompt, action)


@pytest.mark.parametrize("family", ["headers", "instructions"])
def test_a_prompt_begins_once_where_template_and_tokenizer_begin_it(
    tmp_path: Path, family: str
) -> None:
    model = write_model(tmp_path, family)
    bos = Backend.from_file(str(model / "tokenizer.json")).token_to_id(
        chat_families.FAMILIES[family].bos
    )

    step = steps_of(trained(model))[0]

    assert (step["tokens"] == bos).sum() == 1
    assert step["tokens"][0] == bos


@pytest.mark.slow
def test_an_agents_logits_are_the_scores_of_its_turns(chatml: Path) -> None:
    agent = trained(chatml)
    spec = registry.spec(LEVEL, **options_of(agent))
    network: Any = agent_networks.class_of(agent).make(agent, spec)
    step = steps_of(agent)[0]
    rows = {name: jnp.asarray(step[name][None]) for name in network.fields}

    logits, _ = jax.jit(network.logits_and_values)(network.init(jax.random.key(0)), **rows)

    turns = [[{"role": "user", "content": decoded(step["prompt"]).rstrip(" ")}]]
    scores = lm.load(str(chatml)).score(turns, list(ACTIONS))
    np.testing.assert_allclose(logits[0], scores[0], atol=1e-3)


def test_cloning_reads_the_tokens_that_acting_does(chatml: Path, tmp_path: Path) -> None:
    agent = trained(chatml)
    steps = steps_of(agent)
    (tmp_path / FILE).write_bytes(b"")
    values = {
        "network.model": str(chatml),
        "network.prompt_tokens": PROMPT_TOKENS,
        "network.chat": "auto",
        "trajectories": str(tmp_path),
    }
    config = read_section(CloningConfig, load_config("clone_behaviour", "", values))
    pairs = Pairs([decoded(step["prompt"]) for step in steps], [0] * len(steps))
    turn = options_of(agent)["prompt_turn"]

    data = cloning_data.load(config, pairs, len(ACTIONS), True, ACTIONS, turn)

    read = data.prompts(np.arange(len(steps)), PROMPT_TOKENS)
    assert data.joint is not None
    for number, step in enumerate(steps):
        assert tokens_in(read[number]) == tokens_in(step["tokens"])
        candidates = data.joint.candidates[data.joint.list_of_prompt[number]]
        for candidate, shown in zip(candidates, step["candidates"], strict=True):
            assert tokens_in(candidate) == tokens_in(shown)


def test_a_clone_ends_actions_as_the_model_ends_turns(tmp_path: Path) -> None:
    """Llama 3 names the end of a text before the end of a turn."""
    model = write_model(tmp_path / "model", "headers")
    backend = Backend.from_file(str(model / "tokenizer.json"))
    ends = [backend.token_to_id("<|end_of_text|>"), backend.token_to_id("<|eot_id|>")]
    model_config = language_config.read(model)
    settings = dataclasses.replace(model_config, end_ids=tuple(ends))

    def end_token(chat: str) -> int:
        values = {"network.model": str(model), "network.chat": chat}
        agent = agent_config(load_config("train_language_agent", "smoke", values))
        return clone_behaviour.end_token(agent, model, settings)

    assert end_token("auto") == ends[1]
    assert end_token("never") == ends[0]


def test_prompts_are_plain_text_by_default(chatml: Path) -> None:
    values = {"network.model": str(chatml), "network.prompt_tokens": PROMPT_TOKENS}
    agent = agent_config(load_config("train_language_agent", "smoke", values))

    assert "prompt_turn" not in options_of(agent)
    remark = agent_networks.class_of(agent).remark(agent)
    assert remark == "prompts: plain text, as they are (config.network.chat=never)"


@pytest.mark.parametrize(
    "values",
    [{"compat.glam_separate_tokens": True}, {"network.policy": "actions"}],
    ids=["apart", "head"],
)
def test_published_prompts_and_heads_read_plain_text(chatml: Path, values: dict[str, Any]) -> None:
    agent = trained(chatml, **values)

    assert "prompt_turn" not in options_of(agent)
    with pytest.raises(
        UserError, match=r"config\.network\.chat='always': must be auto or never: .* not tokenised"
    ):
        options_of(trained(chatml, **{**values, "network.chat": "always"}))


def test_an_encoder_and_decoder_reads_plain_text(tmp_path: Path) -> None:
    model = talkers.write(tmp_path, "t5")

    assert "prompt_turn" not in options_of(trained(model))
    with pytest.raises(
        UserError,
        match=r"config\.network\.chat='always': must be auto or never: .* no chat template",
    ):
        options_of(trained(model, **{"network.chat": "always"}))
