"""Asks language models behind any server with the OpenAI protocol: vLLM, llama.cpp, a hosted one.

An event loop in a thread holds the conversations, handles servers' faults, and sends requests
again. The key comes from the environment and never appears in messages.

A question's way: `annotate` or a training calls `submit`; `_ask` holds the conversation,
`_complete` repeats a request whose fault may pass, `_send` sends it once and sorts the faults:
those that may pass (`_passing_status`), those of the question (`RefusedQuestionError`: its answer
is unknown), and those of the config, which end the run (`server_faults.lasting`).
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import math
import queue
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

from motif_jax.core import config as checks
from motif_jax.core.progress import format_seconds
from motif_jax.core.verdicts import UNKNOWN, Form
from motif_jax.motif.annotation import chat, chat_client, openai_account, replies, server_faults
from motif_jax.motif.annotation.annotator import Answer, Preview, Question
from motif_jax.motif.annotation.chat import Conversation, json_option
from motif_jax.motif.annotation.chat_client import StatusError, without_user
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.replies import MalformedReplyError, ServerError
from motif_jax.motif.annotation.server_faults import LIMIT_FIELDS, RefusedQuestionError

# How often a wait for answers returns to the caller.
_HEARTBEAT_SECONDS = 0.25
_MAX_PAUSE_SECONDS = 60.0
# If a server asks for a longer wait, the run ends; it can be resumed later.
_MAX_RETRY_AFTER_SECONDS = 3600.0
# After so many refusals without an answer, the server counts as refusing every question.
_MAX_REFUSED = 32
# In English text. The dry run estimates tokens with it, since a server's tokenizer is unknown.
_CHARACTERS_PER_TOKEN = 4
REFUSED = "refused by the server's content filter"


class OpenAIAnnotator(chat.ChatAnnotator):
    """Asks a chat model through a server. `start` before the first question."""

    in_background = True

    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any = None) -> None:
        settings = config.openai
        self._extra = json_option(config, "openai.extra_body")
        super().__init__(config, form, openai_account.model_identity(config, self._extra))
        self._prefill = self.prompt.answer.prefix.rstrip()
        self.identity = openai_account.as_sent(self.identity, settings, self._prefill)
        self._config = config
        self._settings = settings
        self.concurrency: int = settings.concurrency
        self.prices = openai_account.prices_of(config)

        self._thread: threading.Thread | None = None
        # The field that limits an answer on this server, None where it refuses both.
        self._limit_field: str | None = LIMIT_FIELDS[0]
        # The server wants no requests before this time (monotonic).
        self._quiet_until = -math.inf

        # Of this run: requests that were sent again, by the fault before.
        self._resends: collections.Counter[str] = collections.Counter()
        self._last_fault = ""
        self._answered = 0
        self._refused = 0
        self._in_flight = 0

        # A local server needs no key, but the protocol wants one.
        self._key = openai_account.key_of(settings.key_variable) or "none"
        self._key_pattern = openai_account.key_pattern(self._key)

    @classmethod
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        chat.check_chat(config, form)
        url = config.openai.base_url
        allowed = "a URL such as http://HOST:8000/v1"
        checks.require(chat_client.is_address(url), "openai.base_url", url, allowed)
        openai_account.check(config)

    def live(self) -> dict[str, float | int | str]:
        figures: dict[str, Any] = {
            "retries": self._resends.total(),
            "last_for": self._last_fault,
            "refused": self._refused,
        }
        # The progress line is short: counts of zero are left out.
        happened = {name: figure for name, figure in figures.items() if figure}
        return {"in_flight": self._in_flight, **happened}

    def summary(self) -> dict[str, Any]:
        return {
            **super().summary(),
            "retries": self._resends.total(),
            "retry_causes": dict(self._resends),
            "refused": self._refused,
            "answer_limit": self._limit_field or "the server's own",
        }

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer] | None]:
        unasked = iter(enumerate(questions))
        running: dict[Future[Answer], int] = {}
        done: queue.SimpleQueue[Future[Answer]] = queue.SimpleQueue()
        try:
            while True:
                room = self.concurrency - len(running)
                for position, question in itertools.islice(unasked, room):
                    future = self.submit(question, self._settings.retries)
                    running[future] = position
                    future.add_done_callback(done.put)
                if not running:
                    return
                try:
                    future = done.get(timeout=_HEARTBEAT_SECONDS)
                except queue.Empty:
                    yield None
                else:
                    position = running.pop(future)
                    if future.exception() is not None:  # what has arrived is handed on first
                        finished = [
                            other for other in running if other.done() and not other.exception()
                        ]
                        yield from ((running.pop(other), other.result()) for other in finished)
                    yield position, future.result()
        finally:
            # An error, or a caller that closes the iterator, ends the questions that wait for their
            # answers.
            for future in running:
                future.cancel()

    def start(self) -> None:
        self._client = chat_client.ChatClient(
            self._settings.base_url, self._key, self._settings.timeout_seconds, self.concurrency
        )
        self._loop = asyncio.new_event_loop()
        # A daemon, for which a process that ends by an error does not wait.
        self._thread = threading.Thread(target=self._loop.run_forever, name="openai", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread is None:
            return
        # The client's session must be closed in the loop that made it, before the loop stops.
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._thread = None

    async def _end(self) -> None:
        """Cancels what runs in the loop and closes the connections."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()

    def submit(self, question: Question, resends: int = 0) -> Future[Answer]:
        """Asks in the background; sends a failed request again at most `resends` times. The future
        may raise `ServerError`.
        """
        return asyncio.run_coroutine_threadsafe(self._ask(question, resends), self._loop)

    def ping(self) -> Future[None]:
        """Has the model say one token, in the background; the future may raise `ServerError`."""
        return asyncio.run_coroutine_threadsafe(self._greet(), self._loop)

    def quiet_seconds(self) -> float:
        """Seconds from now in which the server wants no requests; thread safe."""
        return max(0.0, self._quiet_until - time.monotonic())

    async def _greet(self) -> None:
        turns = [{"role": "user", "content": "Hello."}]
        with contextlib.suppress(RefusedQuestionError):
            await self._send({"model": self._settings.model, "messages": turns, "max_tokens": 1})

    async def _ask(self, question: Question, resends: int) -> Answer:
        """Holds a question's conversation, of two turns where the first answer has no verdict."""
        conversation = self.open(question)
        while True:
            try:
                choice = await self._complete(conversation, resends)
            except RefusedQuestionError as error:
                if str(error) == chat.CUT:
                    conversation.cut += 1
                return conversation.answer(UNKNOWN, note=str(error))

            if self.mode == "soft":
                try:
                    log_probabilities = replies.verdict_log_probabilities(
                        choice, self.prompt.answer.verdicts
                    )
                except MalformedReplyError as error:
                    raise self._failure(
                        "cannot do what config.answer.mode=soft needs", error
                    ) from error
                return self.answer_from_log_probabilities(
                    conversation, log_probabilities, self._prefill
                )

            answer = self.read_answer(
                conversation, choice["message"]["content"], choice.get("finish_reason")
            )
            if answer is not None:
                # A proxy may repeat the key in its answer, and conversations are written to disk.
                turns = [
                    {**turn, "content": self._without_key(turn["content"])} for turn in answer.turns
                ]
                return dataclasses.replace(answer, turns=tuple(turns))

    async def _complete(self, conversation: Conversation, resends: int) -> Any:
        """The reply's choice for a conversation's next turn; sends again after faults that may
        pass.
        """
        request = self._request(conversation)
        # Pauses differ by up to a quarter, so that requests which failed together do not come back
        # together.
        jitter = random.Random(conversation.question.id)
        for resend in itertools.count():
            try:
                return await self._send(request, conversation)
            except ServerError as error:
                if not error.kind or resend == resends:
                    raise
                self._last_fault = error.kind
                self._resends[error.kind] += 1
            await asyncio.sleep(min(2.0**resend, _MAX_PAUSE_SECONDS) * jitter.uniform(0.75, 1.25))
        raise AssertionError

    async def _send(self, request: dict[str, Any], conversation: Conversation | None = None) -> Any:
        """Sends a request once and returns the reply's choice; adds the cost to `conversation`.
        Raises ServerError or RefusedQuestionError.
        """
        # The request may hold the limit under the field of an earlier attempt, and another question
        # may have learned meanwhile which field the server takes. Where extra_body has the second
        # field, its value counts.
        limits = [request.pop(name) for name in LIMIT_FIELDS if name in request]
        if limits and self._limit_field is not None:
            request[self._limit_field] = limits[-1]

        # A loop, as other questions may move the end of the pause while this one sleeps.
        while self.quiet_seconds() > 0:
            await asyncio.sleep(self.quiet_seconds())

        self._in_flight += 1
        choice: Any = None
        try:
            usage, choice = replies.checked(await self._client.complete(request))
        except StatusError as error:
            if error.status in server_faults.PASSING_STATUSES:
                raise self._passing_status(error) from error
            self._adapt_or_raise(error, request)
        except TimeoutError as error:
            fault = f"did not answer within {self._settings.timeout_seconds:g} s"
            raise self._failure(fault, error, "no answer in time") from error
        except chat_client.NoConnectionError as error:
            raise self._failure("cannot be reached", error, "no connection") from error
        except MalformedReplyError as error:
            raise self._failure("returned a malformed reply", error, "rubbish") from error
        finally:
            self._in_flight -= 1
        if choice is None:
            # With the limit that the server takes.
            return await self._send(request, conversation)

        if conversation is not None:
            conversation.add_tokens(*usage)
        if choice.get("finish_reason") == "content_filter":
            self._refuse("finish_reason content_filter")
        self._answered += 1
        return choice

    def _passing_status(self, error: StatusError) -> ServerError:
        """The fault of an HTTP status whose cause may pass; records how long the server wants no
        requests.
        """
        kind = f"HTTP {error.status}"
        seconds = chat_client.retry_after(error.headers)
        self._quiet_until = max(
            self._quiet_until, time.monotonic() + min(seconds, _MAX_RETRY_AFTER_SECONDS)
        )
        if seconds > _MAX_RETRY_AFTER_SECONDS:
            return self._failure(f"asks to wait {format_seconds(seconds)}", error)
        return self._failure(f"answers with {kind}", error, kind)

    def _adapt_or_raise(self, error: StatusError, request: dict[str, Any]) -> None:
        """Returns only where the request is to be sent again, with another limit of the answer;
        raises for any other fault.
        """
        text = str(error)
        if replies.CUT.search(text):
            raise RefusedQuestionError(chat.CUT)

        is_too_long = replies.LENGTH.search(text)
        if any(name in text for name in LIMIT_FIELDS):
            # Where the context does not hold the prompt and the longest answer, some errors name
            # both, so the length is checked first. Without a limit the server uses the room that is
            # left.
            if is_too_long or replies.ANSWER_LIMIT.search(text):
                limits = [name for name in LIMIT_FIELDS if name in request]
                if self.mode == "analysis" and limits:
                    # Of a long prompt this request alone; shorter ones keep the limit.
                    for name in limits:
                        del request[name]
                    if not is_too_long:
                        self._limit_field = None
                    return
            elif LIMIT_FIELDS[1] in text and LIMIT_FIELDS[0] in request:
                # Another question may have found that the server takes no limit at all; that stays.
                if self._limit_field is not None:
                    self._limit_field = LIMIT_FIELDS[1]
                return

        if error.status == 400 and is_too_long:
            raise RefusedQuestionError(chat.TOO_LONG)
        if error.status in (400, 403, 422) and replies.CONTENT.search(text):
            self._refuse(error)
        raise self._failure(server_faults.lasting(error, self._settings), error)

    def _refuse(self, error: StatusError | str) -> NoReturn:
        """Counts a question that the server's content filter refuses; a server that refuses all of
        them ends the run.
        """
        self._refused += 1
        if self._refused >= _MAX_REFUSED and not self._answered:
            raise self._failure(
                f"refused all {self._refused} questions by its content filter", error
            )
        raise RefusedQuestionError(REFUSED)

    def _failure(self, fault: str, error: BaseException | str, kind: str = "") -> ServerError:
        """The error of a server in one line, with its cause, without the key. `kind` names a fault
        that may pass.
        """
        url = without_user(self._settings.base_url)
        fault = self._one_line(fault)[:400]
        detail = self._one_line(str(error))[:200] or type(error).__name__
        return ServerError(f"the server {url} {fault} ({detail})", kind)

    def _one_line(self, text: str) -> str:
        return " ".join(self._without_key(text).split())

    def _without_key(self, text: str) -> str:
        """`text` with *** for the key, plain or escaped for JSON and URLs. Call it before a text is
        cut: half a key would stay.
        """
        may_hold_key = self._key != "none" and (self._key in text or "\\" in text or "%" in text)
        return self._key_pattern.sub("***", text) if may_hold_key else text

    def _request(self, conversation: Conversation) -> dict[str, Any]:
        """The body of the request for a conversation's next turn."""
        sampling = self._config.sampling
        request: dict[str, Any] = {"model": self._settings.model, "messages": conversation.turns}
        extra = dict(self._extra)

        if self.mode == "soft":
            request |= replies.SOFT_REQUEST
            if sampling.temperature is not None:
                request["temperature"] = 0
            beginning = {"role": "assistant", "content": self._prefill}
            request["messages"] = [*conversation.turns, beginning]
            extra |= {"add_generation_prompt": False, "continue_final_message": True}
            return request | extra

        if sampling.temperature is not None:
            request["temperature"] = sampling.temperature
        if sampling.top_p is not None:
            request["top_p"] = sampling.top_p
        request["max_tokens"] = (
            sampling.verdict_tokens if self.mode == "verdict" else sampling.max_tokens
        )
        if self._settings.send_top_k:
            extra["top_k"] = sampling.top_k
        seed = self.seed(conversation)
        if self._settings.send_seed and seed is not None:
            request["seed"] = seed

        if self.mode == "verdict":
            if self._settings.structured == "structured_outputs":
                extra["structured_outputs"] = {"choice": list(self.prompt.answer.answers)}
            elif self._settings.structured == "response_format":
                request["response_format"] = self.prompt.answer.schema
        return request | extra

    def preview(self, question: Question) -> Preview:
        turns = self._request(self.open(question))["messages"]
        text = "\n".join(f"[{turn['role']}]\n{turn['content']}" for turn in turns)
        return Preview(text, math.ceil(len(text) / _CHARACTERS_PER_TOKEN), exact=False)
