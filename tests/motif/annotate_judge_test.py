"""What `annotate` says about the judge: probes, position, agreement, captions in its order."""

from __future__ import annotations

import json

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.motif import annotate
from motif_jax.motif.annotation import judge_probes
from tests import made_up_judge
from tests.end_to_end.annotate_datasets import stored, write_dataset
from tests.reward_fixtures import load_config, run_stage

pytestmark = pytest.mark.slow

TEXTS = ["You kill the newt!", "It's a wall.", "You see here a dagger.", "$ - 4 gold pieces."]
PAIRS = [(first, second) for first in TEXTS for second in TEXTS if first != second]


@pytest.fixture
def base_values(tmp_path):
    dataset = write_dataset(tmp_path / "dataset", PAIRS)
    return {"dataset_dir": str(dataset), "store_dir": str(tmp_path / "store"), "name": "n"}


@pytest.fixture
def model(tmp_path):
    folder = made_up_judge.write(tmp_path / "made-up")
    return {"annotator": "model", "model.model": str(folder), "answer.minimum_mass": 0.0}


def judged(run) -> dict:
    return json.loads((run / "summary.json").read_text())["merged"]


def test_a_model_labels_a_dataset_in_both_orders(base_values, model, tmp_path) -> None:
    merged = judged(run_stage("annotate", tmp_path / "run", "", **base_values, **model))
    assert merged["questions"] == len(PAIRS)  # each pair's reverse is in the dataset
    assert merged["judge"]["answers"] == len(PAIRS)
    assert 0 < merged["judge"]["mass"] < 1
    assert merged["position_bias"]["pairs"] == len(PAIRS)
    probabilities = np.load(tmp_path / "dataset/annotations/n/probabilities.npy")
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)


def test_a_second_run_reads_answers_and_mass_from_the_store(base_values, model, tmp_path) -> None:
    first = judged(run_stage("annotate", tmp_path / "run", "", **base_values, **model))
    again = run_stage("annotate", tmp_path / "again", "", **{**base_values, "name": "m"}, **model)
    assert json.loads((again / "summary.json").read_text())["asked"] == 0
    assert judged(again)["judge"] == first["judge"]


def test_captions_are_listed_from_the_most_preferred_on(base_values, tmp_path, capsys) -> None:
    merged = judged(run_stage("annotate", tmp_path / "run", "", **base_values))
    order = [row["caption"] for row in merged["judge"]["captions"]]
    assert set(order) == set(TEXTS)
    assert order[0] in (TEXTS[0], TEXTS[3])
    assert f"comparisons): '{order[0]}'" in capsys.readouterr().out


def test_agreement_with_other_labels_is_reported(base_values, tmp_path, capsys) -> None:
    run_stage("annotate", tmp_path / "run", "", **base_values)
    merged = judged(
        run_stage(
            "annotate", tmp_path / "again", "", **{**base_values, "name": "m"}, agreement_with="n"
        )
    )
    assert merged["agreement"] == {
        "with": "n",
        "pairs": len(PAIRS),
        "equal": 1.0,
        "kappa": 1.0,
        "equal_decided": 1.0,
    }
    assert "100.0% equal to n, kappa 1.00" in capsys.readouterr().out


def test_equal_captions_are_no_agreement(base_values, tmp_path) -> None:
    dataset = write_dataset(tmp_path / "repeats", [*PAIRS, *[(text, text) for text in TEXTS]])
    values = {**base_values, "dataset_dir": str(dataset)}
    run_stage("annotate", tmp_path / "run", "", **values)

    again = run_stage(
        "annotate", tmp_path / "again", "", **{**values, "name": "m"}, agreement_with="n"
    )

    assert judged(again)["agreement"]["pairs"] == len(PAIRS)


def test_probes_are_asked_instead_of_the_dataset(base_values, tmp_path, capsys) -> None:
    run = run_stage("annotate", tmp_path / "run", "", **base_values, probe=True)
    figures = json.loads((run / "probe.json").read_text())
    assert figures["right_both_orders"] > 0.7  # the lexicon knows NetHack
    assert figures["first_share"] == 0.5
    assert judge_probes.verdict(figures) in capsys.readouterr().out
    assert not (tmp_path / "dataset/preference").exists()


def test_probes_need_no_dataset(tmp_path) -> None:
    values = {"probe": True, "probe_pairs": "minihack", "store_dir": str(tmp_path / "store")}
    run = run_stage("annotate", tmp_path / "run", "", **values)
    assert json.loads((run / "probe.json").read_text())["answers"] == 60


def test_answers_about_probes_are_stored(tmp_path) -> None:
    values = {"probe": True, "store_dir": str(tmp_path / "store")}
    run_stage("annotate", tmp_path / "run", "", **values)

    pairs = judge_probes.read("nethack")
    asked = {tuple(answer["items"]) for answer in stored(tmp_path / "store")}
    assert asked == {tuple(pair) for pair in pairs} | {tuple(pair)[::-1] for pair in pairs}


def test_a_corrected_bias_changes_the_labels(base_values, model, tmp_path) -> None:
    once = {**base_values, **model, "orders": "once"}
    plain = judged(run_stage("annotate", tmp_path / "run", "", **once))
    corrected = judged(
        run_stage(
            "annotate", tmp_path / "c", "", **{**once, "name": "c"}, correct_position_bias=True
        )
    )
    assert plain["judge"] == {**corrected["judge"], "captions": plain["judge"]["captions"]}
    assert abs(corrected["first"] - corrected["second"]) <= abs(plain["first"] - plain["second"])


@pytest.mark.parametrize(
    ("labels", "problem"), [([0, 1], "shape"), ([7] * len(PAIRS), "label 7 at pair 0")]
)
def test_incomparable_labels_are_refused_before_the_first_question(
    base_values, tmp_path, labels, problem
) -> None:
    folder = tmp_path / "dataset/preference"
    folder.mkdir()
    np.save(folder / "damaged.npy", np.array(labels, np.int8))
    values = {**base_values, "agreement_with": "damaged"}

    with pytest.raises(UserError, match=f"damaged.npy: {problem}"):
        annotate.check(load_config("annotate", "", values), tmp_path / "run")
