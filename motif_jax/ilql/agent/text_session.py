"""Writes actions of an agent in many dialogues at once, whose keys and values are kept in every
trunk while the texts grow.

`StackedModels` runs several sets of parameters of one network in one program. ILQL (Snell et al.
2022) has three trunks: policy, values, and the values' target. On an accelerator their parameters
are stacked, and each matrix product is one over a leading axis [C]: many small products would leave
it idle. On a CPU such products are slower (by a fifth, for trunks of width 96 to 256), so there the
trunks run one after the other. Optimisers, checkpoints and targets keep parameters apart, by name;
`StackedModels.join` joins them inside the program that runs them.

`DecodeState` has keys and values of the texts in every trunk, and the states that heads read;
`AgentDecoder` reads the agent's outputs at them; `Programs` are the device programs, one position a
row; a `TextSession` has the texts. One program writes an action in all trunks. The candidates of a
row share its text, and the chosen one becomes part of the row without being run again.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.training import block_stack
from motif_jax.ilql.agent import decoding as decodings
from motif_jax.ilql.agent.decoding import Decoding, TokenFacts, TokenOutputs
from motif_jax.ilql.agent.text_agent import POLICY, TARGET, VALUES, TextAgentNetwork
from motif_jax.ilql.dialogues.dialogue_tokens import Delimiters
from motif_jax.ilql.methods import clipped
from motif_jax.lm import beams, generation
from motif_jax.lm.generation import Limits
from motif_jax.lm.model import Cache, EncodedPrompt, LanguageModel
from motif_jax.lm.network import States
from motif_jax.lm.tokens import padded

# Slots that a session has at first.
CAPACITY = 96


class TextSession:
    """B texts of one decoder.

    Args:
      params: of the decoder.
      batch: B.
      capacity: slots at first; they grow when texts do.

    Attributes:
      texts: the tokens of each so far.
    """

    def __init__(
        self,
        decoder: AgentDecoder,
        params: Any,
        batch: int,
        decoding: Decoding,
        marks: Delimiters,
        capacity: int = CAPACITY,
    ) -> None:
        # Kept for equal decoders, so that a later session compiles nothing.
        self._programs = Programs(decoder, decoding, marks)
        self._params = params
        self._max_tokens = decoding.max_tokens
        network = decoder.network
        self._max_length = network.model.config.max_length
        self._reads_means = network.design.q == "mean"
        self.texts: list[list[int]] = [[] for _ in range(batch)]
        self._state = self._programs.begin(params, batch=batch, capacity=capacity)
        self._prefix = 1 if network.design.prefix else 0  # positions before all texts
        self._slots = self._prefix  # in use, with padding between tokens
        self._capacity = capacity

    def read(self, rows: Sequence[Sequence[int]]) -> None:
        """Sets the texts to these tokens: keeps the common prefix and reads the rest.

        A text that is too long for the model, with room for an action, loses its beginning.
        """
        texts = [list(row) for row in rows]
        if self._max_length is not None:
            room = self._max_length - self._max_tokens - self._prefix
            # The cut moves all positions, so that such a text is mostly read anew.
            texts = [text[-room:] for text in texts]
        common = [
            _common_tokens(old, new, self._reads_means)
            for old, new in zip(self.texts, texts, strict=True)
        ]
        unread = [text[count:] for count, text in zip(common, texts, strict=True)]
        longest = max(map(len, unread), default=0)
        if longest:
            tokens, valid = padded(unread, _rounded(longest))
            self._make_room(tokens.shape[1])
            shortens = any(count < len(old) for count, old in zip(common, self.texts, strict=True))
            keep = np.asarray(common, np.int32) + self._prefix
            self._state = self._programs.read(
                self._params, self._state, tokens, valid, keep, shortens
            )
            self._slots += tokens.shape[1]
        self.texts = texts

    def write(self, keys: jax.Array, rows: np.ndarray) -> Actions:
        """Appends an action to each text of `rows` (bool [B]); `keys` [B] are for the draws."""
        self._make_room(self._max_tokens)
        self._state, written = self._programs.write(
            self._params, self._state, keys, jnp.asarray(rows)
        )
        # An action takes all its slots in every row, however few tokens the row wrote.
        self._slots += self._max_tokens
        actions = Actions(*jax.tree.map(np.asarray, written))
        for text, tokens, valid in zip(self.texts, actions.tokens, actions.valid, strict=True):
            text.extend(tokens[valid].tolist())
        return actions

    def pick(self, indices: Sequence[int]) -> None:
        """Leaves the texts `indices`, in this order."""
        self._state = self._programs.pick(self._state, jnp.asarray(indices))
        self.texts = [self.texts[index] for index in indices]

    def _make_room(self, count: int) -> None:
        """Makes sure that `count` further slots are free: drops padding, and doubles the capacity
        where that does not do.
        """
        if self._slots + count <= self._capacity:
            return
        used = self._prefix + max(map(len, self.texts), default=0)
        while used + count > self._capacity:
            # Doubled, since the programs are compiled again for each capacity.
            self._capacity *= 2
        self._state = self._programs.squeeze(self._state, capacity=self._capacity)
        self._slots = used


def _common_tokens(old: Sequence[int], new: Sequence[int], reads_means: bool) -> int:
    """The number of tokens at the front that stay; a changed text reads at least one again.

    With `reads_means` it reads all again, since the sum of its states cannot be shortened.
    """
    common = 0
    while common < min(len(old), len(new)) and old[common] == new[common]:
        common += 1
    if common == len(old):
        return common
    # The state that an action begins from is kept for the old text's last token alone, so that the
    # new one's is run again.
    return 0 if reads_means else min(common, len(new) - 1)


def _rounded(length: int) -> int:
    """1, 2, 4, 8, 12, 16, 24, ... tokens that are read at a time, for few programs."""
    size = 1 << (length - 1).bit_length()
    smaller = size * 3 // 4
    return smaller if size >= 16 and length <= smaller else size


class Actions(NamedTuple):
    """Written actions, a row each: on the device, and then as numpy arrays.

    Attributes:
      tokens: int32 [B, M].
      valid: bool [B, M], up to and with the token that ended the action.
      facts: of the tokens [B, M].
      divergence: float32 [B], see `decoding.divergence`.
    """

    tokens: Any
    valid: Any
    facts: TokenFacts
    divergence: Any


class _Carry(NamedTuple):
    """The loop's carry between tokens; leaves beside the state's are [B, N, ...]."""

    state: DecodeState
    outputs: TokenOutputs  # of the agent at the newest token
    steered: jax.Array  # float32 [B, N, V], the logits that the next token is drawn from
    position: jax.Array  # int32 scalar, of the next token in the action
    facts: TokenFacts  # [B, N, M], zeros from `position` on


class _Candidates(NamedTuple):
    """N continuations of each of B texts; leaves beside the state's are [B, N, ...]."""

    state: DecodeState
    tokens: jax.Array
    valid: jax.Array
    facts: TokenFacts
    scores: jax.Array  # float32 [B, N]; the greatest is the action


