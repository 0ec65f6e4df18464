"""Rewards that are learned while the agent trains: labels, log, resume; in small runs of the real training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.oni import learning_metrics, message_stats, online
from motif_jax.oni.label_log import FILE, read_log
from motif_jax.rl import train_agent
from motif_jax.rl.config import agent_config
from motif_jax.rl.intrinsic import BatchMessages, RunSetup
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text
from tests.rl import oni_runs
from tests.rl.oni_runs import oni_config

TEXTS = {f"the cue is {cue}" for cue in range(4)} | {"which cue?", ""}


pytestmark = pytest.mark.usefixtures("compiled_quickly")


REFUSED = [
    (
        {"hosts__coordinator": "localhost:4321", "hosts__count": 2, "hosts__index": 0},
        "hosts.count=2: must be 1: a reward of kind 'retrieval' is learned by one host with all its devices",
    ),
    ({"reward__kind": "none"}, "reward.intrinsic_coefficient=0.4: must be 0 with reward.kind='none'"),
    ({"annotator__goal": "fame"}, "annotator.goal=fame: must be one of zeroknowledge, defaultgoal, combat"),
    (
        {"queue__order": "uncertain"},
        "queue.order='uncertain': must be frequent or newest: a reward of kind 'retrieval' is sure of every",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_bad_values_are_refused_before_any_work(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match="^config." + message):
        train_agent.check(oni_config("retrieval", **changes), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_learned_reward_needs_the_training_that_teaches_it() -> None:
    config = oni_config("retrieval")

    with pytest.raises(
        UserError, match="kind='retrieval': must be another here: it is learned while an agent trains"
    ):
        rewards.load_intrinsic(config.reward, registry.spec("Recall-v0"))


def test_a_learned_reward_needs_an_environment_with_texts() -> None:
    config = oni_config("retrieval", environment__name="tests.toys:Corridor")
    kind = rewards.kind_of(config.reward)

    with pytest.raises(
        UserError, match=r"name='tests.toys:Corridor': must be an environment that shows a text"
    ):
        kind.check_run(config, registry.spec("tests.toys:Corridor"))


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
    lines += [str(label) for label in read_log(tmp_path / FILE)]
    assert reward.source.closed
    data = (tmp_path / FILE).read_bytes()
    for damaged in (data[: len(data) // 2], data.replace(b"cue 1", b"cue 7")):
        (tmp_path / FILE).write_bytes(damaged)
        lines += [outcome_text(made().restore, state, folder=tmp_path)]
    assert_matches_packed_recording(f"online_reward_{value}", {"lines": "\n".join(lines)}, record)
