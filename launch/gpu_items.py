"""The measurements of a GPU machine: their commands, limits, and the readers of what they write."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shlex
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from gpu_logs import (
    benchmark_and_phases,
    benchmark_line,
    cold_line,
    nothing,
    tests_line,
    training_reader,
    warm_line,
)
from gpu_plans import Item, Plan

LANGUAGE_PROGRAMS = ("language_update", "score", "generate", "text_train")
# Items that need what another one makes.
PREREQUISITES = {"train_reward": "make_reward", "nethack": "make_reward", "glam": "make_model"}
# What a start takes: measured on an H100 with 16 cores, and half as much again. The cold ones start
# side by side.
COLD_SECONDS = {"language_update": 100.0, "score": 70.0, "generate": 60.0, "text_train": 90.0}
WARM_SECONDS = {"language_update": 40.0, "score": 20.0, "generate": 25.0, "text_train": 35.0}


@dataclasses.dataclass(frozen=True)
class PlanMaker:
    """Makes the plans of a machine with `cores` cores.

    Attributes:
      work: folder for runs and compiled programs.
      tiny: sizes that try the script, not the machine.
      reward: run folder of `train_reward`; '' where the plan makes one.
      model: folder of the language model that is trained as an agent; '' where the plan makes a
          small T5.
      training_seconds, glam_seconds: of NetHack's and of a language agent's training, with their
          starts.
      apart: the language programs start one after the other.
    """

    work: Path
    cores: int
    tiny: bool = False
    reward: str = ""
    model: str = ""
    training_seconds: float = 120.0
    glam_seconds: float = 110.0
    apart: bool = False

    def plans(self) -> list[Plan]:
        return [self.agents(), self.language_models()]

    def agents(self) -> Plan:
        """The games, the parts of an agent's training, and a training of NetHack."""
        making = [] if self.reward else [[self._make_reward()]]
        alone = [self._games(), *self._agent_benchmarks()]
        alone.append(self._benchmark("inference_host", "inference_host", 30.0, 10.0, {}))
        alone.append(self._nethack())
        return Plan("agents", 400.0, making, alone)

    def language_models(self) -> Plan:
        """First starts of the language programs, their rates once compiled, a language agent's
        training and the numeric tests.
        """
        cold_starts = [self._language(name, cold=True) for name in LANGUAGE_PROGRAMS]
        # Side by side: one after the other they leave no time for the rest of a plan.
        chains = [cold_starts] if self.apart else [[item] for item in cold_starts]
        if not self.model:
            chains.insert(0, [self._make_model()])
        # Their programs are on the disk by now.
        alone = [self._language(name, cold=False) for name in LANGUAGE_PROGRAMS]
        alone.append(self._attention())
        # The last ones get what the others leave of their limits.
        alone += [self._glam(), self._text_train_step(), self._tests()]
        on_request = [self._without_triton(name) for name in LANGUAGE_PROGRAMS]
        return Plan("language", 440.0, chains, alone, on_request)

    def missing_inputs(self, names: Collection[str]) -> list[tuple[str, str]]:
        """Of the items of these names those whose input is neither there nor made by them, each
        with the item that makes it.
        """
        folders = {"make_reward": self._reward_dir, "make_model": self._model_dir}
        return [
            (name, prerequisite)
            for name, prerequisite in PREREQUISITES.items()
            if name in names
            and prerequisite not in names
            and not Path(folders[prerequisite]).exists()
        ]

    @property
    def _reward_dir(self) -> str:
        return self.reward or str(self.work / "reward")

    @property
    def _model_dir(self) -> str:
        return self.model or str(self.work / "language" / "model")

    def _agent_benchmarks(self) -> list[Item]:
        # A core is left to the learner and inference. With two (`train_two_cores`) their threads
        # keep off the workers' cores.
        sizes = {"workers": max(1, self.cores - 1), "envs_per_worker": 80}
        playing = {"seconds": 5.0, "warmup_seconds": 5.0}
        with_reward = {"batch_size": 4096, "reward_dir": self._reward_dir}
        # The first one starts the process.
        return [
            self._agents("train", "train", 40.0, {**sizes, **playing}),
            self._agents(
                "train_two_cores",
                "train",
                30.0,
                {**sizes, **playing, "workers": max(1, self.cores - 2)},
            ),
            self._agents("train_reward", "train", 30.0, {**sizes, **playing, **with_reward}),
            self._agents(
                "train_two_groups", "train", 25.0, {**sizes, **playing, "groups_per_worker": 2}
            ),
            self._agents("train_laptop", "train", 25.0, {**sizes, **playing, "network": "laptop"}),
            self._agents("learner", "learner", 20.0, {**sizes, "seconds": 1.0}),
            self._agents("inference", "inference", 20.0, {**sizes, "seconds": 0.25}),
        ]

    def _games(self) -> Item:
        """What all games give without an agent: the most that a training can reach."""
        sizes = {
            "workers": max(1, self.cores - 1),
            "envs_per_worker": 80,
            "steps": 400,
            "turn": 100,
        }
        if self.tiny:
            sizes |= {"workers": 1, "envs_per_worker": 8, "steps": 40, "turn": 20}
        return self._benchmark("games", "actors", 60.0, 25.0, sizes)

    def _stage(self, config: str, workdir: Path | None, *flags: str) -> list[str]:
        command = [sys.executable, "-m", "motif_jax.launch", f"--config=configs/{config}"]
        if workdir is not None:
            command.append(f"--workdir={workdir}")
        return [*command, *flags]

    def _stages(self, commands: Iterable[list[str]]) -> list[str]:
        return ["bash", "-c", " && ".join(shlex.join(command) for command in commands)]

    def _make_reward(self) -> Item:
        dataset = self.work / "dataset"
        variant = "smoke" if self.tiny else "quickstart"
        pairs = 60 if self.tiny else 3000
        commands = [
            self._stage(
                f"collect.py:{variant}",
                dataset,
                f"--config.num_pairs={pairs}",
                "--config.screens=False",
            ),
            self._stage(
                "annotate.py:quickstart", self.work / "annotate", f"--config.dataset_dir={dataset}"
            ),
            self._stage(
                f"train_reward.py:{variant}",
                self.work / "reward",
                f"--config.dataset_dir={dataset}",
                "--config.annotator=lexicon_msg_defaultgoal",
            ),
        ]
        return Item(
            "make_reward", self._stages(commands), nothing, 95.0, 50.0, environment=on_cpu()
        )

    def _make_model(self) -> Item:
        texts = self.work / "texts"
        episodes = 10 if self.tiny else 200
        steps = 60 if self.tiny else 300
        training_flags = [
            f"--config.texts={texts}",
            f"--config.steps={steps}",
            f"--config.evaluate_every={steps}",
        ]
        if self.tiny:
            training_flags.append("--config.batch_size=8")
        language = self.work / "language"
        commands = [
            self._stage("collect_text.py:babyai", texts, f"--config.num_dialogues={episodes}"),
            self._stage("pretrain_language_model.py:babyai", language, *training_flags),
        ]
        return Item(
            "make_model", self._stages(commands), nothing, 110.0, 90.0, environment=on_cpu()
        )

    def _benchmark(
        self,
        name: str,
        benchmark: str,
        limit: float,
        reserve: float,
        options: dict[str, Any],
        repeats: int = 1,
    ) -> Item:
        flags = [f"--config.options.{key}={value}" for key, value in options.items()]
        command = self._stage(
            f"benchmark.py:{benchmark}", None, f"--config.repeats={repeats}", *flags
        )
        return Item(name, command, benchmark_line, limit, reserve)

    def _agents(self, name: str, benchmark: str, reserve: float, options: dict[str, Any]) -> Item:
        if self.tiny:
            small = {
                "workers": 1,
                "envs_per_worker": 8,
                "batch_size": 64,
                "rollout": 16,
                "dtype": "float32",
            }
            options = {"network": "quickstart", **options, **small, "seconds": 0.5}
            if "warmup_seconds" in options:
                options["warmup_seconds"] = 0.2
        task = {"item": name, "benchmark": f"{benchmark}_gpu", "options": options}
        return Item(name, [], nothing, 75.0, reserve, benchmark=task)

    def _language(self, name: str, cold: bool) -> Item:
        options: dict[str, Any] = {"baseline": False, "seconds": 0.1 if cold else 0.7}
        if name == "text_train":
            # The compilation of a whole step takes longer than the rest.
            options["step"] = "skip"
        if self.tiny:
            options |= TINY_LANGUAGE[name]
        if not cold:
            item = self._benchmark(
                name, f"{name}_gpu", 75.0, WARM_SECONDS[name], options, repeats=3
            )
            return dataclasses.replace(item, read=warm_line)
        item = self._benchmark(f"{name}_cold", f"{name}_gpu", 110.0, COLD_SECONDS[name], options)
        return dataclasses.replace(item, read=cold_line, environment=sharing_memory())

    def _attention(self) -> Item:
        """Attention beside a fused kernel of jax's."""
        options = {"seconds": 0.5}
        if self.tiny:
            options |= {"batch_size": 2, "tokens": 16, "dtype": "float32", "implementation": "xla"}
        return self._benchmark("attention", "attention_gpu", 30.0, 12.0, options, repeats=3)

    def _text_train_step(self) -> Item:
        """ILQL's whole step, where time is left for its compilation."""
        item = self._language("text_train", cold=False)
        command = [flag.replace("options.step=skip", "options.step=run") for flag in item.command]
        return dataclasses.replace(
            item, name="text_train_step", command=command, limit=100.0, reserve=0.0
        )

    def _without_triton(self, name: str) -> Item:
        """A cold start whose products are cuBLAS's alone: the compiler tries no kernels of its own
        for them.
        """
        item = self._language(name, cold=True)
        environment = dict(item.environment)
        if os.environ.get("JAX_PLATFORMS") != "cpu":
            flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_triton_gemm=false"
            environment["XLA_FLAGS"] = flags.strip()
        return dataclasses.replace(
            item,
            name=f"{name}_cublas_cold",
            reserve=0.0,
            read=benchmark_and_phases,
            environment=environment,
        )

    def _tests(self) -> Item:
        # A program of the tests takes no part in the starts from an empty cache.
        environment = sharing_memory() | {
            "JAX_COMPILATION_CACHE_DIR": str(self.work / "compiled_tests"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
            "CI": "",
        }
        if os.environ.get("JAX_PLATFORMS") != "cpu":
            environment["JAX_PLATFORMS"] = "cuda,cpu"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--numeric",
            "-v",
            "-p",
            "no:cacheprovider",
        ]
        # Without its plugin pytest knows no such flag, and no test would run.
        if importlib.util.find_spec("pytest_timeout"):
            command.append("--timeout=100")
        if self.cores >= 8 and importlib.util.find_spec("xdist"):
            command += ["-n", "6", "--dist", "loadfile"]
        command.append("tests/rl/algorithms/losses_test.py" if self.tiny else "--all")
        return Item("numeric_tests", command, tests_line, 180.0, 100.0, environment=environment)

    def _glam(self) -> Item:
        run = self.work / "glam"
        seconds = self.glam_seconds
        flags = [
            f"--config.network.model={self._model_dir}",
            "--config.log_every_seconds=2",
            "--config.tests=",
        ]
        command = self._stage("train_language_agent.py:quickstart", run, *flags)
        return Item("glam", command, training_reader(run), seconds, seconds - 10, timed=True)

    def _nethack(self) -> Item:
        run = self.work / "nethack"
        seconds = self.training_seconds
        values = {
            "reward.dir": self._reward_dir,
            # The default beside a GPU.
            "actors.workers": max(1, self.cores - 2),
            "actors.envs_per_worker": 80,
            "actors.groups_per_worker": 4,
            "batch_size": 4096,
            "network.dtype": "bfloat16",
            "log_every_seconds": 2,
            # A save would fall into the time that is measured.
            "save_every_seconds": 600,
            # Its limit of time ends the training.
            "train_for_env_steps": 2_000_000_000,
        }
        if self.tiny:
            values |= {
                "actors.workers": 1,
                "actors.envs_per_worker": 8,
                "batch_size": 128,
                "rollout": 16,
            }
            values |= {"environment.max_episode_steps": 50, "network.dtype": "float32"}
        variant = ":quickstart" if self.tiny else ""
        flags = [f"--config.{key}={value}" for key, value in values.items()]
        command = self._stage(f"train_agent.py{variant}", run, *flags)
        return Item("nethack", command, training_reader(run), seconds, seconds - 10, timed=True)


TINY_LANGUAGE: dict[str, dict[str, Any]] = {
    "language_update": {
        "model": "tiny_t5", "prompt_tokens": 16, "batch_size": 8, "rollout": 2, "minibatch": 4, "microbatch": 2, "dtype": "float32",
    },
    "score": {"model": "tiny_t5", "prompt_tokens": 16, "batch_size": 2, "dtype": "float32"},
    "generate": {"model": "tiny_gpt2", "prompt_tokens": 16, "batch_size": 2, "new_tokens": 4, "dtype": "float32"},
    "text_train": {"width": 16, "layers": 1, "vocabulary": 64, "batch_size": 2, "length": 40, "dtype": "float32"},
}  # fmt: skip


def on_cpu() -> dict[str, str]:
    """For what is only made for later items: the GPU is left to the programs that are looked at."""
    return {"JAX_PLATFORMS": "cpu"}


def sharing_memory() -> dict[str, str]:
    """For programs that share the GPU: none takes all its memory at its start."""
    return {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
