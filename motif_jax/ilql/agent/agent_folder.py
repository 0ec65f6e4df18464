"""Reads and writes the folder of a text agent: its networks, and the settings for decoding and
evaluation.

    agent/
      agent.json                 method, task, options, numbers of the method, design, digest of the
                                 vocabulary
      trunks/NAME/               one to three of policy, values, target: config.json,
                                 model.safetensors (transformers opens them); where low-rank
                                 additions were learned, of values and target additions.safetensors
                                 alone, what they have more than the policy
      heads/, target_heads/      V, Q1, Q2 and the target Qs: heads.json, heads.safetensors
      prefix.safetensors         of the decision transformer
      tokenizer.json             of a task whose tokens are in a file
      chat_template.jinja        of a chat model whose own turns surround utterances;
                                 tokenizer_config.json has tokens that it names

`load` opens such a folder, or the run folder of `train_text` that holds it.

`load_model` opens a decoder in a Hugging Face folder, or in a GGUF file, as an agent: a policy
without values. Its tokenizer must have the delimiters of dialogues, or its chat template turns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import load_file

from motif_jax.core import digests, entry_points, run_folder, tensor_files, tokenizer_files
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, atomic_write_text, read_json, replaced_folder
from motif_jax.ilql.agent.text_agent import POLICY, Design, TextAgentNetwork
from motif_jax.ilql.dialogues.dialogue_tokens import Delimiters, TextTokenizer, Vocabulary
from motif_jax.ilql.tasks import file_tokens, registry
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.ilql.tasks.file_tokens import NEW, FileTokenizer, FileTokenTask, delimiter_texts
from motif_jax.lm import chat_template, lora, weights
from motif_jax.lm import config as configs
from motif_jax.lm import folder as folders
from motif_jax.lm import heads as heads_files
from motif_jax.lm.gguf import folder as gguf_folder
from motif_jax.lm.model import LanguageModel

AGENT, FILE, PREFIX = "agent", "agent.json", "prefix.safetensors"
ADDITIONS = "additions.safetensors"
# Copied for tasks whose option `tokenizer` names it.
TOKENIZER = "tokenizer.json"
_KEYS = ("layout", "method", "task", "options", "design", "vocabulary", "settings")
METHOD_OF_MODELS = "bc"


@dataclasses.dataclass(frozen=True)
class SavedAgent:
    """An agent read from a folder."""

    folder: Path
    network: TextAgentNetwork
    params: Any  # of all parts, numpy arrays; see `text_agent`
    method: str
    # numbers of the method, such as `discount`, `max_len`, `q_min`, `q_max`
    settings: Mapping[str, Any]
    task_name: str
    options: Mapping[str, Any]
    task: TextTask
    tokenizer: TextTokenizer
    about: Mapping[str, Any]  # the content of agent.json
    # of trunks that are the policy's with low-rank additions, see `lora.difference`
    additions: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def vocabulary_digest(tokenizer: TextTokenizer) -> str:
    """A digest of a tokenizer's tokens and delimiters."""
    texts = [tokenizer.decode([token]) for token in range(tokenizer.size)]
    parts: tuple[Any, ...] = (texts, tuple(tokenizer.delimiters))
    turns = getattr(tokenizer, "turns", None)
    if turns is not None:
        # Only where there are any, so that the digests of other tokenizers stay what they were.
        parts += (tuple(turns),)
    return digests.of_bytes(repr(parts).encode())


def vocabulary_of(task: TextTask) -> Vocabulary:
    """The vocabulary of a task; size and delimiters alone where its tokenizer is trained later."""
    learned = task.learned_tokens()
    if learned:
        # The delimiters will stand after the byte pairs that are learned.
        delimiters = Delimiters(*range(learned, learned + len(Delimiters._fields)))
        return Vocabulary(learned + len(delimiters), delimiters, None)
    tokenizer = task.tokenizer()
    texts = tuple(tokenizer.decode([token]) for token in range(tokenizer.size))
    return Vocabulary(tokenizer.size, tokenizer.delimiters, vocabulary_digest(tokenizer), texts)


