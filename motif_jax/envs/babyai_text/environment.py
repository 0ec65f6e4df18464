"""BabyAI levels as environments, observed as codes, as sentences, and as the prompt of a language
model.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from motif_jax.core import seeds, text_bytes
from motif_jax.core.errors import UserError
from motif_jax.envs.babyai_text import catalogue, instructions, missions
from motif_jax.envs.babyai_text.changes import CHANGES, EXCHANGED, PromptChange
from motif_jax.envs.babyai_text.exchange import Exchange
from motif_jax.envs.babyai_text.prompts import TOKENS, PromptTokens, Window
from motif_jax.envs.babyai_text.sentences import VIEW, clauses
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED, ArraySpec, EnvironmentSpec

SECTION = "babyai_text"
FRENCH_GOAL = "glam_french_goal"
# Published: kinds are drawn once for each environment of a run.
FIXED_KIND = "glam_fixed_kind_per_env"
# Published: for DRRN, prompts leave out an episode's first observation.
NO_FIRST_OBSERVATION = "drrn_first_observation"
INSTRUCTION = "instruction"
MISSION_BYTES = 256
TEXT_BYTES = 3072
PROMPT_BYTES = 8192  # for every three observations in a prompt
MAX_DISTRACTORS = 20  # with more, every object is reachable in few rooms only
_OPTIONAL = {
    "bot_action": ArraySpec((), "uint8"),
    INSTRUCTION: ArraySpec((instructions.LENGTH,), "uint8"),
}


@dataclasses.dataclass(frozen=True)
class LevelOptions:
    """Options of a level.

    Attributes:
      max_episode_steps: truncates episodes before the level's own limit.
      kind: kind of task; '' draws it for each episode.
      language: of clauses and prompts; '' for the level's default.
      observations: number of observations in a prompt.
      actions: their names in a prompt; actions after the sixth change nothing.
      tokenizer: a tokenizer.json for the field `tokens` int32 [prompt_tokens], the prompt padded
        with -1; '' for none.
      change: one of `changes.CHANGES` or `changes.EXCHANGED`, '' for none.
      distractors: number of objects that the mission does not need; None for the level's default.
      special_tokens: whether the tokenizer's special tokens enclose a prompt.
      joint_actions: whether the actions are tokenised together with each prompt, into the fields
        `candidates` int32 [actions, tokens], padded with -1, and `candidate_starts` int32 [actions]
        (`prompts.PromptTokens`).
      prompt_turn: what a chat model's template writes before a prompt and after it, where the
        answer begins; () for none.
    """

    max_episode_steps: int | None = None
    compat: Mapping[str, bool] | None = None
    kind: str = ""
    language: str = ""
    observations: int = 3
    actions: Sequence[str] = catalogue.ACTIONS
    tokenizer: str = ""
    prompt_tokens: int = 0
    change: str = ""
    distractors: int | None = None
    special_tokens: bool = True
    joint_actions: bool = False
    prompt_turn: Sequence[str] = ()

    def prompt_tokenizer(self) -> PromptTokens | None:
        """Makes tokens of prompts; None without a tokenizer."""
        if not self.tokenizer:
            return None
        actions = self.actions if self.joint_actions else ()
        return PromptTokens(
            self.tokenizer, self.prompt_tokens, self.special_tokens, actions, self.prompt_turn
        )


def make_spec(name: str, *, fields: Iterable[str] = (), **options: Any) -> EnvironmentSpec:
    """The spec of `BabyAIText` with these `LevelOptions`. Raises UserError: a value is invalid."""
    chosen = LevelOptions(**options)
    level = catalogue.find(name)
    assert level is not None, "the registry makes levels that there are"
    _check(name, level, chosen)

    # With several kinds of task the arrays have the size of the largest grid.
    worlds = [levels().build(level, kind) for kind in level.kinds or (None,)]
    width = max(world.width for world in worlds)
    height = max(world.height for world in worlds)
    grid = levels().grid_fields(width, height)
    prompt = ArraySpec((PROMPT_BYTES * math.ceil(chosen.observations / 3),), "uint8")
    optional = {"prompt": prompt, **_OPTIONAL, **grid}
    if unknown := sorted(set(fields) - set(optional)):
        raise ValueError(f"{name} has no fields {', '.join(unknown)}")
    return EnvironmentSpec(
        observation={
            "image": ArraySpec((VIEW, VIEW, 3), "uint8"),
            "mission": ArraySpec((MISSION_BYTES,), "uint8"),
            "text": ArraySpec((TEXT_BYTES,), "uint8"),
            "text_count": ArraySpec((), "int32"),
            **_token_fields(chosen),
            **{field: optional[field] for field in fields},
        },
        num_actions=len(chosen.actions),
        text_field="text",
        count_field="text_count",
        expert_field="bot_action",
        episode_fields=("success", "kind", "limit"),
        family="BabyAI-Text",
        action_names=tuple(chosen.actions),
        optional_fields=optional,
        quirks=(FRENCH_GOAL, NO_FIRST_OBSERVATION, FIXED_KIND),
        section=SECTION,
        # Only where each environment of a run draws one kind for all its episodes.
        keeps_place=bool((chosen.compat or {}).get(FIXED_KIND))
        and bool(level.kinds)
        and not chosen.kind,
        renderer="motif_jax.envs.babyai_text.renderer:GridRenderer",
    )


def _token_fields(chosen: LevelOptions) -> dict[str, ArraySpec]:
    """The fields of the prompt's tokens; {} without a tokenizer."""
    if not chosen.tokenizer:
        return {}
    if not chosen.joint_actions:
        # The file is not read for a shape that does not depend on it.
        return {TOKENS: ArraySpec((chosen.prompt_tokens,), "int32")}
    tokenizer = chosen.prompt_tokenizer()
    assert tokenizer is not None
    return tokenizer.fields


