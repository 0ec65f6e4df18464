"""evaluate_text: agents and policies, resume after a kill, what it leaves behind, what it
refuses.
"""

from __future__ import annotations

import json
import pickle
import string
from pathlib import Path
from typing import Any

import jax
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from motif_jax.core.errors import UserError
from motif_jax.ilql import evaluate_text
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.dialogues.dialogue import Dialogues
from motif_jax.ilql.dialogues.dialogue_tokens import DELIMITER_TEXTS
from motif_jax.ilql.evaluation import text_episodes
from motif_jax.ilql.tasks import file_tokens
from motif_jax.lm import folder
from motif_jax.lm.config import parse
from motif_jax.lm.model import LanguageModel
from motif_jax.play import evaluation_files
from motif_jax.published import results
from tests import text_agents
from tests.processes import killed
from tests.reward_fixtures import load_config, run_config
from tests.toy_text import Letters, LetterTable

SMALL = {"episodes": 6, "lanes": 4, "show": 2}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_agents.write(tmp_path_factory.mktemp("agents") / "ilql")


def config_of(**values: Any) -> Any:
    return load_config("evaluate_text", "wordle", {**SMALL, **values})


def evaluate(workdir: Path, **values: Any) -> Path:
    return run_config(config_of(**values), workdir)


