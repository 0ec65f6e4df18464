import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from motif_jax.core.errors import UserError
from motif_jax.motif.pairs import parquet
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.published import exports, imports
from tests.reward_fixtures import load_config, make_dataset, write_labels


@pytest.mark.parametrize("length", [1, 3])
def test_there_and_back_without_loss(tmp_path, monkeypatch, length):
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 16)
    make_dataset(tmp_path / "d", pairs=50, length=length, glyphs=True)
    np.save(tmp_path / "d" / "info" / "character.npy", np.array([["Mon-hum", "Val-dwa"]] * 50))
    chances = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    chances[3] = np.nan
    write_labels(tmp_path / "d", "soft", np.arange(50, dtype=np.int8) % 4, chances)
    manifest = {"annotator": {"model": "some/model", "prompt": {"question": "Which?"}}}
    (tmp_path / "d/annotations/soft/shard-00000-of-00001.json").write_text(json.dumps(manifest))
    dataset = PairsDataset.open(tmp_path / "d")
    dataset.meta["origin"] = "here"
    assert list(parquet.write(dataset, tmp_path / "p.parquet")) == [16, 32, 48, 50]
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.num_rows == 50
    message = table["data/message/second"][7].as_py()
    expected = dataset.data["message"][7, 1, 0].tobytes().rstrip(b"\0")
    assert (message if length == 1 else message[0]) == expected
    assert table["preference/test"].to_pylist() == dataset.preference("test").tolist()
    import_all(tmp_path / "p.parquet", tmp_path / "back")
    back = PairsDataset.open(tmp_path / "back")
    assert {**back.meta, "arrays": ..., "digests": ...} == {
        **dataset.meta,
        "arrays": ...,
        "digests": ...,
    }
    assert parquet.array_names(back) == parquet.array_names(dataset)
    for name in parquet.array_names(dataset):
        np.testing.assert_array_equal(back.array(name), dataset.array(name), strict=True)
    for name in ("test", "soft"):
        np.testing.assert_array_equal(back.preference(name), dataset.preference(name))
    soft = tmp_path / "back/annotations/soft"
    np.testing.assert_array_equal(np.load(soft / "probabilities.npy"), chances.astype(np.float32))
    assert json.loads((soft / "shard-00000-of-00001.json").read_text()) == manifest
    (soft / "shard-00000-of-00001.json").write_text("{")
    with pytest.raises(UserError, match="annotations/soft is damaged"):
        next(parquet.write(back, tmp_path / "again.parquet"))
    assert not list((tmp_path / "back").glob(".*"))
    with pytest.raises(UserError, match="already holds a dataset"):
        next(parquet.read(tmp_path / "p.parquet", tmp_path / "back"))


@pytest.mark.parametrize(
    "file",
    ["preference/my labels.npy", "info/a.b.npy", "annotations/test/shard 0.json"],
)
def test_names_that_cannot_be_imported_are_not_exported(tmp_path, file):
    make_dataset(tmp_path / "d", pairs=4)
    path = tmp_path / "d" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}") if path.suffix == ".json" else np.save(path, np.zeros(4, np.int8))
    config = load_config("export_dataset", "", {"dataset_dir": str(tmp_path / "d")})

    with pytest.raises(UserError, match=f"^{path}: its name must be of letters"):
        exports.check(config, tmp_path / "e")
    with pytest.raises(UserError, match=f"^{path}: its name must be of letters"):
        next(parquet.write(PairsDataset.open(tmp_path / "d"), tmp_path / "p.parquet"))
    assert not (tmp_path / "p.parquet").exists()


@pytest.fixture
def exported(tmp_path):
    make_dataset(tmp_path / "d", pairs=50)
    list(parquet.write(PairsDataset.open(tmp_path / "d"), tmp_path / "p.parquet"))
    return tmp_path / "p.parquet"


def import_all(path, folder):
    list(parquet.read(path, folder))


def change(path, table, how):
    """Writes the file again with `how` done to its table, which keeps its description unless that
    is changed.
    """
    changed = how(table)
    pq.write_table(
        changed.replace_schema_metadata(changed.schema.metadata or table.schema.metadata), path
    )


def described(table, **changes):
    about = {**json.loads(table.schema.metadata[b"described"]), **changes}
    return table.replace_schema_metadata({**table.schema.metadata, b"described": json.dumps(about)})


def column(table, name, values):
    return table.set_column(table.schema.get_field_index(name), name, values)


