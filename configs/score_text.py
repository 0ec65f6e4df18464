"""Scores candidate texts after prompts with a language model.

    python -m motif_jax.launch --config=configs/score_text.py --workdir=runs/scores --config.model=MODEL \
        --config.file=prompts.jsonl

MODEL: a folder with config.json, safetensors and tokenizer.json, as transformers saves it (T5, GPT-2, Llama, Qwen2, Qwen3, Gemma 3), a
GGUF file, or the name of such a model on the Hugging Face hub. FILE: objects {"prompt": ..., "candidates": [...]} a line, or prompts a line and
--config.candidates='turn left|turn right' for all. A prompt of a .jsonl file may be turns [{"role": ..., "content": ...}], which
the model's own chat template writes, as it does a plain prompt; --config.chat=never leaves it as it is. Out comes scores.jsonl with one line per prompt, and with --config.page=20 a
page of the first 20 prompts token by token; a run that is stopped resumes.
"""

from motif_jax.core import sections
from motif_jax.schema import Key, configs, non_negative, one_of, positive

KEYS = {
    "stage": "score_text",
    "seed": sections.SEED,
    "model": Key(None, "folder of a checkpoint, or its name on the hub", str),
    "file": Key(None, "prompts, .jsonl or one a line", str),
    "chat": one_of(
        ("auto", "always", "never"),
        "whether prompts are turns by the model's own chat template, a plain text the user's: 'auto': where the model has one; 'always'; 'never': "
        "plain text, as it is",
    ),
    "candidates": Key("", "candidates of all prompts that have none of their own, with | between them"),
    "by_length": Key(False, "divides log-probabilities by the number of tokens"),
    "page": non_negative(0, "prompts that tokens.html shows token by token; 0: no page"),
    "batch": positive(32, "prompts at a time"),
    "dtype": sections.DTYPE,
}
get_config = configs(KEYS)