@pytest.mark.extra
def test_a_plain_decoder_plays_as_a_policy_without_values(tmp_path: Path) -> None:
    model = tmp_path / "model"
    backend = Tokenizer(
        models.WordLevel({letter: number for number, letter in enumerate(string.ascii_lowercase)})
    )
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    size = backend.get_vocab_size() + len(DELIMITER_TEXTS)
    settings = parse(
        {"model_type": "gpt2", "vocab_size": size, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "bos_token_id": None, "eos_token_id": None}
    )  # fmt: skip
    folder.write(model, settings, jax.device_get(LanguageModel(settings).init(jax.random.key(0))))
    values = {"agent": str(model), "task": "tests.toy_text:Task", "decode.max_tokens": 3}
    file_tokens.with_delimiters(backend).save(str(model / "tokenizer.json"))
    config = (model / "config.json").read_text()
    encoder = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    encoder |= {"model_type": "roberta", "vocab_size": size, "max_position_embeddings": 64}
    (model / "config.json").write_text(json.dumps(encoder))
    with pytest.raises(UserError, match="a roberta model says no text"):
        evaluate_text.check(config_of(**values), tmp_path / "refused")
    (model / "config.json").write_text(config)
    evaluation = evaluation_files.read_evaluation(evaluate(tmp_path / "played", **values))
    assert (evaluation["plan"]["method"], evaluation["plan"]["values"]) == ("bc", False)
    assert evaluation["episodes"] == SMALL["episodes"]
    assert evaluation["measures"]["length"]["mean"]["value"] == 3


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of nine games of a policy, the last four of which a second command added."""
    workdir = tmp_path_factory.mktemp("games") / "run"
    values = {
        "task": "tests.toy_text:Task",
        "policy": "half",
        "options": '{"length": 2}',
        "lanes": 2,
        "seed": 3,
        "published_log": True,
    }
    evaluate(workdir, **values, episodes=5)
    return evaluate(workdir, **values, episodes=9)


def test_more_episodes_are_added_to_a_run(games: Path) -> None:
    rows = evaluation_files.read_rows(games / evaluation_files.JOURNAL)

    assert [
        (row["index"], row["session"]) for row in sorted(rows, key=lambda row: row["index"])
    ] == [
        *((index, 0) for index in range(5)),
        *((index, 1) for index in range(5, 9)),
    ]
    assert len({row["seed"] for row in rows}) == 9


def test_dialogues_are_written_in_the_order_of_their_episodes(games: Path) -> None:
    rows = evaluation_files.read_evaluation(games)["rows"]
    dialogues = dialogue_files.read_parquet(games / "dialogues.parquet")

    assert [dialogue.meta for dialogue in dialogues] == [{"index": index} for index in range(9)]
    returns = {row["index"]: row["return"] for row in rows}
    for dialogue in dialogues:
        word, *letters = dialogue.texts
        assert dialogue.terminal
        assert dialogue.rewards == (
            None,
            *(float(letter == right) for letter, right in zip(letters, word[::-1], strict=True)),
        )
        assert dialogue.total == returns[dialogue.meta["index"]]


def test_an_evaluation_has_means_over_all_episodes(games: Path) -> None:
    evaluation = evaluation_files.read_evaluation(games)
    returns = dialogue_files.read_parquet(games / "dialogues.parquet").returns()

    assert evaluation["episodes"] == 9
    assert evaluation["steps"] == 18
    assert evaluation["failed_requests"] == 0
    measure = evaluation["measures"]["return"]
    assert measure["mean"]["value"] == pytest.approx(returns.mean())
    assert (measure["minimum"], measure["maximum"]) == (returns.min(), returns.max())
    assert measure["mean"]["low"] <= measure["mean"]["value"] <= measure["mean"]["high"]
    assert evaluation["measures"]["length"]["mean"]["value"] == 2.0


def test_a_plan_names_task_policy_and_seed(games: Path) -> None:
    plan = json.loads((games / evaluate_text.PLAN).read_text())

    assert plan == {
        "decode": None,
        "digest": None,
        "drawn_from": {"length": 2},
        "environment": "tests.toy_text:Task",
        "options": {"length": 2},
        "policy": "half",
        "seed": 3,
        "values": False,
    }


def test_a_folder_of_another_kind_is_refused(games: Path) -> None:
    config = load_config("evaluate_text", "play", {"task": "tests.toy_text:Task", "policy": "half"})

    with pytest.raises(UserError, match="kind: episodes before, play now"):
        evaluate_text.check(config, games)


def test_games_of_changed_files_are_not_added(tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    evaluate(
        workdir, task="tests.toy_text:Task", policy="half", options='{"length": 2}', episodes=2
    )
    plan = json.loads((workdir / evaluate_text.PLAN).read_text())
    (workdir / evaluate_text.PLAN).write_text(
        json.dumps({**plan, "drawn_from": {"length": 2, "words": "x"}})
    )

    with pytest.raises(UserError, match="its options or files changed since"):
        evaluate(
            workdir, task="tests.toy_text:Task", policy="half", options='{"length": 2}', episodes=4
        )


def test_a_published_log_has_the_returns_of_all_episodes(games: Path) -> None:
    log = results.read_evaluation_log(games / evaluate_text.PUBLISHED_LOG)

    assert (
        log.returns.tolist()
        == dialogue_files.read_parquet(games / "dialogues.parquet").returns().tolist()
    )


def test_a_table_has_the_measures_of_all_episodes(games: Path) -> None:
    table = (games / "table.md").read_text()

    assert table.startswith("half on tests.toy_text:Task")
    assert "return (reward)" in table
    assert "9 episodes, 18 actions" in table


def test_a_page_shows_the_first_games(games: Path) -> None:
    page = (games / evaluate_text.PAGE).read_text()

    returns = dialogue_files.read_parquet(games / "dialogues.parquet").returns()
    for game in range(SMALL["show"]):
        assert f"<h2>Game {game}</h2>" in page
        assert f"return {returns[game]:g}, 2 actions" in page
    assert page.count("<h2>Game ") == SMALL["show"]


# It dies when it writes its 41st episode.
KILLED = """
import os, signal, sys
from pathlib import Path
from motif_jax.play.evaluation_files import Journal
from tests.ilql.evaluate_text_test import evaluate

append = Journal.append
def dies(self, row):
    if len(self.rows) == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    append(self, row)
