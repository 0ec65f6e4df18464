"""Exports a reward as safetensors with its model card (Mitchell et al. 2019, "Model cards for model
reporting"), agents as model folders for transformers and vLLM.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict
from safetensors import safe_open
from tokenizers import Tokenizer as Backend

from motif_jax.core import config as checks
from motif_jax.core import run_folder, tensor_files
from motif_jax.core.files import atomic_write_json, atomic_write_text, parse_json, replaced_folder
from motif_jax.core.locks import FolderLock
from motif_jax.core.run_folder import read_description, stored_folder
from motif_jax.glam import agent
from motif_jax.glam.agent import LanguageAgent
from motif_jax.glam.config import LanguagePolicy
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.agent_folder import SavedAgent
from motif_jax.ilql.agent.text_agent import POLICY
from motif_jax.ilql.dialogues.dialogue_tokens import DELIMITER_TEXTS, Delimiters
from motif_jax.lm import folder as folders
from motif_jax.lm import weights
from motif_jax.lm.chat_template import ChatTemplate
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import FILE as TOKENIZER
from motif_jax.lm.tokens import Tokenizer
from motif_jax.motif.reward import safetensors_file
from motif_jax.motif.reward.reward_model import RewardModel, read_run
from motif_jax.oni.online_model import OnlineRewardModel
from motif_jax.play import agent_policy
from motif_jax.published.config import (
    EXPORTS,
    ExportLanguageAgentConfig,
    ExportRewardConfig,
    ExportTextAgentConfig,
)
from motif_jax.rl import settings
from motif_jax.schema import read_section

REWARD = "reward.safetensors"
CARD = "README.md"
_UNKNOWN = "Nothing is known of it.\n"
_NUMBERS = ("accuracy", "accuracy_pairs", "loss", "loss_pairs", "calibration_error")
MODEL = "model"
VALUES, ACTION_HEAD = "values.safetensors", "action_head.safetensors"
TOKENIZER_CONFIG, GENERATION = "tokenizer_config.json", "generation_config.json"
CHAT_TEMPLATE = "chat_template.jinja"


def _export_reward(config: ExportRewardConfig, workdir: Path) -> None:
    reward = read_run(config.reward.dir or "", config.reward.step)
    card = reward_card(reward, config.licence, config.notes)
    safetensors_file.write_safetensors(reward, workdir / REWARD)
    atomic_write_text(workdir / CARD, card)
    print(f"evaluation {reward.step} of {config.reward.dir}: {(workdir / REWARD).resolve()}")


def reward_card(reward: RewardModel, licence: str = "", notes: str = "") -> str:
    """The card in Markdown; the owner gives the `licence` of the weights and `notes`."""
    made = read_description(Path(reward.folder) / "versions.json")
    if isinstance(reward, OnlineRewardModel):
        game = reward.config["environment"]["name"]
        origin = f"Learned while an agent played {game}, from {len(reward.labels):,} labels of the annotator in the settings below.\n"
    else:
        origin = "\n".join(_labels(reward))
    # Of pairs whose messages were both never trained on, too.
    known = [f"{part}/{name}" for part in ("validation", "validation_unseen") for name in _NUMBERS]
    evaluation = reward.curve[-1] if reward.curve else {}
    numbers = {name: evaluation[name] for name in known if name in evaluation}
    return f"""# Model card: a reward of game messages

Made by `{made.get("command", "an unknown command")}` in `{reward.folder}`, motif_jax {made.get("git_revision", "of unknown revision")}. {notes}

## Use

An intrinsic reward for agents, and a study of what its annotator prefers. Not a judge of people's text. On messages that are not in its dataset the number is a guess,
and normalised otherwise on another dataset. It has the blind spots of its annotator, and pays for messages, not for what they stand for.

## Data and annotators

{origin}
## Numbers

{_block(numbers) or _UNKNOWN}
## Licence

{licence or "Not stated by the owner of the weights."} The licences of data and annotator apply besides (the published Motif dataset and its annotations are CC-BY-NC 4.0: no commercial use).

## Settings

{_block(reward.config)}"""


def _labels(reward: RewardModel) -> Iterator[str]:
    """Of each dataset and its labels: what describes them, with the annotator's prompts."""
    for folder_name in checks.listed(reward.config.get("dataset_dir") or ""):
        folder = stored_folder(reward.folder, folder_name)
        described = read_description(folder / "dataset.json") if folder else {}
        facts = {key: described[key] for key in described if key not in ("arrays", "digests")}
        yield f"Dataset `{folder_name}`:\n\n{_block(facts) or _UNKNOWN}"
        for name in checks.listed(reward.config.get("annotator") or ""):
            shards = sorted(folder.glob(f"annotations/{name}/shard-*.json")) if folder else []
            who = read_description(shards[0]) if shards else {}
            facts = {key: who[key] for key in ("annotator", "questions") if key in who}
            yield f"Labels `{name}`:\n\n{_block(facts) or _UNKNOWN}"


