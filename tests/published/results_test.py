"""Published curves: every nesting that is tolerated, and pickles that try to run something."""

from __future__ import annotations

import collections
import os
import pickle
import re

import numpy as np
import pytest

from motif_jax.core.errors import UserError
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
    with pytest.raises(UserError, match=r"it names .*nothing else"):
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
    ("tasks", "message"),
    [
        ([1, 2], "a dictionary with tasks as keys is expected, found list"),
        ({}, "a dictionary with tasks as keys is expected, found dict"),
        ({"t": [1]}, r"\['t'\] should be a dictionary with methods as keys, found list"),
    ],
)
def test_results_without_tasks_and_methods_are_refused(tmp_path, tasks, message):
    path = save(tmp_path, tasks)

    with pytest.raises(UserError, match=f"^{path}: {message}"):
        read_published(path)


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
    with pytest.raises(UserError, match=rf"^{path}: \['t'\]\['m'\]: found .*, {expected}"):
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
        UserError, match=re.escape(f"steps and returns do not fit together: {sizes}")
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


@pytest.mark.parametrize(
    "data", [b"", b"garbage", b"\x80\x04\x8c\x05numpy\x8c\x12ndarray.__reduce__\x93."]
)
def test_bytes_that_are_no_plain_pickle_are_refused(tmp_path, data):
    path = tmp_path / "bent.pkl"
    path.write_bytes(data)

    with pytest.raises(UserError, match=f"^{path} is not a pickle of plain data .*nothing else"):
        read_published(path)


def test_results_that_are_not_there_are_named(tmp_path):
    with pytest.raises(UserError, match=f"^{tmp_path}/none.pkl cannot be read: .*No such file"):
        read_published(tmp_path / "none.pkl")


def test_a_file_of_more_than_a_gibibyte_is_not_read(tmp_path):
    with open(tmp_path / "large.pkl", "wb") as file:
        file.truncate((2 << 30) + 1)

    with pytest.raises(UserError, match=r"large.pkl is larger than 1 GiB"):
        read_published(tmp_path / "large.pkl")


def hand_made(calls: int, argument: bytes = b"X\x06\0\0\0latin1\x86") -> bytes:
    """A pickle that makes bytes of one text so many times."""
    named = b"\x80\x02(c_codecs\nencode\nq\x01X\0\x80\0\0" + b"x" * (1 << 15) + argument + b"q\x02"
    return named + b"h\x01h\x02R" * calls + b"l."


ORDERED = b"ccollections\nOrderedDict\n"
STATE = b"cmine\nState\n"
FRAME = b"cnumpy._core.numeric\n_frombuffer\n(C\x04abcd"
TYPE = b"cnumpy\ndtype\n(Vi2\ntR"
SCALAR = b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n"
READ = (
    (b"(I1\nL5L\nF1.5\nS'a'\nVb\nI01\n(tNl.", [1, 5, 1.5, "a", "b", True, (), None]),
    (b"(dVa\nI1\ns.", {"a": 1}),
    (b"(Va\nq\x05r\x06\0\0\0h\x05j\x06\0\0\0p7\ng7\nl.", ["a"] * 4),
    (b"\x80\x04\x8f(K\x01K\x02\x90.", {1, 2}),
    (ORDERED + b"(((Va\nI1\ntltR.", {"a": 1}),
    (ORDERED + b")R.", {}),
    (b"K\x01K\x02K\x03\x87.", (1, 2, 3)),
    (b"\x88\x89\x86\x85.", ((True, False),)),
    (b"c_codecs\nencode\n(Vab\ntR.", b"ab"),
    (SCALAR + b"(Vi2\ntR(I3\nV>\nNNNI-1\nI-1\nI0\ntbC\x02\x01\x02tR.", 258),
)
NO_READ = "is not read, plain data needs none"
NO_DTYPE = "an array of objects, or of an unusual dtype"
REFUSED = (
    (b"I1\n", "pickle exhausted before seeing STOP"),
    (STATE + b")\x81(dVa\nI1\nsb.", "it names mine.State"),
    (ORDERED + b"((((lI1\ntltR.", "a list as a key: keys are text, whole numbers or bytes"),
    (b"Va\nQ.", f"opcode BINPERSID {NO_READ}"),
    (b"Va\nVb\na.", "entries of a str"),
    (b"Va\n(Vb\ne.", "entries of a str"),
    (b"Va\nVb\nI1\ns.", "keys of a str"),
    (b"\x80\x04K\x010.", f"opcode POP {NO_READ}"),
    (b"Pid\n.", f"opcode PERSID {NO_READ}"),
    (b"K\x01K\x02\x93.", "it names 1.2"),
    (hand_made(1, b"X\x05\0\0\0rot13\x86"), "bytes in an unusual encoding"),
    (b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "bytes in an unusual encoding"),
    (b"cnumpy\nndarray\n)R.", "an unusual array"),
    (FRAME + TYPE + b"(I2\ntVA\ntR.", "an unusual array"),
    (FRAME + TYPE + b"(I2\ntVC\nI1\ntR.", "an unusual array"),
    (FRAME[:-6] + b"Va\n" + TYPE + b"(I1\ntVC\ntR.", "an array of what is not bytes"),
    (SCALAR + b"(VV0\ntRC\x01atR.", NO_DTYPE),
    (SCALAR + b"(VO8\nVx\ntRVb\ntR.", NO_DTYPE),
    (SCALAR + b"(VO\ntRVb\ntR.", NO_DTYPE),
    (SCALAR + b"(Vi2\ntR(I3\nV>\nNVa\nNI-1\nI-1\nI0\ntbC\x02\x01\x02tR.", NO_DTYPE),
    (b"cnumpy\nndarray.__class__\n.", "it names numpy.ndarray.__class__"),
    (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntVb\ntR.",
        "a class that is not numpy's",
    ),
)


