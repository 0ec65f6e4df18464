"""Whole lines of the benchmarks, by a clock of the test and parts that stand for what is measured."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax import benchmarks
from motif_jax.benchmarks import _agents, _language, _text_agents, actors, annotate, learning, text_play
from motif_jax.benchmarks._bare_engine import Bare, write_script
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.errors import UserError
from tests import stage_inputs
from tests.recorded_outputs import assert_matches_packed_recording, shown_array
from tests.reward_fixtures import load_config, make_dataset

HERE = "motif_jax.benchmarks"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readings are further and further apart, so that no two measurements take the same time."""
    readings = itertools.accumulate(itertools.count(0.25, 0.25))
    names = ("perf_counter", "process_time", "monotonic")
    time = SimpleNamespace(**dict.fromkeys(names, lambda: next(readings)))
    for name in "_agents actors annotate learning reward text_play text_train train".split():
        monkeypatch.setattr(f"{HERE}.{name}.time", time)
    peaks = itertools.count(1000.0, 100.0)
    monkeypatch.setattr(_agents, "matrix_product_rate", lambda dtype: next(peaks))
    monkeypatch.setattr(_agents, "network_flops", lambda training: (10.0, 35.0))
    monkeypatch.setattr(benchmarks, "_machine", dict)
    of_memory = process()
    for name in ("train", "actors"):
        monkeypatch.setattr(f"{HERE}.{name}.psutil", SimpleNamespace(Process=lambda *given: of_memory))


def process() -> Any:
    """Of 3 MB and more; it has a child."""
    sizes = itertools.count(3_000_000, 300_000)
    made = SimpleNamespace(memory_full_info=lambda: SimpleNamespace(pss=next(sizes)))
    made.children = lambda recursive: [made] * recursive
    return made


Training = dataclasses.make_dataclass("Training", ["options", "seed", "variant", ("serial", bool, True)])


class Parts:
    """Stands for a `System`, its meters, its only source, and a `BatchStream` of it; notes what is asked of them."""

    made: list[Parts]

    def __init__(self, config: Any) -> None:
        self.config, self.read_before, self.asked = config, 0, list[Any]()
        self.meters = self.learner = self.actors = self.inference = self
        self.sources, self.inference_threads, self.state = [self], 2, SimpleNamespace(step=0)
        made = [SimpleNamespace(num_steps=n, num_bytes=3 * n, intrinsic_returns=[]) for n in (60, 61, 62)]
        batches: Any = itertools.cycle([None, *made])
        self.get, self.params = lambda: next(batches), dict
        self.step = lambda batch: self.asked.append(batch.num_steps)
        self.settle, self.close = (functools.partial(self.asked.append, it) for it in ("settled", "closed"))
        self.made.append(self)

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def metrics(self) -> dict[str, float]:
        return dict.fromkeys(("loss/total", "lag/max", "ratio_min"), len(self.asked))

    def read(self) -> int:
        self.read_before, before = len(self.asked), self.read_before
        return len(self.asked) - before

    def episodes(self) -> list[dict[str, Any]]:
        played = {"episode": len(self.asked), "return": len(self.asked) / 50, "success": 0.75, "length": 4}
        return [{"env": env, **played} for env in range(60)]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[Parts]:
    def training(options: ConfigDict, seed: int, variant: str = "") -> Training:
        return Training(options.to_dict(), seed, variant)

    def metrics(read: int, threads: int) -> dict[str, float]:
        return {"inference/rows_per_call": 10.4 * read, "device_max": 2 / read, "threads": threads}

    monkeypatch.setattr(Parts, "made", [], raising=False)
    monkeypatch.setattr(_agents, "training_config", training)
    for name in ("train", "learner", "learning", "inference"):
        monkeypatch.setattr(f"{HERE}.{name}.System", Parts)
        monkeypatch.setattr(f"{HERE}.{name}.BatchStream", lambda system: system, raising=False)
    groups = SimpleNamespace(envs_per_group=5, groups=6)
    monkeypatch.setattr("motif_jax.rl.settings.actors_configs", lambda config, count: [groups] * count)
    monkeypatch.setattr(f"{HERE}.inference.call_of", lambda system, rows: lambda: system.asked.append(rows))
    monkeypatch.setattr(f"{HERE}.train.system_metrics", metrics)
    return Parts.made


def line_of(name: str, **options: Any) -> dict[str, Any]:
    config = load_config("benchmark", name, {"repeats": 3, "seed": 7})
    config.options.update(options)
    line: dict[str, Any] = benchmarks.module(config.name).run(config)
    return line


def compare(name: str, record: bool, *parts: Any) -> None:
    """Parts to which a time, a path or a machine adds nothing."""
    assert_matches_packed_recording(
        f"benchmark_{name}", {name: json.dumps(parts, indent=1, default=str)}, record
    )


