"""Reads labels from answers of language models. Never raises, takes time linear in the text.

Our rule reads the text after the last end of reasoning: its last line with a verdict. Two different
verdicts there, a refusal, and reasoning that began and did not end are unknown. The published rules
read the whole text; golden numbers: answer_parsing.json, more_cases.json (`first_match`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import NO, PAIR, SINGLE, UNKNOWN, YES, Form

_SLOT = "{verdict}"
# Notes of answers without a verdict, as they stand in the store and in summary.json.
UNFINISHED = "ends within its reasoning"
REFUSES = "the model refuses"
TWO_VERDICTS = "two different verdicts"

# Words for a block of reasoning, and the marks of models' families around it, which servers leave
# in an answer: <think>, <seed:think budget="5">, <|begin_of_thought|>, <|START_THINKING|>, [THINK],
# Kimi's triangles, OpenAI's channels (<|channel|>analysis<|message|>, and analysisWe where the
# server has dropped special tokens) and Gemma's (<|channel>thought).
_NAMES = r"(?:\w{1,8}:|ant)?(?:think|thinking|thoughts?|reasoning|reflection|analysis|scratchpad)"
_BEGIN = re.compile(
    rf"(?i)<{_NAMES}(?:\s[^<>/\n]{{0,200}})?>|<\|(?:begin_of_|start_){_NAMES}\|>|\[think\]|\u25c1think\u25b7"
    r"|<\|channel\|?>(?!\s*final)|\A\s*analysis(?-i:(?=[A-Z]))"
)
_END = re.compile(
    rf"(?i)</{_NAMES}\s*>|<\|end_(?:of_)?{_NAMES}\|>|\[/think\]|\u25c1/think\u25b7"
    r"|<\|channel\|?>\s*final(?:<\|message\|>)?|<channel\|>|assistantfinal"
)
# "I cannot answer", "we are unable to comply", "I must decline", but neither "I cannot be sure" nor
# "I can't provide a definitive answer", after which a verdict may follow. English, as the prompts.
_TASK = "answer|comply|assist|help (?:you|with)|respond|reply|output|provide|participate|fulfil|judge|evaluate|rate|rank"
_REFUSAL = re.compile(
    r"(?i)\b(?:i|we)\b[^.!?\n]{0,40}?\b(?:cannot|can ?not|can['\u2019]t|could not|couldn['\u2019]t|will not|won['\u2019]t|unable to|not able to|not allowed to)"
    rf" (?:{_TASK})\w{{0,3}}\b(?![^.!?\n]{{0,80}}\b(?:definit|certain|conclusive|sure))"
    r"|\b(?:i|we) (?:must |have to |will |would )?(?:refuse|decline)\b"
    rf"|\b(?:inappropriate|not appropriate) to (?:{_TASK})"
)


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
    count = len(form.verdicts)
    are_words = all(re.fullmatch(r"[A-Za-z0-9]+", word) for word in words)
    are_different = len({word.lower() for word in words}) == count
    if not (are_words and are_different):
        raise UserError(
            f"the verdicts {list(words)} must be {count} different words of letters and digits"
        )
    return AnswerForm(template, tuple(words), form)


class LabelRead(NamedTuple):
    """The label of an answer; `note` says why it is UNKNOWN, '' where the answer has no verdict."""

    label: int
    note: str = ""


def spoken(text: str) -> tuple[str, bool]:
    """What an answer says after its last end of reasoning, and whether reasoning begins there that
    does not end; then it is what stands before that.
    """
    start = 0
    for end in _END.finditer(text):
        start = end.end()
    beginning = _BEGIN.search(text, start)
    if beginning is None:
        return text[start:].strip(), False
    return text[start : beginning.start()].strip(), True


class AnswerParser:
    """Reads verdicts in one answer form, by our rule or published ones."""

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
        words = "|".join(map(re.escape, self._values))
        # An answer of nothing but a verdict and signs: "1", "**1**", "(2)", but not -1 or 1 %.
        self._bare = re.compile(rf"(?i)\W*+(?<![-+.,])({words})[^\w%]*+")
        # The article of "the first message a player would ignore" is not the verdict A.
        if "A" in form.verdicts:
            words = "|".join("(?-i:A)" if word == "a" else re.escape(word) for word in self._values)
        self._word = re.compile(rf"(?i)(?<!\w)(?:{words})(?!\w)")
        self._verdict = _verdict_pattern(form, words)

    def __call__(self, text: str) -> int:
        return self.read(text).label

    def read(self, text: str) -> LabelRead:
        """The label of an answer, UNKNOWN where none can be told."""
        if self.is_published:
            return LabelRead(self._published_label(text))
        answer, is_unfinished = spoken(text)
        if is_unfinished:
            return LabelRead(UNKNOWN, UNFINISHED)

        bare = self._bare.fullmatch(answer)
        if bare:
            return LabelRead(self._values[bare[1].lower()])
        if _REFUSAL.search(answer):
            return LabelRead(UNKNOWN, REFUSES)
        labels = self._last_line(answer)
        if len(labels) > 1:
            return LabelRead(UNKNOWN, TWO_VERDICTS)
        return LabelRead(labels.pop() if labels else UNKNOWN)

    def _published_label(self, text: str) -> int:
        if self._anywhere and len(self._labels) == len(SINGLE.verdicts):
            return YES if self._positive.search(text) else NO
        match = self._published.search(text)
        if match:
            return self._labels[match[1].lower()]
        return self._undecided if self._anywhere else UNKNOWN

    def _last_line(self, text: str) -> set[int]:
        """The labels on the last line that has any."""
        labels: set[int] = set()
        previous = 0
        for match in self._verdict.finditer(text):
            start = match.start("verdict")
            if "\n" in text[previous:start]:
                labels.clear()
            previous = start
            labels |= {self._values[word.lower()] for word in self._word.findall(match["verdict"])}
        return labels


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


def _verdict_pattern(form: AnswerForm, words: str) -> re.Pattern[str]:
    """A verdict, the group `verdict`, after the key, signs and at most two linking words: "best
    description is option 1". With it the alternatives to it: "1 or 2" holds two verdicts.
    """
    # A chat model may escape the underscore for Markdown: best\_description.
    key = _key_pattern(form, r"[\s\\_-]*+")
    # No sign that ends a sentence or a part of it: "This is good news. No monster was met.".
    signs = r"(?:_|[^\w.,;!?\u2260]){0,16}+"
    noun = re.escape(re.split(r"[_ ]", form.key)[-1])
    nouns = rf"(?:description|message|option|number|answer|choice|value|verdict|label|text|{noun})"
    link = rf"(?:(?:is|are|was|{nouns})(?![A-Za-z0-9]){signs})?+"
    # 12, -1, 1.5, 1/2 and 1 % are other numbers than 1.
    verdict = rf"(?<![-+.,])(?:{words})(?!\w|[.,:/^*-]\d|[ ]?[%\u00b0])"
    between = r"""[ \t,/&"'|+~-]{1,6}+"""
    conjunction = rf"(?:(?:and/or|or|and|nor|vs\.?|versus)(?!\w){between})?+"
    alternatives = rf"(?:{between}{conjunction}(?:{nouns}[ \t_#]{{1,4}}+)?+{verdict}){{0,4}}"
    # The end of an element, </best_description>, is not a key.
    return re.compile(rf"(?i)(?<!/){key}{signs}{link}{link}(?P<verdict>{verdict}{alternatives})")
