"""A `LabelSource` whose annotator runs in a process of its own, which is started again when it dies."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from ml_collections import ConfigDict

from motif_jax.annotation.asking import Books, labelled
from motif_jax.annotation.messages import Crash, Find, Found, Ready, Refusal, Reply, Told
from motif_jax.annotation.online import Labelled
from motif_jax.annotation.queue import Items
from motif_jax.annotation.streams import Server
from motif_jax.datasets.verdicts import UNKNOWN, Form
from motif_jax.support import resources
from motif_jax.support.errors import UserError
from motif_jax.support.interruption import StoppedError, deaf_processes, never

# How often the thread looks around while nothing comes: questions that wait for a time, or for steps of the agent.
_LOOK_SECONDS = 0.25
_CLOSE_SECONDS = 5.0
# Deaths count for so long.
_DEATHS_SECONDS = 3600.0
# A process that is being asked and tells nothing of any question for so long hangs, or twice the time that a request may take. The
# time for which its server wants to be left alone, of which it tells, does not count.
_HANG_SECONDS = 600.0


class ProcessSource:
    """One process, and a thread here that tells it what to ask and writes into the books what it says."""

    def __init__(self, config: ConfigDict, form: Form) -> None:
        self._config, self._form = config, form
        self._books = Books(config, form)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._ready: Ready | None = None
        self._restored: dict[str, Any] | None = None
        self._failure: str | None = None
        self._deaths: collections.deque[float] = collections.deque()
        self._wanted: queue.SimpleQueue[tuple[Find, queue.SimpleQueue[Found | None]]] = queue.SimpleQueue()
        self._finding: collections.deque[tuple[Find, queue.SimpleQueue[Found | None]]] = collections.deque()
        self._last_words = ""
        self._megabytes = 0.0
        self._told_at = self._rests_until = 0.0
        self._closing = threading.Event()
        self._wakes, self._wakes_in = os.pipe()
        os.set_blocking(self._wakes_in, False)
        self._thread = threading.Thread(target=self._work, name="annotator", daemon=True)

    @property
    def pid(self) -> int:
        """Process id of the annotator's process."""
        assert self._process is not None
        return self._process.pid

    def start(self, stopped: Callable[[], bool] = never) -> None:
        """See `LabelSource`."""
        self._spawn(first=True)
        try:
            while self._ready is None:
                self._hear(_LOOK_SECONDS)
                self._check()
                if stopped() and self._ready is None:
                    os.killpg(self.pid, signal.SIGKILL)  # it may load a model, which takes minutes
                    raise StoppedError
        except (EOFError, OSError):
            raise UserError(f"the annotator's process ended while it started: {self._buried()}") from None
        finally:
            if self._ready is None:
                self.close()
        if self._restored is not None:
            self._books.restore(self._restored)
        self._thread.start()

    def meet(
        self, items: Sequence[Items], counts: Sequence[int], scores: Sequence[float] | None, step: int
    ) -> None:
        """See `LabelSource`."""
        self._check()
        self._books.meet(items, counts, scores, step)
        self._wake()

    def poll(self) -> list[Labelled]:
        """See `LabelSource`."""
        self._check()
        return self._books.poll()

    def known(self, items: Sequence[Items]) -> list[Labelled]:
        """See `LabelSource`; after `start`."""
        if not items:
            return []
        questions = [self._books.question(item) for item in items]
        answer: queue.SimpleQueue[Found | None] = queue.SimpleQueue()
        self._wanted.put((Find(questions), answer))
        self._wake()
        while True:
            self._check()
            with contextlib.suppress(queue.Empty):
                found = answer.get(timeout=_LOOK_SECONDS)
                break
        told = []
        for item, question, stored in zip(items, questions, found.answers if found else [], strict=False):
            if stored is not None and stored.label != UNKNOWN:
                reply = Reply(0, stored.label, stored.probabilities, stored.attempts, asked=False)
                told.append(labelled(self._form, item, reply, item != question))
                self._books.settle(item)
        return told

    def queued(self) -> int:
        """See `LabelSource`."""
        return self._books.queued

    def in_flight(self) -> int:
        """See `LabelSource`."""
        return self._books.in_flight

    def metrics(self) -> dict[str, float]:
        """See `LabelSource`."""
        return self._books.metrics(self._megabytes, max(0.0, self._rests_until - time.monotonic()))

    def state(self) -> dict[str, Any]:
        """See `LabelSource`."""
        return self._books.state()

    def restore(self, state: dict[str, Any]) -> None:
        """See `LabelSource`."""
        self._restored = state

    def close(self) -> None:
        """See `LabelSource`."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._bury(_CLOSE_SECONDS)
        with self._lock:
            for descriptor in (self._wakes, self._wakes_in):
                os.close(descriptor)
            self._wakes_in = -1

    def _check(self) -> None:
        if self._failure is not None:
            raise UserError(self._failure)

    def _wake(self) -> None:
        with self._lock:
            if self._wakes_in >= 0:
                with contextlib.suppress(BlockingIOError):  # it has been woken often enough
                    os.write(self._wakes_in, b"\0")

    def _spawn(self, first: bool) -> None:
        orders = {"config": _plain(self._config), "form": self._form.name, "first": first}
        self._pipe, theirs = Pipe()
        self._ready = None
        with theirs, deaf_processes():
            self._process = subprocess.Popen(
                [
                    self._config.annotator.python or sys.executable,
                    "-m",
                    "motif_jax.annotation.annotator_process",
                ],
                stdin=subprocess.PIPE,
                stdout=2,  # standard output is the training's own: whatever an engine prints goes to the log
                pass_fds=[theirs.fileno()],
                env=self._environment(),
                process_group=0,  # an engine's own processes are ended with it
            )
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                # It stays open: the process sees by it whether its parent is there.
                self._process.stdin.write(json.dumps({**orders, "pipe": theirs.fileno()}).encode() + b"\n")
                self._process.stdin.flush()
        self._told_at = self._rests_until = time.monotonic()

    def _environment(self) -> dict[str, str]:
        path = os.environ.get("PYTHONPATH")
        root = str(resources.ROOT)
        environment = {**os.environ, "PYTHONPATH": root if not path else root + os.pathsep + path}
        if self._config.annotator.devices:
            environment["CUDA_VISIBLE_DEVICES"] = self._config.annotator.devices
        return environment

    def _work(self) -> None:
        try:
            while not self._closing.is_set() and self._failure is None:
                try:
                    self._hear(_LOOK_SECONDS)
                    self._tell()
                    self._see_whether_it_hangs()
                except (EOFError, OSError):
                    self._died()
        except Exception as error:
            self._failure = f"the thread that asks the annotator ended: {error!r}"
            raise

    def _hear(self, timeout: float | None = None) -> None:
        """Waits until something comes, from the process or from this one; raises EOFError when the process is gone."""
        assert self._pipe is not None
        ready = wait([self._pipe, self._wakes], timeout)
        if self._wakes in ready:
            os.read(self._wakes, 1 << 16)
        while self._pipe in ready and self._pipe.poll():
            self._take(self._pipe.recv())
            if self._failure is not None:
                return

    def _take(self, message: Any) -> None:
        match message:
            case Told():
                # Whoever has a label has to see that the server is there.
                if message.server is not None:
                    self._see(message.server)
                for reply in message.replies:
                    self._books.answered(reply)
                for number in message.failed:
                    self._books.failed(number)
                now = time.monotonic()
                if message.replies or message.failed or message.rests or not self._is_asked():
                    self._told_at = now
                self._rests_until = now + message.rests
                self._megabytes = message.megabytes
            case Found():
                self._finding.popleft()[1].put(message)
                self._told_at = time.monotonic()
            case Ready():
                self._books.identify(message.identity, message.prices)
                if message.first is not None:
                    self._books.count(message.first)
                self._ready = message
            case Refusal():
                self._failure = message.message
            case Crash():
                self._last_words = message.trace.strip().rpartition("\n")[2]
                print(f"the annotator's process failed:\n{message.trace}", file=sys.stderr, flush=True)

    def _see(self, server: Server) -> None:
        before, self._books.server = self._books.server, server
        if before.up and not server.up:
            print(
                f"the annotator has no answers: {server.cause}; training goes on", file=sys.stderr, flush=True
            )
        elif server.up and before.cause and not before.up and self._thread.is_alive():
            seconds = server.since - before.since
            print(f"the annotator answers again, after {seconds:,.0f} s", file=sys.stderr, flush=True)

    def _tell(self) -> None:
        """Sends what is to be asked, as much as the process works on at a time."""
        if self._ready is None or self._pipe is None or self._failure is not None:
            return
        if not self._is_asked():  # loading a model, it may have told nothing for long
            self._told_at = time.monotonic()
        asked = self._books.take(self._ready.at_once - self._books.in_flight)
        if asked:
            self._pipe.send(asked)
        while not self._wanted.empty():
            entry = self._wanted.get()
            self._finding.append(entry)
            self._pipe.send(entry[0])

    def _is_asked(self) -> bool:
        """Whether an answer of the process is awaited."""
        return bool(self._books.in_flight or self._finding)

    def _see_whether_it_hangs(self) -> None:
        most = max(_HANG_SECONDS, 2 * self._config.annotator.openai.timeout_seconds)
        # A look into the store has nothing to do with the server.
        since = self._told_at if self._finding else max(self._told_at, self._rests_until)
        if self._is_asked() and time.monotonic() - since > most:
            assert self._process is not None
            print(
                f"the annotator's process told nothing for {most:,.0f} s and is ended",
                file=sys.stderr,
                flush=True,
            )
            os.killpg(self._process.pid, signal.SIGKILL)

    def _died(self) -> None:
        """Starts the process again, unless it died too often or refused to go on."""
        assert self._pipe is not None
        # It may have ended while more was being asked: what it said last, the cause too, is still to be heard.
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll():
                self._take(self._pipe.recv())
        cause = self._buried()
        if self._failure is not None:
            return
        if self._closing.is_set():
            return
        now = time.monotonic()
        self._deaths.append(now)
        while now - self._deaths[0] > _DEATHS_SECONDS:
            self._deaths.popleft()
        self._books.lost()
        most = self._config.annotator.restarts
        if len(self._deaths) > most:
            self._failure = (
                f"the annotator's process died {len(self._deaths)} times within an hour, at last by {cause} "
                f"(config.annotator.restarts={most}); every answer is kept, the same command goes on from there"
            )
            return
        print(f"the annotator's process died ({cause}); it is started again", file=sys.stderr, flush=True)
        self._books.restarted()
        self._books.server = Server(False, time.time(), f"its process died by {cause}")
        for entry in self._finding:
            self._wanted.put(entry)
        self._finding.clear()
        self._spawn(first=False)

    def _buried(self) -> str:
        """Why the process, whose pipe is closed, ended; nothing of it is left."""
        assert self._pipe is not None
        self._pipe.close()
        code = self._bury(_CLOSE_SECONDS)
        words, self._last_words = self._last_words, ""
        return words or (f"signal {-code}" if code < 0 else f"exit code {code}")

    def _bury(self, seconds: float) -> int:
        process = self._process
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started, too
        code = process.wait()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        return code


def _plain(config: ConfigDict) -> dict[str, Any]:
    """What the process reads of the config, as JSON holds it."""
    plain = {key: config[key].to_dict() for key in ("annotator", "queue", "compat")}
    return json.loads(json.dumps(plain))
