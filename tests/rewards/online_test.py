"""Rewards that are learned while the agent trains: labels, log, resume; in small runs of the real training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.envs import registry
from motif_jax.labels.label_queue import Label
from motif_jax.rewards import learning_metrics, message_stats, online
from motif_jax.rewards.intrinsic import BatchMessages, RunSetup
from motif_jax.rewards.label_log import FILE, read_log
from motif_jax.rl.learner import Learner
from motif_jax.sections.agents import agent_config
from motif_jax.stages import train_agent
from motif_jax.support.errors import UserError
from tests.recorded_outputs import compared
from tests.rl import oni_runs
from tests.rl.oni_runs import oni_config
from tests.rl.runs import train

TEXTS = {f"the cue is {cue}" for cue in range(4)} | {"which cue?", ""}


def labels(folder: Path) -> list[Label]:
    return list(read_log(folder / FILE))


pytestmark = pytest.mark.usefixtures("compiled_quickly")


class CrashError(Exception):
    """Ends a run in the middle."""


def crash_at(monkeypatch: pytest.MonkeyPatch, update: int) -> None:
    step = Learner.step

    def crash(self: Learner, batch: Any) -> None:
        if self.version == update:
            raise CrashError
        step(self, batch)

    monkeypatch.setattr(Learner, "step", crash)


@pytest.mark.slow
@pytest.mark.parametrize("update", [3, 8])
def test_a_crash_loses_no_label_and_asks_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: int
) -> None:
    annotator = oni_runs.answer(monkeypatch, delay=2)
    with monkeypatch.context() as crashing:
        crash_at(crashing, update)
        with pytest.raises(CrashError):
            train(tmp_path, oni_config("retrieval", save_every_steps=200))
    before = {label.items for label in labels(tmp_path)}
    # A line that the crash tore.
    with open(tmp_path / FILE, "ab") as file:
        file.write(b"12345678 torn")
    run = train(tmp_path, oni_config("retrieval", save_every_steps=200))
    log = labels(tmp_path)
    assert sorted(label.items for label in log) == sorted((text,) for text in TEXTS)
    assert before <= {label.items for label in log}
    again = set(annotator.made[1].asked)
    assert not again & set(annotator.made[0].answered)
    assert run.system is not None
    assert run.system.reward is not None
    numbers = [label.number for label in log]
    assert numbers == sorted(numbers), "what lay behind the checkpoint was cut off"


@pytest.mark.slow
def test_a_log_that_lost_lines_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oni_runs.answer(monkeypatch)
    train(tmp_path, oni_config("retrieval", train_for_env_steps=300))
    data = (tmp_path / FILE).read_bytes()
    for damaged, message in (
        (data[: len(data) // 2], "is shorter than the checkpoint says"),
        (data.replace(b"cue is 1", b"cue is 7"), "holds 5 labels, the checkpoint was written with 6"),
    ):
        (tmp_path / FILE).write_bytes(damaged)
        with pytest.raises(UserError, match=message):
            train(tmp_path, oni_config("retrieval"))


TWO_HOSTS = {"hosts__coordinator": "localhost:4321", "hosts__count": 2, "hosts__index": 0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (TWO_HOSTS, "hosts.count=2: must be 1: a reward of kind 'retrieval' is learned by one host"),
        ({"reward__kind": "none"}, "reward.intrinsic_coefficient=0.4: must be 0 with reward.kind='none'"),
        ({"annotator__goal": "fame"}, "annotator.goal=fame"),
        ({"queue__order": "uncertain"}, "queue.order='uncertain': must be frequent or newest: a reward of kind 'retr"),
    ],
)  # fmt: skip
def test_bad_values_are_told_before_any_work(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        train_agent.check(oni_config("retrieval", **changes), tmp_path)
    assert f"config.{message}" in str(caught.value)


def test_a_reward_that_learns_needs_text_and_a_training(tmp_path: Path) -> None:
    config = oni_config("retrieval")
    with pytest.raises(UserError, match="is learned while an agent trains"):
        rewards.load_intrinsic(config.reward, registry.spec("Recall-v0"))
    walk = "tests.toys:Corridor"
    config = oni_config("retrieval", environment__name=walk)
    with pytest.raises(UserError, match=f"environment.name='{walk}': must be an environment that shows a t"):
        rewards.kind_of(config.reward).check_run(config, registry.spec(walk))


@pytest.mark.parametrize("value", ["label", "probability"])
def test_batch_after_batch_is_paid_also_when_it_is_resumed(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: bool
) -> None:
    """Resumed from a checkpoint of step 8 when the log has labels of later steps."""
    oni_runs.answer(monkeypatch)
    seconds, draw, lines = iter(range(10**6)), np.random.default_rng(2), list[str]()
    clock = SimpleNamespace(time=lambda: 2 * next(seconds), perf_counter=lambda: 3 * next(seconds))
    for module in (online, learning_metrics, message_stats):
        monkeypatch.setattr(module, "time", clock)
    config = agent_config(oni_config("retrieval", reward__value=value))

    def made() -> Any:
        spec, run = registry.spec("Recall-v0"), RunSetup(config, tmp_path)
        return rewards.load_intrinsic(config.reward, spec, run=run)

    def rows(*numbers: int) -> np.ndarray:
        texts = (f"cue {number}".encode() if number else b"" for number in numbers)
        return np.array([np.frombuffer(text.ljust(256, b"\0"), np.uint8) for text in texts])

    (tmp_path / FILE).write_bytes(b"")
    reward, state = made(), None
    reward.start()
    for step in range(16):
        if step == 11:
            reward.close()
            reward = made()
            reward.restore(state)
            reward.start()
        numbers = draw.choice(6 + step // 2, 4, replace=False)
        discounted = None if step % 3 else draw.random(4)
        batch = BatchMessages(rows(*numbers), draw.integers(0, 3, 4), 48, step, discounted)
        lines += [f"{numbers} {reward.pay(batch)} {reward.lookup(rows(3, 99, 0))} {reward.asking}"]
        lines += [str(reward.metrics()) * (step % 2)]
        if step == 8:
            state = reward.state()
            lines += [state["book"].tobytes().decode(), str(sorted(state))]
    columns = reward.stats.columns()
    lines += [f"{name} {np.asarray(column).tolist()}" for name, column in columns.items()]
    reward.close()
    lines += [str(label) for label in labels(tmp_path)]
    assert reward.source.closed
    compared(f"online_reward_{value}", {"lines": "\n".join(lines)}, record)
