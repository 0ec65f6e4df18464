"""The two `LabelSource`s: an annotator that answers at once, in the caller's thread, and a server that is asked in the background."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ml_collections import ConfigDict

from motif_jax.datasets.verdicts import PAIR, UNKNOWN, Form
from motif_jax.labels.annotator import Question, make_annotator
from motif_jax.labels.answers import Answers
from motif_jax.labels.asking import Books, labelled
from motif_jax.labels.messages import Answered, Asked, Failed, Greeted, Reply, ServerStatus
from motif_jax.labels.online import Labelled, annotator_config, in_section
from motif_jax.labels.questions import QuestionHasher, is_reversed
from motif_jax.labels.queue import Items
from motif_jax.support.interruption import StoppedError, never

if TYPE_CHECKING:
    from motif_jax.labels.openai_client import OpenAIAnnotator
    from motif_jax.labels.openai_stream import OpenAIStream

# Questions that a call of `poll` asks at most where they are answered at once.
_MOST_AT_ONCE = 256
# How often a thread that waits looks around: whether it is to end, and for questions that wait for a time or for steps of the agent.
_LOOK_SECONDS = 0.25
# Between two tries to reach a server that is not there yet.
_AGAIN_SECONDS = 1.0
# Asked before any text arrives, to see whether an answer comes.
_FIRST = {"single": ("",), "pair": ("", "You kill the newt!")}


class InProcessSource:
    """Answers when it is polled, in this thread: the same calls get the same labels."""

    def __init__(self, config: ConfigDict, form: Form) -> None:
        with in_section():
            self._annotator = make_annotator(annotator_config(config), form)
        self._form = form
        self._books = Books(config, form)
        self._books.identify(dict(self._annotator.identity), self._annotator.prices)
        self._answers = Answers.of(self._annotator.identity, form, config)
        # Of the answers, which are for one thread at a time.
        self._lock = threading.Lock()
        self._closed = False

    def start(self, stopped: Callable[[], bool] = never) -> None:
        """See `LabelSource`; nothing here is waited for."""
        del stopped
        with in_section():
            self._annotator.start()
        self._books.server = ServerStatus(True, time.time())

    def meet(
        self, items: Sequence[Items], counts: Sequence[int], scores: Sequence[float] | None, step: int
    ) -> None:
        self._books.meet(items, counts, scores, step)

    def poll(self) -> list[Labelled]:
        """See `LabelSource`; asks what waits."""
        to_ask = self._open(self._books.take(_MOST_AT_ONCE))
        if to_ask:
            for reply in self._answers.keep(self._ask(to_ask)):
                self._books.answered(reply)
        return self._books.poll()

    def _open(self, asked: Sequence[Asked]) -> list[tuple[int, Question]]:
        """The questions that the store has no answer to, by their numbers; stored answers are counted at once."""
        to_ask = []
        for one in asked:
            opened = self._answers.open(one)
            if isinstance(opened, Reply):
                self._books.answered(opened)
            else:
                to_ask.append((one.number, opened))
        return to_ask

    def _ask(self, to_ask: Sequence[tuple[int, Question]]) -> list[Answered]:
        start = time.monotonic()
        with in_section():
            answers = [
                answered
                for answered in self._annotator.annotate([question for _, question in to_ask])
                if answered is not None
            ]
        seconds = time.monotonic() - start
        return [Answered(*to_ask[place], answer, seconds) for place, answer in answers]

    def known(self, items: Sequence[Items]) -> list[Labelled]:
        found = []
        for item in items:
            question = self._books.question(item)
            with self._lock:
                answer = self._answers.find(question)
            if answer is not None and answer.label != UNKNOWN:
                reply = Reply(0, answer.label, answer.probabilities, answer.attempts, asked=False)
                found.append(labelled(self._form, item, reply, item != question))
                self._books.settle(item)
        return found

    def queued(self) -> int:
        return self._books.queued

    def in_flight(self) -> int:
        return self._books.in_flight

    def metrics(self) -> dict[str, float]:
        return self._books.metrics()

    def state(self) -> dict[str, Any]:
        return self._books.state()

    def restore(self, state: dict[str, Any]) -> None:
        self._books.restore(state)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._answers.close()
            self._annotator.close()


class ServerSource(InProcessSource):
    """Asks a server from a thread: each answer is on the disk before it is a label, and what fails goes back into the queue."""

    def __init__(self, config: ConfigDict, form: Form) -> None:
        super().__init__(config, form)
        self._client = cast("OpenAIAnnotator", self._annotator)
        self._wait_seconds = config.annotator.wait_seconds
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stream: OpenAIStream | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="annotator", daemon=True)

    def start(self, stopped: Callable[[], bool] = never) -> None:
        try:
            with in_section():
                self._annotator.start()
                self._stream = self._client.open_stream(self._events.put)
                self._reach(self._stream, stopped)
        except BaseException:
            self.close()
            raise
        self._thread.start()

    def meet(
        self, items: Sequence[Items], counts: Sequence[int], scores: Sequence[float] | None, step: int
    ) -> None:
        self._check()
        self._books.meet(items, counts, scores, step)
        self._events.put(None)

    def poll(self) -> list[Labelled]:
        self._check()
        return self._books.poll()

    def close(self) -> None:
        if self._closed:
            return
        with self._lock:  # from here on the thread asks nothing
            self._closed = True
        if self._stream is not None:
            self._stream.close()
        if self._thread.is_alive():
            self._events.put(StoppedError())  # behind what was answered meanwhile, which is worth its price
            self._thread.join()
        self._answers.close()
        self._annotator.close()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _reach(self, stream: OpenAIStream, stopped: Callable[[], bool]) -> None:
        """Waits until a question is answered, or a greeting where the question was answered before.

        Raises:
          StoppedError: `stopped` said so meanwhile.
          UserError: there is no answer within `annotator.wait_seconds`, or there will be none.
        """
        deadline = time.monotonic() + self._wait_seconds
        items = _FIRST[self._form.name]
        if self._form is PAIR and is_reversed(QuestionHasher(self._annotator.identity), *items):
            items = items[::-1]
        opened = self._answers.open(Asked(0, items, 0))
        waits = False
        while True:
            if isinstance(opened, Reply):
                stream.greet(0)
            else:
                stream.ask(0, opened)
            event = self._first_event(stopped)
            if isinstance(event, Greeted):
                return
            if isinstance(event, Answered):
                self._books.count(self._answers.keep([event])[0])
                return
            # A server may want to be left alone for longer than is to be waited.
            if not event.passing or time.monotonic() + self._client.rests() >= deadline:
                raise event.error
            if not waits:
                print(f"the annotator waits: {event.error}", file=sys.stderr, flush=True)
                waits = True
            time.sleep(min(_AGAIN_SECONDS, max(0.0, deadline - time.monotonic())))

    def _first_event(self, stopped: Callable[[], bool]) -> Answered | Greeted | Failed:
        while not stopped():
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=_LOOK_SECONDS)
                if isinstance(event, BaseException):
                    raise event
                if isinstance(event, Answered | Greeted | Failed):
                    return event
                self._books.server = event
        raise StoppedError

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

    def _new_events(self) -> list[Any]:
        """New events, or nothing after a while."""
        events = []
        with contextlib.suppress(queue.Empty):
            events.append(self._events.get(timeout=_LOOK_SECONDS))
            while True:
                events.append(self._events.get_nowait())
        return events

    def _take_in(self, events: Sequence[Any]) -> None:
        answered: list[Answered] = []
        error = None
        for event in events:
            match event:
                case Answered():
                    answered.append(event)
                case Failed():
                    self._books.failed(event.number)
                case ServerStatus():
                    self._see(event)
                case BaseException():
                    error = error or event
        if answered:
            with self._lock:
                replies = self._answers.keep(answered)
            for reply in replies:
                self._books.answered(reply)
        # What was answered before a fault is kept, too: it was paid for, and need not be asked again.
        if error is not None:
            raise error

    def _send(self) -> None:
        """Asks what is to be asked, as much as the server gets at a time."""
        while asked := self._books.take(self._client.at_once - self._books.in_flight):
            with self._lock:
                if self._closed:
                    return
                assert self._stream is not None
                for number, question in self._open(asked):
                    self._stream.ask(number, question)

    def _see(self, server: ServerStatus) -> None:
        before, self._books.server = self._books.server, server
        if before.up and not server.up:
            text = f"the annotator has no answers: {server.cause}; training continues"
        elif server.up and before.cause and not before.up:
            text = f"the annotator answers again, after {server.since - before.since:,.0f} s"
        else:
            return
        print(text, file=sys.stderr, flush=True)
