"""Rewards as files: what is written, what is refused, and imports that are made once."""

from __future__ import annotations

import functools
import json
import math
import struct

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from motif_jax import rewards
from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.motif.reward import reward_function, reward_ratings, training_texts
from motif_jax.motif.reward.reward_model import RewardModel, read_run
from motif_jax.motif.reward.safetensors_file import (
    read_safetensors,
    statistics_of,
    write_run_folder,
    write_safetensors,
)
from motif_jax.nets import layout
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork
from motif_jax.published import imports
from tests.conftest import REPOSITORY
from tests.reward_fixtures import load_config, run_config

pytestmark = pytest.mark.slow

ARCHITECTURE = RewardArchitecture(message="lt_cnn_small", hidden_dim=8)


@functools.cache
def fresh(seed):
    return jax.tree.map(np.asarray, jax.jit(RewardNetwork(ARCHITECTURE).init)(jax.random.key(seed)))


def make_reward(folder, seed=0, mean=0.5):
    statistics = statistics_of(mean, 2.0, np.linspace(-1, 1, 19).tolist())
    config = {"stage": "train_reward", "compat": {"glyph_crop_centre": False}}
    curve = [
        {"epoch": 0, "validation/loss": math.nan, "calibration": []},
        {"epoch": 1, "train/loss": 0.5},
    ]
    return RewardModel(
        folder, 3, RewardNetwork(ARCHITECTURE), fresh(seed), 1, statistics, config, curve
    )


@pytest.fixture
def file(tmp_path):
    write_safetensors(make_reward(tmp_path), tmp_path / "reward.safetensors")
    return tmp_path / "reward.safetensors"


def header_of(path):
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["reward"])


def test_a_file_says_what_training_knew(tmp_path):
    texts = np.zeros((2, 256), np.uint8)
    texts[1, :4] = np.frombuffer(b"Hi!!", np.uint8)
    training_texts.write_training_texts(tmp_path, texts)
    write_safetensors(make_reward(tmp_path), tmp_path / "reward.safetensors")
    reward = rewards.load(tmp_path / "reward.safetensors")
    assert reward.known(["", "Hi!!", "Hi!"]).tolist() == [True, True, False]
    write_run_folder(read_safetensors(tmp_path / "reward.safetensors"), tmp_path / "imported")
    assert training_texts.is_known(
        training_texts.read_training_texts(tmp_path / "imported"), texts
    ).all()


def test_a_file_of_something_else_is_refused(file):
    save_file({"weight": np.zeros(3, np.float32)}, file)

    with pytest.raises(UserError, match="has no header of a reward model"):
        read_safetensors(file)


def named_arrays(path):
    named = layout.to_torch(read_safetensors(path).params)
    return {name: np.ascontiguousarray(array) for name, array in named.items()}


def test_nan_of_a_curve_survives_as_null_in_the_file(file):
    assert "NaN" not in file.read_bytes().decode("latin-1"), (
        "NaN is no JSON: other languages refuse it"
    )
    assert header_of(file)["curve"][0] == {"epoch": 0, "validation/loss": None, "calibration": []}
    np.testing.assert_equal(read_safetensors(file).curve, make_reward(file.parent).curve)


def test_nan_deep_in_the_curve_is_read_as_nan(file):
    header = header_of(file)
    header["curve"][0] = {"a": [None, {"b": None}, 1]}
    other = file.with_name("other")
    other.write_bytes(digests.safetensors_of("reward", json.dumps(header), named_arrays(file)))

    np.testing.assert_equal(read_safetensors(other).curve[0], {"a": [math.nan, {"b": math.nan}, 1]})


def test_a_file_without_training_texts_cannot_say_what_it_knows(file):
    with pytest.raises(
        UserError, match="does not say what its reward was trained on: only runs of train_reward"
    ):
        rewards.load(file).known("x")


def test_a_file_has_the_one_evaluation_that_it_names(file):
    with pytest.raises(UserError, match="has no evaluation 4: it holds evaluation 3 of its run"):
        rewards.load(file, 4)


def test_statistics_without_quantiles_have_no_levels():
    statistics = statistics_of(1.0, 2.0, None)

    assert (statistics["mean"], statistics["variance"]) == (1, 2)
    assert statistics["quantile_levels"] == statistics["quantiles"] == []
    assert (statistics["member_mean"], statistics["member_variance"]) == ([1], [2])


def test_a_reward_that_diverged_is_not_written(file):
    unwritten = file.with_name("x.safetensors")

    with pytest.raises(ValueError, match="not JSON compliant"):
        write_safetensors(make_reward(file.parent, mean=math.nan), unwritten)
    assert not unwritten.exists()


def importing(file):
    return load_config("import", "reward", {"file": str(file)})


def test_a_finished_import_is_a_run_folder_made_once(tmp_path, file, monkeypatch, capsys):
    """A killed import may be followed by that of another file: what it left is nobody's work."""
    workdir = tmp_path / "run"

    def killed(*_, **__):
        (workdir / "checkpoints" / "3.orbax-checkpoint-tmp-1").mkdir()
        (workdir / ".config.json.abc.tmp").touch()
        raise SystemError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("motif_jax.core.checkpoints.Checkpoints.save", killed)
        with pytest.raises(SystemError):
            imports.run(importing(file), workdir)
    assert not imports.has_checkpoints(workdir)
    write_safetensors(make_reward(tmp_path, seed=1), file)
    for _ in range(2):
        run_config(importing(file), workdir)
    assert "holds this import of" in capsys.readouterr().out
    assert not list(workdir.rglob("*tmp*"))
    assert {"config.json", "versions.json", "import.json"} <= {
        path.name for path in workdir.iterdir()
    }
    imported = read_run(workdir)
    expected = make_reward(tmp_path, seed=1)
    assert (imported.step, imported.config["stage"]) == (3, "train_reward")
    jax.tree.map(np.testing.assert_array_equal, imported.params, expected.params)
    (tmp_path / "copy.safetensors").write_bytes(file.read_bytes())
    imports.check(importing(tmp_path / "copy.safetensors"), workdir)
    write_safetensors(make_reward(tmp_path, seed=0), file)
    with pytest.raises(UserError, match=r"holds another import \(file: "):
        imports.check(importing(file), workdir)


def test_a_file_has_the_history_of_one_evaluation():
    file = REPOSITORY / "docs/examples/doorkey/reward.safetensors"
    reward = reward_function.open_reward(file)
    met = reward_ratings.messages_met({"You pick up a yellow key.": 3, "": 9})
    values, numbers = reward_ratings.history(reward, met, 100)
    np.testing.assert_array_equal(
        values, reward_ratings.rate_dataset(reward, met, 100).normalised[None]
    )
    assert numbers == [reward.step]
