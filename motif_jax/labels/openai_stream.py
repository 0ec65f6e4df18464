"""Asks a server many questions at a time, on an event loop in its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from motif_jax.labels.annotator import Answer, Question
from motif_jax.labels.replies import ServerError

if TYPE_CHECKING:
    from motif_jax.labels.chat_client import ChatClient
    from motif_jax.labels.openai_client import OpenAIAnnotator

# Polling interval of waits for answers to a list, in seconds.
_HEARTBEAT_SECONDS = 0.25


class QuestionOutcome(NamedTuple):
    """The outcome of a question.

    Attributes:
      sent: when it was sent, monotonic clock.
      answer: None for an answered ping, and with an error.
      error: the server's, if it has not answered.
    """

    number: int
    sent: float
    answer: Answer | None = None
    error: ServerError | None = None


# Takes a `QuestionOutcome`, or an exception that ends the stream, from any thread.
Deliver = Callable[[Any], None]


def answers(
    annotator: OpenAIAnnotator, questions: Sequence[Question], retries: int
) -> Iterator[tuple[int, Answer] | None]:
    """Asks a list; yields the index and the answer of each question when it is complete, and None now and then.

    Raises:
      UserError: a question got no answer after all retries.
    """
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    rest = iter(enumerate(questions))

    def deliver(message: object) -> None:
        results.put(message)
        if isinstance(message, QuestionOutcome) and message.answer is not None:
            for index, question in itertools.islice(rest, 1):
                stream.ask(index, question)

    stream = OpenAIStream(annotator, deliver, retries)
    missing = len(questions)
    try:
        for index, question in list(itertools.islice(rest, annotator.concurrency)):
            stream.ask(index, question)
        while missing:
            try:
                message = results.get(timeout=_HEARTBEAT_SECONDS)
            except queue.Empty:
                yield None
                continue
            error = message.error if isinstance(message, QuestionOutcome) else message
            if error is not None:
                raise error
            missing -= 1
            yield message.number, message.answer
    finally:
        stream.close()


class OpenAIStream:
    """Each question is a task, sent again at most `retries` times."""

    def __init__(self, annotator: OpenAIAnnotator, deliver: Deliver, retries: int = 0) -> None:
        self._annotator, self._deliver, self._retries = annotator, deliver, retries
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: ChatClient | None = None  # there before any question's task begins
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="openai", daemon=True)
        self._thread.start()

    def ask(self, number: int, question: Question | None) -> None:
        """Asks, or pings for None; delivers a `QuestionOutcome` of this number later. Never blocks."""
        self._loop.call_soon_threadsafe(self._begin, number, question)

    def close(self) -> None:
        """Cancels the questions in flight; delivers nothing more."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: it is the second time
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def _begin(self, number: int, question: Question | None) -> None:
        task = self._loop.create_task(self._answer(number, question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, question: Question | None) -> None:
        assert self._client is not None
        sent, answer = time.monotonic(), None
        try:
            if question is None:
                await self._annotator.greet(self._client)
            else:
                answer = await self._annotator.ask(self._client, number, question, self._retries)
            self._deliver(QuestionOutcome(number, sent, answer))
        except ServerError as error:
            self._deliver(QuestionOutcome(number, sent, error=error))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # reported in the thread that opened the stream
            self._deliver(error)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as error:  # reported in the thread that opened the stream
            self._deliver(error)
        finally:
            self._loop.close()

    async def _live(self) -> None:
        async with self._annotator.client() as self._client:
            await self._closing.wait()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
