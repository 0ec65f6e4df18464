"""The commands of tutorials, as they stand on their pages, on tiny files: only sizes are added."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.metrics import read_metrics
from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.play.evaluation_files import read_evaluation
from tests.commands import commands
from tests.lm import models, real_model, talkers
from tests.reward_fixtures import environment

pytestmark = pytest.mark.extra

BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Stage config -> flags that make it small.
TINY = {
    "train_text": "--config.network.width=16 --config.network.layers=1 --config.network.heads=2 --config.network.max_length=96 "
    "--config.max_steps=4 --config.evaluate_every=2 --config.batch_size=4 --config.chunk_steps=2 --config.evaluation_batches=1 "
    '--config.held_out.share=0.2 --config.options={"vocab_size":300}',
    "evaluate_text": "",
    "train_language_agent": "--config.train_for_env_steps=64 --config.rollout=16 --config.batch_size=64 --config.actors.workers=1 "
    "--config.actors.envs_per_worker=4 --config.algorithm.epochs=1 --config.algorithm.minibatch_size=32 "
    "--config.algorithm.microbatch_size=32 --config.network.head_widths=(16,) --config.network.prompt_tokens=512 "
    "--config.environment.max_episode_steps=20",
    "evaluate": "--config.episodes=2 --config.workers=1",
    # After 64 steps it would be right by chance alone.
    "probe_language_agent": "--config.checkpoint=latest --config.must_be_right=False",
    "export": "",
    "collect": "--config.num_pairs=60 --config.environment.max_episode_steps=60 --config.workers=1",
    "annotate": "",
    "train_reward": "--config.batch_size=8 --config.epochs=1",
    "explain_reward": "",
    "report": "--config.plots=False",
    "train_agent": "--config.train_for_env_steps=256 --config.batch_size=128 --config.rollout=16 --config.actors.workers=1 "
    "--config.actors.envs_per_worker=4 --config.environment.max_episode_steps=20",
    "study": "--config.resamples=20 --config.claims=",
}


def run_page(
    page: Path, folder: Path, repository: Path, begin: str = "", **environment: str
) -> str:
    """Runs every command and every Python block of a page behind `begin` in `folder`; returns what
    the Python blocks print.
    """
    printed = ""
    with commands(repository, **environment) as shell:
        for language, block in BLOCK.findall(
            page.read_text(encoding="utf-8").partition(begin or "#")[2]
        ):
            if language == "python":
                line = [sys.executable, "-c", block]
                done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                printed += done.stdout
                continue
            for line in block.replace("\\\n", " ").splitlines():
                words = [word for word in shlex.split(line) if not word.startswith("PYTHONPATH=")]
                if words[:3] != ["python", "-m", "motif_jax.launch"]:
                    continue
                stage = Path(words[3].split(":")[0]).stem
                words[3] = words[3].replace("configs/", f"{repository}/configs/")
                output = shell.launch(folder, *words[3:], *TINY[stage].split())
                assert output.returncode == 0, f"{line}\n{output.stdout}\n{output.stderr}"
    return printed


def test_ilql_on_ones_own_dialogues(tmp_path, repository, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(repository))
    answers = {"i will look at once": 1.0, "no": -1.0}
    asked = {"role": "user", "content": "my parcel is late"}
    rows = [
        {"messages": [asked, {"role": "assistant", "content": text}], "reward": reward}
        for text, reward in answers.items()
    ]
    (tmp_path / "dialogues.jsonl").write_text("\n".join(map(json.dumps, rows * 20)))
    models.write(tmp_path / "MODEL", "gpt2")
    (tmp_path / "MODEL" / "tokenizer.json").write_text(models.tokenizer())
    printed = run_page(repository / "docs/tutorials/my_dialogues.md", tmp_path, repository)
    assert all(text in printed for text in answers)
    evaluation = json.loads((tmp_path / "runs/my_evaluation/evaluation.json").read_text())
    assert evaluation["ranking"]["pairs"] > 0


def test_ones_own_t5_in_babyai(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**environment(), "PYTHONPATH": str(repository)}.items():
        monkeypatch.setenv(name, value)
    talkers.write(tmp_path / "my_t5")
    printed = run_page(repository / "docs/tutorials/my_t5.md", tmp_path, repository)
    assert printed.split("[")[0].strip() in ACTIONS
    for name in ("my_before", "my_after"):
        assert (
            json.loads((tmp_path / "runs" / name / "evaluation.json").read_text())["episodes"] == 2
        )
    assert (tmp_path / "runs/my_export/model/model.safetensors").exists()


def test_steering(tmp_path: Path, repository: Path) -> None:
    run_page(repository / "docs/tutorials/steer.md", tmp_path, repository, "## Step by step")
    assert (tmp_path / "runs/comparison/study.html").is_file()


def test_ones_own_environment(tmp_path: Path, repository: Path) -> None:
    page = repository / "docs/tutorials/my_environment.md"
    examples = repository / "docs/examples"
    code = [line for line in (examples / "mine.py").read_text().splitlines() if line.strip()]
    assert len(code) < 40
    (tmp_path / "docs").symlink_to(repository / "docs")
    paths = {"PYTHONPATH": f"{examples}:{repository}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    run_page(page, tmp_path, repository, **{**environment(), **paths})
    runs = tmp_path / "runs/mine"
    messages = np.asarray(PairsDataset.open(runs / "data").data["message"]).reshape(-1, 256)
    texts = {bytes(row).rstrip(b"\0") for row in messages}
    assert {b"You bump into rock.", b"The gate is shut.", b""} <= texts
    last = list(read_metrics(runs / "agent"))[-1]
    assert last["episode/captions_cut"] == 0
    assert "episode/intrinsic_return" in last
    evaluation = read_evaluation(runs / "evaluation_agent")
    assert {"success", "intrinsic_return", "captions_cut"} <= set(evaluation["measures"])
    assert "episodes of control" in (runs / "report/report.md").read_text()


def test_crafter_from_games_to_a_report(tmp_path: Path, repository: Path) -> None:
    pytest.importorskip(
        "crafter", reason="the package crafter is not there: pip install 'motif-jax[crafter]'"
    )

    run_page(repository / "docs/tutorials/crafter.md", tmp_path, repository, **environment())

    runs = tmp_path / "runs/crafter"
    assert (runs / "likes/explain.html").is_file()
    assert "Crafter-v1" in (runs / "report/report.md").read_text()
    # Two short games may well have reached nothing, and the report leaves out what never happened.
    assert {"achievements", "collect_wood"} <= set(read_evaluation(runs / "games")["measures"])


def test_a_real_model_judges_on_a_laptop(tmp_path: Path, repository: Path) -> None:
    pytest.importorskip(
        "gguf", reason="the package gguf is not there: pip install 'motif-jax[gguf]'"
    )
    if not real_model.FILE.is_file():
        real_model.download(real_model.FILE)
    (tmp_path / "runs/laptop").mkdir(parents=True)
    (tmp_path / "runs/laptop/judge.gguf").symlink_to(real_model.FILE)

    run_page(
        repository / "docs/tutorials/judge_on_a_laptop.md", tmp_path, repository, **environment()
    )

    runs = tmp_path / "runs/laptop"
    probe = json.loads((runs / "probe/probe.json").read_text())
    assert probe["answers"] == 60
    assert (runs / "likes/explain.html").is_file()
    assert "episodes of control" in (runs / "report/report.md").read_text()


@pytest.mark.parametrize("name", ["my_environment", "judge_on_a_laptop"])
def test_a_notebook_is_its_page(name: str, repository: Path) -> None:
    page = repository / f"docs/tutorials/{name}.md"
    notebook = runpy.run_path(str(page.with_name("notebook.py")))["notebook"]

    written = page.with_suffix(".ipynb").read_text(encoding="utf-8")

    assert written == notebook(page.read_text(encoding="utf-8")), (
        "python docs/tutorials/notebook.py"
    )
