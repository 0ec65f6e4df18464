"""Actions that a decoder scores as its texts go on: tokenised together with their prompts, whose
end may merge with them.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from motif_jax import lm
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.babyai_text.probes import PACKAGE_PROBES, read
from motif_jax.envs.babyai_text.prompts import PromptTokens
from motif_jax.envs.episode import fixed_actions, play
from motif_jax.glam import cloning_data, cloning_task, probing
from motif_jax.glam.config import CloningConfig
from motif_jax.glam.trajectories import FILE, Pairs
from motif_jax.lm import config, folder
from motif_jax.lm.model import LanguageModel
from motif_jax.rl import agent_networks
from motif_jax.rl.config import AgentConfig, agent_config
from motif_jax.schema import read_section
from tests.lm import talkers
from tests.reward_fixtures import load_config
from tests.sets import extra

LEVEL = "BabyAI-GoToLocal-v0"
ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")


def whole_prompts() -> list[str]:
    return [probe.prompt(ACTIONS, "english") for probe in read(PACKAGE_PROBES)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GPT-2 whose byte pairs merge across blanks and colons."""
    path: Path = tmp_path_factory.mktemp("merging")
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    texts = [prompt + action for prompt in whole_prompts() for action in ACTIONS]
    trainer = trainers.BpeTrainer(
        vocab_size=300, show_progress=False, special_tokens=["<pad>", "</s>"]
    )
    backend.train_from_iterator(texts, trainer)
    backend.save(str(path / "tokenizer.json"))
    sizes = {**talkers.GPT2, "n_positions": 320, "vocab_size": backend.get_vocab_size()}
    (path / "config.json").write_text(json.dumps(sizes))
    settings = config.read(path)
    folder.write(path, settings, LanguageModel(settings).init(jax.random.key(0)))
    return path


def trained(model: Path, **switches: bool) -> AgentConfig:
    values = {"network.model": str(model), "network.prompt_tokens": 300}
    values |= {f"compat.{name}": value for name, value in switches.items()}
    return agent_config(load_config("train_language_agent", "smoke", values))


def level_of(agent: AgentConfig, *fields: str) -> Any:
    options = {**agent_networks.class_of(agent).environment_options(agent), "observations": 2}
    return registry.make(LEVEL, fields=fields, **options)


def steps_of(agent: AgentConfig) -> list[dict[str, np.ndarray]]:
    """Observations of an episode's first steps."""
    game = level_of(agent, "prompt")
    actions = fixed_actions(np.array([0, 1, 2, 1, 2]))
    steps = [
        {name: rows.copy() for name, rows in transition.observation.items()}
        for transition in play(game, 3, actions)
    ]
    game.close()
    return steps


def tokens_in(row: np.ndarray) -> list[int]:
    return row[row >= 0].tolist()


def test_the_level_shows_prompt_and_action_tokens_as_one_text(model: Path) -> None:
    backend = Backend.from_file(str(model / "tokenizer.json"))

    for step in steps_of(trained(model)):
        prompt = decoded(step["prompt"])
        assert prompt.endswith(": ")
        for action, candidate in zip(ACTIONS, step["candidates"], strict=True):
            shown = [*tokens_in(step["tokens"]), *tokens_in(candidate)]
            assert shown == backend.encode(prompt + action).ids


def test_an_action_with_a_blank_is_the_action_without_one(model: Path) -> None:
    file = str(model / "tokenizer.json")
    rows = []

    for actions in (ACTIONS, [f" {action}" for action in ACTIONS]):
        tokens = PromptTokens(file, 300, actions=actions)
        out = {name: np.zeros(field.shape, field.dtype) for name, field in tokens.fields.items()}
        tokens.write(whole_prompts()[0], out)
        rows.append(out)

    for name in rows[0]:
        np.testing.assert_array_equal(rows[0][name], rows[1][name])


