"""A dialogue as tokens, with the indices of its actions by token and by utterance (Snell et al.
2022, `DataPoint`).

A dialogue begins with `<s>` if its first utterance is the environment's, or with `<a>` if it is the
agent's. `</s>` and `</a>` end utterances, `</eod>` ends a terminal dialogue. Position i predicts
token i + 1: an action's positions range from the delimiter before it to its last token, and `</a>`
is its last token.

Example, one token per letter: the environment says "h", the agent says "go" and gets the reward 1,
and the dialogue is terminal. Each entry stands below the position that it belongs to:

    position                    0    1  2     3  4  5     6
    token                       <s>  h  </s>  g  o  </a>  </eod>
    action_indices                      2     3  4                 each predicts the token
                                                                   to its right
    state_indices                       2     3  4        6
    rewards                             0     0  1
    terminals                           0     0  0        1
    utterance_state_indices             2                 6
    utterance_action_indices                        5
    utterance_rewards                               1
    utterance_terminals                 0                 1

A chat model's own turns have several tokens where these delimiters are one each (`Turns`). A
dialogue whose next utterance is the agent's then ends with the opening of its turn.

Tokens may be rewarded, too (`TokenReward`). In a run folder dialogues are a tokens dataset
(motif_jax/lm/token_data). Its columns of tokens: `kinds` uint8 (`CONTEXT`, `ACTION`, `ACTION_END`),
`rewards` float32 (0 outside of actions). Its columns of items: `terminal` bool, `return` float64
without rewards of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from motif_jax.core.files import read_json
from motif_jax.ilql.dialogues.dialogue import ROLES, SYSTEM, TOOL, Dialogue
from motif_jax.lm.token_data import TokensDataset, TokensWriter

# What a tokenizer raises for a text that it has no tokens for; a table of letters raises KeyError.
NO_TOKENS = (ValueError, KeyError)
# of the fields of `Delimiters`
DELIMITER_TEXTS = ("<|pad|>", "<s>", "<a>", "</s>", "</a>", "</eod>")
CONTEXT, ACTION, ACTION_END = 0, 1, 2
TOKEN_COLUMNS: dict[str, Any] = {"kinds": "uint8", "rewards": "float32"}
ITEM_COLUMNS: dict[str, Any] = {"terminal": "bool", "return": "float64"}
# tokens int32 [A] -> rewards float64 [A], a new array
TokenReward = Callable[[np.ndarray], np.ndarray]


class Delimiters(NamedTuple):
    """Token numbers of delimiters and padding."""

    pad: int
    state_start: int
    action_start: int
    state_end: int
    action_end: int
    dialogue_end: int


class Turns(NamedTuple):
    """The delimiter tokens around utterances.

    Attributes:
      state_start: before the environment's utterance where it is the first, with the opening of its
          turn.
      action_start: before the agent's utterance where it is the first, with the opening of its
          turn.
      state_open: before a later utterance of the environment.
      state_close: after every utterance of the environment.
      action_open: before a later utterance of the agent.
      action_close: after `Delimiters.action_end`, which ends every utterance of the agent, where
          another utterance follows.
    """

    state_start: tuple[int, ...]
    action_start: tuple[int, ...]
    state_open: tuple[int, ...]
    state_close: tuple[int, ...]
    action_open: tuple[int, ...]
    action_close: tuple[int, ...]


class TextTokenizer(Protocol):
    """The tokenizer interface of `tokenise`."""

    @property
    def size(self) -> int: ...

    @property
    def delimiters(self) -> Delimiters: ...

    def encode(self, text: str) -> list[int]:
        """The tokens of an utterance, without delimiters; raises one of `NO_TOKENS`."""

    def decode(self, tokens: list[int]) -> str: ...


def turns_of(tokenizer: TextTokenizer) -> Turns:
    """The tokenizer's attribute `turns`, where it has turns of several tokens, else one delimiter
    each.
    """
    turns: Turns | None = getattr(tokenizer, "turns", None)
    if turns is not None:
        return turns
    delimiters = tokenizer.delimiters
    return Turns(
        state_start=(delimiters.state_start,),
        action_start=(delimiters.action_start,),
        state_open=(),
        state_close=(delimiters.state_end,),
        action_open=(),
        action_close=(),
    )


def system_start_of(tokenizer: TextTokenizer) -> tuple[int, ...] | None:
    """What stands before a system message in a chat model's own turns, () for nothing; None without
    such turns.
    """
    start: tuple[int, ...] | None = getattr(tokenizer, "system_start", None)
    return start


class Vocabulary(NamedTuple):
    """A network's description of a tokenizer; without digest and texts before the tokenizer is
    trained.
    """

    size: int
    delimiters: Delimiters
    digest: str | None
    texts: tuple[str, ...] = ()  # of each token by its number


class TokenItem(NamedTuple):
    """A dialogue of T tokens. The agent speaks U times (actions), with A tokens in all, the end
    `</a>` of each included.
    """

    tokens: np.ndarray  # int32 [T]
    state_indices: np.ndarray  # int32 [A + 1], `action_indices` and the last position
    action_indices: np.ndarray  # int32 [A], the position before each token of an action
    # float64 [A], one per token; the last token of an action adds the action's reward
    rewards: np.ndarray
    terminals: np.ndarray  # int8 [A + 1], zeros; the last is 1 if the dialogue is terminal
    # int32 [U + 1], the delimiter before each action, the last position
    utterance_state_indices: np.ndarray
    utterance_action_indices: np.ndarray  # int32 [U], the `</a>` of each action
    utterance_rewards: np.ndarray  # float64 [U], the action's reward plus those of its tokens
    utterance_terminals: np.ndarray  # int8 [U + 1], as `terminals`


def tokenise(dialogue: Dialogue, tokenizer: TextTokenizer, token_reward: TokenReward) -> TokenItem:
    """The tokens and indices of a dialogue; an empty action has the token `</a>` alone.

    Args:
      token_reward: the reward of each token of an action.

    Raises:
      ValueError, KeyError: the tokenizer has no tokens for a text.
    """
    written = _write(dialogue, tokenizer)
    return _index(written, dialogue.terminal, token_reward)


class _WrittenDialogue(NamedTuple):
    """A dialogue's tokens, and of each action the position before its first token, that of its
    last, its reward.
    """

    tokens: list[int]
    starts: list[int]
    ends: list[int]
    rewards: list[float]


def _write(dialogue: Dialogue, tokenizer: TextTokenizer) -> _WrittenDialogue:
    """The tokens of utterances and delimiters; arguments and errors as of `tokenise`."""
    delimiters = tokenizer.delimiters
    turns = turns_of(tokenizer)
    state_first = bool(dialogue.rewards) and dialogue.rewards[0] is None
    start_tokens = turns.state_start if state_first else turns.action_start
    tokens = list(_system_start_of(dialogue, tokenizer) or start_tokens)
    written = _WrittenDialogue(tokens, [], [], [])

    for number, (text, reward) in enumerate(zip(dialogue.texts, dialogue.rewards, strict=True)):
        if number:
            follows_action = dialogue.rewards[number - 1] is not None
            tokens += _between(turns, follows_action, is_action=reward is not None)
        if reward is None:
            tokens += [*tokenizer.encode(text), *turns.state_close]
            continue

        # The delimiter before the action, which predicts its first token.
        start = len(tokens) - 1
        tokens += [*tokenizer.encode(text), delimiters.action_end]
        written.starts.append(start)
        written.ends.append(len(tokens) - 1)
        written.rewards.append(reward)
    if dialogue.terminal:
        tokens.append(delimiters.dialogue_end)
    elif dialogue.rewards and dialogue.rewards[-1] is None:
        tokens += turns.action_open
    return written


def _sum_in_order(numbers: np.ndarray) -> float:
    """The sum of float64 [N] from left to right; from 3.12 on Python's own `sum` rounds
    otherwise.
    """
    return float(np.cumsum(numbers)[-1]) if numbers.size else 0.0


def _index(written: _WrittenDialogue, terminal: bool, token_reward: TokenReward) -> TokenItem:
    """The item of a written dialogue: indices and rewards by token and by utterance."""
    tokens = np.array(written.tokens, np.int32)
    limits = zip(written.starts, written.ends, strict=True)
    spans = [np.arange(start, end, dtype=np.int32) for start, end in limits]
    actions = np.concatenate([np.zeros(0, np.int32), *spans])
    rewards = token_reward(tokens[actions + 1])
    last_tokens = np.cumsum([len(span) for span in spans], dtype=np.int64) - 1
    # A copy, since the next line adds the actions' rewards to the array itself.
    rewards_by_action = np.split(rewards.copy(), last_tokens[:-1] + 1) if spans else []
    rewards[last_tokens] += written.rewards
    # In the published order of additions, which gives the same rounding.
    utterance_rewards = [
        reward + _sum_in_order(part)
        for reward, part in zip(written.rewards, rewards_by_action, strict=True)
    ]
    end = np.array([len(tokens) - 1], np.int32)
    return TokenItem(
        tokens=tokens,
        state_indices=np.concatenate([actions, end]),
        action_indices=actions,
        rewards=rewards,
        terminals=terminals(len(actions), terminal),
        utterance_state_indices=np.concatenate([np.array(written.starts, np.int32), end]),
        utterance_action_indices=np.array(written.ends, np.int32),
        utterance_rewards=np.array(utterance_rewards, np.float64),
        utterance_terminals=terminals(len(spans), terminal),
    )


def _system_start_of(dialogue: Dialogue, tokenizer: TextTokenizer) -> tuple[int, ...]:
    """The tokens before the first utterance where it is a system message of a chat model; ()
    elsewhere.

    Raises ValueError: the dialogue has roles for which the model's own turns have no form.
    """
    roles = dialogue.meta.get(ROLES)
    start = system_start_of(tokenizer)
    if roles is None or start is None:
        return ()
    is_first = roles[0] == SYSTEM
    others = sorted({SYSTEM, TOOL} & set(roles[1:] if is_first else roles))
    remedy = "with --config.turns=new they are the user's"
    if others:
        raise ValueError(
            f"messages of {' and '.join(others)} behind the first have no turns of the model's own: {remedy}"
        )
    if not start:
        raise ValueError(
            f"its chat template writes no system message apart: put it into the user's first message; {remedy}"
        )
    return start


def _between(turns: Turns, follows_action: bool, is_action: bool) -> list[int]:
    """The tokens before an utterance that is not the first; the token that ends the one before has
    been added already.
    """
    closing = turns.action_close if follows_action else ()
    opening = turns.action_open if is_action else turns.state_open
    return [*closing, *opening]


def to_act(dialogue: Dialogue, tokenizer: TextTokenizer) -> list[int]:
    """The tokens to append to those of `tokenise` so that the agent speaks again after its own
    utterance; [] where it does not.
    """
    if dialogue.terminal or not dialogue.rewards or dialogue.rewards[-1] is None:
        return []
    return _between(turns_of(tokenizer), follows_action=True, is_action=True)


def utterances(item: TokenItem, tokenizer: TextTokenizer) -> list[tuple[list[int], bool]]:
    """The tokens of each utterance without delimiters, and whether it is the agent's; all actions
    of the item count.
    """
    turns = turns_of(tokenizer)
    tokens = item.tokens.tolist()
    starts = item.utterance_state_indices[:-1].tolist()
    ends = item.utterance_action_indices.tolist()

    # Where the environment's utterances begin: after the opening of the first, or after an action.
    first = len(_opening(item, tokenizer))
    after_action = len(turns.action_close) + len(turns.state_open)
    parts: list[tuple[list[int], bool]] = []
    for start, end in zip(starts, ends, strict=True):
        parts += [(state, False) for state in _states(tokens[first : start + 1], turns)]
        parts.append((tokens[start + 1 : end], True))
        first = end + 1 + after_action
    return parts + [(state, False) for state in _states(tokens[first:], turns)]


def begins_with_system(item: TokenItem, tokenizer: TextTokenizer) -> bool:
    """Whether the first utterance is a system message of a chat model's own turns."""
    turns = turns_of(tokenizer)
    return _opening(item, tokenizer) not in (turns.state_start, turns.action_start)


