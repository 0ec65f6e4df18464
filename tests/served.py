"""A server, and a stage that asks it, each started again by the same command when it ends too early: what somebody does who needs both.

    python -m tests.served --config=configs/serve_annotator.py --workdir=FOLDER [--config.KEY=VALUE ...] -- FLAGS OF THE STAGE

It ends with 0 when the stage has come to its end and the server has ended as it was asked to.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time

from motif_jax.support.parent_death import sigterm_on_parent_death

# A stage that ends so often does so by itself.
_MOST_STARTS = 60
_END_SECONDS = 60.0


def _start(flags: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "motif_jax.launch", *flags], preexec_fn=sigterm_on_parent_death
    )


def _await(flags: list[str]) -> None:
    """Returns when the server listens."""
    port = int(next(flag for flag in flags if flag.startswith("--config.port=")).partition("=")[2])
    until = time.monotonic() + _END_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)


def main() -> int:
    """The program."""
    where = sys.argv.index("--")
    server_flags, stage_flags = sys.argv[1:where], sys.argv[where + 1 :]
    server, stage = _start(server_flags), _start(stage_flags)
    for _ in range(_MOST_STARTS):
        while stage.poll() is None:
            if server.poll() is not None:
                time.sleep(0.1)  # the port may still be another one's
                server = _start(server_flags)
            time.sleep(0.02)
        if stage.returncode == 0:
            break
        stage = _start(stage_flags)
    while server.poll() is not None:  # it was killed while the stage ended
        server = _start(server_flags)
    _await(server_flags)  # before that it does not hear
    server.terminate()
    return stage.returncode or server.wait(_END_SECONDS)


if __name__ == "__main__":
    raise SystemExit(main())
