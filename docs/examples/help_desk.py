"""A help desk: dialogues of clerks of mixed skill, and the customer who answers an agent that
learned from them.

    python docs/examples/help_desk.py dialogues.jsonl      # writes 300 dialogues

A customer has one of three problems. A good clerk asks for the order number first, then does what
helps: a clerk who promises something before ends the dialogue with -0.5, the right remedy pays 1, a
wrong one 0. These clerks ask in a third of the dialogues and choose remedies by chance, so that an
agent which speaks as they do earns about -0.26, and the best possible one 1.

    PYTHONPATH=docs/examples python -m motif_jax.launch --config=configs/train_text.py:ilql \\
        --workdir=runs/desk_ilql --config.task=dialogues --config.data=dialogues.jsonl \\
        --config.network.checkpoint=FOLDER \\
        --config.options='{"environment": "help_desk:HelpDesk"}'
"""

from __future__ import annotations

import json
import re
import sys

import numpy as np

from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.tasks.contract import Observation, Outcome, TextEnvironment

# What the customer says -> the word that the right remedy has.
PROBLEMS = {
    "My parcel has not arrived.": "trace",
    "The cup that you sent is broken.": "new",
    "The shoes that you sent are too small.": "exchange",
}
QUESTIONS = ("What is your order number?", "Please tell me the order number.")
REMEDIES = {
    "trace": ("I will trace your parcel today.", "Let me trace the parcel for you."),
    "new": ("I will send you a new one.", "You will get a new one this week."),
    "exchange": ("I will exchange them for you.", "We will exchange them at once."),
}
ASKS_FIRST = 1 / 3
TOO_EARLY = -0.5
SOLVED = 1.0
LONGEST = 4  # utterances of the agent


class Desk(Observation):
    """The dialogue so far: utterances in turns, the customer's first, and what each of the clerk's
    earned.
    """

    def __init__(
        self, problem: str, texts: tuple[str, ...], rewards: tuple[float, ...], ended: bool
    ) -> None:
        self.problem = problem
        self.texts = texts
        self.rewards = rewards
        self.ended = ended

    def to_sequence(self) -> Dialogue:
        """The utterances, the reward of each (None: the customer's), and whether the dialogue has
        ended.
        """
        of_clerk = iter(self.rewards)
        rewards = [next(of_clerk) if number % 2 else None for number in range(len(self.texts))]
        return Dialogue(self.texts, tuple(rewards), self.ended)


class HelpDesk(TextEnvironment):
    """A customer, who understands a clerk by single words."""

    def reset(self, rng: np.random.Generator, start: Observation | None = None) -> Observation:
        """A customer comes, or the dialogue `start` goes on."""
        if isinstance(start, Desk):
            self._desk = start
        else:
            problem = str(rng.choice(list(PROBLEMS)))
            self._desk = Desk(problem, (problem,), (), ended=False)
        self._number = int(rng.integers(1000, 10000))
        return self._desk

    def step(self, action: str) -> Outcome:
        """The clerk says `action`, and the customer answers unless that ends the dialogue."""
        if self._desk.ended:
            raise ValueError("the dialogue has ended")
        words = set(re.findall("[a-z]+", action.lower()))
        remedies = [remedy for remedy in REMEDIES if remedy in words]
        knows_order = any("It is" in text for text in self._desk.texts)
        reward = 0.0
        answer = "Pardon?"
        ended = len(self._desk.rewards) + 1 >= LONGEST
        if remedies:
            ended = True
            reward = TOO_EARLY
            if knows_order:
                reward = SOLVED if remedies == [PROBLEMS[self._desk.problem]] else 0.0
        elif "number" in words:
            answer = f"It is {self._number}."
        texts = (*self._desk.texts, action) if ended else (*self._desk.texts, action, answer)
        self._desk = Desk(self._desk.problem, texts, (*self._desk.rewards, reward), ended)
        return Outcome(self._desk, reward, ended)


def clerk(desk: Desk, rng: np.random.Generator) -> str:
    """What a clerk of mixed skill says next."""
    if not desk.rewards and rng.random() < ASKS_FIRST:
        return str(rng.choice(QUESTIONS))
    remedy = str(rng.choice(list(REMEDIES)))
    return str(rng.choice(REMEDIES[remedy]))


def dialogue(seed: int) -> Dialogue:
    """A whole dialogue of a customer with a clerk."""
    rng = np.random.default_rng(seed)
    customer = HelpDesk()
    desk = customer.reset(rng)
    while not desk.ended:
        desk = customer.step(clerk(desk, rng)).observation
    return desk.to_sequence()


def main(path: str, count: int = 300) -> None:
    """Writes `count` dialogues, one JSON object a line."""
    with open(path, "w", encoding="utf-8") as file:
        for seed in range(count):
            texts, rewards, _, _ = dialogue(seed)
            messages = []
            for text, reward in zip(texts, rewards, strict=True):
                message = {"role": "user" if reward is None else "assistant", "content": text}
                messages.append(message if reward is None else {**message, "reward": reward})
            file.write(json.dumps({"messages": messages}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
