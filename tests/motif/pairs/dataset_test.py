"""The reader takes what fits the layout, and says in one line what does not."""

import json

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.motif.pairs import layout
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.writer import PairsWriter, write_pairs
from tests.reward_fixtures import write_labels

PAIRS = 12
LENGTH = 2


def arrays():
    rng = np.random.default_rng(0)
    shape = (PAIRS, 2, LENGTH)
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
    assert (len(dataset.data), "message" in dataset.data, "turns" in dataset.info) == (
        3,
        True,
        False,
    )
    np.save(folder / "data" / "other.npy", arrays()["blstats"][..., 0].astype(bool))
    assert PairsDataset.open(folder, need=("other",)).array("data/other").shape == (
        PAIRS,
        2,
        LENGTH,
    )
    assert dataset.preference_names() == ("someone",)
    labels = np.array([0, 1, 2, 3] * 3, np.int8)
    np.testing.assert_array_equal(dataset.preference("someone"), labels, strict=True)


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        (
            12,
            "i1",
            "label 4 at pair 0 .12 such labels.; allowed are 0 first, 1 second, 2 tie, 3 unknown",
        ),
        (13, "i1", r"shape \(13,\), expected \(12,\), one label for each pair"),
    ],
)
def test_labels_that_are_none_are_named(folder, shape, dtype, words):
    np.save(folder / "preference" / "bad.npy", np.full(shape, 4, dtype))
    with pytest.raises(UserError, match=rf"preference/bad\.npy: {words}"):
        PairsDataset.open(folder).preference("bad")


def test_arrays_that_are_not_read_need_not_be_good(folder):
    (folder / "data" / "tty_chars.npy").write_bytes(b"half a download")
    dataset = PairsDataset.open(folder, need=("message", "blstats"))
    with pytest.raises(ValueError, match="allow_pickle"):
        dataset.data["tty_chars"]


def test_statuses_of_26_numbers_are_read(folder):
    np.save(folder / "data" / "blstats.npy", arrays()["blstats"][..., :26].astype(np.float32))
    assert PairsDataset.open(folder, need=("blstats",)).data["blstats"].shape[-1] == 26


@pytest.mark.parametrize("part", ["data", "info"])
def test_a_writer_leaves_arrays_from_elsewhere_alone(tmp_path, part):
    """The published dataset has no dataset.json."""
    (tmp_path / part).mkdir()
    (tmp_path / part / "x.npy").write_bytes(b"theirs")
    with pytest.raises(
        UserError, match=f"holds {part}/ of a dataset that was not written here: choose another"
    ):
        write_pairs(tmp_path, arrays())
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["x.npy"]


def test_content_hash_follows_the_content_alone(tmp_path):
    data = arrays()
    info = {"score": np.zeros((PAIRS, 2))}
    first = write_pairs(tmp_path / "a", data, info, {"origin": "a test"})
    dataset = PairsDataset.open(tmp_path / "a")
    for name, array in data.items():
        np.testing.assert_array_equal(dataset.data[name], array)
    meta = [dataset.meta[name] for name in ("origin", "num_pairs", "content_hash")]
    assert meta == ["a test", PAIRS, first]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "data",
        "dataset.json",
        "info",
    ]
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
    sizes = {
        name: (array_spec.step_bytes(), array_spec.steps[-1])
        for name, array_spec in layout.DATA_ARRAYS.items()
    }
    screens = dict.fromkeys(("tty_chars", "tty_colors"), (1920, (24, 80))) | {
        "glyphs": (3318, (21, 79))
    }
    assert sizes == {
        "message": (256, (256,)),
        "blstats": (108, (26,)),
        "rewards": (4, ()),
        **screens,
    }
    numbers = np.arange(6, dtype=np.int16).reshape(2, 3)
    bad = np.array([[1, 2], [3, 4], [5, np.inf], [np.nan, 8]], np.float32)
    parts = bad, bad[2:], bad[:2], bad[3:], numbers
    for _ in range(2):
        assert layout.array_digest(numbers) == "0b92738d36db5d3f9e7abd10f9f28198"
        assert [layout.first_not_finite(part) for part in parts] == [2, 0, None, 0, None]
        monkeypatch.setattr(layout, "BLOCK_BYTES", 8)
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
    with pytest.raises(FileNotFoundError, match=r"data/message\.npy"):
        PairsDataset.open(tmp_path)
    with PairsWriter(tmp_path, PAIRS) as writer:
        writer.create("data/message", (LENGTH, 256), np.uint8)[:] = 2
        writer.commit({})
    assert PairsDataset.open(tmp_path).data["message"].min() == 2
    assert json.loads((tmp_path / "dataset.json").read_text())["num_pairs"] == PAIRS


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        (
            "data/rewards",
            (1, 2, LENGTH),
            r"rewards: shape \(1, 2, .* does not begin with \(12, 2, ",
        ),
        ("data/rewards", (PAIRS, 2), r"rewards: shape \(12, 2\) does not begin with \(12, 2, "),
        ("info/score", (PAIRS,), r"score: shape \(12,\) does not begin with \(12, 2\)"),
    ],
)
def test_unfitting_arrays_are_refused_before_they_are_written(tmp_path, name, shape, words):
    """An array of one pair would be repeated."""
    groups = {"data": arrays(), "info": {}}
    group, _, array_name = name.partition("/")
    groups[group][array_name] = np.ones(shape, np.uint8)

    with pytest.raises(UserError, match=words):
        write_pairs(tmp_path / "set", groups["data"], groups["info"])

    assert not (tmp_path / "set").exists()
