"""The JSON lines of the benchmarks, with a clock of the test and stand-ins for the parts that are measured."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents, _text_agents, actors, annotate, learning, text_play
from motif_jax.benchmarks._bare_engine import Bare, write_script
from motif_jax.core.errors import UserError
from motif_jax.core.seeds import derive
from motif_jax.envs.nethack.engine import NetHackEngine
from motif_jax.envs.nethack.game import Game
from motif_jax.envs.nethack.observation import MAX_EPISODE_STEPS
from tests.benchmarks.lines import line_of
from tests.reward_fixtures import make_dataset

HERE = "motif_jax.benchmarks"


pytestmark = pytest.mark.usefixtures("clock")

Training = dataclasses.make_dataclass("Training", ["options", "seed", "variant", ("serial", bool, True)])


class Reading(int):
    """Stands for the meters' reading: how many batches were learned from since the one before."""

    def rate(self, name: str) -> float:
        return 0.25


class Parts:
    """Stands for a `System`, its meters, its only source, and a `BatchStream` of it; notes the calls of them."""

    instances: list[Parts]

    def __init__(self, config: Any) -> None:
        self.config = config
        self.calls: list[Any] = []  # steps of batches that were learned from, "settled", "closed"
        self.calls_at_last_read = 0
        self.meters = self
        self.learner = self
        self.actors = self
        self.inference = self
        self.sources = [self]
        self.inference_threads = 2
        self.state = SimpleNamespace(step=0)
        self.params = dict
        batches = [SimpleNamespace(num_steps=n, num_bytes=3 * n, intrinsic_returns=[]) for n in (60, 61, 62)]
        stream: Any = itertools.cycle([None, *batches])
        self.get = lambda: next(stream)
        self.step = lambda batch: self.calls.append(batch.num_steps)
        self.settle = functools.partial(self.calls.append, "settled")
        self.close = functools.partial(self.calls.append, "closed")
        self.instances.append(self)

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def metrics(self) -> dict[str, float]:
        return dict.fromkeys(("loss/total", "lag/max", "ratio_min"), len(self.calls))

    def read(self) -> Reading:
        before = self.calls_at_last_read
        self.calls_at_last_read = len(self.calls)
        return Reading(self.calls_at_last_read - before)

    def episodes(self) -> list[dict[str, Any]]:
        count = len(self.calls)
        episode = {"episode": count, "return": count / 50, "success": 0.75, "length": 4}
        return [{"env": env, **episode} for env in range(60)]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[Parts]:
    def training(options: ConfigDict, seed: int, variant: str = "") -> Training:
        return Training(options.to_dict(), seed, variant)

    def metrics(read: int, threads: int) -> dict[str, float]:
        return {"inference/rows_per_call": 10.4 * read, "device_max": 2 / read, "threads": threads}

    monkeypatch.setattr(Parts, "instances", [], raising=False)
    monkeypatch.setattr(_agents, "training_config", training)
    for name in ("train", "learner", "learning", "inference"):
        monkeypatch.setattr(f"{HERE}.{name}.System", Parts)
        monkeypatch.setattr(f"{HERE}.{name}.BatchStream", lambda system: system, raising=False)
    groups = SimpleNamespace(envs_per_group=5, groups=6)
    monkeypatch.setattr("motif_jax.rl.settings.actors_configs", lambda config, count: [groups] * count)
    monkeypatch.setattr(f"{HERE}.inference.call_of", lambda system, rows: lambda: system.calls.append(rows))
    monkeypatch.setattr(f"{HERE}.train.system_metrics", metrics)
    return Parts.instances


def test_the_learners_line_counts_the_flops_of_all_rows(parts: list[Parts]) -> None:
    line = line_of("learner", batch_size=66, rollout=33)
    # 34 rows of a rollout of 33 steps, each of 35 operations.
    assert line["model_flops_per_update"] == 34 * 2 * 35
    assert line["value"] == pytest.approx(line["updates_per_second"] * 34 * 2 * 35)
    assert line["steps_per_second"] == pytest.approx(line["updates_per_second"] * 66)
    assert line["batch_bytes"] == 180
    assert parts[0].calls.count(60) == parts[0].calls.count("settled") > 3


def test_inferences_line_is_of_the_largest_of_all_batch_sizes(parts: list[Parts]) -> None:
    line = line_of("inference")
    assert list(line["rows_per_second"]) == ["5", "10", "20", "30"]
    assert line["rows"] == 30
    assert line["value"] == pytest.approx(line["rows_per_second"]["30"] * 10)
    assert parts[0].calls[-1] == "closed"


def test_the_trainings_baseline_takes_turns_on_the_device(parts: list[Parts]) -> None:
    line = line_of("train", seconds=9.0)
    learner = line["learner_steps_per_second"]
    inference = line["inference_rows_per_second"]
    assert line["baseline"]["value"] == pytest.approx(1 / (1 / learner + 1 / inference))
    assert line["metrics"]["ratio_min"] <= line["metrics"]["loss/total"] <= line["metrics"]["lag/max"]
    assert "beside" not in line
    assert len(parts) == 1


