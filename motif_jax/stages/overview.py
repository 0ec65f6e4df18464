"""Writes a page of what lies in a folder of runs, and writes it anew while runs go on."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.reports import overview, overview_page
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError
from motif_jax.support.files import FolderLock, atomic_write_text
from motif_jax.support.interruption import Interruption

NEEDS_WORKDIR = False
PAGE = "overview.html"


def check(config: ConfigDict, workdir: Path | None) -> None:
    """Raises UserError for a folder that is not there."""
    del workdir
    checks.existing_folder(config, "runs")
    checks.positive(config, "refresh_seconds", allow_zero=True)


def run(config: ConfigDict, workdir: Path | None) -> int | None:
    """Writes the page; again and again until no run goes on, unless `refresh_seconds` is 0, or it is asked to stop."""
    root = Path(config.runs)
    page = (workdir or root) / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    first, readings = True, overview.Readings()
    with Interruption() as stop, contextlib.ExitStack() as held:
        _tidy(page, held)
        while True:
            runs = overview.find(root, readings)
            going = sum(one.state == overview.RUNNING for one in runs)
            refresh = float(config.refresh_seconds) if going and config.refresh_seconds else None
            atomic_write_text(page, overview_page.render(runs, root, page, time.time(), refresh))
            if first:
                more = (
                    f", {going} of them running: written anew until they end, Ctrl-C ends it"
                    if refresh
                    else ""
                )
                print(f"{len(runs)} runs{more}: {page.resolve()}", flush=True)
                first = False
            if refresh is None or stop.requested:
                return None
            deadline = time.monotonic() + refresh
            while time.monotonic() < deadline and not stop.requested:
                time.sleep(0.1)


def _tidy(page: Path, held: contextlib.ExitStack) -> None:
    """Removes what killed writers of the page have left, unless another one writes it; as long as this one does, nobody else will."""
    with contextlib.suppress(UserError):  # another one holds it, or the file system has no locks
        held.enter_context(FolderLock(page.parent, f".{page.name}.lock"))
        for leftover in page.parent.glob(f".{page.name}.*.tmp"):
            leftover.unlink(missing_ok=True)
