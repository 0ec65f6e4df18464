"""Headers of GGUF files: metadata of every type, and files that are damaged, cut off or no GGUF
files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.lm.gguf import files
from tests.lm.gguf import gguf_writing
from tests.lm.gguf.gguf_writing import gguf


@pytest.fixture
def written(tmp_path: Path) -> Path:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_uint8("u8", 200)
    writer.add_int16("i16", -300)
    writer.add_uint64("u64", 1 << 40)
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 1e300)
    writer.add_bool("yes", True)
    writer.add_string("text", "Ġé")
    writer.add_array("numbers", [1.5, -2.0])
    writer.add_array("texts", ["a", "bc"])
    writer.add_tensor("weight", np.arange(6, dtype=np.float32).reshape(2, 3))
    return gguf_writing.finished(writer, tmp_path / "model.gguf")


def test_metadata_of_every_type_are_read(written: Path) -> None:
    metadata = dict(files.read(written).metadata)

    numbers = metadata.pop("numbers")
    assert numbers.tolist() == [1.5, -2.0]
    assert metadata == {
        "general.architecture": "llama", "u8": 200, "i16": -300, "u64": 1 << 40, "f32": 0.5, "f64": 1e300,
        "yes": True, "text": "Ġé", "texts": ["a", "bc"],
    }  # fmt: skip


def test_tensors_are_where_the_header_says(written: Path) -> None:
    tensor = files.read(written).tensors["weight"]

    assert (tensor.shape, tensor.type.name, tensor.row_bytes) == ((2, 3), "F32", 12)
    np.testing.assert_array_equal(
        np.fromfile(written, np.float32, 6, offset=tensor.start), np.arange(6)
    )


@pytest.mark.parametrize("length", [20, 60, 150, 300])
def test_header_that_is_cut_off_is_one_line(written: Path, length: int) -> None:
    written.write_bytes(written.read_bytes()[:length])

    with pytest.raises(
        UserError, match=r"model\.gguf is damaged or cut off: its header cannot be read"
    ):
        files.read(written)


def test_tensor_that_is_cut_off_is_named(written: Path) -> None:
    # Behind the tensor's 24 bytes the file is filled up to a multiple of 32.
    written.write_bytes(written.read_bytes()[:-16])

    with pytest.raises(
        UserError, match="is cut off: tensor weight extends past the end of the file"
    ):
        files.read(written)


def test_other_file_is_no_gguf_file(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"PK\x03\x04 and so on")

    with pytest.raises(UserError, match="is not a GGUF file: it does not begin with GGUF"):
        files.read(tmp_path / "model.gguf")


def test_version_that_is_not_read_is_named(written: Path) -> None:
    content = bytearray(written.read_bytes())
    content[4] = 9
    written.write_bytes(content)

    with pytest.raises(UserError, match="has version 9 of GGUF, must be 2 or 3"):
        files.read(written)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("general.alignment", 0, "general.alignment is 0, must be a whole number above 0"),
        ("general.alignment", "x", "general.alignment is 'x', must be a whole number above 0"),
        ("split.count", "x", "split.count is 'x', must be a whole number"),
    ],
)
def test_damaged_metadata_are_one_line(
    tmp_path: Path, key: str, value: int | str, message: str
) -> None:
    path = gguf_writing.only_metadata(tmp_path / "model.gguf", "llama", {key: value})

    with pytest.raises(UserError, match=rf"model\.gguf is damaged.*{message}"):
        files.read(path)


def test_part_of_a_model_asks_for_the_others(tmp_path: Path) -> None:
    path = gguf_writing.only_metadata(
        tmp_path / "model-00001-of-00003.gguf", "llama", {"split.count": 3}
    )

    with pytest.raises(
        UserError, match="is one of 3 parts: join them with llama-gguf-split --merge"
    ):
        files.read(path)
