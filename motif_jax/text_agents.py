"""A trained agent for dialogues, in Python: it speaks, values tokens and ranks candidates.

from motif_jax import text_agents

agent = text_agents.load("runs/ilql")
dialogue = [{"role": "user", "content": "My parcel has not come."}]
answer = agent.say(dialogue, seed=1)
agent.rank(dialogue, [answer, "Which one?"])
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax import schema
from motif_jax.core import entry_points, hub, run_folder
from motif_jax.core.devices import jax_options
from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.config import Decode
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.dialogues.dialogue_files import AGENT, CHAT_ROLES, meta_of_roles
from motif_jax.ilql.evaluation import recorded_texts, text_setup
from motif_jax.ilql.evaluation.text_episodes import AgentTextActor, DialogueObservation


class TokenValues(NamedTuple):
    """Numbers of the A tokens of the agent's actions in a dialogue, `</a>` included.

    Attributes:
      tokens: the text of each, [A].
      action: int32 [A], which action each belongs to, from 0.
      q: float32 [A], the smaller target Q.
      v: float32 [A], V of the state before the token.
      advantage: float32 [A], q - v.
      log_prob: float32 [A], the policy's, in nats.
    """

    tokens: tuple[str, ...]
    action: np.ndarray
    q: np.ndarray
    v: np.ndarray
    advantage: np.ndarray
    log_prob: np.ndarray


class Ranked(NamedTuple):
    """A candidate with the sums of its tokens' advantages and log-probabilities."""

    text: str
    advantage: float
    log_prob: float


class TextAgent:
    """An agent of `train_text`. Made by `load`.

    Attributes:
      folder: of the agent.
      method: of its training, such as 'ilql'.
      task: of its dialogues.
      decoding: how it chooses tokens, from its config and `decode` of `load`.
    """

    def __init__(self, saved: agent_folder.SavedAgent, decode: Decode) -> None:
        self.folder = saved.folder
        self.method = saved.method
        self.task = saved.task
        self.decoding = text_setup.decoding_of(decode, saved.about)
        self._saved = saved
        self._decode = decode
        self._decoder = text_setup.decoder_of(saved)
        self._decoder.check(self.decoding)
        self._actors: dict[bool, AgentTextActor] = {}

    def __repr__(self) -> str:
        return f"TextAgent({str(self.folder)!r}, method={self.method!r}, task={self._saved.task_name!r})"

    @jax_options.defaults()
    def say(self, dialogue: Any, *, seed: int = 0, greedy: bool = False) -> str:
        """The agent's next utterance.

        Args:
          dialogue: the dialogue so far: a `Dialogue`; messages
            `{"role": "user" or "assistant", "content": text}`; or pairs (text, whether the agent
            said it). Empty where the agent begins.
          seed: of the draws; equal seeds give equal utterances.
          greedy: takes the most likely token each time.

        Raises:
          UserError: the dialogue cannot be read, or has characters that the agent has no tokens
            for.
        """
        so_far = as_dialogue(dialogue)
        # Of a dialogue that is longer than the agent's positions it reads the end.
        recorded_texts.last_position(self._saved.tokenizer, so_far, "dialogue")
        observation = DialogueObservation(so_far)
        # Made once for each way of choosing: an actor puts the parameters on the device.
        if greedy not in self._actors:
            changes: dict[str, Any] = {"kind": "greedy", "width": 1, "batches": 1} if greedy else {}
            decode = dataclasses.replace(self._decode, **changes)
            decoding = text_setup.decoding_of(decode, self._saved.about)
            parts = (self._decoder, self._saved.params, self._saved.tokenizer)
            self._actors[greedy] = AgentTextActor(*parts, decoding, 0)
        # An actor keeps its episodes' numbers, here the seed, as int32.
        self._actors[greedy].begin([seed % (1 << 31)])
        return self._actors[greedy].act([observation], [0])[0].text

    @jax_options.defaults()
    def values(self, dialogue: Any) -> TokenValues:
        """Q, V, advantage and log-probability of each token that the agent's side said; `dialogue`
        as of `say`.

        Raises:
          UserError: the agent has no values of tokens, or the dialogue does not fit it.
        """
        return self._values([self._checked(dialogue)])[0]

    @jax_options.defaults()
    def rank(self, dialogue: Any, candidates: Sequence[str]) -> list[Ranked]:
        """The candidates for the agent's next action, the one with the greatest summed advantage
        first; arguments as of `say`.
        """
        if isinstance(candidates, str):
            raise UserError(f"candidates={_shown(candidates)}: must be a list of texts")
        if not candidates:
            return []
        history = self._checked(dialogue)
        # A text with a reward is the agent's.
        rewards = (*history.rewards, 0.0)
        dialogues = [
            self._checked(history._replace(texts=(*history.texts, text), rewards=rewards))
            for text in candidates
        ]
        # The candidate is the action after those of the history, whose texts have a reward.
        candidate_action = sum(reward is not None for reward in history.rewards)
        ranked: list[Ranked] = []
        for text, values in zip(candidates, self._values(dialogues), strict=True):
            is_candidate = values.action == candidate_action
            advantage = float(values.advantage[is_candidate].sum())
            log_prob = float(values.log_prob[is_candidate].sum())
            # NaN has no place in an order: any text could come out first.
            if math.isnan(advantage):
                raise UserError(
                    f"{self.folder}: the value of {_shown(text)} is not a number, so that no text is the best"
                )
            ranked.append(Ranked(text, advantage, log_prob))
        return sorted(ranked, key=lambda candidate: -candidate.advantage)

    def _checked(self, dialogue: Any) -> Dialogue:
        converted = as_dialogue(dialogue)
        recorded_texts.require_fit(
            self._saved.network, self._saved.tokenizer, Dialogues.of([converted]), "dialogue"
        )
        return converted

    def _values(self, dialogues: Sequence[Dialogue]) -> list[TokenValues]:
        design = self._saved.network.design
        if design.q != "token" or not design.v:
            raise UserError(f"{self.folder}: method {self.method} has no values of tokens")
        valued = recorded_texts.values_of(self._saved, Dialogues.of(dialogues))
        return [self._token_values(dialogue) for dialogue in valued]

    def _token_values(self, valued: recorded_texts.ValuedDialogue) -> TokenValues:
        numbers = valued.values
        item = valued.item
        # An index is that of the position before its token.
        tokens = item.tokens[item.action_indices + 1].tolist()
        action = np.zeros(len(tokens), np.int32)
        for number, span in enumerate(valued.spans):
            action[span] = number
        return TokenValues(
            tuple(self._saved.tokenizer.decode([token]) for token in tokens),
            action,
            numbers.target_q,
            numbers.v,
            numbers.target_q - numbers.v,
            numbers.log_probs,
        )


