"""Several datasets of pairs as one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST
from motif_jax.motif import join_datasets
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.targets import read_probabilities
from motif_jax.motif.pairs.writer import write_pairs
from tests.reward_fixtures import load_config, make_dataset, run_stage, write_labels


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two datasets of 30 and 20 pairs with the labels `test`, the first also with glyphs and
    `lexicon`.
    """
    first = tmp_path / "first"
    second = tmp_path / "second"
    make_dataset(first, pairs=30, seed=0, glyphs=True)
    make_dataset(second, pairs=20, seed=1)
    write_labels(first, "lexicon", np.zeros(30, np.int8))
    return [first, second]


def config_of(folders: list[Path], names: str = "") -> ConfigDict:
    values = {"dataset_dirs": ",".join(map(str, folders)), "names": names}
    return load_config("join_datasets", "", values)


def join(folders: list[Path], workdir: Path, names: str = "") -> PairsDataset:
    config = config_of(folders, names)
    join_datasets.check(config, workdir)
    join_datasets.run(config, workdir)
    return PairsDataset.open(workdir)


def test_pairs_follow_each_other_with_their_labels(folders: list[Path], tmp_path: Path) -> None:
    joined = join(folders, tmp_path / "joined")

    first, second = map(PairsDataset.open, folders)
    for name in ("message", "blstats", "rewards"):
        np.testing.assert_array_equal(
            joined.data[name], np.concatenate([first.data[name], second.data[name]])
        )
    scores = np.concatenate([first.info["score"], second.info["score"]])
    np.testing.assert_array_equal(joined.info["score"], scores)
    labels = np.concatenate([first.preference("test"), second.preference("test")])
    np.testing.assert_array_equal(joined.preference("test"), labels)
    np.testing.assert_array_equal(
        joined.info["dataset"], np.repeat([[0, 0], [1, 1]], [30, 20], axis=0)
    )


def test_what_one_dataset_lacks_is_left_out_and_named(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joined = join(folders, tmp_path / "joined")

    assert joined.preference_names() == ("test",)
    assert "glyphs" not in joined.data
    assert f"left out of {folders[0]}: data/glyphs, lexicon" in capsys.readouterr().out


def test_probabilities_are_joined_where_all_datasets_have_them(
    folders: list[Path], tmp_path: Path
) -> None:
    for folder, count in zip(folders, (30, 20), strict=True):
        probabilities = np.tile([0.7, 0.2, 0.1], (count, 1))
        write_labels(folder, "soft", np.zeros(count, np.int8), probabilities)

    joined = join(folders, tmp_path / "joined", names="soft")

    np.testing.assert_allclose(
        read_probabilities(joined, "soft"), np.tile([0.7, 0.2, 0.1], (50, 1)), rtol=1e-6
    )


def write_manifest(folder: Path, name: str, goal: str) -> None:
    path = folder / "annotations" / name / "shard-00000-of-00001.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    manifest = {
        "annotator": {"model": "judge", "goal": goal},
        "questions": {"orders": "both", "count": 3},
    }
    path.write_text(json.dumps(manifest))


def test_labels_by_different_goals_are_not_one_annotation(
    folders: list[Path], tmp_path: Path
) -> None:
    write_manifest(folders[0], "test", "combat")
    write_manifest(folders[1], "test", "gold")

    with pytest.raises(
        UserError,
        match=r"^config\.names: the labels test of .* differ in annotator\.goal: name only",
    ):
        join(folders, tmp_path / "joined")

    write_manifest(folders[1], "test", "combat")
    joined = join(folders, tmp_path / "joined")
    assert joined.meta["sources"][1]["labels"]["test"]["annotator"]["goal"] == "combat"


def test_labels_by_the_score_of_each_dataset_are_joined(
    folders: list[Path], tmp_path: Path
) -> None:
    for number, folder in enumerate(folders):
        changes = {"dataset_dir": str(folder), "store_dir": str(tmp_path / "store")}
        run_stage("annotate", tmp_path / f"{number}", "", annotator="score", **changes)

    joined = join(folders, tmp_path / "joined", names="score")

    score = joined.info["score"]
    np.testing.assert_array_equal(joined.preference("score") == FIRST, score[:, 0] > score[:, 1])