@functools.lru_cache(maxsize=8)  # equal decoders share their compiled programs
class Programs:
    """The device programs of one decoder: `begin`, `read`, `write`, `pick`, `squeeze`, each from a
    `DecodeState` to the next.
    """

    def __init__(self, decoder: AgentDecoder, decoding: Decoding, marks: Delimiters) -> None:
        self._decoder = decoder
        self._models = decoder.stacked
        self._decoding = decoding
        self._limits = Limits(decoding.max_tokens, (marks.action_end,))
        self._pad = marks.pad
        self._begin = jax.jit(self._start, static_argnames=("batch", "capacity"))
        self.read = jax.jit(self._read, static_argnames="shortens", donate_argnums=1)
        self.write = jax.jit(self._write, donate_argnums=1)
        self.pick = jax.jit(DecodeState.rows)
        self.squeeze = jax.jit(DecodeState.squeeze, static_argnames="capacity")

    def begin(self, params: Any, batch: int, capacity: int) -> DecodeState:
        """Texts without a token."""
        # Copied, since `read` takes over the state's memory: no array may stand in it twice, and an
        # empty cache's layers are one array.
        return jax.tree.map(jnp.copy, self._begin(params, batch=batch, capacity=capacity))

    def _start(self, params: Any, batch: int, capacity: int) -> DecodeState:
        joined = self._decoder.join(params)
        state = DecodeState.start(self._models, joined, batch, capacity)
        prefix = self._decoder.prefix(params, self._decoding.target_return)
        if prefix is None:
            return state
        # [C, B, 1, 1, D]: one token of one continuation, the same in every row.
        embeddings = jnp.broadcast_to(prefix, (len(prefix), batch, 1, 1, prefix.shape[-1]))
        valid = jnp.ones((batch, 1, 1), bool)
        return state.extend(self._models, joined, None, None, valid, embeddings)

    def _read(
        self,
        params: Any,
        state: DecodeState,
        tokens: jax.Array,
        valid: jax.Array,
        keep: jax.Array,
        shortens: bool,
    ) -> DecodeState:
        """Appends tokens int32 [B, S] to the first `keep` int32 [B] tokens of each text;
        `shortens`: `keep` leaves tokens out.
        """
        if shortens:
            state = state.shorten(keep)
        joined = self._decoder.join(params)
        return state.extend(self._models, joined, None, tokens[:, None], valid[:, None])

    def _write(
        self, params: Any, state: DecodeState, keys: jax.Array, rows: jax.Array
    ) -> tuple[DecodeState, Actions]:
        """Appends an action to each text of `rows` bool [B]; `keys` [B] are for the draws."""
        decoding = self._decoding
        prompt = state.prompt()

        def best_of_batch(keys: jax.Array) -> _Candidates:
            # `prompt` is shared by all candidates of a row and by all batches of them.
            return _best(self._candidates(params, state, prompt, rows, keys))

        if decoding.batches == 1:
            best = best_of_batch(keys)
        else:
            # Batches one after the other, so that memory holds the candidates of one and the best
            # so far.
            split = jax.vmap(lambda key: jax.random.split(key, decoding.batches))(keys)
            keys_of_batches = jnp.moveaxis(split, 1, 0)
            shapes = jax.eval_shape(best_of_batch, keys)
            # Nothing yet, at a score below every candidate's.
            start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
            start = start._replace(scores=jnp.full_like(start.scores, -jnp.inf))
            best = jax.lax.fori_loop(
                0,
                decoding.batches,
                lambda i, best: _best(_join(best, best_of_batch(keys_of_batches[i]))),
                start,
            )
        facts, valid = jax.tree.map(lambda leaf: leaf[:, 0], (best.facts, best.valid))
        actions = Actions(
            best.tokens[:, 0], valid, facts, decodings.divergence(facts, valid, decoding)
        )
        return state.grow(best.state), actions

    def _candidates(
        self,
        params: Any,
        texts: DecodeState,
        prompt: EncodedPrompt,
        rows: jax.Array,
        keys: jax.Array,
    ) -> _Candidates:
        """Continues each text `width` times; rows that are False stay as they are."""
        decoding = self._decoding
        width = decoding.width
        joined = self._decoder.join(params)
        carry = self._start_action(
            params, texts.branch(self._models, joined, width, decoding.max_tokens)
        )

        def step(carry: _Carry, tokens: jax.Array, valid: jax.Array) -> tuple[jax.Array, _Carry]:
            def record(facts: jax.Array, new: jax.Array) -> jax.Array:
                return facts.at[..., carry.position].set(jnp.where(valid, new, jnp.zeros_like(new)))

            # Of the outputs that `tokens` were drawn from, before these are run.
            new_facts = decodings.token_facts(carry.outputs, carry.steered, tokens, self._pad)
            facts = jax.tree.map(record, carry.facts, new_facts)
            state = carry.state.extend(
                self._models, joined, prompt, tokens[..., None], valid[..., None]
            )
            outputs = self._decoder.outputs(params, state.last)
            steered = decodings.steered(outputs, decoding, self._pad)
            return steered, _Carry(state, outputs, steered, carry.position + 1, facts)

        # [B, N]: rows that do not act count as ended, and write padding alone.
        ended = jnp.broadcast_to(~rows[:, None], (len(rows), width))
        if decoding.kind == "beam":
            beam = beams.search(
                step, _reorder, carry, carry.steered, self._limits, self._pad, ended
            )
            return _Candidates(
                beam.carry.state, beam.tokens, beam.valid, beam.carry.facts, beam.scores
            )

        keys_of_candidates = keys[:, None]  # one candidate draws by the row's key itself
        if width > 1:
            keys_of_candidates = jax.vmap(lambda key: jax.random.split(key, width))(keys)
        written = generation.write(
            step,
            carry,
            carry.steered,
            keys_of_candidates,
            self._limits,
            decoding.draws,
            self._pad,
            ended,
        )
        state = written.carry.state
        facts = written.carry.facts
        values = None
        if decoding.kind == "rerank":
            # Tokens of text and action, over which CHAI's mean is taken.
            count = (state.cache.written + texts.cache.written).astype(jnp.float32)[..., None]
            values = self._decoder.values(params, state.last, state.total / count)
        if values is None:
            scores = decodings.summed_scores(facts, written.valid, decoding)
        else:
            scores = decodings.utterance_scores(values, facts, written.valid, decoding)
        return _Candidates(state, written.tokens, written.valid, facts, scores)

    def _start_action(self, params: Any, state: DecodeState) -> _Carry:
        """The carry before the first token of the continuations of `state`."""
        decoding = self._decoding
        batch, width = state.total.shape[1:3]
        shape = (batch, width, decoding.max_tokens)
        number = jnp.zeros(shape, jnp.float32)
        token = jnp.zeros(shape, jnp.int32)
        facts = TokenFacts(
            steered=number, policy=number, q=number, v=number, by_policy=token, by_values=token
        )
        outputs = self._decoder.outputs(params, state.last)
        steered = decodings.steered(outputs, decoding, self._pad)
        return _Carry(state, outputs, steered, jnp.zeros((), jnp.int32), facts)


