from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from motif_jax.core.errors import UserError
from motif_jax.ilql import text_run
from motif_jax.ilql.agent import agent_folder, agent_start
from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.ilql.config import InitialParameters, TextConfig, TextMethod, TextTrunks
from motif_jax.ilql.dialogues.items import Vocabulary
from motif_jax.ilql.tasks import registry
from tests import text_agents
from tests.ilql.agent.agent_folder_test import drawn
from tests.lm import models, recipes
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

pytestmark = pytest.mark.usefixtures("compiled_quickly")

# With the delimiters, which are six, fewer than the rows of the models.
WORDS = recipes.VOCAB - 10


def of(folder: Path, name: str = "llama") -> tuple[Any, Vocabulary]:
    """A model with rows behind its tokenizer's last token."""
    words = {f"word{number}": number for number in range(WORDS)}
    models.write(folder, name)
    Tokenizer(WordLevel(words, "word0")).save(str(folder / "tokenizer.json"))
    method, network = TextMethod(name="bc"), TextTrunks(checkpoint=str(folder))
    config = TextConfig(task="reddit", method=method, network=network)
    return config, agent_folder.vocabulary_of(registry.make("reddit", {"tokenizer": str(folder)}))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_rows_that_fill_a_models_table_up_are_left_out(tmp_path: Path, name: str) -> None:
    """With a head of its own, and without one; delimiters have fresh rows."""
    config, tokens = of(tmp_path / "model", name)
    settings = agent_start.model_config(config, tokens, text_run.design_of(config.method))
    assert settings.vocab_size == tokens.size == WORDS + 6
    objective = text_run.objective_of(config, settings)
    given = config.network.checkpoint, config.initial, objective, tokens, jax.random.key(0)
    trunk = agent_start.start(*given).learned["trunks"]["policy"]
    _, params = models.load(tmp_path / "model")
    heads = [[each["head"]["kernel"].T for each in (trunk, params)]] if name == "llama" else []
    for found, there in ([trunk["embedding"], params["embedding"]], *heads):
        assert found.shape[0] == tokens.size
        np.testing.assert_array_equal(found[:WORDS], there[:WORDS])
        assert (found[WORDS:] != np.asarray(there[WORDS : tokens.size])).any(axis=1).all()


def test_rows_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    config, tokens = of(tmp_path / "model")
    design = text_run.design_of(config.method)
    assert agent_start.model_config(config, tokens, design).vocab_size == tokens.size
    path = tmp_path / "model" / "tokenizer.json"
    path.write_text(path.read_text().replace("word7", "other"))
    for change in (path.unlink, path.exists):
        with pytest.raises(UserError, match=r"checkpoint=.* rows of tokens, .* a model with the same"):
            agent_start.model_config(config, tokens, design)
        change()


def test_an_agent_begins_with_parts_of_others(tmp_path: Path, monkeypatch: Any, record: bool) -> None:
    """Known by the first numbers of their leaves: fresh ones, and those of the three runs, are drawn and not alike."""
    made = lambda model, design: drawn(model, design, seed=len(f"{design}"))  # noqa: E731
    monkeypatch.setattr(text_agents, "_initialiser", made)
    init = lambda self, key: drawn(self.model.config, self.design, 1)(key)  # noqa: E731
    monkeypatch.setattr(TextAgentNetwork, "init", init)
    designs = {"bc": Design("none"), "ilql": Design(), "dt": Design("none", prefix=True)}
    runs = {name: str(text_agents.write(tmp_path / name, each, name)) for name, each in designs.items()}
    tokens = agent_folder.vocabulary_of(registry.make("wordle", {"num_words": 20}))

    def begun(method: str, policy: str = "", value: str = "", **changes: Any) -> str:
        initial = InitialParameters(policy=runs.get(policy), value=runs.get(value))
        config = TextConfig(task="wordle", method=TextMethod(name=method, **changes), initial=initial)
        settings = agent_start.model_config(config, tokens, text_run.design_of(config.method))
        objective = text_run.objective_of(config, settings)
        found = agent_start.start(None, initial, objective, tokens, jax.random.key(0))
        whole = agent_start.agent_params(objective, *found[:3])
        groups = {name: whole[name] for name in whole if name != "trunks"} | whole["trunks"]
        leaves = {name: jax.tree.leaves(each) for name, each in groups.items()}
        firsts = {name: [float(leaf.ravel()[0]) for leaf in each[:4]] for name, each in leaves.items()}
        return f"{[sorted(part.get('trunks', ())) for part in found[:3]]} {sorted(found.digests)} {firsts}"

    alone, shared = {"separate_target": False}, {"separate_policy": False}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("ilql", {"policy": "bc"}),
        ("ilql", {"policy": "bc", **shared}),
        ("ilql", {"policy": "ilql", **alone}),
        ("ilql", {"value": "bc"}),
        ("ilql", {"policy": "bc", "value": "bc", **alone}),
        ("ilql", {"value": "ilql"}),
        ("bc", {"policy": "bc"}),
        ("dt", {"policy": "dt"}),
        ("chai", {"policy": "bc"}),
        ("ilql", {"value": "dt"}),
        ("ilql", {"policy": "dt"}),
        ("dt", {"policy": "bc"}),
        ("ilql", {"value": "ilql", "double_q": False}),
        ("ilql", {"value": "ilql", "advanced_mlp": True}),
        ("chai", {"value": "dt"}),
    ]
    found = {f"{case}": outcome_text(begun, case[0], **case[1], folder=tmp_path) for case in cases}
    assert_matches_packed_recording("agent_starts", found, record)
