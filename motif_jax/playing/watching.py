"""One episode step by step with everything a watcher wants to know, and as a film that can be kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from motif_jax.envs import registry, replay
from motif_jax.envs.nethack import status as status_line
from motif_jax.envs.nethack.action_names import action_names
from motif_jax.envs.spec import RUNNING, EnvironmentSpec, empty_observation
from motif_jax.playing.episode_worker import Uniforms
from motif_jax.playing.policies import choose_actions, log_softmax
from motif_jax.playing.ratings import TextReward

SCREEN_FIELDS = ("tty_chars", "tty_colors")


class Chooser(Protocol):
    """Chooses actions of one episode, and may say what it thinks."""

    def choose(self, observation: Mapping[str, np.ndarray], step: int) -> Choice | None:
        """Returns the choice on this observation; None ends the episode here."""
        ...


@dataclass(frozen=True)
class Choice:
    """An action, with the policy's opinion where it has one.

    Attributes:
      action: the action taken.
      probabilities: float32 [A] of all actions, or None.
      value: the policy's value estimate, or None.
    """

    action: int
    probabilities: np.ndarray | None = None
    value: float | None = None


@dataclass(frozen=True)
class Sight:
    """One observation of an episode.

    Attributes:
      step: actions taken before it.
      observation: its fields; the arrays are written again at the next step, so copy what is kept.
      text: uint8 [L], None where the environment shows none.
      count: how often this text was seen in the episode, this time included.
      reward: what the intrinsic reward says of the observation, None without one.
      intrinsic: what it pays here, after the count discount; 0 at the end, which is never paid.
      task_reward: paid by the task for the action that led here.
      choice: what is done next; None at the end.
      end: 0 running, 1 terminated, 2 truncated.
    """

    step: int
    observation: Mapping[str, np.ndarray]
    text: np.ndarray | None
    count: int
    reward: TextReward | None
    intrinsic: float
    task_reward: float
    choice: Choice | None
    end: int


class GivenActions:
    """Plays recorded actions; with a policy, says what that policy thinks of every observation on the way."""

    def __init__(self, actions: np.ndarray, policy: Any = None) -> None:
        self._actions, self._policy = actions, policy
        self._state = None if policy is None else policy.initial_state(1)

    def choose(self, observation: Mapping[str, np.ndarray], step: int) -> Choice | None:
        """See `Chooser`."""
        if step >= len(self._actions):
            return None
        probabilities, value = None, None
        if self._policy is not None:
            logits, value, self._state = _opinion(self._policy, observation, step, self._state)
            probabilities = np.exp(log_softmax(logits)).astype(np.float32)
        return Choice(int(self._actions[step]), probabilities, value)


class PolicyActions:
    """Plays a policy live: its draws are those of the episode's seed."""

    def __init__(self, policy: Any, seed: int, num_actions: int, greedy: bool = False) -> None:
        self._policy, self._greedy, self._uniforms = policy, greedy, Uniforms(seed)
        self._random = policy.actions(seed, num_actions) if hasattr(policy, "actions") else None
        self._num_actions = num_actions
        self._state = None if self._random is not None else policy.initial_state(1)

    def choose(self, observation: Mapping[str, np.ndarray], step: int) -> Choice | None:
        """See `Chooser`."""
        if self._random is not None:
            return Choice(next(self._random), np.full(self._num_actions, 1 / self._num_actions, np.float32))
        logits, value, self._state = _opinion(self._policy, observation, step, self._state)
        actions, _ = choose_actions(logits[None], np.array([self._uniforms.at(step)]), self._greedy)
        return Choice(int(actions[0]), np.exp(log_softmax(logits)).astype(np.float32), value)


def _opinion(
    policy: Any, observation: Mapping[str, np.ndarray], step: int, state: Any
) -> tuple[np.ndarray, float, Any]:
    batch = {name: np.array(array)[None] for name, array in observation.items()}
    logits, values, state = policy.act(batch, np.array([step == 0]), state)
    return logits[0], float(values[0]), state


