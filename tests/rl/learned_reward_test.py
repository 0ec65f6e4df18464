"""Rewards with a network that learn while the agent plays: payments, training in the background,
questions, resuming.
"""

from __future__ import annotations

import threading
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core import text_bytes
from motif_jax.core.errors import UserError
from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.motif.annotation.captions import decode_message
from motif_jax.motif.reward.normalisation import RunningMoments
from motif_jax.oni import classification
from motif_jax.oni.classification import ClassificationReward, ClassifierModel
from motif_jax.oni.label_log import FILE, read_log
from motif_jax.oni.label_queue import Label
from motif_jax.oni.network_reward import METRICS, WIDTH, LabelSet
from motif_jax.oni.ranking import RankingModel, RankingReward
from motif_jax.rewards import BatchMessages, RunSetup, load_intrinsic
from motif_jax.rl.config import agent_config
from tests.rl import oni_runs
from tests.rl.oni_runs import oni_config

SPEC = EnvironmentSpec({"message": ArraySpec((256,), "uint8")}, 2, text_field="message")
SMALL = {"reward__encoder": "lt_cnn_small", "reward__training__batch_size": 8}
TEXTS = [f"You see here {thing}." for thing in ("a key", "2 newts", "a wand", "40 gold", "an egg")]
ROWS = text_bytes.padded_rows(TEXTS, WIDTH)


def make_reward(folder: Path, kind: str, **changes: Any) -> Any:
    config = agent_config(oni_config(kind, **{**SMALL, **changes}))
    return load_intrinsic(config.reward, SPEC, run=RunSetup(config, folder))


def batch(number: int, counts: Any = (30, 10, 10, 20, 10)) -> BatchMessages:
    return BatchMessages(ROWS, np.array(counts), int(np.sum(counts)), number)


def eggs(number: int, count: int) -> BatchMessages:
    texts = [f"You see here {number * 7 + more} eggs." for more in range(count)]
    rows = text_bytes.padded_rows(texts, WIDTH)
    return BatchMessages(rows, np.full(count, 20), 20 * count, number)


@pytest.fixture
def annotator(monkeypatch: pytest.MonkeyPatch) -> oni_runs.Annotator:
    return oni_runs.answer(monkeypatch, delay=1)


