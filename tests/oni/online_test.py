"""Rewards that are learned while the agent trains: when a label pays, what is counted, and how a
run resumes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.oni.label_log import FILE, read_log
from motif_jax.rl import train_agent
from motif_jax.rl.config import agent_config
from motif_jax.rl.intrinsic import BatchMessages, RunSetup
from tests.rl import oni_runs
from tests.rl.oni_runs import oni_config


def test_the_published_queue_has_no_uncertain_order(tmp_path: Path) -> None:
    changes = {"queue__order": "uncertain", "compat__oni_requeue": True}
    message = r"queue.order='uncertain': must be frequent or newest with compat\.oni_requeue"
    with pytest.raises(UserError, match=message):
        train_agent.check(oni_config("classification", **changes), tmp_path)


def test_a_learned_reward_needs_an_environment_with_texts() -> None:
    config = oni_config("retrieval", environment__name="tests.toys:Corridor")
    kind = rewards.kind_of(config.reward)

    with pytest.raises(
        UserError, match=r"name='tests.toys:Corridor': must be an environment that shows a text"
    ):
        kind.check_run(config, registry.spec("tests.toys:Corridor"))


# By `oni_runs.verdict` the label of a text is yes where its last digit is even, with the
# probability 0.75; of a question of batch n it arrives before batch n + 2.
YES = "cue 2"
NO = "cue 3"


@pytest.fixture(autouse=True)
def answers_after_two_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    oni_runs.answer(monkeypatch, delay=2)


def make_reward(folder: Path, value: str = "label") -> Any:
    config = agent_config(oni_config("retrieval", reward__value=value))
    return rewards.load_intrinsic(
        config.reward, registry.spec("Recall-v0"), run=RunSetup(config, folder)
    )


def as_rows(texts: list[str]) -> np.ndarray:
    padded = [text.encode().ljust(256, b"\0") for text in texts]
    return np.array([np.frombuffer(text, np.uint8) for text in padded])


def batch(
    number: int, texts: list[str], counts: list[int] | None = None, **fields: Any
) -> BatchMessages:
    steps = np.array([1] * len(texts) if counts is None else counts)
    return BatchMessages(as_rows(texts), steps, steps=48, update_index=number, **fields)


def pay_batches(reward: Any, numbers: range, texts: list[str]) -> list[list[float]]:
    return [reward.pay(batch(number, texts)).values.tolist() for number in numbers]


@pytest.mark.parametrize(("value", "paid"), [("label", 1.0), ("probability", 0.75)])
def test_a_label_pays_from_the_batch_before_which_it_arrived(
    tmp_path: Path, value: str, paid: float
) -> None:
    reward = make_reward(tmp_path, value)
    reward.start()

    payments = pay_batches(reward, range(4), [YES, NO])

    reward.close()
    assert payments == [[0.0, 0.0], [0.0, 0.0], [paid, 0.0], [paid, 0.0]]


def test_the_version_changes_with_labels_alone(tmp_path: Path) -> None:
    reward = make_reward(tmp_path)
    reward.start()

    versions = [reward.pay(batch(number, [YES])).version for number in range(4)]

    reward.close()
    assert versions == [0, 0, 1, 1]


def test_a_lookup_of_an_unknown_text_is_0(tmp_path: Path) -> None:
    reward = make_reward(tmp_path)
    reward.start()
    pay_batches(reward, range(3), [YES])

    values = reward.lookup(as_rows([YES, "cue 4"])).values

    reward.close()
    assert values.tolist() == [1.0, 0.0]


def test_the_log_says_which_batch_a_label_first_paid(tmp_path: Path) -> None:
    reward = make_reward(tmp_path)
    reward.start()
    pay_batches(reward, range(3), [YES, NO])
    reward.close()

    labels = list(read_log(tmp_path / FILE))

    assert [(label.items, label.label) for label in labels] == [((YES,), 1), ((NO,), 0)]
    assert [label.update_index for label in labels] == [2, 2]
    assert [label.step for label in labels] == [96, 96]
    assert [label.first_step for label in labels] == [0, 0]


def test_metrics_count_labels_and_paid_steps_since_the_last_row(tmp_path: Path) -> None:
    reward = make_reward(tmp_path)
    reward.start()
    pay_batches(reward, range(2), [YES, NO])
    before = reward.metrics()

    reward.pay(batch(2, [YES, NO, "cue 5"], [3, 1, 4]))
    after = reward.metrics()

    reward.close()
    assert before["reward/labels"] == 0
    assert after["reward/labels"] == 2
    assert after["reward/labels_new"] == 2
    assert after["reward/label_share_yes"] == 0.5
    assert after["reward/steps_labelled_share"] == 4 / 8
    assert after["reward/steps_paid_share"] == 3 / 8
    assert after["reward/version_age"] == 0
    assert after["reward/batches_to_first_use"] == 2
    assert after["reward/texts_met"] == 3
    assert after["reward/texts_labelled_share"] == pytest.approx(2 / 3)


def test_earned_rewards_are_discounted_by_the_count_in_the_episode(tmp_path: Path) -> None:
    reward = make_reward(tmp_path)
    reward.start()
    pay_batches(reward, range(2), [YES])

    reward.pay(batch(2, [YES, NO], [3, 1], discounted=np.array([1.5, 1.0])))

    reward.close()
    columns = reward.stats.columns()
    assert dict(zip(columns["texts"], columns["earned"].tolist(), strict=True)) == {
        YES: 1.5,
        NO: 0.0,
    }
    assert dict(zip(columns["texts"], columns["count"].tolist(), strict=True)) == {YES: 5, NO: 1}


def test_texts_without_a_paid_row_are_neither_counted_nor_asked(tmp_path: Path) -> None:
    reward = make_reward(tmp_path)
    reward.start()

    reward.pay(batch(0, [YES, NO], [0, 1]))

    reward.close()
    assert reward.stats.texts == [NO]
    assert reward.source.asked == [(NO,)]


def test_a_resumed_run_pays_with_the_labels_of_its_checkpoint(tmp_path: Path) -> None:
    reward = make_reward(tmp_path)
    reward.start()
    pay_batches(reward, range(3), [YES, NO])
    state = reward.state()
    reward.close()

    resumed = make_reward(tmp_path)
    resumed.restore(state)
    resumed.start()
    payments = pay_batches(resumed, range(3, 4), [YES, NO])

    resumed.close()
    assert payments == [[1.0, 0.0]]
    assert resumed.version == 1
    assert resumed.step == 4 * 48
    assert resumed.stats.count[:2].tolist() == [4, 4]


def test_labels_after_the_checkpoint_count_from_the_first_batch(tmp_path: Path) -> None:
    reward = make_reward(tmp_path)
    reward.start()
    pay_batches(reward, range(2), [YES])
    state = reward.state()
    pay_batches(reward, range(2, 3), [YES])
    reward.close()

    resumed = make_reward(tmp_path)
    resumed.restore(state)
    resumed.start()
    payments = pay_batches(resumed, range(2, 4), [YES])

    resumed.close()
    assert payments == [[1.0], [1.0]]
    assert [label.items for label in read_log(tmp_path / FILE)] == [(YES,)]


def test_a_run_without_a_checkpoint_keeps_its_first_trys_labels(tmp_path: Path) -> None:
    reward = make_reward(tmp_path)
    reward.start()
    pay_batches(reward, range(3), [YES])
    reward.close()

    again = make_reward(tmp_path)
    again.start()
    payments = pay_batches(again, range(1), [YES])

    again.close()
    assert payments == [[1.0]]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda data: data[: len(data) // 2],
            r"holds \d labels, the checkpoint was written with 2",
        ),
        (
            lambda data: data.replace(b"cue 2", b"cue 7"),
            "holds 1 labels, the checkpoint was written with 2",
        ),
    ],
    ids=["cut off", "changed"],
)
def test_a_damaged_log_ends_a_resume(tmp_path: Path, damage: Any, message: str) -> None:
    reward = make_reward(tmp_path)
    reward.start()
    pay_batches(reward, range(3), [YES, NO])
    state = reward.state()
    reward.close()
    log = tmp_path / FILE
    log.write_bytes(damage(log.read_bytes()))

    resumed = make_reward(tmp_path)
    with pytest.raises(UserError, match=message):
        resumed.restore(state)

    assert resumed.source.closed
