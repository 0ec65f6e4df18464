"""A user's account with a server: the key from the environment, its spellings in messages, and the prices of tokens."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.motif.annotation.annotator import Prices
from motif_jax.motif.annotation.config import AnnotatorConfig, OpenaiServer


def prices_of(config: AnnotatorConfig) -> Prices | None:
    """The prices of a million tokens that the config names; None where all are 0."""
    prices = config.openai.prices
    if not (prices.prompt or prices.cached or prices.completion):
        return None
    cached = prices.prompt if prices.cached is None else prices.cached
    return Prices(prices.prompt, cached, prices.completion)


def as_sent(identity: Mapping[str, Any], settings: OpenaiServer) -> dict[str, Any]:
    """An annotator's identity, with None for what the server is not sent and so draws by its own default."""
    is_sent = {"top_k": settings.send_top_k, "seed": settings.send_seed}
    sampling = {
        name: value if is_sent.get(name, True) else None for name, value in identity["sampling"].items()
    }
    return {**identity, "sampling": sampling}


def key_pattern(key: str) -> re.Pattern[str]:
    """Matches a key whose characters are plain or escaped for JSON (\\/, \\u002f) or URLs (%2f)."""
    characters = [rf"(?:\\?{re.escape(c)}|(?i:\\u{ord(c):04x}|%{ord(c):02x}))" for c in key]
    return re.compile("".join(characters))


def key_of(variable: str) -> str:
    """The key in an environment variable, without the line end of secret files; UserError if it cannot be sent."""
    key = os.environ.get(variable, "").strip()
    if not key.isprintable():
        raise UserError(
            f"the environment variable {variable} holds characters that no key can have, such as a line's end"
        )
    return key
