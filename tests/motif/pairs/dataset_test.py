"""The reader takes what fits the layout, and says in one line what does not."""

import json

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.motif.pairs import layout
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.writer import PairsWriter, write_pairs
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text
from tests.reward_fixtures import write_labels

PAIRS, LENGTH = 12, 2


def arrays():
    rng, shape = np.random.default_rng(0), (PAIRS, 2, LENGTH)
    return {
        "message": rng.integers(32, 127, (*shape, 256), dtype=np.uint8),
        "blstats": rng.integers(0, 100, (*shape, 27), dtype=np.int64),
        "rewards": rng.random(shape, dtype=np.float32),
    }


@pytest.fixture
def folder(tmp_path):
    """A folder as the published tool leaves it: bare .npy files, no dataset.json."""
    held = {f"data/{name}": array for name, array in arrays().items()}
    held["info/score"] = np.arange(2 * PAIRS).reshape(PAIRS, 2)
    held["preference/someone"] = np.arange(PAIRS, dtype=np.int8) % 4
    for name, array in held.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def test_published_layout(folder):
    dataset = PairsDataset.open(folder, need=("message", "blstats", "info/score"))
    assert (dataset.num_pairs, dataset.length, dataset.meta) == (PAIRS, LENGTH, {})
    np.testing.assert_array_equal(dataset.data["message"], arrays()["message"])
    assert isinstance(dataset.data["message"], np.memmap)
    assert dataset.info["score"][3, 1] == 7
    assert (len(dataset.data), "message" in dataset.data, "turns" in dataset.info) == (3, True, False)
    np.save(folder / "data" / "other.npy", arrays()["blstats"][..., 0].astype(bool))
    assert PairsDataset.open(folder, need=("other",)).array("data/other").shape == (PAIRS, 2, LENGTH)
    assert dataset.preference_names() == ("someone",)
    labels = np.array([0, 1, 2, 3] * 3, np.int8)
    np.testing.assert_array_equal(dataset.preference("someone"), labels, strict=True)


def test_arrays_that_are_read_must_be_good(folder, record):
    found, whole = {}, {path: path.read_bytes() for path in folder.rglob("*.npy")}
    need = "message", "blstats", "rewards", "info/score"
    cases = """
    data/message 12,2,2,256 f4; data/message 0,2,2,256 u1; data/message 12,2 u1; data/message 12,2,2 u1;
    data/message 12,2,2,256 u2; data/message 12,3,2,256 u1; data/rewards 12,2,2 ?; data/blstats 11,2,2,27 i8;
    data/blstats 12,2,2,25 i8; info/score 12,3 f8; preference/bad 12 i1; preference/bad 12 f4; preference/bad 13 i1
    """
    for case in cases.split(";"):
        name, shape, kind = case.split()
        np.save(folder / f"{name}.npy", np.full([*map(int, shape.split(","))], 4, kind))
        opened = lambda: PairsDataset.open(folder, need=need).preference("bad")  # noqa: E731
        found[f"{name} {shape} {kind}"] = outcome_text(opened, folder=folder)
        for path, content in whole.items():
            path.write_bytes(content)
    np.save(folder / "data" / "blstats.npy", arrays()["blstats"][..., :26].astype(np.float32))
    (folder / "data" / "tty_chars.npy").write_bytes(b"half a download")
    dataset = PairsDataset.open(folder, need=("message", "blstats"))
    assert dataset.data["blstats"].shape[-1] == 26
    for name in ("tty_chars", "glyphs"):
        found[name] = outcome_text(dataset.data.__getitem__, name, folder=folder)
    found["turns"] = outcome_text(PairsDataset.open, folder, need=("message", "info/turns"), folder=folder)
    found["nobody"] = outcome_text(dataset.preference, "nobody", folder=folder)
    (folder / "dataset.json").write_text('{"digests": []}')
    found["digests"] = outcome_text(PairsDataset.open, folder, folder=folder)
    (folder / "dataset.json").unlink()
    path = folder / "data" / "message.npy"
    path.write_bytes(path.read_bytes()[:-100])
    found["cut off"] = outcome_text(PairsDataset.open, folder, need=("message",), folder=folder)
    assert all(told.startswith("UserError: ") and "\n" not in told for told in found.values())
    assert_matches_packed_recording("pairs_refused", found, record)


