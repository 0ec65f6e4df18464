"""Runs the measurements of launch/gpu_items.py, each with a limit of its own, and writes a JSON line for each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

from gpu_items import Item
from gpu_logs import Ended, json_lines

REPOSITORY = Path(__file__).resolve().parents[1]
# What a process gets to end by itself when it is asked to.
GRACE_SECONDS = 8.0


class Figures:
    """Runs items and writes their lines; the whole ends `seconds` after `started` (seconds since 1970)."""

    def __init__(self, work: Path, out: Path, started: float, seconds: float) -> None:
        self._work = work
        self._out = out
        self._deadline = started + seconds
        self._lock = threading.Lock()
        self._environment = dict(os.environ)
        self._environment["JAX_COMPILATION_CACHE_DIR"] = str(work / "compiled")
        self._environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")

    def remaining(self) -> float:
        """Seconds until everything must have ended."""
        return self._deadline - time.time()

    def emit(self, line: dict[str, Any]) -> None:
        text = json.dumps(line)
        with self._lock:
            print(text, flush=True)
            with open(self._out / "figures.jsonl", "a", encoding="utf-8") as file:
                file.write(text + "\n")

    def run_together(self, chains: list[list[Item]], reserved: float) -> None:
        """Runs chains side by side, the items of each one after the other, and leaves `reserved` seconds to what is behind all of them."""
        threads = [threading.Thread(target=self.run_chain, args=(chain, reserved)) for chain in chains]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run_chain(self, items: list[Item], reserved: float) -> None:
        for number, item in enumerate(items):
            self.run(item, reserved + sum(later.reserve for later in items[number + 1 :]))

    def run(self, item: Item, reserved: float) -> None:
        """Runs an item, but leaves `reserved` seconds to those behind it; its line has an `error` where it did not end well."""
        limit = min(item.limit, self.remaining() - reserved - GRACE_SECONDS)
        if limit < min(5.0, item.limit):
            self.emit({"item": item.name, "error": "no time was left for it"})
            return
        path = self._work / f"{item.name}.log"
        ended = self._run_process(item, path, limit)
        line: dict[str, Any] = {"item": item.name, "seconds": round(time.time() - ended.began, 1)}
        if ended.late and not item.timed:
            line["error"] = f"not done in {limit:.0f} s"
        elif ended.code != 0 and not (item.timed and ended.late):
            line["error"] = f"ended with {ended.code}: {' '.join(ended.log[-600:].split())}"
        try:
            line |= item.read(ended)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            line.setdefault("error", f"its figures cannot be read: {error!r}")
        self.emit(line)

    def run_in_one_process(self, items: list[Item], reserved: float) -> None:
        """Runs items of `benchmark` one after the other; the end of one that is late ends its process, and the others go on in another."""
        figures = self._out / "figures.jsonl"
        deadline = self._deadline - reserved - GRACE_SECONDS
        waiting = list(items)
        while waiting:
            lines_before = len(json_lines(figures))
            tasks = [
                {**(item.benchmark or {}), "limit": item.limit, "reserve": item.reserve} for item in waiting
            ]
            script = "launch/gpu_benchmarks.py"
            command = [sys.executable, script, json.dumps(tasks), str(figures), str(deadline)]
            with open(self._work / f"{waiting[0].name}.log", "w", encoding="utf-8") as log:
                process = subprocess.Popen(
                    command, stderr=log, cwd=REPOSITORY, env=self._environment, start_new_session=True
                )
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(1.0, deadline + GRACE_SECONDS - time.time()))
                end(process, asked=False)
            done = {line["item"] for line in json_lines(figures)[lines_before:]}
            if not done:
                # Else the same process would be started forever.
                self.emit({"item": waiting[0].name, "error": f"its process ended with {process.returncode}"})
                done = {waiting[0].name}
            waiting = [item for item in waiting if item.name not in done]

    def _run_process(self, item: Item, path: Path, limit: float) -> Ended:
        """Runs an item's command at most `limit` seconds, with its output in the file `path`."""
        began = time.time()
        late = False
        with open(path, "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                item.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                env=self._environment | item.environment,
                start_new_session=True,
            )
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                late = True
                end(process, asked=item.timed)
        return Ended(path.read_text(encoding="utf-8", errors="replace"), began, late, process.returncode)

    def keep_logs(self) -> None:
        """Packs the logs, and what trainings write in their folders, into logs.tar.gz."""
        with tarfile.open(self._out / "logs.tar.gz", "w:gz") as tar:
            for path in sorted(self._work.glob("*.log")):
                tar.add(path, path.name)
            for run in ("nethack", "glam"):
                for name in ("config.json", "versions.json", "metrics.jsonl"):
                    if (self._work / run / name).is_file():
                        tar.add(self._work / run / name, f"{run}/{name}")


def end(process: subprocess.Popen[bytes], asked: bool) -> None:
    """Ends a process and all that it has started; one that is `asked` first has time to save."""
    if asked:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
