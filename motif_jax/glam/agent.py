"""A language model as an agent: it reads a prompt, scores the actions' words, and has a value
(Carta et al. 2023, GLAM).

Training changes the whole model, or low-rank additions to a frozen base of any precision
(`config.lora`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from motif_jax.core import config as checks
from motif_jax.core.compat import Compat
from motif_jax.core.errors import UserError
from motif_jax.core.sections import LoraOnBase
from motif_jax.envs.babyai_text.prompts import CANDIDATE_STARTS, CANDIDATES, TOKENS, after_prompt
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.glam.config import LanguagePolicy
from motif_jax.lm import chat_template, finetune_params, lora, scoring, weights
from motif_jax.lm import config as language_config
from motif_jax.lm import folder as folders
from motif_jax.lm.chat_template import ChatTemplate
from motif_jax.lm.heads import HeadConfig, Heads
from motif_jax.lm.model import LanguageModel, param_shapes
from motif_jax.lm.scoring import LOG_PROBABILITY, RAW_LOGIT, SCALED_PROBABILITY
from motif_jax.lm.text import fetch
from motif_jax.lm.tokens import Tokenizer, TokenRows, bucket, candidate_rows, padded

# The head of a policy that does not score words.
ACTIONS = "actions"
# Which texts get the tokenizer's special tokens; with `compat.glam_end_token` the candidates get
# them too.
PROMPT = "prompt"
# Switches that name a form of the score.
_SWITCHES = {"glam_raw_logit_score": RAW_LOGIT, "glam_scaled_probability_score": SCALED_PROBABILITY}


def form_of(score: str, compat: Compat) -> str:
    """The form of the score, as named or from a switch; UserError where they disagree."""
    switched = {switch: form for switch, form in _SWITCHES.items() if getattr(compat, switch)}
    forms = set(switched.values())
    if score != LOG_PROBABILITY:  # the default, which every switch may replace
        forms.add(score)
    for switch, form in switched.items():
        allowed = "False: the score has one form, and compat.glam_raw_logit_score, compat.glam_scaled_probability_score and network.score name several"
        checks.require(forms == {form}, f"compat.{switch}", True, allowed)
    return next(iter(switched.values()), score)


class PromptReader:
    """The common part of policies that read prompts: `tokens` int32 [L], padded with -1; they keep
    no state.
    """

    def frozen(self) -> dict[str, Any]:
        return {}

    def prepare(self, params: Any) -> Any:
        return params

    def cropped(self, observation: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Cuts `tokens` after the longest prompt, to one of a few lengths (`tokens.bucket`) so that
        few programs are compiled.

        `candidates` are cut after the longest, which is the same for nearly all prompts.
        """
        # On the host, before each call: programs are compiled for a few lengths and not for every
        # one.
        tokens = observation[TOKENS]
        cropped = {**observation, TOKENS: tokens[..., : bucket(_longest(tokens), tokens.shape[-1])]}
        if CANDIDATES in observation:
            candidates = observation[CANDIDATES]
            cropped[CANDIDATES] = candidates[..., : _longest(candidates)]
        return cropped

    def initial_state(self, batch_size: int) -> Any:
        """An empty array, int32 [batch_size, 0]: the prompt holds the history."""
        return jnp.zeros((batch_size, 0), jnp.int32)