def write(
    folder: Path,
    network: TextAgentNetwork,
    params: Any,
    method: str,
    settings: Mapping[str, Any],
    task: str,
    options: Mapping[str, Any],
    tokenizer: TextTokenizer,
    extra: Mapping[str, Any] | None = None,
    additions: Mapping[str, Any] | None = None,
) -> None:
    """Writes an agent with host arrays atomically, and `extra` entries in agent.json; replaces an
    earlier one.

    Of the trunks in `additions` these alone are written (`agent_start.trunk_additions`).
    """
    additions = additions or {}
    with replaced_folder(folder) as part:
        for name, trunk in params["trunks"].items():
            if name in additions:
                flat = flatten_dict(additions[name], sep=".")
                (part / "trunks" / name).mkdir(parents=True)
                tensor_files.save(flat, part / "trunks" / name / ADDITIONS)
            else:
                folders.write(part / "trunks" / name, network.model.config, trunk)
        if network.design.qs:
            heads_files.save(part / "heads", network.heads, params["heads"])
            heads_files.save(part / "target_heads", network.target_heads, params["target_heads"])
        if network.design.prefix:
            flat = {name: np.ascontiguousarray(value) for name, value in params["prefix"].items()}
            tensor_files.save(flat, part / PREFIX)
        options = dict(options)
        tokenizer_file = _tokenizer_file(task, options)
        if tokenizer_file is not None:  # copied with the agent, in one file with what is beside it
            atomic_write_text(part / TOKENIZER, tokenizer_files.read(tokenizer_file).to_str())
            template = getattr(tokenizer, "template", None)
            if template is not None:
                chat_template.write(part, template)
            # The copy's name alone: `options_of` says where the folder is when it is read.
            options["tokenizer"] = TOKENIZER
        about = {
            "layout": run_folder.LAYOUT,
            "method": method,
            "task": task,
            "options": options,
            "design": dataclasses.asdict(network.design),
            "vocabulary": vocabulary_digest(tokenizer),
            "settings": dict(settings),
        }
        atomic_write_json(part / FILE, {**about, **(extra or {})})


def _tokenizer_file(task: str, options: Mapping[str, Any]) -> Path | None:
    """The tokenizer.json that the option `tokenizer` names; None without one, or where a task from
    outside the package means something else by that option.
    """
    if not options.get("tokenizer"):
        return None
    path = Path(options["tokenizer"])
    file = path / TOKENIZER if path.is_dir() else path
    if issubclass(registry.load(task), FileTokenTask):
        return file
    return file if file.name == TOKENIZER and file.is_file() else None


def find(folder: str | Path, key: str) -> Path:
    """The agent's folder: `folder` itself or inside this run folder. Without an agent UserError
    names the config's `key`.
    """
    # A run folder first, then an agent's own.
    for path in (Path(folder) / AGENT, Path(folder)):
        if (path / FILE).is_file():
            return path
    raise UserError(
        f"config.{key}={folder}: must be the run folder of a train_text that has ended, or an agent's; it has no {AGENT}/{FILE}"
    )


def describe(folder: str | Path, key: str) -> dict[str, Any]:
    """The content of agent.json, and the agent's `folder`; UserError without an agent, or for one
    of another version.
    """
    path = find(folder, key)
    about = read_json(path / FILE, f"train {folder} again", keys=_KEYS)
    entry_points.note_source(path / FILE, about)
    if about["layout"] != run_folder.LAYOUT:
        raise UserError(
            f"config.{key}={folder}: holds an agent of layout {about['layout']}, this version reads {run_folder.LAYOUT}"
        )
    return {**about, "folder": str(path)}


def run_of(about: Mapping[str, Any]) -> Path:
    """The run folder of an agent, or its own folder where that was copied alone; `about` is from
    `describe`.
    """
    folder = Path(about["folder"])
    return folder.parent if folder.name == AGENT else folder


