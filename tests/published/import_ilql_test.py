"""Published checkpoints of ILQL as run folders: every part lands where it belongs, and what does
not fit is refused.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.text_agent import POLICY
from motif_jax.published import import_ilql as stage
from tests import torch_files
from tests.reward_fixtures import load_config, run_config

pytestmark = pytest.mark.torch

WIDTH = 8
LAYERS = 2
TOKENS = 35
POSITIONS = 16


def trunk(rng, start, width=WIDTH):
    """A GPT-2's tensors as transformers 4.16 saves them, masks and all."""
    sizes = {"wte.weight": (TOKENS, width), "wpe.weight": (POSITIONS, width)}
    for name in (
        "ln_f",
        *(f"h.{layer}.ln_{number}" for layer in range(LAYERS) for number in (1, 2)),
    ):
        sizes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    for layer in range(LAYERS):
        for name, inside, outside in (
            ("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width), ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width),
        ):  # fmt: skip
            sizes |= {
                f"h.{layer}.{name}.weight": (inside, outside),
                f"h.{layer}.{name}.bias": (outside,),
            }
    tensors = {
        f"{start}transformer.{name}": rng.normal(0, 0.3, shape).astype(np.float32)
        for name, shape in sizes.items()
    }
    for layer in range(LAYERS):
        tensors[f"{start}transformer.h.{layer}.attn.bias"] = np.ones(
            (1, 1, POSITIONS, POSITIONS), np.uint8
        )
        tensors[f"{start}transformer.h.{layer}.attn.masked_bias"] = np.array(-1e4, np.float32)
    tensors[f"{start}lm_head.weight"] = tensors[f"{start}transformer.wte.weight"]
    return tensors


def head(rng, start, outputs):
    inner = 2 * WIDTH
    sizes = {
        "0.weight": (inner, WIDTH),
        "0.bias": (inner,),
        "2.weight": (outputs, inner),
        "2.bias": (outputs,),
    }
    return {
        f"{start}.{name}": rng.normal(0, 0.3, shape).astype(np.float32)
        for name, shape in sizes.items()
    }


def ilql(outputs=TOKENS):
    rng = np.random.default_rng(0)
    tensors = (
        trunk(rng, "model.")
        | trunk(rng, "lm_policy.")
        | trunk(rng, "lm_target.")
        | head(rng, "v", 1)
    )
    for name in ("q", "q2", "target_q", "target_q2"):
        tensors |= head(rng, name, outputs)
    return tensors | {
        "pi.weight": tensors["lm_policy.lm_head.weight"],
        "extra.weight": np.zeros(2, np.float32),
    }


def config_of(tmp_path, content=None, **values):
    """The config of an import of `content`, tensors by name, which is written first; None imports
    the file in `tmp_path`.
    """
    path = tmp_path / "model.pkl"
    if content is not None:
        torch_files.write(path, content)
    return load_config("import", "ilql", {"file": str(path), "heads": 2, **values})


def imported(tmp_path, content, **values):
    return agent_folder.load(run_config(config_of(tmp_path, content, **values), tmp_path / "run"))


def chai():
    draws = np.random.default_rng(0)
    tensors = trunk(draws, "lm_policy.")
    for name in ("q", "q2", "target_q", "target_q2"):
        tensors |= head(draws, name, 1)
    return tensors


def decision_transformer():
    prefix = np.arange(WIDTH, dtype=np.float32)
    more = {"reward_emb.weight": prefix[:, None], "reward_emb.bias": prefix}
    return trunk(np.random.default_rng(1), "model.") | more


CLONE = trunk(np.random.default_rng(1), "module.model.")


@pytest.mark.parametrize(
    ("content", "method", "q", "has_prefix"),
    [
        (CLONE, "bc", "none", False),
        (decision_transformer(), "dt", "none", True),
        (ilql(outputs=1), "ilql_utterance", "utterance", False),
        (chai(), "chai", "mean", False),
    ],
    ids=["bc", "dt", "ilql_utterance", "chai"],
)
def test_the_method_of_an_agent_is_known_by_its_parts(content, method, q, has_prefix, tmp_path):
    config = config_of(tmp_path, content)

    design = stage.read_agent(tmp_path / "model.pkl", 2).design

    assert design.q == q
    assert design.prefix == has_prefix
    assert stage.method_of(config, design) == method


@pytest.mark.parametrize(
    ("content", "keys", "name"),
    [
        (CLONE, ("trunks", POLICY, "embedding"), "module.model.transformer.wte.weight"),
        (decision_transformer(), ("prefix", "kernel"), "reward_emb.bias"),
        (ilql(outputs=1), ("heads", "q1", "output", "bias"), "q.2.bias"),
        (chai(), ("target_heads", "q2", "output", "bias"), "target_q2.2.bias"),
    ],
    ids=["bc", "dt", "ilql_utterance", "chai"],
)
def test_a_tensor_of_each_method_lands_in_its_part(content, keys, name, tmp_path):
    config_of(tmp_path, content)

    params = stage.read_agent(tmp_path / "model.pkl", 2).params

    part = functools.reduce(lambda tree, key: tree[key], keys, params)
    np.testing.assert_array_equal(part, content[name])


HEAD = "module.model.lm_head.weight"


def test_a_head_that_is_the_embedding_or_absent_is_tied(tmp_path):
    for content in (CLONE, {name: value for name, value in CLONE.items() if name != HEAD}):
        config_of(tmp_path, content)

        agent = stage.read_agent(tmp_path / "model.pkl", 2)

        assert agent.config.tied
        assert "head" not in agent.params["trunks"][POLICY]


def test_a_head_of_its_own_is_kept(tmp_path):
    own_head = CLONE[HEAD] + 1
    config_of(tmp_path, {**CLONE, HEAD: own_head})

    agent = stage.read_agent(tmp_path / "model.pkl", 2)

    assert not agent.config.tied
    np.testing.assert_array_equal(agent.params["trunks"][POLICY]["head"]["kernel"].T, own_head)


def without(part):
    return {name: value for name, value in ilql().items() if part not in name}


DRAWS = np.random.default_rng(2)
REFUSED = [
    (without("h.1.ln_1.bias"), {}, "ln_1.bias: absent saved"),
    (ilql() | trunk(DRAWS, "lm_policy.", 2 * WIDTH), {}, "heads do not fit its trunks"),
    (ilql() | head(DRAWS, "q", 7), {}, "heads do not fit its trunks"),
    (ilql(), {"method": "dt"}, "has the parts of ilql"),
    (ilql(), {"task": "tests.toy_text:Task"}, "has 35 tokens, the task tests.toy_text:Task has 32"),
]


@pytest.mark.parametrize(("content", "values", "line"), REFUSED)
def test_a_pickle_that_does_not_fit_is_refused(tmp_path, content, values, line):
    with pytest.raises(UserError, match=re.escape(line)):
        imported(tmp_path, content, **values)

    assert not (tmp_path / "run" / "agent").exists()
