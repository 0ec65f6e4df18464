"""Questions to a server, on an event loop in a thread of its own: an open stream of them, or a list."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import queue
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from motif_jax.labels.annotator import Answer, Question
from motif_jax.labels.messages import Answered, Deliver, Failed, Greeted, ServerStatus
from motif_jax.labels.replies import ServerError

if TYPE_CHECKING:
    from motif_jax.labels.chat_client import ChatClient
    from motif_jax.labels.openai_client import OpenAIAnnotator

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0
# How often those who wait for answers of a list look around.
_HEARTBEAT_SECONDS = 0.25


def answers(
    annotator: OpenAIAnnotator, questions: Sequence[Question], concurrency: int, retries: int
) -> Iterator[tuple[int, Answer] | None]:
    """Asks a list; yields the place and the answer of each question when it is complete, and None now and then.

    Args:
      annotator: asks one question.
      questions: the list.
      concurrency: questions at a time.
      retries: how often what failed is sent again.

    Raises:
      UserError: a question got no answer after all retries.
    """
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    later = iter(range(min(concurrency, len(questions)), len(questions)))

    def deliver(message: object) -> None:
        results.put(message)
        if isinstance(message, Answered) and (place := next(later, None)) is not None:
            stream.ask(place, questions[place])

    stream = OpenAIStream(annotator, deliver, retries)
    missing = len(questions)
    try:
        for place in range(min(concurrency, missing)):
            stream.ask(place, questions[place])
        while missing:
            try:
                message = results.get(timeout=_HEARTBEAT_SECONDS)
            except queue.Empty:
                yield None
                continue
            if isinstance(message, Answered):
                missing -= 1
                yield message.number, message.answer
            elif isinstance(message, Failed):
                raise message.error
            elif isinstance(message, BaseException):
                raise message
    finally:
        stream.close()


class OpenAIStream:
    """Each question is a task of its own, sent again at most `retries` times; failures are reported."""

    def __init__(self, annotator: OpenAIAnnotator, deliver: Deliver, retries: int = 0) -> None:
        self._annotator, self._deliver, self._retries = annotator, deliver, retries
        self._loop = asyncio.new_event_loop()
        self._gate = Gate(self._loop, deliver)
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: ChatClient | None = None  # there before any question's task begins
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="openai", daemon=True)
        self._thread.start()

    def ask(self, number: int, question: Question) -> None:
        """Asks; `Answered` or `Failed` of this number will be delivered. Never blocks."""

        async def work(client: ChatClient) -> Answered:
            start = time.monotonic()
            answer = await self._annotator.ask(client, number, question, self._retries)
            return Answered(number, question, answer, time.monotonic() - start)

        self._loop.call_soon_threadsafe(self._begin, number, work)

    def greet(self, number: int) -> None:
        """Asks for an answer of one token; `Greeted` or `Failed` of this number will be delivered. Never blocks."""

        async def work(client: ChatClient) -> Greeted:
            await self._annotator.greet(client)
            return Greeted(number)

        self._loop.call_soon_threadsafe(self._begin, number, work)

    def close(self) -> None:
        """Ends it: what is being asked is given up, and nothing more is delivered."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: it is the second time
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def _begin(self, number: int, work: Callable[[ChatClient], Awaitable[Answered | Greeted]]) -> None:
        task = self._loop.create_task(self._answer(number, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, work: Callable[[ChatClient], Awaitable[Answered | Greeted]]) -> None:
        assert self._client is not None
        try:
            await self._gate.turn()
            sent = time.monotonic()
            try:
                answered = await work(self._client)
            except ServerError as error:
                self._gate.failed(sent, error.cause)
                self._deliver(Failed(number, error, error.passing))
            else:
                self._gate.answered()
                self._deliver(answered)
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


class Gate:
    """Lets requests through while the server answers; of those that wait while it does not, one now and then.

    A failure says that the server is down if nothing was answered since its request was sent. Then a request is let through after a
    pause, which grows, and an answer opens the gate.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Deliver) -> None:
        self._loop, self._deliver = loop, deliver
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self._one_may_pass = False
        self._answered_at = float("-inf")
        self._up = True
        self._cause = ""
        self._since = 0.0
        self._reported = False

    async def turn(self) -> None:
        """Waits until a request may be sent."""
        if self._up or self._one_may_pass:
            self._one_may_pass = False
            return
        future = self._loop.create_future()
        self._waiting.append(future)
        await future

    def answered(self) -> None:
        """Takes note of an answer."""
        self._answered_at = time.monotonic()
        self._failures = 0
        if not (self._up and self._reported):
            self._change(True, "")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._let_one_through():
            pass

    def failed(self, sent: float, cause: str) -> None:
        """Takes note of a failure of a request that was sent at a monotonic time."""
        if sent <= self._answered_at:
            return
        if self._up or cause != self._cause:
            self._change(False, cause)
        if self._timer is None:
            pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 10))
            self._failures += 1
            self._timer = self._loop.call_later(pause * random.uniform(0.75, 1.25), self._probe)

    def _probe(self) -> None:
        self._timer = None
        if not self._let_one_through():
            self._one_may_pass = True

    def _let_one_through(self) -> bool:
        """Whether there was one that still waited; others were cancelled because the stream is closed."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return True
        return False

    def _change(self, up: bool, cause: str) -> None:
        if up != self._up or not self._reported:
            self._since = time.time()
        self._up, self._cause, self._reported = up, cause, True
        self._deliver(ServerStatus(up, self._since, cause))
