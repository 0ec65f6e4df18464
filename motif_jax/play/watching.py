"""One episode, step by step with everything that a viewer sees, and as a film."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from motif_jax.core.files import finite
from motif_jax.envs import registry
from motif_jax.envs.episode import EpisodePlayer, PlayedEpisode
from motif_jax.envs.recording import Recording, digest_fields, mismatch_error
from motif_jax.envs.spec import RUNNING, Action, EnvironmentSpec, Frame
from motif_jax.play.ratings import TextReward
from motif_jax.rl.actors.policies import Uniforms, choose_actions, log_softmax, masked

_MAX_PIXELS = 320


@dataclass(frozen=True)
class WatchedAction:
    """An action, with the policy's probabilities float32 [A] of all actions and its value estimate,
    where it has them.
    """

    action: Action
    probabilities: np.ndarray | None = None
    value: float | None = None


# Chooses the action on an observation at a step of one episode; None ends it.
Choose = Callable[[Mapping[str, np.ndarray], int], WatchedAction | None]


@dataclass(frozen=True)
class WatchedStep:
    """One observation of an episode.

    Attributes:
      step: actions taken before it.
      observation, frame: its fields, and what people see of it; written again at the next step, so
          copy what is kept.
      text: uint8 [L], None where the environment shows none.
      count: occurrences of the text in the episode, the present observation included; 0 without a
          text.
      reward, intrinsic: the intrinsic reward of the observation, and what it pays here after the
          count discount; the last observation is only paid where `EnvironmentSpec.last_text` says
          so, the first only with `reward.pay=read`.
      task_reward: paid by the task for the action that led here.
      choice: the next action; None at the end.
      end: 0 running, 1 terminated, 2 truncated.
    """

    step: int
    observation: Mapping[str, np.ndarray]
    frame: Frame | None
    text: np.ndarray | None
    count: int
    reward: TextReward | None
    intrinsic: float
    task_reward: float
    choice: WatchedAction | None
    end: int


def recorded_actions(actions: np.ndarray, policy: Any, spec: EnvironmentSpec) -> Choose:
    """Plays recorded actions, with the probabilities and values of `policy`, a `BatchPolicy` or
    None, on the way.
    """

    def pick(step: int, outputs: Any = None) -> Action | None:
        return actions[step].tolist() if step < len(actions) else None

    if policy is not None:
        return _thinking(policy, spec, pick)

    def choose(observation: Mapping[str, np.ndarray], step: int) -> WatchedAction | None:
        action = pick(step)
        return None if action is None else WatchedAction(action)

    return choose


def policy_actions(policy: Any, seed: int, spec: EnvironmentSpec, greedy: bool = False) -> Choose:
    """Plays a policy live: its draws are those of the episode's seed."""
    if not policy.in_workers:
        uniforms = Uniforms(seed)

        def draw(step: int, outputs: np.ndarray) -> Action:
            actions, _ = choose_actions(outputs, np.array([uniforms.at(step)]), greedy, spec)
            return actions[0].tolist()

        return _thinking(policy, spec, draw)
    player = policy.player(seed, spec)

    def choose(observation: Mapping[str, np.ndarray], step: int) -> WatchedAction | None:
        try:
            action = player(observation)
        except StopIteration:  # it ends the episode
            return None
        return WatchedAction(action, policy.probabilities(observation, spec))

    return choose


def _thinking(
    policy: Any, spec: EnvironmentSpec, pick: Callable[[int, np.ndarray], Action | None]
) -> Choose:
    """A `BatchPolicy` along one episode; `pick` takes the action by the step and the outputs
    float32 [1, A], None to end.
    """
    state = policy.initial_state(1)

    def choose(observation: Mapping[str, np.ndarray], step: int) -> WatchedAction | None:
        nonlocal state
        batch = {name: np.array(array)[None] for name, array in observation.items()}
        outputs, values, state = policy.act(batch, np.array([step == 0]), state)
        outputs = masked(outputs, batch, spec)
        action = pick(step, outputs)
        if action is None:
            return None
        probabilities = None
        if not spec.action_size:
            probabilities = np.exp(log_softmax(outputs[0])).astype(np.float32)
        return WatchedAction(action, probabilities, None if values is None else float(values[0]))

    return choose


