"""Takes the figures of a GPU machine, one JSON line an item; launch/gpu_figures.sh sets up its environment and starts it.

First, side by side: what later items need is made (a reward of NetHack from the lexicon's labels, a small T5), the four language programs
start with an empty cache of compiled programs, and the numeric tests run. Then, one after the other, what is a rate. An item is a process
of its own, but for the benchmarks of agents, which follow each other in one. It is ended at its limit, or where the items behind it need
the time.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
LANGUAGE_PROGRAMS = ("language_update", "score", "generate", "text_train")
# What a process gets to end by itself when it is asked to.
GRACE_SECONDS = 8.0
OUTCOMES = ("PASSED", "FAILED", "ERROR", "SKIPPED")
# Of pytest's -v, with xdist ("[gw1] [ 5%] PASSED tests/...") and without ("tests/... PASSED [ 5%]").
OUTCOME_LINE = re.compile(rf"^\[gw\d+\].*? ({'|'.join(OUTCOMES)}) |^tests/.* ({'|'.join(OUTCOMES)}) +\[")
Reader = Callable[["Ended"], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Ended:
    """How an item's process ended: its log, when it began (seconds since 1970), and whether its limit ended it."""

    log: str
    began: float
    late: bool
    code: int


@dataclasses.dataclass(frozen=True)
class Item:
    """A measurement: a command, the seconds after which it is ended, and those that it needs at least.

    `timed` items run until their limit: a training by the clock. Items of `benchmark` have no command: those that follow each other run
    in one process.
    """

    name: str
    command: list[str]
    read: Reader
    limit: float
    reserve: float
    timed: bool = False
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    benchmark: dict[str, Any] | None = None


# ---- what an item's log and files say


def benchmark_line(ended: Ended) -> dict[str, Any]:
    """The JSON line of a benchmark, or of one that ended early the seconds to its first step, which it prints by itself."""
    lines = [line for line in ended.log.splitlines() if line.startswith('{"benchmark"')]
    if lines:
        result: dict[str, Any] = json.loads(lines[-1])
        return result
    first = re.search(r"first step after ([\d.]+) s", ended.log)
    return {"first_step_seconds": float(first.group(1))} if first else {}


def cold_line(ended: Ended) -> dict[str, Any]:
    """Of a program's first start nothing but its seconds and when each phase began: other programs may run beside it."""
    line = benchmark_line(ended)
    compiled = line.get("step", {}).get("compile_seconds")
    return {
        "first_step_seconds": line.get("first_step_seconds"),
        "phases": phases(ended.log),
        **({} if compiled is None else {"step_compile_seconds": compiled}),
    }


def benchmark_and_phases(ended: Ended) -> dict[str, Any]:
    """The JSON line of a benchmark, and when each phase of its start began."""
    return {"phases": phases(ended.log), **benchmark_line(ended)}


def phases(log: str) -> dict[str, float]:
    """When each phase of a start first began, in seconds since the process did."""
    began: dict[str, float] = {}
    for name, seconds in re.findall(r"(?m)^phase (\w+) begins after ([\d.]+) s", log):
        began.setdefault(name, float(seconds))
    return began


