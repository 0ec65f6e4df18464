"""An agent's values on recorded dialogues: advantages of utterances and n-grams, and ranks of an expert's tokens."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.ilql.agent.agent_folder import SavedAgent
from motif_jax.ilql.agent.text_agent import TextAgentNetwork
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.dialogues.items import TextTokenizer, TokenItem, tokenise
from motif_jax.ilql.dialogues.token_rewards import constant
from motif_jax.ilql.methods.implicit_q import clipped
from motif_jax.lm.tokens import bucket, padded

_BATCH = 64


class ActionValues(NamedTuple):
    """Numbers of the tokens of a dialogue's actions, float32 [A] each (on the device [B, T]).

    Attributes:
      q, target_q: the smaller online and target Q; the latter clipped where training clips it.
      v: of the state before it; all but `log_probs` are None of an agent without values of tokens.
      log_probs: the policy's, in nats.
    """

    q: Any
    target_q: Any
    v: Any
    log_probs: Any


class ValuedDialogue(NamedTuple):
    """A dialogue, its tokens, and the numbers of its actions' tokens."""

    dialogue: Dialogue
    item: TokenItem
    values: ActionValues

    @property
    def spans(self) -> list[slice]:
        """The positions of each action's tokens among all tokens."""
        ends = np.searchsorted(self.item.action_indices, self.item.utterance_action_indices - 1) + 1
        return [slice(start, end) for start, end in itertools.pairwise([0, *ends.tolist()])]


@functools.partial(jax.jit, static_argnums=0, static_argnames="bounds")
def _look(
    network: TextAgentNetwork, params: Any, tokens: jax.Array, valid: jax.Array, bounds: tuple[Any, Any]
) -> ActionValues:
    found = network.look(params, tokens, valid)
    after = jnp.roll(tokens, -1, axis=1)

    def of(values: jax.Array) -> jax.Array:
        return jnp.take_along_axis(values, after[..., None], axis=-1)[..., 0]

    logs = jax.nn.log_softmax(found.logits)
    if network.design.q != "token" or found.values is None:
        return ActionValues(None, None, None, of(logs))
    qs = functools.reduce(jnp.minimum, found.qs)
    assert found.target_q is not None
    return ActionValues(of(qs), clipped(of(found.target_q), *bounds), found.values, of(logs))


def require_fit(
    network: TextAgentNetwork, tokenizer: TextTokenizer, dialogues: Dialogues, source: str
) -> None:
    """Raises UserError for dialogues with texts that the tokenizer cannot encode, or actions after the network's last position."""
    longest, reward = network.model.config.max_length, constant(0.0)
    for number, dialogue in enumerate(dialogues):
        try:
            actions = tokenise(dialogue, tokenizer, reward).action_indices
        except (ValueError, KeyError) as error:
            raise UserError(f"{source}: dialogue {number} does not fit the agent's tokens: {error}") from None
        if longest is not None and len(actions) and actions[-1] + 2 > longest:
            raise UserError(
                f"{source}: dialogue {number} has actions up to token {actions[-1] + 2}, the agent {longest} positions"
            )


def values_of(saved: SavedAgent, dialogues: Dialogues) -> Iterator[ValuedDialogue]:
    """Runs dialogues through an agent."""
    longest, bounds = saved.network.model.config.max_length, map(saved.settings.get, ("q_min", "q_max"))
    look = functools.partial(_look, saved.network, jax.device_put(saved.params), bounds=tuple(bounds))
    reward = constant(0.0)
    for start in range(0, len(dialogues), _BATCH):
        part = [dialogues[i] for i in range(start, min(start + _BATCH, len(dialogues)))]
        items = [tokenise(dialogue, saved.tokenizer, reward) for dialogue in part]
        rows = [item.tokens[:longest].tolist() for item in items]
        size = bucket(max(map(len, rows)), longest)
        tokens, valid = padded([*rows, *[[0]] * (_BATCH - len(rows))], size)
        found = jax.tree.map(np.asarray, look(tokens, valid))
        for place, (dialogue, item) in enumerate(zip(part, items, strict=True)):
            own = ActionValues(*(array[place, item.action_indices] for array in found))
            yield ValuedDialogue(dialogue, item, own)


