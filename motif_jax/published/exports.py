"""Exports a reward as safetensors, agents as folders for transformers and vLLM."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text, replaced_folder
from motif_jax.core.locks import FolderLock
from motif_jax.glam import agent, prompt_forms
from motif_jax.glam.agent import LanguageAgent
from motif_jax.glam.config import LanguagePolicy
from motif_jax.ilql.agent import agent_folder, exported
from motif_jax.ilql.agent.agent_folder import SavedAgent
from motif_jax.ilql.agent.text_agent import POLICY
from motif_jax.ilql.dialogues.items import DELIMITER_TEXTS, Delimiters
from motif_jax.ilql.tasks import registry
from motif_jax.lm import folder as folders
from motif_jax.lm.chat_template import ChatTemplate
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer
from motif_jax.motif.reward import safetensors_file
from motif_jax.motif.reward.reward_model import read_run
from motif_jax.play import agent_policy
from motif_jax.published import model_card
from motif_jax.published.config import (
    EXPORTS,
    ExportLanguageAgentConfig,
    ExportRewardConfig,
    ExportTextAgentConfig,
)
from motif_jax.rl import agent_networks, choices, settings
from motif_jax.schema import read_section

REWARD = "reward.safetensors"
CARD = "README.md"


def _export_reward(config: ExportRewardConfig, workdir: Path) -> None:
    reward = read_run(config.reward.dir or "", config.reward.step)
    card = model_card.render(reward, config.licence, config.notes)
    safetensors_file.write_safetensors(reward, workdir / REWARD)
    atomic_write_text(workdir / CARD, card)
    print(f"evaluation {reward.step} of {config.reward.dir}: {(workdir / REWARD).resolve()}")


def _check_language_agent(config: ExportLanguageAgentConfig) -> None:
    folder = checks.existing_folder(config, "agent")
    kind = agent_networks.kind_of(agent_policy.read_config(folder))
    allowed = (
        "a run of train_language_agent or clone_behaviour whose config.network.kind is 'language'"
    )
    checks.require_key(config, "agent", kind == choices.LANGUAGE, allowed)
    agent_policy.find_step(folder, config.checkpoint)


def _export_language_agent(config: ExportLanguageAgentConfig, workdir: Path) -> None:
    folder = config.agent or ""
    trained = agent_policy.read_config(folder)
    assert isinstance(trained.network, LanguagePolicy), "checked"
    network: Any = settings.make_network(trained)
    params, step = agent_policy.restore(folder, config.checkpoint, network)
    with replaced_folder(workdir / exported.MODEL) as part:
        source = fetch(trained.network.model, "network.model")
        learned = f"{trained.environment.name}, step {step:,}"
        in_turns = prompt_forms.template_of(trained.network, trained.compat, source) is not None
        write_language_agent(part, network, params, source, learned, in_turns)
    print(f"step {step} of {folder}: {(workdir / exported.MODEL).resolve()}")


def write_language_agent(
    folder: Path,
    network: LanguageAgent,
    params: Any,
    source: Path,
    learned: str,
    in_turns: bool = False,
) -> None:
    """Writes an agent into an empty folder, with the tokenizer of the folder `source`.

    The card says what it `learned`, and whether its prompts are turns of the model's chat template
    (`in_turns`).
    """
    settings = network.model.config
    # transformers and vLLM read plain weights: low-rank additions are added to theirs.
    merged, _ = network.adaptation.merged_params(params, {})
    for name in folders.TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    if not (folder / exported.TOKENIZER_CONFIG).exists():
        exported.write_tokenizer_config(folder, settings)
    named = {"value": exported.VALUES, agent.ACTIONS: exported.ACTION_HEAD}
    for name, head in network.heads.configs.items():
        about = {
            "heads": {name: dataclasses.asdict(head)},
            "actions": list(network.spec.action_names),
        }
        exported.write_tensors(
            folder / named[name], {"heads": {name: params["heads"][name]}}, about
        )
    # Generation would go on after an action: none has more tokens.
    longest = max(map(len, Tokenizer.read(folder).encode(network.spec.action_names)), default=1)
    generation = {"do_sample": False, "max_new_tokens": longest}
    exported.write(folder, settings, merged, generation, _language_card(network, learned, in_turns))


def _language_card(network: LanguageAgent, learned: str, in_turns: bool) -> str:
    front, use = exported.opening(network.model.config, "PROMPT", "glam")
    actions = ", ".join(network.spec.action_names)
    if agent.ACTIONS in network.heads.configs:
        chosen = "`action_head.safetensors` has a head whose outputs are the logits of the actions, in this order; transformers and vLLM do not read it."
    else:
        form = f"form `{network.form}`{', divided by its number of tokens' if network.by_length else ''}"
        chosen = f"An action's logit is the score of its words after the prompt ({form}): actions are scored, not written freely. {_meeting(network, in_turns)}"
    return f"""{front}
