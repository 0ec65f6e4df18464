"""Which agent or policy speaks in which task, and how its actions are written."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.agent.decoding import Decoding
from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.ilql.agent.text_session import AgentDecoder
from motif_jax.ilql.config import (
    Decode,
    EvaluatedTokenReward,
    EvaluateTextConfig,
    EvaluationGames,
    TextMethod,
    TokenRewardSection,
)
from motif_jax.ilql.evaluation import recorded_texts, text_episodes, text_setup
from motif_jax.ilql.tasks import registry
from motif_jax.lm.config import parse
from motif_jax.lm.model import LanguageModel

TOY = "tests.toy_text:Task"


PAID = {"settings": {"token_reward": {"constant": -0.25}}}


def about(method: str = "ilql", longest_action: int | None = 7) -> dict[str, Any]:
    """The description of an agent's folder."""
    settings = {} if longest_action is None else {"longest_action": longest_action}
    return {
        "settings": settings,
        "folder": "run",
        "task": TOY,
        "options": {"length": 5},
        "method": method,
        "design": {},
    }


@pytest.mark.parametrize(
    ("method", "kind", "width"),
    [("ilql", "sample", 1), ("chai", "rerank", 5), ("ilql_utterance", "rerank", 4)],
)
def test_a_method_is_decoded_as_published(method: str, kind: str, width: int) -> None:
    decoding = text_setup.decoding_of(Decode(), about(method))

    assert (decoding.kind, decoding.width) == (kind, width)
    # The longest action of the data.
    assert decoding.max_tokens == 7


@pytest.mark.parametrize(("rank", "weight"), [(None, 16.0), (8, 4.0)])
def test_values_learned_by_additions_steer_less(rank: int | None, weight: float) -> None:
    agent = {**about(), "design": {"rank": rank}}

    assert text_setup.decoding_of(Decode(), agent).advantage_weight == weight
    given = Decode(advantage_weight=1.5)
    assert text_setup.decoding_of(given, agent).advantage_weight == 1.5


@pytest.mark.parametrize("method", ["ilql", "chai", "ilql_utterance"])
@pytest.mark.parametrize(
    ("decode", "expected"),
    [
        (Decode(kind="beam", width=3), ("beam", 7, 3)),
        (Decode(kind="beam"), ("beam", 7, 1)),
        (Decode(kind="greedy", max_tokens=5), ("greedy", 5, 1)),
    ],
)
def test_another_decoding_drops_the_width_of_the_method(
    method: str, decode: Decode, expected: tuple[str, int, int]
) -> None:
    decoding = text_setup.decoding_of(decode, about(method))

    assert (decoding.kind, decoding.max_tokens, decoding.width) == expected


@pytest.mark.parametrize("decode", [Decode(), Decode(kind="beam", width=3)])
def test_a_policy_of_the_task_decodes_as_configured(decode: Decode) -> None:
    values = {key: value for key, value in dataclasses.asdict(decode).items() if value is not None}

    assert text_setup.decoding_of(decode, None) == Decoding(**values)


def test_the_length_of_actions_has_to_be_known() -> None:
    agent = about(longest_action=None)

    with pytest.raises(UserError) as error:
        text_setup.decoding_of(Decode(), agent)

    assert str(error.value) == (
        "config.decode.max_tokens=None: run does not say how long the actions of its training data were: "
        "give a number of tokens"
    )
    assert text_setup.decoding_of(Decode(max_tokens=5), agent).max_tokens == 5


@pytest.mark.parametrize(
    ("speaker", "agent", "expected"),
    [
        ({"policy": "half", "task": TOY}, None, (TOY, {})),
        ({"task": TOY, "options": '{"length": 2}'}, None, (TOY, {"length": 2})),
        ({"task": "visdial", "url": "http://a"}, None, ("visdial", {"url": "http://a"})),
        # The agent's own.
        ({"agent": "run"}, about(), (TOY, {"length": 5})),
    ],
)
def test_a_task_is_that_of_the_config_or_the_agent(
    speaker: dict[str, str], agent: dict[str, Any] | None, expected: tuple[str, dict[str, Any]]
) -> None:
    assert text_setup.named_task(EvaluateTextConfig(**speaker), agent) == expected


def test_a_policy_of_a_task_can_speak() -> None:
    text_setup.check(EvaluateTextConfig(policy="half", task=TOY))


def test_recorded_dialogues_replace_the_episodes_of_an_agent() -> None:
    assert recorded_texts.replace_episodes(EvaluateTextConfig(agent="nowhere", data="x"))


def test_the_plan_of_a_policy_says_what_decides_its_episodes() -> None:
    setup = text_setup.open_setup(EvaluateTextConfig(policy="half", task=TOY, seed=3))

    assert setup.plan == {
        "environment": TOY,
        "options": {},
        "seed": 3,
        "drawn_from": {"length": 3},
        "policy": "half",
        "digest": None,
        "decode": None,
        "values": False,
    }


