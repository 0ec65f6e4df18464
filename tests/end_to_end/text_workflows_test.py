"""The published workflow from nothing, on comments and on scenes: imitate, learn values, evaluate; with a server that fails in every way."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from motif_jax.offline import agent_folder
from motif_jax.reports import evaluation_files
from motif_jax.stages import evaluate_text, train_text
from motif_jax.support.errors import UserError
from tests.processes import REPOSITORY
from tests.reward_fixtures import load_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SMALL = {
    "network.width": 16, "network.layers": 1, "network.heads": 2, "network.max_length": 256, "batch_size": 4, "max_steps": 2,
    "evaluate_every": 2, "chunk_steps": 1, "evaluation_batches": 1, "num_devices": 1, "held_out.share": 0.25, "length_buckets": False,
    "max_len": 32, "candidates.count": 2, "candidates.max_tokens": 4,
}  # fmt: skip
EVALUATED = {"episodes": 4, "lanes": 2, "show": 1, "resamples": 50, "decode.max_tokens": 4}


def train(workdir: Path, variant: str, **values: Any) -> Path:
    config = load_config("train_text", variant)
    config.update_from_flattened_dict({**SMALL, **values})
    train_text.check(config, workdir)
    assert train_text.run(config, workdir) == 0
    return workdir


def evaluate(workdir: Path, variant: str, **values: Any) -> list[dict[str, Any]]:
    config = load_config("evaluate_text", variant)
    config.update_from_flattened_dict({**EVALUATED, **values})
    evaluate_text.check(config, workdir)
    assert evaluate_text.run(config, workdir) is None
    return evaluation_files.read_evaluation(workdir)["rows"]


@pytest.mark.slow
def test_comments_from_nothing(tmp_path: Path) -> None:
    """As docs/ilql.md prints it: data, scores and tokenizer are made where they are missing, and the second run speaks as the first."""
    options = f'{{"num_comments": 60, "vocab_size": 600, "store": "{tmp_path}/store"}}'
    bc = train(tmp_path / "bc", "reddit_bc", options=options)
    more = {"initial.policy": str(bc), "loss.policy": 0.0, "options": options}
    ilql = train(tmp_path / "ilql", "reddit_ilql", **more)
    agent = agent_folder.load(ilql)
    assert (agent.method, agent.settings["expectile"], agent.options["reward_scale"]) == ("ilql", 0.6, -5.0)
    # Both speak with the tokenizer that the first has learned, and go where they are moved.
    moved = (tmp_path / "ilql").rename(tmp_path / "moved")
    rows = evaluate(tmp_path / "eval", "reddit", agent=str(moved), **{"decode.advantage_weight": 8.0, "options": f'{{"folder": "{tmp_path}/moved/comments", "scores": ""}}'})  # fmt: skip
    assert len(rows) == 4
    assert {row["return"] for row in rows} <= {0.0, -5.0, -10.0}
    assert all(row["length"] == 1 for row in rows)


class Proxy(BaseHTTPRequestHandler):
    """Passes requests on; some it answers itself, wrongly, and once `ended` says so all of them."""

    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with server.lock:
            server.count += 1
            number = server.count
        fault = 500 if server.ended() else server.faults.get(number)
        if fault == "hang":
            server.let_go.wait(60)
            return
        status, reply = 200, b""
        if isinstance(fault, int):
            status, reply = fault, b"<html>busy</html>"
        elif fault is not None:
            reply = fault
        else:
            with urllib.request.urlopen(server.url + self.path, body, timeout=60) as found:
                reply = found.read()
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(reply)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def scenes(num_val: int) -> Iterator[str]:
    """The address of a server of scenes, a process of its own."""
    command = [
        sys.executable,
        "-m",
        "motif_jax.launch",
        "--config=configs/serve_scenes.py",
        "--config.port=0",
    ]
    with subprocess.Popen(
        [*command, f"--config.num_val={num_val}"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[-1]
        finally:
            server.kill()


@contextlib.contextmanager
def failing(url: str, faults: dict[int, Any], ended: Callable[[], bool]) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads, server.lock, server.let_go = True, threading.Lock(), threading.Event()
    server.url, server.faults, server.ended, server.count = url, faults, ended, 0
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.let_go.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.slow
def test_scenes_from_nothing_with_a_server_that_fails(tmp_path: Path) -> None:
    """Faults are made good and counted, what lasts is one line; with another address the same command goes on, to the same episodes."""
    options = '{"num_train": 24, "num_val": 20, "num_test": 4, "vocab_size": 600}'
    bc = train(tmp_path / "bc", "scenes_bc", options=options)
    chai = train(tmp_path / "chai", "scenes_chai", **{"options": options, "initial.policy": str(bc)})
    given = {"agent": str(chai), "threads": 2, "decode.width": 2}
    alone = evaluate(tmp_path / "alone", "scenes_chai", **given)
    assert all(row["length"] == 10 or row["success"] for row in alone)
    served = {**given, "options": '{"split": "test", "attempts": 4, "timeout_seconds": 5.0}'}
    faults = {2: 500, 5: b"<html>", 8: b'["red", NaN]', 11: "hang", 14: b""}
    journal = tmp_path / "served" / evaluation_files.JOURNAL

    def journaled() -> list[dict[str, Any]]:
        return evaluation_files.read_rows(journal) if journal.exists() else []

    with scenes(20) as url:
        with failing(url, faults, lambda: len(journaled()) >= 2) as server:
            there = f"http://127.0.0.1:{server.server_address[1]}"
            with pytest.raises(UserError, match="failed 4 times, at last: HTTP status 500") as error:
                evaluate(tmp_path / "served", "scenes_chai", **served, url=there)
            assert "\n" not in str(error.value)
        assert sorted(row["index"] for row in journaled()) == [0, 1]
        rows = evaluate(tmp_path / "served", "scenes_chai", **served, url=url)
    assert [row["dialogue"] for row in rows] == [row["dialogue"] for row in alone]
    assert evaluation_files.read_evaluation(tmp_path / "served")["failed_requests"] >= len(faults)
    lines = journal.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(rows) == 4
