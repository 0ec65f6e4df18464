"""Labels for the texts of a training: asks a server in the background, other annotators in the
caller's thread.

With a server three threads meet here:

    the training's    `enqueue` queues questions, `poll` takes the labels that have arrived; neither
                      ever waits for the server
    annotator         `_work` of this file: sends questions, writes answers to the store, makes
                      labels of them
    openai            the event loop of `openai_client`, which ends the futures that `submit`
                      returns

So a label that arrives while the training computes an update is written and waits in `label_queue`,
until `poll` takes it before the next batch that the batcher assembles (see `OnlineReward.pay`). Any
other annotator answers in `poll`, and the batcher waits for it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import math
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from motif_jax.core.interruption import StoppedError, never
from motif_jax.core.verdicts import Form
from motif_jax.motif.annotation.annotator import (
    Answer,
    Question,
    ServerError,
    check_annotator,
    check_answer,
    check_keys_of_others,
    make_annotator,
)
from motif_jax.motif.annotation.both_orders import in_default_orders
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.store import AnswerStore, is_settled
from motif_jax.oni.label_queue import Items, Label, LabelBookkeeper, Pending
from motif_jax.rl.config import AgentConfig
from motif_jax.schema import read_open_section

# Folder of a run's own answer store, in the run folder.
STORE = "answers"
# How often a waiting thread checks whether to end, and whether delayed questions may be sent.
WAKE_SECONDS = 0.25
# Pause between two attempts to reach a server that is still starting.
_REACH_PAUSE_SECONDS = 1.0
# While a server is away, one question is sent after each pause, which doubles.
_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 10.0
# Question of each form that is asked before any text arrives, to see whether an answer comes.
_FIRST_QUESTION = {"single": ("",), "pair": ("", "You kill the newt!")}
# What wakes the thread: a question that was answered or failed, None for new questions, or the end.
_Event = concurrent.futures.Future[Answer] | StoppedError | None


def check(config: AgentConfig, form: Form) -> None:
    """Raises UserError for a bad value of the sections; asks no server and loads no model."""
    check_annotator(annotator_config(config), form)
    check_keys_of_others(annotator_config(config))


def annotator_config(config: AgentConfig) -> AnnotatorConfig:
    """The section `annotator` in the form that annotators read."""
    values = {**vars(config.annotator), "annotator": config.annotator.kind, "compat": config.compat}
    return read_open_section(AnnotatorConfig, values)


def in_run(config: AgentConfig, folder: str | os.PathLike[str]) -> AgentConfig:
    """`config` with the default of the answer store in a run's folder."""
    section = config.annotator
    store = section.store_dir or os.path.join(folder, STORE)
    return dataclasses.replace(config, annotator=dataclasses.replace(section, store_dir=store))