def _take(tree: Any, index: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: generation.taken(leaf, index, 1), tree)


def _reorder(carry: _Carry, index: jax.Array) -> _Carry:
    """Takes the beams `index` int32 [B, N], for `beams.search`."""
    outputs, steered, facts = _take((carry.outputs, carry.steered, carry.facts), index)
    return _Carry(carry.state.pick(index), outputs, steered, carry.position, facts)


def _best(candidates: _Candidates) -> _Candidates:
    """The best candidate of each row, the first of equal ones; the axis of candidates stays, with
    one.
    """
    index = jnp.argmax(candidates.scores, axis=1)[:, None].astype(jnp.int32)
    state, *rest = candidates
    return _Candidates(state.pick(index), *_take(rest, index))


def _join(first: _Candidates, second: _Candidates) -> _Candidates:
    """The candidates of both, side by side."""
    state, *rest = first
    other_state, *other_rest = second
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), rest, other_rest)
    return _Candidates(state.join_continuations(other_state), *joined)


@dataclasses.dataclass(frozen=True)
class AgentDecoder:
    """An agent's networks as functions of their parameters: the policy's logits, V of the online
    trunk, Q of the target.

    The target Q is clipped to q_min and q_max, as in training. States are [C, ..., D], of C trunks
    as one program.
    """

    network: TextAgentNetwork
    q_min: float | None = None
    q_max: float | None = None

    @property
    def stacked(self) -> StackedModels:
        return StackedModels(self.network.model)

    def join(self, params: Any) -> Any:
        """The parameters of all trunks, see `StackedModels.join`."""
        return self.stacked.join(self.network.design.roles.trees(params["trunks"]))

    def outputs(self, params: Any, states: States) -> TokenOutputs:
        """The outputs [..., V] for the next token at states [C, ..., D]; without Q and V where
        tokens have no values.
        """
        design = self.network.design
        roles = design.roles
        if design.q != "token" or not design.v:
            # Values of whole actions are read at their ends, by `values`.
            trunk = params["trunks"][roles.trunk_of[POLICY]]
            return TokenOutputs(self.network.model.logits(trunk, roles.of(POLICY, states).after))
        readout = self.network.read(
            params, {part: roles.of(part, states) for part in roles.trunk_of}
        )
        assert readout.target_q is not None
        return TokenOutputs(
            readout.logits, clipped(readout.target_q, self.q_min, self.q_max), readout.values
        )

    def values(self, params: Any, last: States, mean: jax.Array) -> jax.Array | None:
        """Values of whole actions, float32 [...]; None where tokens have values.

        Args:
          last: [C, ..., D], the states of the actions' last tokens.
          mean: [C, ..., D], the mean of the states of all tokens up to them.
        """
        roles = self.network.design.roles
        kind = self.network.design.q
        if kind not in ("utterance", "mean"):
            return None
        # Heads read one of the two fields; of CHAI both are the mean.
        states = States(mean, mean) if kind == "mean" else last
        parts = {part: roles.of(part, states) for part in (VALUES, TARGET)}
        # The compiler leaves the policy's logits out of the program, since nothing reads them.
        readout = self.network.read(params, {**parts, POLICY: roles.of(POLICY, last)})
        assert readout.target_q is not None
        return clipped(readout.target_q, self.q_min, self.q_max)

    def prefix(self, params: Any, target_return: float) -> jax.Array | None:
        """An embedding [C, 1, 1, 1, D] that stands before every text; None for none."""
        if not self.network.design.prefix:
            return None
        return self.network.prefix(params, jnp.full((1,), target_return))[None, :, None, None]

    def check(self, decoding: Decoding) -> None:
        """Raises UserError for a way to decode that this agent cannot follow."""
        design = self.network.design
        if not decoding.logits and (design.q != "token" or not design.v):
            raise UserError(
                "config.decode.logits=False: must be True, the agent has no values of tokens"
            )
        compares = design.q != "none" or decoding.rerank_log_prob_weight != 0
        if decoding.candidates > 1 and not compares:
            raise UserError(
                "config.decode.kind=rerank: must be another, or config.decode.rerank_log_prob_weight other than 0: the agent has no values that rank texts"
            )
        # A session keeps a token of the text before an action, a decision transformer its prefix.
        longest = self.network.model.config.max_length
        if longest is not None and decoding.max_tokens + 2 > longest:
            raise UserError(
                f"config.decode.max_tokens={decoding.max_tokens}: must be at most {longest - 2}, the model has {longest} positions"
            )


