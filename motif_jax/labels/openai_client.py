"""Language models behind any server that speaks the OpenAI protocol: vLLM, llama.cpp, a hosted one.

What one question takes: its conversation, the faults of servers, and which of them may pass. `openai_stream.py` asks them,
as many at a time as the server bears (`traffic.py`). The key is read from the environment, sent, and shown nowhere.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import math
import os
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from motif_jax.datasets.verdicts import UNKNOWN, Form
from motif_jax.labels.addresses import is_address, proxy_of, without_user
from motif_jax.labels.annotator import Answer, Preview, Prices, Question
from motif_jax.labels.chat import (
    TOO_LONG,
    VERDICT_TOKENS,
    ChatAnnotator,
    Conversation,
    check_chat,
    json_option,
)
from motif_jax.labels.chat_client import ChatClient, NoConnectionError, StatusError
from motif_jax.labels.messages import Deliver
from motif_jax.labels.openai_stream import OpenAIStream, answers
from motif_jax.labels.replies import (
    Rubbish,
    ServerError,
    blames_answer_limit,
    blames_content,
    blames_length,
    checked,
    verdict_log_probabilities,
)
from motif_jax.labels.traffic import LONGEST_RETRY_AFTER_SECONDS, Traffic, retry_after
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError
from motif_jax.support.progress import format_seconds

_LONGEST_WAIT_SECONDS = 60.0
# A server that refuses so many questions and has answered none refuses them all.
_MOST_REFUSED = 32
_CHARACTERS_PER_TOKEN = 4
# What servers call the longest answer: most of them, and those that refuse the first name.
_LIMITS = ("max_tokens", "max_completion_tokens")
# Answers that another try may change, and those that say that the server has too much to do.
_MAY_PASS = frozenset({408, 409, 425, 429, *range(500, 600)})
_TOO_MANY = (429, 503, 529)
REFUSED = "refused by the server's content filter"
# What a request says by itself.
_OWN_FIELDS = ("model", "messages")


class _Refused(Exception):
    """The server will not answer this question; `usage`: tokens (prompt, completion, cached) that it has taken for saying so."""

    def __init__(self, why: str, usage: tuple[int, int, int] = (0, 0, 0)) -> None:
        super().__init__(why)
        self.usage = usage


class _Passing(Exception):
    """A fault that may pass: its cause, the error if it does not, and how long the server wants to be left alone."""

    def __init__(self, cause: str, failure: ServerError, wait: float = 0.0) -> None:
        super().__init__(cause)
        self.cause, self.failure, self.wait = cause, failure, wait


class OpenAIAnnotator(ChatAnnotator):
    """Asks a chat model through a server."""

    def __init__(self, config: Any, form: Form, dataset: Any = None) -> None:
        del dataset  # what it judges is in the items
        settings = config.openai
        self._extra = json_option(config, "openai.extra_body")
        super().__init__(
            config,
            form,
            {
                "annotator": "openai",
                "model": settings.model,
                "revision": settings.revision,
                "structured": settings.structured if config.answer.mode == "verdict" else None,
                "extra_body": self._extra,
            },
        )
        self._config = config
        self._settings = settings
        self._limit: str | None = _LIMITS[0]
        self._traffic = Traffic(settings.concurrency)
        self.at_once = settings.concurrency
        self.prices = _prices(config)
        # A server of one's own wants no key, but the client insists on some text.
        self._key = _key(settings.key_variable) or "none"
        written = (rf"(?:\\?{re.escape(c)}|(?i:\\u{ord(c):04x}|%{ord(c):02x}))" for c in self._key)
        self._key_pattern = re.compile("".join(written))

    @classmethod
    def check(cls, config: Any, form: Form) -> None:
        """Raises UserError for a bad value, or a prompt file or proxy that cannot be used; asks the server nothing."""
        check_chat(config, form)
        url = config.openai.base_url
        checks.require(
            is_address(url),
            "openai.base_url",
            url,
            "a URL such as http://HOST:8000/v1",
        )
        proxy_of(url)
        _key(config.openai.key_variable)
        checks.require(
            bool(config.openai.model), "openai.model", config.openai.model, "the model's name on the server"
        )
        extra = json_option(config, "openai.extra_body")
        allowed = f"without {' and '.join(_OWN_FIELDS)}, which each question sets"
        own = extra.keys() & set(_OWN_FIELDS)
        checks.require(not own, "openai.extra_body", config.openai.extra_body, allowed)

    def live(self) -> dict[str, float | int | str]:
        """Requests on their way, and what was sent again or refused."""
        traffic = self._traffic
        counts: dict[str, float | int | str] = {"in_flight": traffic.running}
        if traffic.last_cause:
            counts |= {"retries": traffic.retries.total(), "last_for": traffic.last_cause}
        if traffic.refused:
            counts["refused"] = traffic.refused
        return counts

    def summary(self) -> dict[str, Any]:
        """The same for summary.json, how many requests the server bore at the end, and how answers were limited."""
        traffic = self._traffic
        counts: dict[str, Any] = {"retries": traffic.retries.total(), "retry_causes": dict(traffic.retries)}
        counts |= {"refused": traffic.refused, "in_flight_limit": int(traffic.limit)}
        return {**counts, "answer_limit": self._limit or "the server's own"}

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer] | None]:
        """Yields each answer when it is complete, and None now and then.

        Raises:
          UserError: the server is down, refuses, hangs or talks rubbish, and continued so after all retries.
        """
        return answers(self, questions, self._settings.concurrency, self._settings.retries)

    def client(self) -> ChatClient:
        """A client of the server; it sends nothing again by itself."""
        settings = self._settings
        return ChatClient(settings.base_url, self._key, settings.timeout_seconds, settings.concurrency)

    def rests(self) -> float:
        """For how many seconds from now the server wants to be left alone."""
        return self._traffic.quiet_seconds()

    def open_stream(self, deliver: Deliver) -> OpenAIStream:
        """Opens a stream of questions: as many requests at a time as the server bears, each sent once.

        `deliver` gets what comes of them (`messages`), from any thread.
        """
        return OpenAIStream(self, deliver)

    async def greet(self, client: ChatClient) -> None:
        """Has the model say one token.

        Raises:
          ServerError: it does not.
        """
        turns = [{"role": "user", "content": "Hello."}]
        request = {"model": self._settings.model, "messages": turns, "max_tokens": 1}
        try:
            await self._send(client, request)
        except _Passing as fault:
            raise fault.failure from fault.failure.__cause__
        except _Refused:
            return  # it was heard

    async def ask(self, client: ChatClient, position: int, question: Question, retries: int) -> Answer:
        """One question's whole conversation; each turn is sent again at most `retries` times.

        Raises:
          ServerError: the server does not answer.
        """
        dialogue = self.open(position, question)
        while True:
            try:
                choice = await self._complete(client, dialogue, retries)
            except _Refused as error:
                return dialogue.answer(UNKNOWN, note=str(error))
            if self.mode == "soft":
                try:
                    masses = verdict_log_probabilities(choice, self.prompt.answer.verdicts)
                except Rubbish as error:
                    raise self._failure("cannot do what config.answer.mode=soft needs", error) from error
                return self.soft(dialogue, masses, self._prefill)
            answer = self.read_answer(dialogue, choice["message"].get("content") or "")
            if answer is not None:
                # The key is no verdict; what is kept of the conversation has none.
                turns = ({**turn, "content": self._blotted(turn["content"])} for turn in answer.turns)
                return dataclasses.replace(answer, turns=tuple(turns))

    @property
    def _prefill(self) -> str:
        return self.prompt.answer.prefix.rstrip()

    async def _complete(self, client: ChatClient, dialogue: Conversation, retries: int) -> Any:
        """One turn, sent again after growing waits while the fault may pass.

        Raises:
          ServerError: the fault does not pass.
          _Refused: the server will not answer this question; what is kept as the reason.
        """
        request = self._request(dialogue)
        spread = random.Random(dialogue.question.id)
        for retry in itertools.count():
            wait = min(2.0**retry, _LONGEST_WAIT_SECONDS) * spread.uniform(0.75, 1.25)
            try:
                usage, choice = await self._send(client, request)
            except _Passing as fault:
                if retry == retries:
                    raise fault.failure from fault.failure.__cause__
                self._traffic.again(fault.cause)
                await asyncio.sleep(max(wait, fault.wait))
            except _Refused as refused:
                dialogue.cost(*refused.usage)
                raise
            else:
                dialogue.cost(*usage)
                return choice
        raise AssertionError

    async def _send(self, client: ChatClient, request: dict[str, Any]) -> tuple[tuple[int, int, int], Any]:
        """Sends a request once: tokens (prompt, completion, cached) and the choice.

        Raises:
          _Passing: another try may help.
          ServerError, _Refused: none will.
        """
        for most in [request.pop(name) for name in _LIMITS if name in request]:
            if self._limit is not None:
                request[self._limit] = most
        try:
            async with self._traffic.turn() as sent:
                usage, choice = checked(await client.complete(request))
        except StatusError as error:
            if error.status in _MAY_PASS:
                raise self._passing(error, sent) from error
            self._lasting(error, request)
            return await self._send(client, request)  # without what the server did not like
        except TimeoutError as error:
            self._traffic.too_many(sent)
            what = f"hangs: no answer within {self._settings.timeout_seconds:g} s"
            raise _Passing("no answer in time", self._failure(what, error, passing=True)) from error
        except NoConnectionError as error:
            failure = self._failure("cannot be reached", error, passing=True)
            raise _Passing("no connection", failure) from error
        except Rubbish as error:
            raise _Passing("rubbish", self._failure("returns rubbish", error)) from error
        if choice.get("finish_reason") == "content_filter":
            self._refuse("finish_reason content_filter", usage)
        self._traffic.answer()
        return usage, choice

    def _passing(self, error: StatusError, sent: float) -> _Passing:
        """The fault that an HTTP status says, after which the server may want to be left alone."""
        cause, asked = f"HTTP {error.status}", retry_after(error.headers)
        if asked > LONGEST_RETRY_AFTER_SECONDS:
            self._traffic.too_many(sent, LONGEST_RETRY_AFTER_SECONDS)  # for those who continue without it
            raise self._failure(f"asks to wait {format_seconds(asked)}", error)
        if error.status in _TOO_MANY or asked:
            self._traffic.too_many(sent, asked)
        return _Passing(cause, self._failure(f"answers with {cause}", error, passing=True), asked)

    def _lasting(self, error: StatusError, request: dict[str, Any]) -> None:
        """Raises for an answer that will be the same the next time; returns if the answer is to be limited otherwise."""
        said = str(error)
        if any(name in said for name in _LIMITS):
            # Some name both where the context does not hold the longest answer besides the prompt, so the length comes first;
            # without a limit the server sees to what is left.
            if blames_length(said) or blames_answer_limit(said):
                if self.mode == "analysis" and any(name in request for name in _LIMITS):
                    self._limit = None
                    return
            elif _LIMITS[1] in said and _LIMITS[0] in request:
                self._limit = self._limit and _LIMITS[1]
                return
        if error.status == 400 and blames_length(said):
            raise _Refused(TOO_LONG)
        if error.status in (400, 403, 422) and blames_content(said):
            self._refuse(error)
        raise self._failure(self._blamed(error), error)

    def _blamed(self, error: StatusError) -> str:
        """What a status blames that will be the same the next time."""
        settings, said = self._settings, str(error)
        if 300 <= error.status < 400:
            there = error.headers.get("location", "another address").removesuffix("/chat/completions")
            return f"sends requests on to {without_user(there)}: set config.openai.base_url to where they are answered"
        if error.status == 401:
            return f"refuses the key of the environment variable {settings.key_variable}"
        if error.status == 403:
            return f"refuses the request, or the key of the environment variable {settings.key_variable}, with HTTP 403"
        if error.status == 404 and settings.model not in said:
            return (
                f"does not know config.openai.model={settings.model}, or has no chat/completions there: config.openai.base_url "
                "commonly ends in /v1"
            )
        if error.status == 404:
            return f"does not know config.openai.model={settings.model}"
        return f"refuses the request with HTTP {error.status}"

    def _refuse(self, error: StatusError | str, usage: tuple[int, int, int] = (0, 0, 0)) -> NoReturn:
        """Raises: this question is unknown, unless the server refuses every one."""
        traffic = self._traffic
        traffic.refused += 1
        if traffic.refused >= _MOST_REFUSED and not traffic.answered:
            raise self._failure(f"refused all of {traffic.refused} questions by their content", error)
        raise _Refused(REFUSED, usage)

    def _failure(self, what: str, error: BaseException | str, passing: bool = False) -> ServerError:
        """The one line about a server, with its cause; the key never stands in it."""
        what, detail = (" ".join(self._blotted(str(text)).split()) for text in (what, error))
        advice = "everything answered so far is kept, the same command resumes from there"
        where, detail = without_user(self._settings.base_url), detail[:200] or type(error).__name__
        failure = ServerError(f"the server {where} {what[:400]} ({detail})", advice, passing)
        failure.__cause__ = error if isinstance(error, BaseException) else None
        return failure

    def _blotted(self, text: str) -> str:
        """`text` without the key, as it is or as JSON and addresses write it; before anything is cut off, which may leave a part."""
        may_hold_it = self._key != "none" and (self._key in text or "\\" in text or "%" in text)
        return self._key_pattern.sub("***", text) if may_hold_it else text

    def _request(self, dialogue: Conversation) -> dict[str, Any]:
        sampling = self._config.sampling
        request: dict[str, Any] = {"model": self._settings.model, "messages": dialogue.turns}
        extra = dict(self._extra)
        if self.mode == "soft":
            request |= {"temperature": 0, "max_tokens": 2, "logprobs": True, "top_logprobs": 20}
            request["messages"] = [*dialogue.turns, {"role": "assistant", "content": self._prefill}]
            extra |= {"add_generation_prompt": False, "continue_final_message": True}
            return request | extra
        request |= {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
        }
        if self._settings.send_top_k:
            extra["top_k"] = sampling.top_k
        if self._settings.send_seed and (seed := self.seed(dialogue)) is not None:
            request["seed"] = seed
        if self.mode == "verdict":
            request["max_tokens"] = VERDICT_TOKENS
            if self._settings.structured == "structured_outputs":
                extra["structured_outputs"] = {"choice": list(self.prompt.answer.answers)}
            elif self._settings.structured == "response_format":
                request["response_format"] = self.prompt.answer.schema
        return request | extra

    def preview(self, question: Question) -> Preview:
        """The turns as they are sent; the server's template and tokenizer are not at hand."""
        turns = self._request(self.open(0, question))["messages"]
        text = "\n".join(f"[{turn['role']}]\n{turn['content']}" for turn in turns)
        return Preview(text, math.ceil(len(text) / _CHARACTERS_PER_TOKEN), exact=False)


def _prices(config: Any) -> Prices | None:
    prices = config.openai.prices
    if not (prices.prompt or prices.cached or prices.completion):
        return None
    return Prices(prices.prompt, prices.prompt if prices.cached is None else prices.cached, prices.completion)


def _key(variable: str) -> str:
    """The key in an environment variable, without the line's end that files of secrets leave behind it.

    Raises:
      UserError: it cannot be sent.
    """
    key = os.environ.get(variable, "").strip()
    if not key.isprintable():
        raise UserError(
            f"the environment variable {variable} holds characters that no key can have, such as a line's end"
        )
    return key
