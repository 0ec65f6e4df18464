"""Continues prompts with a language model.

    python -m motif_jax.launch --config=configs/generate_text.py --workdir=runs/generated \\
        --config.model=MODEL --config.file=prompts.txt

MODEL, FILE and turns as in configs/score_text.py. Greedy by default; --config.sampling.greedy=False
draws, --config.beams=True searches `count` beams. Out comes generated.jsonl with one line per
prompt; a run that is stopped resumes, and ends with the same texts.
"""

from motif_jax.lm.prompts_config import GenerateTextConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "generate_text", **section_keys(GenerateTextConfig)}
get_config = configs(KEYS)