def test_a_training_beside_another_is_measured_in_turns(parts: list[Parts]) -> None:
    line = line_of("train", beside="quickstart", seconds=9.0)
    networks = [system.config.options["network"] for system in parts[1:]]
    assert networks == ["", "quickstart"] * 3
    assert line["beside"]["what"] == "the network of quickstart"
    assert line["in_turns"] == pytest.approx(line["beside"]["value"] * line["beside"]["ratio"], rel=0.1)


def test_learning_is_measured_with_and_without_processes(parts: list[Parts]) -> None:
    line = line_of("learning")
    trainings = [(system.config.seed, system.config.serial) for system in parts]
    assert trainings == [(7, False), (7, True), (8, False), (8, True), (9, False), (9, True)]
    assert {system.config.variant for system in parts} == {"recall"}
    assert line["unit"] == "s"
    steps = sum(n for n in parts[0].calls if isinstance(n, int))
    assert line["steps"] == line["serial_steps"] == steps


def test_a_goal_that_is_missed_is_an_error(parts: list[Parts], monkeypatch: pytest.MonkeyPatch) -> None:
    options = learning.options()
    options.env = "MiniGrid-DoorKey-8x8-v0"
    goal = learning.GOALS[options.env]
    monkeypatch.setitem(learning.GOALS, options.env, goal._replace(steps=121))
    message = r"^after 121 steps: {.*'episode/success': 0.75, .*}, not episode/success of at least 0.8$"
    with pytest.raises(RuntimeError, match=message):
        learning.learn(options, 3, True)
    assert parts[0].config.options["reward_dir"].endswith(goal.reward)


@pytest.mark.usefixtures("parts")
def test_learning_ends_at_the_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    options = learning.options()
    options.env = "MiniGrid-DoorKey-8x8-v0"
    goal = learning.GOALS[options.env]
    monkeypatch.setitem(learning.GOALS, options.env, goal._replace(level=0.75))
    seconds, steps = learning.learn(options, 3, True)
    assert steps == 121
    assert seconds > 0


