"""Makes fresh models of any architecture from a few sizes, and changes models before they are
trained: their rates of dropout, how their heads begin, their vocabulary.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from motif_jax.core import config as checks
from motif_jax.lm import config as configs
from motif_jax.lm.config import ModelConfig

# Margin of a comparing head's score for its tokens over the others: e^6 outweighs the tokens of any
# short text.
_SCORE = 6.0
# Where an architecture has dropout, as fields of `config.Dropout`; the others drop attention
# weights alone.
_DROPOUT = {
    "t5": ("embeddings", "attention", "outputs", "inner", "final"),
    "gpt2": ("embeddings", "attention", "outputs"),
    "roberta": ("embeddings", "attention", "outputs"),
}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of a fresh model.

    Attributes:
      layers: of the decoder, and of the encoder where there is one.
      key_value_heads: fewer than `heads` where query heads share them (Llama, Qwen2); None: as
          many.
      feed_forward: width inside; None: 4 times the width.
      max_length: most tokens of a text, the rows of a position table; T5 has no limit.
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
    """The config of a fresh model with tied heads; `tokens` are numbers of the `start`, `pad` and
    `end` token.

    T5 has the gated layers of version 1.1, with the tied and scaled head of version 1.0.

    Raises:
      UserError: sizes that do not fit together; it names the key in `section` of the config.
    """
    heads = sizes.heads
    key_value_heads = sizes.key_value_heads or heads
    feed_forward = sizes.feed_forward or 4 * sizes.width

    rotary = architecture in ("llama", "qwen2")
    # Rotary positions turn the dimensions of a head in pairs.
    divisor = 2 * heads if rotary else heads
    allowed = f"a multiple of the {heads} heads"
    if rotary:
        allowed += ", and each of an even width"
    checks.require(sizes.width % divisor == 0, f"{section}.width", sizes.width, allowed)
    fits = heads % key_value_heads == 0 and (rotary or key_value_heads == heads)
    allowed = (
        f"a divisor of the {heads} heads, and for other models than llama and qwen2 their number"
    )
    checks.require(fits, f"{section}.key_value_heads", key_value_heads, allowed)

    fields = dataclasses.asdict(sizes) | {
        "feed_forward": feed_forward,
        "head_width": sizes.width // heads,
        "encoder_layers": sizes.layers,
    }
    # RoBERTa's table begins with rows that no token uses.
    unused_positions = tokens["pad"] + 1 if architecture == "roberta" else 0
    layout = configs.LAYOUTS[architecture]
    # By way of a config.json: the checks of `config.parse` hold for fresh models, too.
    values: dict[str, Any] = {
        "model_type": architecture,
        "vocab_size": vocab_size,
        "tie_word_embeddings": True,
        "bos_token_id": tokens["start"],
        "pad_token_id": tokens["pad"],
        "eos_token_id": tokens["end"],
        "feed_forward_proj": "gated-gelu",
        "n_inner": feed_forward,
        "num_key_value_heads": key_value_heads,
        "max_position_embeddings": sizes.max_length + unused_positions,
        **{name: fields[field] for field, (name, *_) in layout.items() if field in fields},
    }
    return configs.parse(values, "the model")


def with_dropout(config: ModelConfig, rate: float) -> ModelConfig:
    """Sets the dropout rate wherever the architecture has dropout; see
    `LanguageModel.with_dropout`.
    """
    fields = _DROPOUT.get(config.architecture, ("attention",))
    dropout = configs.Dropout(**dict.fromkeys(fields, rate))
    return dataclasses.replace(config, dropout=dropout)


def with_comparing_heads(params: Mapping[str, Any], config: ModelConfig) -> dict[str, Any]:
    """Parameters of a fresh T5 whose heads compare tokens from the start, as trained heads do
    (Olsson et al. 2022).

    In the first half of the heads keys equal queries, so that a token attends to equal tokens. The
    other heads attend to the previous token, but the last quarter of the encoder's heads to the
    next one. Training changes all of them. The T5 needs at least four heads.
    """
    result: dict[str, Any] = copy.deepcopy(jax.device_get(params))
    half = config.heads // 2
    three_quarters = half + config.heads // 4

    # Bucket 1 is the previous token; the second half of an encoder's buckets is for later tokens.
    previous = 1
    following = config.relative_buckets // 2 + 1
    # Heads of the second half attend by position alone.
    result["encoder"]["relative_bias"][previous, half:three_quarters] = _SCORE
    result["encoder"]["relative_bias"][following, three_quarters:] = _SCORE
    result["decoder"]["relative_bias"][previous, half:] = _SCORE

    # Columns of a kernel [in, heads * width]: those of the first half of the heads.
    columns = half * config.head_width
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.layers)):
        for layer in range(layers):
            for name, module in result[side][f"block_{layer}"].items():
                if name.endswith("attention"):
                    query = module["query"]["kernel"]
                    module["key"]["kernel"][:, :columns] = _SCORE * query[:, :columns]
    return result


def extend_vocabulary(
    config: ModelConfig, params: Any, size: int, key: jax.Array, like: int | None = None
) -> tuple[ModelConfig, Any]:
    """Adds rows for new tokens; old rows and their logits stay as they are.

    A new row is that of the token `like`, or the mean of the old ones, plus noise with a tenth of
    their spread. At the mean an untrained token is neither the most likely nor out of reach (Hewitt
    2021, on new word embeddings of pretrained models), but the mean of a table is a word that no
    text has: delimiters learn sooner from the row of the end of text.

    Arrays that stay are shared.
    """
    more = size - config.vocab_size
    if more == 0:
        return config, params
    embedding, head = jax.random.split(key)
    grown = {**params, "embedding": _more_rows(params["embedding"], more, embedding, like)}
    if not config.tied:
        kernel = jnp.asarray(params["head"]["kernel"])
        grown["head"] = {**params["head"], "kernel": _more_rows(kernel.T, more, head, like).T}
    return dataclasses.replace(config, vocab_size=size), grown


def cut_vocabulary(config: ModelConfig, params: Any, size: int) -> tuple[ModelConfig, Any]:
    """Keeps the first `size` rows, since a checkpoint may have more rows than its tokenizer has
    tokens; other arrays are shared.
    """
    if size == config.vocab_size:
        return config, params
    fewer = {**params, "embedding": params["embedding"][:size]}
    if not config.tied:
        fewer["head"] = {**params["head"], "kernel": params["head"]["kernel"][:, :size]}
    return dataclasses.replace(config, vocab_size=size), fewer


def _more_rows(table: Any, more: int, key: jax.Array, like: int | None) -> jax.Array:
    table = jnp.asarray(table)
    wide = table.astype(jnp.float32)
    centre = wide.mean(axis=0) if like is None else wide[like]
    # In float32, since the mean of a large table in bfloat16 is coarse.
    fresh = centre + 0.1 * wide.std(axis=0) * jax.random.normal(key, (more, table.shape[1]))
    return jnp.concatenate([table, fresh.astype(table.dtype)])