class DecodeState(NamedTuple):
    """N continuations of each of B texts, in C trunks; a text alone is one continuation without a
    prompt.

    Attributes:
      cache: of all trunks, for the continuations alone.
      last: float32 [C, B, N, D], the states of each last token; 0 before the first.
      total: float32 [C, B, N, D], sum of the states after the last norm over the tokens of text and
          continuation.
    """

    cache: Cache
    last: States
    total: jax.Array

    @classmethod
    def start(cls, models: StackedModels, params: Any, batch: int, capacity: int) -> DecodeState:
        """`batch` empty texts with room for `capacity` tokens."""
        zeros = jnp.zeros((models.count(params), batch, 1, models.model.config.width))
        return cls(models.start(params, batch, 1, capacity), States(zeros, zeros), zeros)

    def extend(
        self,
        models: StackedModels,
        params: Any,
        prompt: EncodedPrompt | None,
        tokens: jax.Array | None,
        valid: jax.Array,
        embeddings: jax.Array | None = None,
    ) -> DecodeState:
        """Appends tokens, see `StackedModels.extend`; a continuation without valid tokens stays as
        it is.
        """
        states, cache = models.extend(params, prompt, tokens, valid, self.cache, embeddings)
        states = States(*(leaf.astype(jnp.float32) for leaf in states))
        count = valid.shape[2]
        # [B, N], where each row's last token stands: shorter rows are padded on the right.
        from_end = jnp.argmax(valid[..., ::-1], axis=2)
        last_valid = (count - 1 - from_end)[None, ..., None, None]
        has_tokens = valid.any(axis=2)[..., None]

        def last(new: jax.Array, old: jax.Array) -> jax.Array:
            if count > 1:
                new = jnp.take_along_axis(new, last_valid, axis=3)
            return jnp.where(has_tokens, new[..., 0, :], old)

        # [C, B, N, S, D] is summed over its tokens S.
        total = self.total + jnp.where(valid[..., None], states.after, 0.0).sum(axis=3)
        return DecodeState(cache, jax.tree.map(last, states, self.last), total)

    def branch(self, models: StackedModels, params: Any, width: int, capacity: int) -> DecodeState:
        """`width` empty continuations of each text, which read that text as `self.prompt()`."""

        def wide(leaf: jax.Array) -> jax.Array:
            # [C, B, 1, D] becomes [C, B, N, D]: continuations begin at their text's last state.
            return jnp.broadcast_to(leaf, (*leaf.shape[:2], width, leaf.shape[3]))

        cache = models.start(params, self.total.shape[1], width, capacity)
        return DecodeState(cache, jax.tree.map(wide, self.last), wide(self.total))

    def prompt(self) -> EncodedPrompt:
        """The texts as prompts of their continuations."""
        return over_trunks(generation.as_prompt, self.cache)

    def grow(self, chosen: DecodeState) -> DecodeState:
        """Appends one chosen continuation to each text."""
        # `last` and `total` of a continuation are of its text, too; its cache is not.
        return chosen._replace(cache=over_trunks(generation.grown, self.cache, chosen.cache))

    def pick(self, index: jax.Array) -> DecodeState:
        """Takes continuations `index` int32 [B, M] of each text."""
        take = functools.partial(generation.taken, index=index, axis=2)
        cache = over_trunks(lambda cache: generation.picked(cache, index), self.cache)
        return DecodeState(cache, jax.tree.map(take, self.last), take(self.total))

    def join_continuations(self, other: DecodeState) -> DecodeState:
        """The continuations of both states, [C, B, N + N', ...]."""

        def join(ours: jax.Array, theirs: jax.Array) -> jax.Array:
            return jnp.concatenate([ours, theirs], axis=2)

        cache = over_trunks(generation.join_continuations, self.cache, other.cache)
        return DecodeState(
            cache, jax.tree.map(join, self.last, other.last), join(self.total, other.total)
        )

    def rows(self, indices: jax.Array) -> DecodeState:
        """The texts `indices` int32 [B'], in this order."""
        cache = over_trunks(lambda cache: generation.rows_of(cache, indices), self.cache)
        last = States(*(leaf[:, indices] for leaf in self.last))
        return DecodeState(cache, last, self.total[:, indices])

    def shorten(self, keep: jax.Array) -> DecodeState:
        """Keeps the first `keep` int32 [B] tokens of each text; the total of a shortened text is
        0.
        """
        # A sum cannot be shortened: an agent that reads means reads such a text from its start.
        total = jnp.where((keep[:, None] < self.cache.written)[..., None], 0.0, self.total)
        cache = over_trunks(lambda cache: generation.shortened(cache, keep), self.cache)
        return self._replace(cache=cache, total=total)

    def squeeze(self, capacity: int) -> DecodeState:
        """Drops unused slots between tokens, and leaves `capacity` slots for each text."""
        return self._replace(
            cache=over_trunks(lambda cache: generation.squeezed(cache, capacity), self.cache)
        )


