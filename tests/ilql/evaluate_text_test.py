"""evaluate_text: agents and policies, resume after a kill, what it leaves behind, what it refuses."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import jax
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from motif_jax.core.errors import UserError
from motif_jax.ilql import evaluate_text
from motif_jax.ilql.dialogues import parquet
from motif_jax.ilql.dialogues.items import DELIMITER_TEXTS
from motif_jax.ilql.evaluation import text_episodes
from motif_jax.ilql.tasks import file_tokens, registry
from motif_jax.lm import folder
from motif_jax.lm.config import parse
from motif_jax.lm.model import LanguageModel
from motif_jax.play import evaluation_files
from motif_jax.published import evaluation_logs
from tests import recorded_outputs, text_agents
from tests.processes import killed
from tests.reward_fixtures import load_config, run_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SMALL = {"episodes": 6, "lanes": 4, "show": 2, "resamples": 50}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_agents.write(tmp_path_factory.mktemp("agents") / "ilql")


def config_of(**values: Any) -> Any:
    return load_config("evaluate_text", "wordle", {**SMALL, **values})


def evaluate(workdir: Path, **values: Any) -> Path:
    return run_config(config_of(**values), workdir)


@pytest.mark.slow
def test_a_plain_decoder_plays_as_a_policy_without_values(tmp_path: Path) -> None:
    model = tmp_path / "model"
    backend = Tokenizer(
        models.WordLevel({letter: place for place, letter in enumerate(string.ascii_lowercase)})
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
    encoder = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    encoder |= {"model_type": "roberta", "vocab_size": size, "max_position_embeddings": 64}
    (model / "config.json").write_text(json.dumps(encoder))
    with pytest.raises(UserError, match="a roberta model says no text"):
        evaluate_text.check(config_of(**values), tmp_path / "refused")
    (model / "config.json").write_text(config)
    found = evaluation_files.read_evaluation(evaluate(tmp_path / "played", **values))
    assert (found["plan"]["method"], found["plan"]["values"]) == ("bc", False)
    assert found["episodes"] == SMALL["episodes"]
    assert found["measures"]["length"]["mean"]["value"] == 3


def test_games_of_a_policy_are_counted_and_told(tmp_path: Path, monkeypatch, capsys, record: bool) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    values = {
        "task": "tests.toy_text:Task",
        "policy": "half",
        "options": '{"length": 2}',
        "lanes": 2,
        "episodes": 5,
        "seed": 3,
    }
    evaluate(tmp_path / "run", **values, published_log=True)
    # More are added to those that are there.
    evaluate(tmp_path / "run", **{**values, "episodes": 9}, published_log=True)
    log = evaluation_logs.read(tmp_path / "run/eval_log.pkl")
    assert log.returns.tolist() == parquet.read(tmp_path / "run/dialogues.parquet").returns().tolist()
    names = {tmp_path: "FOLDER"}
    parts = recorded_outputs.of_folder(tmp_path / "run", names)
    parts = {name: text for name, text in parts.items() if name != "config.json"}
    # Where lines are broken hangs on how fast it was.
    parts["printed"] = recorded_outputs.replaced(" ".join(capsys.readouterr().out.split()), names)
    recorded_outputs.assert_matches_packed_recording("evaluate_text_policy", parts, record)


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
def test_a_killed_evaluation_goes_on(agent: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "killed"
    killed(KILLED, str(workdir), str(agent))
    before = evaluation_files.read_rows(workdir / evaluation_files.JOURNAL)
    assert len(before) == 40
    # Some of those that it had begun are asked for, and some that it had not.
    evaluate(workdir, agent=str(agent), policy="fitting", episodes=60)
    after = {row["index"]: row for row in evaluation_files.read_evaluation(workdir)["rows"]}
    assert len(after) == 60
    assert all(after[row["index"]] == row for row in before if row["index"] in after)


def test_what_an_agent_says_that_is_no_text_of_the_task_has_its_tokens() -> None:
    inner = registry.make("tests.toy_text:Task", {}).tokenizer()
    tokenizer = text_episodes.ActionTokens(inner)
    with pytest.raises(ValueError, match="not found"):
        tokenizer.encode("a</s>b")
    assert tokenizer.decode_action([0, 29, 1]) == "a</s>b"
    assert tokenizer.encode("a</s>b") == [0, 29, 1]
    assert tokenizer.encode("abc") == [0, 1, 2]
