"""Labels for the texts of a training: asks a server in the background, other annotators in the caller's thread."""

from __future__ import annotations

import concurrent.futures
import contextlib
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core.interruption import StoppedError, never
from motif_jax.core.verdicts import UNKNOWN, Form
from motif_jax.motif.annotation.annotator import Answer, Question, make_annotator
from motif_jax.motif.annotation.both_orders import in_default_orders
from motif_jax.motif.annotation.conversations import ConversationLog
from motif_jax.motif.annotation.replies import ServerError
from motif_jax.motif.annotation.store import AnswerStore
from motif_jax.oni.label_config import annotator_config, in_section
from motif_jax.oni.label_queue import Label, LabelBookkeeper
from motif_jax.oni.question_queue import Items, Pending
from motif_jax.rl.config import AgentConfig

# How often a waiting thread checks whether to end, and whether delayed questions may be sent.
_LOOK_SECONDS = 0.25
# Pause between two attempts to reach a server that is still starting.
_AGAIN_SECONDS = 1.0
# While a server is away, one question is sent after each pause, which doubles.
_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 10.0
# Questions asked before any text arrives, to see whether an answer comes.
_FIRST = {"single": ("",), "pair": ("", "You kill the newt!")}
# What wakes the thread: a question that was answered or failed, None for new questions, or the end.
_Event = concurrent.futures.Future[Answer] | StoppedError | None