def tests_line(ended: Ended) -> dict[str, Any]:
    """Counts of the tests that ran, also where time was over before all had; names of those that failed."""
    counts = dict.fromkeys(OUTCOMES, 0)
    failed = []
    for line in ended.log.splitlines():
        found = OUTCOME_LINE.search(line)
        if found is not None:
            outcome = found.group(1) or found.group(2)
            counts[outcome] += 1
            if outcome in ("FAILED", "ERROR"):
                failed.append(re.sub(r"\[gw\d+\] | *\[ *\d+%\]", "", line).replace(outcome, "").strip())
    return {"tests": {word.lower(): count for word, count in counts.items()}, "failed": failed[:40]}


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines; a last line that is not whole yet is left out."""
    rows = []
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


def rate_of(rows: list[dict[str, Any]]) -> float | None:
    """Environment steps a second between the first and the last of some rows of metrics.jsonl."""
    if len(rows) < 2 or rows[-1]["time"] <= rows[0]["time"]:
        return None
    return float((rows[-1]["step"] - rows[0]["step"]) / (rows[-1]["time"] - rows[0]["time"]))


def training_reader(run: Path) -> Reader:
    """Speed at the start of a training and after its policy has settled, in steps and in turns of the game, and its curve."""

    def read(ended: Ended) -> dict[str, Any]:
        rows = [row for row in json_lines(run / "metrics.jsonl") if row["time"] >= ended.began]
        if not rows:
            return {}
        span = rows[-1]["time"] - ended.began
        settled = [row for row in rows if row["time"] - ended.began >= 2 / 3 * span]
        rate = rate_of(settled)
        episodes = [row for row in json_lines(run / "episodes.jsonl") if row["step"] >= settled[0]["step"]]
        steps = sum(row["length"] for row in episodes)
        turns_per_step = (
            sum(row["turns"] for row in episodes) / steps if steps and "turns" in episodes[0] else None
        )
        last = rows[-1]
        return {
            "first_row_seconds": rows[0]["time"] - ended.began,
            "steps": last["step"],
            "first_steps_per_second": rate_of(rows[: max(2, len(rows) // 8)]),
            "settled_steps_per_second": rate,
            "settled_turns_per_second": rate * turns_per_step if rate and turns_per_step else None,
            "turns_per_step": turns_per_step,
            "settled_episodes": len(episodes),
            "curve": curve(rows, ended.began),
            "last_metrics": {name: value for name, value in last.items() if value is not None},
        }

    return read


def curve(rows: list[dict[str, Any]], began: float, points: int = 12) -> list[dict[str, Any]]:
    """At most `points` rows, evenly spaced: seconds, steps, and the returns and success that the task has."""
    names = ("episode/return", "episode/intrinsic_return", "episode/success")
    every = max(1, -(-len(rows) // points))
    return [
        {
            "seconds": round(row["time"] - began, 1),
            "step": row["step"],
            **{name: row[name] for name in names if row.get(name) is not None},
        }
        for row in rows[every - 1 :: every]
    ]


def nothing(ended: Ended) -> dict[str, Any]:
    """Of what is made for later items: how long it took, which every line has, is all."""
    del ended
    return {}


# ---- the items


class Plan:
    """The items of this machine: those that may share the GPU, and those that run alone."""

    def __init__(
        self, work: Path, tiny: bool, reward: str, training_seconds: float, glam_seconds: float, apart: bool
    ) -> None:
        self._work, self._tiny = work, tiny
        self._reward, self._model = reward or str(work / "reward"), work / "language" / "model"
        self._training_seconds, self._glam_seconds = training_seconds, glam_seconds
        self._cores = len(os.sched_getaffinity(0))
        made = [*([] if reward else [self._make_reward()]), self._make_model()]
        cold = [self._language(name, cold=True) for name in LANGUAGE_PROGRAMS]
        # Chains run side by side, the items of a chain one after the other.
        self.together = [[item] for item in made] + ([cold] if apart else [[item] for item in cold])
        if not apart:
            self.together.append([self._tests()])
        self.alone = [
            *(self._language(name, cold=False) for name in LANGUAGE_PROGRAMS),
            *self._of_agents(),
            self._benchmark("inference_host", "inference_host", 30.0, 8.0, {}),
            self._nethack(),
            *([self._tests()] if apart else []),
            self._glam(),
            *(self._without_triton(name) for name in LANGUAGE_PROGRAMS),
        ]

    def _of_agents(self) -> list[Item]:
        most = {"workers": self._cores - 1, "envs_per_worker": 80}
        playing = {"seconds": 5.0, "warmup_seconds": 5.0}
        with_reward = {"batch_size": 4096, "reward_dir": self._reward}
        more = {"workers": self._cores - 2, "envs_per_worker": 160}
        return [
            self._agents("train", "train", {**most, **playing}),
            self._agents("train_reward", "train", {**most, **playing, **with_reward}),
            self._agents("learner", "learner", {**most, "seconds": 1.0}),
            self._agents("inference", "inference", {**most, "seconds": 0.25}),
            self._agents("train_more", "train", {**more, **playing}),
        ]

    def stretch(self, factor: float) -> None:
        """Multiplies the limits of all items that end by themselves."""
        for items in (*self.together, self.alone):
            items[:] = [
                item if item.timed else dataclasses.replace(item, limit=factor * item.limit) for item in items
            ]

    def _stage(self, config: str, workdir: Path | None, *flags: str) -> list[str]:
        place = [] if workdir is None else [f"--workdir={workdir}"]
        return [sys.executable, "-m", "motif_jax.launch", f"--config=configs/{config}", *place, *flags]

    def _stages(self, commands: Iterable[list[str]]) -> list[str]:
        return ["bash", "-c", " && ".join(shlex.join(command) for command in commands)]

    def _make_reward(self) -> Item:
        dataset, quick = self._work / "dataset", "smoke" if self._tiny else "quickstart"
        pairs = 60 if self._tiny else 3000
        commands = [
            self._stage(f"collect.py:{quick}", dataset, f"--config.num_pairs={pairs}", "--config.screens=False"),
            self._stage("annotate.py:quickstart", self._work / "annotate", f"--config.dataset_dir={dataset}"),
            self._stage(
                f"train_reward.py:{quick}", self._work / "reward", f"--config.dataset_dir={dataset}",
                "--config.annotator=lexicon_msg_defaultgoal",
            ),
        ]  # fmt: skip
        return Item("make_reward", self._stages(commands), nothing, 95.0, 20.0, environment=on_cpu())

    def _make_model(self) -> Item:
        texts, episodes, steps = self._work / "texts", 10 if self._tiny else 200, 60 if self._tiny else 300
        commands = [
            self._stage("collect_text.py:babyai", texts, f"--config.num_dialogues={episodes}"),
            self._stage(
                "pretrain_language_model.py:babyai", self._work / "language", f"--config.texts={texts}",
                f"--config.steps={steps}", f"--config.evaluate_every={steps}",
                *(("--config.batch_size=8",) if self._tiny else ()),
            ),
        ]  # fmt: skip
        return Item("make_model", self._stages(commands), nothing, 95.0, 20.0, environment=on_cpu())

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
        command = self._stage(f"benchmark.py:{benchmark}", None, f"--config.repeats={repeats}", *flags)
        return Item(name, command, benchmark_line, limit, reserve)

    def _agents(self, name: str, benchmark: str, options: dict[str, Any]) -> Item:
        if self._tiny:
            small = {"workers": 1, "envs_per_worker": 8, "batch_size": 64, "rollout": 16, "dtype": "float32"}
            options |= {**small, "seconds": 0.5, "network": "quickstart"}
            if "warmup_seconds" in options:
                options["warmup_seconds"] = 0.2
        chosen = {"item": name, "benchmark": f"{benchmark}_gpu", "options": options}
        return Item(name, [], nothing, 75.0, 25.0, benchmark=chosen)

    def _language(self, name: str, cold: bool) -> Item:
        options: dict[str, Any] = {"baseline": False, "seconds": 0.1 if cold else 0.7}
        if self._tiny:
            options |= TINY_LANGUAGE[name]
        if not cold:
            return self._benchmark(name, f"{name}_gpu", 60.0, 14.0, options, repeats=3)
        item = self._benchmark(f"{name}_cold", f"{name}_gpu", 95.0, 14.0, options)
        return dataclasses.replace(item, read=cold_line, environment=sharing_memory())

    def _without_triton(self, name: str) -> Item:
        """A cold start whose products are cuBLAS's alone: the compiler tries no kernels of its own for them."""
        item = self._language(name, cold=True)
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_triton_gemm=false".strip()
        environment = (
            item.environment
            if os.environ.get("JAX_PLATFORMS") == "cpu"
            else {**item.environment, "XLA_FLAGS": flags}
        )
        return dataclasses.replace(
            item, name=f"{name}_cublas_cold", reserve=0.0, read=benchmark_and_phases, environment=environment
        )

    def _tests(self) -> Item:
        # A program of the tests takes no part in the starts from an empty cache.
        environment = sharing_memory() | {
            "JAX_COMPILATION_CACHE_DIR": str(self._work / "compiled_tests"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
            "CI": "",
        }
        if os.environ.get("JAX_PLATFORMS") != "cpu":
            environment["JAX_PLATFORMS"] = "cuda,cpu"
        chosen = ["tests/rl/algorithms/losses_test.py"] if self._tiny else ["--all"]
        workers = ["-n", "6", "--dist", "loadfile"] if self._cores >= 8 else []
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--numeric",
            *workers,
            "-v",
            "-p",
            "no:cacheprovider",
            "--timeout=100",
            *chosen,
        ]
        return Item("numeric_tests", command, tests_line, 95.0, 20.0, environment=environment)

    def _glam(self) -> Item:
        run, seconds = self._work / "glam", self._glam_seconds
        flags = [f"--config.network.model={self._model}", "--config.log_every_seconds=2", "--config.tests="]
        command = self._stage("train_language_agent.py:quickstart", run, *flags)
        return Item("glam", command, training_reader(run), seconds, seconds - 10, timed=True)

    def _nethack(self) -> Item:
        run, seconds = self._work / "nethack", self._training_seconds
        flags = {
            "reward.dir": self._reward, "actors.workers": self._cores - 1, "actors.envs_per_worker": 80,
            "actors.groups_per_worker": 4, "batch_size": 4096, "network.dtype": "bfloat16", "log_every_seconds": 2,
            "save_every_seconds": 600, "train_for_env_steps": 2_000_000_000,
        }  # fmt: skip
        if self._tiny:
            flags |= {"actors.workers": 1, "actors.envs_per_worker": 8, "batch_size": 128, "rollout": 16}
            flags |= {"environment.max_episode_steps": 50, "network.dtype": "float32"}
        variant = ":quickstart" if self._tiny else ""
        command = self._stage(
            f"train_agent.py{variant}", run, *(f"--config.{key}={value}" for key, value in flags.items())
        )
        return Item("nethack", command, training_reader(run), seconds, seconds - 20, timed=True)


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


