from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from motif_jax.core.errors import UserError
from motif_jax.ilql import train_text
from motif_jax.ilql.agent import agent_folder, agent_start
from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.ilql.config import InitialParameters, LossWeights, TextConfig, TextMethod, TextTrunks
from motif_jax.ilql.dialogues.dialogue_tokens import Vocabulary
from motif_jax.ilql.objective import Objective
from motif_jax.ilql.tasks import registry
from tests import text_agents
from tests.ilql.agent.agent_folder_test import drawn
from tests.lm import models, recipes
from tests.sets import extra

# With the delimiters, which are six, fewer than the rows of the models.
WORDS = recipes.VOCAB - 10


def of(folder: Path, name: str = "llama") -> tuple[Any, Vocabulary]:
    """A model with rows behind its tokenizer's last token."""
    words = {f"word{number}": number for number in range(WORDS)}
    models.write(folder, name)
    Tokenizer(WordLevel(words, "word0")).save(str(folder / "tokenizer.json"))
    method = TextMethod(name="bc")
    network = TextTrunks(checkpoint=str(folder))
    config = TextConfig(task="reddit", method=method, network=network)
    return config, agent_folder.vocabulary_of(registry.make("reddit", {"tokenizer": str(folder)}))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", extra("qwen2")])
def test_rows_that_fill_a_models_table_up_are_left_out(tmp_path: Path, name: str) -> None:
    """With a head of its own, and without one; delimiters have fresh rows."""
    config, tokens = of(tmp_path / "model", name)
    settings = agent_start.model_config(config, tokens)
    assert settings.vocab_size == tokens.size == WORDS + 6
    objective = train_text.objective_of(config, settings)
    trunk = agent_start.start(objective, tokens, jax.random.key(0)).learned["trunks"]["policy"]
    _, params = models.load(tmp_path / "model")
    heads = [[tree["head"]["kernel"].T for tree in (trunk, params)]] if name == "llama" else []
    for table, saved_table in ([trunk["embedding"], params["embedding"]], *heads):
        assert table.shape[0] == tokens.size
        np.testing.assert_array_equal(table[:WORDS], saved_table[:WORDS])
        assert (table[WORDS:] != np.asarray(saved_table[WORDS : tokens.size])).any(axis=1).all()


def test_rows_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    config, tokens = of(tmp_path / "model")
    assert agent_start.model_config(config, tokens).vocab_size == tokens.size
    path = tmp_path / "model" / "tokenizer.json"
    path.write_text(path.read_text().replace("word7", "other"))
    for change in (path.unlink, path.exists):
        with pytest.raises(
            UserError, match=r"checkpoint=.* rows of tokens, .* a model with the same"
        ):
            agent_start.model_config(config, tokens)
        change()