def watch(environment: Any, seed: int, chooser: Chooser, rater: Any = None) -> Iterator[Sight]:
    """Plays one episode and yields every observation of it.

    Args:
      environment: from `envs.registry.make`.
      seed: of the episode.
      chooser: says what to do.
      rater: (text uint8 [L], observation) -> `TextReward`, with attribute `count_exponent`; or None.
    """
    spec, out = environment.spec, empty_observation(environment.spec)
    seen: dict[bytes, int] = {}
    environment.reset(seed, out)
    step, task_reward, end = 0, 0.0, RUNNING
    while True:
        text, count, rated, paid = None, 0, None, 0.0
        if spec.text_field is not None:
            text = out[spec.text_field]
            count = seen[text.tobytes()] = seen.get(text.tobytes(), 0) + 1
            if rater is not None:
                rated = rater(text, out)
                paid = rated.paid / count**rater.count_exponent
        choice = chooser.choose(out, step) if end == RUNNING else None
        yield Sight(step, out, text, count, rated, paid if choice else 0.0, task_reward, choice, end)
        if choice is None:
            return
        task_reward, end = environment.step(choice.action, out)
        step += 1


@dataclass
class Film:
    """A whole episode as arrays, n = actions + 1 rows.

    Attributes:
      task, options, seed: which episode.
      title: what people call it.
      action_names: by number.
      chars: uint8 [n, 24, 80]; colors: int8 [n, 24, 80], the screen. Empty [n, 0, 0] where there is none.
      cursor: int16 [n, 2], row and column of the hero, -1 where unknown.
      actions: int32 [n - 1]; task_rewards: float32 [n], of the action that led there.
      texts: distinct texts, or rather distinct pairs of a text and its reward, which may depend on more than the text;
        text_index: int32 [n]; text_count: int32 [n], of the text alone.
      raw, normalised, paid: float32 [texts], what the intrinsic reward says of each; None without one.
      intrinsic: float32 [n], after the count discount; None without a reward.
      values: float32 [n - 1]; probabilities: float32 [n - 1, A]; None without a policy that has them.
      vitals: name -> int [n], numbers of the status line.
      info: the environment's numbers at the end.
      end: how it ended; 0 when the actions ran out.
    """

    task: str
    options: dict[str, Any]
    seed: int
    title: str
    action_names: tuple[str, ...]
    chars: np.ndarray
    colors: np.ndarray
    cursor: np.ndarray
    actions: np.ndarray
    task_rewards: np.ndarray
    texts: list[bytes]
    text_index: np.ndarray
    text_count: np.ndarray
    raw: np.ndarray | None = None
    normalised: np.ndarray | None = None
    paid: np.ndarray | None = None
    intrinsic: np.ndarray | None = None
    values: np.ndarray | None = None
    probabilities: np.ndarray | None = None
    vitals: dict[str, np.ndarray] = field(default_factory=dict)
    info: dict[str, float] = field(default_factory=dict)
    end: int = RUNNING

    def __len__(self) -> int:
        return len(self.text_index)