def plain(data, **options):
    return pickles.PickleReader(pickles.ARRAYS, **options).read(data)


@pytest.mark.parametrize(("data", "value"), READ)
def test_a_piece_of_a_pickle_is_read_as_plain_data(data, value):
    assert plain(data) == value


@pytest.mark.parametrize(("data", "message"), REFUSED)
def test_a_pickle_of_more_than_plain_data_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        plain(data)


@pytest.mark.parametrize("data", [b"h\x05.", b".", b"(Va\nd."])
def test_a_piece_that_refers_to_nothing_is_an_error(data):
    with pytest.raises((KeyError, IndexError, ValueError)):
        plain(data)


def test_a_dictionary_may_hold_itself():
    value = plain(b"(Va\nI1\nVb\n(lp1\nI2\nadp0\nVc\ng1\ns(Vd\nI3\nVe\ng0\nu.")

    assert value.pop("e") is value
    assert value == {"a": 1, "b": [2], "c": [2], "d": 3}


def test_rows_of_an_array_in_fortran_order_are_read():
    value = plain(FRAME + TYPE + b"(I1\nI2\ntVF\ntR.")

    np.testing.assert_array_equal(value, np.frombuffer(b"abcd", "<i2")[None])


@pytest.mark.parametrize(
    ("data", "unread"),
    [
        (STATE + b")\x81(dVa\nI1\nsb.", pickles.Unread("mine.State", (), {"a": 1})),
        (b"\x80\x04" + STATE + b")}\x92.", pickles.Unread("mine.State", ((), {}))),
        (STATE + b")\x81K\x01a(K\x02K\x03e.", pickles.Unread("mine.State", (), values=[1, 2, 3])),
        (STATE + b")\x81}}s.", pickles.Unread("mine.State", (), items=[({}, {})])),
        (b"cnumpy\nndarray.__class__\n.", pickles.Unread("numpy.ndarray.__class__")),
    ],
)
def test_parts_that_are_no_plain_data_may_stay_unread(data, unread):
    assert plain(data, unread=True, persistent=str) == unread


def test_an_unread_object_is_the_same_wherever_it_stands():
    first, second = plain(b"(" + STATE + b")\x81p0\ng0\n(dVa\nI1\nsbt.", unread=True)

    assert first is second
    assert first.state == {"a": 1}


@pytest.mark.parametrize("data", [SCALAR + b"(VO\ntRVb\ntR.", pickle.dumps(np.array([None]))])
def test_an_unusual_array_may_stay_unread(data):
    value = plain(data, unread=True)

    assert isinstance(value, pickles.Unread) or value.size == 0


@pytest.mark.parametrize(
    "values",
    [collections.deque([1, "a"]), collections.deque([2], 3), collections.defaultdict(int, a=1)],
    ids=["deque", "deque of a length", "defaultdict"],
)
def test_containers_of_the_standard_library_are_plain_data(values):
    kind = dict if isinstance(values, dict) else list

    assert plain(pickle.dumps(values), unread=True) == kind(values)


def test_a_persistent_id_is_read_by_who_knows_it():
    assert plain(b"Va\nQ.", persistent=str) == "a"


@pytest.mark.parametrize("protocol", range(5))
def test_plain_data_of_every_protocol_reads_as_in_pickle(protocol):
    fortran = np.asfortranarray(np.eye(2, 3))
    scalars = [np.float32(0.1), np.array([[1, 2], [3, 4]], ">i2"), fortran, np.array(2.5)]
    numbers = [1, -70000, 2**80, "é" * 300, None, True]
    tuples = [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]
    data = {"a": [*numbers, *tuples, b"\xff"], "d": [*map(str, range(300))] * 2, "e": scalars}
    data["f"] = collections.OrderedDict(g=1)

    np.testing.assert_equal(plain(pickle.dumps(data, protocol)), data)


def most_calls(data, **options):
    """The largest number of calls below 40 that is not too much."""
    largest = 23
    for calls in range(24, 40):
        try:
            plain(data(calls), **options)
        except ValueError as error:
            if "more than" in str(error):
                break
        largest = calls
    return largest


def test_objects_of_a_pickle_are_bounded_by_its_size():
    items = b"".join(b"(V%d\nI1\nt" % number for number in range(999))
    pairs = b"\x80\x02(" + ORDERED + b"q\x01(" + items + b"l\x85q\x02"

    # Eight times 64 KB and the file, or the size that is given.
    assert most_calls(hand_made) == 24
    assert most_calls(hand_made, size=1 << 16) == 32
    assert most_calls(lambda calls: pairs + b"h\x01h\x02R" * calls + b"l.") == 37
