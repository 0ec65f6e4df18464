"""The lexicon: weighted patterns over game messages, an immediate replacement for a language model.

A lexicon is a YAML file; lexicons/nethack.yaml, the built-in one, describes the format. Labels
depend on the captions only, and are symmetric in the order of a pair.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from motif_jax.core import config as checks
from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, NO, PAIR, SECOND, SINGLE, TIE, YES, Form
from motif_jax.motif.annotation.annotator import Annotator, Answer, Preview, Question
from motif_jax.motif.annotation.config import AnnotatorConfig

BUILT_IN = "nethack.yaml"
# Default worth above which a single caption is a yes.
THRESHOLD = 3.0
# Cached sentences, and captions; bounded, as servers and online trainings receive new ones forever.
_REMEMBERED = 1 << 15
# Messages on one line are separated by two spaces; a repeated line ends with its count, a status
# with its bracket.
_SENTENCE_END = re.compile(r"(?<=[.!?\")\]])\s{2,}")
_REPEAT = re.compile(r" \(x\d+\)$")
_STATUS = "[Dlvl:"


class LexiconEvent(NamedTuple):
    """An event that a sentence can report, and its worth to each goal."""

    name: str
    patterns: tuple[re.Pattern[str], ...]
    weights: Mapping[str, float]


class Lexicon(NamedTuple):
    """A parsed lexicon.

    Attributes:
      events: tried in their order; the first that matches a sentence is its event.
      unmatched: goal -> worth of a sentence without an event.
      blank: goal -> worth of a caption without a sentence.
      margin: differences of worth up to it are ties.
      scale: width of the logistic that makes probabilities of a difference of worth.
      threshold: a single caption of more worth is a yes.
      digest: hash of the file's content, so that answers of another version are not taken for those
          of this one.
    """

    name: str
    goals: tuple[str, ...]
    events: tuple[LexiconEvent, ...]
    unmatched: Mapping[str, float]
    blank: Mapping[str, float]
    margin: float
    scale: float
    threshold: float
    digest: str

    def event(self, sentence: str) -> str | None:
        """The name of the first event that a sentence reports, None without one."""
        for event in self.events:
            if any(pattern.search(sentence) for pattern in event.patterns):
                return event.name
        return None


class LexiconJudge:
    """Judges captions by one goal of a lexicon; caches recent sentences and captions."""

    def __init__(self, lexicon: Lexicon, goal: str) -> None:
        self._lexicon = lexicon
        self._goal = goal
        weights: dict[str | None, float] = {
            event.name: event.weights[goal] for event in lexicon.events
        }
        self._weights = weights | {None: lexicon.unmatched[goal]}
        # Of an object, not of the class: its cache goes when the judge does.
        self.worth = functools.lru_cache(_REMEMBERED)(self._caption_worth)
        self._cached_sentence_worth = functools.lru_cache(_REMEMBERED)(self._sentence_worth)

    def _caption_worth(self, caption: str) -> float:
        """The sum over the distinct sentences: to read one twice is worth no more."""
        distinct = dict.fromkeys(sentences(caption))
        if not distinct:
            return self._lexicon.blank[self._goal]
        return sum(map(self._cached_sentence_worth, distinct))

    def _sentence_worth(self, sentence: str) -> float:
        return self._weights[self._lexicon.event(sentence)]

    def answer(self, *captions: str) -> Answer:
        """Label and probabilities of an ordered pair of captions, or of one caption."""
        worths = [self.worth(caption) for caption in captions]
        if len(worths) == 2:
            return preference(worths[0] - worths[1], self._lexicon.margin, self._lexicon.scale)
        excess = worths[0] - self._lexicon.threshold
        yes = _logistic(excess / self._lexicon.scale)
        return Answer(YES if excess > 0 else NO, (1.0 - yes, yes))


def preference(difference: float, margin: float, scale: float) -> Answer:
    """Label and probabilities of a difference of worth d, first minus second; a tie when |d| <=
    margin m.

    An ordered logistic: P(first) = s((d - m) / scale), P(second) = s((-d - m) / scale), the rest is
    P(tie).
    """
    first = _logistic((difference - margin) / scale)
    second = _logistic((-difference - margin) / scale)
    if abs(difference) <= margin:
        label = TIE
    elif difference > 0:
        label = FIRST
    else:
        label = SECOND
    # Rounding can make the sum of the other two exceed 1.
    tie = max(0.0, 1.0 - first - second)
    return Answer(label, (first, second, tie))


def _logistic(x: float) -> float:
    """1 / (1 + exp(-x)), without overflow: the argument of exp is never above 0."""
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    return math.exp(x) / (1.0 + math.exp(x))


def sentences(caption: str) -> list[str]:
    """The sentences of a caption, without counts of repeats and status."""
    lines = (_REPEAT.sub("", _without_status(line)) for line in caption.split("\n"))
    pieces = (piece.strip() for line in lines for piece in _SENTENCE_END.split(line))
    return [piece for piece in pieces if piece]


def _without_status(line: str) -> str:
    """A line without the bracketed status at its end. A regular expression would take time
    quadratic in blanks.
    """
    # The first "[Dlvl:" after the last "]" but the final one: brackets of the message stay.
    status = line.find(_STATUS, line.rfind("]", 0, -1) + 1)
    return line[:status].rstrip() if status >= 0 and line.endswith("]") else line


def load_lexicon(path: str | Path = "") -> Lexicon:
    """Reads a lexicon: a file, or one of the folder lexicons/ by its name. Raises UserError where
    it would be read as another than it is meant.

    A file of the user comes before a built-in lexicon of the same name.
    """
    name = str(path) or BUILT_IN
    built_in = Path(__file__).parent / "lexicons" / name
    is_file_of_user = path and (Path(name).exists() or not built_in.is_file())
    file = Path(name) if is_file_of_user else built_in
    # utf-8-sig drops the byte order mark with which Windows begins files.
    return _parsed(name, file.read_text(encoding="utf-8-sig"))


# By the text and not by the path: a file that was changed is read anew.
@functools.lru_cache(maxsize=8)
def _parsed(name: str, text: str) -> Lexicon:
    """Cached, as every check, annotator and goal of a server reads the same lexicon."""
    try:
        return _read(yaml.safe_load(text))
    except UserError as error:
        raise UserError(f"lexicon {name}: {error}") from None


def _read(tree: Any) -> Lexicon:
    """A lexicon's tree with its patterns compiled."""
    keys = {"name", "goals", "margin", "scale", "unmatched", "blank", "events"}
    if set(tree) - {"threshold"} != keys:
        raise UserError(
            f"the top must have the keys {', '.join(sorted(keys))}, and may have threshold"
        )
    goals = tree["goals"]
    margin = _number("margin", tree["margin"])
    scale = _number("scale", tree["scale"])
    if margin < 0 or scale <= 0:
        raise UserError("margin must be at least 0 and scale above 0")
    events = tuple(
        _event(number, event, goals) for number, event in enumerate(tree["events"], start=1)
    )
    names: set[str] = set()
    for event in events:
        if event.name in names:
            raise UserError(f"event {event.name} is there twice")
        names.add(event.name)

    return Lexicon(
        name=str(tree["name"]),
        goals=tuple(goals),
        events=events,
        unmatched=_weights("unmatched", tree["unmatched"], goals),
        blank=_weights("blank", tree["blank"], goals),
        margin=margin,
        scale=scale,
        threshold=_number("threshold", tree.get("threshold", THRESHOLD)),
        # `default=str` is for YAML's dates, which JSON does not have.
        digest=digests.of_bytes(json.dumps(tree, sort_keys=True, default=str).encode()),
    )


