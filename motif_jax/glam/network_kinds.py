"""The kinds of network that read prompts, as a training of agents asks for them: language models,
and DRRN.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from motif_jax.core import digests
from motif_jax.core.sections import LoraOnBase
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.glam import agent, drrn
from motif_jax.glam.config import LanguagePolicy
from motif_jax.lm import chat_template, weights
from motif_jax.lm import config as language_config
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import FILE
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl import agent_checkpoints
from motif_jax.rl.agent_networks import NetworkKind
from motif_jax.rl.config import AgentConfig

_ACTION_TOKENS = 32  # tokens, room for the longest action after a prompt


class LanguageNetworkKind(NetworkKind):
    """A language model (`glam/agent.py`)."""

    named_by = "model"
    splits = True
    is_slow = True

    @classmethod
    def make(cls, config: AgentConfig, spec: EnvironmentSpec) -> PolicyNetwork:
        return agent.make(config.network, config.lora or LoraOnBase(), config.compat, spec)

    @classmethod
    def check(cls, config: AgentConfig) -> None:
        # For its error alone, where the key and the switches name several forms.
        agent.form_of(config.network.score, config.compat)

    @classmethod
    def environment_options(cls, config: AgentConfig) -> dict[str, Any]:
        network = config.network
        file = (_model(network) / FILE).resolve()
        special = network.special_tokens == agent.PROMPT or config.compat.glam_end_token
        options = {
            "tokenizer": str(file),
            "prompt_tokens": network.prompt_tokens,
            "special_tokens": special,
        }
        if agent.is_joint(network, config.compat, language_config.read(_model(network))):
            options["joint_actions"] = True
        template = agent.template_of(network, config.compat, _model(network))
        if template is not None:
            # A list, as it comes back from the JSON of a plan.
            options["prompt_turn"] = list(chat_template.around_prompt(template))
        return options

    @classmethod
    def remark(cls, config: AgentConfig) -> str:
        if config.network.chat == chat_template.NEVER:
            # Without a look at the model, which may have to be fetched.
            return chat_template.in_words(chat_template.NEVER, None, "network.chat")
        return agent.prompts_in_words(config.network, config.compat, _model(config.network))

    @classmethod
    def file_digests(cls, config: AgentConfig) -> dict[str, str]:
        # What every start reads and no checkpoint has: a run goes on only with the same.
        files = {"tokenizer": digests.of_input(cls.environment_options(config)["tokenizer"])}
        template = agent.template_of(config.network, config.compat, _model(config.network))
        if template is not None:
            files["chat template"] = digests.of_bytes(template.text.encode())
        # With additions the base is read at every start; a model that is trained whole only at the
        # first (`start_digests`).
        if config.lora is not None and config.lora.patterns:
            files["base model"] = weights.digest(_model(config.network))
        return files

    @classmethod
    def start_digests(cls, config: AgentConfig) -> dict[str, str]:
        is_read = config.network.pretrained or config.network.keep_embedding
        is_base = config.lora is not None and bool(config.lora.patterns)  # `file_digests` has it
        if is_base or not is_read:
            return {}
        return {agent_checkpoints.MODEL: weights.digest(_model(config.network))}

    @classmethod
    def takes_any_actions(cls, config: AgentConfig) -> bool:
        return config.network.policy == "score"

    @classmethod
    def prompt_room(cls, config: AgentConfig) -> int | None:
        model = language_config.read(_model(config.network))
        # Beside an encoder the actions have the decoder's positions.
        if model.max_length is None or model.encoder_layers:
            return model.max_length
        return model.max_length - _ACTION_TOKENS

    @classmethod
    def product_dtype(cls, config: AgentConfig) -> str:
        return config.network.dtype

    @classmethod
    def counted(
        cls, config: AgentConfig, network: PolicyNetwork, params: Any
    ) -> tuple[PolicyNetwork, Any]:
        return network, jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params
        )


class DrrnNetworkKind(NetworkKind):
    """DRRN (`glam/drrn.py`)."""

    named_by = "tokenizer"

    @classmethod
    def make(cls, config: AgentConfig, spec: EnvironmentSpec) -> PolicyNetwork:
        return drrn.make(config.network, spec)

    @classmethod
    def check(cls, config: AgentConfig) -> None:
        drrn.tokenizer_file(config.network.tokenizer)

    @classmethod
    def environment_options(cls, config: AgentConfig) -> dict[str, Any]:
        file = drrn.tokenizer_file(config.network.tokenizer)
        return {
            "tokenizer": str(file),
            "prompt_tokens": config.network.prompt_tokens,
            "special_tokens": False,
        }

    @classmethod
    def file_digests(cls, config: AgentConfig) -> dict[str, str]:
        return {"tokenizer": digests.of_input(cls.environment_options(config)["tokenizer"])}

    @classmethod
    def takes_any_actions(cls, config: AgentConfig) -> bool:
        return True


def _model(network: LanguagePolicy) -> Path:
    return fetch(network.model, "network.model")