def options_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the task that an agent was trained for; `about` is from `describe`."""
    options = registry.located(about["task"], about["options"], run_of(about))
    if (Path(about["folder"]) / TOKENIZER).is_file():
        # the copy in the folder, wherever that has been moved to
        options["tokenizer"] = about["folder"]
    return options


def network_of(about: Mapping[str, Any], dtype: Any = jnp.float32) -> TextAgentNetwork:
    """The network of an agent that `describe` read, without weights."""
    design = Design(**about["design"])
    settings = configs.read(Path(about["folder"]) / "trunks" / design.roles.trunks[0])
    configs.require_decoder(settings, "says")
    return TextAgentNetwork(LanguageModel(settings, jnp.dtype(dtype)), design, jnp.dtype(dtype))


def require_tokens(about: Mapping[str, Any], task: TextTask, folder: str | Path, key: str) -> None:
    """Raises UserError where task and agent have different tokens; `folder` is the value of the
    config's `key`.
    """
    if vocabulary_digest(task.tokenizer()) != about["vocabulary"]:
        raise UserError(
            f"config.{key}={folder}: was trained with other tokens than {type(task).__name__} has; give an agent of this task"
        )


def load(
    folder: str | Path, key: str = "agent", task: TextTask | None = None, dtype: Any = jnp.float32
) -> SavedAgent:
    """Reads an agent from a run folder of train_text or its own, for `task` (None: its own);
    UserError names the config's `key`.
    """
    about = describe(folder, key)
    path = Path(about["folder"])
    options = options_of(about)
    # An evaluation has made its task already, with options and a scorer of its own.
    task = task or registry.make(about["task"], options)
    require_tokens(about, task, folder, key)
    network = network_of(about, dtype)
    design = network.design
    additions = {
        name: unflatten_dict(load_file(path / "trunks" / name / ADDITIONS), sep=".")
        for name in design.roles.trunks
        if (path / "trunks" / name / ADDITIONS).exists()
    }
    params: dict[str, Any] = {
        "trunks": {
            name: folders.read(path / "trunks" / name).params
            for name in design.roles.trunks
            if name not in additions
        }
    }
    policy = params["trunks"][design.roles.trunk_of[POLICY]]
    for name, addition in additions.items():
        params["trunks"][name] = lora.merged(policy, addition, lora.DIFFERENCE)
    if design.qs:
        width = network.model.config.width
        _, params["heads"] = heads_files.load(path / "heads", width)
        _, params["target_heads"] = heads_files.load(path / "target_heads", width)
    if design.prefix:
        params["prefix"] = load_file(path / PREFIX)
    return SavedAgent(
        folder=path,
        network=network,
        params=params,
        method=about["method"],
        settings=about["settings"],
        task_name=about["task"],
        options=options,
        task=task,
        tokenizer=task.tokenizer(),
        about=about,
        additions=additions,
    )


def is_model(folder: str | Path) -> bool:
    """Whether it is a model's folder or a GGUF file; a run folder of `train_text` is none."""
    path = gguf_folder.resolved(folder)
    names = (weights.SINGLE, weights.INDEX, gguf_folder.LINK)
    has_weights = any((path / name).is_file() for name in names)
    return has_weights and (path / TOKENIZER).is_file() and not (path / FILE).exists()


def describe_model(folder: str | Path, key: str) -> dict[str, Any]:
    """Describes an agent as `agent_folder.describe`; the task is None, since a decoder with turns
    or delimiters fits any task.
    """
    path = gguf_folder.resolved(folder)
    backend = tokenizer_files.read(path / TOKENIZER)
    missing = [text for text in delimiter_texts(backend) if backend.token_to_id(text) is None]
    if missing and turns_of_model(folder) == NEW:
        raise UserError(
            f"config.{key}={folder}: {TOKENIZER} must have the delimiters of dialogues as tokens, and lacks {', '.join(missing)}: "
            "add them before the model is trained on dialogues, or take a model whose chat template has turns that begin and end with special tokens"
        )
    settings = configs.read(path)
    configs.require_decoder(settings, "says")
    # A table may have more rows than there are tokens, never fewer.
    size = backend.get_vocab_size(with_added_tokens=True)
    if size > settings.vocab_size:
        raise UserError(
            f"config.{key}={folder}: {TOKENIZER} has {size:,} tokens, the model {settings.vocab_size:,}: must have one for each"
        )
    return {
        "method": METHOD_OF_MODELS,
        "task": None,
        "options": {},
        "design": dataclasses.asdict(Design(q="none")),
        "settings": {},
        "folder": str(folder),
    }


def turns_of_model(folder: str | Path) -> str:
    """What surrounds utterances: delimiters of dialogues where the tokenizer has them all, else the
    model's own turns if it can.
    """
    path = gguf_folder.resolved(folder)
    backend = tokenizer_files.read(path / TOKENIZER)
    if all(backend.token_to_id(text) is not None for text in delimiter_texts(backend)):
        return NEW
    return file_tokens.choose(file_tokens.AUTO, str(path)).turns


def network_of_model(folder: str | Path, dtype: Any = jnp.float32) -> TextAgentNetwork:
    """The network without its weights."""
    settings = weights.read_config(gguf_folder.resolved(folder))
    return TextAgentNetwork(
        LanguageModel(settings, jnp.dtype(dtype)), Design(q="none"), jnp.dtype(dtype)
    )


def load_model(
    folder: str | Path, key: str, name: str, task: TextTask, options: Any, dtype: Any = jnp.float32
) -> SavedAgent:
    """Reads an agent for `task`, made from `name` and `options`; UserError as in `describe`, or for
    damaged weights.
    """
    about = describe_model(folder, key)
    path = gguf_folder.resolved(folder)
    return SavedAgent(
        folder=path,
        network=network_of_model(folder, dtype),
        params={"trunks": {POLICY: folders.read(path).params}},
        method=METHOD_OF_MODELS,
        settings={},
        task_name=name,
        options=options,
        task=task,
        tokenizer=FileTokenizer(key, str(path), turns=turns_of_model(path)),
        about=about,
    )
