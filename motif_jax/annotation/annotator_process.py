"""The annotator's own process: free of jax, told by its parent what to ask, and ended with it.

Every answer is on the disk before the parent hears of it. What ends this process is told on the pipe: a `Refusal` for what the
user can put right, a `Crash` for anything else; the parent starts it again after a crash or a kill (`annotation/supervised.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Annotator, make_annotator
from motif_jax.annotation.answers import Answers
from motif_jax.annotation.messages import Asked, Crash, Find, Found, Ready, Refusal, Reply, Told
from motif_jax.annotation.online import annotator_config, check_section, in_section
from motif_jax.annotation.questions import QuestionHasher, is_reversed
from motif_jax.annotation.streams import Failed, Greeted, Heard, Server, Stream
from motif_jax.datasets.verdicts import FORMS, PAIR, Form
from motif_jax.support.errors import UserError
from motif_jax.support.lifeline import end_with_parent

# How often it tells that it is there.
_BEAT_SECONDS = 1.0
# Between two tries to reach a server that is not there yet.
_AGAIN_SECONDS = 1.0
# What is asked before anything was met: whether the answer comes is what matters.
_FIRST = {"single": ("",), "pair": ("", "You kill the newt!")}
_TRACEBACK_LIMIT = 4000


class _ParentGone(Exception):
    """Nobody is there to hear anything."""


class Desk:
    """Takes the parent's messages, the stream's answers, and hands on what came of them; in one thread."""

    def __init__(self, connection: Connection, config: ConfigDict, form: Form) -> None:
        with in_section():
            check_section(config, form)
            self._annotator: Annotator = make_annotator(annotator_config(config), form)
        self._connection, self._config, self._form = connection, config, form
        self._answers = Answers.of(self._annotator.identity, form, config)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stream: Stream | None = None

    def run(self, first: bool) -> None:
        """Serves until the parent closes the pipe or dies.

        Args:
          first: whether it must be known that questions are answered before anything else; what fails then is a UserError.
        """
        threading.Thread(target=self._listen, name="parent", daemon=True).start()
        try:
            with in_section():
                self._annotator.start()
                self._stream = self._annotator.open_stream(self._inbox.put)
                reply = self._reach(self._stream) if first else None
            identity = dict(self._annotator.identity)
            self._send(Ready(identity, self._annotator.prices, self._annotator.at_once, reply))
            with in_section():
                while True:
                    self._serve(self._stream, self._events())
        except _ParentGone:
            return
        finally:
            self._close()

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._inbox.put(self._connection.recv())
        self._inbox.put(_ParentGone())

    def _events(self) -> list[Any]:
        """What has come, or nothing after a while."""
        events = []
        with contextlib.suppress(queue.Empty):
            events.append(self._inbox.get(timeout=_BEAT_SECONDS))
            while True:
                events.append(self._inbox.get_nowait())
        return events

    def _serve(self, stream: Stream, events: Sequence[Any]) -> None:
        replies: list[Reply] = []
        heard: list[Heard] = []
        failed: list[int] = []
        server = error = None
        for event in events:
            match event:
                case Heard():
                    heard.append(event)
                case Failed():
                    failed.append(event.number)
                case Server():
                    server = event
                case Find():
                    self._send(Found([self._answers.find(items) for items in event.items]))
                case BaseException():
                    error = error or event
                case Greeted():
                    pass
                case _:
                    replies += self._ask(stream, event)
        if heard:
            replies += self._answers.keep(heard)
        # Of what was answered before a fault, too: it was paid for, and need not be asked again.
        self._send(Told(replies, failed, server, stream.rests(), _megabytes()))
        if error is not None:
            raise error

    def _ask(self, stream: Stream, asked: Sequence[Asked]) -> list[Reply]:
        """Asks what is not answered; returns what is."""
        replies = []
        for one in asked:
            opened = self._answers.open(one)
            if isinstance(opened, Reply):
                replies.append(opened)
            else:
                stream.ask(one.number, opened)
        return replies

    def _reach(self, stream: Stream) -> Reply | None:
        """Waits until a question is answered, or a greeting where the question was answered before.

        Raises:
          UserError: there is no answer within `annotator.wait_seconds`, or there will be none.
        """
        deadline = time.monotonic() + self._config.annotator.wait_seconds
        items = _FIRST[self._form.name]
        hasher = QuestionHasher(self._annotator.identity)
        if self._form is PAIR and is_reversed(hasher, *items):
            items = items[::-1]
        opened = self._answers.open(Asked(0, items, 0))
        told = False
        while True:
            if isinstance(opened, Reply):
                stream.greet(0)
            else:
                stream.ask(0, opened)
            event = self._first_event()
            if isinstance(event, Greeted):
                return None
            if isinstance(event, Heard):
                return self._answers.keep([event])[0]
            # A server may want to be left alone for longer than is to be waited.
            if not event.passing or time.monotonic() + stream.rests() >= deadline:
                raise event.error
            if not told:
                print(f"the annotator waits: {event.error}", file=sys.stderr, flush=True)
                told = True
            time.sleep(min(_AGAIN_SECONDS, max(0.0, deadline - time.monotonic())))

    def _first_event(self) -> Heard | Greeted | Failed:
        while True:
            event = self._inbox.get()
            if isinstance(event, BaseException):
                raise event
            if isinstance(event, Heard | Greeted | Failed):
                return event
            if isinstance(event, Server):
                self._send(Told([], [], event, 0.0, _megabytes()))

    def _send(self, message: Any) -> None:
        try:
            self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            raise _ParentGone from None

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        # What was heard while it ended is worth its price.
        heard = []
        with contextlib.suppress(queue.Empty):
            while True:
                event = self._inbox.get_nowait()
                if isinstance(event, Heard):
                    heard.append(event)
        if heard:
            self._answers.keep(heard)
        self._answers.close()
        self._annotator.close()


def _megabytes() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> int:
    """Reads the orders and serves."""
    # A batch system's signals reach the whole job: the parent decides what they mean.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return 0  # the parent was killed before it had written them
    orders = json.loads(line)
    end_with_parent(sys.stdin.fileno())
    form = next(form for form in FORMS if form.name == orders["form"])
    with Connection(orders["pipe"]) as connection:
        try:
            Desk(connection, ConfigDict(orders["config"]), form).run(orders["first"])
        except UserError as error:
            return _last_words(connection, Refusal(str(error)))
        except Exception:
            return _last_words(connection, Crash(traceback.format_exc()[-_TRACEBACK_LIMIT:]))
    return 0


def _last_words(connection: Connection, message: Refusal | Crash) -> int:
    with contextlib.suppress(OSError):
        connection.send(message)
    return 1


if __name__ == "__main__":
    sys.exit(main())
