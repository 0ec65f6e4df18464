"""Trains a language model on texts: a fresh one of any architecture from a seed, or one that is there.

    python -m motif_jax.launch --config=configs/pretrain_language_model.py --workdir=runs/language --config.texts=FILES

FILES are .txt, .md, .jsonl (objects with `text`, and `prompt` if they like) and .parquet (such columns, or dialogues of collect_text: an item
an action, with what came of it), or folders of them, with commas between; what has prompts needs --config.packing=items. Out come tokenizer/, tokens/, checkpoints/, metrics.jsonl, tensorboard/, summary.json, and model/, which transformers and
`motif_jax.language.load` open. Stopped at any moment and started again with the same command it goes on, to the same parameters.
Fine-tuning: --config.model.folder=FOLDER_OR_HUB_NAME, whole or by low-rank additions (--config.lora.patterns='*/attention/*'), the base
in 8 or 4 bits (--config.lora.base=nf4).

Variants:
  (none)      a GPT-2 of 124 million parameters, with the sizes and rates that such models are trained with.
  quickstart  a small GPT-2 that sees two million tokens, a few minutes on 2 cores.
  babyai      a T5 of 0.87 million parameters of the text of random play, 3 to 4 minutes on 2 cores (docs/glam.md).
  smoke       seconds: whether everything works.
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.support import nonfinite
from motif_jax.support.config import unknown_variant

VARIANTS = ("", "quickstart", "babyai", "smoke")


def _model() -> ConfigDict:
    model = ConfigDict()
    model.folder = placeholder(
        str
    )  # fine-tune this folder or hub model; the keys below are those of a fresh one
    model.architecture = "gpt2"  # 't5' (as version 1.1), 'llama', 'qwen2', 'roberta'
    model.width = 768
    model.layers = 12  # of a T5 on both sides
    model.heads = 12
    model.key_value_heads = placeholder(int)  # fewer than heads in 'llama' and 'qwen2'; None: as many
    model.feed_forward = placeholder(int)  # None: 4 times the width
    model.max_length = placeholder(int)  # positions of the table; None: config.length
    return model


def _optimizer() -> ConfigDict:
    optimizer = ConfigDict()
    optimizer.learning_rate = 6e-4
    optimizer.schedule = "cosine"  # 'linear', 'constant'
    optimizer.warmup_steps = 700  # over so many the rate rises; then it falls until the last step
    optimizer.final_fraction = 0.1
    optimizer.b1 = 0.9
    optimizer.b2 = 0.95
    optimizer.eps = 1e-8
    optimizer.weight_decay = 0.1  # of matrices, times the learning rate
    optimizer.max_gradient_norm = 1.0  # 0: no clip
    return optimizer


def get_config(variant: str | None = None) -> ConfigDict:
    config = ConfigDict()
    config.stage = "pretrain_language_model"
    config.seed = 0
    config.texts = placeholder(str)  # files and folders, with commas between them
    config.text_item = (
        "paragraph"  # of .txt and .md files: 'paragraph' (empty lines divide them), 'line', 'file'
    )
    config.tokens = placeholder(
        str
    )  # in place of texts: tokens/ of another run, whose tokenizer is named below
    config.held_out = ConfigDict()  # what perplexity is measured on
    config.held_out.share = 0.02  # of the items, evenly spread
    config.held_out.texts = placeholder(str)  # in place of a share: files of their own
    config.model = _model()
    config.tokenizer = ConfigDict()
    config.tokenizer.folder = placeholder(str)  # with tokenizer.json; None: made of the texts
    config.tokenizer.vocab_size = 32_768  # at most
    config.tokenizer.phrases = False  # merge over spaces too, up to the end of a sentence
    config.tokenizer.most_texts = 1_000_000  # it is made of the first so many
    # What is predicted: 'causal' (decoders), 'masked' (roberta), 'spans' or 'prefix' (t5); None: the first that the architecture has.
    config.objective = placeholder(str)
    # 'windows': items laid end to end and cut, none of them with a prompt; 'items': a row each, with rows of about one length together.
    config.packing = "windows"
    config.length = 1024  # tokens of a row
    config.batch_size = 256  # rows of a step
    config.accumulate = 1  # micro-batches of a step: less memory, one result
    config.steps = 20_000
    config.evaluate_every = 500  # steps
    config.evaluation_batches = placeholder(int)  # of held-out text; None: all
    config.optimizer = _optimizer()
    config.dropout = 0.0  # share left out while training, where the architecture has dropout
    config.dtype = "float32"  # of the computation: 'bfloat16'; parameters, optimiser and losses are float32
    config.remat = False  # compute activations again in the backward pass instead of keeping them
    config.logits_chunk = placeholder(
        int
    )  # tokens whose logits are there at once; None: all of a micro-batch
    config.lora = ConfigDict()
    config.lora.patterns = (
        ""  # of layers with low-rank additions, '*/attention/query,*/attention/value'; empty: all is learned
    )
    config.lora.rank = 8
    config.lora.alpha = 16.0  # additions are multiplied by alpha / rank
    config.lora.base = "float32"  # of what is frozen then: 'bfloat16', 'int8', 'nf4'
    # End when the loss on held-out text was no better for so many evaluations, and use the best; 0: never.
    config.early_stopping = ConfigDict({"patience": 0})
    config.keep_checkpoints = 2  # the newest, besides the best
    # Of this machine; None: all. With dropout a run goes on with as many alone.
    config.num_devices = placeholder(int)
    # For what does not fit one device: parameters and optimiser are split over fsdp x tensor of the devices, and batches over
    # the others and fsdp (docs/language.md). 1 and 1: every device holds all.
    config.sharding = ConfigDict({"fsdp": 1, "tensor": 1})
    config.chunk_steps = 8  # optimiser steps of one program
    # Of float32 matrix products: 'highest', or 'default', which on recent GPUs rounds their factors to TF32 (10 bits).
    config.matmul_precision = "default"
    config.save_every_seconds = 300.0  # besides every evaluation
    # Where a loss, a gradient or a parameter is not finite the step is not taken, and its batch is written to
    # nonfinite/step-N.npz: 'stop' ends the training there, 'skip' goes on, most_skips times at most.
    config.nonfinite = nonfinite.defaults()
    config.profile = ConfigDict({"start": placeholder(int), "steps": 2, "server_port": placeholder(int)})
    config.wandb = ConfigDict({"enabled": False, "project": "motif_jax", "name": placeholder(str)})
    if variant in ("quickstart", "smoke"):
        config.model.update({"width": 128, "layers": 4, "heads": 4})
        config.tokenizer.vocab_size = 2048
        config.update({"length": 128, "batch_size": 16, "steps": 1000, "evaluate_every": 100})
        config.optimizer.update({"learning_rate": 1e-3, "warmup_steps": 50})
        config.held_out.share = 0.05
        config.evaluation_batches = 20
        config.save_every_seconds = 30.0
    if variant == "smoke":
        config.model.update({"width": 64, "layers": 2, "heads": 2})
        config.tokenizer.vocab_size = 512
        config.update({"length": 32, "batch_size": 8, "steps": 20, "evaluate_every": 8, "chunk_steps": 4})
        config.optimizer.update({"warmup_steps": 4})
        config.evaluation_batches = 4
    elif variant == "babyai":
        config.model.update(
            {"architecture": "t5", "width": 128, "layers": 2, "heads": 4, "feed_forward": 256}
        )
        # Phrases until things and places are a token each: "purple key ", "1 step left and 3 steps forward, You see a ". More, and a
        # mission's things get tokens of their own, which have to be learned to mean what is seen.
        config.tokenizer.update({"vocab_size": 600, "phrases": True})
        config.objective, config.packing = "prefix", "items"
        config.update({"length": 96, "batch_size": 64, "steps": 1000, "evaluate_every": 250})
        config.optimizer.update({"learning_rate": 1e-3, "warmup_steps": 50})
        config.evaluation_batches = 10
        config.save_every_seconds = 30.0
    elif variant not in (None, "", "quickstart"):
        raise unknown_variant(variant, VARIANTS)
    return config
