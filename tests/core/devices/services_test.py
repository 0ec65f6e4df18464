from __future__ import annotations

import threading
from typing import Any
from unittest.mock import MagicMock

import pytest

from motif_jax.core.devices.meters import Meters
from motif_jax.core.devices.services import ServiceFailedError, Services
from motif_jax.core.errors import UserError
from motif_jax.rl.batch_stream import BatchStream
from tests.play.agent_runs import recall_training


@pytest.mark.parametrize(
    ("error", "shown", "line"),
    [
        (
            ValueError("no more slots"),
            ServiceFailedError,
            "^the inference thread failed: no more slots$",
        ),
        # One without words is named.
        (AssertionError(), ServiceFailedError, "^the inference thread failed: AssertionError$"),
        (UserError("the annotator died 3 times"), UserError, "^the annotator died 3 times$"),
    ],
)
def test_the_first_failure_stops_all_services_and_is_raised(
    error: Exception, shown: type[Exception], line: str
) -> None:
    services = Services()
    started = threading.Event()

    def fail() -> None:
        started.wait()
        raise error

    services.start("idle", lambda: services.stopping.wait(0.01) and None)
    services.start("inference", fail)
    services.check()
    started.set()
    # a thread that has not begun when it is stopped ends at once
    assert services.stopping.wait(240)
    services.stop()
    with pytest.raises(shown, match=line) as caught:
        services.check()
    assert error in (caught.value, caught.value.__cause__)


def system(start: Exception | None = None) -> Any:
    attributes = {
        "config": recall_training(),
        "sources": [],
        "meters": Meters(),
        "start.side_effect": start,
    }
    return MagicMock(**attributes)


def test_actors_are_closed_though_a_thread_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = system()
    stream = BatchStream(closed)
    has_started = threading.Event()
    end = threading.Event()
    monkeypatch.setattr(stream, "assemble", lambda: (has_started.set(), end.wait()))
    stop = stream.services.stop
    monkeypatch.setattr(stream.services, "stop", lambda: stop(0.01))
    with (
        pytest.raises(RuntimeError, match=r"^the batcher thread did not end in 0\.01 seconds$"),
        stream,
    ):
        assert has_started.wait(60)  # a thread that has not begun when it is stopped ends at once
    closed.close.assert_called_once_with()
    end.set()


def test_actors_are_closed_when_the_start_fails() -> None:
    failed = system(ValueError("no process"))
    with pytest.raises(ValueError, match="no process"), BatchStream(failed):
        pass
    failed.close.assert_called_once_with()