def watch(
    player: EpisodePlayer, seed: int, choose: Choose, rater: Any = None
) -> Iterator[WatchedStep]:
    """Plays one episode and yields every observation of it.

    Args:
      rater: (text uint8 [L] or None, observation) -> `TextReward`, with `LiveRater`'s method
          `discount`; or None.
    """
    spec = player.environment.spec
    field = spec.text_field
    renderer = registry.renderer(spec)
    # Environments that `with_screen` did not make lack the fields that are drawn.
    if renderer is not None and not set(renderer.fields) <= set(spec.observation):
        renderer = None
    text_counts = collections.Counter[bytes]()
    visits: dict[bytes, int] = {}  # of sentences, where these are paid
    choice: WatchedAction | None = None

    def play_choice(_: Any) -> Action:
        if choice is None:
            raise StopIteration
        return choice.action

    transitions = player.transitions(seed, play_choice)
    for step, (out, _, task_reward, end) in enumerate(transitions):
        # Chosen here, since the yielded step shows it; the player takes it afterwards.
        choice = choose(out, step) if end == RUNNING else None
        text = None
        count = 0
        reward = None
        intrinsic = 0.0
        if field is not None:
            text = out[field]
            text_counts[text.tobytes()] += 1
            count = text_counts[text.tobytes()]
        # Without a text, too: a reward may read other fields.
        if rater is not None:
            reward = rater(text, out)
            is_paid = choice is not None or (end != RUNNING and spec.last_text)
            if is_paid and (step or rater.pays_first):
                intrinsic = rater.discount(text, reward, max(count, 1), visits)
        yield WatchedStep(
            step=step,
            observation=out,
            frame=None if renderer is None else renderer.frame(out),
            text=text,
            count=count,
            reward=reward,
            intrinsic=intrinsic,
            task_reward=task_reward,
            choice=choice,
            end=end,
        )


@dataclass
class Film:
    """A whole episode as arrays, n = actions + 1 rows.

    Attributes:
      action_names, action_keys: by number, see `EnvironmentSpec`; of real numbers the distinct
          actions of the episode.
      chars: uint8 [n, rows, columns]; colors: the same, the screen. Empty [n, 0, 0] where there is
          none.
      cursor: int16 [n, 2], row and column of the player, -1 where unknown.
      notes: name -> a text of each row.
      pictures: a PNG of each row, shown in place of the screen; None without pictures.
      actions: int32 [n - 1], numbers of `action_names`; played: [n - 1, ...], what the environment
          was given; task_rewards: float32 [n], of the action that led there.
      texts: distinct texts, or rather distinct pairs of a text and its reward, which may depend on
          more than the text; text_index: int32 [n]; text_count: int32 [n], of the text alone.
      raw, normalised, paid: float32 [texts], the intrinsic reward of each, see `TextReward`; None
          without one.
      intrinsic: float32 [n], the reward after the count discount; None without one.
      values: float32 [n - 1]; probabilities: float32 [n - 1, A]; None without a policy that has
          them.
      vitals: name -> int [n], numbers that people follow along an episode.
      info: the environment's numbers at the end.
      end: how it ended; 0 when the actions ran out.
    """

    task: str
    seed: int
    title: str
    action_names: tuple[str, ...]
    action_keys: tuple[int, ...]
    chars: np.ndarray
    colors: np.ndarray
    cursor: np.ndarray
    actions: np.ndarray
    played: np.ndarray
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
    notes: dict[str, list[str]] = field(default_factory=dict)
    pictures: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.text_index)


class FilmMaker:
    """Collects the steps of one episode and makes a film of them."""

    def __init__(self, task: str, spec: EnvironmentSpec, title: str) -> None:
        self._task = task
        self._spec = spec
        self._title = title
        self._steps: list[WatchedStep] = []
        self._frames: list[Frame] = []
        self._pictures: list[bytes] = []
        self._rows: dict[tuple[bytes, TextReward | None], int] = {}
        self._index: list[int] = []

    def add(self, watched: WatchedStep) -> None:
        """Adds the next step."""
        text = b"" if watched.text is None else watched.text.tobytes()
        self._index.append(self._rows.setdefault((text, watched.reward), len(self._rows)))
        if watched.frame is not None and watched.frame.picture is not None:
            self._pictures.append(_png(watched.frame.picture))
        if watched.frame is not None:
            # Copied: the frame may share memory with the observation, which the next step
            # overwrites.
            chars = np.array(watched.frame.chars)
            colors = np.array(watched.frame.colors)
            self._frames.append(watched.frame._replace(chars=chars, colors=colors, picture=None))
        self._steps.append(
            dataclasses.replace(watched, observation={}, frame=None, text=None, reward=None)
        )

    def film(self, episode: PlayedEpisode) -> Film:
        """The film of the steps, which are those of `episode`."""
        steps = self._steps
        # The last step's choice was not played: an episode that a viewer leaves ends before it.
        choices = [watched.choice for watched in steps[:-1] if watched.choice is not None]
        names = self._spec.action_names
        keys = self._spec.action_keys
        numbers: list[Any] = episode.actions.tolist()
        if self._spec.action_size:
            labels = [self._spec.action_label(action) for action in numbers]
            names = tuple(dict.fromkeys(labels))
            keys = (0,) * len(names)
            number_of = {name: number for number, name in enumerate(names)}
            numbers = [number_of[label] for label in labels]
        film = Film(
            task=self._task,
            seed=episode.seed,
            title=self._title,
            action_names=names,
            action_keys=keys,
            # Without a screen; `_add_screen` replaces these.
            chars=np.zeros((len(steps), 0, 0), np.uint8),
            colors=np.zeros((len(steps), 0, 0), np.int8),
            cursor=np.full((len(steps), 2), -1, np.int16),
            actions=np.array(numbers, np.int32),
            played=episode.actions,
            task_rewards=np.array([watched.task_reward for watched in steps], np.float32),
            texts=[text for text, _ in self._rows],
            text_index=np.array(self._index, np.int32),
            text_count=np.array([watched.count for watched in steps], np.int32),
            info=episode.info,
            end=episode.end,
            pictures=self._pictures or None,
        )
        if self._frames:
            self._add_screen(film)

        rewards = [reward for _, reward in self._rows if reward is not None]
        if rewards:
            film.raw, film.normalised, film.paid = np.array(rewards, np.float32).T
            film.intrinsic = np.array([watched.intrinsic for watched in steps], np.float32)

        values = [choice.value for choice in choices]
        if values and None not in values:
            film.values = np.array(values, np.float32)
        probabilities = [
            choice.probabilities for choice in choices if choice.probabilities is not None
        ]
        if probabilities:
            film.probabilities = np.stack(probabilities)
        return film

    def _add_screen(self, film: Film) -> None:
        frames = self._frames
        film.chars = np.stack([frame.chars for frame in frames])
        film.colors = np.stack([frame.colors for frame in frames])
        film.cursor = np.array([frame.cursor or (-1, -1) for frame in frames], np.int16)
        # All frames have the same names.
        for name in frames[0].numbers:
            film.vitals[name] = np.array([frame.numbers[name] for frame in frames])
        for name in frames[0].notes:
            film.notes[name] = [frame.notes[name] for frame in frames]


