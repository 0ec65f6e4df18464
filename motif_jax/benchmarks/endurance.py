"""A long run at full load: whether memory, threads, files and disk of all its processes stay as they are.

    python -m motif_jax.launch --config=configs/benchmark.py:endurance --config.options.minutes=60
    python -m motif_jax.launch --config=configs/benchmark.py:endurance --config.options.command='collect.py --config.episodes=100000'

Starts `train_agent` (`options.config=oni`: `configs/oni.py` with the lexicon in a process of its own; `options.command`: any
stage, which has to have work for longer) as a program of its own, looks at all its processes from outside, and stops it when the time is over.
Value: memory of all processes together at the end, shared pages counted once and pages of files (libraries) not at all: the
system drops and rereads those as it likes; yardstick: the same when the warm-up was over. The ends alone can hide what was
between them: whoever quotes them also says the largest sum after the warm-up and the slope of the sum
(`largest_memory_mb` and `slope_mb_per_hour` of "all together"). Besides: both of every process, the most threads and open
files, what the run has on the disk, the processor's time that it took, what it left behind. `options.folder` gets samples.json, memory.png, memory.pdf, disk.png and disk.pdf, and the run itself.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from ml_collections import ConfigDict

from motif_jax.benchmarks import result
from motif_jax.reports.charts import Series
from motif_jax.reports.plots import Plot, draw
from motif_jax.support import config as checks
from motif_jax.support import resources
from motif_jax.support.config import default_workers
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_bytes, atomic_write_json
from motif_jax.support.lifeline import told_of_parents_end
from motif_jax.support.metrics import read_metrics

_LEARNER, _PROGRAM = "learner", "program"
_SERVER, _MEMBER = "motif_jax.actors.fork_server", "motif_jax.actors.member"
_ANNOTATOR = "motif_jax.annotation.annotator_process"
_HELPER = "helper"
_STOP_SECONDS, _LINGER_SECONDS = 300.0, 5.0
# Of a training without a reward run, by its config.
_REWARDS = {
    "train_agent": ("--config.reward.intrinsic_coefficient=0",),
    "oni": ("--config.annotator.store_dir={folder}/answers",),
}
# No training gets there in the time that one is watched.
_ENDLESS_STEPS = 10**12
# Of the fit: this share of it at either end gives the two values that are compared.
_END_SHARE = 0.1


def options() -> ConfigDict:
    """Settings: how long, how often to look, which share of the time is warm-up, where to write, the training's size."""
    return ConfigDict(
        {
            "minutes": 10.0,
            "sample_seconds": 5.0,
            "warmup_share": 0.3,
            "folder": "runs/endurance",
            # A stage's config and its flags in place of what the keys from `config` on describe.
            "command": "",
            "config": "train_agent",
            "variant": "",
            "env": "NetHackScore-v1",
            "workers": default_workers(),
            "envs_per_worker": 40,
            "batch_size": 1024,
            "rollout": 32,
            "reward_dir": "",
        }
    )


