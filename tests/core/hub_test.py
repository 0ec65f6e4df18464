"""Rewards and agents of a Hugging Face hub, which is a server on this machine: what it asks and
answers, and no network.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from huggingface_hub import constants

from motif_jax import agents, rewards, running
from motif_jax.core import run_folder
from motif_jax.play import evaluation_setup
from tests.reward_fixtures import load_config

EXAMPLE = Path(__file__).parents[2] / "docs/examples/doorkey"


class Hub(BaseHTTPRequestHandler):
    """What of the hub's interface fetches and uploads repositories of small files."""

    # OWNER/NAME -> commits, oldest first: path -> content.
    repositories: dict[str, list[dict[str, bytes]]]
    fetched: list[str]

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, data: Any, code: int = 200, **headers: str) -> None:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        match = re.fullmatch(
            r"/(?:api/models/)?(\w+/\w+)/(revision|tree|resolve)/(\w+)(?:/(.*))?", path
        )
        if match is None or match.group(1) not in self.repositories:
            return self._answer({}, 404, X_Error_Code="RepoNotFound")
        name, request, revision, file = match.groups()
        commits = self.repositories[name]
        if revision == "main":
            number = len(commits) - 1
        elif len(revision) == 40:
            number = int(revision, 16)
        else:
            return self._answer({}, 404, X_Error_Code="RevisionNotFound")
        sha = f"{number:040x}"
        files = commits[number]
        if request == "revision":
            return self._answer({"id": name, "sha": sha, "siblings": []})
        if request == "tree":
            rows = [(file, data, hashlib.sha1(data).hexdigest()) for file, data in files.items()]
            return self._answer(
                [{"type": "file", "path": f, "size": len(d), "oid": o} for f, d, o in rows]
            )
        self.fetched.append(file)
        return self._answer(
            files[file], ETag=f'"{hashlib.sha1(files[file]).hexdigest()}"', X_Repo_Commit=sha
        )

    do_HEAD = do_GET


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    handler = type("OneHub", (Hub,), {"repositories": {}, "fetched": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    # as HF_ENDPOINT gives it to a program that starts
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    files = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    Thread(target=server.serve_forever, daemon=True).start()
    yield handler
    server.shutdown()
    server.server_close()


def files_of(folder: Path, *names: str) -> dict[str, bytes]:
    paths = [path for name in names for path in (folder / name, *(folder / name).rglob("*"))]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}


@pytest.mark.slow
def test_an_agent_is_loaded_with_its_reward(served: type[Hub], tmp_path: Path, monkeypatch) -> None:
    served.repositories["me/agent"] = [
        {**files_of(EXAMPLE, ""), "run.py": b"raise SystemExit('others')"}
    ]
    monkeypatch.chdir(tmp_path)  # where nothing of the training lies
    agent = agents.load("hf://me/agent")
    assert agent.checkpoint == max(int(path.name) for path in (EXAMPLE / "checkpoints").iterdir())
    lineup = evaluation_setup.open_setup(evaluation_setup.of_folder(agent.folder))
    assert lineup.reward is not None
    assert Path(str(lineup.reward.section.dir)) == agent.folder / "reward.safetensors"
    assert "run.py" not in served.fetched
    # A file of the repository; without checkpoints beside it, it stands for the repository.
    served.repositories["me/reward"] = [files_of(EXAMPLE, "reward.safetensors")]
    both = [rewards.load(name) for name in ("hf://me/reward", "hf://me/agent/reward.safetensors")]
    assert both[0]("You open the red door.") == both[1]("You open the red door.") != 0


def test_a_resumed_run_keeps_the_commit_that_was_resolved(
    served: type[Hub], tmp_path: Path
) -> None:
    data = files_of(EXAMPLE, "reward.safetensors")
    served.repositories["me/reward"] = [data, {**data, "config.json": b"{}"}]
    workdir = tmp_path / "run"

    def resolved(name: str) -> str:
        config = load_config("explain_reward", "", {"reward.dir": name, "text": "no hf:// here"})
        running.localise(config, workdir)
        assert config.text == "no hf:// here"
        return config.reward.dir

    newest = resolved("hf://me/reward")
    assert newest.endswith(f"models--me--reward/snapshots/{1:040x}/reward.safetensors")
    assert resolved(f"hf://me/reward@{0:040x}").endswith(f"{0:040x}/reward.safetensors")
    workdir.mkdir()
    (workdir / "config.json").write_text(json.dumps({"reward": {"dir": newest}}))
    served.repositories["me/reward"].append(data)
    assert resolved("hf://me/reward") == newest
    assert resolved("hf://me/reward@main") != newest


def test_a_run_continues_after_the_hub_cache_has_moved() -> None:
    inside = f"models--me--reward/snapshots/{'0' * 40}/reward.safetensors"
    old, moved = ({"dir": f"/{cache}/{inside}"} for cache in ("home/cache", "scratch"))
    other = {"dir": moved["dir"].replace("0" * 40, "1" * 40)}
    assert not run_folder.differences(old, moved, ["dir"])
    assert run_folder.differences(old, other, ["dir"])
    assert run_folder.differences({"dir": "/home/reward"}, {"dir": "/scratch/reward"}, ["dir"])
