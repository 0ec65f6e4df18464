"""Parses labels from answers. Never raises, takes time linear in the text's length.

Golden numbers: answer_parsing.json (published behaviour, `first_match`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import NO, PAIR, SINGLE, TIE, UNKNOWN, YES, Form

_SLOT = "{verdict}"


class AnswerForm(NamedTuple):
    """The form in which a verdict is asked for: '("best_description": {verdict})', and the words of the verdicts by label."""

    template: str
    verdicts: tuple[str, ...]

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(self.template.replace(_SLOT, verdict) for verdict in self.verdicts)

    @property
    def prefix(self) -> str:
        return self.template.partition(_SLOT)[0]

    @property
    def key(self) -> str:
        """The words before the verdict: 'best_description'."""
        return re.findall(r"[A-Za-z]+(?:[_ ][A-Za-z]+)*", self.prefix)[-1]

    @property
    def schema(self) -> dict[str, Any]:
        """The response_format of a request for a JSON object with the key and one of the verdicts."""
        name = self.key.replace(" ", "_")
        schema = {
            "type": "object",
            "properties": {name: {"type": "string", "enum": list(self.verdicts)}},
            "required": [name],
            "additionalProperties": False,
        }
        return {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": schema}}


def make_form(template: str, words: Sequence[str], form: Form = PAIR) -> AnswerForm:
    """The answer form with these words for the verdicts of `form`; UserError: they make none."""
    if template.count(_SLOT) != 1:
        raise UserError(f"the answer form {template!r} must hold {_SLOT} exactly once")
    if not re.search(r"[A-Za-z]", template.partition(_SLOT)[0]):
        raise UserError(
            f"the answer form {template!r} must have a word before {_SLOT}, such as best_description"
        )
    count, plain = len(form.verdicts), all(re.fullmatch(r"[A-Za-z0-9]+", word) for word in words)
    if len({word.lower() for word in words}) != count or not plain:
        raise UserError(f"the verdicts {list(words)} must be {count} different words of letters and digits")
    return AnswerForm(template, tuple(words))


class AnswerParser:
    """Reads verdicts in one answer form, by our rules or published ones."""

    def __init__(self, form: AnswerForm, first_match: bool = False, anywhere: bool = False) -> None:
        """`first_match`: Motif's rule (compat.answer_first_match); `anywhere`: ONI's (compat.oni_label_anywhere).

        ONI's knows no unknown: of two verdicts the second if its word occurs anywhere, else the first; of three the first
        match, else the third, the tie.
        """
        self._labels = {word.lower(): label for label, word in enumerate(form.verdicts)}
        self._first_match, self._anywhere = first_match, anywhere
        self._positive = re.compile(rf"(?<!\w){re.escape(form.verdicts[YES])}(?!\w)")
        self._published = _published_pattern(form)
        self._verdict = _verdict_pattern(form)
        self._words = re.compile("|".join(map(re.escape, form.verdicts)), re.IGNORECASE)

    def __call__(self, text: str) -> int:
        if self._anywhere and len(self._labels) == len(SINGLE.verdicts):
            return YES if self._positive.search(text) else NO
        if self._first_match or self._anywhere:
            found = self._published.search(text)
            return self._labels[found[1].lower()] if found else TIE if self._anywhere else UNKNOWN
        return self._last_line(text)

    def _last_line(self, text: str) -> int:
        """The one verdict of the last line with any, after the last `</think>`; else unknown. A bare verdict counts."""
        _, _, text = text.rpartition("</think>")
        bare = re.fullmatch(r"\W*+(\w{1,64}+)\W*+", text)
        if bare and bare[1].lower() in self._labels:
            return self._labels[bare[1].lower()]
        labels: set[int] = set()
        position = 0
        for found in self._verdict.finditer(text):
            if "\n" in text[position : found.start(1)]:
                labels.clear()
            position = found.start(1)
            labels.update(self._labels[word.lower()] for word in self._words.findall(found[1]))
        return labels.pop() if len(labels) == 1 else UNKNOWN


def _key_pattern(form: AnswerForm) -> str:
    """The key's words in any case, joined by blanks, line ends, underscores or nothing."""
    return "(?i:" + r"[\s_]*+".join(map(re.escape, re.split(r"[_ ]", form.key))) + ")"


def _published_pattern(form: AnswerForm) -> re.Pattern[str]:
    """The published rule: after the key and any signs, at most one word and blanks, then the verdict as written.

    Possessive repeats and the bound on the word (64 letters) keep the search linear.
    """
    # A verdict counts as it is written or in small letters, the key in any case.
    words = dict.fromkeys(word for verdict in form.verdicts for word in (verdict, verdict.lower()))
    return re.compile(_key_pattern(form) + rf"\W*+\w{{0,64}}\s*+({'|'.join(map(re.escape, words))})")


def _verdict_pattern(form: AnswerForm) -> re.Pattern[str]:
    """A whole-word verdict after the key, signs and at most one linking word; includes alternatives ("1 or 2")."""
    verdict = "(?:" + "|".join(map(re.escape, form.verdicts)) + r")(?!\w)"
    noun = re.escape(re.split(r"[_ ]", form.key)[-1])
    link = rf"(?:(?:is|are|was|description|message|option|number|{noun})(?![A-Za-z0-9])[\W_]{{0,16}}+)?+"
    alternatives = rf"""(?:[ \t,/&"']{{1,4}}+(?:(?:or|and|nor)[ \t"']{{1,4}}+)?+{verdict}){{0,4}}"""
    return re.compile(rf"(?i){_key_pattern(form)}[\W_]{{0,16}}+{link}{link}({verdict}{alternatives})")
