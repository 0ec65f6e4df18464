"""Language models behind any server that speaks the OpenAI protocol: vLLM, llama.cpp, a hosted one.

The requests run on an event loop in a thread of their own, a bounded number at a time; answers are handed on as they
come. The key is read from the environment, sent, and shown nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import queue
import random
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import openai

from motif_jax.annotation.annotator import Answer, Preview, Question
from motif_jax.annotation.chat import (
    TOO_LONG,
    VERDICT_TOKENS,
    ChatAnnotator,
    Dialogue,
    check_chat,
    json_option,
)
from motif_jax.datasets.verdicts import UNKNOWN, Form
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError

STRUCTURED = ("structured_outputs", "response_format", "none")
_LONGEST_WAIT_SECONDS = 60.0
_CHARACTERS_PER_TOKEN = 4
# Words of a refusal (HTTP 400) that blames the length of a prompt.
_LENGTH_WORDS = (
    "context length",
    "context_length",
    "maximum context",
    "too long",
    "too many tokens",
    "exceeds the available",
)


class _Rubbish(Exception):
    """The server's reply is not what the protocol says."""


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
        self._send_max_tokens = True
        # A server of one's own wants no key, but the client insists on some text.
        self._key = os.environ.get(settings.key_variable) or "none"

    @classmethod
    def check(cls, config: Any, form: Form) -> None:
        """Raises UserError for a bad value or a prompt file that cannot be used; asks the server nothing."""
        check_chat(config, form)
        url = config.openai.base_url
        checks.require(
            url.startswith(("http://", "https://")),
            "openai.base_url",
            url,
            "a URL such as http://HOST:8000/v1",
        )
        checks.require(
            bool(config.openai.model), "openai.model", config.openai.model, "the model's name on the server"
        )
        checks.positive(config, "openai.concurrency")
        checks.positive(config, "openai.timeout_seconds")
        checks.positive(config, "openai.retries", allow_zero=True)
        checks.choice(config, "openai.structured", STRUCTURED)
        json_option(config, "openai.extra_body")

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        """Yields each answer when it is complete.

        Raises:
          UserError: the server is down, refuses, hangs or talks rubbish, and went on so after all retries.
        """
        results: queue.SimpleQueue[tuple[int, Answer] | BaseException | None] = queue.SimpleQueue()
        loop = asyncio.new_event_loop()
        task = loop.create_task(self._ask_all(questions, results))
        thread = threading.Thread(target=_run_loop, args=(loop, task, results), daemon=True)
        thread.start()
        try:
            while (result := results.get()) is not None:
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is closed when all is done
                loop.call_soon_threadsafe(task.cancel)
            thread.join()

    async def _ask_all(self, questions: Sequence[Question], results: queue.SimpleQueue) -> None:
        numbered = iter(enumerate(questions))
        async with openai.AsyncOpenAI(
            base_url=self._settings.base_url,
            api_key=self._key,
            timeout=self._settings.timeout_seconds,
            max_retries=0,
        ) as client:

            async def work() -> None:
                for position, question in numbered:
                    results.put((position, await self._ask(client, position, question)))

            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._settings.concurrency, len(questions))):
                    group.create_task(work())

    async def _ask(self, client: openai.AsyncOpenAI, position: int, question: Question) -> Answer:
        """One question's whole conversation."""
        dialogue = self.open(position, question)
        while True:
            choice = await self._complete(client, dialogue)
            if choice is None:
                return dialogue.answer(UNKNOWN, note=TOO_LONG)
            if self.mode == "soft":
                return self.soft(
                    dialogue, verdict_log_probabilities(choice, self.prompt.answer.verdicts), self._prefill
                )
            answer = self.heard(dialogue, choice.message.content or "")
            if answer is not None:
                return answer

    @property
    def _prefill(self) -> str:
        return self.prompt.answer.prefix.rstrip()

    async def _complete(self, client: openai.AsyncOpenAI, dialogue: Dialogue) -> Any:
        """One turn, sent again after growing waits while the fault may pass; None if the prompt is too long."""
        request = self._request(dialogue)
        async for last in self._tries(dialogue):
            if not self._send_max_tokens:
                request.pop("max_tokens", None)
            try:
                # The client's own time-out starts anew with every byte that comes.
                async with asyncio.timeout(self._settings.timeout_seconds):
                    usage, choice = _checked(await client.chat.completions.create(**request))
            except openai.BadRequestError as error:
                if self.mode == "analysis" and "max_tokens" in str(error) and "max_tokens" in request:
                    # The context does not hold the longest answer besides the prompt: the server sees to what is left.
                    self._send_max_tokens = False
                    return await self._complete(client, dialogue)
                if any(word in str(error).lower() for word in _LENGTH_WORDS):
                    return None
                raise self._failure("refuses the request", error) from None
            except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
                remedy = f"refuses the key of the environment variable {self._settings.key_variable}"
                raise self._failure(remedy, error) from None
            except openai.NotFoundError as error:
                raise self._failure(
                    f"does not know config.openai.model={self._settings.model}", error
                ) from None
            except (openai.APITimeoutError, TimeoutError) as error:
                failure = self._failure(
                    f"hangs: no answer within {self._settings.timeout_seconds:g} s", error
                )
            except openai.APIConnectionError as error:
                failure = self._failure("cannot be reached", error.__cause__ or error)
            except openai.APIStatusError as error:
                failure = self._failure(f"answers with HTTP {error.status_code}", error)
            except (_Rubbish, openai.APIResponseValidationError, ValueError, TypeError) as error:
                failure = self._failure("returns rubbish", error)
            else:
                dialogue.cost(*usage)
                return choice
            if last:
                raise failure
        raise AssertionError

    async def _tries(self, dialogue: Dialogue) -> AsyncIterator[bool]:
        """Yields once for each try, True for the last; waits 1, 2, 4 ... seconds in between, spread a little."""
        spread = random.Random(dialogue.question.id)
        for retry in range(self._settings.retries + 1):
            yield retry == self._settings.retries
            await asyncio.sleep(min(2.0**retry, _LONGEST_WAIT_SECONDS) * spread.uniform(0.75, 1.25))

    def _failure(self, what: str, error: BaseException) -> UserError:
        """The one line about a server; the key never stands in it."""
        detail = " ".join(str(error).split())[:200] or type(error).__name__
        if self._key != "none":
            detail = detail.replace(self._key, "***")
        return UserError(
            f"the server {self._settings.base_url} {what} ({detail}); everything answered so far is kept, the same command "
            "goes on from there"
        )

    def _request(self, dialogue: Dialogue) -> dict[str, Any]:
        sampling = self._config.sampling
        request: dict[str, Any] = {"model": self._settings.model, "messages": dialogue.turns}
        extra = dict(self._extra)
        if self.mode == "soft":
            request |= {"temperature": 0, "max_tokens": 2, "logprobs": True, "top_logprobs": 20}
            request["messages"] = [*dialogue.turns, {"role": "assistant", "content": self._prefill}]
            extra |= {"add_generation_prompt": False, "continue_final_message": True}
            return {**request, "extra_body": extra}
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
                request["response_format"] = _schema(self.prompt.answer.key, self.prompt.answer.verdicts)
        return {**request, "extra_body": extra}

    def preview(self, question: Question) -> Preview:
        """The turns as they are sent; the server's template and tokenizer are not at hand."""
        turns = self._request(self.open(0, question))["messages"]
        text = "\n".join(f"[{turn['role']}]\n{turn['content']}" for turn in turns)
        return Preview(text, math.ceil(len(text) / _CHARACTERS_PER_TOKEN), exact=False)