def _png(picture: np.ndarray) -> bytes:
    """A picture uint8 [height, width, 3] as PNG, made smaller where it has more than `_MAX_PIXELS`
    on a side.
    """
    from PIL import Image

    image = Image.fromarray(picture)
    image.thumbnail((_MAX_PIXELS, _MAX_PIXELS))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def with_screen(
    task: str, options: Mapping[str, Any], fields: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns `options` of the environment `task` with `fields` and the fields that its renderer
    draws.
    """
    spec = registry.spec(task, **options)
    renderer = registry.renderer(spec)
    # What the environment shows anyway need not be asked for.
    drawn = (
        []
        if renderer is None
        else [name for name in renderer.fields if name in spec.optional_fields]
    )
    shown = tuple(dict.fromkeys((*options.get("fields", ()), *fields, *drawn)))
    return {**options, "fields": shown} if shown else dict(options)


class Screening:
    """Plays one episode for people who watch, and films it.

    Args:
      options: of the game; its environment shows `fields` and what is drawn besides.
      choose_of, rater_of: spec -> `Choose`, and the rater for `watch`; None without a reward.
      observed: options (`spec.OBSERVED`) that decide what a policy reads.
    """

    def __init__(
        self,
        task: str,
        options: Mapping[str, Any],
        seed: int,
        title: str,
        choose_of: Callable[[EnvironmentSpec], Choose],
        rater_of: Callable[[EnvironmentSpec], Any] | None = None,
        fields: Sequence[str] = (),
        observed: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        environment = registry.make(task, **with_screen(task, {**options, **observed}, fields))
        self.spec = environment.spec
        # A digest is of the task's own fields: there are more, for people, reward and agent.
        fields_of_digest = digest_fields(task, options)
        self._player = EpisodePlayer(environment, keep_texts=False, digest_fields=fields_of_digest)
        self._seed = seed
        self._choose = choose_of(self.spec)
        self._rater = None if rater_of is None else rater_of(self.spec)
        self._maker = FilmMaker(task, self.spec, title)

    def steps(self) -> Iterator[WatchedStep]:
        """Plays the episode; a viewer may leave it early."""
        for watched in watch(self._player, self._seed, self._choose, self._rater):
            self._maker.add(watched)
            yield watched

    def film(self, recording: Recording | None = None) -> Film:
        """The film of the steps so far.

        Raises:
          UserError: they are not the episode of `recording`: an observation, reward or final number
              differs.
        """
        episode = self._player.episode()
        if recording is not None:
            is_same_game = episode.digest == recording.digest
            is_same_end = finite(episode.info) == finite(dict(recording.info))
            if not (is_same_game and is_same_end and len(episode) == len(recording.actions)):
                raise mismatch_error(recording)
        return self._maker.film(episode)

    def close(self) -> None:
        """Closes the environment."""
        self._player.close()


def screening_of(
    recording: Recording,
    title: str,
    policy: Any = None,
    rater_of: Callable[[EnvironmentSpec], Any] | None = None,
    fields: Sequence[str] = (),
    observed: Mapping[str, Any] = MappingProxyType({}),
) -> Screening:
    """A recorded episode with the values and probabilities of `policy`, a `BatchPolicy` or None;
    further arguments as of `Screening`.
    """
    choose_of = functools.partial(recorded_actions, recording.actions, policy)
    return Screening(
        recording.task,
        recording.options,
        recording.seed,
        title,
        choose_of,
        rater_of,
        fields,
        observed,
    )


def film_recording(recording: Recording, *arguments: Any) -> Film:
    """Plays a recording again and films it; arguments as of `screening_of`.

    Raises UserError as `Screening.film`.
    """
    with contextlib.closing(screening_of(recording, *arguments)) as screening:
        for _ in screening.steps():
            pass
        return screening.film(recording)
