"""import_dialogues, export_dataset and import_dataset: what is read and written once, and what is refused."""

from __future__ import annotations

import json

import pytest

from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.stages import exports
from motif_jax.stages import imports as stage
from motif_jax.support import digests
from motif_jax.support.errors import UserError
from tests.reward_fixtures import load_config, make_dataset, run_config, run_stage

LINES = [
    {"sequence": [["Wordle:\n", 0], ["crane\n", 1], ["b b y\n", False], ["moist\n", True]], "reward": [0, -1, 0, 0.5], "done": True},
    {"sequence": [["hello", True], ["you", True]], "reward": [1, 2.0], "done": False, "id": 7},
    {"sequence": [["a", False], ["b", True], ["c", False]], "reward": [3], "done": False},
]  # fmt: skip


def config_of(path, **values):
    return load_config("import_dialogues", "", {"file": str(path), **values})


def test_dialogues_are_imported_once(tmp_path, capsys):
    (tmp_path / "games.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    config, workdir = (
        config_of(tmp_path / "games.jsonl"),
        run_config(config_of(tmp_path / "games.jsonl"), tmp_path / "run"),
    )
    run_config(config, workdir)
    assert capsys.readouterr().out == (
        f"{workdir}: 3 dialogues, 5 actions, mean return 1.833\n{workdir} holds this import of {config.file} already\n"
    )
    meta = json.loads((workdir / "dialogues.json").read_text())
    assert meta.pop("digest") == digests.of_file(workdir / "dialogues.parquet")
    assert meta == {
        "actions": 5, "dialogues": 3, "facts": {}, "mean_return": pytest.approx(11 / 6), "standard_error": pytest.approx(7 / 6),
        "origin": "motif_jax import_dialogues, games.jsonl",
    }  # fmt: skip
    config.file = str(workdir / "dialogues.json")
    told = (
        rf"^--workdir={workdir} holds another import \(file: \w+ before, \w+ now\): choose another --workdir$"
    )
    with pytest.raises(UserError, match=told):
        stage.check(config, workdir)


def test_pairs_go_through_a_file_unchanged(tmp_path, capsys):
    make_dataset(tmp_path / "pairs", pairs=9, glyphs=True)
    arrays = {
        "": "data/blstats, data/message, data/rewards, info/score",
        "all": "data/blstats, data/glyphs, data/message, data/rewards, info/score",
    }
    for given, names in {**arrays, "data/message": "data/message"}.items():
        asked = {"dataset_dir": str(tmp_path / "pairs"), "arrays": given}
        file = run_stage("export_dataset", tmp_path / f"out{given[:3]}", "", **asked) / exports.PAIRS
        assert capsys.readouterr().out == f"{file}: {file.stat().st_size / 1e6:.1f} MB, {names}\n"
        if given != "data/message":
            back = run_stage("import_dataset", tmp_path / f"back{given}", "", file=str(file))
            content = PairsDataset.open(tmp_path / "pairs").content_hash()
            assert capsys.readouterr().out == f"{back}: 9 pairs, content {content}\n"
            assert (back / "data/glyphs.npy").exists() == (given == "all")
    config = load_config(
        "export_dataset", "", {"dataset_dir": str(tmp_path / "pairs"), "arrays": "data/message,data/x"}
    )
    with pytest.raises(
        UserError, match=f"^config.arrays='data/message,data/x': must be 'all', or some of {arrays['all']}$"
    ):
        exports.check(config, tmp_path / "new")


def test_files_that_are_none(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    config = config_of(tmp_path / "empty.jsonl")
    stage.check(config, tmp_path / "run")
    with pytest.raises(UserError, match="holds no dialogues"):
        stage.run(config, tmp_path / "run")
    (tmp_path / "a.pkl").write_bytes(b"cos\nsystem\n.")
    with pytest.raises(UserError, match="not a pickle of published Wordle games"):
        stage.run(config_of(tmp_path / "a.pkl"), tmp_path / "third")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "dialogues.parquet").write_text("")
    with pytest.raises(UserError, match="not imported here"):
        stage.check(config_of(tmp_path / "a.pkl"), tmp_path / "full")