def levels() -> ModuleType:
    """The module `levels`, imported late: names and options need no minigrid."""
    return importlib.import_module("motif_jax.envs.babyai_text.levels")


def _refuse(key: str, value: Any, allowed: str) -> None:
    raise UserError(f"config.environment.{SECTION}.{key}={value}: must be {allowed}")


def levels_in_words() -> str:
    """The names of levels, for error messages."""
    return f"choose one of {', '.join(catalogue.LEVELS)}, or one of minigrid's own BabyAI levels"


def _check(name: str, level: catalogue.LevelRecipe, chosen: LevelOptions) -> None:
    kind = chosen.kind
    language = chosen.language
    actions = chosen.actions
    if kind and kind not in level.kinds:
        others = (
            f" (drawn for each episode) or one of {', '.join(level.kinds)}" if level.kinds else ""
        )
        _refuse("kind", kind, f"''{others} in {name}")
    if language and language not in catalogue.LANGUAGES:
        _refuse(
            "language", language, f"'' (the level's own) or one of {', '.join(catalogue.LANGUAGES)}"
        )
    if chosen.observations < 1:
        _refuse("observations", chosen.observations, "a positive number")
    are_names = not isinstance(actions, str) and all(
        isinstance(name, str) and name for name in actions
    )
    if not (are_names and actions and len(set(actions)) == len(actions)):
        _refuse("actions", actions, "names of actions, each different and not empty")
    # The tokens of the text task are the bytes of latin-1.
    if "".join(actions).encode("latin-1", "replace").decode("latin-1") != "".join(actions):
        _refuse("actions", actions, "of the letters of western Europe (latin-1)")
    if chosen.change and chosen.change not in (*CHANGES, *EXCHANGED):
        _refuse("change", chosen.change, f"'' (none) or one of {', '.join((*CHANGES, *EXCHANGED))}")
    distractors = chosen.distractors
    if distractors is None:
        return
    if levels().distractors_of(level) is None:
        _refuse("distractors", distractors, f"None in {name}, whose objects cannot be chosen")
    if type(distractors) is not int or not 0 <= distractors <= MAX_DISTRACTORS:
        allowed = f"a number from 0 to {MAX_DISTRACTORS}, or None (the level's own)"
        _refuse("distractors", distractors, allowed)


