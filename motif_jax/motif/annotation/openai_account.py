"""A user's account with a server: the identity of its answers, the key from the environment, its
spellings, the prices of tokens.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.motif.annotation import replies
from motif_jax.motif.annotation.annotator import Prices
from motif_jax.motif.annotation.chat import json_option
from motif_jax.motif.annotation.config import AnnotatorConfig, OpenaiServer

# Fields of a request that `openai.extra_body` may not have.
_RESERVED = frozenset({"model", "messages", "n", "stream"})


def check(config: AnnotatorConfig) -> None:
    """Raises UserError for a key, a model's name or further fields that cannot be sent."""
    key_of(config.openai.key_variable)

    model = config.openai.model
    checks.require(bool(model), "openai.model", model, "the model's name on the server")

    reserved = json_option(config, "openai.extra_body").keys() & _RESERVED
    allowed = "without model, messages, n and stream: a question is one request of one whole answer"
    checks.require(not reserved, "openai.extra_body", config.openai.extra_body, allowed)


def prices_of(config: AnnotatorConfig) -> Prices | None:
    """The prices of a million tokens that the config names; None where all are 0."""
    prices = config.openai.prices
    if not (prices.prompt or prices.cached or prices.completion):
        return None
    # Without a price of its own the cached part costs as the rest.
    cached = prices.prompt if prices.cached is None else prices.cached
    return Prices(prices.prompt, cached, prices.completion)


def model_identity(config: AnnotatorConfig, extra_body: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies the model and its answers, besides what all models are asked."""
    settings = config.openai
    return {
        "annotator": "openai",
        "model": settings.model,
        "revision": settings.revision,
        "structured": settings.structured if config.answer.mode == "verdict" else None,
        "extra_body": extra_body,
    }


def as_sent(identity: Mapping[str, Any], settings: OpenaiServer, prefill: str) -> dict[str, Any]:
    """An annotator's identity by what the server is sent: None for what is not, which it draws by
    its own default.

    In mode soft also the beginning of the answer, `prefill`, and the fields that ask for its
    probabilities.
    """
    is_sent = {"top_k": settings.send_top_k, "seed": settings.send_seed}
    sampling = {
        name: value if is_sent.get(name, True) else None
        for name, value in identity["sampling"].items()
    }
    sent = {**identity, "sampling": sampling}
    if identity["mode"] == "soft":
        sent["reading"] = {
            **identity["reading"],
            "prefill": prefill,
            "request": replies.SOFT_REQUEST,
        }
    return sent


def key_pattern(key: str) -> re.Pattern[str]:
    """Matches a key whose characters are plain or escaped for JSON (\\/, \\u002f) or URLs (%2f)."""
    characters = [rf"(?:\\?{re.escape(c)}|(?i:\\u{ord(c):04x}|%{ord(c):02x}))" for c in key]
    return re.compile("".join(characters))


def key_of(variable: str) -> str:
    """The key in an environment variable, without the line end of secret files; UserError if it
    cannot be sent.
    """
    key = os.environ.get(variable, "").strip()
    if not key.isprintable():
        raise UserError(
            f"the environment variable {variable} holds characters that no key can have, such as a line's end"
        )
    return key