# ---- running them


class Figures:
    """Runs items and writes their lines; the whole ends `seconds` after `started` (seconds since 1970)."""

    def __init__(self, work: Path, out: Path, started: float, seconds: float) -> None:
        self._work, self._out, self._deadline = work, out, started + seconds
        self._lock = threading.Lock()
        self._environment = dict(os.environ)
        self._environment["JAX_COMPILATION_CACHE_DIR"] = str(work / "compiled")
        self._environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")

    def left(self) -> float:
        return self._deadline - time.time()

    def emit(self, line: dict[str, Any]) -> None:
        text = json.dumps(line)
        with self._lock:
            print(text, flush=True)
            with open(self._out / "figures.jsonl", "a", encoding="utf-8") as file:
                file.write(text + "\n")

    def run_together(self, chains: list[list[Item]], reserved: float) -> None:
        """Runs chains side by side, the items of each one after the other, and leaves `reserved` seconds to what is behind all of them."""
        threads = [threading.Thread(target=self.run_chain, args=(chain, reserved)) for chain in chains]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run_chain(self, items: list[Item], reserved: float) -> None:
        for number, item in enumerate(items):
            self.run(item, reserved + sum(later.reserve for later in items[number + 1 :]))

    def run(self, item: Item, reserved: float) -> None:
        """Runs an item, but leaves `reserved` seconds to those behind it; its line has an `error` where it did not end well."""
        limit = min(item.limit, self.left() - reserved - GRACE_SECONDS)
        if limit < min(5.0, item.limit):
            self.emit({"item": item.name, "error": "no time was left for it"})
            return
        path = self._work / f"{item.name}.log"
        ended = self._ended(item, path, limit)
        line: dict[str, Any] = {"item": item.name, "seconds": round(time.time() - ended.began, 1)}
        if ended.late and not item.timed:
            line["error"] = f"not done in {limit:.0f} s"
        elif ended.code != 0 and not (item.timed and ended.late):
            line["error"] = f"ended with {ended.code}: {' '.join(ended.log[-600:].split())}"
        try:
            line |= item.read(ended)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            line.setdefault("error", f"its figures cannot be read: {error!r}")
        self.emit(line)

    def run_in_one_process(self, items: list[Item], reserved: float) -> None:
        """Runs items of `benchmark` one after the other; the end of one that is late ends its process, and the others go on in another."""
        figures, deadline = self._out / "figures.jsonl", self._deadline - reserved - GRACE_SECONDS
        waiting = list(items)
        while waiting:
            before = len(json_lines(figures))
            tasks = [{**(item.benchmark or {}), "limit": item.limit} for item in waiting]
            command = [
                sys.executable,
                "launch/gpu_benchmarks.py",
                json.dumps(tasks),
                str(figures),
                str(deadline),
            ]
            with open(self._work / f"{waiting[0].name}.log", "w", encoding="utf-8") as log:
                process = subprocess.Popen(
                    command, stderr=log, cwd=REPOSITORY, env=self._environment, start_new_session=True
                )
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(1.0, deadline + GRACE_SECONDS - time.time()))
                end(process, asked=False)
            done = {line["item"] for line in json_lines(figures)[before:]}
            if not done:
                self.emit({"item": waiting[0].name, "error": f"its process ended with {process.returncode}"})
                done = {waiting[0].name}
            waiting = [item for item in waiting if item.name not in done]

    def _ended(self, item: Item, path: Path, limit: float) -> Ended:
        environment = self._environment | item.environment
        began, late = time.time(), False
        with open(path, "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                item.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                env=environment,
                start_new_session=True,
            )
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                late = True
                end(process, asked=item.timed)
        return Ended(path.read_text(encoding="utf-8", errors="replace"), began, late, process.returncode)

    def keep_logs(self) -> None:
        with tarfile.open(self._out / "logs.tar.gz", "w:gz") as tar:
            for path in sorted(self._work.glob("*.log")):
                tar.add(path, path.name)
            for run in ("nethack", "glam"):
                for name in ("config.json", "versions.json", "metrics.jsonl"):
                    if (self._work / run / name).is_file():
                        tar.add(self._work / run / name, f"{run}/{name}")