@pytest.mark.parametrize("name", ["train", "learner", "inference", "learning"])
def test_lines_of_the_agents_training(name: str, parts: list[Parts], record: bool) -> None:
    more = {"train": {"beside": "quickstart", "warmup_seconds": 7.0, "seconds": 9.0}}
    line = line_of(name, workers=3, batch_size=66, rollout=33, **more.get(name, {}))
    compare(name, record, line, [[each.config, each.asked] for each in parts])


def test_a_goal_that_is_missed_is_an_error(parts: list[Parts], monkeypatch: pytest.MonkeyPatch) -> None:
    options = learning.options()
    options.env = "MiniGrid-DoorKey-8x8-v0"
    goal = learning.GOALS[options.env]
    monkeypatch.setitem(learning.GOALS, options.env, goal._replace(steps=121))
    said = r"^after 121 steps: {.*'episode/success': 0.75, .*}, not episode/success of at least 0.8$"
    with pytest.raises(RuntimeError, match=said):
        learning.learn(options, 3, True)
    assert parts[0].config.options["reward_dir"].endswith(goal.reward)
    monkeypatch.setitem(learning.GOALS, options.env, goal._replace(level=0.75))
    assert learning.learn(options, 3, True) == (0.75, 121)


class Pool:
    """Workers that play one group after the other, two at a time."""

    asked: list[Any]
    pids = staticmethod(lambda: [5, 6])

    def __init__(self, config: Any, on_finished: Any) -> None:
        self.slots = SimpleNamespace(action=np.full((8, 4, config.envs_per_group), -1))
        self.waiting: list[actors.Ready] = []
        self.asked.append([config.env, config.seed, config.workers, config.envs_per_group, config.rollout])

    def __enter__(self) -> None:
        self.waiting = [actors.Ready(group, group, group % 3) for group in range(4)]

    def __exit__(self, *error: object) -> None:
        self.asked.append("closed")

    def start(self) -> None:
        self.asked.append("started")

    def act(self, ready: list[actors.Ready]) -> None:
        self.asked.append([(each.group, self.slots.action[each.slot, each.row].tolist()) for each in ready])
        self.waiting += ready

    def ready(self, seconds: float) -> list[actors.Ready]:
        some, self.waiting = self.waiting[:2], self.waiting[2:]
        return some


def test_a_line_of_the_actors(monkeypatch: pytest.MonkeyPatch, record: bool) -> None:
    def bare(script: Any, seed: int) -> Any:
        said = lambda *given: asked.append([script, seed, *given])  # noqa: E731
        return SimpleNamespace(play=said, close=said)

    seconds, asked = itertools.accumulate(itertools.count(1.0, 0.5)), list[Any]()
    monkeypatch.setattr(Pool, "asked", asked, raising=False)
    monkeypatch.setattr(actors, "ActorPool", Pool)
    monkeypatch.setattr(actors, "Bare", bare)
    monkeypatch.setattr(actors, "write_script", lambda *given: given)
    monkeypatch.setattr(actors, "_processor_seconds", lambda pids: next(seconds) * len(pids))
    line = line_of("actors", workers=2, envs_per_worker=4, steps=5, turn=3)
    compare("actors", record, line, asked)


def test_the_bare_engine_plays_the_script_that_the_game_wrote(record: bool) -> None:
    """Two games each time, in which somebody dies, is asked, and reads long messages."""
    found = []
    for seed in (2, 4, 5):
        script = write_script("NetHackScore-v1", 2, 800, seed)
        bare = Bare(script, seed)
        bare.play(0, 500)
        bare.play(500, 800)
        shown = [[engine.buffers.glyphs, engine.buffers.blstats] for engine in bare._engines]
        found.append([shown_array(each) for each in (script, *itertools.chain(*shown))])
        bare.close()
    compare("engine", record, found)


def test_lines_of_text(monkeypatch: pytest.MonkeyPatch, record: bool) -> None:
    asked: list[Any] = []

    def ask(answer: Any, *given: Any) -> Any:
        asked.append([str(each).partition(" object")[0] for each in given])
        return answer

    monkeypatch.setattr(_language, "threads", lambda: 6)
    monkeypatch.setattr(_text_agents, "make", lambda *given: ask(_text_agents.Made(None, {}), *given[1:]))  # type: ignore[arg-type]
    monkeypatch.setattr(text_play, "play", lambda task, *given: ask(given[2], *given))
    for name in ("AgentTextActor", "_Anew"):
        said = lambda *given, name=name: (name, given[3].max_tokens, *given[4:])  # noqa: E731
        monkeypatch.setattr(text_play, name, said)
    games = line_of("text_play", games=9, plain_games=4, num_words=5)
    same = np.arange(12).reshape(3, 4)
    ours = lambda made, how, prompts: ask(same, how.max_tokens, prompts)  # noqa: E731
    plain = lambda made, how: lambda params, prompts: ask(np.maximum(same, 2), prompts)  # noqa: E731
    monkeypatch.setattr(f"{HERE}.text_generation._ours", ours)
    monkeypatch.setattr(f"{HERE}.text_generation._plain", plain)
    sizes = {"vocabulary": 9, "prompt_tokens": 5, "new_tokens": 4, "batch_size": 3}
    compare("text", record, games, line_of("text_generation", **sizes), asked)


