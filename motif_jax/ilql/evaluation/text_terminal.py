"""A person at a terminal in a text task: with an agent, against it, or as its other side."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.items import TextTokenizer
from motif_jax.ilql.evaluation.text_episodes import Spoken, TextAction, TextActor, environment_seed
from motif_jax.ilql.tasks.contract import Observation, TextTask
from motif_jax.ilql.tasks.wordle.environment import WordleObservation
from motif_jax.ilql.tasks.wordle.policies import picture

_QUIT = "/end"
_TURNS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_REPLACED = "\N{REPLACEMENT CHARACTER}"


def plain(text: str) -> str:
    """Replaces what moves a terminal's cursor, changes its colours or turns a line: control characters but line ends and tabs."""

    def safe(one: str) -> bool:
        return one not in _TURNS and (one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cs"))

    return "".join(one if safe(one) else _REPLACED for one in text.replace("\r\n", "\n"))


class Terminal:
    """A person's terminal; `source` and `out` are the process's by default."""

    def __init__(self, source: TextIO | None = None, out: TextIO | None = None) -> None:
        self._source, self._out = source or sys.stdin, out or sys.stdout

    def say(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()

    def ask(self, prompt: str) -> str:
        """The line that the person types.

        Raises:
          EOFError: the input has ended.
        """
        self._out.write(prompt)
        self._out.flush()
        line = self._source.readline()
        if not line:
            raise EOFError("the terminal was closed")
        return line.strip()


def shown(observation: Observation) -> str:
    """A dialogue as a person reads it: guesses in their colours, else who said what, `plain`."""
    if isinstance(observation, WordleObservation):
        return picture([plain(guess) for guess in observation.guesses], observation.codes)
    dialogue = observation.to_sequence()
    pairs = zip(dialogue.texts, dialogue.rewards, strict=True)
    return (
        "\n".join(f"{'< ' if reward is None else '> '}{plain(text)}" for text, reward in pairs)
        or "(nothing said yet)"
    )


def numbers(said: TextAction) -> str:
    """Numbers of an action's tokens, a line each."""
    if said.facts is None:
        return "(no numbers: it is not an agent's)"
    facts = said.facts
    rows = zip(facts.policy.tolist(), facts.q.tolist(), facts.v.tolist(), strict=True)
    return "\n".join(
        f"  token {place}: log pi {policy:7.2f}  Q {q:7.2f}  V {v:7.2f}  advantage {q - v:+7.2f}"
        for place, (policy, q, v) in enumerate(rows)
    )


class TextTable:
    """A game between a person and an agent at the terminal."""

    def __init__(
        self, task: TextTask, actor: TextActor, terminal: Terminal, tokenizer: TextTokenizer, seed: int
    ) -> None:
        self._task, self._talker, self._terminal = task, actor, terminal
        self._tokenizer, self._seed = tokenizer, seed

    def play(self, game: int, mode: str) -> list[dict[str, Any]]:
        """Plays a game; returns its dialogues, the person's first.

        Raises:
          EOFError: the person's terminal was closed.
        """
        say = self._terminal.say
        say(f"\ngame {game}")
        if mode == "answer":
            return [self._answered(game)]
        if mode == "with":
            say("Enter: say what it proposes; ?: its numbers; or type what to say")
            return [self._episode(game, self._proposed)]
        mine = self._episode(game, lambda observation: self._typed("> "))
        say("\nnow it plays the same game")
        its = self._episode(game, self._shown)
        a, b = mine["return"], its["return"]
        say(f"you {a:g}, it {b:g}: {'you win' if a > b else 'it wins' if b > a else 'a draw'}")
        return [mine, its]

    def _episode(self, game: int, speak: Callable[[Any], str]) -> dict[str, Any]:
        environment = self._task.environment()
        self._talker.begin([game])
        observation = environment.reset(np.random.default_rng(environment_seed(self._seed, game)))
        terminal = False
        while not terminal:
            self._terminal.say(f"\n{shown(observation)}")
            outcome = environment.step(speak(observation))
            observation, terminal = outcome.observation, outcome.terminal
        dialogue = observation.to_sequence()
        self._terminal.say(f"\n{shown(observation)}\nreturn {dialogue.total:g}")
        return {"texts": list(dialogue.texts), "rewards": list(dialogue.rewards), "return": dialogue.total}

    def _shown(self, observation: Any) -> str:
        said = self._talker.act([observation], [0])[0]
        self._terminal.say(f"> {plain(said.text)}")
        return said.text

    def _proposed(self, observation: Any) -> str:
        said = self._talker.act([observation], [0])[0]
        while True:
            typed = self._typed(f"it would say: {plain(said.text)}\n> ", "?")
            if typed != "?":
                return typed or said.text
            self._terminal.say(numbers(said))

    def _typed(self, prompt: str, command: str = "") -> str:
        while True:
            typed = self._terminal.ask(prompt)
            try:
                self._tokenizer.encode("" if typed == command else typed)
            except ValueError as error:
                self._terminal.say(plain(str(error)))
                continue
            return typed

    def _answered(self, game: int) -> dict[str, Any]:
        say = self._terminal.say
        texts: list[str] = []
        rewards: list[float | None] = []
        say(f"say something, or nothing for it to begin; {_QUIT} ends the game")
        self._talker.begin([game])
        typed = self._typed("< ", _QUIT)
        while typed != _QUIT:
            if typed:
                texts.append(typed)
                rewards.append(None)
            texts.append(self._shown(Spoken(Dialogue(tuple(texts), tuple(rewards), False))))
            rewards.append(0.0)
            typed = self._typed("< ", _QUIT)
        return {"texts": texts, "rewards": rewards, "return": None}
