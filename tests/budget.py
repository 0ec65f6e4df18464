"""What each test costs in processor time, with the processes it started; the dear ones are listed
at the end of every run.

`--quick` allows a test 1 s, the default 10 s; with `--budget` a test above that fails the run, and
`--times FILE` keeps all. Processor time, since the wall clock of a busy machine says nothing of a
test.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

QUICK_SECONDS = 1.0
DEFAULT_SECONDS = 10.0
# Of processes that have ended while the child that started them has not (tests/commands.py).
elsewhere = 0.0


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + elsewhere


class Budget:
    """Measures each test, its fixtures included: a fixture that is shared counts for the first test
    that asks for it.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.limit = QUICK_SECONDS if config.getoption("--quick") else DEFAULT_SECONDS
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        self._start = processor_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        report = yield
        if call.when == "teardown":
            report.user_properties.append(("processor_seconds", processor_seconds() - self._start))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            seconds = dict(report.user_properties).get("processor_seconds", 0.0)
            self.seconds[report.nodeid] = seconds
            path = self.config.getoption("--times")
            # not in the processes of xdist, too
            if path and not hasattr(self.config, "workerinput"):
                with Path(path).open("a", encoding="utf-8") as file:
                    file.write(json.dumps([report.nodeid, round(seconds, 3)]) + "\n")

    @property
    def over(self) -> list[tuple[float, str]]:
        return sorted(
            ((s, name) for name, s in self.seconds.items() if s > self.limit), reverse=True
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        total = sum(self.seconds.values())
        write(
            f"{len(self.seconds)} tests, {total:.0f} s of processor time; {len(self.over)} above {self.limit:g} s:"
        )
        for seconds, name in self.over[:30]:
            write(f"{seconds:7.1f} s  {name}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (
            self.config.getoption("--budget")
            and self.over
            and session.exitstatus == pytest.ExitCode.OK
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
