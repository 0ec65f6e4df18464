"""Parses labels from answers: without escapes, reasoning and refusals. Never raises, takes time
linear in the text's length.

Golden numbers: answer_parsing.json (published behaviour, `first_match`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import NO, PAIR, SINGLE, UNKNOWN, YES, Form
from motif_jax.motif.annotation import refusals
from motif_jax.motif.annotation.escapes import plain
from motif_jax.motif.annotation.reasoning import spoken

_SLOT = "{verdict}"


class AnswerForm(NamedTuple):
    """The form in which a prompt wants the verdict: '("best_description": {verdict})', and the
    words of the verdicts by label.

    `verdict_form` says what the labels mean.
    """

    template: str
    verdicts: tuple[str, ...]
    verdict_form: Form

    @property
    def answers(self) -> tuple[str, ...]:
        """The template with each verdict in its slot: '("best_description": 1)', ..."""
        return tuple(self.template.replace(_SLOT, verdict) for verdict in self.verdicts)

    @property
    def prefix(self) -> str:
        """The template before the verdict: '("best_description": '."""
        return self.template.partition(_SLOT)[0]

    @property
    def key(self) -> str:
        """The words before the verdict: 'best_description'."""
        return re.findall(r"[A-Za-z]+(?:[_ ][A-Za-z]+)*", self.prefix)[-1]

    @property
    def schema(self) -> dict[str, Any]:
        """The response_format of a request for a JSON object with the key and one of the
        verdicts.
        """
        name = self.key.replace(" ", "_")
        schema = {
            "type": "object",
            "properties": {name: {"type": "string", "enum": list(self.verdicts)}},
            "required": [name],
            "additionalProperties": False,
        }
        return {
            "type": "json_schema",
            "json_schema": {"name": "verdict", "strict": True, "schema": schema},
        }


def make_form(template: str, words: Sequence[str], form: Form = PAIR) -> AnswerForm:
    """The answer form with these words for the verdicts of `form`; UserError: they make none."""
    if template.count(_SLOT) != 1:
        raise UserError(f"the answer form {template!r} must hold {_SLOT} exactly once")
    if not re.search(r"[A-Za-z]", template.partition(_SLOT)[0]):
        raise UserError(
            f"the answer form {template!r} must have a word before {_SLOT}, such as best_description"
        )
    count = len(form.verdicts)
    are_words = all(re.fullmatch(r"[A-Za-z0-9]+", word) for word in words)
    are_different = len({word.lower() for word in words}) == count
    if not (are_words and are_different):
        raise UserError(
            f"the verdicts {list(words)} must be {count} different words of letters and digits"
        )
    return AnswerForm(template, tuple(words), form)


class LabelRead(NamedTuple):
    """The label of an answer; `unfinished`: it ends within its reasoning."""

    label: int
    unfinished: bool = False


class AnswerParser:
    """Reads verdicts in one answer form, by our rules or published ones."""

    def __init__(self, form: AnswerForm, first_match: bool = False, anywhere: bool = False) -> None:
        """`first_match`: Motif's rule (compat.answer_first_match); `anywhere`: ONI's
        (compat.oni_label_anywhere).

        The published rules read the whole text, with reasoning, as it is. ONI's knows no unknown:
        of two verdicts the second if its word occurs anywhere, else the first; of three the first
        match, else the undecided one, the tie.
        """
        self._labels = {word.lower(): label for label, word in enumerate(form.verdicts)}
        self._undecided = form.verdict_form.undecided
        self._anywhere = anywhere
        self.is_published = first_match or anywhere
        self._positive = re.compile(rf"(?<!\w){re.escape(form.verdicts[YES])}(?!\w)")
        self._published = _published_pattern(form)
        # JSON's words, such as null for the tie, unless the prompt has the same word for a verdict.
        self._values = {**dict(form.verdict_form.json_labels), **self._labels}
        self._verdict = _verdict_pattern(form, tuple(self._values))
        self._written = frozenset(form.verdicts)
        self._words = re.compile("|".join(map(re.escape, self._values)), re.IGNORECASE)

    def __call__(self, text: str) -> int:
        return self.read(text).label

    def read(self, text: str) -> LabelRead:
        """The label of an answer, UNKNOWN where it ends within its reasoning."""
        if self.is_published:
            return LabelRead(self._published_label(text))
        answer = spoken(plain(text))
        if answer.inside:
            return LabelRead(UNKNOWN, unfinished=True)
        return LabelRead(self._last_line(answer.text))

    def _published_label(self, text: str) -> int:
        if self._anywhere and len(self._labels) == len(SINGLE.verdicts):
            return YES if self._positive.search(text) else NO
        match = self._published.search(text)
        if match:
            return self._labels[match[1].lower()]
        return self._undecided if self._anywhere else UNKNOWN

    def _last_line(self, text: str) -> int:
        """The verdict of the last line that has any, UNKNOWN if that line has two different ones.

        An answer that is nothing but a verdict counts; a verdict that a refusal quotes does not.
        """
        # Nothing but a verdict and signs: "1", "**1**", "(2)". A % would make it another number.
        bare = re.fullmatch(r"[^\w%]*+(\w{1,64}+)[^\w%]*+", text)
        if bare and bare[1].lower() in self._values:
            return self._values[bare[1].lower()] if _is_unsigned(text, bare.start(1)) else UNKNOWN

        refuses = refusals.refuses(text)
        # The labels on the line of the last match.
        labels: set[int] = set()
        last_start = 0
        for match in self._verdict.finditer(text):
            if self._is_prose(text, match):
                continue
            match_labels = self._labels_of(text, match)
            is_tie = self._undecided != UNKNOWN and match_labels == {self._undecided}
            if refuses and refusals.is_quoted(text, match.start(), match.end(), is_tie):
                continue
            # A later line takes the place of the earlier ones.
            if "\n" in text[last_start : match.start("verdict")]:
                labels.clear()
            last_start = match.start("verdict")
            labels |= match_labels
        return labels.pop() if len(labels) == 1 else UNKNOWN

    def _is_prose(self, text: str, match: re.Match[str]) -> bool:
        """Whether key and verdict stand side by side in a sentence that answers nothing: "That is
        good news. No monster was met.", "the other message, a wall".
        """
        if _SENTENCE_SIGN.search(text, match.end("key"), match.start("verdict")):
            return True
        first_word = self._words.match(text, match.start("verdict"))
        assert first_word is not None
        # "The first message a player would ignore": the verdict A may be an article.
        return first_word[0] == "a" and "a" not in self._written

    def _labels_of(self, text: str, match: re.Match[str]) -> set[int]:
        """The labels of a match of the verdict's pattern; a number that only begins with a verdict,
        1.5 or -1, is unknown.
        """
        if (
            match["more"]
            or not _is_unsigned(text, match.start("verdict"))
            or _UNEQUAL.search(match[0])
        ):
            return {UNKNOWN}
        return {self._values[word.lower()] for word in self._words.findall(match["verdict"])}


# Ends a sentence or a part of it.
_SENTENCE_SIGN = re.compile("[.,;!?](?!=)")

# "best_description != 1": the verdict after such a sign is the one that is not meant.
_UNEQUAL = re.compile("!=|\u2260|<>")


def _is_unsigned(text: str, start: int) -> bool:
    """Whether the word at `start` is not the end of a number such as -1 or .1."""
    return not (start > 0 and text[start].isdigit() and text[start - 1] in "-+.,")


def _key_pattern(form: AnswerForm, joint: str = r"[\s_]*+") -> str:
    """The key's words in any case, joined by blanks, line ends, underscores or nothing."""
    return "(?i:" + joint.join(map(re.escape, re.split(r"[_ ]", form.key))) + ")"


