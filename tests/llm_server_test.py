"""launch/llm_server.sh: the command that it becomes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.processes import REPOSITORY

SAYS_ITS_COMMAND = '#!/bin/sh\necho "$0" "$@"\n'


def write_program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SAYS_ITS_COMMAND)
    path.chmod(0o755)
    return path


def command_of(folder: Path, *arguments: str, **environment: str) -> str:
    """The command of the script in a clone in `folder`, in one line."""
    script = folder / "launch" / "llm_server.sh"
    script.parent.mkdir(exist_ok=True)
    for name in ("llm_server.sh", "environment.sh"):
        shutil.copy(REPOSITORY / "launch" / name, script.parent)
    variables = {name: value for name, value in os.environ.items() if name != "VLLM"} | environment
    done = subprocess.run(
        ["bash", str(script), *arguments], env=variables, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_cpu_build_is_started_by_its_module(tmp_path: Path) -> None:
    python = write_program(tmp_path / ".venv-vllm/bin/python")

    command = command_of(tmp_path, "models/Judge", "0", "8123")

    assert command.startswith(
        f"{python} -m vllm.entrypoints.openai.api_server --model models/Judge "
    )
    assert "--served-model-name Judge" in command
    assert "--kv-cache-memory-bytes 1G" in command


def test_a_command_of_ones_own_serves(tmp_path: Path) -> None:
    write_program(tmp_path / ".venv-vllm/bin/python")
    program = write_program(tmp_path / "vllm")

    command = command_of(tmp_path, "models/Judge", "2", VLLM=str(program))

    assert command.startswith(f"{program} serve models/Judge ")
    assert "--tensor-parallel-size 2" in command
    assert "--dtype" not in command


def test_flags_of_the_caller_come_last(tmp_path: Path) -> None:
    program = write_program(tmp_path / "vllm")

    command = command_of(
        tmp_path, "Judge", "0", "8000", "--max-model-len", "512", VLLM=str(program)
    )

    assert command.endswith("--max-model-len 512\n")