def _opening(item: TokenItem, tokenizer: TextTokenizer) -> tuple[int, ...]:
    """The tokens before the first utterance."""
    turns = turns_of(tokenizer)
    # That of a system message last: a template's own system message, in front of the others, may
    # begin with it.
    openings = (turns.state_start, turns.action_start, system_start_of(tokenizer) or ())
    return next(
        opening for opening in openings if tuple(item.tokens[: len(opening)].tolist()) == opening
    )


def _states(tokens: list[int], turns: Turns) -> list[list[int]]:
    """The environment's utterances; `tokens` start with the text of the first, or hold none."""
    states: list[list[int]] = []
    start = 0
    # No text has this token: tokenizers spell delimiters that a text contains by characters.
    while turns.state_close[0] in tokens[start:]:
        end = tokens.index(turns.state_close[0], start)
        states.append(tokens[start:end])
        # Two utterances of the environment in succession: the next text begins after its opening.
        start = end + len(turns.state_close) + len(turns.state_open)
    return states


def terminals(count: int, terminal: bool) -> np.ndarray:
    """`TokenItem.terminals` for `count` actions and the state after them."""
    return np.array([0] * count + [int(terminal)], np.int8)


def constant_reward(value: float) -> TokenReward:
    """The same reward for every token."""
    return lambda tokens: np.full(len(tokens), value, np.float64)


