"""Writes metrics: TensorBoard event files, metrics.jsonl, and W&B on request."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tensorboardX.proto import event_pb2, summary_pb2, tensor_pb2
from tensorboardX.record_writer import RecordWriter

from motif_jax.core.errors import printable
from motif_jax.core.files import atomic_write_text, json_line, naming, read_json_lines, regular_file

FILE_NAME = "metrics.jsonl"
_FLUSH_SECONDS = 120.0


def read_metrics(workdir: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a run's metrics.jsonl, as `read_json_lines` does."""
    return read_json_lines(Path(workdir) / FILE_NAME, ["step"])


class MetricTable(NamedTuple):
    """A table of texts for TensorBoard's text tab and W&B."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class MetricsWriter(contextlib.AbstractContextManager["MetricsWriter"]):
    """Writes scalars by step; a resumed run continues where its checkpoint stands.

    Rows after `resume_step`, the restored checkpoint's (None: a new run), are dropped from
    metrics.jsonl and purged from TensorBoard's curves. `wandb` are arguments of `wandb.init`
    (project, name, ...).

    Raises UserError: metrics.jsonl is damaged; OSError: a file cannot be written, also in the
    methods; it is named.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        resume_step: int | None = None,
        wandb: Mapping[str, Any] | None = None,
    ) -> None:
        folder = Path(workdir)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE_NAME
        if path.exists():
            rows = read_metrics(folder) if resume_step is not None else ()
            # The resumed run writes later rows again, which would then stand there twice.
            lines = (json_line(row) for row in rows if row["step"] <= resume_step)
            atomic_write_text(path, "".join(lines))
        self._path = path
        self._file = open(path, "a", encoding="utf-8", opener=regular_file)  # noqa: SIM115 - closed by close()
        purge_step = None if resume_step is None else resume_step + 1
        events = folder / "tensorboard"
        if purge_step is None and any(events.glob("events.*")):
            # A try that ended before its first checkpoint.
            purge_step = 0
        self._events = _Events(events, purge_step)
        self._wandb = _start_wandb(folder, wandb) if wandb is not None else None

    def __exit__(self, *exception: object) -> None:
        self.close()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one row; values that are not finite stand as null in the JSON and are left out of
        TensorBoard.
        """
        row: dict[str, Any] = {"step": int(step), "time": round(time.time(), 3)}
        numbers = {name: float(value) for name, value in values.items()}
        finite = {name: number for name, number in numbers.items() if math.isfinite(number)}
        row |= {name: finite.get(name) for name in numbers}
        self._events.add(int(step), finite)
        with naming(self._path):
            self._file.write(json_line(row))
            # Each row at once: a page or a person follows the file while the training runs.
            self._file.flush()
        if self._wandb is not None:
            self._wandb.log({k: v for k, v in row.items() if k != "time"}, step=int(step))

    def write_table(self, step: int, name: str, table: MetricTable) -> None:
        """Shows a table of texts at a step; metrics.jsonl has numbers only."""
        # Indented by four blanks Markdown shows lines as they are, whatever the texts hold.
        lines = [printable("    " + "  ".join(cells)) for cells in (table.header, *table.rows)]
        self._events.add_text(int(step), name, "\n".join(lines))
        if self._wandb is not None:
            shown = import_wandb().Table(
                columns=list(table.header), data=[list(row) for row in table.rows]
            )
            self._wandb.log({name: shown}, step=int(step))

    def flush(self) -> None:
        with naming(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._events.flush()

    def close(self) -> None:
        if self._file.closed:
            return
        # Each is closed even where another cannot write its last part, as on a full disk.
        with contextlib.ExitStack() as stack:
            if self._wandb is not None:
                stack.callback(self._wandb.finish)
            stack.callback(self._events.close)
            stack.callback(self._file.close)
            self.flush()


class _Events:
    """A TensorBoard event file, written in the caller's thread, so that a full disk raises there.

    TensorBoard drops what earlier files in `folder` have from `purge_step` on.
    """

    def __init__(self, folder: Path, purge_step: int | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
        # Keeps the file of an earlier start within the same second.
        number = next(n for n in itertools.count() if not (folder / f"{name}.{n}").exists())
        self._path = folder / f"{name}.{number}"
        self._writer = RecordWriter(str(self._path))
        self._flush_at = 0.0
        # TensorBoard expects the format's version in the first event of a file.
        self._write(file_version="brain.Event:2")
        if purge_step is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(step=purge_step, session_log=start)

    def _write(self, **parts: Any) -> None:
        with naming(self._path):
            self._writer.write(event_pb2.Event(wall_time=time.time(), **parts).SerializeToString())

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Writes scalars of a step; they reach the disk within two minutes."""
        scalars = [
            summary_pb2.Summary.Value(tag=name, simple_value=value)
            for name, value in values.items()
        ]
        self._write(step=step, summary=summary_pb2.Summary(value=scalars))
        if time.monotonic() >= self._flush_at:
            self.flush()
            self._flush_at = time.monotonic() + _FLUSH_SECONDS

    def add_text(self, step: int, name: str, markdown: str) -> None:
        """Writes a text for TensorBoard's text tab."""
        plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="text")
        metadata = summary_pb2.SummaryMetadata(plugin_data=plugin)
        tensor = tensor_pb2.TensorProto(dtype="DT_STRING", string_val=[markdown.encode()])
        tensor.tensor_shape.dim.add(size=1)
        value = summary_pb2.Summary.Value(tag=name, metadata=metadata, tensor=tensor)
        self._write(step=step, summary=summary_pb2.Summary(value=[value]))

    def flush(self) -> None:
        with naming(self._path):
            self._writer.flush()

    def close(self) -> None:
        with naming(self._path):
            self._writer.close()


def import_wandb() -> Any:
    """The wandb package, which takes most of a second."""
    return importlib.import_module("wandb")


def _start_wandb(folder: Path, options: Mapping[str, Any]) -> Any:
    wandb = import_wandb()
    id_file = folder / "wandb_id.txt"
    if not id_file.exists():
        atomic_write_text(id_file, secrets.token_hex(4))
    name = id_file.read_text(encoding="utf-8")
    # With the id of the first start W&B continues its curves.
    return wandb.init(dir=str(folder), id=name, resume="allow", **options)