# A language model that acts: {learned}

motif_jax trained this model by GLAM's method: it reads a prompt and chooses among the actions {actions}. {chosen}
`values.safetensors` has the value head. Both heads read the last hidden state, after the last norm, from which the first token of an action is predicted; kernels are
[inputs, outputs]. Low-rank additions, if there were any, are merged into the weights.

{use}"""


def _meeting(network: LanguageAgent, in_turns: bool) -> str:
    """How prompt and action meet, in words."""
    if network.model.config.encoder_layers:
        return "The encoder reads the prompt, and the decoder the action."
    if in_turns:
        return (
            "A prompt is the user's turn by the model's chat template (`tokenizer.apply_chat_template` with `add_generation_prompt=True`), the action "
            "the beginning of the assistant's, without a blank before it; both are tokenised together, with `add_special_tokens=False`."
        )
    if network.is_joint:
        return "Prompt and action are tokenised together, as one text with one blank between them."
    return "Actions are tokenised by themselves, without the blank before them, after a prompt that ends with one."


def _check_text_agent(config: ExportTextAgentConfig) -> None:
    about = agent_folder.describe(checks.existing_folder(config, "agent"), "agent")
    allowed = "an agent without a prefix: a decision transformer reads its return as an embedding, which transformers does not"
    checks.require_key(config, "agent", not about["design"]["prefix"], allowed)
    agent_folder.network_of(about)
    tokenizer = registry.make(about["task"], agent_folder.options_of(about)).tokenizer()
    if not hasattr(tokenizer, "save"):
        raise UserError(
            f"config.agent={config.agent}: the tokenizer of {about['task']} has no method save(folder) that writes a tokenizer.json"
        )


def _export_text_agent(config: ExportTextAgentConfig, workdir: Path) -> None:
    agent = agent_folder.load(config.agent or "")
    with replaced_folder(workdir / exported.MODEL) as part:
        write_text_agent(part, agent)
    print(f"{agent.method} of {config.agent}: {(workdir / exported.MODEL).resolve()}")


def write_text_agent(folder: Path, agent: SavedAgent) -> None:
    marks = agent.tokenizer.delimiters
    design = agent.network.design
    settings = dataclasses.replace(
        agent.network.model.config, pad_id=marks.pad, end_ids=(marks.action_end,)
    )
    template = _own_template(agent)
    if template is None:
        settings = dataclasses.replace(settings, start_id=marks.state_start)
    saved: Any = agent.tokenizer
    saved.save(folder)
    # Dialogues are tokenised utterance by utterance; the file makes transformers do the same.
    exported.split_at_special_tokens(folder / exported.TOKENIZER)
    if template is None:
        texts = _delimiter_texts(agent)
        exported.write_tokenizer_config(folder, settings, texts)
        marks_in_text = dict(zip(Delimiters._fields, texts, strict=True))
        turns = ("state_start", "action_start", "state_end", "action_end")
        exported.write_dialogue_template(folder, {name: marks_in_text[name] for name in turns})
    else:
        # `save` wrote the template; a beginning-of-text token comes from it alone.
        exported.write_tokenizer_config(folder, settings, named=template.special_tokens)
    # The policy is the model; all that transformers cannot read goes into a file of its own.
    policy = design.roles.trunk_of[POLICY]
    if design.qs:
        whole = {
            name: trunk
            for name, trunk in agent.params["trunks"].items()
            if name != policy and name not in agent.additions
        }
        tree = {
            "trunks": whole,
            "additions": agent.additions,
            **{part: agent.params[part] for part in ("heads", "target_heads")},
        }
        heads = {
            name: dataclasses.asdict(head) for name, head in agent.network.heads.configs.items()
        }
        about: dict[str, Any] = {"design": dataclasses.asdict(design)}
        about |= {
            "trunk_of": dict(design.roles.trunk_of),
            "heads": heads,
            "settings": agent.settings,
        }
        exported.write_tensors(folder / exported.VALUES, tree, about)
    longest = agent.settings.get("longest_action")
    generation = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    generation |= {"max_new_tokens": longest} if longest else {}
    exported.write(
        folder, settings, agent.params["trunks"][policy], generation, _text_card(agent, settings)
    )


def _own_template(agent: SavedAgent) -> ChatTemplate | None:
    """The chat template of the model's own turns, where the agent's utterances stand in these."""
    template: ChatTemplate | None = getattr(agent.tokenizer, "template", None)
    return template


def _delimiter_texts(agent: SavedAgent) -> tuple[str, ...]:
    """The texts of the delimiters: of a chat model one is its own."""
    texts: tuple[str, ...] = getattr(agent.tokenizer, "delimiter_texts", DELIMITER_TEXTS)
    return texts


def _dialogue_form(agent: SavedAgent) -> tuple[str, str]:
    """A prompt as the agent reads it, and how dialogues are written, for its card."""
    template = _own_template(agent)
    if template is not None:
        prompt = template.prompt([{"role": "user", "content": "TEXT"}])
        return prompt, (
            "Utterances are turns of the model's own chat template (`tokenizer.apply_chat_template`): the other side's are the user's, the agent's the "
            "assistant's. Tokenise what the template writes with `add_special_tokens=False`."
        )
    end = _delimiter_texts(agent)[Delimiters._fields.index("action_end")]
    return "<s>TEXT</s>", (
        "`<s>` begins a dialogue whose first utterance is the other side's, `<a>` one whose first is the agent's. `</s>` ends an utterance of the other\n"
        f"side, `{end}` one of the agent, `</eod>` the dialogue. Nothing stands between an utterance and its delimiters. After `<s>TEXT</s>` the model writes its\n"
        f"answer, up to `{end}`. Remove delimiters from the texts of users: in this tokenizer they are tokens."
    )


def _text_card(agent: SavedAgent, settings: Any) -> str:
    prompt, dialogues = _dialogue_form(agent)
    front, use = exported.opening(settings, prompt, agent.method)
    text = f"""{front}