@pytest.fixture
def unlearning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models without parameters, whose steps change nothing: no program is compiled."""
    metrics = dict.fromkeys(METRICS, 0.0)
    for model in (ClassifierModel, RankingModel):
        monkeypatch.setattr(
            model, "init", lambda self, seed: EnsembleState({"w": jnp.zeros(1)}, ())
        )
        monkeypatch.setattr(model, "step", lambda self, state, batch, number: (state, metrics))
        monkeypatch.setattr(model, "count_correct", lambda self, params, examples, indices: (1, 2))
    zeros = lambda self, params, texts: np.zeros((self.members, len(texts)), np.float32)  # noqa: E731
    monkeypatch.setattr(ClassifierModel, "probabilities", zeros)
    monkeypatch.setattr(RankingModel, "rewards", zeros)


@pytest.mark.slow
def test_the_classifier_pays_by_threshold(tmp_path: Path, annotator: oni_runs.Annotator) -> None:
    reward: ClassificationReward = make_reward(
        tmp_path, "classification", reward__training__learning_rate=1e-2, reward__training__steps_per_update=40,
        reward__training__steps_per_arrival=40,
    )  # fmt: skip
    for number in range(3):
        values, version = reward.pay(batch(number))
    expected = [oni_runs.verdict((text,)) for text in TEXTS]
    assert version > 0
    np.testing.assert_array_equal(values, expected)
    alone = [reward.compute(reward.table.params, ROWS[[row]])[0] for row in range(len(ROWS))]
    np.testing.assert_array_equal(alone, reward.compute(reward.table.params, ROWS))
    np.testing.assert_array_equal(reward.lookup(ROWS[::-1]).values, expected[::-1])


@pytest.mark.slow
def test_no_retracing(
    tmp_path: Path, annotator: oni_runs.Annotator, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced: list[str] = []
    make = classification.make_train_step

    def counted(*arguments: Any) -> Any:
        step = make(*arguments)
        return lambda *inputs: (traced.append("a gradient step"), step(*inputs))[1]

    monkeypatch.setattr(classification, "make_train_step", counted)
    reward: ClassificationReward = make_reward(tmp_path, "classification")
    for number in range(9):
        reward.pay(eggs(number, number + 1))
    assert len(reward.labels) > SMALL["reward__training__batch_size"], "less than a batch, and more"
    assert reward.taken > 5
    assert traced == ["a gradient step"]


@pytest.mark.usefixtures("unlearning")
def test_ranking_by_hand(
    tmp_path: Path, annotator: oni_runs.Annotator, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = np.array([0.5, -1.0, 2.0, 0.0, 1.0], np.float32)
    table = {row.tobytes(): value for row, value in zip(ROWS, raw, strict=True)}
    compute = lambda self, params, texts: np.array([table[text.tobytes()] for text in texts])  # noqa: E731
    monkeypatch.setattr(RankingReward, "compute", compute)
    on = {"compat__oni_untrained_reward": True}
    plain = make_reward(tmp_path / "a", "ranking", **on)
    decayed = make_reward(tmp_path / "b", "ranking", **on, reward__decay=0.5)
    published = make_reward(tmp_path / "c", "ranking", **on, compat__oni_ranking_raw_reward=True)
    unnormalised = make_reward(tmp_path / "d", "ranking", **on, reward__normalise=False)
    moments = RunningMoments()
    slow = RunningMoments()
    for number, counts in enumerate([(3, 1, 1, 2, 1), (0, 0, 4, 1, 1)]):
        met = batch(number, counts)
        rows = np.repeat(raw, counts)
        moments.update(rows)
        slow.update(rows, decay=0.5)
        normalised = (raw - moments.mean) / np.sqrt(moments.variance)
        paid = np.where(normalised > -0.5, normalised, 0)
        expected = np.where(np.array(counts) > 0, paid, 0)
        np.testing.assert_allclose(plain.pay(met).values, expected, rtol=1e-5, atol=1e-6)
        assert (expected == 0).any()
        shown = np.where(np.array(counts) > 0, raw, 0)
        np.testing.assert_array_equal(published.pay(met).values, shown)
        np.testing.assert_array_equal(unnormalised.pay(met).values, shown)
        decayed.pay(met)
        assert decayed.moments == slow
        assert published.moments == moments
    assert decayed.moments.mean != pytest.approx(moments.mean)


@pytest.mark.usefixtures("unlearning")
@pytest.mark.parametrize("members", [1, 2])
def test_the_most_uncertain_texts_and_pairs_have_the_highest_scores(
    tmp_path: Path, annotator: oni_runs.Annotator, monkeypatch: pytest.MonkeyPatch, members: int
) -> None:
    outputs_of_members = np.array(
        [[0.9, 0.45, 0.1, 0.6, 0.5], [0.9, 0.05, 0.3, 0.6, 0.9]], np.float32
    )
    outputs_of_members = outputs_of_members[:members]
    number_of_text = {row.tobytes(): number for number, row in enumerate(ROWS)}

    def outputs(self: Any, params: Any, texts: np.ndarray) -> np.ndarray:
        return outputs_of_members[:, [number_of_text[text.tobytes()] for text in texts]]

    monkeypatch.setattr(ClassifierModel, "probabilities", outputs)
    monkeypatch.setattr(RankingModel, "rewards", outputs)
    for kind in ("classification", "ranking"):
        changes = {"queue__order": "uncertain", "reward__training__members": members}
        make_reward(tmp_path / kind, kind, **changes).pay(batch(0))
    classified, ranked = annotator.made

    # One network is uncertain near 0.5, several where they disagree.
    distance = np.abs(outputs_of_members[0] - 0.5)
    uncertainty = -distance if members == 1 else outputs_of_members.std(axis=0)
    np.testing.assert_allclose(classified.scores[0], uncertainty, atol=1e-6)
    assert [item[0] for item in classified.asked] == TEXTS
    assert len(ranked.asked) == len(ranked.scores[0]) > 2
    for (first, second), score in zip(ranked.asked, ranked.scores[0], strict=True):
        difference = (
            outputs_of_members[:, TEXTS.index(first)] - outputs_of_members[:, TEXTS.index(second)]
        )
        uncertainty_of_pair = -abs(difference[0]) if members == 1 else difference.std()
        assert score == pytest.approx(uncertainty_of_pair, abs=1e-6)


@pytest.mark.usefixtures("unlearning")
def test_texts_are_drawn_for_pairs_as_often_as_shown(
    tmp_path: Path, annotator: oni_runs.Annotator
) -> None:
    reward: RankingReward = make_reward(tmp_path, "ranking")

    for number in range(12):
        reward.pay(batch(number, (30, 10, 5, 5, 10)))

    assert reward.observed.sum() == 12 * 60 / 10
    np.testing.assert_allclose(reward.observed[:5] / 12, [3, 1, 0.5, 0.5, 1], atol=0.5)


@pytest.mark.usefixtures("unlearning")
def test_the_source_knows_the_step_without_questions(
    tmp_path: Path, annotator: oni_runs.Annotator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget for each million steps would stand still while enough pairs wait for it."""
    reward: RankingReward = make_reward(tmp_path, "ranking")
    monkeypatch.setattr(RankingReward, "questions", lambda self, counted, rows: ([], [], None))
    steps: list[int] = []
    monkeypatch.setattr(
        reward.source, "enqueue", lambda items, counts, scores, step: steps.append(step)
    )

    for number in range(3):
        reward.pay(batch(number))

    assert steps == [0, 80, 160]


@pytest.mark.usefixtures("unlearning")
def test_rows_of_the_same_text_count_together(
    tmp_path: Path, annotator: oni_runs.Annotator
) -> None:
    reward: RankingReward = make_reward(tmp_path, "ranking")
    same = batch(0, (30, 10, 5, 5, 10))
    texts = same.texts.copy()
    texts[1] = texts[0]

    reward.pay(same._replace(texts=texts))

    assert reward.observed.sum() == 6