def _published_pattern(form: AnswerForm) -> re.Pattern[str]:
    """The published rule: after the key and any signs, at most one word and blanks, then the
    verdict as written.

    Possessive repeats and the bound on the word (64 letters) keep the search linear.
    """
    # A verdict counts as it is written or in small letters, the key in any case. A dict drops
    # repeats and keeps the order.
    words = dict.fromkeys(word for verdict in form.verdicts for word in (verdict, verdict.lower()))
    return re.compile(
        _key_pattern(form) + rf"\W*+\w{{0,64}}\s*+({'|'.join(map(re.escape, words))})"
    )


def _verdict_pattern(form: AnswerForm, words: tuple[str, ...]) -> re.Pattern[str]:
    """A whole-word verdict after the key, signs and at most two linking words.

    `verdict` is the verdict with alternatives ("1 or 2"), `key` the key's words, `more` what makes
    it the beginning of another number (1.5, but not 1.0).
    """
    verdict = "(?:" + "|".join(map(re.escape, words)) + r")(?!\w)"
    key = _key_pattern(form, r"[\s_-]*+")
    noun = re.escape(re.split(r"[_ ]", form.key)[-1])
    nouns = rf"(?:description|message|option|number|answer|choice|value|verdict|label|text|{noun})"
    # At most two words between key and verdict: "best description is option 1".
    link = rf"(?:(?:is|are|was|{nouns})(?![A-Za-z0-9])[\W_]{{0,16}}+)?+"
    between = r"""[ \t,/&"'|+~\u2044-]{1,6}+"""
    conjunction = rf"(?:(?:and/or|or|and|nor|vs\.?|versus)(?!\w){between})?+"
    # "1 or 2" holds two verdicts, and so none.
    alternatives = rf"(?:{between}{conjunction}(?:{nouns}[ \t_#]{{1,4}}+)?+{verdict}){{0,4}}"
    # 1.0 is the verdict 1; 1.5, 1:2 and 1 % are other numbers.
    more = r"(?P<more>(?!\.0+(?![\d.]))[.,:/^*\u2044+-]\d|[ ]?[%\u00b0])?"
    # The end of an element, </best_description>, is not a key.
    return re.compile(
        rf"(?i)(?<!/)(?P<key>{key})[\W_]{{0,16}}+{link}{link}(?P<verdict>{verdict}{alternatives}){more}"
    )
