"""BabyAI-Text as a text task: prompts, actions and observations are texts.

A whole episode is one dialogue, the text of an unlimited window. A single step is a dialogue of a
prompt with the task's window, the action and its result. Only an expert policy brings in an expert.

In hindsight the steps of random play that led to an object become demonstrations of the mission
"go to" it (Andrychowicz et al. 2017, hindsight experience replay, here for imitation without an
expert).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.envs.babyai_text import catalogue, prompts
from motif_jax.envs.babyai_text.catalogue import ACTIONS, ENGLISH
from motif_jax.envs.babyai_text.environment import BabyAIText, decoded, levels_in_words
from motif_jax.envs.spec import RUNNING, TERMINATED, empty_observation
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues, DialogueStream
from motif_jax.ilql.dialogues.dialogue_tokens import Delimiters
from motif_jax.ilql.tasks import contract
from motif_jax.ilql.tasks.contract import TextEnvironment, TextPolicy, interact
from motif_jax.schema import Key, positive

GAMES, STEPS, HINDSIGHT = "games", "steps", "hindsight"
_SEEDS = 2**31
# Characters of an utterance that is not an action: the room in a prompt.
_MAX_ACTION_CHARACTERS = 64
KEYS: Mapping[str, Key] = {
    "level": Key("BabyAI-GoToLocal-v0", "level of docs/babyai_text.md; the policy is 'random'"),
    "kind": Key("", "kind of task in the Mixed levels; '' draws it for each episode"),
    "language": Key("", "'english', 'french', or '' for the level's own"),
    "observations": positive(3, "number of observations in a prompt"),
    "actions": Key(ACTIONS, "names of the actions"),
}
# Random play makes longer paths mostly by detours, which would be bad demonstrations.
MAX_STEPS = 6
# In a prompt ", " ends every clause, the last one too (`prompts.observed`).
_OBJECT = re.compile(r"You see a (\w+ (?:key|ball|box)) ([^,]+), ")
_AT_HAND = "1 step forward"


@dataclasses.dataclass(frozen=True)
class Play(contract.Observation):
    """An episode so far.

    Attributes:
      prompt: the current prompt, with the task's window.
      first_prompt: the one before the first step.
      terminal: whether an action ended it.
      over: whether an action or the step limit ended it.
    """

    seed: int
    prompt: str
    first_prompt: str
    steps: tuple[PlayedStep, ...] = ()
    terminal: bool = False
    over: bool = False

    def to_sequence(self) -> Dialogue:
        texts: list[str] = [self.first_prompt]
        rewards: list[float | None] = [None]
        for number, step in enumerate(self.steps, start=1):
            # No action follows an episode's last observation.
            last = self.over and number == len(self.steps)
            observation = prompts.observed(number, step.clauses)
            if not last:
                observation += prompts.action_prefix(number)
            texts += [step.name, observation]
            rewards += [step.reward, None]
        return Dialogue(tuple(texts), tuple(rewards), self.terminal, {"seed": self.seed})


class PlayedStep(NamedTuple):
    """One of `Play.steps`."""

    name: str  # of the action, or an utterance that is none
    reward: float
    clauses: tuple[str, ...]  # of the observation after it


class PlayEnvironment(contract.TextEnvironment):
    """A level played by action names; any other utterance is a step that changes nothing."""

    def __init__(self, level: str, options: Mapping[str, Any]) -> None:
        self._game = BabyAIText(level, fields=("prompt",), **options)
        self._out = empty_observation(self._game.spec)
        self._names = self._game.spec.action_names
        self._now: Play | None = None

    def reset(self, rng: np.random.Generator, start: Any = None) -> Play:
        seed = int(rng.integers(_SEEDS)) if start is None else start.seed
        self._game.reset(seed, self._out)
        prompt = decoded(self._out["prompt"])
        play = Play(seed, prompt, prompt)
        steps = () if start is None else start.steps
        # A game has no state to restore: it is played again from its seed.
        for step in steps:
            play = self._play(play, step.name)
        self._now = play
        return play

    def step(self, action: str) -> contract.Outcome:
        if self._now is None or self._now.over:
            raise ValueError("the episode has ended, or none has begun")
        play = self._play(self._now, action)
        self._now = play
        return contract.Outcome(play, play.steps[-1].reward, play.over)

    def _play(self, before: Play, action: str) -> Play:
        if action in self._names:
            reward, end = self._game.step(self._names.index(action), self._out)
        else:
            # Prompts are latin-1.
            action = action[:_MAX_ACTION_CHARACTERS].encode("latin-1", "replace").decode("latin-1")
            # A step of the game that changes nothing, whose prompt shows what was said.
            reward, end = self._game.play(catalogue.NO_EFFECT, action, self._out)
        clauses = tuple(filter(None, decoded(self._out["text"]).split("\n")))
        return Play(
            seed=before.seed,
            prompt=decoded(self._out["prompt"]),
            first_prompt=before.first_prompt,
            steps=(*before.steps, PlayedStep(action, float(reward), clauses)),
            terminal=end == TERMINATED,
            over=end != RUNNING,
        )


def steps_of(
    environment: PlayEnvironment, policy: contract.TextPolicy, observations: int, language: str
) -> DialogueStream:
    """The stream of a policy's steps: prompt, action, and the next observation or that the goal is
    reached.
    """

    def draw(rng: np.random.Generator, count: int, first: int) -> Dialogues:
        dialogues: list[Dialogue] = []
        for group in range(first, first + count):
            end, steps = contract.interact(environment, policy, rng)
            for number, (before, action, reward) in enumerate(steps):
                # A window counts its observations from 0; the next one has the following number.
                after = prompts.observed(min(number + 1, observations), end.steps[number].clauses)
                if reward > 0:
                    after = prompts.REACHED[language]
                texts = (before.prompt, action, after)
                terminal = end.terminal and number == len(steps) - 1
                dialogues.append(Dialogue(texts, (None, reward, None), terminal, {"group": group}))
        return Dialogues.of(dialogues)

    return draw


class ByteTokenizer:
    """The bytes of latin-1, then the delimiters."""

    delimiters = Delimiters(*range(256, 262))
    size = 262

    def encode(self, text: str) -> list[int]:
        return list(text.encode("latin-1"))

    def decode(self, tokens: list[int]) -> str:
        return bytes(token for token in tokens if token < 256).decode("latin-1")


class BabyAITextTask(contract.TextTask):
    """Kinds of data: 'games', whole episodes; 'steps', a dialogue per step; 'hindsight', see
    `hindsight_of`.

    For 'steps' and 'hindsight' `num_dialogues` counts episodes.
    """

    name = "babyai_text"
    kinds = (GAMES, STEPS, HINDSIGHT)
    keys = KEYS

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        name = self.options["level"]
        level = catalogue.find(name)
        checks.require(
            level is not None, f"{self.name}.level", name, f"a level; {levels_in_words()}"
        )
        assert level is not None
        self._language = self.options["language"] or level.language
        self._game_options = {key: value for key, value in self.options.items() if key != "level"}
        BabyAIText.make_spec(name, **self._game_options)

    def tokenizer(self) -> ByteTokenizer:
        return ByteTokenizer()

    def environment(self) -> PlayEnvironment:
        return PlayEnvironment(self.options["level"], self._game_options)

    def policy(self, name: str) -> contract.TextPolicy:
        if name != "random":
            raise UserError(f"config.policy={name}: must be 'random' in BabyAI-Text")
        names = tuple(self.options["actions"])
        return contract.FunctionPolicy(lambda _, rng: names[int(rng.integers(len(names)))])

    def outcome(self, dialogue: Dialogue) -> dict[str, float]:
        return {"success": float(dialogue.total > 0)}

    def check(self, kind: str, policy: str) -> None:
        super().check(kind, policy)
        self.policy(policy)
        if kind == HINDSIGHT and self._language != ENGLISH:
            raise UserError(f"config.kind={HINDSIGHT}: reads English prompts, not {self._language}")

    def stream(self, kind: str, policy: str) -> DialogueStream:
        environment = self.environment()
        player = self.policy(policy)
        if kind == STEPS:
            return steps_of(environment, player, self.options["observations"], self._language)
        if kind == HINDSIGHT:
            return hindsight_of(environment, player)
        return contract.play_stream(environment, player)

    def dialogues_per_draw(self, kind: str) -> int:
        return 16


def hindsight_of(environment: TextEnvironment, policy: TextPolicy) -> DialogueStream:
    """The stream of steps towards an object that the agent reached, in prompts whose mission is to
    go to it.

    Each dialogue is one step: the prompt with the new mission, the action, and, if the object was
    in view, a text of the environment with what the newest observation says after the object's
    name. A language model that is pretrained on the dialogues predicts this text after the action
    (`lm.text_data`), for which it has to find the mission's object in the prompt.
    """

    def draw(rng: np.random.Generator, count: int, first: int) -> Dialogues:
        dialogues: list[Dialogue] = []
        for episode in range(first, first + count):
            end, steps = interact(environment, policy, rng)
            episode_prompts = [*(step.observation.prompt for step in steps), end.prompt]
            for name, path in paths(episode_prompts):
                # The article of a mission depends on how many such objects the world has.
                article = ("the", "a")[int(rng.integers(2))]
                goal = f"go to {article} {name}"
                for number in path:
                    prompt = episode_prompts[number]
                    is_last = number == path[-1]
                    texts = [prompts.with_goal(prompt, goal), steps[number].action]
                    rewards = [None, float(is_last)]
                    _, is_in_sight, after_name = _newest_view(prompt).partition(
                        f"You see a {name} "
                    )
                    if is_in_sight:
                        texts.append(prompts.sighting(after_name))
                        rewards.append(None)
                    dialogues.append(
                        Dialogue(tuple(texts), tuple(rewards), is_last, {"group": episode})
                    )
        return Dialogues.of(dialogues)

    return draw


def paths(episode_prompts: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Yields the objects that an episode led to, with the indices of the last `MAX_STEPS` steps
    before each.

    Steps that return to an earlier view are left out.

    Args:
      episode_prompts: in English, one before each step and one after the last.
    """
    views = [_newest_view(prompt) for prompt in episode_prompts]
    reached = [_objects_at_hand(view) for view in views]
    for end in range(1, len(views)):
        # What this step reached was not at hand before it. Sorted, since sets have no order.
        for name in sorted(reached[end] - reached[end - 1]):
            # The path begins where the agent had left this object last, or with the episode.
            start = end
            while start > 0 and name not in reached[start - 1]:
                start -= 1
            yield name, _without_detours(views, range(start, end))[-MAX_STEPS:]


def _without_detours(views: Sequence[str], steps: Sequence[int]) -> list[int]:
    path: list[int] = []
    for step in steps:
        views_of_path = [views[number] for number in path]
        # The steps since the earlier view were a circle.
        if views[step] in views_of_path:
            del path[views_of_path.index(views[step]) :]
        path.append(step)
    return path


def _objects_at_hand(view: str) -> set[str]:
    return {name for name, direction in _OBJECT.findall(view) if direction == _AT_HAND}


def _newest_view(prompt: str) -> str:
    """The newest observation of a prompt."""
    return prompt.rpartition("Observation ")[2].partition(": ")[2].partition("\n")[0]