def check(config: ConfigDict) -> None:
    """Raises UserError for a bad share, or a folder that is taken."""
    checks.fraction(config, "options.warmup_share")
    checks.choice(config, "options.config", _REWARDS)
    reward_dir = config.options.reward_dir
    fits = not reward_dir or config.options.config == "train_agent"
    checks.require(
        fits, "options.reward_dir", reward_dir, f"'' with config.options.config={config.options.config}"
    )
    checks.require(
        not config.options.command or _is_command(config.options.command),
        "options.command",
        config.options.command,
        "one that begins with a file of configs/: 'annotate.py:quickstart --config.KEY=VALUE'",
    )
    folder = Path(config.options.folder)
    if (folder / "run").exists():
        raise UserError(f"config.options.folder={folder} holds a run already: remove it, or name another")


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line."""
    check(config)
    options = config.options
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    samples, code, left = _observe(config, folder)
    table = Table(samples)
    atomic_write_json(folder / "samples.json", samples)
    fit = table.after(options.warmup_share * 60 * options.minutes)
    for name, plot in (("memory", _plot(table, fit.names)), ("disk", _disk_plot(table))):
        for kind, data in draw(plot).items():
            atomic_write_bytes(folder / f"{name}.{kind}", data)
    total = fit.total("memory")
    ends = max(1, round(_END_SHARE * len(total)))
    rows = list(read_metrics(folder / "run"))
    return result(
        "endurance",
        "MB",
        [float(np.mean(total[-ends:]))],
        "the same when the warm-up was over",
        [float(np.mean(total[:ends]))],
        options.to_dict(),
        slope_mb_per_hour={"all together": slope_per_hour(fit.seconds, total)}
        | {name: slope_per_hour(fit.seconds, fit.of(name, "memory")) for name in fit.names},
        largest_memory_mb={"all together": float(total.max())}
        | {name: float(fit.of(name, "memory").max()) for name in fit.names},
        memory_mb={name: [float(fit.of(name, "memory")[i]) for i in (0, -1)] for name in fit.names},
        largest_rss_mb={name: float(np.nanmax(table.of(name, "rss"))) for name in fit.names},
        threads={name: _extremes(fit.of(name, "threads")) for name in fit.names},
        files={name: _extremes(fit.of(name, "files")) for name in fit.names},
        shared_memory_files=max(sample["shared_memory"] for sample in samples),
        zombies=max((len({*one} & {*other}) for one, other in pairwise(s["zombies"] for s in samples)), default=0),
        disk_mb=[float(fit.disk[0]), float(fit.disk[-1])],
        disk_slope_mb_per_hour=slope_per_hour(fit.seconds, fit.disk),
        minutes=float(table.seconds[-1]) / 60,
        processor_minutes=max(_processor_seconds(sample) for sample in samples) / 60,
        steps=rows[-1].get("step", 0) if rows else 0,
        actor_restarts=rows[-1].get("actors/restarts", 0) if rows else 0,
        exit_code=code,
        left_behind=left,
    )  # fmt: skip


def _observe(config: ConfigDict, folder: Path) -> tuple[list[dict[str, Any]], int, list[str]]:
    """Runs the training; returns the samples, its exit code, and what it left behind."""
    options = config.options
    # Of the training, beside it: what it leaves there can be told from what others leave, and goes with the folder.
    temporary = (folder / "temporary").absolute()
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    shared = _shared_memory()
    with open(folder / "log.txt", "wb") as log:
        # In this session, so that Ctrl-C reaches it too, and it saves and ends.
        program = subprocess.Popen(
            _command(options, folder, config.seed),
            env={**os.environ, "TMPDIR": str(temporary)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=told_of_parents_end,
        )
    samples: list[dict[str, Any]] = []
    names: dict[int, str] = {program.pid: _PROGRAM if options.command else _LEARNER}
    seen: set[int] = set()
    start = time.monotonic()
    try:
        while (elapsed := time.monotonic() - start) < 60 * options.minutes and program.poll() is None:
            samples.append(
                {
                    "seconds": elapsed,
                    **_sample(program.pid, names),
                    "shared_memory": len(_new_shared_memory(shared, names)),
                    "disk": _disk((folder / "run", temporary)),
                }
            )
            seen.update(names)
            time.sleep(options.sample_seconds)
        lasted = program.poll() is None
        with contextlib.suppress(ProcessLookupError):
            program.send_signal(signal.SIGTERM)
        code = program.wait(_STOP_SECONDS)
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()
    # A server has done all of its work whenever it is stopped.
    if not lasted or code not in (0, 75):
        why = "it had no work left" if code == 0 else "it failed"
        raise RuntimeError(f"the run ended with {code} instead of 75, {why}: see {folder / 'log.txt'}")
    left = [f"process {pid}" for pid in sorted(_after_a_while(seen))]
    left += [f"temporary {name}" for name in sorted(os.listdir(temporary))]
    shutil.rmtree(temporary)
    left += [f"shared memory {name}" for name in sorted(_new_shared_memory(shared))]
    return samples, code, left


def _is_command(text: str) -> bool:
    try:
        name, *_ = shlex.split(text)
    except ValueError:
        return False
    return _config_of(name).is_file()


def _config_of(name: str) -> Path:
    return Path(resources.path(f"configs/{name.partition(':')[0]}"))


def _command(options: ConfigDict, folder: Path, seed: int) -> list[str]:
    if options.command:
        name, *flags = shlex.split(options.command)
        config = f"--config={_config_of(name)}{''.join(name.partition(':')[1:])}"
        return [sys.executable, "-m", "motif_jax.launch", config, f"--workdir={folder / 'run'}", *flags]
    if options.reward_dir:
        reward = [f"--config.reward.dir={options.reward_dir}"]
    else:
        reward = [flag.format(folder=folder) for flag in _REWARDS[options.config]]
    variant = options.variant and f":{options.variant}"
    return [
        sys.executable,
        "-m",
        "motif_jax.launch",
        f"--config={resources.path(f'configs/{options.config}.py')}{variant}",
        f"--workdir={folder / 'run'}",
        *reward,
        f"--config.seed={seed}",
        f"--config.environment.name={options.env}",
        f"--config.actors.workers={options.workers}",
        f"--config.actors.envs_per_worker={options.envs_per_worker}",
        f"--config.batch_size={options.batch_size}",
        f"--config.rollout={options.rollout}",
        f"--config.train_for_env_steps={_ENDLESS_STEPS}",
    ]


def _sample(parent: int, names: dict[int, str]) -> dict[str, Any]:
    """Looks at all processes; gives new ones a name in `names`."""
    found, zombies = {}, []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in [psutil.Process(parent), *psutil.Process(parent).children(recursive=True)]:
            # It may end at any moment of the look.
            gone = (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError)
            with contextlib.suppress(*gone), process.oneshot():
                if process.status() == psutil.STATUS_ZOMBIE:
                    zombies.append(process.pid)  # counts if it still is one at the next look
                    continue
                # Asked again of a helper: an actor that has just been forked still has its parent's command line.
                name = names.get(process.pid, _HELPER)
                if name.startswith(_HELPER):
                    name = names[process.pid] = _name(process, names)
                found[name] = {
                    "rss": process.memory_info().rss / 1e6,
                    "memory": _memory(process.pid),
                    "threads": process.num_threads(),
                    "files": process.num_fds(),
                    # Of the ones it has waited for, too, which are no longer there to be asked.
                    "processor_seconds": sum(process.cpu_times()[:4]),
                }
    return {"processes": found, "zombies": zombies}


def _processor_seconds(sample: dict[str, Any]) -> float:
    return sum(one["processor_seconds"] for one in sample["processes"].values())


def _name(process: psutil.Process, names: dict[int, str]) -> str:
    command, parent = process.cmdline(), process.parent()
    if _SERVER in command and (parent is None or _SERVER not in parent.cmdline()):
        return "fork server" if "fork server" not in names.values() else f"fork server {process.pid}"
    if _ANNOTATOR in command:
        return "annotator" if "annotator" not in names.values() else f"annotator {process.pid}"
    if _SERVER not in command and _MEMBER not in command:
        return f"{_HELPER} {process.pid}"
    return f"actor {sum(name.startswith('actor') for name in names.values())}"


def _memory(pid: int) -> float:
    """Megabytes of a process without pages of files; shared memory in equal parts to those that share it."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    kilobytes = {name: int(rest.split()[0]) for name, rest in (line.split(":", 1) for line in lines)}
    return (kilobytes["Pss_Anon"] + kilobytes["Pss_Shmem"]) * 1024 / 1e6


