"""Files of a few bytes that describe more than any memory or any time: each is one line."""

from __future__ import annotations

import pickle
import zipfile

import numpy as np
import pytest

from motif_jax.published import (
    evaluation_logs,
    oni_checkpoint,
    results,
    torch_file,
    torch_import,
    wordle_games,
)
from motif_jax.support.errors import UserError
from tests import torch_files
from tests.torch_files import Storage, Tensor, tensor

# What hashes, prints or counts its parts is killed by the clock: the loops are in C, which no signal interrupts.
pytestmark = pytest.mark.timeout(120, method="thread")

# A tuple of two tuples of two tuples ..., 2^60 in all.
BOMB = b")" + b"2\x86" * 60


def global_(name: str) -> bytes:
    module, _, attribute = name.rpartition(".")
    return f"c{module}\n{attribute}\n".encode()


def text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


AS_KEY = {
    "item": b"}" + BOMB + b"K\x01s",
    "items": b"}(" + BOMB + b"K\x01u",
    "dictionary": b"(" + BOMB + b"K\x01d",
    "set": b"\x8f(" + BOMB + b"\x90",
    "ordered": global_("collections.OrderedDict") + b"](" + BOMB + b"K\x01\x86e\x85R",
    "module": BOMB + text("name") + b"\x93",
    "encoding": global_("_codecs.encode") + text("a") + BOMB + b"\x86R",
    "attribute": global_("builtins.getattr") + global_("wordle.wordle_game.CharKnowledge") + BOMB + b"\x86R",
}
READERS = {
    "results": results.read_published,
    "games": wordle_games.read_games,
    "log": evaluation_logs.read,
    "checkpoint": torch_file.read_checkpoint,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("place", AS_KEY)
def test_a_key_without_end_is_refused(tmp_path, place, reader):
    data = b"\x80\x04" + AS_KEY[place] + b"."
    path = tmp_path / "file"
    if reader == "checkpoint":
        if place == "attribute":  # a call that is not made: an inert object
            return
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", data)
    else:
        path.write_bytes(data)
    with pytest.raises(UserError) as error:
        READERS[reader](path)
    assert len(str(error.value).splitlines()[0]) == len(str(error.value)) < 500


def doubled() -> tuple:
    found: tuple = ()
    for _ in range(60):
        found = (found, found)
    return found


LOG = {"results": [((), [(0, 0, 1.0, True)])], "entropies": [0.5]}


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (evaluation_logs.read, {"eval_dump": {**LOG, "entropies": [doubled()]}}),
        (evaluation_logs.read, {"eval_dump": {**LOG, "entropies": [[1.0, doubled()]]}}),
        (evaluation_logs.read, {"eval_dump": {"results": [((), [(0, 0, 1.0)] * 30_000)] * 30_000}}),
        (wordle_games.read_games, {"state_actions": [], "vocab_path": doubled()}),
        (wordle_games.read_games, {"state_actions": [{"actions": [doubled()]}], "vocab_path": "a"}),
        (results.read_published, {"task": {"method": [1, doubled()]}}),
    ],
)
def test_values_without_end_are_refused(tmp_path, read, content):
    path = tmp_path / "file"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(UserError) as error:
        read(path)
    assert len(str(error.value)) < 500


def test_copies_of_one_text_are_refused(tmp_path):
    """Each call of eight bytes would copy a million."""
    many = (b"h\x00h\x01\x85R0") * 10_000
    data = (
        b"\x80\x04" + global_("_codecs.encode") + b"q\x000" + text("a" * 1_000_000) + b"q\x010" + many + b"}."
    )
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(UserError, match="more than 8 times the bytes"):
        results.read_published(tmp_path / "file")


def test_a_storage_is_read_once_and_tensors_of_it_are_bounded(tmp_path):
    storage = Storage(np.zeros(100_000, "f"))
    views = {str(number): Tensor(storage, number, (50_000,), (1,)) for number in range(3)}
    found = torch_file.read_checkpoint(torch_files.write(tmp_path / "a.pth", views))
    assert np.shares_memory(found["0"], found["2"])
    many = {str(number): Tensor(storage, 0, (250, 400), (1, 250)) for number in range(100)}
    with pytest.raises(UserError, match="more than 8 times the bytes"):
        torch_file.read_checkpoint(torch_files.write(tmp_path / "b.pth", many))


def test_a_checkpoint_that_claims_more_than_it_has_is_refused(tmp_path):
    path = torch_files.write(tmp_path / "a.pth", {"a": tensor(np.zeros(10, "f"))})
    content = path.read_bytes()
    entry = content.index(b"archive/data/0", content.index(b"PK\x01\x02")) - 46
    claimed = (1 << 31).to_bytes(4, "little") * 2
    path.write_bytes(content[: entry + 20] + claimed + content[entry + 28 :])
    with pytest.raises(UserError, match="claim more bytes than it has"):
        torch_file.read_checkpoint(path)


def test_labels_that_repeat_themselves_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_file, "MOST_PARTS", 10_000)
    nested: list = ["text", 1, 2]
    for _ in range(8):
        nested = [nested] * 100
    content = {"model": {"a": tensor(np.ones(2, "f"))}, oni_checkpoint.TABLE: nested}
    checkpoint = torch_import.read(torch_files.write(tmp_path / "a.pth", content), "model")
    with pytest.raises(UserError, match="has more than 10,000 parts"):
        oni_checkpoint.labels(checkpoint)
