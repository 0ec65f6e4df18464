"""Writes a language agent as a folder for transformers and vLLM, its value and action heads beside it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from motif_jax.support import config as checks
from motif_jax.support import run_folder
from motif_jax.support.files import replaced_folder
from motif_jax.support.locks import FolderLock

if TYPE_CHECKING:
    from motif_jax.language.agent import LanguageAgent


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError if there is no such agent or checkpoint, or the work folder is another stage's."""
    from motif_jax.rollouts import agent_policy

    run_folder.check_identity(workdir, config)
    folder = checks.existing_folder(config, "agent")
    kind = agent_policy.read_config(folder).network.get("kind")
    allowed = "a run of train_language_agent or clone_behaviour whose config.network.kind is 'language'"
    checks.require(kind == "language", "agent", config.agent, allowed)
    agent_policy.find_step(folder, config.checkpoint)


def run(config: ConfigDict, workdir: Path) -> None:
    """Reads the checkpoint and writes the folder."""
    from motif_jax.language import exported
    from motif_jax.language.text import fetch
    from motif_jax.rl import settings
    from motif_jax.rollouts import agent_policy

    trained = agent_policy.read_config(config.agent)
    network: Any = settings.make_network(trained)
    params, step = agent_policy.restore(config.agent, config.checkpoint, network)
    with FolderLock(workdir):
        run_folder.prepare(workdir, config)
        with replaced_folder(workdir / exported.MODEL) as part:
            source = fetch(trained.network.model, "network.model")
            write(part, network, params, source, f"{trained.environment.name}, step {step:,}")
    print(f"step {step} of {config.agent}: {(workdir / exported.MODEL).resolve()}")


def write(folder: Path, network: LanguageAgent, params: Any, source: Path, learned: str) -> None:
    """Writes an agent into an empty folder.

    Args:
      folder: is filled.
      network, params: of the agent, what is frozen among them.
      source: folder of its language model, whose tokenizer is copied.
      learned: where it was trained and for how long, for the card.
    """
    from motif_jax.language import agent, exported
    from motif_jax.language import folder as folders
    from motif_jax.language.tokens import Tokenizer

    settings = network.model.config
    whole, _ = network.adaptation.whole(params, {})
    for name in folders.TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    if not (folder / exported.TOKENIZER_CONFIG).exists():
        exported.write_tokenizer_config(folder, settings)
    named = {"value": exported.VALUES, agent.ACTIONS: exported.ACTION_HEAD}
    for name, head in network.heads.configs.items():
        about = {"heads": {name: dataclasses.asdict(head)}, "actions": list(network.spec.action_names)}
        exported.write_tensors(folder / named[name], {"heads": {name: params["heads"][name]}}, about)
    longest = max(map(len, Tokenizer.read(folder).encode(network.spec.action_names)), default=1)
    generation = {"do_sample": False, "max_new_tokens": longest}
    exported.write(folder, settings, whole, generation, _card(network, learned))


def _card(network: LanguageAgent, learned: str) -> str:
    from motif_jax.language import agent, exported

    front, use = exported.opening(network.model.config, "PROMPT", "glam")
    actions = ", ".join(network.spec.action_names)
    if agent.ACTIONS in network.heads.configs:
        chosen = "`action_head.safetensors` has a head whose outputs are the logits of the actions, in this order; transformers and vLLM do not read it."
    else:
        form = f"form `{network.form}`{', divided by its number of tokens' if network.by_length else ''}"
        chosen = f"An action's logit is the score of its words behind the prompt ({form}): actions are scored, not written freely."
    return f"""{front}
# A language model that acts: {learned}

motif_jax trained this model by GLAM's method: it reads a prompt and chooses among the actions {actions}. {chosen}
`values.safetensors` has the value head. Both heads read the last hidden state, after the last norm, from which the first token of an action is predicted; kernels are
[inputs, outputs]. Low-rank additions, if there were any, are merged into the weights.

{use}"""