def rewards_by_token(values: Mapping[int, float], scale: float, shift: float) -> TokenReward:
    """`scale` times a token's value, plus `shift`; tokens without a value have 0."""
    return lambda tokens: np.array(
        [values.get(n, 0.0) * scale + shift for n in tokens.tolist()], float
    )


def rewards_from_file(path: str | Path, scale: float = 1.0, shift: float = 0.0) -> TokenReward:
    """`rewards_by_token` of the values of a file."""
    return rewards_by_token(read_token_values(path), scale, shift)


def read_token_values(path: str | Path) -> dict[int, float]:
    """The values of a JSON object, token number -> value (such as its frequency)."""
    remedy = 'give a file such as {"262": 0.01}, the number of a token and its value'
    return {int(token): float(value) for token, value in read_json(path, remedy).items()}


def add_item(writer: TokensWriter, item: TokenItem, total: float) -> None:
    """Appends an item and its return to a dataset with these columns."""
    kinds = np.zeros(len(item.tokens), np.uint8)
    rewards = np.zeros(len(item.tokens), np.float32)
    kinds[item.action_indices + 1] = ACTION
    # After the line above: `</a>` is a token of its action, too.
    kinds[item.utterance_action_indices] = ACTION_END
    rewards[item.action_indices + 1] = item.rewards
    columns = {"terminal": bool(item.terminals[-1]), "return": total}
    writer.add(item.tokens, {"kinds": kinds, "rewards": rewards}, columns)