DESIGNS = {"bc": Design("none"), "ilql": Design(), "dt": Design("none", prefix=True)}
FRESH = 1


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Runs of three methods. No two parts of them, or of a fresh agent, are alike."""
    monkeypatch.setattr(
        text_agents, "initialiser", lambda model, design: drawn(model, design, len(f"{design}"))
    )
    init = lambda self, key: drawn(self.model.config, self.design, FRESH)(key)  # noqa: E731
    monkeypatch.setattr(TextAgentNetwork, "init", init)
    return {
        name: str(text_agents.write(tmp_path / name, design, name))
        for name, design in DESIGNS.items()
    }


class Beginning(NamedTuple):
    """The initial parameters of an agent, divided and together, and fresh ones of the same
    design.
    """

    start: agent_start.Start
    params: Any
    fresh: Any


def config_of(
    method: str,
    initial: InitialParameters,
    patterns: str = "",
    loss: LossWeights | None = None,
    **options: Any,
) -> TextConfig:
    config = TextConfig(task="wordle", method=TextMethod(name=method, **options), initial=initial)
    if loss is not None:
        config = dataclasses.replace(config, loss=loss)
    return dataclasses.replace(config, lora=dataclasses.replace(config.lora, patterns=patterns))


def started(config: TextConfig) -> tuple[Objective, agent_start.Start]:
    """The loss of a training on Wordle, and its initial parameters."""
    tokens = agent_folder.vocabulary_of(registry.make("wordle", {"num_words": 20}))
    settings = agent_start.model_config(config, tokens)
    objective = train_text.objective_of(config, settings)
    start = agent_start.start(objective, tokens, jax.random.key(0))
    return objective, start


def begin(
    method: str,
    initial: InitialParameters,
    patterns: str = "",
    loss: LossWeights | None = None,
    **options: Any,
) -> Beginning:
    objective, start = started(config_of(method, initial, patterns, loss, **options))
    params = agent_start.agent_params(objective, start.learned, start.target, start.frozen)
    settings = objective.agent.model.config
    fresh = drawn(settings, objective.agent.design, FRESH)(jax.random.key(0))
    return Beginning(start, params, fresh)


def assert_equal(params: Any, others: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, params, others)


def test_a_policy_is_copied_and_values_are_fresh(runs: dict[str, str]) -> None:
    bc = agent_folder.load(runs["bc"]).params

    start, params, fresh = begin("ilql", InitialParameters(policy=runs["bc"]))

    assert_equal(params["trunks"]["policy"], bc["trunks"]["policy"])
    for part in ("values", "target"):
        assert_equal(params["trunks"][part], fresh["trunks"][part])
    assert_equal(params["heads"], fresh["heads"])
    assert set(start.digests) == {"initial policy"}


def test_policy_and_values_are_learned_and_the_target_follows(runs: dict[str, str]) -> None:
    start, _, _ = begin("ilql", InitialParameters(policy=runs["bc"]))

    assert set(start.learned["trunks"]) == {"policy", "values"}
    assert set(start.target["trunks"]) == {"target"}
    assert start.frozen == {}


def test_a_shared_trunk_and_its_target_begin_as_the_policy(runs: dict[str, str]) -> None:
    bc = agent_folder.load(runs["bc"]).params

    _, params, _ = begin("ilql", InitialParameters(policy=runs["bc"]), separate_policy=False)

    assert set(params["trunks"]) == {"values", "target"}
    for trunk in params["trunks"].values():
        assert_equal(trunk, bc["trunks"]["policy"])


def test_only_the_policy_is_taken_of_an_agent_with_values(runs: dict[str, str]) -> None:
    ilql = agent_folder.load(runs["ilql"]).params

    _, params, fresh = begin("ilql", InitialParameters(policy=runs["ilql"]), separate_target=False)

    assert_equal(params["trunks"]["policy"], ilql["trunks"]["policy"])
    assert_equal(params["trunks"]["values"], fresh["trunks"]["values"])


def test_values_begin_as_the_policy_of_an_agent_without_values(runs: dict[str, str]) -> None:
    bc = agent_folder.load(runs["bc"]).params

    start, params, fresh = begin("ilql", InitialParameters(value=runs["bc"]))

    for part in ("values", "target"):
        assert_equal(params["trunks"][part], bc["trunks"]["policy"])
    assert_equal(params["trunks"]["policy"], fresh["trunks"]["policy"])
    assert_equal(params["heads"], fresh["heads"])
    assert set(start.digests) == {"initial value"}


def test_values_are_copied_with_their_targets_and_heads(runs: dict[str, str]) -> None:
    ilql = agent_folder.load(runs["ilql"]).params

    _, params, fresh = begin("ilql", InitialParameters(value=runs["ilql"]))

    for part in ("values", "target"):
        assert_equal(params["trunks"][part], ilql["trunks"][part])
    for part in ("heads", "target_heads"):
        assert_equal(params[part], ilql[part])
    assert_equal(params["trunks"]["policy"], fresh["trunks"]["policy"])


def test_beside_additions_the_target_begins_as_the_values(runs: dict[str, str]) -> None:
    """Of its base nothing is learned: that of a saved target would stay behind for the whole
    training.
    """
    ilql = agent_folder.load(runs["ilql"]).params

    start, params, _ = begin("ilql", InitialParameters(value=runs["ilql"]), patterns="*attention*")

    for part in ("values", "target"):
        assert_equal(params["trunks"][part], ilql["trunks"]["values"])
    assert set(start.target["additions"]) == {"target"}


def test_values_that_go_on_keep_the_form_of_their_heads(runs: dict[str, str]) -> None:
    patterns = "*attention*"
    published = InitialParameters(value=runs["ilql"])

    assert "kernel" in begin("ilql", published, patterns).params["heads"]["q1"]["output"]
    fresh = InitialParameters(value=runs["bc"])
    assert "kernel" not in begin("ilql", fresh, patterns).params["heads"]["q1"]["output"]


def trained(seed: int, parts: Any) -> Any:
    """These arrays with other numbers."""
    draws = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + 0.1 * draws.normal(size=leaf.shape), parts)


@pytest.mark.parametrize("policy", [1.0, 0.0], ids=["with a policy", "beside a finished policy"])
def test_trunks_with_additions_are_written_as_what_they_have_more_than_the_policy(
    runs: dict[str, str], tmp_path: Path, policy: float
) -> None:
    initial = InitialParameters(policy=runs["bc"], value=runs["bc"])
    config = config_of("ilql", initial, "*attention*", LossWeights(policy=policy))
    objective, start = started(config)
    learned = {**start.learned, "additions": trained(1, start.learned["additions"])}
    target = {**start.target, "additions": trained(2, start.target["additions"])}
    parts = (learned, target, start.frozen)
    params = agent_start.agent_params(objective, *parts)
    additions = agent_start.trunk_additions(objective, *parts)
    assert set(additions) == {"values", "target"}

    task = registry.make("wordle", {"num_words": 20})
    agent_folder.write(
        tmp_path / "agent", objective.agent, params, "ilql", {}, "wordle", {"num_words": 20},
        task.tokenizer(), additions=additions,
    )  # fmt: skip

    saved = agent_folder.load(tmp_path)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), saved.params, params)
    for name in ("values", "target"):
        files = [file.name for file in (tmp_path / "agent" / "trunks" / name).iterdir()]
        assert files == ["additions.safetensors"]
        moved = saved.params["trunks"][name]["decoder"]["block_0"]["attention"]["query"]["kernel"]
        policys = saved.params["trunks"]["policy"]["decoder"]["block_0"]["attention"]["query"]
        assert np.abs(moved - policys["kernel"]).max() > 1e-3


def test_trunks_that_began_as_other_models_are_written_whole(runs: dict[str, str]) -> None:
    initial = InitialParameters(policy=runs["bc"], value=runs["ilql"])
    objective, start = started(config_of("ilql", initial, "*attention*"))

    parts = (start.learned, start.target, start.frozen)
    assert agent_start.trunk_additions(objective, *parts) == {}


def test_a_trunk_for_policy_and_values_begins_as_one_run(runs: dict[str, str]) -> None:
    two = InitialParameters(policy=runs["bc"], value=runs["ilql"])
    with pytest.raises(UserError, match=r"share a trunk .* is another run: give one of the two"):
        begin("ilql", two, separate_policy=False)
    same = InitialParameters(policy=runs["ilql"], value=runs["ilql"])
    with pytest.raises(UserError, match=r"share a trunk .* has a trunk for each: give one"):
        begin("ilql", same, separate_policy=False)
    begin("ilql", InitialParameters(policy=runs["bc"], value=runs["bc"]), separate_policy=False)
    begin("ilql", two)


def test_a_prefix_is_copied_if_the_run_has_one(runs: dict[str, str]) -> None:
    of_dt = begin("dt", InitialParameters(policy=runs["dt"]))
    of_bc = begin("dt", InitialParameters(policy=runs["bc"]))

    assert_equal(of_dt.params["prefix"], agent_folder.load(runs["dt"]).params["prefix"])
    assert_equal(of_bc.params["prefix"], of_bc.fresh["prefix"])


def test_the_trunk_of_chai_is_frozen(runs: dict[str, str]) -> None:
    bc = agent_folder.load(runs["bc"]).params

    start, _, _ = begin("chai", InitialParameters(policy=runs["bc"]))

    assert not start.learned.get("trunks")
    assert_equal(start.frozen["trunks"], {"values": bc["trunks"]["policy"]})


def test_heads_without_a_loss_are_frozen(runs: dict[str, str]) -> None:
    """As of AWAC on a finished critic: the weight decay alone would change them."""
    initial = InitialParameters(policy=runs["bc"], value=runs["ilql"])

    start, params, _ = begin("awac", initial, loss=LossWeights(q=0.0, v=0.0, policy=1.0))

    assert set(start.learned) == {"trunks"}
    assert set(start.learned["trunks"]) == {"policy"}
    assert_equal(start.frozen["heads"], agent_folder.load(runs["ilql"]).params["heads"])
    assert_equal(params["heads"], start.frozen["heads"])