def test_a_row_of_an_episode_has_its_dialogue_and_numbers() -> None:
    setup = text_setup.open_setup(EvaluateTextConfig(policy="half", task=TOY, seed=3))

    for episode in text_episodes.play(setup.task, setup.actor, 3, range(3), 2):
        row = setup.row(episode, 3, tokens=False)
        assert row == {
            "index": episode.index,
            "seed": text_episodes.environment_seed(3, episode.index),
            "return": episode.dialogue.total,
            "length": 3,
            "end_reason": "terminal",
            # A policy writes no tokens that could be paid.
            "token_return": episode.dialogue.total,
            "dialogue": {
                "texts": list(episode.dialogue.texts),
                "rewards": list(episode.dialogue.rewards),
                "terminal": True,
            },
        }


def test_an_episode_that_a_limit_cuts_says_so() -> None:
    setup = text_setup.open_setup(EvaluateTextConfig(policy="half", task=TOY, seed=3))
    (episode,) = text_episodes.play(setup.task, setup.actor, 3, range(1), 1)
    cut = dataclasses.replace(episode, dialogue=episode.dialogue._replace(terminal=False))

    assert setup.row(cut, 3, tokens=False)["end_reason"] == "step limit"


def network_of(positions: int | None, design: Design | None = None) -> TextAgentNetwork:
    sizes = {
        "vocab_size": 32,
        "n_embd": 8,
        "n_layer": 1,
        "n_head": 1,
        "n_positions": positions or 16,
    }
    config = parse({"model_type": "gpt2", **sizes, "bos_token_id": None, "eos_token_id": None})
    if positions is None:
        config = dataclasses.replace(config, max_length=None)
    return TextAgentNetwork(LanguageModel(config), design or Design())


@pytest.mark.parametrize(("positions", "logits"), [(9, False), (None, True), (None, False)])
def test_an_agent_can_write_as_many_tokens_as_fit(positions: int | None, logits: bool) -> None:
    AgentDecoder(network_of(positions)).check(Decoding("sample", 7, logits=logits))


def test_more_tokens_than_the_model_has_positions_are_refused() -> None:
    with pytest.raises(UserError) as error:
        AgentDecoder(network_of(8)).check(Decoding("sample", 7))

    assert str(error.value) == (
        "config.decode.max_tokens=7: must be at most 6, the model has 8 positions"
    )


def test_values_alone_decode_only_agents_with_values_of_tokens() -> None:
    decoder = AgentDecoder(network_of(9, Design(q="mean")))

    with pytest.raises(UserError) as error:
        decoder.check(Decoding("sample", 7, logits=False))

    assert (
        str(error.value)
        == "config.decode.logits=False: must be True, the agent has no values of tokens"
    )


TASK = registry.make(TOY, {"length": 4})


@pytest.mark.parametrize("positions", [None, 20, 4])
def test_evaluations_of_a_training_write_no_more_than_fits(positions: int | None) -> None:
    text_setup.check_games(EvaluationGames(episodes=2), TextMethod(), TASK, network_of(positions))


@pytest.mark.parametrize(
    ("configured", "agent", "paid"),
    [
        (EvaluatedTokenReward(), about() | PAID, TokenRewardSection(constant=-0.25)),
        (EvaluatedTokenReward(constant=0.0), about() | PAID, TokenRewardSection()),
        (EvaluatedTokenReward(file="x"), about() | PAID, TokenRewardSection(file="x")),
        (EvaluatedTokenReward(), about(), TokenRewardSection()),
        (EvaluatedTokenReward(), None, TokenRewardSection()),
    ],
)
def test_tokens_are_paid_as_in_the_training_of_the_agent(
    configured: EvaluatedTokenReward, agent: dict[str, Any] | None, paid: TokenRewardSection
) -> None:
    assert text_setup.evaluated_token_reward(configured, agent) == paid


def test_a_trainings_rewards_of_tokens_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project" / "runs" / "agent").mkdir(parents=True)
    (tmp_path / "project" / "rewards.json").write_text('{"1": 0.5}')
    (tmp_path / "elsewhere").mkdir()
    run = tmp_path / "project" / "runs"
    agent = about() | {"settings": {"token_reward": {"file": "rewards.json"}}}

    monkeypatch.chdir(tmp_path / "elsewhere")
    reward = text_setup.token_reward_of_training(agent | {"folder": str(run / "agent")})

    assert reward(np.array([0, 1])).tolist() == [0.0, 0.5]


def test_a_training_ranks_no_samples_of_a_policy_alone() -> None:
    games = EvaluationGames(episodes=2, decode=Decode(kind="rerank", width=2))

    with pytest.raises(UserError, match=r"^config\.decode\.kind=rerank: must be another"):
        text_setup.check_games(games, TextMethod(name="bc"), TASK, network_of(9, Design(q="none")))
