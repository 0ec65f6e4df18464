"""Asks language models behind any server with the OpenAI protocol: vLLM, llama.cpp, a hosted one.

An event loop in a thread holds the conversations and sends requests by aiohttp, not by the `openai`
package: a request takes 0.2 ms of processor time instead of 1.7, which matters to a training on few
cores. The key comes from the environment and never appears in messages or stored conversations.

A question's way: `annotate` or a training calls `submit`; `_ask` holds the conversation,
`_complete` repeats a request whose fault may pass, `_send` sends it and sorts the faults: those
that may pass (a `ServerError` with a `kind`), those of the question (`RefusedQuestionError`: its
answer is unknown), and those of the config, which end the run.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import email.utils
import itertools
import math
import os
import queue
import random
import re
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import aiohttp
from yarl import URL

from motif_jax.core import config as checks
from motif_jax.core.files import parse_json
from motif_jax.core.progress import format_seconds
from motif_jax.core.verdicts import UNKNOWN, Form
from motif_jax.motif.annotation import chat
from motif_jax.motif.annotation.annotator import Answer, Preview, Prices, Question, ServerError
from motif_jax.motif.annotation.chat import Conversation
from motif_jax.motif.annotation.config import AnnotatorConfig, OpenaiServer, json_option

# Fields that limit an answer: the one that nearly all servers take, then that of servers that
# refuse the first.
_LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
# Fields of a request that `openai.extra_body` may not have.
_RESERVED = frozenset({"model", "messages", "n", "stream"})
# HTTP statuses whose cause may pass: timeouts, conflicts, too many requests, faults of the server.
_PASSING_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})
# HTTP statuses that may blame the content of a request.
_CONTENT_STATUSES = frozenset({400, 403, 413, 422})
# Servers commonly close a connection that was idle for 5 seconds; one that is closed while a
# request is sent is lost.
_IDLE_SECONDS = 4.0
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
# Largest sum of the verdicts' probabilities: servers round them.
_MAX_MASS = 1.01
# Fields of a request for the verdicts' probabilities, part of the identity of stored answers. One
# token is the verdict; the first may be a blank that the tokenizer puts before it.
_SOFT_REQUEST = {"max_tokens": 2, "logprobs": True, "top_logprobs": 20}
# Blanks and line ends of vocabularies: "\u2581A" of SentencePiece, "\u0120A" of byte-level pieces.
_RAW_BLANKS = "\u2581\u0120\u010a"
# vLLM with --return-tokens-as-token-ids.
_TOKEN_ID = re.compile(r"token_id:\d+")
# A number of tokens that no reply has.
_MAX_TOKENS = 1 << 40
# Words of a refusal that blames the content of a prompt, its length, or the longest answer asked
# for.
_CONTENT = re.compile(
    "content[ _]filter|content management policy|content[ _]policy|usage polic|policy ?violation|moderation|flagged|"
    "safety (system|reasons)|inappropriate content|invalid_prompt|data_inspection",
    re.IGNORECASE,
)
_LENGTH = re.compile(
    "context[ _]length|maximum context|maximum number of tokens|too long|too many tokens|exceeds the available",
    re.IGNORECASE,
)
# OpenAI reports an answer of a reasoning model which its limit cut as an error.
_CUT = re.compile("could not finish the message|output limit was reached", re.IGNORECASE)
_ANSWER_LIMIT = re.compile("too large|cannot be greater than|max_model_len", re.IGNORECASE)


class RefusedQuestionError(Exception):
    """The server refuses this question; the text is the note of its unknown answer."""


class MalformedReplyError(ValueError):
    """A reply that violates the protocol."""


class Reply(NamedTuple):
    """What a server sends back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def post(session: aiohttp.ClientSession, url: URL, request: Mapping[str, Any]) -> Reply:
    """Sends a request once. Redirects are not followed: the key must not go to another address."""
    async with session.post(url, json=request, allow_redirects=False) as response:
        return Reply(response.status, response.headers, await response.read())


