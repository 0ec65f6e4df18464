"""Runs the measurements of launch/gpu_items.py, each with a limit of its own, and writes a JSON
line for each.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

from gpu_logs import Ended, json_lines
from gpu_plans import Item

REPOSITORY = Path(__file__).resolve().parents[1]
# What a process gets to end by itself when it is asked to.
GRACE_SECONDS = 8.0


class Figures:
    """Runs items and writes their lines; the whole ends `seconds` after `started` (seconds since
    1970).
    """

    def __init__(self, work: Path, out: Path, started: float, seconds: float) -> None:
        self._work = work
        self._out = out
        self._deadline = started + seconds
        # Reentrant: a signal's handler runs in the thread that may hold it.
        self._lock = threading.RLock()
        self._running: set[subprocess.Popen[bytes]] = set()
        # Of the handler of signals: whether a process is being started, and the signal that came
        # meanwhile.
        self._is_starting = False
        self._signal: int | None = None
        self._environment = dict(os.environ)
        # Shared by all items: a cold start fills it, the warm one of the same program reads it.
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
        """Runs chains side by side, the items of each one after the other, and leaves `reserved`
        seconds to what is behind all of them.
        """
        threads = [
            threading.Thread(target=self.run_chain, args=(chain, reserved)) for chain in chains
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            # A signal that comes just before a wait without a limit is handled after it.
            while thread.is_alive():
                thread.join(0.2)

    def run_chain(self, items: list[Item], reserved: float) -> None:
        for number, item in enumerate(items):
            self.run(item, reserved + sum(later.reserve for later in items[number + 1 :]))

    def run(self, item: Item, reserved: float) -> None:
        """Runs an item, but leaves `reserved` seconds to those behind it; its line has an `error`
        where it did not end well.
        """
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
            # An item that was late or failed has an error already, which says more.
            line.setdefault("error", f"its figures cannot be read: {error!r}")
        self.emit(line)
        self.keep_logs()

    def run_in_one_process(self, items: list[Item], reserved: float) -> None:
        """Runs items of `benchmark` one after the other; the end of one that is late ends its
        process, and the others go on in another.
        """
        figures = self._out / "figures.jsonl"
        deadline = self._deadline - reserved - GRACE_SECONDS
        waiting = list(items)
        while waiting:
            # The process writes its lines itself: those behind these are of the items that it has
            # done.
            lines_before = len(json_lines(figures))
            tasks = [
                {**(item.benchmark or {}), "limit": item.limit, "reserve": item.reserve}
                for item in waiting
            ]
            script = "launch/gpu_benchmarks.py"
            command = [sys.executable, script, json.dumps(tasks), str(figures), str(deadline)]
            with open(self._work / f"{waiting[0].name}.log", "w", encoding="utf-8") as log:
                process = self._start(command, self._environment, stderr=log)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(1.0, deadline + GRACE_SECONDS - time.time()))
                self._end(process, is_saving=False)
            done = {line["item"] for line in json_lines(figures)[lines_before:]}
            if not done:
                # Else the same process would be started forever.
                self.emit(
                    {
                        "item": waiting[0].name,
                        "error": f"its process ended with {process.returncode}",
                    }
                )
                done = {waiting[0].name}
            # Where one was late: what is behind it begins in a new process.
            waiting = [item for item in waiting if item.name not in done]
            self.keep_logs()

    def _run_process(self, item: Item, path: Path, limit: float) -> Ended:
        """Runs an item's command at most `limit` seconds, with its output in the file `path`."""
        began = time.time()
        late = False
        with open(path, "w", encoding="utf-8") as log:
            environment = self._environment | item.environment
            process = self._start(item.command, environment, stdout=log, stderr=subprocess.STDOUT)
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                late = True
            self._end(process, is_saving=item.timed)
        return Ended(
            path.read_text(encoding="utf-8", errors="replace"), began, late, process.returncode
        )

    def _start(
        self, command: list[str], environment: dict[str, str], **outputs: Any
    ) -> subprocess.Popen[bytes]:
        """Starts a command in a process group of its own, but in this session: what ends the
        session ends it, too.
        """
        with self._lock:
            self._is_starting = True
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    cwd=REPOSITORY,
                    env=environment,
                    process_group=0,
                    **outputs,
                )
                self._running.add(process)
            finally:
                self._is_starting = False
            if self._signal is not None:
                self._leave(self._signal)
        return process

    def _end(self, process: subprocess.Popen[bytes], is_saving: bool) -> None:
        end(process, is_saving)
        with self._lock:
            self._running.discard(process)

    def end_at_signals(self) -> None:
        """From now on SIGTERM, Ctrl-C and a closed terminal end all items, keep the logs, and end
        this process.
        """

        def leave(number: int, frame: Any) -> None:
            del frame
            with self._lock:
                # This thread may be starting a process, which is not known yet: it leaves
                # afterwards.
                self._signal = number
                if not self._is_starting:
                    self._leave(number)

        # Each item has a process group of its own, which Ctrl-C and a closed terminal do not reach.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # nohup has it ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, leave)

    def _leave(self, number: int) -> None:
        """Kills all items, packs the logs and ends this process by the signal `number`."""
        # Held to the end, so that no thread starts what comes next.
        with self._lock:
            try:
                for process in self._running:
                    kill_group(process)
                self.keep_logs()
                self.emit({"item": "all", "error": "ended from outside"})
            finally:
                os._exit(128 + number)

    def keep_logs(self) -> None:
        """Packs the logs, and what trainings write in their folders, into logs.tar.gz; says it
        where they cannot be written.
        """
        try:
            self._pack_logs()
        except (OSError, tarfile.TarError) as error:
            print(f"the logs cannot be packed: {error}", file=sys.stderr, flush=True)

    def _pack_logs(self) -> None:
        packed = self._out / "logs.tar.gz"
        unfinished = self._work / packed.name
        with self._lock:
            with tarfile.open(unfinished, "w:gz") as tar:
                for path in sorted(self._work.glob("*.log")):
                    tar.add(path, path.name)
                for run in ("nethack", "glam"):
                    for name in ("config.json", "versions.json", "metrics.jsonl"):
                        if (self._work / run / name).is_file():
                            tar.add(self._work / run / name, f"{run}/{name}")
            # A kill leaves the logs of before.
            shutil.move(unfinished, packed)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def end(process: subprocess.Popen[bytes], is_saving: bool) -> None:
    """Ends a process and all that it has started; one that `is_saving` has time to do so first."""
    if is_saving and process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    # Also after an end by itself, since what it started may still run.
    kill_group(process)
    process.wait()