def test_folders_that_are_no_dataset(tmp_path, record):
    for made in ("empty", "split", "unfinished/.staging", "outer/inner/data", "data/data", "info/info"):
        (tmp_path / made).mkdir(parents=True)
    (tmp_path / "split" / "dataset_part_aa").touch()
    names = "nowhere", "empty", "split", "unfinished", "outer"
    found = {name: outcome_text(PairsDataset.open, tmp_path / name, folder=tmp_path) for name in names}
    # The published dataset has no dataset.json: a writer leaves arrays from elsewhere alone.
    for part in ("data", "info"):
        (tmp_path / part / part / "x.npy").write_bytes(b"theirs")
        found[part] = outcome_text(write_pairs, tmp_path / part, arrays(), folder=tmp_path)
        assert [path.name for path in (tmp_path / part).rglob("*") if path.is_file()] == ["x.npy"]
    assert_matches_packed_recording("pairs_folders_refused", found, record)


def test_content_hash_follows_the_content_alone(tmp_path):
    data, info = arrays(), {"score": np.zeros((PAIRS, 2))}
    first = write_pairs(tmp_path / "a", data, info, {"origin": "a test"})
    dataset = PairsDataset.open(tmp_path / "a")
    for name, array in data.items():
        np.testing.assert_array_equal(dataset.data[name], array)
    told = [dataset.meta[name] for name in ("origin", "num_pairs", "content_hash")]
    assert told == ["a test", PAIRS, first]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["data", "dataset.json", "info"]
    with pytest.raises(UserError, match="already holds a dataset"):
        write_pairs(tmp_path / "a", data)
    screens = {"tty_chars": np.zeros((PAIRS, 2, LENGTH, 24, 80), np.uint8)}
    assert write_pairs(tmp_path / "b", {**data, **screens}, info) == first
    write_labels(tmp_path / "a", "x", np.zeros(PAIRS, np.int8))
    assert PairsDataset.open(tmp_path / "a").content_hash() == first
    hashes = {first}
    for name in data:
        changed = {key: array.copy() for key, array in data.items()}
        changed[name].reshape(-1)[-1] += 1
        hashes.add(write_pairs(tmp_path / f"changed_{name}", changed, info))
    hashes.add(write_pairs(tmp_path / "score", data, {"score": np.ones((PAIRS, 2))}))
    assert len(hashes) == 5


def test_the_arrays_of_a_dataset_and_their_digests(monkeypatch):
    sizes = {name: (each.step_bytes(), each.steps[-1]) for name, each in layout.DATA_ARRAYS.items()}
    screens = dict.fromkeys(("tty_chars", "tty_colors"), (1920, (24, 80))) | {"glyphs": (3318, (21, 79))}
    assert sizes == {"message": (256, (256,)), "blstats": (108, (26,)), "rewards": (4, ()), **screens}
    numbers = np.arange(6, dtype=np.int16).reshape(2, 3)
    bad = np.array([[1, 2], [3, 4], [5, np.inf], [np.nan, 8]], np.float32)
    parts = bad, bad[2:], bad[:2], bad[3:], numbers
    for _ in range(2):
        assert layout.array_digest(numbers) == "0b92738d36db5d3f9e7abd10f9f28198"
        assert [layout.first_not_finite(each) for each in parts] == [2, 0, None, 0, None]
        monkeypatch.setattr(layout, "_HASH_BLOCK", 8)
    combined = layout.combine_digests({"info/score": "c", "x": "b", "data/message": "a"})
    assert combined == "757e536a3b84deea45ca61133836c529"


def test_killed_writer_leaves_no_dataset(tmp_path):
    """As does one of numbers that are not finite."""
    bad = arrays()
    for bad["rewards"][7, 1, 0] in (np.nan, -np.inf):
        with pytest.raises(UserError, match="data/rewards of pair 7 is not finite"):
            write_pairs(tmp_path, bad)
    with PairsWriter(tmp_path, PAIRS) as writer:
        writer.create("data/message", (LENGTH, 256), np.uint8)[:] = 1
    with pytest.raises(UserError, match="is incomplete"):
        PairsDataset.open(tmp_path)
    with PairsWriter(tmp_path, PAIRS) as writer:
        writer.create("data/message", (LENGTH, 256), np.uint8)[:] = 2
        writer.commit({})
    assert PairsDataset.open(tmp_path).data["message"].min() == 2
    assert json.loads((tmp_path / "dataset.json").read_text())["num_pairs"] == PAIRS
