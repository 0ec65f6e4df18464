"""Writes the policy of an agent that speaks as a folder for transformers and vLLM, its values beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from motif_jax.support import config as checks
from motif_jax.support import run_folder
from motif_jax.support.errors import UserError
from motif_jax.support.files import replaced_folder
from motif_jax.support.locks import FolderLock

if TYPE_CHECKING:
    from motif_jax.trainers.agent_folder import SavedAgent


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError if there is no such agent, it has no form that transformers knows, or the work folder is another stage's."""
    from motif_jax.envs.text import registry
    from motif_jax.trainers import agent_folder

    run_folder.check_identity(workdir, config)
    about = agent_folder.describe(checks.existing_folder(config, "agent"), "agent")
    if about["design"]["prefix"]:
        allowed = "an agent without a prefix: a decision transformer reads its return as an embedding, which transformers does not"
        checks.require(False, "agent", config.agent, allowed)
    agent_folder.network_of(about)
    tokenizer = registry.make(about["task"], agent_folder.options_of(about)).tokenizer()
    if not hasattr(tokenizer, "save"):
        raise UserError(
            f"config.agent={config.agent}: the tokenizer of {about['task']} has no method save(folder) that writes a tokenizer.json"
        )


def run(config: ConfigDict, workdir: Path) -> None:
    """Reads the agent and writes the folder."""
    from motif_jax.language import exported
    from motif_jax.trainers import agent_folder

    agent = agent_folder.load(config.agent)
    with FolderLock(workdir):
        run_folder.prepare(workdir, config)
        with replaced_folder(workdir / exported.MODEL) as part:
            write(part, agent)
    print(f"{agent.method} of {config.agent}: {(workdir / exported.MODEL).resolve()}")


def write(folder: Path, agent: SavedAgent) -> None:
    """Writes an agent's policy, values, tokenizer and card into an empty folder."""
    from motif_jax.datasets.dialogues.items import DELIMITER_TEXTS
    from motif_jax.language import exported
    from motif_jax.language.text_agent import POLICY

    marks, design = agent.tokenizer.delimiters, agent.network.design
    settings = dataclasses.replace(
        agent.network.model.config, pad_id=marks.pad, start_id=marks.state_start, end_ids=(marks.action_end,)
    )
    saved: Any = agent.tokenizer
    saved.save(folder)
    exported.split_at_special_tokens(folder / exported.TOKENIZER)
    exported.write_tokenizer_config(folder, settings, DELIMITER_TEXTS)
    policy = design.roles.trunk_of[POLICY]
    if design.qs:
        others = {name: trunk for name, trunk in agent.params["trunks"].items() if name != policy}
        tree = {"trunks": others, **{part: agent.params[part] for part in ("heads", "target_heads")}}
        heads = {name: dataclasses.asdict(head) for name, head in agent.network.heads.configs.items()}
        about = {
            "design": dataclasses.asdict(design), "trunk_of": dict(design.roles.trunk_of), "heads": heads, "settings": agent.settings
        }  # fmt: skip
        exported.write_tensors(folder / exported.VALUES, tree, about)
    longest = agent.settings.get("longest_action")
    generation = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    generation |= {"max_new_tokens": longest} if longest else {}
    exported.write(folder, settings, agent.params["trunks"][policy], generation, _card(agent, settings))


def _card(agent: SavedAgent, settings: Any) -> str:
    from motif_jax.language import exported

    front, use = exported.opening(settings, "<s>TEXT</s>", agent.method)
    text = f"""{front}
# An agent that speaks: {agent.method} on {agent.task_name}

motif_jax trained this agent from recorded dialogues with the method `{agent.method}`. The model is its policy.

## Dialogues

`<s>` begins a dialogue whose first utterance is the other side's, `<a>` one whose first is the agent's. `</s>` ends an utterance of the other
side, `</a>` one of the agent, `</eod>` the dialogue. Nothing stands between an utterance and its delimiters. After `<s>TEXT</s>` the model writes its
answer, up to `</a>`. Remove delimiters from the texts of users: in this tokenizer they are tokens.

{use}"""
    return text + _values_section(agent.settings) if agent.network.design.qs else text


def _values_section(settings: Mapping[str, Any]) -> str:
    return f"""
## Values

transformers and vLLM speak without the values: by the policy alone. `values.safetensors` has Q and V (`heads`), the target Q (`target_heads`) and the trunks
that they read, where these are not the policy's (`trunks`); `trunk_of` in its metadata says which. Kernels are [inputs, outputs]. motif_jax
adds advantage_weight x (Q - V) to the policy's logits; its own agent folder opens with `motif_jax.text_agents.load`. The discount was {settings.get("discount")}.
"""
