"""Where trunks begin that are a language model's: whose tokens they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from motif_jax.datasets.dialogues.items import Vocabulary
from motif_jax.envs.text import registry
from motif_jax.language.text_agent import Design, TextAgentNetwork
from motif_jax.sections.texts import InitialParameters, TextConfig, TextMethod, TextTrunks
from motif_jax.support.errors import UserError
from motif_jax.trainers import agent_folder, agent_start, text_run
from tests import text_agents
from tests.language import models, recipes
from tests.trainers.agent_folder_test import drawn

pytestmark = pytest.mark.usefixtures("compiled_quickly")

# With the delimiters, which are six, fewer than the rows of the models.
WORDS = recipes.VOCAB - 10


def folder_of(folder: Path, name: str = "llama") -> Path:
    """A model with rows behind its tokenizer's last token."""
    words = {f"word{number}": number for number in range(WORDS)}
    models.write(folder, name)
    Tokenizer(WordLevel(words, "word0")).save(str(folder / "tokenizer.json"))
    return folder


def of(folder: Path) -> tuple[Any, Vocabulary]:
    method, network = TextMethod(name="bc"), TextTrunks(checkpoint=str(folder))
    config = TextConfig(task="reddit", method=method, network=network)
    return config, agent_folder.vocabulary_of(registry.make("reddit", {"tokenizer": str(folder)}))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_rows_that_fill_a_models_table_up_are_left_out(tmp_path: Path, name: str) -> None:
    """With a head of its own, and without one; delimiters have fresh rows, as where there are none to spare."""
    config, tokens = of(folder_of(tmp_path / "model", name))
    settings = agent_start.model_config(config, tokens, text_run.design_of(config.method))
    assert settings.vocab_size == tokens.size == WORDS + 6
    objective = text_run.objective_of(config, settings)
    given = config.network.checkpoint, config.initial, objective, tokens, jax.random.key(0)
    trunk = agent_start.start(*given).learned["trunks"]["policy"]
    _, params = models.load(tmp_path / "model")
    tables = [(trunk["embedding"], params["embedding"])]
    if name == "llama":
        tables.append((trunk["head"]["kernel"].T, params["head"]["kernel"].T))
    for found, there in tables:
        assert found.shape[0] == tokens.size
        np.testing.assert_array_equal(found[:WORDS], there[:WORDS])
        assert (found[WORDS:] != np.asarray(there[WORDS : tokens.size])).any(axis=1).all()


def test_rows_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    config, tokens = of(folder_of(tmp_path / "model"))
    path = tmp_path / "model" / "tokenizer.json"
    path.write_text(path.read_text().replace("word7", "other"))
    for change in (path.unlink, path.exists):
        with pytest.raises(
            UserError, match=r"checkpoint=.* rows of tokens, .* must be a model with the same"
        ):
            agent_start.model_config(config, tokens, text_run.design_of(config.method))
        change()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(text_agents, "_initialiser", drawn)
    monkeypatch.setattr(
        TextAgentNetwork, "init", lambda self, key: drawn(self.model.config, self.design, 1)(key)
    )
    designs = {"bc": Design("none"), "ilql": Design(), "dt": Design("none", prefix=True)}
    return {name: str(text_agents.write(tmp_path / name, made, name)) for name, made in designs.items()}


def begun(runs: dict[str, str], method: str, policy: str = "", value: str = "", **changes: Any) -> Any:
    """Names of the trunks that learn, the agent's parameters as it begins, and those of a fresh one."""
    tokens = agent_folder.vocabulary_of(registry.make("wordle", {"num_words": changes.pop("words", 20)}))
    initial = InitialParameters(policy=runs.get(policy), value=runs.get(value))
    config = TextConfig(task="wordle", method=TextMethod(name=method, **changes), initial=initial)
    settings = agent_start.model_config(config, tokens, text_run.design_of(config.method))
    objective, key = text_run.objective_of(config, settings), jax.random.key(0)
    found = agent_start.start(None, initial, objective, tokens, key)
    assert found.digests.keys() == {
        f"initial {name}" for name, run in (("policy", policy), ("value", value)) if run
    }
    held = [name for part in found[:3] for name in part.get("trunks", ())]
    assert sorted(held) == sorted(objective.agent.design.roles.trunks)
    return {*found.learned["trunks"]}, agent_start.whole(objective, *found[:3]), objective.agent.init(key)


def test_an_agent_begins_with_the_parts_of_other_runs(runs: dict[str, str]) -> None:
    bc, ilql, dt = (agent_folder.load(runs[name]).params for name in ("bc", "ilql", "dt"))
    spoken, ours = bc["trunks"]["policy"], ilql["trunks"]
    alone, shared = {"separate_target": False}, {"separate_policy": False}
    for (method, changes, given), learns, trunks, parts in (
        (("ilql", {}, {"policy": "bc"}), "policy values", {"policy": spoken}, {}),
        (("ilql", shared, {"policy": "bc"}), "values", {"values": spoken, "target": spoken}, {}),
        (("ilql", alone, {"policy": "ilql"}), "policy values", {"policy": ours["policy"]}, {}),
        (("ilql", {}, {"value": "bc"}), "policy values", {"values": spoken, "target": spoken}, {}),
        (("ilql", alone, {"value": "bc", "policy": "bc"}), "policy values", {"values": spoken, "policy": spoken}, {}),
        (
            ("ilql", {}, {"value": "ilql"}), "policy values", {name: ours[name] for name in ("values", "target")},
            {name: ilql[name] for name in ("heads", "target_heads")},
        ),
        (("bc", {}, {"policy": "bc"}), "policy", {"policy": spoken}, {}),
        (("dt", {}, {"policy": "dt"}), "policy", {"policy": dt["trunks"]["policy"]}, {"prefix": dt["prefix"]}),
        (("chai", {}, {"policy": "bc"}), "", {"values": spoken}, {}),
    ):  # fmt: skip
        learned, found, fresh = begun(runs, method, **given, **changes)
        assert learned == {*learns.split()}
        wanted = {**fresh, **parts, "trunks": {**fresh["trunks"], **trunks}}
        jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_runs_that_do_not_fit_are_refused(runs: dict[str, str]) -> None:
    for given, told in (
        (
            {"value": "dt"},
            "value=.*dt: was trained by dt, whose policy is conditioned on a return: must be a run of another method",
        ),
        ({"policy": "dt"}, "policy=.*: was trained by dt, whose policy is conditioned on a return"),
        (
            {"value": "ilql", "double_q": False},
            "value=.*: was trained by ilql, and has heads of another kind than config.method asks",
        ),
        ({"value": "ilql", "advanced_mlp": True}, "has heads of another kind"),
    ):
        with pytest.raises(UserError, match=f"^config.initial.{told}" if "=" in told else told):
            begun(runs, "ilql", **given)
    begun(runs, "dt", policy="dt")