def _block(facts: Mapping[str, Any]) -> str:
    """Values by dotted key as code by its indentation, which no text within it ends."""
    texts = (
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}\n"
        for name, value in checks.flat(facts).items()
    )
    return textwrap.indent("".join(texts), "    ", lambda _: True)


def _export_language_agent(config: ExportLanguageAgentConfig, workdir: Path) -> None:
    folder = config.agent or ""
    trained = agent_policy.read_config(folder)
    assert isinstance(trained.network, LanguagePolicy), "no language model"
    network: Any = settings.make_network(trained)
    params, step = agent_policy.restore(folder, config.checkpoint, network)
    with replaced_folder(workdir / MODEL) as part:
        source = fetch(trained.network.model, "network.model")
        learned = f"{trained.environment.name}, step {step:,}"
        in_turns = agent.template_of(trained.network, trained.compat, source) is not None
        write_language_agent(part, network, params, source, learned, in_turns)
    print(f"step {step} of {folder}: {(workdir / MODEL).resolve()}")


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
    if not (folder / TOKENIZER_CONFIG).exists():
        write_tokenizer_config(folder, settings)
    named = {"value": VALUES, agent.ACTIONS: ACTION_HEAD}
    for name, head in network.heads.configs.items():
        about = {
            "heads": {name: dataclasses.asdict(head)},
            "actions": list(network.spec.action_names),
        }
        write_tensors(folder / named[name], {"heads": {name: params["heads"][name]}}, about)
    # Generation would go on after an action: none has more tokens.
    longest = max(map(len, Tokenizer.read(folder).encode(network.spec.action_names)), default=1)
    generation = {"do_sample": False, "max_new_tokens": longest}
    write_model_folder(
        folder, settings, merged, generation, _language_card(network, learned, in_turns)
    )


def _language_card(network: LanguageAgent, learned: str, in_turns: bool) -> str:
    front, use = card_opening(network.model.config, "PROMPT", "glam")
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


def _export_text_agent(config: ExportTextAgentConfig, workdir: Path) -> None:
    agent = agent_folder.load(config.agent or "")
    allowed = "an agent without a prefix: a decision transformer reads its return as an embedding, which transformers does not"
    checks.require_key(config, "agent", not agent.network.design.prefix, allowed)
    with replaced_folder(workdir / MODEL) as part:
        write_text_agent(part, agent)
    print(f"{agent.method} of {config.agent}: {(workdir / MODEL).resolve()}")


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
    split_at_special_tokens(folder / TOKENIZER)
    if template is None:
        texts = _delimiter_texts(agent)
        write_tokenizer_config(folder, settings, texts)
        marks_in_text = dict(zip(Delimiters._fields, texts, strict=True))
        turns = ("state_start", "action_start", "state_end", "action_end")
        write_dialogue_template(folder, {name: marks_in_text[name] for name in turns})
    else:
        # `save` wrote the template; a beginning-of-text token comes from it alone.
        write_tokenizer_config(folder, settings, named=template.special_tokens)
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
        write_tensors(folder / VALUES, tree, about)
    longest = agent.settings.get("longest_action")
    generation = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    generation |= {"max_new_tokens": longest} if longest else {}
    write_model_folder(
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
    front, use = card_opening(settings, prompt, agent.method)
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


# Kind -> what writes it.
KINDS: Mapping[str, Callable[[Any, Path], None]] = {
    "reward": _export_reward,
    "language_agent": _export_language_agent,
    "text_agent": _export_text_agent,
}


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree, ("kind",))


def run(config_tree: ConfigDict, workdir: Path) -> None:
    """Writes the files of the kind; the folder of a refused export stays without a config."""
    config = read_section(EXPORTS[config_tree.kind], config_tree)
    with FolderLock(workdir):
        KINDS[config_tree.kind](config, workdir)
        run_folder.prepare(workdir, config_tree)


