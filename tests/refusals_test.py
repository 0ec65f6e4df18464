"""What stages refuse before their run folder is made: values that fit their keys, but not each
other, a folder or a file.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from motif_jax.core import run_folder
from motif_jax.ilql.agent.text_agent import Design
from motif_jax.rl.actors.rerecording import record_actions
from tests import recorded_outputs, stage_inputs, text_agents, texts
from tests.lm import talkers
from tests.processes import REPOSITORY
from tests.refusals import config_of, refusal, refusal_line
from tests.refused_values import ACCEPTED, REFUSED
from tests.reward_fixtures import load_config, make_dataset

# What each refusal is about: a key of the config, another flag, or a file below one of the folders
# of the test.
SUBJECT = re.compile(r"\bconfig\.\w|--[a-z]|\b(AT|OUT|REPOSITORY)\b")
# What each refusal says: what must be, or what to do.
REMEDY = re.compile(r"\b(must|needs?|give|choose|leave|name (one|a|its)|so call|did you mean)\b")


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a config's flags trust is trusted no longer than the test."""
    monkeypatch.setenv("MOTIF_JAX_TRUST", os.environ["MOTIF_JAX_TRUST"])


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refused")
    make_dataset(folder, pairs=12)
    np.save(folder / "preference" / "other.npy", np.zeros(12, np.int8))
    (folder / "list.txt").write_text("four\n")
    messages = [{"role": role, "content": "a parcel"} for role in ("user", "assistant")]
    (folder / "games.pkl").touch()
    stage_inputs.Inputs(folder / "inputs").trajectories  # noqa: B018
    (folder / "damaged").mkdir()
    (folder / "damaged" / "trajectories.parquet").write_bytes(b"PAR1")
    (folder / "silent.jsonl").write_text(json.dumps({"messages": messages[:1]}))
    (folder / "talk.jsonl").write_text(f"{json.dumps({'messages': messages, 'reward': 1})}\n" * 20)
    (folder / "latin.yaml").write_bytes(b"system: \xe9t\xe9\n")
    (folder / "asks.yaml").write_text("question: {analysis: What is it, verdict: Which}\n")
    (folder / "bare.yaml").write_text("question: {analysis: '{item}?', verdict: '{item}?'}\n")
    record_actions("Recall-v0", {}, 1, np.array([0, 1])).save(folder / "wrong" / "game.json")
    (folder / "doorkey.safetensors").symlink_to(
        REPOSITORY / "docs/examples/doorkey/reward.safetensors"
    )
    (folder / "wrong" / "other.json").write_text("{}")
    texts.write(folder / "texts")
    text_agents.write(folder / "ilql")
    talkers.write(folder / "model", "gpt2")
    talkers.write(folder / "talker")
    text_agents.write(folder / "dt", Design(q="none", prefix=True), "dt")
    run_folder.describe(folder / "agent", {"stage": "train_agent"})
    (folder / "begun" / "checkpoints").mkdir(parents=True)
    trained = load_config("train_reward").to_dict() | {"dataset_dir": "/nowhere"}
    (folder / "wrong" / "config.json").write_text(json.dumps(trained, default=list))
    return folder


def cases(listed: str, folder: Path) -> dict[str, list[str]]:
    """Flags for the launcher, by how they are listed."""
    flags_of_case = {
        case: case.replace("AT", str(folder)).split()
        for case in " ".join(listed.split()).split(" | ")
    }
    return {case: [f"--config.{flag}" for flag in flags] for case, flags in flags_of_case.items()}


class Refused(NamedTuple):
    """The refusals of a config's flags."""

    config: str
    lines: dict[str, str]  # flags, as they are listed -> the refusal


@pytest.fixture(scope="module", params=REFUSED)
def refused(
    request: pytest.FixtureRequest, inputs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Refused:
    folder = tmp_path_factory.mktemp("refused_run")
    names = {inputs: "AT", folder: "OUT", REPOSITORY: "REPOSITORY"}
    lines = {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("MOTIF_JAX_TRUST", os.environ["MOTIF_JAX_TRUST"])
        for case, flags in cases(REFUSED[request.param], inputs).items():
            lines[case] = recorded_outputs.replaced(
                refusal(request.param, folder / "new", *flags), names
            )
    return Refused(request.param, lines)


@pytest.mark.slow
def test_a_misfit_is_refused_before_the_run_folder_is_made(refused: Refused, record: bool) -> None:
    lines = []
    for case, line in refused.lines.items():
        # What this machine has left, and its cores.
        line = re.sub(r"[\d,.]+ (MiB|GB)\b", r"SIZE \1", line)
        line = re.sub(r"may use \([\d, ]+\)", "may use (CORES)", line)
        lines += [case, f"    {line}"]
    text = "\n".join(lines)
    recorded_outputs.assert_matches_recorded_section("refusals.txt", refused.config, text, record)


@pytest.mark.slow
def test_a_refusal_is_one_line(refused: Refused) -> None:
    assert [line for line in refused.lines.values() if len(line.splitlines()) != 1] == []


@pytest.mark.slow
def test_a_refusal_names_its_key_or_its_file(refused: Refused) -> None:
    assert [line for line in refused.lines.values() if not SUBJECT.search(line)] == []


@pytest.mark.slow
def test_a_refusal_says_what_must_be_or_what_to_do(refused: Refused) -> None:
    assert [line for line in refused.lines.values() if not REMEDY.search(line)] == []


@pytest.mark.slow
@pytest.mark.parametrize("config", ACCEPTED)
def test_a_value_at_its_limit_is_accepted(config: str, inputs: Path, tmp_path: Path) -> None:
    for case, flags in cases(ACCEPTED[config], inputs).items():
        assert refusal_line(config_of(config, *flags), tmp_path / "new") is None, case
