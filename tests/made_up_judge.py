"""A chat model with made-up weights in a folder as people have them: ChatML, byte pairs, a Llama of
two layers.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

from motif_jax.lm import config, folder
from motif_jax.lm.model import LanguageModel

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXTS = [
    "Message A: Message B: Which message is better news? You kill the newt! You see here a key."
] * 3
VALUES = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 600,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "initializer_range": 0.5,
}


def tokenizer() -> Tokenizer:
    backend = Tokenizer(BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator([*TEXTS, " A B N Yes No", "A B N Yes No"] * 3, trainer)
    backend.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return backend


def write(path: Path, seed: int = 0, template: str | None = CHATML, decided: bool = False) -> Path:
    """Writes the model's folder, which transformers would open; returns it.

    `decided`: nearly all probability is on " A" or on " B", so that answers are verdicts.
    """
    path.mkdir(parents=True)
    backend = tokenizer()
    backend.save(str(path / "tokenizer.json"))
    tokens = {"bos_token": SPECIAL[0], "eos_token": {"content": SPECIAL[2]}}
    values = tokens | ({} if template is None else {"chat_template": template})
    (path / "tokenizer_config.json").write_text(json.dumps(values))
    settings = config.parse({**VALUES, "vocab_size": backend.get_vocab_size()})
    params = LanguageModel(settings).init(jax.random.key(seed))
    if decided:
        kernel = params["head"]["kernel"]
        direction = 10 * kernel[:, 0]
        first, second = (backend.token_to_id(f"Ġ{letter}") for letter in "AB")
        zeros = jnp.zeros_like(kernel)
        params["head"]["kernel"] = zeros.at[:, first].set(direction).at[:, second].set(-direction)
    folder.write(path, settings, params)
    return path
