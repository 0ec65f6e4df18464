"""The lexicon behind the protocol of servers, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from tests.processes import Program, launch


def serve_lexicon(log: Path, port: int, **values: object) -> Program:
    """`values` are config keys; port 0 is one that is free, which the log tells."""
    flags = [f"--config.{key}={value}" for key, value in {"port": port, **values}.items()]
    return launch(log.parent, "serve_annotator.py", *flags, log=log)
