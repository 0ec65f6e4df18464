"""Takes the figures of a GPU machine, one JSON line an item; launch/gpu_figures.sh sets up its
environment and starts it.

Of a plan (launch/gpu_items.py) what later items need is made first; beside it the language programs
start with an empty cache of compiled programs. Then, one after the other, what is a rate. An item
is a process of its own, but for the benchmarks of agents, which follow each other in one. It is
ended at its limit, or where the items behind it need the time.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu_items import PlanMaker
from gpu_plans import Item, Plan
from gpu_runner import REPOSITORY, Figures

# A busy machine takes many times as long.
TINY_SECONDS = 3600.0
# A driver that hangs must not take the whole call.
DRIVER_SECONDS = 20.0


def gpu_name() -> str:
    """The first GPU that the driver lists, 'none', or why it cannot be told."""
    # Through bash: a machine without nvidia-smi gives an exit code, no exception.
    process = subprocess.Popen(
        ["bash", "-c", "exec nvidia-smi -L"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        listed, _ = process.communicate(timeout=DRIVER_SECONDS)
    except subprocess.TimeoutExpired:
        # Not waited for: a process that the driver holds does not end.
        process.kill()
        return f"unknown: nvidia-smi does not answer in {DRIVER_SECONDS:.0f} s"
    names = listed.splitlines()
    if process.returncode != 0 or not names:
        return "none"
    return re.sub(r" \(UUID.*", "", names[0])


def machine() -> dict[str, Any]:
    """GPU, processor, cores, and versions of what the figures depend on."""
    from importlib import metadata

    processors = re.findall(
        r"(?m)^model name.*?: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8")
    )
    versions = {}
    for name in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "nle", "gymnasium"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "missing"
    return {
        "item": "machine",
        "gpu": gpu_name(),
        "processor": processors[0] if processors else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "python": sys.version.split()[0],
        "date": time.strftime("%Y-%m-%d"),
        **versions,
    }


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--plan", choices=("agents", "language"), help="the figures of one call")
    flags.add_argument(
        "--items", default="", help="names of items with commas between, in place of a plan"
    )
    flags.add_argument(
        "--tiny",
        action="store_true",
        help="tiny sizes: tries the script, not the machine; both plans by default",
    )
    flags.add_argument(
        "--seconds",
        type=float,
        help="seconds after which everything has ended; those of the plan by default",
    )
    flags.add_argument(
        "--training-seconds",
        type=float,
        default=120.0,
        help="seconds of NetHack's training, with its start",
    )
    flags.add_argument(
        "--glam-seconds",
        type=float,
        default=110.0,
        help="seconds of a language agent's training, with its start",
    )
    flags.add_argument(
        "--reward", default="", help="run of train_reward to train with; without it one is made"
    )
    flags.add_argument(
        "--model",
        default="",
        help="folder of a T5 for GLAM's training; without it a small one is made",
    )
    flags.add_argument(
        "--work", type=Path, required=True, help="folder for runs, logs and compiled programs"
    )
    flags.add_argument(
        "--out", type=Path, required=True, help="folder for figures.jsonl and logs.tar.gz"
    )
    flags.add_argument(
        "--started",
        type=float,
        default=time.time(),
        help="when the call began, in seconds since 1970",
    )
    flags.add_argument(
        "--apart",
        action="store_true",
        help="starts the language programs of --items one after the other",
    )
    return flags


def chosen_plans(options: argparse.Namespace) -> list[Plan]:
    """The plans that the command line names, with the items that run. Exits with 2: it names none,
    or unknown items.
    """
    for flag, folder in (("--reward", options.reward), ("--model", options.model)):
        if folder and not (REPOSITORY / folder).exists():
            parser().error(f"{flag}={folder}: there is no such folder in {REPOSITORY}")
    maker = PlanMaker(
        options.work,
        len(os.sched_getaffinity(0)),
        options.tiny,
        options.reward,
        options.model,
        options.training_seconds,
        options.glam_seconds,
        options.apart,
    )
    plans = maker.plans()
    if options.items:
        known = [item.name for plan in plans for item in plan.items()]
        names = options.items.split(",")
        unknown = sorted(set(names) - set(known))
        if unknown:
            parser().error(f"--items: {', '.join(unknown)}: must be of {', '.join(known)}")
        plans = [plan.only(names) for plan in plans]
        missing = [
            f"{item} needs {prerequisite}" for item, prerequisite in maker.missing_inputs(names)
        ]
        if missing:
            parser().error(f"--items: {', '.join(missing)}, which no earlier call has run here")
    elif options.apart:
        parser().error("--apart needs --items: starts one after the other leave no time for a plan")
    elif options.plan:
        plans = [plan for plan in plans if plan.name == options.plan]
    elif not options.tiny:
        parser().error("choose the figures by --plan=agents, --plan=language or --items")
    if options.tiny:
        # A machine that is busy with other work is slow: no limit is tried with tiny sizes.
        plans = [plan.stretched(10.0) for plan in plans]
    return plans


def main() -> None:
    """Takes the figures that the command line names."""
    options = parser().parse_args()
    if options.tiny:
        # A call with the sizes of a GPU would take tiny runs for its own, and the table its
        # figures.
        options.work = options.work / "tiny"
        options.out = options.out / "tiny"
        options.work.mkdir(parents=True, exist_ok=True)
        options.out.mkdir(parents=True, exist_ok=True)
    plans = chosen_plans(options)
    seconds = options.seconds
    if seconds is None:
        seconds = TINY_SECONDS if options.tiny else max(plan.seconds for plan in plans)
    figures = Figures(options.work, options.out, options.started, seconds)
    # Before the first process is started.
    figures.end_at_signals()
    figures.emit(machine())
    _set_aside(options, [item for plan in plans for item in plan.items()])
    # Each plan leaves those behind it the time that they need at least.
    for number, plan in enumerate(plans):
        reserved = sum(later.needed_seconds() for later in plans[number + 1 :])
        figures.run_together(plan.together, reserved + sum(item.reserve for item in plan.alone))
        _run_alone(figures, plan.alone, reserved)
    figures.emit({"item": "all", "seconds": round(time.time() - options.started, 1)})


def _set_aside(options: argparse.Namespace, items: list[Item]) -> None:
    """Takes what an earlier call has left out of the way of these items."""
    if any(item.name.endswith("_cold") for item in items):
        # Programs that an earlier call compiled would make the starts warm.
        shutil.rmtree(options.work / "compiled", ignore_errors=True)
    for item in items:
        run = options.work / item.name
        # A training would go on where the earlier one was, whose policy has settled.
        if item.timed and run.exists():
            run.rename(run.with_name(f"{run.name}-before-{options.started:.0f}"))


def _run_alone(figures: Figures, items: list[Item], reserved: float) -> None:
    """Runs items one after the other and leaves `reserved` seconds; benchmarks of agents that
    follow each other share a process.
    """
    done = 0
    for in_one_process, group in itertools.groupby(
        items, key=lambda item: item.benchmark is not None
    ):
        members = list(group)
        done += len(members)
        later = reserved + sum(item.reserve for item in items[done:])
        if in_one_process:
            figures.run_in_one_process(members, later)
        else:
            figures.run_chain(members, later)


if __name__ == "__main__":
    main()