def end(process: subprocess.Popen[bytes], asked: bool) -> None:
    """Ends a process and all that it has started; one that is `asked` first has time to save."""
    if asked:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def machine() -> dict[str, Any]:
    """GPU, processor, cores, and versions of what the figures depend on."""
    from importlib import metadata

    shown = subprocess.run(["bash", "-c", "nvidia-smi -L"], capture_output=True, text=True, check=False)
    processor = re.findall(r"(?m)^model name.*?: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    versions = {}
    for name in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "nle", "gymnasium"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "missing"
    return {
        "item": "machine",
        "gpu": re.sub(r" \(UUID.*", "", shown.stdout.splitlines()[0]) if shown.returncode == 0 else "none",
        "processor": processor[0] if processor else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "python": sys.version.split()[0],
        "date": time.strftime("%Y-%m-%d"),
        **versions,
    }


def main() -> None:
    """Takes the figures that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", default="", help="names of items with commas between; all by default")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: tries the script, not the machine")
    parser.add_argument("--seconds", type=float, default=475.0, help="after which everything has ended")
    parser.add_argument(
        "--training-seconds", type=float, default=130.0, help="of the training of NetHack, with its start"
    )
    parser.add_argument(
        "--glam-seconds", type=float, default=60.0, help="of the training of a language agent, with its start"
    )
    parser.add_argument(
        "--reward", default="", help="run of train_reward to train with; without it one is made"
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for runs, logs and compiled programs"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for figures.jsonl and logs.tar.gz")
    parser.add_argument(
        "--started", type=float, default=time.time(), help="when the call began, in seconds since 1970"
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="starts the language programs one after the other, and runs the numeric tests by themselves",
    )
    given = parser.parse_args()
    plan = Plan(given.work, given.tiny, given.reward, given.training_seconds, given.glam_seconds, given.apart)
    names = [item.name for item in (*itertools.chain(*plan.together), *plan.alone)]
    wanted = (
        given.items.split(",")
        if given.items
        else [name for name in names if not name.endswith("_cublas_cold")]
    )
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        parser.error(f"--items: {', '.join(unknown)}: must be of {', '.join(names)}")
    figures = Figures(given.work, given.out, given.started, given.seconds)
    figures.emit(machine())
    if given.tiny:
        # A machine that is busy with other work is slow: no limit is tried with tiny sizes.
        plan.stretch(10.0)
    alone = [item for item in plan.alone if item.name in wanted]
    chains = [[item for item in chain if item.name in wanted] for chain in plan.together]
    if any(item.name.endswith("_cold") for item in itertools.chain(*chains)):
        shutil.rmtree(given.work / "compiled", ignore_errors=True)  # of an earlier call
    figures.run_together(chains, sum(item.reserve for item in alone))
    for in_one_process, group in itertools.groupby(alone, key=lambda item: item.benchmark is not None):
        members = list(group)
        behind = alone[alone.index(members[-1]) + 1 :]
        reserved = sum(item.reserve for item in behind)
        if in_one_process:
            figures.run_in_one_process(members, reserved)
            continue
        figures.run_chain(members, reserved)
    figures.keep_logs()
    figures.emit({"item": "all", "seconds": round(time.time() - given.started, 1)})


if __name__ == "__main__":
    main()
