"""Reads a checkpoint of the published ILQL code, model.pkl, into a run folder that evaluate_text
and others open.

    python -m motif_jax.launch --config=configs/import_ilql.py --workdir=runs/published \\
        --config.file=outputs/wordle/model.pkl

It needs PyTorch (the extra `torch`), and no code of the file is run. BC, DT, ILQL, CQL, Psi,
utterance ILQL and CHAI are read. Agents of visual dialogue and comments need GPT-2's tokenizer:
--config.task=reddit --config.options='{"tokenizer": "gpt2"}' with a folder gpt2 that has its
tokenizer.json.
"""

from motif_jax.published.config import ImportIlqlConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "import_ilql", **section_keys(ImportIlqlConfig)}
get_config = configs(KEYS)