class LabelService(LabelBookkeeper):
    """Labels texts; one thread may call `enqueue` while another calls `poll`.

    A server's answers are on the disk before they become labels; other annotators answer in `poll`,
    deterministically.
    """

    def __init__(self, config: AgentConfig, form: Form) -> None:
        section = config.annotator
        # An `OpenAIAnnotator` where there is a server.
        annotator = make_annotator(annotator_config(config), form)
        self._annotator: Any = in_default_orders(annotator, form)
        super().__init__(
            config.queue,
            section.attempts,
            published=config.compat.oni_requeue,
            form=form,
            identity=self._annotator.identity,
            prices=self._annotator.prices,
        )
        self._store = AnswerStore(section.store_dir, self._hasher.judge)
        # Guards the store, which one thread at a time may use.
        self._store_lock = threading.Lock()
        self._closed = False
        self._wait_seconds = section.wait_seconds
        self._is_server = self._annotator.in_background

        # Of the thread "annotator" alone, but for `_events` and `_error`.
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        # Future of a question in flight -> the question, and when it was sent (monotonic).
        self._sent: dict[concurrent.futures.Future[Answer], tuple[Pending, Question, float]] = {}
        self._error: BaseException | None = None
        # The last answer, and the earliest time of the next question to a server that is away
        # (monotonic).
        self._last_answer = -math.inf
        self._next_probe = -math.inf
        self._failures = 0
        self._thread = threading.Thread(target=self._work, name="annotator", daemon=True)

    def start(self, stopped: Callable[[], bool] = never) -> None:
        """Reaches the server, and has one question answered. Raises StoppedError, or UserError: the
        server cannot be used.
        """
        try:
            self._annotator.start()
            if self._is_server:
                self._reach(stopped)
        except BaseException:
            self.close()
            raise
        self.server_up = True
        self.server_since = time.time()
        if self._is_server:
            self._thread.start()

    def enqueue(
        self,
        items: Sequence[Items],
        counts: Sequence[int],
        scores: Sequence[float] | None,
        step: int,
    ) -> None:
        """Queues the distinct texts of a batch, each shown at `counts` steps, that have no label
        yet; never waits for a server.

        Higher `scores` are asked sooner (queue.order=uncertain). Raises UserError: the annotator
        failed for good (a full disk).
        """
        self._check()
        super().enqueue(items, counts, scores, step)
        # Wakes the thread, which looks into the queue itself.
        if self._is_server:
            self._events.put(None)

    def poll(self) -> list[Label]:
        """The labels that have arrived since the last call. An annotator without a server answers
        its questions now.

        Raises UserError as `enqueue`.
        """
        self._check()
        if not self._is_server:
            self.ask_now(self._annotator.questions_at_once)
        return super().poll()

    def ask_now(self, limit: int) -> None:
        """Has at most `limit` of the questions in the queue answered by an annotator without a
        server; UserError as `poll`.
        """
        self._ask(self._without_stored(self.take(limit)))

    def close(self) -> None:
        """Ends the annotator; questions in flight are lost. The second call does nothing."""
        # With the lock, so that the thread asks nothing after this.
        with self._store_lock:
            if self._closed:
                return
            self._closed = True
        # Its open questions end as cancelled, and are not written.
        self._annotator.close()
        if self._thread.is_alive():
            # After the answers in the queue of events, which were paid for and are still written.
            self._events.put(StoppedError())
            self._thread.join()
        # Last, when no thread writes any more.
        self._store.close()

    def _check(self) -> None:
        """Raises the error that ended the thread, in the thread of the training."""
        if self._error is not None:
            raise self._error

    def _without_stored(self, questions: Sequence[Pending]) -> list[tuple[Pending, Question]]:
        """The questions that have to be asked; the others are answered from the store."""
        to_ask = []
        for pending in questions:
            key = self._hasher.id_of_texts(pending.items, self._form)
            answer = None if self._published else self._store.get(key)
            # A verdict is final; without one a question is asked again while attempts are left.
            if answer is not None and is_settled(answer, self._attempts):
                self.answered(pending, answer)
                continue
            stored_attempts = answer.attempts if answer is not None else 0
            attempt = max(pending.attempts, stored_attempts)
            to_ask.append((pending, Question(key, pending.items, self._form, attempt=attempt)))
        return to_ask

    def _ask(self, to_ask: Sequence[tuple[Pending, Question]]) -> None:
        """Asks an annotator without a server, and waits for its answers."""
        if not to_ask:
            return
        start = time.monotonic()
        answers = list(self._annotator.annotate([question for _, question in to_ask]))
        seconds = time.monotonic() - start
        answered = []
        for position_and_answer in answers:
            if position_and_answer is not None:
                position, answer = position_and_answer
                pending, question = to_ask[position]
                answered.append((pending, question, answer, seconds))
        self._keep(answered)

    def _keep(self, answered: Sequence[tuple[Pending, Question, Answer, float]]) -> None:
        """Writes answers (with the seconds that each took), and only then makes labels of them;
        UserError as `check_answer`.
        """
        if not answered:
            return
        pairs = [(question, answer) for _, question, answer, _ in answered]
        for question, answer in pairs:
            check_answer(self._annotator, question, answer)
        with self._store_lock:
            stored = self._store.keep(pairs)
        for (pending, _, answer, seconds), stored_answer in zip(answered, stored, strict=True):
            self.answered(pending, stored_answer, answer.tokens, seconds, answer.cut)

    def _reach(self, stopped: Callable[[], bool]) -> None:
        """Waits until a question is answered, or a ping if the question was answered before."""
        deadline = time.monotonic() + self._wait_seconds
        first_question = Pending(self._question(_FIRST_QUESTION[self._form.name]))
        to_ask = self._without_stored([first_question])
        has_reported = False
        while True:
            sent = time.monotonic()
            try:
                for pending, question in to_ask:
                    answer = _wait_for(self._annotator.submit(question), stopped)
                    self._keep([(pending, question, answer, time.monotonic() - sent)])
                if not to_ask:
                    _wait_for(self._annotator.ping(), stopped)
                return
            except ServerError as error:
                # A server may ask for a longer pause than the longest wait.
                quiet_seconds = self._annotator.quiet_seconds()
                if not error.kind or time.monotonic() + quiet_seconds >= deadline:
                    raise
                if not has_reported:
                    print(f"the annotator waits: {error}", file=sys.stderr, flush=True)
                    has_reported = True
            time.sleep(min(_REACH_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))

    def _work(self) -> None:
        """The thread "annotator": handles answers and failures, then sends as many questions as
        there is room for.
        """
        try:
            while True:
                self._handle(self._new_events())
                self._send()
        except StoppedError:
            return
        except BaseException as error:  # raised in the training's thread, by `_check`
            self._error = error

    def _new_events(self) -> list[_Event]:
        """Waits for an event, but not long, and returns it with all others that are there."""
        events: list[_Event] = []
        with contextlib.suppress(queue.Empty):
            while True:
                # Waits for the first one only.
                events.append(self._events.get(timeout=0 if events else WAKE_SECONDS))
        return events

    def _handle(self, events: Sequence[_Event]) -> None:
        """Keeps the answers among the events. Raises the first fault among them that cannot
        pass.
        """
        answered = []
        failures: list[tuple[float, ServerError]] = []  # when it was sent, and its error
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
                    failures.append((sent, error))
                else:
                    fault = fault or error
        if answered:
            self._last_answer = time.monotonic()
            self._failures = 0
            self._keep(answered)
            self._set_server_up(True)
        # After the answers: a server that gave some is not away.
        for sent, error in failures:
            self._note_failure(sent, error)
        # Only now, so that answers before a fault are kept, too: they were paid for.
        if fault is not None:
            raise fault

    def _note_failure(self, sent: float, error: ServerError) -> None:
        """A failure means that the server is away if nothing was answered since its question was
        sent.
        """
        if sent <= self._last_answer:
            return
        self._set_server_up(False, error.cause)
        # Many questions fail together when a server goes away; they lengthen the pause once.
        if time.monotonic() >= self._next_probe:
            pause = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 10))
            self._failures += 1
            self._next_probe = time.monotonic() + pause * random.uniform(0.75, 1.25)

    def _send(self) -> None:
        """Sends questions until the server has as many as it takes; one after each pause while it
        is away.
        """
        while True:
            limit = self._annotator.concurrency
            if not self.server_up:
                # One question tries whether the server is back.
                limit = 1 if time.monotonic() >= self._next_probe else 0
            room = limit - self.in_flight()
            with self._store_lock:
                questions = [] if self._closed or room <= 0 else self.take(room)
                for pending, question in self._without_stored(questions):
                    future = self._annotator.submit(question)
                    # Before the callback, which runs at once where the future is done.
                    self._sent[future] = (pending, question, time.monotonic())
                    future.add_done_callback(self._events.put)
            # Answers from the store leave room, so that more may be taken.
            if not questions:
                return

    def _set_server_up(self, up: bool, cause: str = "") -> None:
        """Prints a line where the server went away or came back."""
        if up == self.server_up:
            return
        seconds = time.time() - self.server_since
        self.server_up = up
        self.server_since = time.time()
        if up:
            text = f"answers again, after {seconds:,.0f} s"
        else:
            text = f"has no answers: {cause}; training continues"
        print(f"the annotator {text}", file=sys.stderr, flush=True)


def _wait_for(future: concurrent.futures.Future[Any], stopped: Callable[[], bool]) -> Any:
    """The result of a future. Raises StoppedError once `stopped()` is true."""
    while not future.done():
        if stopped():
            raise StoppedError
        concurrent.futures.wait([future], timeout=WAKE_SECONDS)
    return future.result()