def as_dialogue(value: Any) -> Dialogue:
    """The `Dialogue` of any input that `TextAgent.say` accepts.

    Raises:
      UserError: `value` is not such an input.
    """
    if isinstance(value, Dialogue):
        return value
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UserError(f"{_shown(value)} is not a dialogue: {_ALLOWED}")
    texts: list[str] = []
    rewards: list[float | None] = []
    roles: list[str] = []
    for part in value:
        if isinstance(part, Mapping) and part.get("role") in CHAT_ROLES:
            text = part.get("content")
            is_agents = part["role"] == AGENT
            roles.append(part["role"])
        elif isinstance(part, list | tuple) and len(part) == 2 and part[1] in (True, False):
            text = part[0]
            is_agents = bool(part[1])
            roles.append(AGENT if is_agents else "user")
        else:
            raise UserError(f"{_shown(part)} is not an utterance: {_ALLOWED}")
        if not isinstance(text, str):
            raise UserError(f"{_shown(part)} has no text: {_ALLOWED}")
        texts.append(text)
        rewards.append(0.0 if is_agents else None)
    return Dialogue(tuple(texts), tuple(rewards), False, meta_of_roles(roles))


_ALLOWED = (
    'a list of messages {"role": "user", "assistant", "system" or "tool", "content": text}, a list of pairs (text, whether the agent '
    "said it), or a motif_jax Dialogue"
)


def _shown(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."


@jax_options.defaults()
def load(
    folder: str | Path,
    decode: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    trust: Sequence[str] = (),
) -> TextAgent:
    """Reads an agent.

    Args:
      folder: run folder of `train_text` or `import:ilql`, or its agent/; or hf://OWNER/NAME.
      decode: keys of `config.decode` (docs/ilql.md) over the method's own, such as
          {"advantage_weight": 4.0}.
      dtype: of the computation, 'float32' or 'bfloat16'.
      trust: classes outside the package that the folder may name, as 'module:Class'.

    Raises:
      UserError: the folder has no agent, a file is damaged, or a key or value of `decode` is not
          allowed.
    """
    entry_points.trust(trust)
    if dtype not in schema.DTYPES:
        raise UserError(f"dtype={dtype}: must be one of {', '.join(schema.DTYPES)}")
    config = schema.section({"decode": schema.section_keys(Decode)})
    section = config.decode
    unknown = sorted(set(decode or {}) - set(section))
    if unknown:
        raise UserError(f"decode: has no {', '.join(unknown)}; its keys are {', '.join(section)}")
    try:
        section.update(decode or {})
    except TypeError as error:
        raise UserError(f"decode: {error}") from None
    schema.validate(config)
    folder = hub.local(folder)
    is_run = (Path(folder) / "config.json").is_file()
    stage = run_folder.read_config(folder).get("stage") if is_run else None
    if stage in ("train_agent", "clone_behaviour"):
        raise UserError(f"{folder} is an agent of {stage}: open it with motif_jax.agents.load")
    saved = agent_folder.load(folder, dtype=dtype)
    return TextAgent(saved, schema.read_section(Decode, section))
