"""Reads a checkpoint of the published ILQL code, model.pkl, into a run folder that evaluate_text and others open.

    python -m motif_jax.launch --config=configs/import_ilql.py --workdir=runs/published --config.file=outputs/wordle/model.pkl

Nothing of the file is run. BC, DT, ILQL, CQL, Psi, utterance ILQL and CHAI are read. Of visual dialogue and comments, GPT-2's tokenizer is wanted:
--config.task=reddit --config.options='{"tokenizer": "gpt2"}' with a folder gpt2 that has its tokenizer.json.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, ""):
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "import_ilql"
    config.seed = 0
    # outputs/.../model.pkl
    config.file = placeholder(str)
    # What it speaks about: wordle, visdial, reddit, or module:Class; its options as JSON.
    config.task = "wordle"
    config.options = ""
    # Empty: bc, dt, ilql, ilql_utterance or chai, by what the file holds; cql and psi look like ilql.
    # 'upvote': the file is that of the upvote model, and becomes a folder like train_upvote's.
    config.method = ""
    config.tokenizer = placeholder(
        str
    )  # of 'upvote': a folder with RoBERTa's tokenizer.json, or roberta-base
    config.discount = 0.99
    # Of attention; 0: one for 64 numbers of the width, as GPT-2 has.
    config.heads = 0
    return config