def longest_action(dataset: TokensDataset) -> int:
    """Tokens of the longest action, with `</a>`; 0 without actions."""
    kinds = np.asarray(dataset.token_columns["kinds"])
    # Without the context an action's tokens stand between two ends.
    of_actions = kinds[np.flatnonzero(kinds)]
    ends = np.flatnonzero(of_actions == ACTION_END)
    return int(np.diff(ends, prepend=-1).max(initial=0))


def item_of(dataset: TokensDataset, index: int) -> TokenItem:
    """An item of such a dataset; its rewards are rounded to float32."""
    rows = slice(int(dataset.offsets[index]), int(dataset.offsets[index + 1]))
    return rebuilt_item(
        np.asarray(dataset.tokens[rows], np.int32),
        np.asarray(dataset.token_columns["kinds"][rows]),
        np.asarray(dataset.token_columns["rewards"][rows]),
        bool(dataset.item_columns["terminal"][index]),
    )


def rebuilt_item(
    tokens: np.ndarray, kinds: np.ndarray, rewards: np.ndarray, terminal: bool
) -> TokenItem:
    """The `TokenItem` with these columns."""
    token_positions = np.flatnonzero(kinds).astype(np.int32)
    ends = np.flatnonzero(kinds == ACTION_END).astype(np.int32)
    positions = token_positions - 1  # an action stands at the position before its token
    last = np.array([len(tokens) - 1], np.int32)
    action_rewards = rewards[token_positions].astype(np.float64)
    # Index of each action's first token among the tokens of all actions.
    firsts = np.zeros(0, np.int64)
    utterance_rewards = np.zeros(0)
    # `reduceat` wants a first index.
    if len(ends):
        firsts = np.concatenate([[0], np.searchsorted(token_positions, ends[:-1]) + 1])
        utterance_rewards = np.add.reduceat(action_rewards, firsts)
    return TokenItem(
        tokens=tokens,
        state_indices=np.concatenate([positions, last]),
        action_indices=positions,
        rewards=action_rewards,
        terminals=terminals(len(positions), terminal),
        utterance_state_indices=np.concatenate([positions[firsts], last]),
        utterance_action_indices=ends,
        utterance_rewards=utterance_rewards,
        utterance_terminals=terminals(len(ends), terminal),
    )


def stored_dialogues(
    folder: Path, tokenizer: TextTokenizer, token_reward: TokenReward
) -> Iterator[Dialogue]:
    """The dialogues of a run's tokenised part, as text; `token_reward` is what the run pays for
    tokens, which is no part of an action's reward. Rewards are rounded to float32.
    """
    dataset = TokensDataset(folder)
    for index in range(dataset.num_items):
        item = item_of(dataset, index)
        action_rewards = iter(_without_token_rewards(item, token_reward).tolist())
        texts: list[str] = []
        rewards: list[float | None] = []
        for tokens, is_action in utterances(item, tokenizer):
            texts.append(tokenizer.decode(tokens))
            rewards.append(next(action_rewards) if is_action else None)
        meta: dict[str, Any] = {}
        # The roles that the file had are not stored: tokens tell a system message alone.
        if begins_with_system(item, tokenizer):
            meta[ROLES] = [
                SYSTEM,
                *("user" if reward is None else "assistant" for reward in rewards[1:]),
            ]
        yield Dialogue(tuple(texts), tuple(rewards), bool(item.terminals[-1]), meta)


def _without_token_rewards(item: TokenItem, token_reward: TokenReward) -> np.ndarray:
    """The reward of each action alone, float32 [U]: its last token has it beside that token's
    own.
    """
    last_tokens = np.searchsorted(item.action_indices, item.utterance_action_indices - 1)
    # In the precision of the columns: an unpaid action gets 0 and not a remainder.
    of_tokens = token_reward(item.tokens[item.utterance_action_indices]).astype(np.float32)
    return (item.rewards[last_tokens] - of_tokens).astype(np.float32)