CHANGES = {
    "rows": (lambda t: t.slice(0, 20), "has 20 rows, but its description says 50 pairs"),
    "column": (
        lambda t: t.drop_columns(["data/message/second"]),
        "the columns data/message/second are missing",
    ),
    "bytes": (
        lambda t: column(t, "data/message/first", pa.array([b"x"] * 50)),
        "is damaged: data/message is not what was exported, its digest differs",
    ),
    "labels": (
        lambda t: column(t, "preference/test", pa.array([0] * 50, pa.int8())),
        "is damaged: preference/test is not what was exported, its digest differs",
    ),
    "type": (
        lambda t: column(t, "info/score/first", pa.array(["a"] * 50)),
        "is damaged: column info/score/first: ",
    ),
    "nulls": (
        lambda t: column(t, "info/score/first", pa.array([None, *[1] * 49])),
        "is damaged: column info/score/first: 1 values are missing",
    ),
    "entries": (
        lambda t: column(t, "data/blstats/first", pa.array([[1]] * 50)),
        r"data/blstats \[1, 27\] does not fit its columns",
    ),
    "annotation outside": (
        lambda t: t.append_column("preference/../x", pa.array([0] * 50)),
        r"preference/\.\./x cannot be an annotation's name",
    ),
    "no count": (lambda t: described(t, num_pairs="many"), "its description cannot be read"),
    "manifest outside": (
        lambda t: described(t, manifests={"x": {"../m.json": {}}}),
        r"x/\.\./m\.json cannot be a manifest's name",
    ),
    "size": (
        lambda t: described(t, arrays={"data/x": {"shape": [-1], "dtype": "int8"}}),
        r"data/x int8 \[-1\] is not an array of a dataset",
    ),
    "objects": (
        lambda t: described(t, arrays={"data/x": {"shape": [1], "dtype": "O"}}),
        r"data/x object \[1\] is not an array of a dataset",
    ),
    "array outside": (
        lambda t: described(t, arrays={"../message": {"shape": [1], "dtype": "uint8"}}),
        r"\.\./message uint8 \[1\] is not an array of a dataset",
    ),
    "others": (
        lambda t: pa.table({"a": [1]}).replace_schema_metadata({"a": "b"}),
        "is not a pairs dataset in parquet",
    ),
}


@pytest.mark.parametrize(("how", "words"), CHANGES.values(), ids=CHANGES)
def test_a_table_that_was_not_exported_so_is_refused(tmp_path, exported, how, words):
    change(exported, pq.read_table(exported), how)
    with pytest.raises(UserError, match=rf"p\.parquet:? {words}"):
        import_all(exported, tmp_path / "back")
    with pytest.raises(UserError):
        PairsDataset.open(tmp_path / "back")


def test_a_damaged_or_foreign_file_is_refused(tmp_path, exported):
    content = bytearray(exported.read_bytes())
    content[100:2000] = bytes(1900)
    for number, (data, words) in enumerate(
        ((content, "is damaged: "), (b"nothing", "is not a parquet file"))
    ):
        exported.write_bytes(data)
        with pytest.raises(UserError, match=rf"p\.parquet {words}"):
            import_all(exported, tmp_path / f"back{number}")


def test_a_dataset_that_was_changed_is_not_exported(tmp_path, exported):
    """Nor is there a file of a writer that was stopped."""
    writing = parquet.write(
        PairsDataset.open(tmp_path / "d"), tmp_path / "s.parquet", ["data/message"]
    )
    next(writing)
    writing.close()
    assert not (tmp_path / "s.parquet").exists()
    np.load(tmp_path / "d" / "data" / "message.npy", mmap_mode="r+")[-1, -1, -1, -1] ^= 1
    with pytest.raises(UserError, match="was changed after the dataset was written"):
        next(parquet.write(PairsDataset.open(tmp_path / "d"), tmp_path / "q.parquet"))


@pytest.mark.slow
def test_an_import_that_was_killed_is_made_again_and_once(tmp_path, exported, monkeypatch, capsys):
    config = load_config("import_dataset", "", {"file": str(exported)})
    workdir = tmp_path / "back"
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 16)

    def killed(*_):
        raise SystemError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("motif_jax.motif.pairs.writer.atomic_write_json", killed)
        with pytest.raises(SystemError):
            imports.run(config, workdir)
    assert (workdir / "data").is_dir()
    with pytest.raises(
        UserError, match="import_dataset was interrupted, run the same command again"
    ):
        PairsDataset.open(workdir)
    for _ in range(2):
        imports.check(config, workdir)
        imports.run(config, workdir)
    assert "holds this import" in capsys.readouterr().out
    assert (
        PairsDataset.open(workdir).content_hash()
        == PairsDataset.open(tmp_path / "d").content_hash()
    )
    assert {"config.json", "versions.json", "import.json"} <= {
        path.name for path in workdir.iterdir()
    }
    table = pq.read_table(exported)
    change(exported, table, lambda table: table.select(sorted(table.schema.names)))
    with pytest.raises(UserError, match=r"holds another import \(file: "):
        imports.check(config, workdir)