@dataclasses.dataclass(frozen=True)
class LanguageAgent(PromptReader):
    """Implements `nets.policy.PolicyNetwork`.

    The policy's logits are scores of the actions' words after the prompt, or outputs of a head.
    Value and action head read the state that predicts a candidate's first token.

    Attributes:
      spec: the observation may have `candidates` int32 [A, S], padded with -1: the actions of that
        prompt; a row without tokens is no action. `candidate_starts` int32 [A], where there are
        any, are the tokens at the beginning of each that are the prompt's.
      heads: 'value', and 'actions' where the policy is a head.
      candidates: tokens of the actions of all prompts; None where each prompt has its own.
      form, by_length, pad_plus_one: see `candidate_scores`.
      source: folder of the model's weights; None: fresh weights, with the embeddings of
        `keep_embedding` if it is a folder.
      dropout: whether dropout is on, in acting and in learning (`compat.glam_untrained_dropout`).
    """

    spec: EnvironmentSpec
    model: LanguageModel
    heads: Heads
    candidates: TokenRows | None
    form: str
    by_length: bool
    pad_plus_one: bool
    source: Path | None
    keep_embedding: Path | None
    dropout: bool
    adaptation: finetune_params.Adaptation

    @property
    def fields(self) -> tuple[str, ...]:
        if self.candidates is not None:
            return (TOKENS,)
        return (TOKENS, CANDIDATES, CANDIDATE_STARTS) if self.is_joint else (TOKENS, CANDIDATES)

    @property
    def is_joint(self) -> bool:
        """Whether the environment shows the actions tokenised together with each prompt."""
        return self.candidates is None and CANDIDATE_STARTS in self.spec.observation

    def init(self, key: jax.Array) -> Any:
        """Trained parameters, float32: fresh 'heads', and 'model' or low-rank 'additions' to it."""
        model_key, head_key = jax.random.split(key)
        heads = self.heads.init(head_key)
        # The base is in `frozen`: a checkpoint holds the additions and heads alone.
        if self.adaptation.spec is not None:
            shapes = jax.eval_shape(self.model.init, model_key)
            return {"additions": lora.init(model_key, shapes, self.adaptation.spec), "heads": heads}
        if self.source is not None:
            return {
                # The folder is read when training starts, and no earlier: `make` reads no weights.
                "model": jax.tree.map(jnp.asarray, folders.read(self.source).params),
                "heads": heads,
            }
        params = self.model.init(model_key)
        if self.keep_embedding is not None:
            params = _with_embeddings(params, folders.read(self.keep_embedding).params)
        return {"model": params, "heads": heads}

    def frozen(self) -> dict[str, Any]:
        """The frozen base of low-rank additions, numpy arrays; empty without additions."""
        if self.adaptation.spec is None:
            return {}
        assert self.source is not None
        _, frozen = self.adaptation.arrange(
            folders.read(self.source).params, None, jax.random.key(0)
        )
        return frozen

    def apply(
        self, params: Any, observation: Mapping[str, jax.Array], state: Any, first: jax.Array
    ) -> tuple[jax.Array, jax.Array, Any]:
        """See `PolicyNetwork.apply`; `params` has the trained and the frozen parameters in one
        dict.
        """
        chex.assert_rank([observation[TOKENS], first], [3, 2])
        # Time and batch become one axis: a prompt holds its own history, so that steps do not
        # depend on each other.
        rows = {
            name: observation[name].reshape(-1, *observation[name].shape[2:])
            for name in self.fields
        }
        logits, value = self.logits_and_values(params, **rows)
        return logits.reshape(*first.shape, -1), value.reshape(first.shape), state

    def logits_and_values(
        self,
        params: Any,
        tokens: jax.Array,
        candidates: jax.Array | None = None,
        candidate_starts: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Logits float32 [N, A] and values float32 [N] after prompts int32 [N, L], padded with -1.

        `candidates` int32 [N, A, S] and `candidate_starts` int32 [N, A] are the actions of each
        prompt, see the class.
        """
        # Padding of -1 reads token 0, which `valid` hides.
        prompt = jnp.maximum(tokens, 0)
        # An empty row, which compilation has, reads one token.
        valid = (tokens >= 0).at[:, 0].set(True)
        model = self.model.with_dropout(dropout_key(params, tokens)) if self.dropout else self.model
        with finetune_params.active(params, self.adaptation.spec):
            # NPAE and AFLAN of the paper: the candidate is the empty text, whose state the heads
            # read.
            if ACTIONS in self.heads.configs:
                states = _opening_states(model, params["model"], prompt, valid)
                logits = self.heads.apply(params["heads"], ACTIONS, states)
            else:
                candidate_tokens, candidate_valid = self._candidates(candidates)
                scores = scoring.score(
                    model,
                    params["model"],
                    prompt,
                    valid,
                    candidate_tokens,
                    candidate_valid,
                    self.by_length,
                    self.form,
                    self.pad_plus_one,
                    candidate_starts,
                )
                states = scores.states
                # Section 3 of the paper: the policy is the softmax of these scores.
                logits = scores.total
        # The state before any action's token, so that the value does not depend on the action.
        return logits, self.heads.apply(params["heads"], "value", states)

    def _candidates(self, observed: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Tokens, and which of them are not padding, of the candidates that are observed, or of
        those of all prompts.
        """
        if observed is not None:
            return jnp.maximum(observed, 0), observed >= 0
        assert self.candidates is not None
        return jnp.asarray(self.candidates.tokens), jnp.asarray(self.candidates.valid)


def _longest(rows: np.ndarray) -> int:
    """The length of the longest row of tokens [..., L], padded with -1; at least 1."""
    columns = np.flatnonzero((rows >= 0).reshape(-1, rows.shape[-1]).any(axis=0))
    return int(columns[-1]) + 1 if len(columns) else 1


def _opening_states(
    model: LanguageModel, params: Any, prompt: jax.Array, valid: jax.Array
) -> jax.Array:
    """The states [N, D] that predict a candidate's first token."""
    params = model.prepared(params)
    states, encoded_prompt = model.prefill(params, prompt, valid)
    if not model.config.encoder_layers:
        return scoring.last_state(states, valid).after
    # A decoder after an encoder begins with its start token; its state reads the whole prompt.
    start = jnp.full((len(prompt), 1, 1), model.config.start_id, jnp.int32)
    return model.extend(params, encoded_prompt, start, jnp.ones_like(start, bool))[0].after[:, 0, 0]


def dropout_key(params: Any, tokens: jax.Array) -> jax.Array:
    """The dropout key of one call, a hash of rows `tokens` int32 [..., T] and of parameters.

    `PolicyNetwork.apply` receives no key, and a resumed run draws the same masks again.
    """
    # Knuth's multiplicative hash, by position.
    factors = jnp.arange(1, tokens.size + 1, dtype=jnp.uint32) * jnp.uint32(2654435761)
    rows_hash = jnp.sum((tokens.reshape(-1).astype(jnp.uint32) + 1) * factors, dtype=jnp.uint32)
    # One parameter is enough: every update changes the bias of the value.
    bias = jax.lax.stop_gradient(params["heads"]["value"]["output"]["bias"])
    bits = jax.lax.bitcast_convert_type(bias.astype(jnp.float32), jnp.uint32)
    params_hash = jnp.sum(bits, dtype=jnp.uint32)
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(0), rows_hash), params_hash)


