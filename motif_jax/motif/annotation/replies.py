"""Reads a server's replies: answer, tokens, log-probabilities, words of refusals."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from motif_jax.core.errors import UserError, printable

# Largest sum of the verdicts' probabilities: servers round them.
_MAX_MASS = 1.01
# Fields of a request for the verdicts' probabilities, part of the identity of stored answers. One
# token is the verdict; the first may be a blank that the tokenizer puts before it.
SOFT_REQUEST = {"max_tokens": 2, "logprobs": True, "top_logprobs": 20}
# Blanks and line ends of vocabularies: "\u2581A" of SentencePiece, "\u0120A" of byte-level pieces.
_RAW_BLANKS = "\u2581\u0120\u010a"
# vLLM with --return-tokens-as-token-ids.
_TOKEN_ID = re.compile(r"token_id:\d+")
# A number of tokens that no reply has.
_MAX_TOKENS = 1 << 40
# Words of a refusal that blames the content of a prompt, its length, or the longest answer asked
# for.
CONTENT = re.compile(
    "content[ _]filter|content management policy|content[ _]policy|usage polic|policy ?violation|moderation|flagged|"
    "safety (system|reasons)|inappropriate content|invalid_prompt|data_inspection",
    re.IGNORECASE,
)
LENGTH = re.compile(
    "context[ _]length|maximum context|maximum number of tokens|too long|too many tokens|exceeds the available",
    re.IGNORECASE,
)
# OpenAI reports an answer of a reasoning model which its limit cut as an error.
CUT = re.compile("could not finish the message|output limit was reached", re.IGNORECASE)
ANSWER_LIMIT = re.compile("too large|cannot be greater than|max_model_len", re.IGNORECASE)


class ServerError(UserError):
    """A server did not answer. `cause`: the fault without advice; `kind`: a word for one that may
    pass, else ''.
    """

    def __init__(self, cause: str, kind: str) -> None:
        super().__init__(
            f"{cause}; everything answered so far is kept, the same command resumes from there"
        )
        self.cause = printable(cause)
        self.kind = kind


class MalformedReplyError(ValueError):
    """A reply that violates the protocol."""


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
