"""Metrics in metrics.jsonl and for TensorBoard, also of resumed runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto import event_pb2

from motif_jax.core.metrics import MetricsWriter, read_metrics

# (step, tag, value)
Point = tuple[int, str, float]


def events_of(path: Path) -> Iterator[Any]:
    """The events of a file of TensorBoard's."""
    data = path.read_bytes()
    while data:
        size = int.from_bytes(data[:8], "little")
        yield event_pb2.Event.FromString(data[12 : 12 + size])
        data = data[16 + size :]


def tensorboard_points(folder: Path) -> list[list[Point]]:
    """Of each file, scalars by step, and as `purged` the step from which earlier files are left
    out.
    """
    points: list[list[Point]] = []
    for path in sorted(folder.glob("events*")):
        points.append([])
        for event in events_of(path):
            points[-1] += [
                (event.step, value.tag, value.simple_value) for value in event.summary.value
            ]
            if event.HasField("session_log"):
                points[-1].append((event.step, "purged", 0.0))
    return points


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A run that wrote steps 10 to 30, and a part of step 40."""
    with MetricsWriter(tmp_path) as writer:
        for step in (10, 20, 30):
            writer.write(step, {"loss/total": 1.0 / step, "bad": float("nan")})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 40, "torn')
    return tmp_path


def test_a_resumed_run_has_no_rows_behind_its_checkpoint(killed: Path) -> None:
    with MetricsWriter(killed, resume_step=20) as writer:
        writer.write(30, {"loss/total": 5.0})

    rows = [{name: row[name] for name in row if name != "time"} for row in read_metrics(killed)]
    assert rows == [
        {"step": 10, "loss/total": 0.1, "bad": None},
        {"step": 20, "loss/total": 0.05, "bad": None},
        {"step": 30, "loss/total": 5.0},
    ]


def test_tensorboard_drops_what_lies_behind_the_checkpoint(killed: Path) -> None:
    with MetricsWriter(killed, resume_step=20) as writer:
        writer.write(30, {"loss/total": 5.0})

    before, after = tensorboard_points(killed / "tensorboard")
    assert before == [
        (10, "loss/total", pytest.approx(0.1)),
        (20, "loss/total", pytest.approx(0.05)),
        (30, "loss/total", pytest.approx(1 / 30)),
    ]
    assert after == [(21, "purged", 0.0), (30, "loss/total", 5.0)]


def test_tensorboard_drops_a_try_that_ended_before_its_first_checkpoint(killed: Path) -> None:
    with MetricsWriter(killed) as writer:
        writer.write(10, {"loss/total": 5.0})

    _, after = tensorboard_points(killed / "tensorboard")
    assert after == [(0, "purged", 0.0), (10, "loss/total", 5.0)]


def test_points_are_on_the_disk_before_the_run_ends(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as writer:
        writer.write(30, {"loss/total": 5.0})

        (points,) = tensorboard_points(tmp_path / "tensorboard")
        assert (30, "loss/total", 5.0) in points


def test_a_new_run_begins_without_rows(killed: Path) -> None:
    with MetricsWriter(killed):
        pass

    assert (killed / "metrics.jsonl").read_text() == ""
