"""Continues prompts with a language model.

    python -m motif_jax.launch --config=configs/generate_text.py --workdir=runs/generated --config.model=MODEL \
        --config.file=prompts.txt

MODEL and FILE as in configs/score_text.py. Greedy by default; --config.sampling.greedy=False draws, --config.beams=True searches
`count` beams. Out comes generated.jsonl with a line a prompt; a run that is stopped goes on, and ends with the same texts.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    if variant not in (None, ""):
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "generate_text"
    config.seed = 0
    config.model = placeholder(str)  # folder of a checkpoint, or its name on the hub
    config.file = placeholder(str)  # prompts, .jsonl or one a line
    config.most = 64  # tokens at most
    config.count = 1  # continuations of each prompt; several are drawn or beams
    config.beams = False  # search `count` beams in place of drawing
    config.stops = ""  # texts before which a continuation ends, with | between them
    config.sampling = ConfigDict()  # left as it is where nothing is drawn
    config.sampling.greedy = True
    config.sampling.temperature = 1.0
    config.sampling.top_k = 0  # 0: all tokens
    config.sampling.top_p = 1.0
    config.batch = 32  # prompts at a time
    config.dtype = "float32"  # of parameters and computation: float32 or bfloat16
    return config