class LabelService(LabelBookkeeper):
    """Labels texts; one thread may call `enqueue` while another calls `poll`.

    A server's answers are on the disk before they become labels; other annotators answer in `poll`, deterministically.
    """

    def __init__(self, config: AgentConfig, form: Form) -> None:
        section = config.annotator
        with in_section():
            # An `OpenAIAnnotator` where there is a server.
            annotator = make_annotator(annotator_config(config), form)
            self._annotator: Any = in_default_orders(annotator, form)
        published = config.compat.oni_requeue
        about = self._annotator.identity, self._annotator.prices
        super().__init__(config.queue, section.attempts, published, form, *about)
        self._store = AnswerStore(section.store_dir)
        folder = section.conversations_dir
        self._conversations = ConversationLog(Path(folder), "online") if folder else None
        # Guards the store, which one thread at a time may use.
        self._store_lock = threading.Lock()
        self._closed = False
        self._wait_seconds = section.wait_seconds
        self._is_server = self._annotator.in_background
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        # Question in flight -> what it is, and when it was sent (monotonic).
        self._sent: dict[concurrent.futures.Future[Answer], tuple[Pending, Question, float]] = {}
        self._error: BaseException | None = None
        self._answered_at = self._probe_at = float("-inf")
        self._failures = 0
        self._thread = threading.Thread(target=self._work, name="annotator", daemon=True)

    def start(self, stopped: Callable[[], bool] = never) -> None:
        """Reaches the server, and has one question answered. Raises StoppedError, or UserError: the server cannot be used."""
        try:
            with in_section():
                self._annotator.start()
                if self._is_server:
                    self._reach(stopped)
        except BaseException:
            self.close()
            raise
        self.server_up, self.server_since = True, time.time()
        if self._is_server:
            self._thread.start()

    def enqueue(
        self, items: Sequence[Items], counts: Sequence[int], scores: Sequence[float] | None, step: int
    ) -> None:
        """Queues the distinct texts of a batch, each shown at `counts` steps, that have no label yet; never blocks on a server.

        Higher `scores` are asked sooner (queue.order=uncertain). Raises UserError: the annotator failed for good (a full disk).
        """
        self._check()
        super().enqueue(items, counts, scores, step)
        self._events.put(None)

    def poll(self) -> list[Label]:
        self._check()
        if not self._is_server:
            self._ask(self._open(self.take(self._annotator.questions_at_once)))
        return super().poll()

    def close(self) -> None:
        """Ends the annotator; questions in flight are lost. The second call does nothing."""
        with self._store_lock:  # the thread asks nothing any more
            if self._closed:
                return
            self._closed = True
        self._annotator.close()
        if self._thread.is_alive():
            self._events.put(StoppedError())  # after the answers received meanwhile, which were paid for
            self._thread.join()
        self._store.close()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _open(self, taken: Sequence[Pending]) -> list[tuple[Pending, Question]]:
        to_ask = []
        for pending in taken:
            key = self._hasher.items(pending.items, self._form)
            answer = None if self._published else self._store.get(key)
            if answer is not None and (answer.label != UNKNOWN or answer.attempts >= self._attempts):
                self.answered(pending, answer)
                continue
            attempt = max(pending.attempts, answer.attempts if answer is not None else 0)
            to_ask.append((pending, Question(key, pending.items, self._form, attempt=attempt)))
        return to_ask

    def _ask(self, to_ask: Sequence[tuple[Pending, Question]]) -> None:
        if not to_ask:
            return
        start = time.monotonic()
        with in_section():
            answers = list(self._annotator.annotate([question for _, question in to_ask]))
        seconds = time.monotonic() - start
        self._keep([(*to_ask[one[0]], one[1], seconds) for one in answers if one is not None])

    def _keep(self, answered: Sequence[tuple[Pending, Question, Answer, float]]) -> None:
        pairs = [(question, answer) for _, question, answer, _ in answered]
        with self._store_lock:
            stored = self._store.keep(pairs)
            if self._conversations is not None:
                self._conversations.add(pairs)
        for (pending, _, answer, seconds), kept in zip(answered, stored, strict=True):
            self.answered(pending, kept, answer.tokens, seconds, answer.cut)

    def _reach(self, stopped: Callable[[], bool]) -> None:
        """Waits until a question is answered, or a ping if the question was answered before."""
        deadline = time.monotonic() + self._wait_seconds
        to_ask = self._open([Pending(self._question(_FIRST[self._form.name]))])
        waits = False
        while True:
            sent = time.monotonic()
            try:
                for pending, question in to_ask:
                    answer = _result(self._annotator.submit(question), stopped)
                    self._keep([(pending, question, answer, time.monotonic() - sent)])
                if not to_ask:
                    _result(self._annotator.ping(), stopped)
                return
            except ServerError as error:
                # A server may ask for a longer pause than the longest wait.
                rests = self._annotator.quiet_seconds()
                if not error.kind or time.monotonic() + rests >= deadline:
                    raise
                if not waits:
                    print(f"the annotator waits: {error}", file=sys.stderr, flush=True)
                    waits = True
            time.sleep(min(_AGAIN_SECONDS, max(0.0, deadline - time.monotonic())))

    def _work(self) -> None:
        try:
            with in_section():
                while True:
                    self._take_in(self._new_events())
                    self._send()
        except StoppedError:
            return
        except BaseException as error:  # raised in the training's thread, by `_check`
            self._error = error

    def _new_events(self) -> list[_Event]:
        events: list[_Event] = []
        with contextlib.suppress(queue.Empty):
            while True:
                events.append(self._events.get(timeout=0 if events else _LOOK_SECONDS))
        return events

    def _take_in(self, events: Sequence[_Event]) -> None:
        answered = []
        fault: BaseException | None = None
        for event in events:
            if isinstance(event, StoppedError):
                fault = fault or event
            elif event is not None and not event.cancelled():
                pending, question, sent = self._sent.pop(event)
                error = event.exception()
                if error is None:
                    answered.append((pending, question, event.result(), time.monotonic() - sent))
                elif isinstance(error, ServerError):
                    self.failed(pending)
                    self._missed(sent, error)
                else:
                    fault = fault or error
        if answered:
            self._answered_at, self._failures = time.monotonic(), 0
            self._keep(answered)
            self._report(True)
        # Answers before a fault are kept, too: they were paid for.
        if fault is not None:
            raise fault

    def _missed(self, sent: float, error: ServerError) -> None:
        """A failure means that the server is away if nothing was answered since its question was sent."""
        if sent <= self._answered_at:
            return
        self._report(False, error.cause)
        if time.monotonic() >= self._probe_at:
            pause = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 10))
            self._failures += 1
            self._probe_at = time.monotonic() + pause * random.uniform(0.75, 1.25)

    def _send(self) -> None:
        while True:
            most = self._annotator.concurrency
            if not self.server_up:
                most = 1 if time.monotonic() >= self._probe_at else 0
            room = most - self.in_flight()
            with self._store_lock:
                taken = [] if self._closed or room <= 0 else self.take(room)
                for pending, question in self._open(taken):
                    future = self._annotator.submit(question)
                    self._sent[future] = pending, question, time.monotonic()
                    future.add_done_callback(self._events.put)
            if not taken:
                return

    def _report(self, up: bool, cause: str = "") -> None:
        if up == self.server_up:
            return
        before, self.server_up, self.server_since = self.server_since, up, time.time()
        text = f"has no answers: {cause}; training continues"
        text = f"answers again, after {self.server_since - before:,.0f} s" if up else text
        print(f"the annotator {text}", file=sys.stderr, flush=True)


def _result(future: concurrent.futures.Future[Any], stopped: Callable[[], bool]) -> Any:
    while not future.done():
        if stopped():
            raise StoppedError
        concurrent.futures.wait([future], timeout=_LOOK_SECONDS)
    return future.result()
