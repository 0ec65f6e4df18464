"""export:text_agent and export:language_agent: what they write, that our own load and transformers
say the same with it, what they refuse.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open

from motif_jax import lm as language
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.text_agent import Design
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_tokens import TextTokenizer, constant_reward, tokenise
from motif_jax.lm import byte_pairs
from motif_jax.play import agent_policy
from motif_jax.published import exports
from motif_jax.rl import agent_checkpoints, settings
from motif_jax.rl.config import agent_config
from tests import text_agents as made_agents
from tests import tiny_judge
from tests.golden_ilql import dialogue_text
from tests.lm import talkers
from tests.processes import REPOSITORY
from tests.reward_fixtures import load_config, run_stage

GAME = Dialogue(
    ("crane", "<b><b><y><b><b>", "moist", "<g><g><g><g><g>"), (-1.0, None, 0.0, None), True
)
TALK = Dialogue(("Is the dog red?", "Yes, it is.", "Bye"), (None, 1.0, None), False)


def exported_by(kind: str, agent: Path, workdir: Path) -> Path:
    return run_stage("export", workdir, kind, agent=str(agent)) / "model"


def text_agent(folder: Path, kind: str) -> Path:
    if kind == "wordle":
        return made_agents.write(folder / kind)
    tokenizer = folder / f"{kind}_tokens"
    byte_pairs.save(
        tokenizer, byte_pairs.train(["is the dog red?", "yes it is"] * 3, "gpt2", 300), "gpt2"
    )
    return made_agents.write(folder / kind, task="dialogues", options={"tokenizer": str(tokenizer)})


def tokens_of(tokenizer: TextTokenizer, kind: str) -> tuple[str, list[int]]:
    dialogue = GAME if kind == "wordle" else TALK
    return dialogue_text(dialogue), tokenise(
        dialogue, tokenizer, constant_reward(0.0)
    ).tokens.tolist()


def agent_logits(agent: agent_folder.SavedAgent, tokens: list[int]) -> np.ndarray:
    """The policy's logits float32 [T, V] of the agent as it is trained."""
    rows = jnp.asarray([tokens])
    return np.asarray(
        agent.network.readouts(agent.params, rows, jnp.ones(rows.shape, bool)).logits
    )[0]


@pytest.mark.slow
def test_agents_that_transformers_has_no_form_for_are_refused(tmp_path: Path) -> None:
    run = made_agents.write(tmp_path / "dt", Design(q="none", prefix=True), "dt")
    with pytest.raises(UserError, match=r"config\.agent=.*an agent without a prefix"):
        exported_by("text_agent", run, tmp_path / "export")


def language_agent(folder: Path, architecture: str, **values: Any) -> Path:
    """A run of train_language_agent with one checkpoint of random numbers, low-rank additions among
    them.
    """
    config = load_config("train_language_agent", "smoke")
    options = {
        "network.model": str(talkers.write(folder / "base", architecture)),
        "network.prompt_tokens": 160,
    }
    config.update_from_flattened_dict(
        {**options, "lora.patterns": "*/attention/*", "lora.rank": 2, **values}
    )
    run = folder / "run"
    run.mkdir()
    run_folder.write_config(run, run_folder.as_plain(config))
    fresh = settings.make_network(settings.resolved(agent_config(config))).init(jax.random.key(0))
    params = jax.tree.map(
        lambda leaf: jax.random.normal(jax.random.key(leaf.size), leaf.shape) / 3, fresh
    )
    with agent_checkpoints.open_checkpoints(run, 5) as checkpoints:
        metrics = {agent_checkpoints.BEST_METRIC: 1.0}
        agent_checkpoints.save(checkpoints, 64, {"params": params}, {"steps": 64}, metrics, False)
    return run


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "policy"), [("t5", "score"), ("gpt2", "actions")])
def test_an_exported_language_agent_has_merged_weights_and_its_heads(
    architecture: str, policy: str, tmp_path: Path
) -> None:
    run = language_agent(tmp_path, architecture, **{"network.policy": policy})
    folder = exported_by("language_agent", run, tmp_path / "export")
    network: Any = settings.make_network(agent_policy.read_config(run))
    params, _ = agent_policy.restore(run, "latest", network)
    prompt = "you see a red ball"
    opened = language.load(folder)
    logits, value = jax.jit(network.logits_and_values)(
        params, jnp.asarray(opened.tokenizer.encode([prompt]))
    )
    head = exports.ACTION_HEAD
    assert (folder / head).exists() == (policy == "actions")
    if policy == "score":
        np.testing.assert_allclose(
            opened.score([prompt], network.spec.action_names)[0], logits[0], atol=1e-5
        )
    for file, name, expected in ((exports.VALUES, "value", value), (head, "actions", logits)):
        if name not in network.heads.configs:
            continue
        with safe_open(folder / file, framework="numpy") as tensors:
            assert json.loads(tensors.metadata()["about"])["actions"] == list(
                network.spec.action_names
            )
            read: dict[str, Any] = {}
            for key in tensors.keys():  # noqa: SIM118 - it is not a dict
                _, _, layer, part = key.split(".")
                read.setdefault(layer, {})[part] = tensors.get_tensor(key)
        if architecture == "gpt2":
            state = opened.states([prompt])[0][-1:]
            np.testing.assert_allclose(
                network.heads.apply({name: read}, name, jnp.asarray(state))[0], np.ravel(expected)[: len(read["output"]["bias"])], atol=1e-5
            )  # fmt: skip
    assert "merged" in (folder / "README.md").read_text()


OPEN = """
import json, sys
import numpy as np, transformers
for folder, text in json.loads(sys.argv[1]):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    encoded = tokenizer(text, return_tensors="pt")
    logits = model.eval()(**encoded).logits.detach().numpy()[0]
    model.generate(**encoded, do_sample=False)
    np.savez(folder + "/logits.npz", tokens=encoded.input_ids[0].numpy(), logits=logits)
    assert tokenizer.decode(tokenizer.encode(text)) == text, tokenizer.decode(tokenizer.encode(text))
"""


@pytest.mark.extra
@pytest.mark.vllm
def test_transformers_says_the_same(tmp_path: Path) -> None:
    python = REPOSITORY / ".venv-vllm" / "bin" / "python"
    if not python.exists():
        pytest.skip(
            "the environment with transformers is not there: bash launch/setup_vllm_cpu.sh makes it"
        )
    runs = {kind: text_agent(tmp_path, kind) for kind in ("wordle", "bytes")}
    agents = {kind: agent_folder.load(run) for kind, run in runs.items()}
    folders = {
        kind: exported_by("text_agent", run, tmp_path / f"export_{kind}")
        for kind, run in runs.items()
    }
    arguments = [(str(folders[kind]), tokens_of(agents[kind].tokenizer, kind)[0]) for kind in runs]
    environment = {**os.environ, **tiny_judge.ENVIRONMENT}
    command = [str(python), "-c", OPEN, json.dumps(arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for kind, agent in agents.items():
        with np.load(folders[kind] / "logits.npz") as arrays:
            tokens = tokens_of(agent.tokenizer, kind)[1]
            assert arrays["tokens"].tolist() == tokens
            np.testing.assert_allclose(arrays["logits"], agent_logits(agent, tokens), atol=1e-5)