def test_a_line_of_annotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: bool) -> None:
    for installed, said in (
        ("", "^benchmark annotate: vLLM is not installed here; start it with"),
        ("vllm", r"config\.options\.model='': must be a chat model, its name or its"),
    ):
        monkeypatch.setattr(
            annotate.importlib.util, "find_spec", lambda name, it=installed: name == it or None
        )
        with pytest.raises(UserError, match=said):
            line_of("annotate")
    make_dataset(tmp_path, pairs=200, messages=9)
    asked: list[Any] = []
    engine = SimpleNamespace(reset_prefix_cache=lambda: asked.append("reset"))
    session = SimpleNamespace(start=lambda: asked.append("start"), annotator=SimpleNamespace(engine=engine))

    def seconds(first: int, answers: int) -> Any:
        def measured(_: Any, questions: Any) -> Any:
            asked.append([len(questions), questions[-1].items])
            return first + len(asked), np.arange(len(questions)) % answers

        return measured

    def annotator(asking: Any, dataset: Any) -> Any:
        asked.append([asking.annotator, asking.sampling.temperature, asking.vllm.engine, asking.vllm.model])
        return SimpleNamespace(identity={})

    monkeypatch.setattr(annotate, "make_annotator", annotator)
    monkeypatch.setattr(annotate, "AnnotationSession", lambda *given: contextlib.nullcontext(session))
    monkeypatch.setattr(annotate, "_stage_seconds", seconds(1, 5))
    monkeypatch.setattr(annotate, "_bare_seconds", seconds(9, 4))
    line = line_of("annotate", dataset_dir=str(tmp_path), model="m", questions=30)
    line["settings"]["dataset_dir"] = "DATA"
    compare("annotate", record, line, asked)


SIZES = {"width": 16, "layers": 1, "vocabulary": 32}
WORDS = {"prompt_tokens": 12, "batch_size": 2}
REAL: dict[str, dict[str, Any]] = {
    "reward": {"num_pairs": 24, "batch_size": 4, "steps": 3, "baseline_steps": 2, "message": "lt_cnn_small"},
    "score": {**WORDS, "model": "tiny_t5", "candidates": 3},
    "score_gpu": {**WORDS, "model": "tiny_t5", "candidates": 3},
    "language_update": {**WORDS, "model": "tiny_t5", "candidates": 3, "minibatch": 2, "microbatch": 1},
    "generate": {**WORDS, "model": "tiny_t5", "new_tokens": 4},
    "generate_gpu": {**WORDS, "model": "tiny_gpt2", "new_tokens": 4},
    "text_train": {**SIZES, "batch_size": 2, "length": 40, "micro_batches": 3},
}


class Uncompiled(DataParallel):
    """Programs that need 2, 3 and 5 MB, of which 1 MB is shared, and take 4 s to compile."""

    def wrap(self, *given: Any, **named: Any) -> Any:
        sizes = zip(("argument", "output", "temp", "alias"), (2e6, 3e6, 5e6, 1e6), strict=True)
        memory = SimpleNamespace(**{f"{name}_size_in_bytes": size for name, size in sizes})
        compiled = SimpleNamespace(memory_analysis=lambda: memory)
        return SimpleNamespace(lower=lambda *given: SimpleNamespace(compile=lambda: compiled))


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize("name", REAL)
def test_lines_of_the_same_work(monkeypatch: pytest.MonkeyPatch, name: str, record: bool) -> None:
    monkeypatch.setattr(f"{HERE}.text_train.DataParallel", Uncompiled)
    monkeypatch.setattr(_language, "threads", lambda: 6)
    line = line_of(name, **REAL[name])
    # Of bfloat16 another machine rounds otherwise.
    assert line.pop("scores_apart", 0) < (0.1 if name == "score_gpu" else 1e-5)
    assert line.pop("gradients_apart", line.pop("changes_apart", 0)) < 1e-2
    compare(name, record, line)


def test_options_and_shapes(record: bool) -> None:
    """Those of a GPU, too; the number of workers is the machine's."""
    names = stage_inputs.variants("benchmark")
    found = {name: {**load_config("benchmark", name).options, "workers": None} for name in names}
    compare("options", record, found, _language.SHAPES)