def _event(number: int, event: Any, goals: Sequence[str]) -> LexiconEvent:
    """The event of entry `number`, counted from 1."""
    if set(event) != {"event", "weights", "patterns"}:
        raise UserError(f"entry {number} of events must have the keys event, weights, patterns")
    name = str(event["event"])
    patterns = event["patterns"]
    # The letters of a single text would be patterns that every sentence matches.
    if not isinstance(patterns, list):
        raise UserError(f"event {name}: patterns must be a list of texts")
    weights = _weights(f"event {name}: weights", event["weights"], goals)
    return LexiconEvent(name, tuple(map(re.compile, patterns)), weights)


def _weights(where: str, weights: Any, goals: Sequence[str]) -> dict[str, float]:
    """Goal -> worth; `where` names the field in errors."""
    return {goal: _number(f"{where}: {goal}", weights[goal]) for goal in goals}


def _number(where: str, value: Any) -> float:
    # YAML's `yes` is a bool, which Python counts as an int. NaN, infinities and integers that no
    # float holds fail the comparison.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise UserError(f"{where} is {value!r}, not a number")
    return float(value)


class LexiconAnnotator(Annotator):
    """Answers at once from the lexicon of `config.lexicon.file` by the weights of `config.goal`."""

    forms = (PAIR, SINGLE)

    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any = None) -> None:
        lexicon = load_lexicon(config.lexicon.file)
        self.identity = {
            "annotator": "lexicon",
            "goal": config.goal,
            "lexicon": lexicon.name,
            "lexicon_digest": lexicon.digest,
        }
        # Pairs do not use the threshold: a change of it leaves their stored answers alone.
        if form is not PAIR:
            self.identity |= {"form": form.name, "threshold": lexicon.threshold}
        is_default = lexicon.name == load_lexicon().name
        name = "lexicon" if is_default else re.sub(r"[^A-Za-z0-9-]+", "-", lexicon.name)
        # Goals of a user's own lexicon may have blanks and other letters, which no name has.
        goal = re.sub(r"[^A-Za-z0-9_+-]+", "-", config.goal)
        self.short_name = f"{name}_msg_{goal}"
        if is_default:
            self.nethack_key = "config.lexicon.file"
        self._judge = LexiconJudge(lexicon, config.goal)

    @classmethod
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        # It would call each pair of status lines a tie.
        checks.require(config.captions.messages, "captions.messages", False, "True for a lexicon")
        # A goal that the lexicon does not have is a KeyError here.
        LexiconJudge(load_lexicon(config.lexicon.file), config.goal)

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        for position, question in enumerate(questions):
            yield position, self._judge.answer(*question.items)

    def preview(self, question: Question) -> Preview:
        captions = [
            f"[worth {self._judge.worth(caption):g}]\n{caption}" for caption in question.items
        ]
        return Preview("\n----\n".join(captions))
