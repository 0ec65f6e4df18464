"""Published checkpoints of ILQL as run folders: every part lands where it belongs, and what does not fit is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.language.text_agent import POLICY, TARGET, VALUES
from motif_jax.published import ilql_checkpoint
from motif_jax.stages import import_ilql as stage
from motif_jax.support import resources
from motif_jax.support.errors import UserError
from motif_jax.trainers import agent_folder
from tests import torch_files
from tests.reward_fixtures import run_config

WIDTH, LAYERS, TOKENS, POSITIONS = 8, 2, 35, 16


def numbers(shape, rng):
    return rng.normal(0, 0.3, shape).astype(np.float32)


def trunk(rng, start, width=WIDTH):
    """A GPT-2's tensors as transformers 4.16 saves them, masks and all."""
    sizes = {"wte.weight": (TOKENS, width), "wpe.weight": (POSITIONS, width)}
    for name in ("ln_f", *(f"h.{layer}.ln_{place}" for layer in range(LAYERS) for place in (1, 2))):
        sizes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    for layer in range(LAYERS):
        for name, inside, outside in (
            ("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width), ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width),
        ):  # fmt: skip
            sizes |= {f"h.{layer}.{name}.weight": (inside, outside), f"h.{layer}.{name}.bias": (outside,)}
    found = {f"{start}transformer.{name}": numbers(shape, rng) for name, shape in sizes.items()}
    for layer in range(LAYERS):
        found[f"{start}transformer.h.{layer}.attn.bias"] = np.ones((1, 1, POSITIONS, POSITIONS), np.uint8)
        found[f"{start}transformer.h.{layer}.attn.masked_bias"] = np.array(-1e4, np.float32)
    found[f"{start}lm_head.weight"] = found[f"{start}transformer.wte.weight"]
    return found


def head(rng, start, outputs):
    inner = 2 * WIDTH
    sizes = {
        "0.weight": (inner, WIDTH),
        "0.bias": (inner,),
        "2.weight": (outputs, inner),
        "2.bias": (outputs,),
    }
    return {f"{start}.{name}": numbers(shape, rng) for name, shape in sizes.items()}


def ilql(outputs=TOKENS):
    rng = np.random.default_rng(0)
    found = trunk(rng, "model.") | trunk(rng, "lm_policy.") | trunk(rng, "lm_target.") | head(rng, "v", 1)
    for name in ("q", "q2", "target_q", "target_q2"):
        found |= head(rng, name, outputs)
    return found | {"pi.weight": found["lm_policy.lm_head.weight"], "extra.weight": np.zeros(2, np.float32)}


def chai():
    rng = np.random.default_rng(0)
    found = trunk(rng, "lm_policy.")
    for name in ("q", "q2", "target_q", "target_q2"):
        found |= head(rng, name, 1)
    return found | {"pi.weight": found["lm_policy.lm_head.weight"]}


def config_of(tmp_path, content=None, **values):
    """Of the import of a file with `content`, or of the one that is there."""
    path = tmp_path / "model.pkl"
    if content is not None:
        torch_files.write(path, {name: torch_files.tensor(array) for name, array in content.items()})
    config = resources.config("import_ilql")
    config.update({"file": str(path), "heads": 2, **values})
    return config


def imported(tmp_path, content, **values):
    config = config_of(tmp_path, content, **values)
    return agent_folder.load(run_config(config, tmp_path / "run"))


@pytest.mark.slow
def test_every_part_lands_where_it_belongs(tmp_path, capsys):
    content = ilql()
    agent = imported(tmp_path, content)
    assert (agent.method, agent.task_name) == ("ilql", "wordle")
    assert agent.settings["discount"] == 0.99
    for name, start in ((VALUES, "model."), (POLICY, "lm_policy."), (TARGET, "lm_target.")):
        found = agent.params["trunks"][name]
        np.testing.assert_array_equal(found["embedding"], content[f"{start}transformer.wte.weight"])
        key = found["decoder"]["block_1"]["attention"]["key"]["kernel"]
        np.testing.assert_array_equal(
            key, content[f"{start}transformer.h.1.attn.c_attn.weight"][:, WIDTH : 2 * WIDTH]
        )
    for place, name, start in (
        ("heads", "v", "v"), ("heads", "q1", "q"), ("heads", "q2", "q2"), ("target_heads", "q1", "target_q"), ("target_heads", "q2", "target_q2"),
    ):  # fmt: skip
        layers = agent.params[place][name]
        for layer, number in (("hidden_0", 0), ("output", 2)):
            np.testing.assert_array_equal(layers[layer]["kernel"], content[f"{start}.{number}.weight"].T)
            np.testing.assert_array_equal(layers[layer]["bias"], content[f"{start}.{number}.bias"])
    said = capsys.readouterr().out
    assert "not used: extra.weight" in said
    run_config(config_of(tmp_path), tmp_path / "run")
    assert "already" in capsys.readouterr().out
    with pytest.raises(UserError, match="holds another import"):
        stage.check(config_of(tmp_path, discount=0.5), tmp_path / "run")
    tokens, valid = jnp.zeros((1, 4), jnp.int32), jnp.ones((1, 4), bool)
    out = agent.network.run(jax.tree.map(jnp.asarray, agent.params), tokens, valid)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(out))


