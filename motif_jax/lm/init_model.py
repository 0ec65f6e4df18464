"""Makes fresh models of any architecture from a few sizes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from motif_jax.core import config as checks
from motif_jax.lm import config as configs
from motif_jax.lm.config import ModelConfig

# Margin of a comparing head's score for its tokens over the others: e^6 outweighs the tokens of any short text.
_SCORE = 6.0


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of a fresh model.

    Attributes:
      layers: of the decoder, and of the encoder where there is one.
      key_value_heads: fewer than `heads` where query heads share them (Llama, Qwen2); None: as many.
      feed_forward: width inside; None: 4 times the width.
      max_length: rows of the position table, where there is one.
    """

    width: int
    layers: int
    heads: int
    key_value_heads: int | None = None
    feed_forward: int | None = None
    max_length: int = 1024


def make(
    architecture: str, sizes: Sizes, vocab_size: int, tokens: dict[str, int], section: str = "model"
) -> ModelConfig:
    """The config of a fresh model with tied heads (T5 of version 1.1); `tokens` are numbers of the `start`, `pad` and `end` token.

    Raises:
      UserError: sizes that do not fit together; it names the key in `section` of the config.
    """
    heads, groups = sizes.heads, sizes.key_value_heads or sizes.heads
    rotary = architecture in ("llama", "qwen2")
    allowed = f"a multiple of the {heads} heads" + rotary * ", and each of an even width"
    fits = sizes.width % (heads * (1 + rotary)) == 0
    checks.require(fits, f"{section}.width", sizes.width, allowed)
    allowed = f"a divisor of the {heads} heads, and for other models than llama and qwen2 their number"
    fits = heads % groups == 0 and (rotary or groups == heads)
    checks.require(fits, f"{section}.key_value_heads", groups, allowed)
    inner, fields = sizes.feed_forward or 4 * sizes.width, dataclasses.asdict(sizes)
    head_width = sizes.width // heads
    fields |= {"feed_forward": inner, "head_width": head_width, "encoder_layers": sizes.layers}
    # RoBERTa's table begins with rows that no token uses.
    spare = tokens["pad"] + 1 if architecture == "roberta" else 0
    layout = configs.LAYOUTS[architecture]
    values: dict[str, Any] = {
        "model_type": architecture,
        "vocab_size": vocab_size,
        "tie_word_embeddings": True,
        "bos_token_id": tokens["start"],
        "pad_token_id": tokens["pad"],
        "eos_token_id": tokens["end"],
        "feed_forward_proj": "gated-gelu",
        "n_inner": inner,
        "num_key_value_heads": groups,
        "max_position_embeddings": sizes.max_length + spare,
        **{name: fields[field] for field, (name, *_) in layout.items() if field in fields},
    }
    return configs.parse(values, "the model")


def with_dropout(config: ModelConfig, rate: float) -> ModelConfig:
    """Sets the dropout rate wherever the architecture has dropout; see `LanguageModel.with_dropout`."""
    places = {"t5": 5, "gpt2": 3, "roberta": 3}.get(config.architecture)
    dropout = configs.Dropout(attention=rate) if places is None else configs.Dropout(*[rate] * places)
    return dataclasses.replace(config, dropout=dropout)


def with_comparing_heads(params: Mapping[str, Any], config: ModelConfig) -> dict[str, Any]:
    """Parameters of a fresh T5 whose heads compare tokens from the start, as trained heads do (Olsson et al. 2022).

    In the first half of the heads keys equal queries, so that a token attends to equal tokens. The other heads attend to the token
    before; the last quarter of the encoder's to the token behind. Training changes all of them. The T5 needs at least four heads.
    """
    made = copy.deepcopy(jax.device_get(params))
    half, quarter = config.heads // 2, config.heads // 4
    ahead = config.relative_buckets // 2 + 1  # the second half of an encoder's buckets is for later tokens
    made["encoder"]["relative_bias"][1, half : half + quarter] = _SCORE
    made["encoder"]["relative_bias"][ahead, half + quarter :] = _SCORE
    made["decoder"]["relative_bias"][1, half:] = _SCORE
    same = half * config.head_width
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.layers)):
        for layer in range(layers):
            for name, part in made[side][f"block_{layer}"].items():
                if name.endswith("attention"):
                    part["key"]["kernel"][:, :same] = _SCORE * part["query"]["kernel"][:, :same]
    return made
