"""Tiny checkpoints whose tokenizer knows the words of BabyAI-Text: agents that can be trained in
seconds.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jax
from tokenizers import Tokenizer, models, pre_tokenizers

from motif_jax.lm import config, folder
from motif_jax.lm.model import LanguageModel

WORDS = (
    "<pad> </s> <unk> possible action of the agent : , . ' turn left right go forward pick up drop toggle goal to a ball box key "
    "door red green blue purple yellow grey observation you see wall step steps and carry open closed locked then after put next "
    "sleep think Possible Action Goal Observation You"
).split()
WORDS += [str(number) for number in range(10)]
T5 = {
    "model_type": "t5",
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 12,
    "num_layers": 1,
    "num_decoder_layers": 1,
}
T5 |= {"num_heads": 2, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
T5 |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "dropout_rate": 0.1}
GPT2 = {"model_type": "gpt2", "n_positions": 256, "n_embd": 8, "n_layer": 1, "n_head": 2}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 1}
CONFIGS: dict[str, dict[str, Any]] = {"t5": T5, "gpt2": GPT2}
initialiser = functools.cache(lambda settings: jax.jit(LanguageModel(settings).init))


def write(path: Path, name: str = "t5", seed: int = 0) -> Path:
    """Writes a checkpoint of that architecture with fresh weights."""
    path.mkdir(parents=True, exist_ok=True)
    backend = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(WORDS)}, "<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.save(str(path / "tokenizer.json"))
    (path / "config.json").write_text(json.dumps({**CONFIGS[name], "vocab_size": len(WORDS)}))
    settings = config.read(path)
    folder.write(path, settings, initialiser(settings)(jax.random.key(seed)))
    return path
