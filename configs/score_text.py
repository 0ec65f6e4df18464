"""Scores candidate texts after prompts with a language model.

    python -m motif_jax.launch --config=configs/score_text.py --workdir=runs/scores --config.model=MODEL \
        --config.file=prompts.jsonl

MODEL: a folder with config.json, safetensors and tokenizer.json, as transformers saves it (T5, GPT-2, Llama, Qwen2), or the name
of such a model on the Hugging Face hub. FILE: objects {"prompt": ..., "candidates": [...]} a line, or prompts a line and
--config.candidates='turn left|turn right' for all. Out comes scores.jsonl with a line a prompt, and with --config.page=20 a
page of the first 20 prompts token by token; a run that is stopped goes on.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, ""):
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "score_text"
    config.seed = 0
    config.model = placeholder(str)  # folder of a checkpoint, or its name on the hub
    config.file = placeholder(str)  # prompts, .jsonl or one a line
    config.candidates = ""  # of all prompts without their own, with | between them
    config.by_length = False  # divide log-probabilities by the number of tokens
    config.page = 0  # prompts that tokens.html shows token by token; 0: no page
    config.batch = 32  # prompts at a time
    config.dtype = "float32"  # of parameters and computation: float32 or bfloat16
    return config