class FilmMaker:
    """Keeps the sights of one episode and makes a film of them."""

    def __init__(
        self, task: str, options: Mapping[str, Any], seed: int, spec: EnvironmentSpec, title: str
    ) -> None:
        self._task, self._options, self._seed, self._spec, self._title = (
            task,
            dict(options),
            seed,
            spec,
            title,
        )
        self._sights: list[Sight] = []
        self._kept: dict[str, list[np.ndarray]] = {
            name: [] for name in (*SCREEN_FIELDS, status_line.STATUS_FIELD) if name in spec.observation
        }
        self._rows: dict[tuple[bytes, TextReward | None], int] = {}
        self._index: list[int] = []

    def add(self, sight: Sight) -> None:
        """Keeps one sight."""
        text = b"" if sight.text is None else sight.text.tobytes()
        self._index.append(self._rows.setdefault((text, sight.reward), len(self._rows)))
        for name, rows in self._kept.items():
            rows.append(np.array(sight.observation[name]))
        self._sights.append(
            Sight(
                sight.step,
                {},
                None,
                sight.count,
                None,
                sight.intrinsic,
                sight.task_reward,
                sight.choice,
                sight.end,
            )
        )

    def film(self, info: Mapping[str, float]) -> Film:
        """Returns the episode so far."""
        sights, n = self._sights, len(self._sights)
        choices = [sight.choice for sight in sights if sight.choice is not None]
        rewards = [reward for _, reward in self._rows if reward is not None]
        rated = np.array(rewards, np.float32) if rewards else None
        status = (
            np.stack(self._kept[status_line.STATUS_FIELD]) if status_line.STATUS_FIELD in self._kept else None
        )
        screen = SCREEN_FIELDS[0] in self._kept
        values = [choice.value for choice in choices]
        probabilities = [choice.probabilities for choice in choices if choice.probabilities is not None]
        return Film(
            self._task,
            self._options,
            self._seed,
            self._title,
            action_names(self._task, self._spec.num_actions),
            np.stack(self._kept[SCREEN_FIELDS[0]]) if screen else np.zeros((n, 0, 0), np.uint8),
            np.stack(self._kept[SCREEN_FIELDS[1]]) if screen else np.zeros((n, 0, 0), np.int8),
            np.full((n, 2), -1, np.int16) if status is None else status_line.cursor(status),
            np.array([choice.action for choice in choices], np.int32),
            np.array([sight.task_reward for sight in sights], np.float32),
            [text for text, _ in self._rows],
            np.array(self._index, np.int32),
            np.array([sight.count for sight in sights], np.int32),
            None if rated is None else rated[:, 0],
            None if rated is None else rated[:, 1],
            None if rated is None else rated[:, 2],
            None if rated is None else np.array([sight.intrinsic for sight in sights], np.float32),
            np.array(values, np.float32) if values and None not in values else None,
            np.stack(probabilities) if probabilities else None,
            {} if status is None else status_line.vitals(status),
            dict(info),
            sights[-1].end,
        )


def with_screen(task: str, options: Mapping[str, Any], fields: Sequence[str] = ()) -> dict[str, Any]:
    """Returns `options` of the environment `task` with `fields`, and the screen where it has one, to be observed."""
    screen = SCREEN_FIELDS if task in registry.NETHACK_TASKS else ()
    shown = tuple(dict.fromkeys((*options.get("fields", ()), *fields, *screen)))
    return {**options, "fields": shown} if shown else dict(options)


def film_recording(
    recording: replay.Recording,
    title: str,
    policy: Any = None,
    rater_of: Any = None,
    fields: Sequence[str] = (),
) -> Film:
    """Plays a recording again and films it.

    Args:
      recording: of the episode.
      title: of the film.
      policy: a `BatchPolicy` whose values and probabilities are kept, or None.
      rater_of: spec -> rater for `watch`, or None.
      fields: observation fields that the rater reads besides those of the task.

    Raises:
      UserError: the environment does not play the recorded episode: an observation, reward or final number differs.
    """
    options = {key: value for key, value in recording.options.items() if key != "fields"}
    environment = registry.make(recording.task, **with_screen(recording.task, options, fields))
    maker = FilmMaker(recording.task, options, recording.seed, environment.spec, title)
    digest = replay.Digest(recording.task, options)
    rater = None if rater_of is None else rater_of(environment.spec)
    try:
        for sight in watch(environment, recording.seed, GivenActions(recording.actions, policy), rater):
            digest.add(sight.observation, sight.task_reward, sight.end)
            maker.add(sight)
        film = maker.film(environment.episode_info())
    finally:
        environment.close()
    same = digest.hexdigest() == recording.digest and film.info == dict(recording.info)
    if not (same and len(film.actions) == len(recording.actions)):
        raise replay.not_the_recorded(recording)
    return film
