"""What a server of language models refuses, in words that name the key to change."""

from __future__ import annotations

import re

from motif_jax.motif.annotation.chat_client import StatusError, without_user
from motif_jax.motif.annotation.config import OpenaiServer
from motif_jax.motif.annotation.openai_account import key_of

# Fields that limit an answer: the one that nearly all servers take, then that of servers that
# refuse the first.
LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
# HTTP statuses whose cause may pass: timeouts, conflicts, too many requests, faults of the server.
PASSING_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})
# Field that a server may refuse -> the key that leaves it out.
_REMEDIES = {
    "top_p": "config.sampling.top_p=None",
    "temperature": "config.sampling.temperature=None",
    "top_k": "config.openai.send_top_k=False",
    "seed": "config.openai.send_seed=False",
    "structured_outputs": "config.openai.structured=response_format or none",
    "response_format": "config.openai.structured=structured_outputs or none",
}


class RefusedQuestionError(Exception):
    """The server refuses this question."""


def lasting(error: StatusError, settings: OpenaiServer) -> str:
    """What the server does not accept, with the config key to change."""
    key = f"the key of the environment variable {settings.key_variable}"
    if 300 <= error.status < 400:
        url = error.headers.get("location", "another address").removesuffix("/chat/completions")
        return f"redirects requests to {without_user(url)}: set config.openai.base_url to where they are answered"
    if error.status == 401 and not key_of(settings.key_variable):
        variable = f"the environment variable {settings.key_variable}"
        return f"wants a key: set {variable}, or name the one that has it in config.openai.key_variable"
    if error.status == 401:
        return f"refuses {key}"
    if error.status == 403:
        return f"refuses the request, or {key}, with HTTP 403"
    if error.status == 404:
        text = f"does not know config.openai.model={settings.model}"
        hint = ", or has no chat/completions there: config.openai.base_url commonly ends in /v1"
        return text if settings.model in str(error) else text + hint
    for word, remedy in _REMEDIES.items():
        if re.search(rf"\b{word}\b", str(error)):
            return f"refuses {word}: set {remedy}"
    return f"refuses the request with HTTP {error.status}"
