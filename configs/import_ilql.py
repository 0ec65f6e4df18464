"""Reads a checkpoint of the published ILQL code, model.pkl, into a run folder that evaluate_text and others open.

    python -m motif_jax.launch --config=configs/import_ilql.py --workdir=runs/published --config.file=outputs/wordle/model.pkl

No code of the file is run. BC, DT, ILQL, CQL, Psi, utterance ILQL and CHAI are read. Agents of visual dialogue and comments need GPT-2's tokenizer:
--config.task=reddit --config.options='{"tokenizer": "gpt2"}' with a folder gpt2 that has its tokenizer.json.
"""

from motif_jax.core import sections
from motif_jax.schema import Key, configs, fraction, non_negative

KEYS = {
    "stage": "import_ilql",
    "seed": sections.SEED,
    "file": Key(None, "checkpoint to import, outputs/.../model.pkl", str),
    "task": Key("wordle", "task that it was trained for: wordle, visdial, reddit, or module:Class"),
    "options": Key("", "options of the task as JSON"),
    "method": Key(
        "",
        "empty: bc, dt, ilql, ilql_utterance or chai, by what the file holds; cql and psi look like ilql. 'upvote': the file is that of the "
        "upvote model, and becomes a folder like train_upvote's",
    ),
    "tokenizer": Key(
        None, "tokenizer of 'upvote': a folder with RoBERTa's tokenizer.json, or roberta-base", str
    ),
    "discount": fraction(0.99, "discount of a step"),
    "heads": non_negative(0, "number of attention heads; 0: width / 64, as GPT-2 has"),
}
get_config = configs(KEYS)