# An agent that speaks: {agent.method} on {agent.task_name}

motif_jax trained this agent from recorded dialogues with the method `{agent.method}`. The model is its policy.

## Dialogues

{dialogues}

{use}"""
    if not agent.network.design.qs:
        return text
    return f"""{text}
## Values

transformers and vLLM speak without the values: by the policy alone. `values.safetensors` has Q and V (`heads`), the target Q (`target_heads`) and the trunks
that they read, where these are not the policy's (`trunks`; or `additions`, kernels a b to be added to the policy's, and rows to be added to its last tokens');
`trunk_of` in its metadata says which. Kernels are [inputs, outputs]. A Q with a rank is `shared` + x a b. motif_jax
adds advantage_weight x (Q - V) to the policy's logits; its own agent folder opens with `motif_jax.text_agents.load`. The discount was {agent.settings.get("discount")}.
"""


def _check_reward(config: ExportRewardConfig) -> None:
    checks.existing_folder(config, "reward.dir")


# Kind -> how its values are checked, and what writes it.
KINDS: Mapping[str, tuple[Callable[[Any], None], Callable[[Any, Path], None]]] = {
    "reward": (_check_reward, _export_reward),
    "language_agent": (_check_language_agent, _export_language_agent),
    "text_agent": (_check_text_agent, _export_text_agent),
}


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree, ("kind",))
    check_values, _ = KINDS[config_tree.kind]
    check_values(read_section(EXPORTS[config_tree.kind], config_tree))


def run(config_tree: ConfigDict, workdir: Path) -> None:
    """Writes the files of the kind; the folder of a refused export stays without a config."""
    _, write = KINDS[config_tree.kind]
    with FolderLock(workdir):
        write(read_section(EXPORTS[config_tree.kind], config_tree), workdir)
        run_folder.prepare(workdir, config_tree)
