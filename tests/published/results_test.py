"""Published curves: every nesting that is tolerated, and pickles that try to run something."""

from __future__ import annotations

import collections
import os
import pickle

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.published import pickles
from motif_jax.published.results import read_published
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

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


def test_anything_else_is_a_clear_error(tmp_path, record):
    lists, mixed, dictionaries = [], [1.0], {}
    lists += [lists, lists]
    mixed += [mixed, mixed]
    dictionaries.update(a=dictionaries, b=dictionaries)
    methods = [
        ([1, 2, 3], [1, 2]),
        {"foo": [1]},
        [1.0, 2.0, 3.0],
        lists,
        mixed,
        dictionaries,
        {},
        5,
        ([[1, 2]] * 2, [[1]] * 3),
        ["a", "b"],
    ]
    methods += [
        ([3, 1], [5, 6]),
        ([True], [1]),
        ([1, 2], [[1, 2], [3, 4]]),
        [([1, 2], [1, 2]), [1]],
        [(STEPS, SEEDS[0]), (STEPS, SEEDS[1])],
        ([STEPS, STEPS], SEEDS[:2]),
        {"a": ([1], [2]), "b": ([3], [4])},
        ([], []),
        [[[1, 2, 3], [5, 3, 9]], [[2, 3, 4], [6, 4, 5]]],
    ]
    tasks = [[1, 2], {}, {"t": [1]}, *({"t": {"m": value}} for value in methods)]
    lines = [outcome_text(read_published, save(tmp_path, value), folder=tmp_path) for value in tasks]
    for data in (b"", b"garbage", b"\x80\x04\x8c\x05numpy\x8c\x12ndarray.__reduce__\x93."):
        (tmp_path / "bent.pkl").write_bytes(data)
        lines += [outcome_text(read_published, tmp_path / "bent.pkl", folder=tmp_path)]
    lines += [outcome_text(read_published, tmp_path / "none.pkl", folder=tmp_path)]
    with open(tmp_path / "large.pkl", "wb") as file:
        file.truncate((2 << 30) + 1)
    lines += [outcome_text(read_published, tmp_path / "large.pkl", folder=tmp_path)]
    assert_matches_packed_recording("published_results", {"lines": "\n".join(lines)}, record)


def hand_made(calls: int, argument: bytes = b"X\x06\0\0\0latin1\x86") -> bytes:
    """A pickle that makes bytes of one text so many times."""
    named = b"\x80\x02(c_codecs\nencode\nq\x01X\0\x80\0\0" + b"x" * (1 << 15) + argument + b"q\x02"
    return named + b"h\x01h\x02R" * calls + b"l."


ORDERED, STATE, FRAME = (
    b"ccollections\nOrderedDict\n",
    b"cmine\nState\n",
    b"cnumpy._core.numeric\n_frombuffer\n(C\x04abcd",
)
TYPE, SCALAR = b"cnumpy\ndtype\n(Vi2\ntR", b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n"
PIECES = (
    b"(I1\nL5L\nF1.5\nS'a'\nVb\nI01\n(tNl.",
    b"(Va\nI1\nVb\n(lp1\nI2\nadp0\nVc\ng1\ns(Vd\nI3\nVe\ng0\nu.",
    b"I1\n",
    b"(dVa\nI1\ns.",
    b"h\x05.",
    b"(Va\nq\x05r\x06\0\0\0h\x05j\x06\0\0\0p7\ng7\nl.",
    STATE + b")\x81(dVa\nI1\nsb.",
    b"\x80\x04" + STATE + b")}\x92.",
    b"(Va\nd.",
    b"K\x01\x87.",
    b"\x80\x04\x8f(K\x01K\x02\x90.",
    ORDERED + b"(((Va\nI1\ntltR.",
    ORDERED + b"((((lI1\ntltR.",
    ORDERED + b")R.",
    b"K\x01K\x02K\x03\x87.",
    b"Va\nQ.",
    b"K\x01K\x02\x93.",
    b"\x80\x04K\x010.",
    b".",
    b"\x88\x89\x86\x85.",
    hand_made(1, b"X\x05\0\0\0rot13\x86"),
    b"c_codecs\nencode\n(Vab\ntR.",
    b"cnumpy\nndarray\n)R.",
    FRAME + TYPE + b"(I2\ntVA\ntR.",
    FRAME + TYPE + b"(I1\nI2\ntVF\ntR.",
    FRAME + TYPE + b"(I2\ntVC\nI1\ntR.",
    FRAME[:-6] + b"Va\n" + TYPE + b"(I1\ntVC\ntR.",
    SCALAR + b"(VV0\ntRC\x01atR.",
    SCALAR + b"(Vi2\ntR(I3\nV>\nNNNI-1\nI-1\nI0\ntbC\x02\x01\x02tR.",
    b"cnumpy\nndarray.__class__\n.",
    b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
    SCALAR + b"(VO8\nVx\ntRVb\ntR.",
    SCALAR + b"(VO\ntRVb\ntR.",
    b"Pid\n.",
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntVb\ntR.",
    SCALAR + b"(Vi2\ntR(I3\nV>\nNVa\nNI-1\nI-1\nI0\ntbC\x02\x01\x02tR.",
)


def test_pickles_are_read_piece_by_piece_and_bounded_by_their_size(record):
    def read(data, **given):
        return outcome_text(lambda: [pickles.PickleReader(pickles.ARRAYS, **given).read(data)])

    def most(data, **given):
        """So many calls are not too much."""
        return sum("more than" not in read(data(calls), **given) for calls in range(24, 40)) + 23

    scalars = [
        np.float32(0.1),
        np.array([[1, 2], [3, 4]], ">i2"),
        np.asfortranarray(np.eye(2, 3)),
        np.array(2.5),
    ]
    held = {
        "a": [1, -70000, 2**80, "é" * 300, None, True, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), b"\xff"],
        "b": {3},
    }
    held |= {"d": [*map(str, range(300))] * 2, "e": scalars, "f": collections.OrderedDict(g=1)}
    given = [*PIECES, *(pickle.dumps(held, protocol) for protocol in range(5))]
    lines = [f"{read(data)}\n{read(data, unread=True, persistent=str)}" for data in given]
    assert_matches_packed_recording("pickles", {"lines": "\n".join(lines)}, record)
    items = b"".join(b"(V%d\nI1\nt" % n for n in range(999))
    pairs = b"\x80\x02(" + ORDERED + b"q\x01(" + items + b"l\x85q\x02"
    # Eight times 64 KB and the file, or the size that is given.
    assert (most(hand_made), most(hand_made, size=1 << 16)) == (24, 32)
    assert most(lambda calls: pairs + b"h\x01h\x02R" * calls + b"l.") == 37