def _after_a_while(pids: Collection[int]) -> set[int]:
    """Those that are still there some seconds after their parent: helpers see its end, and go."""
    deadline = time.monotonic() + _LINGER_SECONDS
    while (there := {pid for pid in pids if psutil.pid_exists(pid)}) and time.monotonic() < deadline:
        time.sleep(0.1)
    return there


def _disk(folders: Sequence[Path]) -> float:
    """Megabytes of all files below these folders, as many as the system has set aside for them."""
    total = 0
    for folder in folders:
        for root, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # renamed or removed since
                    total += 512 * os.lstat(os.path.join(root, name)).st_blocks
    return total / 1e6


def _shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def _new_shared_memory(before: set[str], ours: Collection[int] = ()) -> set[str]:
    """What has come to be in /dev/shm since `before`, without what belongs to running programs other than `ours`."""
    new = _shared_memory() - before
    for path in Path("/proc").glob("[0-9]*/maps") if new else ():
        if int(path.parent.name) not in ours:
            with contextlib.suppress(OSError):
                mapped = path.read_text(errors="replace")
                new -= {name for name in new if f"/dev/shm/{name}\n" in mapped}
    # Whoever had one may have put it away, and have ended, between the first list and the look at who maps what.
    return new & _shared_memory() if new else new


class Table:
    """Samples by process. Processes that are not in every sample (a short-lived helper) have no column of their own.

    Attributes:
      seconds: float [samples], since the start.
      disk: float [samples], megabytes of the run's files.
      names: processes that are in every sample.
    """

    def __init__(self, samples: Sequence[dict[str, Any]]) -> None:
        self._samples = list(samples)
        self.seconds = np.array([sample["seconds"] for sample in samples])
        self.disk = np.array([sample["disk"] for sample in samples])
        everywhere = set.intersection(*(set(sample["processes"]) for sample in samples))
        self.names = sorted(everywhere, key=lambda name: (name not in (_LEARNER, _PROGRAM), len(name), name))

    def after(self, seconds: float) -> Table:
        """The samples from this time on.

        Raises:
          RuntimeError: there are fewer than two.
        """
        late = [sample for sample in self._samples if sample["seconds"] >= seconds]
        if len(late) < 2:
            raise RuntimeError("the run was too short for a slope: give it more minutes")
        return Table(late)

    def of(self, name: str, field: str) -> np.ndarray:
        """float [samples] of one process, NaN where it was not there."""
        absent = {field: np.nan}
        return np.array(
            [sample["processes"].get(name, absent)[field] for sample in self._samples], np.float64
        )

    def total(self, field: str) -> np.ndarray:
        """float [samples], summed over all processes of each sample."""
        return np.array(
            [sum(one[field] for one in sample["processes"].values()) for sample in self._samples], np.float64
        )


def slope_per_hour(seconds: np.ndarray, values: np.ndarray) -> float:
    """The slope of the least-squares line through `values` at `seconds`, per hour."""
    return float(np.polyfit(seconds / 3600.0, values, 1)[0])


def _extremes(values: np.ndarray) -> list[int]:
    return [int(values.min()), int(values.max())]


def _plot(table: Table, names: Sequence[str]) -> Plot:
    minutes = table.seconds / 60
    lines = [Series(name="all together", x=minutes, y=table.total("memory"))]
    lines += [Series(name=name, x=minutes, y=table.of(name, "memory")) for name in names[:5]]
    return Plot("minutes", "MB", tuple(lines))


def _disk_plot(table: Table) -> Plot:
    return Plot("minutes", "MB", (Series(name="on disk", x=table.seconds / 60, y=table.disk),))
