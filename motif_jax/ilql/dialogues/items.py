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
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from motif_jax.ilql.dialogues.dialogue import ROLES, SYSTEM, TOOL, Dialogue
from motif_jax.ilql.dialogues.token_rewards import TokenReward


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


# What a tokenizer raises for a text that it has no tokens for; a table of letters raises KeyError.
NO_TOKENS = (ValueError, KeyError)
# of the fields of `Delimiters`
DELIMITER_TEXTS = ("<|pad|>", "<s>", "<a>", "</s>", "</a>", "</eod>")


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