def verdict_log_probabilities(choice: Any, verdicts: Sequence[str]) -> list[float]:
    """Log-probabilities of the verdicts from the first two tokens behind a prefilled answer, -inf for those not listed.

    Where the likeliest first token is a blank, which some tokenizers put before a digit, what follows it counts with its
    probability.

    Raises:
      _Rubbish: the reply holds no log-probabilities.
    """
    if choice.logprobs is None or not choice.logprobs.content:
        raise _Rubbish("no log-probabilities in the reply")
    words = {verdict.lower(): place for place, verdict in enumerate(verdicts)}
    masses = [0.0] * len(verdicts)
    before = 1.0
    for token in choice.logprobs.content[:2]:
        for candidate in token.top_logprobs:
            place = words.get(candidate.token.strip().lower())
            if place is not None:
                masses[place] += before * math.exp(candidate.logprob)
        if token.token.strip():
            break
        before *= math.exp(token.logprob)
    return [math.log(mass) if mass > 0 else -math.inf for mass in masses]


def _checked(reply: Any) -> tuple[tuple[int, int, int], Any]:
    """Tokens (prompt, completion, cached) and the first choice of a reply, or _Rubbish."""
    choices = getattr(reply, "choices", None)
    if not choices or getattr(choices[0], "message", None) is None:
        raise _Rubbish(f"no choices in the reply {str(reply)[:80]!r}")
    content = choices[0].message.content
    if content is not None and not isinstance(content, str):
        raise _Rubbish(f"the reply's content is no text: {str(content)[:80]!r}")
    usage = getattr(reply, "usage", None)
    if usage is None:
        return (0, 0, 0), choices[0]
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None) or 0
    return (int(usage.prompt_tokens or 0), int(usage.completion_tokens or 0), int(cached)), choices[0]


def _schema(key: str, verdicts: Sequence[str]) -> dict[str, Any]:
    name = key.replace(" ", "_")
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "enum": list(verdicts)}},
        "required": [name],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": schema}}


def _run_loop(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None], results: queue.SimpleQueue) -> None:
    """Runs the requests to their end in this thread; the first failure is handed over in place of an answer."""
    try:
        loop.run_until_complete(task)
        results.put(None)
    except asyncio.CancelledError:
        results.put(None)
    except BaseExceptionGroup as group:
        results.put(_first_error(group))
    except BaseException as error:  # handed to the thread that waits
        results.put(error)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _first_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