class BabyAIText:
    """A BabyAI level.

    Observation: `image` uint8 [7, 7, 3], the view in codes (column, row, then object, colour and
    state; the agent stands at column 3, row 6); `mission` uint8 [256]; `text` uint8 [3072], a
    clause per line; `text_count` int32, how often it was seen in this episode. Texts are UTF-8,
    padded with zeros.

    Optional fields: `prompt` uint8 [8192 for every three observations], input of a language model;
    `bot_action` uint8, the action of minigrid's bot (255: no answer); `instruction` uint8 [80], the
    mission by `instructions`; `grid`, `lit` and `pose`, for renderers.

    Level, kind of task and seed determine an episode, with the draws of the published fork. The
    reward is 1 - 0.9 t / limit for success after t steps, else 0; success on the last step counts.
    `episode_info` adds success (0, 1), kind (its index) and limit (the level's, in steps). `place`,
    a number in the run, draws the kind under `glam_fixed_kind_per_env`.
    """

    make_spec = staticmethod(make_spec)

    def __init__(
        self, name: str, *, fields: Iterable[str] = (), place: int | None = None, **options: Any
    ) -> None:
        self.spec = make_spec(name, fields=fields, **options)
        chosen = LevelOptions(**options)
        level = catalogue.find(name)
        assert level is not None
        self._level = level
        self._kind: str | None = chosen.kind or None
        # As published: the kind is drawn once, by the environment's place in the run.
        if self._kind is None and place is not None:
            self._kind = self._draw_kind(place)
        self.language = chosen.language or level.language
        self._change = PromptChange(chosen.change, self.language)
        self._distractors = chosen.distractors
        self._max_steps = chosen.max_episode_steps
        compat = chosen.compat or {}
        self._as_published = bool(compat.get(FRENCH_GOAL))
        self._shows_first = not compat.get(NO_FIRST_OBSERVATION)
        self._window = Window(chosen.observations)
        self._actions = tuple(chosen.actions)
        self._fields = frozenset(fields)
        self._worlds: dict[str | None, Any] = {}
        self._bot: Any = None
        self._tokenizer = chosen.prompt_tokenizer()
        self._exchange: Exchange | None = None
        if chosen.change in EXCHANGED:
            # Without a change, as it would exchange its own again; its prompt is tokenised here.
            unchanged = dict(options, change="", tokenizer="")
            self._exchange = Exchange(chosen.change, BabyAIText(name, **unchanged))

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        kind = self._kind or self._draw_kind(seed)
        self._task = self._level.kinds.index(kind) if kind else 0
        if kind not in self._worlds:
            self._worlds[kind] = levels().build(self._level, kind, self._distractors)
        self._world = self._worlds[kind]
        observation, _ = self._world.reset(seed=seed)
        self._return = 0.0
        self._steps = 0
        self._success = 0.0
        self._counts = collections.Counter[str]()

        mission = self._world.mission
        # Of the largest levels one in 160,000 is longer: this field has its beginning, the prompt
        # all of it.
        self._mission = encoded(mission[:MISSION_BYTES], MISSION_BYTES, "a mission")
        if INSTRUCTION in self._fields:
            self._instruction = instructions.numbered(mission)
        self.goal = mission
        if self.language == catalogue.FRENCH:
            self.goal = missions.in_french(mission, self._as_published)
        if self._exchange is not None:
            self._exchange.begin(seed, self.goal)
            # Another mission replaces the goal alone; whole prompts are exchanged in `prompt`.
            self.goal = self.goal if self._exchange.prompts else self._exchange.other.goal

        sentences = self._clauses(observation)
        self._window.start(sentences if self._shows_first else None)
        if "bot_action" in self._fields:
            from motif_jax.envs.babyai_text.bot import Bot

            self._bot = Bot(self._world, self.spec.num_actions)
        self._write(observation["image"], sentences, out, None)

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        self.spec.check_action(action)
        return self.play(min(action, catalogue.NO_EFFECT), self._actions[action], out)

    def play(self, played: int, name: str, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        """Plays minigrid's action `played`, called `name` in prompts; returns (reward, end)."""
        observation, reward, terminated, truncated, _ = self._world.step(played)
        self._steps += 1
        self._return += reward
        self._success = float(reward > 0)
        sentences = self._clauses(observation)
        self._window.add(name, sentences)
        if self._exchange is not None:
            self._exchange.add(played, name)
        self._write(observation["image"], sentences, out, played)
        # Before the limit, since success on the last step counts.
        if terminated:
            return float(reward), TERMINATED
        # The level's own limit is in `truncated`.
        at_limit = self._max_steps is not None and self._steps >= self._max_steps
        return float(reward), TRUNCATED if truncated or at_limit else RUNNING

    def prompt(self) -> str:
        """The prompt of a language model for the newest observation, with the change of the
        options.
        """
        if self._exchange is not None and self._exchange.prompts:
            return self._exchange.other.prompt()
        return self._window.prompt(self.goal, self._actions, self.language, self._change)

    def episode_info(self) -> dict[str, float]:
        return {
            "return": self._return,
            "length": float(self._steps),
            "success": self._success,
            "kind": float(self._task),
            "limit": float(self._world.max_steps),
        }

    def close(self) -> None:
        self._worlds.clear()

    def _draw_kind(self, seed: int) -> str | None:
        kinds = self._level.kinds
        if not kinds:
            return None
        # A separate stream keeps the level's draws a function of (level, kind, seed).
        return kinds[int(seeds.rng(seed, "kind").integers(len(kinds)))]

    def _clauses(self, observation: Mapping[str, Any]) -> list[str]:
        carried = self._world.carrying
        thing = None if carried is None else (carried.type, carried.color)
        return clauses(observation["image"], thing, self.language)

    def _write(
        self,
        image: np.ndarray,
        sentences: list[str],
        out: Mapping[str, np.ndarray],
        played: int | None,
    ) -> None:
        text = "\n".join(sentences)
        self._counts[text] += 1
        out["image"][...] = image
        out["mission"][...] = self._mission
        out["text"][...] = encoded(text, TEXT_BYTES, "an observation")
        out["text_count"][...] = self._counts[text]

        fields = self._fields
        if INSTRUCTION in fields:
            out[INSTRUCTION][...] = self._instruction
        if "prompt" in fields or self._tokenizer is not None:
            prompt = self.prompt()
            if "prompt" in fields:
                out["prompt"][...] = encoded(prompt, len(out["prompt"]), "a prompt")
            if self._tokenizer is not None:
                self._tokenizer.write(prompt, out)
        if "bot_action" in fields:
            # The bot follows what is played, so it is asked at every step.
            out["bot_action"][...] = self._bot.action(played)
        if fields & {"grid", "lit", "pose"}:
            levels().draw(self._world, fields, out)


def encoded(text: str, size: int, name: str) -> np.ndarray:
    """`text` as uint8 [size], UTF-8, padded with zeros; ValueError, which calls it `name`, if it is
    longer.
    """
    data = text_bytes.encode(text)
    if len(data) > size:
        raise ValueError(f"{name} has {len(data)} bytes, more than {size}: {text[:80]!r}")
    return text_bytes.padded(data, size)


def decoded(data: np.ndarray) -> str:
    """The text in uint8 [size]."""
    return text_bytes.decode(data.tobytes().rstrip(b"\0"))
