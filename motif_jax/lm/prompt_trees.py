"""Prompts that begin alike, packed as trees: a token that several prompts begin with is run once
for all of them.

A prompt here is what follows the beginning that all prompts share. Prompts are sorted, so that
those with a common beginning are neighbours, and each adds what the one before it does not have. A
pack has a fixed number of tokens, of one or several trees; a prompt that does not fit begins a new
pack, where its beginning stands again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Tokens = Sequence[int]


class Pack(NamedTuple):
    """Prompts that run together.

    Attributes:
      positions: of the prompts in the caller's list.
      tokens: of all prompts; what they share stands once.
      paths: for each prompt the places of its tokens in `tokens`, ascending.
      computed: for each prompt the number of its tokens that no prompt before it in the pack has.
    """

    positions: list[int]
    tokens: list[int]
    paths: list[list[int]]
    computed: list[int]


class PackArrays(NamedTuple):
    """Packs for a program; numpy or jax arrays.

    Attributes:
      tokens: int32 [N, S].
      depths: int32 [N, S], how many tokens of its prompt stand before a token.
      subtree_ends: int32 [N, S], the place after the last token that comes after a token in some
        prompt. Prompts are added one after the other, so token i looks at token j where
        j <= i < subtree_ends[j]. 0 for padding.
      last_places: int32 [N, Q], the place of each prompt's last token; 0 where a pack has fewer
        prompts.
    """

    tokens: Any
    depths: Any
    subtree_ends: Any
    last_places: Any


def shared_length(rows: Sequence[Tokens]) -> int:
    """The number of tokens at the beginning that all rows share."""
    length = 0
    # The shortest row ends the columns.
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        length += 1
    return length


def packed(prompts: Sequence[Tokens], width: int, capacity: int) -> list[Pack]:
    """Packs of at most `width` tokens and `capacity` prompts, of which none is empty or longer than
    `width`.
    """
    assert all(0 < len(prompt) <= width for prompt in prompts)
    packs: list[Pack] = []
    for position in sorted(range(len(prompts)), key=lambda position: list(prompts[position])):
        prompt = prompts[position]
        # Of all prompts before it, its neighbour in the sorted order shares most with it.
        shared = shared_length([prompts[packs[-1].positions[-1]], prompt]) if packs else 0
        if not packs or not _fits(packs[-1], len(prompt) - shared, width, capacity):
            packs.append(Pack([], [], [], []))
            # In a new pack nothing has been run that it could share.
            shared = 0
        pack = packs[-1]
        # The places of the shared tokens are the neighbour's, its own tokens stand behind all
        # others.
        path = pack.paths[-1][:shared] if shared else []
        path += range(len(pack.tokens), len(pack.tokens) + len(prompt) - shared)
        pack.positions.append(position)
        pack.tokens.extend(prompt[shared:])
        pack.paths.append(path)
        pack.computed.append(len(prompt) - shared)
    return packs


def _fits(pack: Pack, fresh: int, width: int, capacity: int) -> bool:
    return len(pack.positions) < capacity and len(pack.tokens) + fresh <= width


def arrays(packs: Sequence[Pack], width: int, capacity: int, pad: int = 0) -> PackArrays:
    """The packs, each with S = `width` tokens and room for Q = `capacity` prompts."""
    count = len(packs)
    tokens = np.full((count, width), pad, np.int32)
    depths = np.zeros((count, width), np.int32)
    subtree_ends = np.zeros((count, width), np.int32)
    last_places = np.zeros((count, capacity), np.int32)
    for number, pack in enumerate(packs):
        tokens[number, : len(pack.tokens)] = pack.tokens
        # The number of tokens of the pack once each prompt is added, which is where its own end.
        sizes = np.cumsum(pack.computed)
        for index, path in enumerate(pack.paths):
            depths[number, path] = np.arange(len(path))
            # A later prompt that goes through a token writes a later place.
            subtree_ends[number, path] = sizes[index]
            last_places[number, index] = path[-1]
    return PackArrays(tokens, depths, subtree_ends, last_places)
