"""The script that takes a GPU's figures: each item has a limit, an ended call leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / "launch" / "gpu_figures.sh"
# A benchmark that prints its line early, and does not end.
ENDLESS = """
[ "$1" != -c ] || exit 0
echo '{"benchmark": "train", "value": 3}'
sleep 60 &
echo $! > "$CHILD.new"
mv "$CHILD.new" "$CHILD"
wait
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """Variables of a call whose programs in `tmp_path/bin` come before the system's."""
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    values = {"OUT": str(tmp_path / "out"), "PATH": path, "CHILD": str(tmp_path / "child")}
    return {**os.environ, **values, **more}


def figures(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "figures.jsonl").read_text().splitlines()]


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], bool]) -> None:
    """A busy machine takes a moment to start and to end processes."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_machine_without_a_gpu_is_refused_at_once(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "nvidia-smi", "echo 'no driver' >&2; exit 9")

    variables = environment(tmp_path, TINY="")
    done = subprocess.run(
        ["bash", SCRIPT, "agents"], env=variables, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 2
    assert done.stderr.startswith("error: nvidia-smi lists no GPU here")
    assert not (tmp_path / "out").exists()


def test_a_late_item_ends_alone_with_what_it_had_printed(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python", ENDLESS)
    # Each limit becomes a second.
    program(tmp_path / "bin" / "timeout", 'exec /usr/bin/timeout "$1" "$2" 1 "${@:4}"')
    variables = environment(tmp_path, TINY="1", PYTHON=str(tmp_path / "bin" / "python"))

    subprocess.run(["bash", SCRIPT, "agents"], env=variables, check=True, timeout=120)

    lines = figures(tmp_path / "out" / "tiny")
    assert [line["item"] for line in lines] == ["games", "train", "learner", "inference"]
    assert {(line["code"], line["value"]) for line in lines} == {(124, 3)}
    wait_until(lambda: not is_alive(int((tmp_path / "child").read_text())))


@pytest.mark.parametrize("plan", ["agents", "language"])
def test_an_ended_call_leaves_logs_and_no_process(tmp_path: Path, plan: str) -> None:
    program(tmp_path / "bin" / "python", ENDLESS)
    variables = environment(tmp_path, TINY="1", PYTHON=str(tmp_path / "bin" / "python"))
    call = subprocess.Popen(["bash", SCRIPT, plan], env=variables)
    wait_until((tmp_path / "child").exists)

    call.send_signal(signal.SIGTERM)

    assert call.wait(30) == 143
    wait_until(lambda: not is_alive(int((tmp_path / "child").read_text())))
    with tarfile.open(tmp_path / "out" / "tiny" / "logs.tar.gz") as logs:
        assert any(name.endswith(".log") for name in logs.getnames())


@pytest.mark.extra
@pytest.mark.parametrize(("plan", "count"), [("agents", 4), ("language", 8)])
def test_every_item_can_be_measured_with_tiny_sizes(tmp_path: Path, plan: str, count: int) -> None:
    variables = environment(tmp_path, TINY="1", PYTHON=sys.executable)

    subprocess.run(["bash", SCRIPT, plan], env=variables, check=True, timeout=1800)

    lines = figures(tmp_path / "out" / "tiny")
    assert len(lines) == count
    for line in lines:
        assert line["code"] == 0, line["item"]
        assert line["value"] > 0