@pytest.mark.usefixtures("unlearning")
def test_a_pair_of_different_texts_is_asked_once(
    tmp_path: Path, annotator: oni_runs.Annotator
) -> None:
    reward: RankingReward = make_reward(tmp_path, "ranking")

    for number in range(12):
        reward.pay(batch(number, (30, 10, 5, 5, 10)))

    asked = annotator.made[0].asked
    assert len(asked) > 5
    assert all(first != second for first, second in asked)
    assert len(set(asked)) == len(asked) == reward.metrics()["reward/labels"]


@pytest.mark.usefixtures("unlearning")
def test_as_published_a_text_may_be_paired_with_itself(
    tmp_path: Path, annotator: oni_runs.Annotator
) -> None:
    reward: RankingReward = make_reward(tmp_path, "ranking", compat__oni_requeue=True)

    for number in range(12):
        reward.pay(batch(number, (30, 10, 5, 5, 10)))

    assert any(first == second for first, second in annotator.made[0].asked)


@pytest.mark.slow
def test_payments_wait_for_no_training_and_raise_its_failure(
    tmp_path: Path, annotator: oni_runs.Annotator, monkeypatch: pytest.MonkeyPatch
) -> None:
    reward: ClassificationReward = make_reward(tmp_path, "classification", serial=False)
    go = threading.Event()
    step = reward.model.step

    def held(*args: Any) -> Any:
        assert go.wait(60)
        return step(*args)

    monkeypatch.setattr(reward.model, "step", held)
    for number in range(6):
        reward.pay(batch(number))
    assert reward.taken == 0, "labels are there, and the training is held up"
    version = reward.version
    go.set()
    wait([reward.trainer.running])  # type: ignore[list-item]
    assert reward.taken == 0, "what was trained counts from the next batch on"
    reward.pay(batch(6))
    assert reward.taken == 1
    assert reward.version == version + 1
    diverged = dict.fromkeys(("loss", "accuracy", "gradient_norm"), np.nan)
    monkeypatch.setattr(reward.model, "step", lambda state, *_: (state, diverged))

    def go_on() -> None:
        for number in range(7, 12):  # one payment begins a step, a later one hears how it ended
            reward.pay(batch(number))
            if reward.trainer.running is not None:
                wait([reward.trainer.running])

    with pytest.raises(UserError, match="training of the reward diverged at its step"):
        go_on()
    reward.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "ranking"])
def test_a_restored_reward_pays_as_before(
    tmp_path: Path, annotator: oni_runs.Annotator, kind: str
) -> None:
    reward = make_reward(tmp_path, kind)
    for number in range(4):
        reward.pay(batch(number))
    values, version = reward.lookup(ROWS)
    state = reward.state()
    reward.close()

    restored = make_reward(tmp_path, kind)
    restored.restore(state)

    jax.tree.map(np.testing.assert_array_equal, restored.state()["own"], state["own"])
    restored.start()
    restored_values, restored_version = restored.lookup(ROWS)
    np.testing.assert_array_equal(restored_values, values)
    assert restored_version == version
    restored.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "ranking"])
def test_a_restored_reward_keeps_labels_that_came_later(
    tmp_path: Path, annotator: oni_runs.Annotator, kind: str
) -> None:
    reward = make_reward(tmp_path, kind)
    for number in range(4):
        reward.pay(batch(number))
    state = reward.state()
    for number in range(4, 8):
        reward.pay(eggs(number, 3))
    later = {label.items for label in read_log(tmp_path / FILE)}
    reward.close()

    restored = make_reward(tmp_path, kind)
    restored.restore(state)
    restored.start()
    for number in range(4, 8):
        restored.pay(batch(number))
    restored.close()

    assert {label.items for label in read_log(tmp_path / FILE)} >= later


def test_a_label_set_that_grows_leaves_earlier_views_alone() -> None:
    grown = LabelSet(2, (1.0, 0.0, 0.5), soft=True)
    for number in range(300):
        grown.add(Label((f"text {number}", "text 0"), number % 3, 0.25 if number == 1 else None))
    early = grown.first(3)
    for number in range(300, 900):
        grown.add(Label((f"text {number}", "text 0"), 0))
    np.testing.assert_array_equal(early.targets, [1.0, 0.25, 0.5])
    np.testing.assert_array_equal(early.labels, [0, 1, 2])
    later = grown.first(900)
    texts = [bytes(later.messages[number]).rstrip(b"\0") for number in later.rows[899]]
    assert texts == [b"text 899", b"text 0"]


def test_a_text_that_becomes_longer_in_utf8_is_cut() -> None:
    """A game of 256 bytes with a letter of an older terminal, as `captions.decode_message` reads
    it.
    """
    text = decode_message(np.frombuffer(b"x" * 255 + b"\xe9", np.uint8))

    assert bytes(text_bytes.padded_rows([text], WIDTH)[0]) == b"x" * 255 + b"\0"
