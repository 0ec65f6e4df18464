"""Pretended programs for tests of the scripts in launch/: Slurm's, a server of a language model,
and python for the stage.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.processes import REPOSITORY, Program, ended, free_port, processes_with, wait_until

# Starts the first of the job's processes, with Slurm's variables. As srun it passes USR1 on, and
# makes a KILL of TERM and HUP.
SRUN = """#!/usr/bin/env bash
: > "$FAKE_FOLDER/srun_flags"
while [ "${1#--}" != "$1" ]; do
  echo "$1" >> "$FAKE_FOLDER/srun_flags"
  case $1 in --het-group=1) [ -z "${FAKE_GPUS:-}" ] || export SLURM_GPUS_ON_NODE=$FAKE_GPUS ;; esac
  shift
done
task=''
trap '[ -z "$task" ] || kill -USR1 "$task"' USR1
trap 'echo "srun: forcing job termination" >&2; [ -z "$task" ] || kill -KILL "$task"' TERM HUP
SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1 SLURM_STEP_NODELIST=localhost "$@" &
task=$!
echo "$task" > "$FAKE_FOLDER/task_pid"
while true; do
  wait "$task" && code=0 || code=$?
  kill -0 "$task" 2>/dev/null || exit "$code"
done
"""
# Queues a job again, or shows it with the file `job`.
SCONTROL = """#!/usr/bin/env bash
case $1 in
  show) cat "$FAKE_FOLDER/job" 2>/dev/null ;;
  *) echo "$@" >> "$FAKE_FOLDER/requeued" ;;
esac
"""
# In place of vLLM: answers when there is the file `ready`; with `dead` it ends. Its model page
# answers always, as vLLM's does. A child of its own is there to be ended too.
VLLM = """#!{python}
import http.server, os, subprocess, sys
folder = os.environ["FAKE_FOLDER"]
open(folder + "/vllm_arguments", "a").write(" ".join(sys.argv[1:]) + "\\n")
if os.path.exists(folder + "/dead"):
    sys.exit("CUDA out of memory")
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{{"choices": [{{"message": {{"content": "Yes"}}}}]}}')
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if os.path.exists(folder + "/ready"):
            return self.do_GET()
        open(folder + "/refused", "a").write("x")
        self.send_error(503)
    def log_message(self, *_):
        pass
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer.daemon_threads = True
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
open(folder + "/server_pid", "w").write(str(os.getpid()))
server.serve_forever()
"""
# In place of python for the stage: writes its arguments down, and waits to be stopped or ends with
# FAKE_CODE.
PYTHON = """#!/usr/bin/env bash
case " $* " in
  *" motif_jax.launch "*) ;;
  *) exec {python} "$@" ;;
esac
trap 'echo saved > "$FAKE_FOLDER/saved"; exit 75' USR1 TERM
printf '%s\\n' "$@" > "$FAKE_FOLDER/arguments.tmp"
mv "$FAKE_FOLDER/arguments.tmp" "$FAKE_FOLDER/arguments"
while [ "$FAKE_CODE" = wait ]; do sleep 0.05; done
exit "$FAKE_CODE"
"""
WITH_PYTHON = {"vllm": VLLM, "fake_python": PYTHON}
NO_GPU = "#!/bin/sh\nexit 127\n"
HOST = "#!/bin/sh\necho 127.0.0.1\n"
OTHERS = {"srun": SRUN, "scontrol": SCONTROL, "nvidia-smi": NO_GPU, "hostname": HOST}
_SLURM = re.compile("^(SLURM|SBATCH)_")


class Run:
    """A folder with the pretended programs, and scripts that run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.programs = list[Program]()
        programs = {name: text.format(python=sys.executable) for name, text in WITH_PYTHON.items()}
        for name, text in (programs | OTHERS).items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def start(self, script: str, *arguments: str, **environment: str) -> Program:
        """Starts launch/`script`; a .sbatch file as Slurm's batch shell does."""
        slurm = {"SLURM_JOB_ID": "31", "SLURM_SUBMIT_DIR": str(REPOSITORY)}
        variables = {
            **{name: value for name, value in os.environ.items() if not _SLURM.match(name)},
            **(slurm if script.endswith(".sbatch") else {}),
            "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHON": str(self.folder / "fake_python"),
            "VLLM": str(self.folder / "vllm"),
            "FAKE_FOLDER": str(self.folder),
            "FAKE_CODE": "wait",
            "PORT": str(self.port),
            "WORKDIR": str(self.folder / "run"),
            "LLM_POLL_SECONDS": "0.1",
            "LLM_CHECK_SECONDS": "1",
            # A server that is well is not taken for one that hangs on a busy machine.
            "LLM_ANSWER_SECONDS": "60",
            **environment,
        }
        # Tests that run in the background are started with SIGINT ignored, and a shell cannot undo
        # that.
        clean = ["env", "--default-signal=INT", "-u", "CUDA_VISIBLE_DEVICES"]
        log = self.folder / f"log_{len(self.programs)}"
        program = Program([*clean, "bash", f"launch/{script}", *arguments], log, variables)
        self.programs.append(program)
        return program

    def touch(self, name: str) -> None:
        (self.folder / name).touch()

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def lines(self, name: str) -> list[str]:
        """The lines of a file that they wrote, none where they did not."""
        return (self.folder / name).read_text().splitlines() if self.has(name) else []

    def wait_for_stage(self) -> None:
        wait_until(lambda: self.has("arguments"), "the stage's start")

    def nothing_is_left(self) -> None:
        wait_until(
            lambda: not processes_with("FAKE_FOLDER", str(self.folder)), "the end of all processes"
        )


@contextlib.contextmanager
def pretended(folder: Path) -> Iterator[Run]:
    """One of which nothing is left in the end."""
    run = Run(folder)
    with ended(run.programs):
        yield run
    for pid in processes_with("FAKE_FOLDER", str(folder)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
