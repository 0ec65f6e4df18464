"""A language model as an agent through the real flags: trained, killed, continued, asked and
evaluated.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import EXIT_CODE
from motif_jax.glam import probe_language_agent
from motif_jax.play import agent_policy
from tests.force.outcomes import rows_of
from tests.lm import talkers
from tests.processes import Program, checkpoint_steps, ended, launch, wait_until
from tests.reward_fixtures import command, environment, load_config, run_stage

# A training that is asked to stop while it plays or learns, once it has two checkpoints, and waits
# for nothing then.
IMPATIENT = """
import os, pathlib, signal
from motif_jax import launch
from motif_jax.core.interruption import Patience
from tests.processes import checkpoint_steps

is_asked = False
check = Patience.check

def check_and_ask(patience):
    global is_asked
    if not is_asked and len(checkpoint_steps(pathlib.Path(os.environ["AGENT"]))) > 1:
        is_asked = True
        os.kill(os.getpid(), signal.SIGTERM)
    check(patience)

Patience.SECONDS = -1.0
Patience.check = check_and_ask
launch.main()
"""


def test_a_language_agent_is_trained_through_a_kill_and_plays(tmp_path: Path) -> None:
    model = talkers.write(tmp_path / "model")
    agent = tmp_path / "agent"

    def start(steps: int) -> Program:
        flags = f"network.model={model} network.prompt_tokens=160 save_every_seconds=0.01 train_for_env_steps={steps}"
        arguments = [f"--config.{flag}" for flag in flags.split()]
        log = tmp_path / "log"
        cache = str(tmp_path / "cache")
        return launch(
            agent, "train_language_agent.py:smoke", *arguments, log=log, XDG_CACHE_HOME=cache
        )

    program = start(1_000_000)
    with ended([program]):

        def ended_or_saved() -> bool:
            return program.process.poll() is not None or len(checkpoint_steps(agent)) > 1

        wait_until(ended_or_saved, "two checkpoints")
        program.send(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL, program.text()[-2000:]
    saved = checkpoint_steps(agent)[-1]
    program = start(saved + 100)
    with ended([program]):
        assert program.wait() == 0, program.text()[-2000:]
    rows = rows_of(agent / "metrics.jsonl")
    assert rows[-1]["step"] >= saved + 100
    assert {"loss/policy", "loss/value", "policy/ratio_max", "episode/success"} <= set(rows[-1])
    # Playing and learning take turns: what is learned from was played by the policy that learns.
    assert rows[-1]["lag/max"] == 0
    # Before every update the policy was asked what it would do, and each has a row of the published
    # log.
    updates = int(rows[-1]["time/updates"])
    probes = rows_of(agent / "probes.jsonl")
    assert [line["update"] for line in probes] == list(range(updates))
    assert len((agent / "distrib.csv").read_text().splitlines()) == updates
    assert len((agent / "log.csv").read_text().splitlines()) == 1 + updates

    probe_folder = run_stage(
        "probe_language_agent", tmp_path / "probes", "", policy=str(agent), checkpoint="latest"
    )
    # What was asked of a checkpoint that is there no more stays, and the new one is asked.
    for name in ("probes.jsonl", "clauses.jsonl"):
        (row,) = (probe_folder / name).read_text().splitlines()
        (probe_folder / name).write_text(json.dumps({**json.loads(row), "step": 1}) + "\n")
    config = load_config("probe_language_agent", "")
    config.update({"policy": str(agent), "checkpoint": "latest"})
    assert probe_language_agent.run(config, probe_folder) == 0
    asked = [row["step"] for row in rows_of(probe_folder / "probes.jsonl")]
    assert asked[0] == 1 < asked[1]
    # An agent that is trained again in its folder has checkpoints of the same steps.
    plan = json.loads((probe_folder / "plan.json").read_text())
    (probe_folder / "plan.json").write_text(json.dumps(dict.fromkeys(plan, "another")))
    with pytest.raises(UserError, match=f"checkpoint {asked[1]} is another than when it was asked"):
        probe_language_agent.run(config, probe_folder)

    run_stage("evaluate", tmp_path / "evaluation", "", policy=str(agent), episodes=3)
    evaluation = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())
    assert evaluation["episodes"] == 3

    # The agent before its training is made of the model's folder, that of a checkpoint is not.
    agent_policy.load(agent, "0")
    talkers.write(model, seed=1)
    agent_policy.load(agent)
    with pytest.raises(UserError, match="was trained with a different model than"):
        agent_policy.load(agent, "0")


@pytest.mark.extra
def test_an_immediate_stop_leaves_a_run_that_continues(tmp_path: Path) -> None:
    model = talkers.write(tmp_path / "model")
    agent = tmp_path / "agent"
    log = tmp_path / "log"

    def start(code: str, steps: int) -> Program:
        flags = (
            f"--config.network.model={model}",
            "--config.network.prompt_tokens=160",
            "--config.save_every_seconds=0.01",
            f"--config.train_for_env_steps={steps}",
        )
        _, _, _, *arguments = command("train_language_agent", agent, *flags, variant="smoke")
        return Program(
            [sys.executable, "-c", code, *arguments], log, {**environment(), "AGENT": str(agent)}
        )

    program = start(IMPATIENT, 1_000_000)
    with ended([program]):
        assert program.wait() == EXIT_CODE, program.text()[-2000:]
    saved = checkpoint_steps(agent)[-1]
    assert f"unsaved: the run continues from its checkpoint of {saved:,} steps" in program.text()

    program = start("from motif_jax import launch; launch.main()", saved + 100)
    with ended([program]):
        assert program.wait() == 0, program.text()[-2000:]