@pytest.mark.slow
def test_an_agents_logits_are_the_scores_of_whole_texts(model: Path) -> None:
    agent = trained(model)
    network: Any = agent_networks.class_of(agent).make(agent, level_of(agent).spec)
    steps = steps_of(agent)
    fields = {name: np.stack([step[name] for step in steps]) for name in network.fields}
    params = network.init(jax.random.key(0))

    logits, _ = jax.jit(network.logits_and_values)(params, **network.cropped(fields))

    prompts = [decoded(step["prompt"]).rstrip(" ") for step in steps]
    expected = lm.load(model).score(prompts, [f" {action}" for action in ACTIONS])
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_probes_are_asked_as_the_level_asks(model: Path) -> None:
    agent = trained(model)
    network: Any = agent_networks.class_of(agent).make(agent, level_of(agent).spec)
    params = network.init(jax.random.key(0))
    probes = probing.make(agent, network)
    assert probes is not None

    scores = probes.scores(params)

    prompts = [probes.prompt(probe).rstrip(" ") for probe in probes.probes]
    expected = lm.load(model).score(prompts, [f" {action}" for action in ACTIONS])
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


def test_the_published_form_has_one_list_of_actions(model: Path) -> None:
    agent = trained(model, glam_separate_tokens=True)

    network: Any = agent_networks.class_of(agent).make(agent, level_of(agent).spec)

    backend = Backend.from_file(str(model / "tokenizer.json"))
    assert network.fields == ("tokens",)
    assert [
        tokens_in(row) for row in np.where(network.candidates.valid, network.candidates.tokens, -1)
    ] == [backend.encode(action).ids for action in ACTIONS]


def test_t5_has_one_list_of_actions(tmp_path: Path) -> None:
    agent = trained(talkers.write(tmp_path / "t5", "t5"))

    assert "candidates" not in level_of(agent).spec.observation


def test_a_decoder_needs_the_candidates_of_the_level(model: Path) -> None:
    published = trained(model, glam_separate_tokens=True)
    options = agent_networks.class_of(published).environment_options(published)
    agent = trained(model)

    with pytest.raises(
        UserError, match=r"config\.compat\.glam_separate_tokens=False: must be True"
    ):
        agent_networks.class_of(agent).make(agent, registry.spec(LEVEL, **options))


@pytest.mark.parametrize("switch", [False, True])
def test_a_training_records_the_form(switch: bool) -> None:
    config = load_config("train_language_agent", "smoke", {"compat.glam_separate_tokens": switch})

    assert agent_config(config.to_dict()).compat.glam_separate_tokens is switch


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["tokens", extra("candidates")])
def test_a_clone_learns_the_tokens_of_whole_texts(model: Path, tmp_path: Path, loss: str) -> None:
    agent = trained(model)
    network: Any = agent_networks.class_of(agent).make(agent, level_of(agent).spec)
    (tmp_path / FILE).write_text("steps")
    values = {
        "trajectories": str(tmp_path),
        "network.model": str(model),
        "network.prompt_tokens": 300,
    }
    chosen = read_section(
        CloningConfig, load_config("clone_behaviour", "", {**values, "batch_size": 3})
    )
    prompts = whole_prompts()[:4]
    pairs = Pairs(prompts, [0, 3, 5, 1])
    data = cloning_data.load(chosen, pairs, len(ACTIONS), True, ACTIONS)
    by_tokens = loss == cloning_task.TOKENS
    if by_tokens:
        assert data.joint is not None
        network = cloning_task.scoring_targets(network, 1, 0, None)
        data = data._replace(joint=cloning_task.with_targets(data.joint, 1, 0, None))
    batch: Any = jax.tree.map(
        lambda rows: jnp.asarray(rows[0]), cloning_task.CloningBatches(chosen, data).batches(0, 1)
    )
    params = network.init(jax.random.key(0))

    sums = jax.jit(functools.partial(cloning_task.sums, network, by_tokens))(params, {}, batch)

    before = [prompt.rstrip(" ") for prompt in prompts[:3]]
    end = "</s>" if by_tokens else ""
    scores = lm.load(model).score(before, [f" {action}{end}" for action in ACTIONS])
    log_probs = jnp.array(scores) if by_tokens else jax.nn.log_softmax(jnp.array(scores))
    expected = -log_probs[jnp.arange(3), jnp.array([0, 3, 5])].sum()
    np.testing.assert_allclose(sums.loss, expected, rtol=1e-4)
