"""Exports a trained agent as a model folder for transformers and vLLM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict
from safetensors import safe_open
from tokenizers import Tokenizer as Backend

from motif_jax.core import tensor_files
from motif_jax.core.files import atomic_write_json, atomic_write_text, parse_json
from motif_jax.lm import folder as folders
from motif_jax.lm import weights
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.tokens import FILE as TOKENIZER

MODEL, CARD = "model", "README.md"
VALUES, ACTION_HEAD = "values.safetensors", "action_head.safetensors"
TOKENIZER_CONFIG, GENERATION = "tokenizer_config.json", "generation_config.json"
CHAT_TEMPLATE = "chat_template.jinja"


def write(
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


def opening(model_config: ModelConfig, prompt: str, tags: str) -> tuple[str, str]:
    """The front matter of a card, and example code for transformers and vLLM that continues
    `prompt`.
    """
    pipeline, kind = "text-generation", "AutoModelForCausalLM"
    if model_config.encoder_layers:
        pipeline, kind = "text2text-generation", "AutoModelForSeq2SeqLM"
    front = f"---\nlibrary_name: transformers\npipeline_tag: {pipeline}\ntags: [motif_jax, {tags}]\n---\n"
    use = f"""```python
from transformers import AutoTokenizer, {kind}

tokenizer, model = AutoTokenizer.from_pretrained(FOLDER), {kind}.from_pretrained(FOLDER)
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