class Pool:
    """Workers that play one group after the other, two at a time."""

    calls: list[Any]
    pids = staticmethod(lambda: [5, 6])

    def __init__(self, config: Any, on_finished: Any) -> None:
        self.slots = SimpleNamespace(action=np.full((8, 4, config.envs_per_group), -1))
        self.waiting: list[actors.Ready] = []

    def __enter__(self) -> None:
        self.waiting = [actors.Ready(group, group, group % 3) for group in range(4)]

    def __exit__(self, *error: object) -> None:
        self.calls.append("closed")

    def start(self) -> None:
        self.calls.append("started")

    def act(self, ready: list[actors.Ready]) -> None:
        self.calls.append([entry.group for entry in ready])
        self.waiting += ready

    def ready(self, seconds: float) -> list[actors.Ready]:
        ready = self.waiting[:2]
        self.waiting = self.waiting[2:]
        return ready


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of a pool and of bare engines whose turns take a second of each processor.

    A turn of a bare engine is (games, start, stop), one of the pool the list of its groups.
    """
    calls: list[Any] = []

    def bare(script: Any, seed: int) -> Any:
        def play(start: int, stop: int) -> None:
            calls.append((script[1], start, stop))

        return SimpleNamespace(play=play, close=lambda: calls.append("closed"))

    seconds = itertools.count(1.0)
    processor = itertools.count(1.0)
    monkeypatch.setattr(Pool, "calls", calls, raising=False)
    monkeypatch.setattr(actors, "ActorPool", Pool)
    monkeypatch.setattr(actors, "Bare", bare)
    monkeypatch.setattr(actors, "write_script", lambda *arguments: arguments)
    monkeypatch.setattr(actors, "_processor_seconds", lambda pids: next(seconds) * len(pids))
    monkeypatch.setattr(actors.time, "process_time", lambda: next(processor))
    return calls


def test_actors_are_measured_by_steps_of_one_core(sides: list[Any]) -> None:
    """Turns of 3 and 2 steps of 4 games a worker: 12 and 8 steps in a second of a core, of both sides."""
    line = line_of("actors", workers=2, envs_per_worker=4, steps=5, turn=3)
    assert (line["value"], line["baseline"]["value"], line["one_game"]["value"]) == (10, 10, 10)
    assert (line["ratio"], line["one_game"]["ratio"]) == (1, 1)


def test_bare_engines_play_the_same_turns_as_the_pool(sides: list[Any]) -> None:
    line_of("actors", workers=2, envs_per_worker=4, steps=5, turn=3)
    turns = [(4, 0, 3), (1, 0, 12), (4, 3, 5), (1, 12, 20)]
    assert [call for call in sides if isinstance(call, tuple)] == turns * 3
    # Four groups, two of each worker, play five steps on average.
    assert sum(len(call) for call in sides if isinstance(call, list)) == 3 * 4 * 5


@pytest.mark.parametrize("seed", [2, 4, 5])
def test_the_bare_engine_plays_the_script_that_the_game_wrote(seed: int) -> None:
    """In the two games somebody dies, answers questions, and reads long messages."""
    script = write_script("NetHackScore-v1", 2, 800, seed)
    bare = Bare(script, seed)
    bare.play(0, 500)
    bare.play(500, 800)
    for index, engine in enumerate(bare._engines):
        # The game by this package's rules, with the actions of the script.
        engine_of_game = NetHackEngine()
        game = Game("NetHackScore-v1", engine_of_game, MAX_EPISODE_STEPS, {})
        episode = 0
        game.start(derive(seed, index, episode))
        for action, _, ended in script[index]:
            assert bool(game.advance(action)[1]) == ended
            if ended:
                episode += 1
                game.start(derive(seed, index, episode))
        np.testing.assert_array_equal(engine.buffers.glyphs, engine_of_game.buffers.glyphs)
        np.testing.assert_array_equal(engine.buffers.blstats, engine_of_game.buffers.blstats)
        game.close()
    bare.close()


def test_games_of_text_are_played_together_and_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes: list[Any] = []

    def play(task: Any, actor: str, seed: int, games: range, count: int) -> range:
        lanes.append((actor, len(games), count))
        return games

    monkeypatch.setattr(_text_agents, "make", lambda *arguments: _text_agents.FreshAgent(None, {}))  # type: ignore[arg-type]
    monkeypatch.setattr(text_play, "play", play)
    for name in ("AgentTextActor", "_RereadingActor"):
        monkeypatch.setattr(text_play, name, lambda *arguments, name=name: name)
    readings = itertools.count(1.0)
    monkeypatch.setattr(text_play.time, "perf_counter", lambda: next(readings))
    line = line_of("text_play", games=9, plain_games=4, num_words=5)
    assert (line["value"], line["baseline"]["value"]) == (9, 4)
    assert lanes == [
        ("AgentTextActor", 9, 9),
        ("_RereadingActor", 1, 1),
        *[("AgentTextActor", 9, 9), ("_RereadingActor", 4, 1)] * 3,
    ]


def test_generation_says_how_many_tokens_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = np.arange(12).reshape(3, 4)
    monkeypatch.setattr(_text_agents, "make", lambda *arguments: _text_agents.FreshAgent(None, {}))  # type: ignore[arg-type]

    def plain(agent: Any, decoding: Any) -> Any:
        return lambda params, prompts: np.maximum(tokens, 2)

    monkeypatch.setattr(f"{HERE}.text_generation._ours", lambda agent, decoding, prompts: tokens)
    monkeypatch.setattr(f"{HERE}.text_generation._plain", plain)
    line = line_of("text_generation", vocabulary=9, prompt_tokens=5, new_tokens=4, batch_size=3)
    assert line["tokens_equal"] == pytest.approx(10 / 12)


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        ("", "^benchmark annotate: vLLM is not installed here; start it with"),
        ("vllm", r"config\.options\.model='': must be a chat model, its name or its"),
    ],
)
def test_annotation_needs_vllm_and_a_model(
    monkeypatch: pytest.MonkeyPatch, installed: str, message: str
) -> None:
    monkeypatch.setattr(annotate.importlib.util, "find_spec", lambda name: name == installed or None)
    with pytest.raises(UserError, match=message):
        line_of("annotate")


def test_annotation_is_compared_with_the_bare_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_dataset(tmp_path, pairs=200, messages=9)
    calls: list[Any] = []
    engine = SimpleNamespace(reset_prefix_cache=lambda: calls.append("reset"))
    session = SimpleNamespace(start=lambda: None, annotator=SimpleNamespace(engine=engine))

    def measured(side: str, seconds: float, labels: int) -> Any:
        def ask(_: Any, questions: Any) -> Any:
            calls.append((side, len(questions)))
            return seconds, np.arange(len(questions)) % labels

        return ask

    monkeypatch.setattr(annotate.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(annotate, "make_annotator", lambda *_, **more: SimpleNamespace(identity={}))
    monkeypatch.setattr(annotate, "AnnotationSession", lambda *_: contextlib.nullcontext(session))
    monkeypatch.setattr(annotate, "_stage_seconds", measured("stage", 3.0, 4))
    monkeypatch.setattr(annotate, "_bare_seconds", measured("bare", 6.0, 2))
    line = line_of("annotate", dataset_dir=str(tmp_path), model="m", questions=12)
    assert calls == [("stage", 12), *["reset", ("stage", 12), "reset", ("bare", 12)] * 3]
    assert (line["value"], line["baseline"]["value"], line["ratio"]) == (4, 2, 2)
    # Labels 0, 1, 2, 3 against 0, 1, 0, 1.
    assert line["labels_equal_to_bare"] == 0.5
    per_pair = line["questions_per_pair"]
    assert 0 < per_pair["once"] < per_pair["given"] < per_pair["both"] < 2
