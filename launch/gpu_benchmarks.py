"""Runs benchmarks of agents one after the other in one process, which saves each the start of the
ones before; see launch/gpu_figures.py.

    python launch/gpu_benchmarks.py ITEMS FIGURES DEADLINE

ITEMS is JSON: [{"item": name, "benchmark": variant, "options": {...}, "limit": seconds,
"reserve": seconds}, ...]; each item leaves later ones their reserves. Each item's line goes to
stdout and to the end of the file FIGURES. An item that exceeds its limit ends the process with the
code 99, after a line of what it has measured by then: what comes behind it is run by another
process. All end at DEADLINE, in seconds since 1970.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from typing import Any

from motif_jax import benchmarks
from motif_jax.benchmarks import _command as stage
from motif_jax.core import resources
from motif_jax.core.files import finite

LATE_CODE = 99
# An item that has fewer is not begun.
LEAST_SECONDS = 8.0


def emit(figures: str, line: dict[str, Any]) -> None:
    """Writes a line to stdout and to the end of the file `figures`."""
    text = json.dumps(line)
    with open(figures, "a", encoding="utf-8") as file:
        file.write(text + "\n")
    print(text, flush=True)


def run(item: dict[str, Any]) -> dict[str, Any]:
    """The line of a benchmark."""
    config = resources.config("benchmark", item["benchmark"])
    config.repeats = 1
    config.options.update(item["options"])
    stage.check(config, None)
    line: dict[str, Any] = finite(benchmarks.module(config.name).run(config))
    return line


def main(items: list[dict[str, Any]], figures: str, deadline: float) -> None:
    """Runs the items; see above."""
    for number, item in enumerate(items):
        name = item["item"]
        reserved = sum(later["reserve"] for later in items[number + 1 :])
        limit = min(item["limit"], deadline - time.time() - reserved)
        if limit < LEAST_SECONDS:
            emit(figures, {"item": name, "error": "no time was left for it"})
            continue

        # Defaults hold this item's values: the timer may run out when the loop has gone on.
        def end(name: str = name, limit: float = limit) -> None:
            line = {"item": name, "seconds": round(limit, 1), "error": f"not done in {limit:.0f} s"}
            emit(figures, {**line, **finite(dict(benchmarks.early_line))})
            # At once: the main thread may be inside a compilation, which no exception reaches.
            os._exit(LATE_CODE)

        timer = threading.Timer(limit, end)
        timer.daemon = True
        timer.start()
        began = time.monotonic()
        benchmarks.early_line.clear()
        try:
            line = run(item)
        # Whatever ends one measurement, the others go on.
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            line = {
                "error": " ".join(repr(error).split())[:600],
                **finite(dict(benchmarks.early_line)),
            }
        timer.cancel()
        emit(figures, {"item": name, "seconds": round(time.monotonic() - began, 1), **line})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
