"""A person at a terminal in a text task: with an agent, against it, or as its other side."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from motif_jax.core.files import append_lines, regular_file
from motif_jax.ilql.config import EvaluateTextConfig
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_tokens import NO_TOKENS, TextTokenizer
from motif_jax.ilql.evaluation import text_setup
from motif_jax.ilql.evaluation.text_episodes import (
    DialogueObservation,
    TextAction,
    TextActor,
    environment_seed,
)
from motif_jax.ilql.evaluation.text_setup import TextEvalSetup
from motif_jax.ilql.tasks.contract import Observation, TextTask
from motif_jax.ilql.tasks.wordle.environment import WordleObservation
from motif_jax.ilql.tasks.wordle.policies import picture

GAMES = "games.jsonl"
_QUIT = "/end"
# They turn the direction of a line's text, and are not of Unicode's category Cc.
_TURNS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_REPLACED = "\N{REPLACEMENT CHARACTER}"


def check(config: EvaluateTextConfig) -> None:
    """Raises UserError for games that cannot be played."""
    text_setup.check(config, plays=config.play.mode != "answer")


def play_games(config: EvaluateTextConfig, setup: TextEvalSetup, workdir: Path) -> None:
    """Plays games at the terminal, and writes each as a line of games.jsonl."""
    table = TextTable(setup.task, setup.actor, Terminal(), setup.tokenizer, config.seed)
    path = workdir / GAMES
    # Drops a last line that a kill has torn, so that the next one does not continue it.
    append_lines(path, keep=lambda line: True).close()
    first = len(path.read_text(encoding="utf-8").splitlines())  # games of earlier starts stay
    for game in range(first, first + config.play.games):
        try:
            dialogues: list[dict[str, Any]] = table.play(game, config.play.mode)
        except EOFError:
            print("\nend of input: this game is left out")
            return
        with open(path, "a", encoding="utf-8", opener=regular_file) as file:
            file.write(
                json.dumps({"game": game, "mode": config.play.mode, "dialogues": dialogues}) + "\n"
            )


def plain(text: str) -> str:
    """Replaces what moves a terminal's cursor, changes its colours or turns a line: control
    characters but line ends and tabs.
    """

    def is_safe(character: str) -> bool:
        if character in _TURNS:
            return False
        # Cs are halves of characters, which cannot be encoded.
        return character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs")

    # A carriage return alone would write over the line.
    characters = text.replace("\r\n", "\n")
    return "".join(character if is_safe(character) else _REPLACED for character in characters)


class Terminal:
    """A person's terminal; `source` and `out` are the process's by default."""

    def __init__(self, source: TextIO | None = None, out: TextIO | None = None) -> None:
        self._source = source or sys.stdin
        self._out = out or sys.stdout

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
    lines = []
    for text, reward in zip(dialogue.texts, dialogue.rewards, strict=True):
        speaker = "<" if reward is None else ">"
        lines.append(f"{speaker} {plain(text)}")
    return "\n".join(lines) or "(nothing said yet)"


def numbers(action: TextAction) -> str:
    """Numbers of an action's tokens, a line each."""
    facts = action.facts
    if facts is None:
        return "(no numbers: it is not an agent's)"
    rows = zip(facts.policy.tolist(), facts.q.tolist(), facts.v.tolist(), strict=True)
    return "\n".join(
        f"  token {number}: log pi {policy:7.2f}  Q {q:7.2f}  V {v:7.2f}  advantage {q - v:+7.2f}"
        for number, (policy, q, v) in enumerate(rows)
    )


class TextTable:
    """A game between a person and an agent at the terminal."""

    def __init__(
        self,
        task: TextTask,
        actor: TextActor,
        terminal: Terminal,
        tokenizer: TextTokenizer,
        seed: int,
    ) -> None:
        self._task = task
        self._actor = actor
        self._terminal = terminal
        self._tokenizer = tokenizer
        self._seed = seed

    def play(self, game: int, mode: str) -> list[dict[str, Any]]:
        """Plays a game; returns its dialogues, the person's first.

        Raises:
          EOFError: the person's terminal was closed.
        """
        say = self._terminal.say
        say(f"\ngame {game}")
        if mode == "answer":
            return [self._answer(game)]
        if mode == "with":
            say("Enter: say what it proposes; ?: its numbers; or type what to say")
            return [self._episode(game, self._propose)]
        of_person = self._episode(game, lambda observation: self._ask("> "))
        say("\nnow it plays the same game")
        of_agent = self._episode(game, self._act)
        gain = of_person["return"] - of_agent["return"]
        result = "a draw"
        if gain > 0:
            result = "you win"
        elif gain < 0:
            result = "it wins"
        say(f"you {of_person['return']:g}, it {of_agent['return']:g}: {result}")
        return [of_person, of_agent]

    def _episode(self, game: int, speak: Callable[[Any], str]) -> dict[str, Any]:
        """Plays a game in which `speak` maps each observation to an action."""
        environment = self._task.environment()
        self._actor.begin([game])
        observation = environment.reset(np.random.default_rng(environment_seed(self._seed, game)))
        terminal = False
        while not terminal:
            self._terminal.say(f"\n{shown(observation)}")
            outcome = environment.step(speak(observation))
            observation, terminal = outcome.observation, outcome.terminal
        dialogue = observation.to_sequence()
        self._terminal.say(f"\n{shown(observation)}\nreturn {dialogue.total:g}")
        return {
            "texts": list(dialogue.texts),
            "rewards": list(dialogue.rewards),
            "return": dialogue.total,
        }

    def _act(self, observation: Any) -> str:
        """The agent's action, which the terminal shows."""
        action = self._actor.act([observation], [0])[0]
        self._terminal.say(f"> {plain(action.text)}")
        return action.text

    def _propose(self, observation: Any) -> str:
        """The agent's action, or what the person types in its place."""
        action = self._actor.act([observation], [0])[0]
        while True:
            typed = self._ask(f"it would say: {plain(action.text)}\n> ", "?")
            if typed != "?":
                return typed or action.text
            self._terminal.say(numbers(action))

    def _ask(self, prompt: str, command: str = "") -> str:
        """What the person types: a text that has tokens, or `command`."""
        while True:
            typed = self._terminal.ask(prompt)
            try:
                # What has no tokens could not stand in the dialogue that the agent reads.
                self._tokenizer.encode("" if typed == command else typed)
            except NO_TOKENS as error:
                reason = f"no token for {error}" if isinstance(error, KeyError) else str(error)
                self._terminal.say(plain(reason))
                continue
            return typed

    def _answer(self, game: int) -> dict[str, Any]:
        """A game in which the person is the agent's other side; the end of the input ends it, too,
        once something was said.
        """
        say = self._terminal.say
        texts: list[str] = []
        rewards: list[float | None] = []
        say(f"say something, or nothing for it to begin; {_QUIT} ends the game")
        self._actor.begin([game])
        typed = self._ask("< ", _QUIT)
        while typed != _QUIT:
            if typed:
                texts.append(typed)
                rewards.append(None)
            dialogue = Dialogue(tuple(texts), tuple(rewards), terminal=False)
            texts.append(self._act(DialogueObservation(dialogue)))
            # The agent reads no rewards; 0 marks the utterance as its own.
            rewards.append(0.0)
            try:
                typed = self._ask("< ", _QUIT)
            except EOFError:
                typed = _QUIT
        return {"texts": texts, "rewards": rewards, "return": None}
