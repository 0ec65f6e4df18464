"""Episodes that an agent of text plays to learn from them, with what it wrote in the tokens that it wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.algorithms.token_ppo import EpisodeBatch
from motif_jax.datasets.dialogues.items import TextTokenizer, tokenise
from motif_jax.datasets.dialogues.token_rewards import TokenReward
from motif_jax.envs.text.contract import TextTask
from motif_jax.language.decoding import Decoding
from motif_jax.language.text_agent import TextAgentNetwork
from motif_jax.rollouts import text_episodes
from motif_jax.rollouts.speakers import AgentSpeaker
from motif_jax.rollouts.text_episodes import PlayedText
from motif_jax.support import seeds
from motif_jax.trainers.dialogue_batches import ItemLayout


def player(
    config: ConfigDict,
    task: TextTask,
    network: TextAgentNetwork,
    layout: ItemLayout,
    reward: TokenReward,
    longest: int,
) -> Callable[[Any, int], EpisodeBatch]:
    """What plays `config.batch_size` new episodes of each step, by draws from the policy as it is."""
    decoding = Decoding("sample", longest, advantages=False)
    speaker, count, seed = AgentSpeaker(network), config.batch_size, seeds.derive(config.seed, "rollouts")
    tokenizer = task.tokenizer()

    def play(params: Any, step: int) -> EpisodeBatch:
        actor = text_episodes.AgentTextActor(speaker, params, tokenizer, decoding, seed, as_written=True)
        numbers = range(step * count, (step + 1) * count)
        found = sorted(text_episodes.play(task, actor, seed, numbers, count), key=lambda each: each.index)
        return jax.tree.map(lambda leaf: leaf[None], batch_of(found, tokenizer, layout, reward))

    return play


def batch_of(
    episodes: list[PlayedText], tokenizer: TextTokenizer, layout: ItemLayout, reward: TokenReward
) -> EpisodeBatch:
    """Episodes as a batch [B, ...]; what the layout cuts off is not learned from."""
    items, log_probs, utterances = [], [], []
    for episode in episodes:
        written = [action.tokens for action in episode.actions if action.tokens is not None]
        facts = [action.facts.policy for action in episode.actions if action.facts is not None]
        items.append(layout.cut(tokenise(episode.dialogue, tokenizer, reward, written)))
        kept = len(items[-1].action_indices)
        log_probs.append(np.concatenate(facts)[:kept])
        # The last of them may have been cut: its tokens count, and so does it.
        utterances.append(
            int(np.searchsorted(np.cumsum([len(fact) for fact in facts]), kept)) + 1 if kept else 0
        )
    most = layout.max_len
    width = _rounded(max(len(item.tokens) for item in items), most)
    longest = _rounded(max(1, *map(len, log_probs)), most)
    table = np.zeros((len(items), longest), np.float32)
    for row, numbers in zip(table, log_probs, strict=True):
        row[: len(numbers)] = numbers
    return EpisodeBatch(layout.batch(items, width, longest, 1), table, np.array(utterances, np.float32))


def _rounded(length: int, most: int | None) -> int:
    """The padded size of so many tokens: a multiple of an eighth of the next power of two, for few programs; at most `most`."""
    step = max(8, (1 << (length - 1).bit_length()) // 8)
    size = -(-length // step) * step
    return size if most is None else max(length, min(size, most))
