"""What a language agent would do in fixed situations, as its training writes it."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs.babyai_text import probes as probe_files
from motif_jax.envs.babyai_text.prompts import PromptTokens
from motif_jax.glam import probing
from motif_jax.glam.config import ProbeQuestions
from motif_jax.rl import settings
from motif_jax.rl.config import agent_config
from tests.force.outcomes import rows_of
from tests.lm import talkers
from tests.reward_fixtures import load_config


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    model = talkers.write(tmp_path_factory.mktemp("models") / "t5")
    values = {"network.model": str(model), "network.prompt_tokens": 160}
    values["environment.babyai_text.observations"] = 2
    config = agent_config(load_config("train_language_agent", "smoke", values))
    network = settings.make_network(config)
    return config, network, network.init(jax.random.key(0)), probing.make(config, network)


@pytest.mark.slow
def test_probabilities_are_the_policy_s_with_and_without_a_clause(asked: Any) -> None:
    config, network, params, probes = asked
    probabilities = probing.probabilities(probes.scores(params))
    # One of the eleven shows more observations than the agent ever sees.
    assert probabilities.shape == (10, 6)
    left = probes.clauses(params)
    assert len(left) == sum(len(list(probe.clause_indices())) for probe in probes.probes)
    tokens = PromptTokens(str(Path(config.network.model) / "tokenizer.json"), 160)
    rows = np.full((2, 160), -1, np.int32)
    tokens.write(probes.prompt(probes.probes[9]), {"tokens": rows[0]})
    chosen = next(clause for clause in left if clause["probe"] == 9 and clause["observation"] == 1)
    tokens.write(probes.prompt(probes.probes[9], (1, chosen["clause"])), {"tokens": rows[1]})
    wanted = jax.nn.softmax(jax.jit(network.logits_and_values)(params, jnp.asarray(rows))[0])
    np.testing.assert_allclose(probabilities[9], wanted[0], rtol=1e-4)
    np.testing.assert_allclose(chosen["probabilities"], wanted[1], rtol=1e-4)


@pytest.fixture(scope="module")
def folder(asked: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of three updates, the last of which a resumed run wrote again."""
    _, _, params, probes = asked
    folder = tmp_path_factory.mktemp("files")
    for first, updates in ((-1, range(3)), (2, [2])):
        with closing(
            probing.ProbeFiles(folder, probes, first, clauses_every=2, published=True)
        ) as files:
            for update in updates:
                files.write(params, update, 64 * update)
    return folder


@pytest.mark.slow
def test_a_line_an_update_has_the_probabilities_of_all_probes(asked: Any, folder: Path) -> None:
    _, _, params, probes = asked

    lines = rows_of(folder / probe_files.LINES)

    assert [(line["update"], line["step"]) for line in lines] == [(0, 0), (1, 64), (2, 128)]
    expected = probing.probabilities(probes.scores(params))
    for line in lines:
        np.testing.assert_allclose(line["probabilities"], expected, rtol=1e-5)


@pytest.mark.slow
def test_answers_to_other_probes_are_not_continued(asked: Any, folder: Path) -> None:
    config, network, _, _ = asked
    questions = ProbeQuestions(prompts="configs/probes/babyai_directions.json")
    other = probing.make(replace(config, probes=questions), network)
    assert other is not None

    with pytest.raises(UserError, match=r"has answers to other probes \(config.probes.prompts\)"):
        probing.ProbeFiles(folder, other, 3)


@pytest.mark.slow
def test_published_lines_have_the_scores(asked: Any, folder: Path) -> None:
    _, _, params, probes = asked

    scores = np.loadtxt(folder / probing.DISTRIB, delimiter=",")

    np.testing.assert_allclose(
        scores, np.tile(probes.scores(params).reshape(1, -1), (3, 1)), rtol=1e-5
    )


@pytest.mark.slow
def test_clauses_have_a_line_every_second_update(asked: Any, folder: Path) -> None:
    _, _, params, probes = asked

    lines = rows_of(folder / probe_files.CLAUSES)

    assert [(line["update"], line["step"]) for line in lines] == [(0, 0), (2, 128)]
    expected = probes.clauses(params)
    for line in lines:
        assert len(line["without"]) == len(expected)
        for clause, values in zip(line["without"], expected, strict=True):
            assert clause.keys() == values.keys()
            np.testing.assert_allclose(clause["probabilities"], values["probabilities"], rtol=1e-5)


@pytest.mark.slow
def test_a_description_has_actions_and_prompts(asked: Any, folder: Path) -> None:
    _, _, _, probes = asked

    description = json.loads((folder / probe_files.DESCRIPTION).read_text())

    assert description["actions"] == [
        "turn left",
        "turn right",
        "go forward",
        "pick up",
        "drop",
        "toggle",
    ]
    assert [probe["prompt"] for probe in description["probes"]] == [
        probes.prompt(probe) for probe in probes.probes
    ]
    first = description["probes"][0]
    assert first["name"] == "goal ahead"
    assert first["goal"] == "go to the red ball"
    assert first["observations"] == [
        ["You see a wall 4 steps forward", "You see a red ball 3 steps forward"]
    ]
    assert first["actions"] == []


def test_probabilities_of_any_logits_sum_to_one() -> None:
    probabilities = probing.probabilities(np.array([[1e4, 1e4 + np.log(3)], [-1e4, -1e4]]))
    np.testing.assert_allclose(probabilities, [[0.25, 0.75], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("level", "language"), [("BabyAI-GoToFrench-v0", ""), ("BabyAI-GoToLocal-v0", "french")]
)
def test_a_french_agent_is_not_asked_english_probes(
    asked: Any, tmp_path: Path, capsys: Any, level: str, language: str
) -> None:
    config, network, _, _ = asked
    options = {**config.environment.babyai_text, "language": language}
    french = replace(
        config, environment=replace(config.environment, name=level, babyai_text=options)
    )
    assert probing.files(french, network, tmp_path, {}) is None
    assert "these prompts are in English, and this agent reads French" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    french = replace(french, probes=ProbeQuestions(prompts=str(tmp_path / "own.json")))
    probe = {"name": "balle", "goal": "aller à la balle", "observations": [["Tu vois une balle"]]}
    (tmp_path / "own.json").write_text(json.dumps([{**probe, "actions": []}]))
    probes = probing.make(french, network)
    assert probes is not None
    assert probes.prompt(probes.probes[0]).startswith("Actions possibles")