def token_row(
    tokenizer: TextTokenizer,
    tokens: Sequence[int],
    numbers: Mapping[str, np.ndarray],
    by_policy: Sequence[int] = (),
    by_values: Sequence[int] = (),
) -> dict[str, Any]:
    """The numbers (steered, policy, q and v, float [M] each) of an action's tokens for a journal, JSON-able.

    `by_policy` and `by_values` are tokens [M] that the policy and the values alone would have taken, () if that is not known.
    """

    def pieces(tokens: Sequence[int]) -> list[str]:
        return [tokenizer.decode([token]) for token in tokens]

    nothing = [""] * len(tokens)
    return {
        "pieces": pieces(tokens),
        **{name: [float(f"{value:.5g}") for value in values.tolist()] for name, values in numbers.items()},
        "by_policy": pieces(by_policy) or nothing,
        "by_values": pieces(by_values) or nothing,
    }


class RankedUtterance(NamedTuple):
    """An utterance, its count, and its mean summed advantage."""

    text: str
    times: int
    advantage: float


def utterances(valued: Sequence[ValuedDialogue]) -> list[RankedUtterance]:
    """Distinct actions by the mean of the sum of their tokens' advantages (target Q - V), without that of `</a>`; greatest first."""
    sums: dict[str, list[float]] = defaultdict(list)
    for each in valued:
        advantages, dialogue = each.values.target_q - each.values.v, each.dialogue
        pairs = zip(dialogue.texts, dialogue.rewards, strict=True)
        said = [text for text, paid in pairs if paid is not None]
        for text, span in zip(said, each.spans, strict=True):
            sums[text].append(float(advantages[span][:-1].sum()))
    return _ranked(sums)


def n_grams(valued: Sequence[ValuedDialogue], tokenizer: TextTokenizer, n: int) -> list[RankedUtterance]:
    """Distinct runs of `n` tokens within actions, by the mean of their summed advantages; greatest first."""
    sums: dict[str, list[float]] = defaultdict(list)
    for each in valued:
        advantages = each.values.target_q - each.values.v
        tokens = each.item.tokens[each.item.action_indices + 1]
        for span in each.spans:
            for run in (slice(start, start + n) for start in range(span.start, span.stop - n)):
                sums[tokenizer.decode(tokens[run].tolist())].append(float(advantages[run].sum()))
    return _ranked(sums)


def _ranked(sums: Mapping[str, Sequence[float]]) -> list[RankedUtterance]:
    found = [RankedUtterance(text, len(values), float(np.mean(values))) for text, values in sums.items()]
    return sorted(found, key=lambda each: (-each.advantage, each.text))


class Pair(NamedTuple):
    """Indices of two dialogues that differ from action `turn` on: an expert's and another one."""

    expert: int
    other: int
    turn: int
    kind: str


def pairs_of(dialogues: Dialogues) -> list[Pair]:
    """The pairs of branching and adversarial data, whose `meta` says which games belong together."""
    experts: dict[str, int] = {}
    others: list[tuple[int, str, int, str]] = []
    for place in range(len(dialogues)):
        meta = dialogues[place].meta
        group, kind, start = json.dumps(meta.get("group")), meta.get("kind"), meta.get("start")
        # Dialogues of others do not say which belong together, or mean something else by these words.
        if "group" in meta and kind == "expert":
            experts[group] = place
        elif "group" in meta and isinstance(kind, str) and type(start) is int and start >= 0:
            others.append((place, group, start, kind))
    turns = dialogues.turns()
    return [
        Pair(experts[group], place, start, kind)
        for place, group, start, kind in others
        if group in experts and turns[experts[group]] > start < turns[place]
    ]


def ranking_accuracy(
    valued: Sequence[ValuedDialogue], pairs: Sequence[Pair], tokens: int = 6
) -> dict[str, float]:
    """'KIND_q_rank_acc_-I' (and 'q_target'): share of pairs in which Q of the expert's token I from the action's end exceeds the other's.

    By the kind of the others and I = 1 ... `tokens`; 'KIND_pairs' is the number of pairs.
    """
    found: dict[str, list[bool]] = defaultdict(list)
    counts = Counter(f"{pair.kind}_pairs" for pair in pairs)
    for pair in pairs:
        one, two = valued[pair.expert], valued[pair.other]
        first, second = one.spans[pair.turn], two.spans[pair.turn]
        for back in range(1, tokens + 1):
            a, b = first.stop - back, second.stop - back
            if a >= first.start and b >= second.start:
                for name, published in (("q", "q"), ("target_q", "q_target")):
                    above = getattr(one.values, name)[a] > getattr(two.values, name)[b]
                    found[f"{pair.kind}_{published}_rank_acc_-{back}"].append(bool(above))
    return {**{name: float(np.mean(values)) for name, values in found.items()}, **counts}
