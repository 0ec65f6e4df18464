"""Episodes of texts: each follows from its seed alone, and what an agent wrote becomes a batch to
learn from.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from motif_jax.ilql.agent.config import Decode
from motif_jax.ilql.agent.decoding import TokenFacts
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_batches import ItemLayout
from motif_jax.ilql.dialogues.token_rewards import constant
from motif_jax.ilql.evaluation import text_episodes, text_rollouts
from motif_jax.ilql.evaluation.text_episodes import PlayedText, TextAction
from motif_jax.ilql.methods.token_ppo import EpisodeBatch
from motif_jax.ilql.tasks import registry
from motif_jax.lm import config as model_config
from tests import toy_text
from tests.play.stand_ins import StopsAfter

TOY = "tests.toy_text:Task"
TASK = registry.make(TOY, {"length": 4})
TOKENIZER = toy_text.Letters()
PAD = TOKENIZER.delimiters.pad
ACTION_END = TOKENIZER.delimiters.action_end
DIALOGUES = [
    Dialogue(("abc", "ca", "b", "ca"), (None, 1.0, None, -0.5), True),
    Dialogue(("ca", "bb", "ca"), (0.25, 0.5, 2.0), False),
    Dialogue(("abc", "a", "b", "bca"), (None, 1.0, None, 3.0), True),
]
TOKEN_REWARD = 0.125
GPT2 = model_config.parse(
    {
        "model_type": "gpt2",
        "vocab_size": 32,
        "n_positions": 16,
        "n_embd": 8,
        "n_layer": 1,
        "n_head": 2,
    }
)


def written(dialogue: Dialogue, number: int) -> PlayedText:
    """An episode whose actions an agent wrote; token k of episode n has the log-probability
    -(10 n + k).
    """
    actions = []
    position = 0
    for text, reward in zip(dialogue.texts, dialogue.rewards, strict=True):
        if reward is None:
            continue
        tokens = np.array([*TOKENIZER.encode(text), ACTION_END], np.int32)
        policy = -np.float32(10 * number + position + np.arange(len(tokens)))
        zeros = np.zeros(len(tokens), np.float32)
        facts = TokenFacts(
            steered=zeros, policy=policy, q=zeros, v=zeros, by_policy=tokens, by_values=tokens
        )
        actions.append(TextAction(text, tokens, facts))
        position += len(tokens)
    return PlayedText(number, dialogue, tuple(actions))


EPISODES = [written(dialogue, number) for number, dialogue in enumerate(DIALOGUES, start=1)]


def batch_of(max_len: int | None) -> EpisodeBatch:
    layout = ItemLayout(PAD, max_len=max_len)
    return text_rollouts.batch_of(EPISODES, TOKENIZER, layout, constant(TOKEN_REWARD))


def test_a_batch_holds_the_written_tokens_and_their_log_probabilities() -> None:
    batch = batch_of(None)

    for row, episode in enumerate(EPISODES):
        tokens = np.concatenate([action.tokens for action in episode.actions])
        log_probs = np.concatenate([action.facts.policy for action in episode.actions])
        live = batch.dialogues.action_mask[row]
        assert live.sum() == len(tokens)
        positions = batch.dialogues.action_positions[row][live] + 1
        np.testing.assert_array_equal(batch.dialogues.tokens[row][positions], tokens)
        np.testing.assert_array_equal(batch.log_probs[row][live], log_probs)
        assert (batch.log_probs[row][~live] == 0).all()


def test_the_last_token_of_an_action_has_its_reward() -> None:
    batch = batch_of(None)

    # "ca</a>" pays 1, "ca</a>" -0.5; every token pays an eighth.
    rewards = batch.dialogues.rewards[0][batch.dialogues.action_mask[0]] - TOKEN_REWARD
    assert rewards.tolist() == [0.0, 0.0, 1.0, 0.0, 0.0, -0.5]
    for row, dialogue in enumerate(DIALOGUES):
        tokens = batch.dialogues.action_mask[row].sum()
        assert batch.dialogues.returns[row] == pytest.approx(dialogue.total + TOKEN_REWARD * tokens)


def test_a_batch_counts_the_actions_of_each_episode() -> None:
    assert batch_of(None).utterances.tolist() == [2, 3, 2]


def test_rows_are_padded_to_a_size_that_few_programs_have() -> None:
    tokens = batch_of(None).dialogues.tokens

    # The longest has 14 tokens; a multiple of 8.
    assert tokens.shape == (3, 16)
    assert (tokens[~batch_of(None).dialogues.valid] == PAD).all()


def test_tokens_behind_the_longest_length_are_cut_off() -> None:
    uncut = batch_of(None)
    cut = batch_of(9)

    np.testing.assert_array_equal(cut.dialogues.tokens, uncut.dialogues.tokens[:, :9])
    # "abc</s>" comes first; then two tokens of the first action fit, and of the second dialogue
    # eight.
    assert cut.dialogues.action_mask.sum(1).tolist() == [2, 8, 2]
    np.testing.assert_array_equal(cut.log_probs[1], uncut.log_probs[1, :8])


def test_an_action_whose_end_is_cut_off_counts() -> None:
    # In the third dialogue "a</a>" fits whole.
    assert batch_of(9).utterances.tolist() == [1, 3, 1]


def play(
    episodes: range | list[int], lanes: int, threads: int = 1, stops_after: int = 99
) -> list[PlayedText]:
    actor = text_episodes.PolicyTextActor(TASK.policy("half"), 3)
    stop = StopsAfter(stops_after)
    return list(text_episodes.play(TASK, actor, 7, episodes, lanes, threads, stop))


def test_an_episode_follows_from_its_seed_alone() -> None:
    alone = {number: play([number], lanes=1)[0] for number in range(5)}

    for episodes, lanes, threads in ((range(5), 2, 1), ([1, 4, 2], 2, 2), (range(5), 5, 1)):
        played = play(episodes, lanes, threads)
        assert sorted(episode.index for episode in played) == sorted(episodes)
        for episode in played:
            assert episode == alone[episode.index]
    assert len({episode.dialogue.texts for episode in alone.values()}) == 5


def test_an_episode_has_an_action_for_each_reward() -> None:
    for episode in play(range(5), lanes=2):
        word, *letters = episode.dialogue.texts
        assert [action.text for action in episode.actions] == letters
        assert episode.dialogue.rewards == (
            None,
            *[float(a == b) for a, b in zip(letters, reversed(word), strict=True)],
        )
        assert episode.dialogue.terminal


def test_a_stop_ends_after_the_episodes_that_play_together() -> None:
    # It is asked for in every turn.
    played = play(range(5), lanes=2, stops_after=4)

    assert 0 < len(played) < 5
    assert [episode.index for episode in played] == list(range(len(played)))


def test_a_task_without_server_and_scorer_can_be_played() -> None:
    text_rollouts.require_playable(TASK, "x")

    assert text_rollouts.playable(TASK)


@pytest.mark.parametrize(
    ("max_length", "longest_action", "max_tokens"),
    [(None, 40, 40), (100, 40, 40), (12, 40, 10), (12, 10, 10), (2, 40, 1)],
)
def test_an_action_leaves_room_for_two_tokens_of_the_dialogue(
    max_length: int | None, longest_action: int, max_tokens: int
) -> None:
    settings = dataclasses.replace(GPT2, max_length=max_length)
    decoding = text_rollouts.evaluation_decoding(Decode(), "ilql", settings, longest_action)
    assert decoding.max_tokens == max_tokens
