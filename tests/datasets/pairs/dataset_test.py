"""The reader takes what fits the layout, and says in one line what does not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from motif_jax.datasets.pairs import layout
from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.datasets.pairs.writer import PairsWriter, write_pairs
from motif_jax.support.errors import UserError
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


def refusal(*needles):
    """Matches a UserError of one line that holds every needle, in order."""
    return pytest.raises(UserError, match="(?s)" + ".*".join(needles))


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
    with refusal("nobody.npy does not exist: this dataset has the annotations someone"):
        dataset.preference("nobody")
    (folder / "dataset.json").write_text('{"digests": []}')
    with refusal("dataset.json is damaged", "digests is not an object", "restore it from a copy"):
        PairsDataset.open(folder)


def test_only_arrays_that_are_read_must_be_good(folder):
    np.save(folder / "data" / "blstats.npy", arrays()["blstats"][..., :26].astype(np.float32))
    (folder / "data" / "tty_chars.npy").write_bytes(b"half a download")
    dataset = PairsDataset.open(folder, need=("message", "blstats"))
    assert dataset.data["blstats"].shape[-1] == 26
    with refusal("tty_chars.npy is damaged"):
        dataset.data["tty_chars"]
    with refusal("glyphs.npy is missing", "blstats, message, rewards, tty_chars"):
        dataset.data["glyphs"]
    with refusal("turns.npy is missing", "score"):
        PairsDataset.open(folder, need=("message", "info/turns"))
    path = folder / "data" / "message.npy"
    path.write_bytes(path.read_bytes()[:-100])
    with refusal("message.npy is damaged, cut off"):
        PairsDataset.open(folder)


@pytest.mark.parametrize(
    ("name", "array", "needles"),
    [
        ("data/message", np.zeros((PAIRS, 2, LENGTH, 256), np.float32), ["message.npy", "float32", "uint8"]),
        ("data/message", np.zeros((0, 2, LENGTH, 256), np.uint8), ["message.npy", "no pairs"]),
        ("data/message", np.zeros((PAIRS, 2), np.uint8), [r"expected \[pairs, 2,"]),
        ("data/message", np.zeros((PAIRS, 2, LENGTH), np.uint8), [r"expected \[256\] for one step"]),
        ("data/rewards", np.zeros((PAIRS, 2, LENGTH), bool), ["dtype bool, expected float32"]),
        ("data/message", np.zeros((PAIRS, 2, LENGTH, 256), np.uint16), ["dtype uint16, expected uint8"]),
        ("data/message", np.zeros((PAIRS, 3, LENGTH, 256), np.uint8), [r"expected \[pairs, 2,"]),
        ("data/blstats", np.zeros((PAIRS - 1, 2, LENGTH, 27), np.int64), ["blstats.npy", "11", "12"]),
        ("data/blstats", np.zeros((PAIRS, 2, LENGTH, 25), np.int64), ["blstats.npy", "25", "27", "26"]),
        ("info/score", np.zeros((PAIRS, 3)), ["score.npy", r"\(12, 3\)", r"\(12, 2\)"]),
        ("preference/bad", np.full(PAIRS, 4, np.int8), ["bad.npy", "label 4 at pair 0", "12 such"]),
        ("preference/bad", np.zeros(PAIRS, np.float32), ["bad.npy", "dtype float32", "int8"]),
        ("preference/bad", np.zeros(PAIRS + 1, np.int8), ["bad.npy", r"\(13,\)", r"\(12,\)"]),
    ],
)
def test_wrong_arrays_are_named(folder, name, array, needles):
    np.save(folder / f"{name}.npy", array)
    with refusal(*needles) as caught:
        PairsDataset.open(folder, need=("message", "blstats", "rewards", "info/score")).preference("bad")
    assert "\n" not in str(caught.value)


def test_folders_that_are_no_dataset(tmp_path):
    for made in ("empty", "split", "unfinished/.staging", "outer/inner/data"):
        (tmp_path / made).mkdir(parents=True)
    (tmp_path / "split" / "dataset_part_aa").touch()
    for name, needles in {
        "nowhere": ["no such folder"],
        "empty": ["no folder data/"],
        "split": ["join the split archive"],
        "unfinished": ["what writes it was interrupted, run the same command again"],
        "outer": ["did you mean", "inner"],
    }.items():
        with refusal(*needles):
            PairsDataset.open(tmp_path / name)


def test_written_dataset_reads_back(tmp_path):
    data, info = arrays(), {"score": np.arange(2 * PAIRS).reshape(PAIRS, 2)}
    written = write_pairs(tmp_path / "set", data, info, {"origin": "a test"})
    dataset = PairsDataset.open(tmp_path / "set", need=tuple(data))
    for name, array in data.items():
        np.testing.assert_array_equal(dataset.data[name], array)
    assert (dataset.meta["origin"], dataset.meta["num_pairs"]) == ("a test", PAIRS)
    assert dataset.content_hash() == written == dataset.meta["content_hash"]
    assert sorted(p.name for p in (tmp_path / "set").iterdir()) == ["data", "dataset.json", "info"]
    with refusal("already holds a dataset"):
        write_pairs(tmp_path / "set", data)


def test_content_hash_follows_the_content_alone(tmp_path):
    data = arrays()
    info = {"score": np.zeros((PAIRS, 2))}
    first = write_pairs(tmp_path / "a", data, info)
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
    for _ in range(2):
        assert layout.array_digest(numbers) == "0b92738d36db5d3f9e7abd10f9f28198"
        assert [layout.first_not_finite(each) for each in (bad, bad[2:], bad[:2], bad[3:], numbers)] == [
            2,
            0,
            None,
            0,
            None,
        ]
        monkeypatch.setattr(layout, "_HASH_BLOCK", 8)
    combined = layout.combine_digests({"info/score": "c", "x": "b", "data/message": "a"})
    assert combined == "757e536a3b84deea45ca61133836c529"


@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_numbers_that_are_not_finite_are_not_written(tmp_path, number):
    bad = arrays()
    bad["rewards"][7, 1, 0] = number
    with refusal("data/rewards of pair 7 is not finite"):
        write_pairs(tmp_path / "set", bad)
    assert not (tmp_path / "set" / "dataset.json").exists()
    write_pairs(tmp_path / "set", arrays())


def test_killed_writer_leaves_no_dataset(tmp_path):
    with PairsWriter(tmp_path, PAIRS) as writer:
        writer.create("data/message", (LENGTH, 256), np.uint8)[:] = 1
    with refusal("is incomplete"):
        PairsDataset.open(tmp_path)
    with PairsWriter(tmp_path, PAIRS) as writer:
        writer.create("data/message", (LENGTH, 256), np.uint8)[:] = 2
        writer.commit({})
    assert PairsDataset.open(tmp_path).data["message"].min() == 2
    assert json.loads((tmp_path / "dataset.json").read_text())["num_pairs"] == PAIRS


@pytest.mark.parametrize("part", ["data", "info"])
def test_a_writer_leaves_arrays_from_elsewhere_alone(tmp_path, part):
    """The published dataset has no dataset.json."""
    (tmp_path / part).mkdir()
    (tmp_path / part / "x.npy").write_bytes(b"theirs")
    with refusal(f"holds {part}/ of a dataset that was not written here"):
        write_pairs(tmp_path, arrays())
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["x.npy"]