@dataclasses.dataclass(frozen=True)
class StackedModels:
    """A decoder with several sets of parameters.

    Trunks share tokens, masks and positions; each has its own keys.

    Attributes:
      together: each product is one over all trunks; False: trunks run one after the other; None:
          the quicker one for the platform.
    """

    model: LanguageModel
    together: bool | None = None

    def join(self, trees: Sequence[Any]) -> Any:
        """The parameters of all trunks, in the form that the other methods receive."""
        together = self.together
        if together is None:
            together = jax.default_backend() != "cpu"
        # Here, inside the program: optimisers and checkpoints keep float32 trunks by name.
        prepared = [self.model.prepared(tree) for tree in trees]
        if not together:
            return tuple(prepared)

        def stack(axis: int, *leaves: Any) -> jax.Array:
            return jnp.stack(leaves, axis)

        return jax.tree.map(stack, _trunk_axes(prepared[0]), *prepared)

    def count(self, params: Any) -> int:
        """The number of trunks of joined parameters."""
        # Every model has an embedding, whose first axis is then that of trunks.
        return len(params) if isinstance(params, tuple) else len(params["embedding"])

    def start(self, params: Any, batch: int, branches: int, capacity: int) -> Cache:
        """Empty caches; see `LanguageModel.start`."""
        one = self.model.start(batch, branches, capacity)
        # A tuple: trunks that run one after the other, each with keys of its own.
        if isinstance(params, tuple):
            return one._replace(keys=[one.keys] * len(params))  # type: ignore[arg-type]
        count = self.count(params)
        keys = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), one.keys)
        return one._replace(keys=keys)

    def extend(
        self,
        params: Any,
        prompt: EncodedPrompt | None,
        tokens: jax.Array | None,
        valid: jax.Array,
        cache: Cache,
        embeddings: jax.Array | None = None,
    ) -> tuple[States, Cache]:
        """Runs the next tokens int32 [B, N, S], or `embeddings` [C, B, N, S, D], through all
        trunks; see `LanguageModel.extend`.

        Returns states [C, B, N, S, D], and the cache.
        """

        def extend_trunk(params: Any, prompt: Any, cache: Cache, embeddings: Any) -> Any:
            return self.model.extend(params, prompt, tokens, valid, cache, embeddings)

        return over_trunks(extend_trunk, params, prompt, cache, embeddings)


