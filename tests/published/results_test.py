"""Published curves: every nesting that is tolerated, and pickles that try to run something."""

from __future__ import annotations

import collections
import os
import pickle

import numpy as np
import pytest

from motif_jax.published import pickles
from motif_jax.published.results import read_published
from motif_jax.support.errors import UserError

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
    "dict of lists": {"timesteps": [STEPS.tolist()] * 3, "mean_returns": [y.tolist() for y in SEEDS]},
    "dict of seeds": {seed: (STEPS.tolist(), y.tolist()) for seed, y in enumerate(SEEDS)},
    "ordered": collections.OrderedDict(steps=STEPS, returns=SEEDS),
}


@pytest.mark.parametrize(
    ("name", "protocol"), [*((name, 4) for name in NESTINGS), ("matrix", 0), ("matrix", 5)]
)
def test_every_nesting_gives_the_same_curves(tmp_path, name, protocol):
    (result,) = read_published(save(tmp_path, {"NetHackScore": {"motif": NESTINGS[name]}}, protocol))
    assert (result.task, result.method, len(result.seeds)) == ("NetHackScore", "motif", 3)
    for curve, y in zip(result.seeds, SEEDS, strict=True):
        np.testing.assert_array_equal([curve.x, curve.y], [STEPS, y])


@pytest.mark.parametrize("two", [[(STEPS, SEEDS[0]), (STEPS, SEEDS[1])], ([STEPS, STEPS], SEEDS[:2])])
def test_two_seeds_are_not_mistaken_for_steps_and_returns(tmp_path, two):
    (result,) = read_published(save(tmp_path, {"t": {"m": two}}))
    assert [curve.y.tolist() for curve in result.seeds] == [SEEDS[0].tolist(), SEEDS[1].tolist()]
    assert all((curve.x == STEPS).all() for curve in result.seeds)


def test_numpy_scalars_and_names_are_read(tmp_path):
    value = {"a": np.float64(1.5), "b": [np.int64(3)], "c": "text", "d": (True, None), "e": np.array(["x"])}
    read = pickles.read_file(save(tmp_path, value), 1 << 20, pickles.PickleReader(pickles.ARRAYS))
    assert (read["a"], read["b"], read["d"]) == (1.5, [3], (True, None))
    assert pickles.PickleReader().read(pickle.dumps({b"k": {1, "a"}}, 4)) == {b"k": {1, "a"}}
    with pytest.raises(ValueError, match="a tuple as a key"):
        pickles.PickleReader().read(pickle.dumps({(1,): 2}))


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
    with pytest.raises(UserError, match=r"it names .*nothing else"):
        read_published(path)
    assert not target.exists()


def test_allowed_names_cannot_be_bent(tmp_path):
    bent = [
        b"cnumpy\nndarray.__class__\n.",
        b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
        b"cnumpy\ndtype\n(VO8\nVx\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntVb\ntR.",
        b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(VO\ntRVb\ntR.",
        b"\x80\x04\x8c\x05numpy\x8c\x12ndarray.__reduce__\x93.",
        b"Pid\n.",
        b"",
        b"garbage",
    ]
    for data in bent:
        (tmp_path / "bent.pkl").write_bytes(data)
        with pytest.raises(UserError, match=r"bent\.pkl"):
            read_published(tmp_path / "bent.pkl")
    with pytest.raises(UserError, match=r"none\.pkl cannot be read"):
        read_published(tmp_path / "none.pkl")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1, 2], "a dictionary with tasks as keys is expected, found list"),
        ({"t": [1]}, r"\['t'\] should be a dictionary with methods"),
        ({"t": {"m": ([1, 2, 3], [1, 2])}}, r"\['m'\]: steps and returns do not fit .*: \[3\] steps, \[2\]"),
        ({"t": {"m": {"foo": [1]}}}, r"\['t'\]\['m'\]:"),
        ({"t": {"m": [1.0, 2.0, 3.0]}}, "expected lists of time steps"),
    ],
)
def test_anything_else_is_a_clear_error(tmp_path, value, said):
    with pytest.raises(UserError, match=said):
        read_published(save(tmp_path, value))


def test_what_contains_itself_is_refused(tmp_path):
    lists, mixed, dictionaries = [], [1.0], {}
    lists += [lists, lists]
    mixed += [mixed, mixed]
    dictionaries.update(a=dictionaries, b=dictionaries)
    for itself in (lists, mixed, dictionaries):
        with pytest.raises(UserError, match=r"\['t'\]\['m'\]: found .*, expected lists"):
            read_published(save(tmp_path, {"t": {"m": itself}}))


def test_a_pickle_larger_than_is_read_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "log.pkl"
    with open(path, "wb") as file:
        file.truncate((2 << 30) + 1)
    with pytest.raises(UserError, match="is larger than 2 GiB"):
        pickles.read_file(path, 2 << 30, pickles.PickleReader())
