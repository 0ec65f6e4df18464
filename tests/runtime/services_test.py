from __future__ import annotations

import threading

import pytest

from motif_jax.runtime.meters import Meters
from motif_jax.runtime.services import ServiceFailedError, Services


def test_first_failure_stops_all_and_is_told_with_its_cause() -> None:
    services = Services()
    seen = threading.Event()

    def fail() -> None:
        seen.wait()
        raise ValueError("no more slots")

    services.start("idle", lambda: services.stopping.wait(0.01) and None)
    services.start("inference", fail)
    services.check()
    seen.set()
    services.stopping.wait(10)
    services.stop()
    with pytest.raises(ServiceFailedError, match="inference thread failed: no more slots") as caught:
        services.check()
    assert isinstance(caught.value.__cause__, ValueError)


def test_stop_without_failure_is_quiet() -> None:
    services = Services()
    services.start("idle", lambda: services.stopping.wait(0.01) and None)
    services.stop()
    services.check()


def test_meters_are_read_and_reset() -> None:
    meters = Meters()
    meters.add("rows", 3)
    meters.add("rows", 5)
    reading = meters.read()
    assert (reading.total("rows"), reading.mean("rows"), reading.largest("rows")) == (8, 4, 5)
    assert reading.rate("rows") == pytest.approx(8 / reading.seconds)
    assert meters.read().total("rows") == 0