@pytest.mark.slow
def test_a_policy_alone(tmp_path):
    content = trunk(np.random.default_rng(1), "module.model.")
    agent = imported(tmp_path, content)
    assert agent.method == "bc"
    assert list(agent.params["trunks"]) == [POLICY]
    np.testing.assert_array_equal(
        agent.params["trunks"][POLICY]["embedding"], content["module.model.transformer.wte.weight"]
    )


def test_a_decision_transformer():
    rng = np.random.default_rng(1)
    content = trunk(rng, "model.") | {
        "reward_emb.weight": numbers((WIDTH, 1), rng),
        "reward_emb.bias": numbers(WIDTH, rng),
    }
    found = ilql_checkpoint._assembled(content, 2)
    assert found.design.prefix
    np.testing.assert_array_equal(found.params["prefix"]["kernel"], content["reward_emb.weight"][:, 0])


def test_utterances_have_one_value():
    found = ilql_checkpoint._assembled(ilql(outputs=1), 2)
    assert found.design.q == "utterance"


@pytest.mark.slow
def test_candidates_have_one_value_on_the_policys_trunk(tmp_path):
    content = chai()
    agent = imported(tmp_path, content)
    assert (agent.method, list(agent.params["trunks"])) == ("chai", [VALUES])
    assert set(agent.params["heads"]) == {"q1", "q2"}
    np.testing.assert_array_equal(
        agent.params["target_heads"]["q2"]["output"]["kernel"], content["target_q2.2.weight"].T
    )
    found = agent.network.look(agent.params, jnp.zeros((1, 4), jnp.int32), jnp.ones((1, 4), bool))
    assert found.target_q.shape == (1, 4)


def refused(tmp_path, content, **values):
    with pytest.raises(UserError) as error:
        imported(tmp_path, content, **values)
    assert not (tmp_path / "run" / "agent").exists()
    return str(error.value)


@pytest.mark.slow
def test_what_does_not_fit(tmp_path):
    content = ilql()
    assert "no tensor named model" in refused(tmp_path, {"other": np.zeros(2, np.float32)})
    without = {name: value for name, value in content.items() if name != "v.0.bias"}
    assert "v.0.bias" in refused(tmp_path, without)
    without = {name: value for name, value in content.items() if "h.1.ln_1.bias" not in name}
    assert "ln_1.bias is missing" in refused(tmp_path, without)
    rng = np.random.default_rng(2)
    assert "different sizes" in refused(tmp_path, content | trunk(rng, "lm_policy.", 2 * WIDTH))
    assert "does not divide into 3 heads" in refused(tmp_path, content, heads=3)
    assert "heads do not fit" in refused(tmp_path, content | head(rng, "q", 7))
    assert "config.task=chess" in refused(tmp_path, content, task="chess")
    assert "config.method='dqn': must be one of" in refused(tmp_path, content, method="dqn")
    assert "has the parts of ilql" in refused(tmp_path, content, method="dt")
    assert "config.options=" in refused(tmp_path, content, options="[")
    assert "config.file=" in refused(tmp_path, content, file="nowhere")
    assert "has 35 tokens, the task tests.toy_text:Task has 32" in refused(
        tmp_path, content, task="tests.toy_text:Task"
    )
