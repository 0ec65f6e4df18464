"""Published curves: every nesting that is tolerated, and pickles that try to run something."""

from __future__ import annotations

import collections
import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from motif_jax.published import pickles
from motif_jax.published.results import read_published

STEPS = np.array([0.0, 1e6, 2e6, 3e6])
SEEDS = [np.array([1.0, 5, 3, 9]), np.array([2.0, 4, 6, 5]), np.array([0.0, 7, 8, 7])]


def save(tmp_path, value, protocol=4):
    path = tmp_path / "motif_results.pkl"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


NESTINGS = {
    "steps and returns per seed": ([STEPS] * 3, SEEDS),
    "shared steps": (STEPS, SEEDS),
    "matrix": [np.stack([STEPS] * 3), np.stack(SEEDS)],
    "list of pairs": [(STEPS, y) for y in SEEDS],
    "list of dicts": [{"steps": STEPS, "returns": y} for y in SEEDS],
    "dict of lists": {
        "timesteps": [STEPS.tolist()] * 3,
        "mean_returns": [y.tolist() for y in SEEDS],
    },
    "dict of seeds": {seed: (STEPS.tolist(), y.tolist()) for seed, y in enumerate(SEEDS)},
    "ordered": collections.OrderedDict(steps=STEPS, returns=SEEDS),
}


@pytest.mark.parametrize(
    ("name", "protocol"), [*((name, 4) for name in NESTINGS), ("matrix", 0), ("matrix", 5)]
)
def test_every_nesting_gives_the_same_curves(tmp_path, name, protocol):
    (result,) = read_published(
        save(tmp_path, {"NetHackScore": {"motif": NESTINGS[name]}}, protocol)
    )
    assert (result.task, result.method, len(result.seeds)) == ("NetHackScore", "motif", 3)
    for curve, y in zip(result.seeds, SEEDS, strict=True):
        np.testing.assert_array_equal([curve.x, curve.y], [STEPS, y])


class Runs:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("in_an_array", [False, True])
def test_nothing_in_a_pickle_runs(tmp_path, in_an_array):
    target = tmp_path / "touched"
    harmful = Runs(os.system, f"touch {target}")
    path = save(tmp_path, {"t": {"m": np.array([harmful], object) if in_an_array else harmful}})

    with pytest.raises(ValueError, match="found "):
        read_published(path)

    assert not target.exists()


def nested_in_itself():
    """Containers that hold themselves."""
    pair = []
    mixed = [1.0]
    dictionary = {}
    pair += [pair, pair]
    mixed += [mixed, mixed]
    dictionary.update(a=dictionary, b=dictionary)
    return [pair, mixed, dictionary]


@pytest.mark.parametrize(
    "value",
    [
        {"foo": [1]},
        [1.0, 2.0, 3.0],
        {},
        5,
        ["a", "b"],
        ([True], [1]),
        ([], []),
        *nested_in_itself(),
    ],
)
def test_a_file_without_steps_and_returns_is_refused(tmp_path, value):
    path = save(tmp_path, {"t": {"m": value}})

    expected = "expected lists of time steps and of mean returns for each seed"
    with pytest.raises(ValueError, match=rf"^found .*, {expected}"):
        read_published(path)


@pytest.mark.parametrize(
    ("value", "sizes"),
    [
        (([1, 2, 3], [1, 2]), "[3] steps, [2] returns"),
        (([[1, 2]] * 2, [[1]] * 3), "[2, 2] steps, [1, 1, 1] returns"),
        ([([1, 2], [1, 2]), [1]], "[2, 2] steps, [1] returns"),
    ],
)
def test_steps_and_returns_of_other_sizes_are_refused(tmp_path, value, sizes):
    path = save(tmp_path, {"t": {"m": value}})

    with pytest.raises(
        ValueError, match=re.escape(f"steps and returns do not fit together: {sizes}")
    ):
        read_published(path)


@pytest.mark.parametrize(
    ("value", "curves"),
    [
        # Steps that fall are sorted, with their returns.
        (([3, 1], [5, 6]), [([1, 3], [6, 5])]),
        (([1, 2], [[1, 2], [3, 4]]), [([1, 2], [1, 2]), ([1, 2], [3, 4])]),
        ({"a": ([1], [2]), "b": ([3], [4])}, [([1], [2]), ([3], [4])]),
        (
            [[[1, 2, 3], [5, 3, 9]], [[2, 3, 4], [6, 4, 5]]],
            [([1, 2, 3], [5, 3, 9]), ([2, 3, 4], [6, 4, 5])],
        ),
        ([(STEPS, SEEDS[0]), (STEPS, SEEDS[1])], [(STEPS, SEEDS[0]), (STEPS, SEEDS[1])]),
        (([STEPS, STEPS], SEEDS[:2]), [(STEPS, SEEDS[0]), (STEPS, SEEDS[1])]),
    ],
)
def test_two_lists_of_numbers_are_steps_and_returns(tmp_path, value, curves):
    (result,) = read_published(save(tmp_path, {"t": {"m": value}}))

    assert len(result.seeds) == len(curves)
    for seed, (steps, returns) in zip(result.seeds, curves, strict=True):
        np.testing.assert_array_equal([seed.x, seed.y], [steps, returns])


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_of_every_protocol_reads_as_in_pickle(tmp_path, protocol):
    fortran = np.asfortranarray(np.eye(2, 3))
    arrays = [np.float32(0.1), np.array([[1, 2], [3, 4]], ">i2"), fortran, np.array(2.5)]
    numbers = [1, -70000, 2**80, "é" * 300, None, True]
    tuples = [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]
    data = {"a": [*numbers, *tuples, b"\xff", b""], "d": [*map(str, range(300))] * 2, "e": arrays}
    data["f"] = collections.OrderedDict(g=1)
    data["g"] = {1, 2}

    np.testing.assert_equal(pickles.read_file(save(tmp_path, data, protocol)), data)


class Foreign:
    """Stands for a published class."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __setstate__(self, state):
        raise AssertionError("an object of the file was built")


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_an_unknown_object_keeps_its_attributes_as_data(tmp_path, protocol):
    foreign = Foreign(a=1, path=Path("here"))

    first, second = pickles.read_file(save(tmp_path, [foreign, foreign], protocol))

    assert first is second
    assert isinstance(first, pickles.Stub)
    assert first.state["a"] == 1
    assert isinstance(first.state["path"], pickles.Stub)


class Texts(list):
    """A list of a published class."""


class Table(dict):
    """A dictionary of a published class."""


def test_objects_of_unknown_containers_are_read_without_entries(tmp_path):
    for value in (Texts([1, 2]), Table(a=1)):
        assert isinstance(pickles.read_file(save(tmp_path, value)), pickles.Stub)


@pytest.mark.parametrize(
    "values",
    [collections.deque([1, "a"]), collections.deque([2], 3), collections.defaultdict(int, a=1)],
    ids=["deque", "deque of a length", "defaultdict"],
)
def test_containers_of_the_standard_library_are_plain_data(tmp_path, values):
    assert pickles.read_file(save(tmp_path, values)) == values