Journal.append = dies
evaluate(Path(sys.argv[1]), agent=sys.argv[2], policy="fitting", episodes=200, lanes=8)
"""


@pytest.mark.slow
def test_a_killed_evaluation_resumes_from_its_journal(agent: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "killed"
    killed(KILLED, str(workdir), str(agent))
    before = evaluation_files.read_rows(workdir / evaluation_files.JOURNAL)
    assert len(before) == 40
    # Some of those that it had begun are asked for, and some that it had not.
    evaluate(workdir, agent=str(agent), policy="fitting", episodes=60)
    after = {row["index"]: row for row in evaluation_files.read_evaluation(workdir)["rows"]}
    assert len(after) == 60
    assert all(after[row["index"]] == row for row in before if row["index"] in after)


@pytest.mark.parametrize(("inner", "error"), [(Letters(), ValueError), (LetterTable(), KeyError)])
def test_a_text_that_the_task_cannot_read_has_tokens(
    inner: Letters, error: type[Exception]
) -> None:
    tokenizer = text_episodes.ActionTokens(inner)
    with pytest.raises(error):
        tokenizer.encode("a</s>b")
    assert tokenizer.decode_action([0, 29, 1]) == "a</s>b"
    assert tokenizer.encode("a</s>b") == [0, 29, 1]
    assert tokenizer.encode("abc") == [0, 1, 2]


def test_a_policy_s_actions_are_paid_for_their_tokens(tmp_path: Path) -> None:
    values = {
        "task": "tests.toy_text:Task",
        "policy": "half",
        "options": '{"length": 2}',
        "token_reward.constant": -1.0,
    }

    evaluate(tmp_path / "run", **values, episodes=3)

    for row in evaluation_files.read_rows(tmp_path / "run" / evaluation_files.JOURNAL):
        texts = row["dialogue"]["texts"]
        rewards = row["dialogue"]["rewards"]
        # A token for each letter, and one for the end.
        tokens = sum(
            len(text) + 1 for text, reward in zip(texts, rewards, strict=True) if reward is not None
        )
        assert row["token_return"] == row["return"] - tokens


def test_too_long_recorded_dialogues_are_left_out_with_a_line(
    agent: Path, games: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    game = next(iter(dialogue_files.read_parquet(games / "dialogues.parquet")))
    long_game = game._replace(texts=game.texts * 40, rewards=game.rewards * 40)
    dialogue_files.write(
        tmp_path / "games.parquet", [Dialogues.of([long_game, game, long_game])], {}
    )

    folder = evaluate(tmp_path / "looked", agent=str(agent), data=str(tmp_path / "games.parquet"))

    line = "left out, since their actions go beyond the agent's 96 positions: 2 of the dialogues\n"
    assert line in capsys.readouterr().out
    assert json.loads((folder / "evaluation.json").read_text())["episodes"] == 1


def test_an_evaluation_of_recorded_dialogues_resumes(
    agent: Path, games: Path, tmp_path: Path
) -> None:
    data = str(games / "dialogues.parquet")

    folder = evaluate(tmp_path / "looked", agent=str(agent), data=data, episodes=2)
    before = evaluation_files.read_rows(folder / evaluation_files.JOURNAL)
    evaluate(tmp_path / "looked", agent=str(agent), data=data, episodes=3)

    after = evaluation_files.read_rows(folder / evaluation_files.JOURNAL)
    assert len(before) == 2
    assert len(after) == 3
    assert after[:2] == before


def test_a_published_log_of_recorded_dialogues_has_their_returns(tmp_path: Path) -> None:
    dialogue = {"texts": ["a", "b"], "rewards": [None, 0.5]}

    evaluate_text.write_published_log(
        tmp_path / "log.pkl", [{"return": 0.5, "dialogue": dialogue}], {}
    )

    log = pickle.loads((tmp_path / "log.pkl").read_bytes())
    assert log["all_logs"] == {"env_reward": 0.5, "token_reward": 0.5, "kl": 0.0}