def test_probabilities_and_unfit_names_that_are_left_out_are_named(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, count in zip(folders, (30, 20), strict=True):
        write_labels(folder, "judge.v2", np.zeros(count, np.int8))
    write_labels(folders[1], "test", np.zeros(20, np.int8), np.tile([1.0, 0.0, 0.0], (20, 1)))

    joined = join(folders, tmp_path / "joined")

    assert joined.preference_names() == ("test",)
    assert (
        f"left out of {folders[1]}: judge.v2, the probabilities of test" in capsys.readouterr().out
    )


def test_an_older_engines_statuses_get_their_missing_number(tmp_path: Path) -> None:
    folders = []
    for name, length in (("old", 26), ("new", 27)):
        data = {
            "message": np.ones((4, 2, 1, 256), np.uint8),
            "blstats": np.full((4, 2, 1, length), length, np.int32),
        }
        write_pairs(tmp_path / name, data)
        folders.append(tmp_path / name)

    joined = join(folders, tmp_path / "joined")

    status = joined.data["blstats"]
    assert status.shape == (8, 2, 1, 27)
    assert (status[:4, ..., 26] == 0).all()
    assert (status[:4, ..., :26] == 26).all()
    assert (status[4:] == 27).all()


def test_the_joined_arrays_digests_are_those_of_their_files(
    folders: list[Path], tmp_path: Path
) -> None:
    joined = join(folders, tmp_path / "joined")

    assert joined.content_hash() == joined.meta["content_hash"]
    assert [source["num_pairs"] for source in joined.meta["sources"]] == [30, 20]


def test_a_joined_dataset_is_complete_for_the_same_command(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    join(folders, tmp_path / "joined")

    join(folders, tmp_path / "joined")

    assert "is complete: 50 pairs" in capsys.readouterr().out


def test_joined_datasets_are_joined_again(folders: list[Path], tmp_path: Path) -> None:
    joined = join(folders, tmp_path / "joined")
    more = join([tmp_path / "joined", folders[1]], tmp_path / "more")

    assert more.num_pairs == joined.num_pairs + 20
    np.testing.assert_array_equal(np.unique(more.info["dataset"]), [0, 1])


def test_sub_sequences_of_different_lengths_are_refused(
    folders: list[Path], tmp_path: Path
) -> None:
    make_dataset(tmp_path / "long", pairs=10, length=2)

    with pytest.raises(UserError, match=r"sub-sequences of 1 steps, .*long of 2"):
        join_datasets.check(config_of([folders[0], tmp_path / "long"]), tmp_path / "joined")


@pytest.mark.parametrize(
    ("names", "count", "message"),
    [
        ("", 1, r"^config\.dataset_dirs=.*: must be at least two folders"),
        ("lexicon", 2, r"^config\.names='lexicon': must be label files of all datasets: test"),
    ],
)
def test_a_join_that_cannot_work_is_refused(
    folders: list[Path], tmp_path: Path, names: str, count: int, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        join_datasets.check(config_of(folders[:count], names), tmp_path / "joined")


def test_a_complete_join_refuses_other_sources_and_labels(
    folders: list[Path], tmp_path: Path
) -> None:
    joined = tmp_path / "joined"
    join(folders, joined)
    make_dataset(tmp_path / "third", pairs=20, seed=2)

    with pytest.raises(UserError, match="dataset_dirs"):
        join([folders[0], tmp_path / "third"], joined)

    write_labels(folders[1], "test", np.ones(20, np.int8))
    with pytest.raises(
        UserError, match="before the labels test were what they are now: join into another"
    ):
        join(folders, joined)

    shutil.rmtree(folders[1])
    make_dataset(folders[1], pairs=20, seed=3)
    with pytest.raises(UserError, match=f"was made when {folders[1]} had other pairs"):
        join(folders, joined)


def test_a_complete_join_refuses_other_probabilities(folders: list[Path], tmp_path: Path) -> None:
    for folder, count in zip(folders, (30, 20), strict=True):
        probabilities = np.tile([0.7, 0.2, 0.1], (count, 1))
        write_labels(folder, "soft", np.zeros(count, np.int8), probabilities)
    join(folders, tmp_path / "joined")

    write_labels(folders[1], "soft", np.zeros(20, np.int8), np.tile([0.6, 0.3, 0.1], (20, 1)))

    with pytest.raises(UserError, match="before the labels soft were what they are now"):
        join(folders, tmp_path / "joined")


def test_a_dataset_from_elsewhere_is_no_joined_one(folders: list[Path], tmp_path: Path) -> None:
    write_pairs(tmp_path / "made", {"message": np.ones((4, 2, 1, 256), np.uint8)})

    with pytest.raises(UserError, match="holds a dataset that was not joined here"):
        join_datasets.check(config_of(folders), tmp_path / "made")


def test_players_are_left_out_where_their_numbers_mean_others(
    folders: list[Path], tmp_path: Path
) -> None:
    for folder, players in zip(folders, (["walker"], ["eater"]), strict=True):
        pairs = PairsDataset.open(folder).num_pairs
        np.save(folder / "info/player.npy", np.zeros((pairs, 2), np.int16))
        meta = json.loads((folder / "dataset.json").read_text())
        (folder / "dataset.json").write_text(json.dumps({**meta, "players": players}))

    assert "player" not in join(folders, tmp_path / "joined").info