def is_joint(network: LanguagePolicy, compat: Compat, model: language_config.ModelConfig) -> bool:
    """Whether prompts and actions are tokenised together: where a decoder scores the actions'
    words.

    The published code tokenises them apart, which `compat.glam_separate_tokens` does, and the end
    tokens of its first release do.
    """
    # An encoder's prompt is a text of its own in any case.
    is_published = compat.glam_separate_tokens or compat.glam_end_token
    return network.policy != ACTIONS and not model.encoder_layers and not is_published


def template_of(network: LanguagePolicy, compat: Compat, folder: Path) -> ChatTemplate | None:
    """The chat template by which the model in `folder` reads prompts, see `network.chat`; None:
    they are plain text.

    Raises UserError: `network.chat=always`, and the model has none, or its policy does not read
    prompt and action as one text.
    """
    if network.chat == chat_template.NEVER:
        return None
    template = chat_template.read(folder)
    joint = is_joint(network, compat, language_config.read(folder))
    if network.chat == chat_template.ALWAYS:
        allowed = f"{chat_template.AUTO} or {chat_template.NEVER}: config.network.model={network.model} has no chat template, or prompt and action are not tokenised together as one text (docs/glam.md)"
        is_read = template is not None and joint
        checks.require(is_read, "network.chat", network.chat, allowed)
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


def make(
    chosen: LanguagePolicy, lora: LoraOnBase, compat: Compat, spec: EnvironmentSpec
) -> LanguageAgent:
    """Builds the agent; reads no weights.

    Raises:
      UserError: the model's folder lacks a file, or candidates or prompts do not fit the model.
    """
    folder = fetch(chosen.model, "network.model")
    settings = weights.read_config(folder)
    language_config.require_decoder(settings, "acts")
    if chosen.pretrained or chosen.keep_embedding:
        weights.check(folder, settings)
    tokenizer = Tokenizer.read(folder, settings.vocab_size)

    # The environment shows the actions of each prompt, else they are tokenised once here.
    if CANDIDATES in spec.observation:
        candidates = None
        shape = spec.observation[CANDIDATES].shape
        if is_joint(chosen, compat, settings) and CANDIDATE_STARTS in spec.observation:
            # Refuses actions with equal tokens before the first prompt.
            candidate_rows(tokenizer, [after_prompt(name) for name in spec.action_names])
    elif is_joint(chosen, compat, settings):
        raise UserError(
            "config.compat.glam_separate_tokens=False: must be True in this environment, which does not show the actions tokenised "
            "together with each prompt (its field candidates)"
        )
    else:
        candidates = padded(candidate_rows(tokenizer, spec.action_names, compat.glam_end_token))
        shape = candidates.tokens.shape
    # T5 has no limit: its positions are relative.
    room = settings.max_length
    if room is not None and chosen.prompt_tokens + shape[1] > room:
        raise UserError(
            f"config.network.prompt_tokens={chosen.prompt_tokens}: prompt and action must fit the {room} positions of the model"
        )

    outputs = {"value": 1}
    if chosen.policy == ACTIONS:
        outputs[ACTIONS] = spec.num_actions
    widths = tuple(chosen.head_widths)
    configs = {name: HeadConfig(count, widths, "sigmoid") for name, count in outputs.items()}
    model = LanguageModel(settings, jnp.dtype(chosen.dtype), chosen.remat)
    # Shapes only: hosts join after this, and jax must not compute before they do.
    finetune_params.check(lora, param_shapes(settings))
    return LanguageAgent(
        spec=spec,
        model=model,
        heads=Heads(settings.width, configs),
        candidates=candidates,
        form=form_of(chosen.score, compat),
        by_length=chosen.by_length,
        pad_plus_one=compat.glam_pad_plus_one,
        source=folder if chosen.pretrained else None,
        keep_embedding=folder if chosen.keep_embedding and not chosen.pretrained else None,
        dropout=compat.glam_untrained_dropout and not chosen.pretrained,
        adaptation=finetune_params.Adaptation(model, finetune_params.spec_of(lora), lora.base),
    )


def _with_embeddings(params: Any, pretrained: Any) -> Any:
    """`params` with the embeddings of `pretrained`: of tokens, positions and types, and their
    norm.
    """
    # The published code takes what has `embed` or `shared` in its name; T5's shared table is
    # `embedding` here.
    arrays = flatten_dict(pretrained, sep="/")
    embeddings = {name: jnp.asarray(array) for name, array in arrays.items() if "embed" in name}
    return unflatten_dict(flatten_dict(params, sep="/") | embeddings, sep="/")
