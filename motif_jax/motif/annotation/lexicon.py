"""The lexicon: weighted patterns over game messages, an immediate replacement for a language model.

A lexicon is a YAML file; lexicons/nethack.yaml, the built-in one, describes the format. Labels depend on the captions
only, and are symmetric in the order of a pair.
"""

from __future__ import annotations

import collections
import functools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

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
# Messages on one line are separated by two spaces; a repeated line ends with its count, a status with its bracket.
_SENTENCE_END = re.compile(r"(?<=[.!?\")\]])\s{2,}")
_REPEAT = re.compile(r" \(x\d+\)$")
_STATUS = "[Dlvl:"


class LexiconEvent(NamedTuple):
    """An event that a sentence can report, and its worth to each goal."""

    name: str
    patterns: tuple[re.Pattern[str], ...]
    weights: Mapping[str, float]


class Lexicon(NamedTuple):
    """A parsed lexicon, whose events are tried in order; `unmatched` and `blank`: goal -> worth without event, or sentence.

    Differences of worth up to `margin` are ties; `scale` is the width of the logistic; worths above `threshold` are a yes.
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
        for event in self.events:
            if any(pattern.search(sentence) for pattern in event.patterns):
                return event.name
        return None


class LexiconJudge:
    """Judges captions by one goal of a lexicon; caches recent sentences and captions."""

    def __init__(self, lexicon: Lexicon, goal: str) -> None:
        self._lexicon, self._goal = lexicon, goal
        weights: dict[str | None, float] = {event.name: event.weights[goal] for event in lexicon.events}
        self._weights = weights | {None: lexicon.unmatched[goal]}
        self.worth = functools.lru_cache(_REMEMBERED)(self._worth)
        self._of_sentence = functools.lru_cache(_REMEMBERED)(lambda text: self._weights[lexicon.event(text)])

    def _worth(self, caption: str) -> float:
        parts = dict.fromkeys(sentences(caption))
        return sum(map(self._of_sentence, parts)) if parts else self._lexicon.blank[self._goal]

    def answer(self, *captions: str) -> Answer:
        """Label and probabilities of an ordered pair of captions, or of one caption."""
        first, *second = map(self.worth, captions)
        if second:
            return preference(first - second[0], self._lexicon.margin, self._lexicon.scale)
        yes = _logistic((first - self._lexicon.threshold) / self._lexicon.scale)
        return Answer(YES if first > self._lexicon.threshold else NO, (1.0 - yes, yes))


def preference(difference: float, margin: float, scale: float) -> Answer:
    """Label and probabilities of a difference of worth d, first minus second; a tie when |d| <= margin m.

    An ordered logistic: P(first) = s((d - m) / scale), P(second) = s((-d - m) / scale), the rest is P(tie).
    """
    first = _logistic((difference - margin) / scale)
    second = _logistic((-difference - margin) / scale)
    label = TIE if abs(difference) <= margin else FIRST if difference > 0 else SECOND
    return Answer(label, (first, second, max(0.0, 1.0 - first - second)))


def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def sentences(caption: str) -> list[str]:
    """The sentences of a caption, without counts of repeats and status."""
    lines = (_REPEAT.sub("", _without_status(line)) for line in caption.split("\n"))
    pieces = (piece.strip() for line in lines for piece in _SENTENCE_END.split(line))
    return [piece for piece in pieces if piece]


def _without_status(line: str) -> str:
    """A line without the bracketed status at its end. A regular expression would take time quadratic in blanks."""
    status = line.find(_STATUS, line.rfind("]", 0, -1) + 1)
    return line[:status].rstrip() if status >= 0 and line.endswith("]") else line


def load_lexicon(path: str | Path = "") -> Lexicon:
    """Reads a lexicon: a file, or one of the folder lexicons by its name. Raises UserError: it is none; names the fault."""
    shown = str(path) or BUILT_IN
    ours = Path(__file__).parent / "lexicons" / shown
    try:
        theirs = path and (Path(shown).exists() or not ours.is_file())
        text = (Path(shown) if theirs else ours).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"lexicon {shown} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"lexicon {shown} is not YAML: {error}") from None
    return _parsed(shown, text)


@functools.lru_cache(maxsize=8)
def _parsed(shown: str, text: str) -> Lexicon:
    """Cached: every check, annotator and goal of a server reads the same lexicon."""
    try:
        return _read(yaml.safe_load(text))
    except UserError as error:
        raise UserError(f"lexicon {shown}: {error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"lexicon {shown} is not YAML: {error}") from None


def _read(tree: Any) -> Lexicon:
    keys = {"name", "goals", "margin", "scale", "unmatched", "blank", "events"}
    if not isinstance(tree, dict) or set(tree) - {"threshold"} != keys:
        raise UserError(f"the top must have the keys {', '.join(sorted(keys))}, and may have threshold")
    goals = tree["goals"]
    if not isinstance(goals, list) or not goals or not all(isinstance(goal, str) for goal in goals):
        raise UserError("goals must be a list of names")
    margin, scale = _number("margin", tree["margin"]), _number("scale", tree["scale"])
    if margin < 0 or scale <= 0:
        raise UserError("margin must be at least 0 and scale above 0")
    if not isinstance(tree["events"], list) or not tree["events"]:
        raise UserError("events must be a list")
    events = tuple(_event(place, event, goals) for place, event in enumerate(tree["events"], start=1))
    (name, count), *_ = collections.Counter(event.name for event in events).most_common(1)
    if count > 1:
        raise UserError(f"event {name} is there twice")
    return Lexicon(
        name=str(tree["name"]),
        goals=tuple(goals),
        events=events,
        unmatched=_weights("unmatched", tree["unmatched"], goals),
        blank=_weights("blank", tree["blank"], goals),
        margin=margin,
        scale=scale,
        threshold=_number("threshold", tree.get("threshold", THRESHOLD)),
        digest=digests.of_bytes(json.dumps(tree, sort_keys=True, default=str).encode()),
    )


def _event(place: int, event: Any, goals: Sequence[str]) -> LexiconEvent:
    if not isinstance(event, dict) or set(event) != {"event", "weights", "patterns"}:
        raise UserError(f"entry {place} of events must have the keys event, weights, patterns")
    name, patterns = str(event["event"]), event["patterns"]
    if not isinstance(patterns, list) or not patterns or not all(isinstance(p, str) for p in patterns):
        raise UserError(f"event {name}: patterns must be a list of texts")
    compiled = []
    for pattern in patterns:
        try:
            compiled.append(re.compile(pattern))
        except re.error as error:
            raise UserError(f"event {name}: {pattern!r} is not a regular expression: {error}") from None
    return LexiconEvent(name, tuple(compiled), _weights(f"event {name}: weights", event["weights"], goals))


def _weights(where: str, weights: Any, goals: Sequence[str]) -> dict[str, float]:
    if not isinstance(weights, dict) or set(weights) != set(goals):
        raise UserError(f"{where} must name each goal once: {', '.join(goals)}")
    return {goal: _number(f"{where}: {goal}", value) for goal, value in weights.items()}


def _number(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise UserError(f"{where} is {value!r}, not a number")
    return float(value)


class LexiconAnnotator(Annotator):
    """Answers at once from the lexicon of `config.lexicon.file` by the weights of `config.goal`."""

    forms = (PAIR, SINGLE)

    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any = None) -> None:
        lexicon = _load(config)
        self.identity = {
            "annotator": "lexicon",
            "goal": config.goal,
            "lexicon": lexicon.name,
            "lexicon_digest": lexicon.digest,
            **({} if form is PAIR else {"form": form.name, "threshold": lexicon.threshold}),
        }
        own = re.sub(r"[^A-Za-z0-9-]+", "-", lexicon.name)
        self.short_name = f"{'lexicon' if lexicon.name == load_lexicon().name else own}_msg_{config.goal}"
        self._judge = LexiconJudge(lexicon, config.goal)

    @classmethod
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        _load(config)

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        for position, question in enumerate(questions):
            yield position, self._judge.answer(*question.items)

    def preview(self, question: Question) -> Preview:
        shown = (f"[worth {self._judge.worth(caption):g}]\n{caption}" for caption in question.items)
        return Preview("\n----\n".join(shown))


def _load(config: AnnotatorConfig) -> Lexicon:
    lexicon = load_lexicon(config.lexicon.file)
    if config.goal not in lexicon.goals:
        raise UserError(f"config.goal={config.goal}: must be one of {', '.join(lexicon.goals)}")
    if not config.captions.messages:
        raise UserError("config.captions.messages=False: must be True, the lexicon reads messages")
    return lexicon
