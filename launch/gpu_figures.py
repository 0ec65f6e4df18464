"""Takes the figures of a GPU machine, one JSON line an item; launch/gpu_figures.sh sets up its environment and starts it.

First, side by side: what later items need is made (a reward of NetHack from the lexicon's labels, a small T5), the four language programs
start with an empty cache of compiled programs, and the numeric tests run. Then, one after the other, what is a rate. An item is a process
of its own, but for the benchmarks of agents, which follow each other in one. It is ended at its limit, or where the items behind it need
the time.
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

from gpu_items import Item, Plan
from gpu_runner import Figures


def machine() -> dict[str, Any]:
    """GPU, processor, cores, and versions of what the figures depend on."""
    from importlib import metadata

    # Through bash: a machine without nvidia-smi gives an exit code, no exception.
    gpus = subprocess.run(["bash", "-c", "nvidia-smi -L"], capture_output=True, text=True, check=False)
    processors = re.findall(r"(?m)^model name.*?: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    versions = {}
    for name in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "nle", "gymnasium"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "missing"
    return {
        "item": "machine",
        "gpu": re.sub(r" \(UUID.*", "", gpus.stdout.splitlines()[0]) if gpus.returncode == 0 else "none",
        "processor": processors[0] if processors else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "python": sys.version.split()[0],
        "date": time.strftime("%Y-%m-%d"),
        **versions,
    }


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--items", default="", help="names of items with commas between; all by default")
    flags.add_argument("--tiny", action="store_true", help="tiny sizes: tries the script, not the machine")
    flags.add_argument(
        "--seconds", type=float, default=475.0, help="seconds after which everything has ended"
    )
    flags.add_argument(
        "--training-seconds", type=float, default=130.0, help="seconds of NetHack's training, with its start"
    )
    flags.add_argument(
        "--glam-seconds",
        type=float,
        default=60.0,
        help="seconds of a language agent's training, with its start",
    )
    flags.add_argument(
        "--reward", default="", help="run of train_reward to train with; without it one is made"
    )
    flags.add_argument("--work", type=Path, required=True, help="folder for runs, logs and compiled programs")
    flags.add_argument("--out", type=Path, required=True, help="folder for figures.jsonl and logs.tar.gz")
    flags.add_argument(
        "--started", type=float, default=time.time(), help="when the call began, in seconds since 1970"
    )
    flags.add_argument(
        "--apart",
        action="store_true",
        help="starts the language programs one after the other, and runs the numeric tests by themselves",
    )
    return flags


def main() -> None:
    """Takes the figures that the command line names."""
    options = parser().parse_args()
    plan = Plan(
        options.work,
        options.tiny,
        options.reward,
        options.training_seconds,
        options.glam_seconds,
        options.apart,
    )
    names = [item.name for item in (*itertools.chain(*plan.together), *plan.alone)]
    chosen = [name for name in names if not name.endswith("_cublas_cold")]
    if options.items:
        chosen = options.items.split(",")
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        parser().error(f"--items: {', '.join(unknown)}: must be of {', '.join(names)}")
    if options.tiny:
        # A machine that is busy with other work is slow: no limit is tried with tiny sizes.
        plan.stretch(10.0)

    figures = Figures(options.work, options.out, options.started, options.seconds)
    figures.emit(machine())
    alone = [item for item in plan.alone if item.name in chosen]
    chains = [[item for item in chain if item.name in chosen] for chain in plan.together]
    if any(item.name.endswith("_cold") for item in itertools.chain(*chains)):
        # Programs that an earlier call compiled would make the starts warm.
        shutil.rmtree(options.work / "compiled", ignore_errors=True)
    figures.run_together(chains, sum(item.reserve for item in alone))
    _run_alone(figures, alone)
    figures.keep_logs()
    figures.emit({"item": "all", "seconds": round(time.time() - options.started, 1)})


def _run_alone(figures: Figures, items: list[Item]) -> None:
    """Runs items one after the other; benchmarks of agents that follow each other share a process."""
    done = 0
    for in_one_process, group in itertools.groupby(items, key=lambda item: item.benchmark is not None):
        members = list(group)
        done += len(members)
        reserved = sum(item.reserve for item in items[done:])
        if in_one_process:
            figures.run_in_one_process(members, reserved)
        else:
            figures.run_chain(members, reserved)


if __name__ == "__main__":
    main()