class OpenAIAnnotator(chat.ChatAnnotator):
    """Asks a chat model through a server. `start` before the first question."""

    in_background = True

    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any = None) -> None:
        settings = config.openai
        self._extra = json_option(config, "openai.extra_body")
        model = {
            "annotator": "openai",
            "model": settings.model,
            "revision": settings.revision,
            "structured": settings.structured if config.answer.mode == "verdict" else None,
            "extra_body": self._extra,
        }
        super().__init__(config, form, model)
        self._prefill = self.prompt.answer.prefix.rstrip()
        self.identity = _as_sent(self.identity, settings, self._prefill)
        self._config = config
        self._settings = settings
        self.concurrency: int = settings.concurrency
        self.prices = _prices(settings)

        base_url = URL(settings.base_url)
        # A query, such as ?api-version=, stays behind the path.
        self._url = base_url.joinpath("chat", "completions").with_query(base_url.query)
        # For messages, without what may be a password.
        self._address = str(base_url.with_user(None).with_query(None))
        self._thread: threading.Thread | None = None
        self._limit_field = _LIMIT_FIELDS[0]
        # The server wants no requests before this time (monotonic).
        self._quiet_until = -math.inf

        # Of this run: requests that were sent again, by the fault before.
        self._resends: collections.Counter[str] = collections.Counter()
        self._last_fault = ""
        self._answered = 0
        self._refused = 0
        self._in_flight = 0

        # Files of secrets end with a line end.
        self._key = os.environ.get(settings.key_variable, "").strip()
        self._key_pattern = _key_pattern(self._key) if self._key else None

    @classmethod
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        chat.check_chat(config, form)
        settings = config.openai
        allowed = "a URL such as http://HOST:8000/v1"
        checks.require(
            _is_address(settings.base_url), "openai.base_url", settings.base_url, allowed
        )
        reserved = json_option(config, "openai.extra_body").keys() & _RESERVED
        allowed = (
            "without model, messages, n and stream: a question is one request of one whole answer"
        )
        checks.require(not reserved, "openai.extra_body", settings.extra_body, allowed)

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
        self._loop = asyncio.new_event_loop()
        # A daemon, for which a process that ends by an error does not wait.
        self._thread = threading.Thread(target=self._loop.run_forever, name="openai", daemon=True)
        self._thread.start()
        self._session = asyncio.run_coroutine_threadsafe(self._connect(), self._loop).result()

    def close(self) -> None:
        if self._thread is None:
            return
        # The client's session must be closed in the loop that made it, before the loop stops.
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._thread = None

    async def _connect(self) -> aiohttp.ClientSession:
        # aiohttp makes the Authorization header of a user in the address, and a request may have
        # only one. A local server needs no key, but the protocol wants one.
        headers = {} if self._url.user else {"Authorization": f"Bearer {self._key or 'none'}"}
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.concurrency, keepalive_timeout=_IDLE_SECONDS),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=self._settings.timeout_seconds, sock_connect=30),
            # The proxies of the environment (`https_proxy`, `no_proxy`).
            trust_env=True,
        )

    async def _end(self) -> None:
        """Cancels what runs in the loop and closes the connections."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()

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
                    log_probabilities = verdict_log_probabilities(
                        choice, self.prompt.answer.verdicts
                    )
                except MalformedReplyError as error:
                    raise self._failure(
                        "cannot do what config.answer.mode=soft needs", str(error)
                    ) from error
                return self.answer_from_log_probabilities(conversation, log_probabilities)

            # A proxy may repeat the key in its answer, and conversations are written to disk.
            text = self._without_key(choice["message"]["content"])
            answer = self.read_answer(conversation, text, choice.get("finish_reason"))
            if answer is not None:
                return answer

    async def _complete(self, conversation: Conversation, resends: int) -> dict[str, Any]:
        """The reply's choice for a conversation's next turn; sends again after faults that may
        pass, and adds the cost to `conversation`.
        """
        request = self._request(conversation)
        # Pauses differ by up to a quarter, so that requests which failed together do not come back
        # together.
        jitter = random.Random(conversation.question.id)
        for resend in itertools.count():
            try:
                tokens, choice = await self._send(request)
            except ServerError as error:
                if not error.kind or resend == resends:
                    raise
                self._last_fault = error.kind
                self._resends[error.kind] += 1
            else:
                conversation.add_tokens(*tokens)
                if choice.get("finish_reason") == "content_filter":
                    raise self._filtered("finish_reason content_filter")
                self._answered += 1
                return choice
            await asyncio.sleep(min(2.0**resend, _MAX_PAUSE_SECONDS) * jitter.uniform(0.75, 1.25))
        raise AssertionError

    async def _send(self, request: dict[str, Any]) -> tuple[tuple[int, int, int], dict[str, Any]]:
        """The tokens and the choice of the reply to a request, which is changed and sent again
        where the server refuses its limit. Raises ServerError or RefusedQuestionError.
        """
        while True:
            if self._limit_field == _LIMIT_FIELDS[1] and _LIMIT_FIELDS[0] in request:
                limit = request.pop(_LIMIT_FIELDS[0])
                # extra_body may have the second field, and its value counts.
                request.setdefault(_LIMIT_FIELDS[1], limit)

            # A loop, as other questions may move the end of the pause while this one sleeps.
            while self.quiet_seconds() > 0:
                await asyncio.sleep(self.quiet_seconds())
            status, headers, body = await self._post(request)
            text = body.decode(errors="replace")

            if 200 <= status < 300:
                try:
                    return checked(parse_json(body))
                except ValueError as error:
                    detail = f"{error}: {text}"
                    raise self._failure("returned a malformed reply", detail, "rubbish") from error
            if status in _PASSING_STATUSES:
                raise self._passing(status, headers, text)
            if status in _CONTENT_STATUSES:
                if _CUT.search(text):
                    raise RefusedQuestionError(chat.CUT)
                if self._adapt(request, text):
                    continue
                if _LENGTH.search(text):
                    raise RefusedQuestionError(chat.TOO_LONG)
                if _CONTENT.search(text):
                    raise self._filtered(text)

            key = f"the key of {self._settings.key_variable}" if self._key else "no key"
            fault = f"refuses a request for config.openai.model={self._settings.model} with {key} by HTTP {status}"
            location = headers.get("Location", "")
            raise self._failure(fault, f"redirects to {location}" if location else text)

    async def _post(self, request: Mapping[str, Any]) -> Reply:
        """Sends a request once. Raises ServerError: there is no reply."""
        self._in_flight += 1
        try:
            return await post(self._session, self._url, request)
        except aiohttp.ClientHttpProxyError as error:
            raise self._failure("is behind a proxy that refuses", str(error)) from error
        except aiohttp.ClientError as error:
            # Other texts than the system's may quote a reply, cut within a key.
            is_system = isinstance(error, aiohttp.ClientOSError)
            detail = str(error) if is_system else type(error).__name__
            raise self._failure("cannot be reached", detail, "no connection") from error
        except TimeoutError as error:
            fault = f"did not answer within {self._settings.timeout_seconds:g} s"
            raise self._failure(fault, "", "no answer in time") from error
        finally:
            self._in_flight -= 1

    def _passing(self, status: int, headers: Mapping[str, str], text: str) -> ServerError:
        """The fault of an HTTP status whose cause may pass; notes how long the server wants no
        requests.
        """
        kind = f"HTTP {status}"
        seconds = retry_after(headers)
        self._quiet_until = max(
            self._quiet_until, time.monotonic() + min(seconds, _MAX_RETRY_AFTER_SECONDS)
        )
        if seconds > _MAX_RETRY_AFTER_SECONDS:
            return self._failure(f"asks to wait {format_seconds(seconds)}", text)
        return self._failure(f"answers with {kind}", text, kind)

    def _adapt(self, request: dict[str, Any], text: str) -> bool:
        """Whether a refused request is to be sent again, with another limit of the answer."""
        limits = [name for name in _LIMIT_FIELDS if name in request]
        # Where the context does not hold the prompt and the longest answer, some errors name both
        # fields, so the length is checked first.
        if _LENGTH.search(text) or _ANSWER_LIMIT.search(text):
            # A small limit is not what is too large.
            if self.mode != "analysis":
                return False
            # Without one the server uses the room that is left; other requests keep theirs.
            for name in limits:
                del request[name]
            return bool(limits)
        if _LIMIT_FIELDS[0] in limits and _LIMIT_FIELDS[1] in text:
            self._limit_field = _LIMIT_FIELDS[1]
            return True
        return False

    def _filtered(self, text: str) -> Exception:
        """Counts a question that the server's content filter refuses; a server that refuses all of
        them ends the run.
        """
        self._refused += 1
        if self._refused >= _MAX_REFUSED and not self._answered:
            return self._failure(
                f"refused all {self._refused} questions by its content filter", text
            )
        return RefusedQuestionError(REFUSED)

    def _failure(self, fault: str, detail: str, kind: str = "") -> ServerError:
        """The error of a server in one line, which quotes it, without the key. `kind` names a fault
        that may pass.
        """
        # Before the text is cut: half a key would stay. An address may hold a name and a password.
        detail = re.sub(r"//[^/?#\s]*@", "//", self._without_key(detail))
        quoted = " ".join(detail.split())[:300]
        cause = f"the server {self._address} {fault}" + (f" ({quoted})" if quoted else "")
        return ServerError(cause, kind)

    def _without_key(self, text: str) -> str:
        """`text` with *** for the key."""
        return text if self._key_pattern is None else self._key_pattern.sub("***", text)

    def _request(self, conversation: Conversation) -> dict[str, Any]:
        """The body of the request for a conversation's next turn."""
        sampling = self._config.sampling
        request: dict[str, Any] = {"model": self._settings.model, "messages": conversation.turns}
        extra = dict(self._extra)

        if self.mode == "soft":
            request |= _SOFT_REQUEST
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


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds of Retry-After (seconds or a date); 0 if missing or unreadable."""
    text = headers.get("Retry-After", "")
    with contextlib.suppress(ValueError):
        seconds = float(text)
        return max(0.0, seconds) if math.isfinite(seconds) else 0.0
    with contextlib.suppress(ValueError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    return 0.0


def _is_address(base_url: str) -> bool:
    """Whether requests can be sent to a URL."""
    try:
        url = URL(base_url)
    except ValueError:
        return False
    return url.scheme in ("http", "https") and bool(url.host)


def _prices(settings: OpenaiServer) -> Prices | None:
    """The prices of a million tokens that the config names; None where all are 0."""
    prices = settings.prices
    if not (prices.prompt or prices.cached or prices.completion):
        return None
    # Without a price of its own the cached part costs as the rest.
    cached = prices.prompt if prices.cached is None else prices.cached
    return Prices(prices.prompt, cached, prices.completion)


def _as_sent(identity: Mapping[str, Any], settings: OpenaiServer, prefill: str) -> dict[str, Any]:
    """An annotator's identity by what the server is sent: None for what is not, which it draws by
    its own default.

    In mode soft also the beginning of the answer, `prefill`, and the fields that ask for its
    probabilities.
    """
    is_sent = {"top_k": settings.send_top_k, "seed": settings.send_seed}
    sampling = {
        name: value if is_sent.get(name, True) else None
        for name, value in identity["sampling"].items()
    }
    sent = {**identity, "sampling": sampling}
    if identity["mode"] == "soft":
        sent["reading"] = {
            **identity["reading"],
            "prefill": prefill,
            "request": _SOFT_REQUEST,
        }
    return sent


def _key_pattern(key: str) -> re.Pattern[str]:
    """Matches a key whose characters are plain or escaped for JSON (\\/, \\u002f) or URLs (%2f)."""
    characters = [rf"(?:\\?{re.escape(c)}|(?i:\\u{ord(c):04x}|%{ord(c):02x}))" for c in key]
    return re.compile("".join(characters))


# What a server replies


def verdict_log_probabilities(choice: Mapping[str, Any], verdicts: Sequence[str]) -> list[float]:
    """Natural log-probabilities of the verdicts after a prefilled answer, -inf for those that the
    reply does not list.

    If the likeliest first token is a blank, which some tokenizers put before a digit, the second
    token's probabilities count, times that of the blank. Raises MalformedReplyError: the reply has
    no log-probabilities of texts.
    """
    tokens = _at(choice.get("logprobs"), "content")
    if not isinstance(tokens, list) or not tokens:
        raise MalformedReplyError("no log-probabilities in the reply")
    labels = {verdict.lower(): label for label, verdict in enumerate(verdicts)}
    masses = [0.0] * len(verdicts)
    # Probability of the tokens before the one that is read.
    prefix_probability = 1.0
    try:
        for token in tokens[:2]:
            _check_texts(token, labels)
            for candidate in token["top_logprobs"]:
                label = labels.get(candidate["token"].strip().lower())
                if label is not None:
                    # Several tokens may be the same verdict: "1", " 1".
                    masses[label] += prefix_probability * math.exp(candidate["logprob"])
            if token["token"].strip():
                break
            prefix_probability *= math.exp(token["logprob"])
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise MalformedReplyError(
            f"log-probabilities of another form in the reply: {tokens}"
        ) from error
    # Written with `not`, so that NaN is refused, too.
    if not sum(masses) < _MAX_MASS:
        raise MalformedReplyError(
            f"log-probabilities of more than probability 1 in the reply: {tokens}"
        )
    return [math.log(mass) if mass > 0 else -math.inf for mass in masses]


def _check_texts(token: Mapping[str, Any], words: Collection[str]) -> None:
    """Raises MalformedReplyError where a token has no candidates, or they are not texts.

    Read as an answer, such a token would be one whose verdicts have no probability: unknown, and
    kept in the store after the server was mended.
    """
    if not token["top_logprobs"]:
        raise MalformedReplyError(f"an empty top_logprobs in the reply: {token}")
    # A blank alone is only the piece of one where the model has chosen it.
    pieces: list[tuple[str, Collection[str]]] = [(token["token"], {"", *words})]
    pieces += [(candidate["token"], words) for candidate in token["top_logprobs"]]
    for text, known in pieces:
        word = text.lstrip(_RAW_BLANKS)
        is_piece = word != text and word.lower() in known
        if is_piece or _TOKEN_ID.fullmatch(text):
            raise MalformedReplyError(
                f"a piece of a vocabulary, {text}, in place of a text in the reply: {token}"
            )


def checked(reply: Any) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """The tokens of a reply (prompt, answer, cached part of the prompt; 0 where it does not say)
    and its first choice.

    The content of the choice's message is made a text. Raises MalformedReplyError: there is no
    answer.
    """
    choices = _at(reply, "choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = _at(choice, "message")
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise MalformedReplyError(f"no choices in the reply {reply}")
    choice = {**choice, "message": {**message, "content": _text(message.get("content"))}}

    usage = _at(reply, "usage")
    prompt = _tokens(_at(usage, "prompt_tokens"))
    completion = _tokens(_at(usage, "completion_tokens"))
    cached = _tokens(_at(_at(usage, "prompt_tokens_details"), "cached_tokens"))
    return (prompt, completion, cached), choice


def _tokens(count: Any) -> int:
    """A number of tokens; 0 for one that is missing or cannot be."""
    return count if isinstance(count, int) and 0 <= count < _MAX_TOKENS else 0


def _text(content: Any) -> str:
    """The text of a message's content: itself, '' for none, or the text of its parts, without those
    that reason.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        texts = [
            _at(part, "text") for part in content if _at(part, "type") in ("text", "output_text")
        ]
        are_parts = all(isinstance(_at(part, "type"), str) for part in content)
        if are_parts and all(isinstance(text, str) for text in texts):
            return "".join(texts)
    raise MalformedReplyError(f"the reply's content is not a text: {content}")


def _at(value: Any, key: str) -> Any:
    """The value at a key, None where there is none or `value` is not an object: replies may hold
    anything.
    """
    return value.get(key) if isinstance(value, dict) else None
