"""Whether prompts are plain text or turns of a chat model."""

from __future__ import annotations

from pathlib import Path

from motif_jax.core import config as checks
from motif_jax.core.compat import Compat
from motif_jax.glam.agent import is_joint
from motif_jax.glam.config import LanguagePolicy
from motif_jax.lm import chat_template
from motif_jax.lm import config as language_config
from motif_jax.lm.chat_template import ChatTemplate


def template_of(network: LanguagePolicy, compat: Compat, folder: Path) -> ChatTemplate | None:
    """The chat template by which the model in `folder` reads prompts, see `network.chat`; None:
    they are plain text.

    Raises:
      UserError: `network.chat=always`, and the model has no template, or its policy does not read
          prompt and action as one text.
    """
    if network.chat == chat_template.NEVER:
        return None
    template = chat_template.read(folder)
    joint = is_joint(network, compat, language_config.read(folder))
    if network.chat == chat_template.ALWAYS:
        allowed = f"{chat_template.AUTO} or {chat_template.NEVER}"
        has_template = f"{allowed}: config.network.model={network.model} has no chat template"
        checks.require(template is not None, "network.chat", network.chat, has_template)
        reads_both = f"{allowed} where prompt and action are not tokenised together as one text (docs/glam.md)"
        checks.require(joint, "network.chat", network.chat, reads_both)
    # Where they are tokenised apart, as for a T5, the action could not stand in the assistant's
    # turn.
    return template if joint else None


def prompts_in_words(network: LanguagePolicy, compat: Compat, folder: Path) -> str:
    """One line: how prompts are written."""
    template = template_of(network, compat, folder)
    # "auto", and a template that is there but not used: worth a line of its own.
    if (
        template is None
        and network.chat != chat_template.NEVER
        and chat_template.read(folder) is not None
    ):
        return "prompts: plain text, as they are (prompt and action are not tokenised together)"
    return chat_template.in_words(network.chat, template, "network.chat")
