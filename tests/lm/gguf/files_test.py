"""Headers of GGUF files: metadata of every type, and files that are no GGUF files."""

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


def test_other_file_is_no_gguf_file(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"PK\x03\x04 and so on")

    with pytest.raises(UserError, match="is not a GGUF file of version 2 or 3"):
        files.read(tmp_path / "model.gguf")
