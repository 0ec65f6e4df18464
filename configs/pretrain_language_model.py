"""Trains a language model on texts: a fresh one of any architecture, or an existing one.

    python -m motif_jax.launch --config=configs/pretrain_language_model.py \\
        --workdir=runs/language --config.texts=FILES

FILES are .txt, .md, .jsonl (objects with `text`, and `prompt` if they like) and .parquet (such
columns, or dialogues of collect_text: an item an action, with what came of it), or folders of them,
with commas between; what has prompts needs --config.packing=items. Out come tokenizer/, tokens/,
checkpoints/, metrics.jsonl, tensorboard/, summary.json, and model/, which transformers and
`motif_jax.lm.load` open. Stopped at any moment and started again with the same command it resumes,
to the same parameters. Fine-tuning: --config.model.folder=FOLDER_OR_HUB_NAME, whole or by low-rank
additions (--config.lora.patterns='*/attention/*'), the base in 8 or 4 bits
(--config.lora.base=nf4).

Variants:
  (none)      a GPT-2 of 124 million parameters, with the sizes and rates that such models are
              trained with.
  quickstart  a small GPT-2 that sees two million tokens, a few minutes on 2 cores.
  babyai      a T5 of 0.33 million parameters of random play relabelled in hindsight, some 10
              minutes on 2 cores (docs/glam.md).
  smoke       seconds: whether everything works.
"""

from motif_jax.lm.training_config import LanguageModelConfig
from motif_jax.schema import configs, section_keys

KEYS = {
    "stage": "pretrain_language_model",
    **section_keys(LanguageModelConfig),
}
# Up to the end of an article, a thing, a clause or a line.
PHRASE = r"[^\n]*?(?:\b(?:a|the|key|ball|box|door) |, )|[^\n]+|\n"
_SMALL = {
    "model": {"width": 128, "layers": 4, "heads": 4},
    "tokenizer.vocab_size": 2048,
    "length": 128,
    "batch_size": 16,
    "steps": 1000,
    "evaluate_every": 100,
    "optimizer": {"learning_rate": 1e-3, "warmup_steps": 50},
    "held_out.share": 0.05,
    "evaluation_batches": 20,
    "save_every_seconds": 30.0,
}
_SMOKE = {
    "model": {"width": 64, "layers": 2, "heads": 2},
    "tokenizer.vocab_size": 512,
    "length": 32,
    "batch_size": 8,
    "steps": 20,
    "evaluate_every": 8,
    "chunk_steps": 4,
    "optimizer.warmup_steps": 4,
    "evaluation_batches": 4,
}
VARIANTS = {
    "quickstart": _SMALL,
    "babyai": {
        "model": {
            "architecture": "t5",
            "width": 64,
            "layers": 2,
            "heads": 4,
            "feed_forward": 256,
            "attention": "comparing",
        },
        # A thing has the same tokens in the mission and where it is seen: heads that compare tokens
        # find it.
        "tokenizer": {"vocab_size": 600, "phrases": True, "phrase": PHRASE},
        "objective": "prefix",
        "packing": "items",
        "length": 96,
        "batch_size": 64,
        "steps": 4000,
        "evaluate_every": 500,
        "optimizer": {"learning_rate": 2e-3, "warmup_steps": 50},
        "evaluation_batches": 10,
        "save_every_seconds": 30.0,
    },
    "smoke": (_SMALL, _SMOKE),
}
get_config = configs(KEYS, VARIANTS)
