"""Trains a language model on texts: a fresh one of any architecture, or an existing one.

    python -m motif_jax.launch --config=configs/pretrain_language_model.py --workdir=runs/language --config.texts=FILES

FILES are .txt, .md, .jsonl (objects with `text`, and `prompt` if they like) and .parquet (such columns, or dialogues of collect_text: an item
an action, with what came of it), or folders of them, with commas between; what has prompts needs --config.packing=items. Out come tokenizer/, tokens/, checkpoints/, metrics.jsonl, tensorboard/, summary.json, and model/, which transformers and
`motif_jax.language.load` open. Stopped at any moment and started again with the same command it resumes, to the same parameters.
Fine-tuning: --config.model.folder=FOLDER_OR_HUB_NAME, whole or by low-rank additions (--config.lora.patterns='*/attention/*'), the base
in 8 or 4 bits (--config.lora.base=nf4).

Variants:
  (none)      a GPT-2 of 124 million parameters, with the sizes and rates that such models are trained with.
  quickstart  a small GPT-2 that sees two million tokens, a few minutes on 2 cores.
  babyai      a T5 of 0.33 million parameters of random play relabelled in hindsight, some 10 minutes on 2 cores (docs/glam.md).
  smoke       seconds: whether everything works.
"""

from motif_jax import sections
from motif_jax.schema import Key, configs, count, one_of, positive, size, with_defaults

KEYS = {
    "stage": "pretrain_language_model",
    "seed": sections.SEED_32,
    "texts": Key(None, "files and folders, with commas between them", str),
    "text_item": one_of(("paragraph", "line", "file"), "of .txt and .md; empty lines divide paragraphs"),
    "tokens": Key(None, "in place of texts: tokens/ of another run, whose tokenizer is named below", str),
    "held_out": {
        "share": Key(0.02, "of the items, evenly spread, on which perplexity is measured", above=0, most=0.5),
        "texts": Key(None, "in place of a share: files of their own", str),
    },
    "model": {
        "folder": Key(None, "fine-tunes this folder or hub model; keys below are those of a fresh one", str),
        "architecture": one_of(("gpt2", "t5", "llama", "qwen2", "roberta"), "'t5' as version 1.1"),
        **{name: key for name, key in sections.MODEL_SIZES.items() if name != "max_length"},
        "key_value_heads": positive(None, "fewer than heads in 'llama' and 'qwen2'; None: as many", int),
        "feed_forward": size(None, "None: 4 times the width", int),
        "max_length": count(None, "positions of the table; None: config.length", int),
        "attention": one_of(
            ("random", "comparing"),
            "how a fresh model's attention begins; 'comparing': heads of a T5 look at equal tokens and at neighbours (docs/glam.md)",
        ),
    },
    "tokenizer": {
        "folder": Key(None, "with tokenizer.json; None: made from the texts", str),
        "vocab_size": positive(32_768, "at most"),
        "phrases": Key(False, "merges over spaces too, up to the end of a sentence or line"),
        "phrase": Key("", "a regular expression of a phrase; empty: up to the end of a sentence or line"),
        "most_texts": positive(1_000_000, "texts that it is made from, the first ones"),
    },
    "objective": Key(
        None,
        "what is predicted: 'causal' (decoders), 'masked' (roberta), 'spans' or 'prefix' (t5); None: the first that the architecture has",
        str,
    ),
    "packing": one_of(
        ("windows", "items"),
        "'windows': items laid end to end and cut, none of them with a prompt; 'items': a row each, with rows of about one length together",
    ),
    "length": Key(1024, "tokens of a row", least=4, most=1 << 20),
    "batch_size": sections.batch(256, "rows of a step"),
    "accumulate": sections.ACCUMULATE,
    "steps": positive(20_000, "of the training"),
    "evaluate_every": sections.EVALUATE_EVERY,
    "evaluation_batches": positive(None, "of held-out text; None: all", int),
    "optimizer": with_defaults(
        sections.OPTIMIZER,
        learning_rate=6e-4,
        schedule="cosine",
        warmup_steps=700,
        final_fraction=0.1,
        b2=0.95,
        max_gradient_norm=1.0,
    )
    | {"weight_decay": Key(0.1, sections.WEIGHT_DECAY.help, least=0)},
    "dropout": Key(0.0, "left out while training, where the architecture has dropout", least=0, below=1),
    "dtype": sections.DTYPE,
    "remat": sections.REMAT,
    "logits_chunk": sections.LOGITS_CHUNK,
    "lora": sections.LORA | {"base": sections.LORA_BASE},
    **sections.TRAINING_FROM_TEXT,
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
        # A thing has the same tokens in the mission and where it is seen: heads that compare tokens find it.
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
