"""train_text: every method on a task from outside the package, exact resume, what comes out, what
is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core import entry_points, metrics, run_folder, seeds
from motif_jax.core.errors import UserError
from motif_jax.ilql import train_text as stage
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.tasks import registry
from tests.reward_fixtures import load_config, run_config

TOY = "tests.toy_text:Task"
TINY = {
    "task": TOY, "policy": "half", "network.width": 16, "network.layers": 1, "network.heads": 2, "network.max_length": 16, "batch_size": 8,
    "max_steps": 4, "evaluate_every": 2, "chunk_steps": 2, "evaluation_batches": 1, "num_devices": 1, "optimizer.learning_rate": 1e-2,
    "held_out.share": 0.25, "method.double_q": False, "games.episodes": 0,
}  # fmt: skip
# compiled in half the time
ONE_TRUNK = {"method.separate_policy": False, "method.separate_target": False}
CLONED = {"initial.policy": "cloned", "method.separate_target": False}


def config_of(method: str = "ilql", **overrides: Any) -> Any:
    return load_config("train_text", f"wordle_{method}", {**TINY, **overrides})


def train(workdir: Path, method: str = "ilql", **overrides: Any) -> Path:
    return run_config(config_of(method, **overrides), workdir)


def toy_data(folder: Path) -> Path:
    """64 dialogues of the toy task."""
    dialogues = registry.make(TOY, {}).stream("games", "half")(seeds.rng(0, "toy"), 64, 0)
    dialogue_files.write(folder / "dialogues.parquet", [dialogues], {})
    return folder / "dialogues.parquet"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def cloned(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    return train(tmp_path_factory.mktemp("bc"), "bc", data=str(data))


@pytest.mark.slow
def test_targets_follow_and_heads_learn(tmp_path: Path, data: Path, cloned: Path) -> None:
    """Implicit Q-learning from the cloned policy, which stays as it is."""
    initial = {"initial.policy": str(cloned), "initial.value": str(cloned), "loss.policy": 0.0, "method.double_q": True}  # fmt: skip
    agent = agent_folder.load(train(tmp_path, data=str(data), **initial))
    online = agent.params["heads"]["q1"]["output"]
    target = agent.params["target_heads"]["q1"]["output"]
    # Four steps of Adam at 1e-2 go 0.04 at most, of which targets have gone next to nothing.
    assert 0.01 < np.abs(online["kernel"] - target["kernel"]).max() < 0.05
    trunks = agent.params["trunks"]
    assert np.abs(trunks["values"]["embedding"] - trunks["target"]["embedding"]).max() > 0.01
    policy = agent_folder.load(cloned).params["trunks"]["policy"]
    jax.tree.map(np.testing.assert_array_equal, trunks["policy"], policy)


@pytest.mark.slow
def test_a_user_s_method_trains(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs/examples"))
    values = {"data": str(data), "method.name": "text_method:ExtremeQ", **ONE_TRUNK}
    monkeypatch.setenv("MOTIF_JAX_TRUST", TOY)
    with pytest.raises(UserError, match=r"--config\.trust=text_method:ExtremeQ"):
        stage.check(config_of(**values), tmp_path / "run")
    entry_points.trust(["text_method"])
    run = train(tmp_path / "run", **values)
    monkeypatch.setenv("MOTIF_JAX_TRUST", TOY)
    assert agent_folder.load(run).method == "text_method:ExtremeQ"


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_keys_alone(tmp_path: Path, data: Path) -> None:
    config = config_of("bc", data=str(data), **{"filter.cutoff": 99.0})
    with pytest.raises(UserError, match="leaves none of"):
        stage.run(config, tmp_path)
    # Heads draw their dropout a chunk at a time.
    for key, message in (
        ("filter.cutoff", r"filter\.cutoff: 99\.0 before, 7"),
        ("logits_chunk", r"logits_chunk: None before, 7 now"),
    ):
        other = config_of("bc", data=str(data), **{"filter.cutoff": 99.0, key: 7})
        with pytest.raises(UserError, match=message):
            stage.check(other, tmp_path)


def test_methods_without_values_weigh_no_actions(tmp_path: Path) -> None:
    config = config_of("bc", **{"method.policy.beta": 1.0})

    with pytest.raises(UserError, match=r"beta=1\.0: must be 0: bc has no values"):
        stage.check(config, tmp_path)


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        (
            "ilql",
            {"loss.q": 0.0, "loss.cql": 0.0},
            r"loss\.q=0\.0: must be above 0, or .*: ilql chooses",
        ),
        ("ilql", {"loss.v": 0.0}, r"loss\.v=0\.0: must be above 0, or .*: Q of ilql learns from V"),
        (
            "chai",
            {"loss.q": 0.0, "loss.cql": 0.0},
            r"loss\.q=0\.0: must be above 0, or .*: chai chooses",
        ),
    ],
)
def test_values_that_nothing_teaches_are_refused(
    tmp_path: Path, cloned: Path, method: str, values: dict[str, Any], message: str
) -> None:
    values = {**values, "initial.policy": str(cloned)}
    with pytest.raises(UserError, match=message):
        stage.check(config_of(method, **values), tmp_path)


def test_a_resumed_run_may_play_other_games(tmp_path: Path) -> None:
    before = config_of("bc")
    run_folder.prepare(tmp_path, before, stage.IDENTITY)

    stage.check(config_of("bc", **{"games.episodes": 3}), tmp_path)


def flat(params: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


@pytest.mark.extra
def test_micro_batches_devices_and_a_mesh_take_the_same_steps(
    tmp_path: Path, data: Path, cloned: Path
) -> None:
    """20 steps on one device, on two in micro-batches, and split over a mesh; dialogues of unequal
    lengths, so that parts weigh unequally.
    """
    more = {
        "data": str(data), "dropout": 0.0, "max_steps": 20, "evaluate_every": 20, "chunk_steps": 4, "method.separate_policy": False,
        "initial.policy": str(cloned),
    }  # fmt: skip
    mesh = {"num_devices": 4, "sharding.fsdp": 2, "sharding.tensor": 2}
    ways = {"one": {}, "two": {"num_devices": 2, "accumulate": 2}, "mesh": mesh}
    params = {
        name: agent_folder.load(train(tmp_path / name, **more, **way)).params
        for name, way in ways.items()
    }
    begun = agent_folder.load(cloned).params["trunks"]["policy"]
    went = np.linalg.norm(flat(params["one"]["trunks"]["values"]) - flat(begun))
    for name in ("two", "mesh"):
        assert np.linalg.norm(flat(params[name]) - flat(params["one"])) < 1e-2 * went, name


def same_bits(one: Path, other: Path) -> list[Path]:
    """The files of weights of two agents, which are alike."""
    files = sorted(path.relative_to(one) for path in (one / "agent").rglob("*.safetensors"))
    for file in files:
        assert (one / file).read_bytes() == (other / file).read_bytes(), file
    return files


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "more"),
    [("bc_top", {"filter.top": 0.5}), pytest.param("ilql_utterance", {"method.policy.beta": 1.0, **ONE_TRUNK}, marks=pytest.mark.extra), pytest.param("dt", {}, marks=pytest.mark.extra), pytest.param("awac", ONE_TRUNK, marks=pytest.mark.extra), pytest.param("cql", ONE_TRUNK, marks=pytest.mark.extra), pytest.param("psi", CLONED, marks=pytest.mark.extra), pytest.param("bcq", CLONED, marks=pytest.mark.extra), pytest.param("g", CLONED, marks=pytest.mark.extra), pytest.param("ilql", {"lora.patterns": "*/attention/query", "dtype": "bfloat16"}, marks=pytest.mark.extra)],
)  # fmt: skip
def test_every_method_trains_on_a_user_s_task(
    tmp_path: Path, data: Path, cloned: Path, method: str, more: dict[str, Any]
) -> None:
    takes = "initial.policy" in more
    if takes:
        more = {**more, "initial.policy": str(cloned)}
    agent = agent_folder.load(train(tmp_path, method, data=str(data), max_steps=2, **more))
    losses = [
        row["validation/loss"] for row in metrics.read_metrics(tmp_path) if "validation/loss" in row
    ]
    assert losses[-1] < losses[0]
    arguments = jnp.zeros((1, 4), jnp.int32), jnp.ones((1, 4), bool), jnp.zeros(1)
    look = agent.network.readouts(agent.params, *arguments)
    assert np.isfinite(look.logits).all()
    assert (look.target_q is None) == (method in ("bc_top", "dt"))
    if takes:
        policy = agent_folder.load(cloned).params["trunks"]["policy"]
        jax.tree.map(np.testing.assert_array_equal, agent.params["trunks"]["policy"], policy)
