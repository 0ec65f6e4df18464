"""Continues prompts with a language model.

    python -m motif_jax.launch --config=configs/generate_text.py --workdir=runs/generated --config.model=MODEL \
        --config.file=prompts.txt

MODEL, FILE and turns as in configs/score_text.py. Greedy by default; --config.sampling.greedy=False draws, --config.beams=True searches
`count` beams. Out comes generated.jsonl with one line per prompt; a run that is stopped resumes, and ends with the same texts.
"""

from motif_jax.core import sections
from motif_jax.schema import Key, configs, length_key, one_of, positive

KEYS = {
    "stage": "generate_text",
    "seed": sections.SEED,
    "model": Key(None, "folder of a checkpoint, or its name on the hub", str),
    "file": Key(None, "prompts, .jsonl or one a line", str),
    "chat": one_of(
        ("auto", "always", "never"),
        "whether prompts are turns by the model's own chat template, a plain text the user's: 'auto': where the model has one; 'always'; 'never': "
        "plain text, as it is",
    ),
    "max_new_tokens": length_key(64, "greatest number of tokens to generate"),
    "count": positive(1, "continuations of each prompt; several are drawn or beams"),
    "beams": Key(False, "searches `count` beams in place of drawing"),
    "stops": Key("", "texts before which a continuation ends, with | between them"),
    "sampling": {
        "greedy": Key(True, "takes the most likely token; the other keys must keep their defaults"),
        "temperature": Key(1.0, "temperature of sampling"),
        "top_k": Key(0, "tokens that may be drawn; 0: all"),
        "top_p": Key(1.0, "probability of the tokens that may be drawn"),
    },
    "batch": positive(32, "prompts at a time"),
    "dtype": sections.DTYPE,
}
get_config = configs(KEYS)