def over_trunks(function: Callable[..., Any], *arguments: Any) -> Any:
    """Maps a function of one trunk over all: its results are arrays [C, ...], and besides keys and
    states the same for all trunks.

    Arguments are parameters from `StackedModels.join`, caches (at least one) and prompts, arrays
    [C, ...], None.
    """
    cache = next(argument for argument in arguments if isinstance(argument, Cache))
    if isinstance(cache.keys, list):  # the keys of trunks that run one after the other
        parts = []
        for trunk in range(len(cache.keys)):
            parts.append(function(*(_part(argument, trunk) for argument in arguments)))
        return jax.tree.map(_join_parts, *parts, is_leaf=_is_keyed)
    results = jax.vmap(function, tuple(map(_axes, arguments)))(*arguments)
    return jax.tree.map(_with_shared_slots, results, is_leaf=_is_keyed)


def _is_keyed(value: Any) -> bool:
    return isinstance(value, Cache | EncodedPrompt)


def _with_shared_slots(result: Any) -> Any:
    """A cache or prompt whose leaves beside the keys are those of the first trunk; other results as
    they are.

    All trunks share one slot number: a slot for each would turn every update into a scatter.
    """
    if not _is_keyed(result):
        return result
    keys, *shared = result
    return type(result)(keys, *(leaf[0] for leaf in shared))


def _axes(argument: Any) -> Any:
    """`in_axes` of an argument: all trunks share what a cache or prompt has besides its keys."""
    if _is_keyed(argument):
        return type(argument)(0, *[None] * (len(argument) - 1))
    if isinstance(argument, dict):
        return _trunk_axes(argument)
    return None if argument is None else 0


def _trunk_axes(params: Any) -> Any:
    """Where the axis of trunks stands in each parameter: after that of stacked blocks, over which a
    loop runs.
    """
    return jax.tree.map_with_path(lambda path, _: int(block_stack.is_stacked(path)), params)


def _part(argument: Any, trunk: int) -> Any:
    """An argument for one trunk."""
    if _is_keyed(argument):
        return argument._replace(keys=argument.keys[trunk])
    return None if argument is None else argument[trunk]


def _join_parts(*parts: Any) -> Any:
    """The results of all trunks as one."""
    if _is_keyed(parts[0]):
        return parts[0]._replace(keys=[part.keys for part in parts])
    return jnp.stack(parts)