def write_model_folder(
    folder: Path, model_config: ModelConfig, params: Any, generation: Mapping[str, Any], card: str
) -> None:
    """Writes a model (host arrays) into a folder that is empty or has a tokenizer, with its card,
    the text of README.md.

    `generation` has the entries of generation_config.json besides the special tokens.

    Raises:
      UserError: config.json cannot express the model.
    """
    folders.write(folder, model_config, params)
    if not (folder / weights.INDEX).exists():
        # vLLM reads every safetensors file of a folder without an index, the heads' too.
        with safe_open(folder / weights.SINGLE, framework="numpy") as tensors:
            places = dict.fromkeys(tensors.keys(), weights.SINGLE)
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
        atomic_write_json(
            folder / weights.INDEX, {"metadata": {"total_size": size}, "weight_map": places}
        )
    # The names by which transformers' `generate` looks for them.
    start = "decoder_start_token_id" if model_config.encoder_layers else "bos_token_id"
    special = {
        "pad_token_id": model_config.pad_id,
        "eos_token_id": list(model_config.end_ids) or None,
    }
    atomic_write_json(folder / GENERATION, {start: model_config.start_id, **special, **generation})
    atomic_write_text(folder / CARD, card)


def write_tensors(path: Path, tree: Any, about: Mapping[str, Any]) -> None:
    """Writes a tree of arrays; a tensor's name is its path with dots, and the metadata has `about`
    as JSON.
    """
    flat = {name: np.ascontiguousarray(leaf) for name, leaf in flatten_dict(tree, sep=".").items()}
    tensor_files.save(flat, path, metadata={"about": json.dumps(about)})


def write_tokenizer_config(
    folder: Path,
    model_config: ModelConfig,
    special: tuple[str, ...] = (),
    named: Mapping[str, str] | None = None,
) -> None:
    """Writes tokenizer_config.json for the tokenizer.json in `folder`.

    Args:
      special: further special tokens.
      named: the tokens that a chat template writes by name (`bos_token`), which come before those
          of `model_config`.
    """
    backend = Backend.from_file(str(folder / TOKENIZER))
    values = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": backend.id_to_token(model_config.end_ids[0]) if model_config.end_ids else None,
        "pad_token": backend.id_to_token(model_config.pad_id),
        "additional_special_tokens": list(special) or None,
        # GPT-2 would add embeddings of token types
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": model_config.max_length,
    }
    known = {key: value for key, value in values.items() if value is not None}
    known |= {name: text for name, text in (named or {}).items() if text}
    atomic_write_json(folder / TOKENIZER_CONFIG, known)


def write_dialogue_template(folder: Path, marks: Mapping[str, str]) -> None:
    """Writes chat_template.jinja: the turns of a dialogue between its delimiters, as an agent of
    dialogues reads them.

    `marks` has the texts of the delimiters state_start, action_start, state_end and action_end. The
    assistant's turns are the agent's actions; a dialogue whose next turn is the agent's needs no
    further token.
    """
    template = (
        "{%- if not messages or messages[0]['role'] == 'assistant' -%}ACTION_START{%- else -%}STATE_START{%- endif -%}"
        "{%- for message in messages -%}"
        "{{ message['content'] }}{%- if message['role'] == 'assistant' -%}ACTION_END{%- else -%}STATE_END{%- endif -%}"
        "{%- endfor -%}"
    )
    for name, text in marks.items():
        # As an expression, since a delimiter may hold what Jinja reads otherwise.
        template = template.replace(name.upper(), "{{ " + repr(text) + " }}")
    atomic_write_text(folder / CHAT_TEMPLATE, template)


def split_at_special_tokens(path: Path) -> None:
    """Rewrites a tokenizer.json to tokenise each part between special tokens as a text of its own,
    as dialogues are, and add none.
    """
    values = parse_json(path.read_bytes(), dict)
    values |= {"post_processor": None, "padding": None, "truncation": None}
    first = values.get("pre_tokenizer") or {}
    # SentencePiece's blank before a text: before each part, since each is a text of its own here.
    for step in first.get("pretokenizers", [first]):
        if step.get("prepend_scheme") == "first":
            step["prepend_scheme"] = "always"
    atomic_write_text(path, json.dumps(values, ensure_ascii=False))


def card_opening(model_config: ModelConfig, prompt: str, tags: str) -> tuple[str, str]:
    """The front matter of a card, and example code for transformers and vLLM that continues
    `prompt`.
    """
    pipeline, kind = "text-generation", "AutoModelForCausalLM"
    if model_config.encoder_layers:
        pipeline, kind = "text2text-generation", "AutoModelForSeq2SeqLM"
    front = f"---\nlibrary_name: transformers\npipeline_tag: {pipeline}\ntags: [motif_jax, {tags}]\n---\n"
    use = f"""```python
from transformers import AutoTokenizer, {kind}

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = {kind}.from_pretrained(FOLDER)
tokens = model.generate(**tokenizer({prompt!r}, return_tensors="pt"))
tokenizer.decode(tokens[0])
```
"""
    if not model_config.encoder_layers:
        use += f"""
```python
from vllm import LLM

LLM(FOLDER, dtype="float32").generate({prompt!r})
```
"""
    return front, use
