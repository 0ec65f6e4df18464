"""Episodes of texts follow from their seeds alone; which tasks a training plays while it runs."""

from __future__ import annotations

import dataclasses

import pytest

from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.ilql.config import Decode
from motif_jax.ilql.evaluation import text_episodes, text_setup
from motif_jax.ilql.evaluation.text_episodes import PlayedText
from motif_jax.ilql.tasks import registry
from motif_jax.lm import config as model_config
from motif_jax.lm.model import LanguageModel
from tests.play.stand_ins import StopsAfter

TOY = "tests.toy_text:Task"
TASK = registry.make(TOY, {"length": 4})
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
    assert text_setup.playable(TASK)


@pytest.mark.parametrize(
    ("max_length", "longest_action", "max_tokens"),
    [(None, 40, 40), (100, 40, 40), (12, 40, 10), (12, 10, 10), (2, 40, 1)],
)
def test_an_action_leaves_room_for_two_tokens_of_the_dialogue(
    max_length: int | None, longest_action: int, max_tokens: int
) -> None:
    settings = dataclasses.replace(GPT2, max_length=max_length)
    network = TextAgentNetwork(LanguageModel(settings), Design())
    decoding = text_setup.evaluation_decoding(Decode(), "ilql", network, longest_action)
    assert decoding.max_tokens == max_tokens
