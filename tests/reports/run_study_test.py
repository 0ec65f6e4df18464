"""A study whose programs are a script that leaves the files of a finished training or
evaluation.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json_lines
from motif_jax.core.interruption import Interruption
from motif_jax.play import evaluation_files
from motif_jax.reports import run_study as study
from motif_jax.reports import study_config as studies
from motif_jax.reports.study_config import StudyConfig
from motif_jax.schema import read_section
from tests.made_up_runs import evaluation_rows, write_agent_run, write_evaluation
from tests.reward_fixtures import load_config
from tests.sets import extra

# Stands in for Python. Refuses an unknown key; takes flags alone; notes each start; copies the
# files of a finished training or evaluation. A run whose name stands in the file `wait` asks the
# study to stop, and waits to be ended.
SCRIPT = """#!/bin/sh
case "$*" in
  *--config.rewrad*--print_config) echo "error: --config.rewrad is not a key" >&2; exit 2 ;;
  *--print_config) exit 0 ;;
esac
for word in "$@"; do
  case "$word" in --workdir=*) folder="${word#--workdir=}" ;; -*|motif_jax.launch) ;; *) exit 4 ;; esac
done
name=$(basename "$folder")
echo "$name" >> "$TOYS/started"
echo "$MOTIF_JAX_TRUST" > "$TOYS/trusted"
if [ -e "$TOYS/wait" ] && [ "$(cat "$TOYS/wait")" = "$name" ]; then
  trap 'exit 75' TERM
  kill -TERM $PPID
  while :; do sleep 0.05; done
fi
[ ! -e "$TOYS/fail" ] || exit 3
mkdir -p "$folder"
case "$name" in games) cp "$TOYS/games/"* "$folder" ;; *) cp "$TOYS/run/"* "$folder" ;; esac
"""


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the script that stands in for Python in what a study starts."""
    folder = tmp_path / "toys"
    write_agent_run(folder / "run", episodes=2)
    write_evaluation(folder / "games", "agent", evaluation_rows(5, 0.0, 1))
    program = folder / "program"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("TOYS", str(folder))
    return folder


def started(toys: Path) -> list[str]:
    """The names of the folders whose commands were started since the last call."""
    path = toys / "started"
    path.touch()
    names = path.read_text().split()
    path.unlink()
    return names


def small(**changes: object) -> ConfigDict:
    """A study of two methods with two seeds; the second method needs three prepared folders."""
    dataset = "--config.dataset_dir={workdir}/dataset"
    config = studies.study(
        {
            "seeds": 2,
            "prepare": {
                "dataset": "configs/collect.py:quickstart",
                "labels": f"configs/annotate.py:quickstart {dataset}",
                "reward": f"configs/train_reward.py:quickstart {dataset}",
            },
            "training": "configs/oni.py:smoke",
            "methods": {"none": "", "motif": "--config.reward.dir={workdir}/reward"},
            "tables": {"kinds": "none,motif"},
            "evaluation": "configs/evaluate.py:smoke --config.policy=agent --config.reward.dir=",
            "measures": "judged,score",
            "resamples": 20,
        }
    )()
    for key, value in changes.items():
        config[key] = value
    return config


def read_study(config: ConfigDict) -> StudyConfig:
    return read_section(StudyConfig, config)


@pytest.mark.slow
def test_runs_are_made_seed_by_seed(toys: Path, tmp_path: Path, capsys) -> None:
    study.check(small(), tmp_path / "a study")

    code = study.run(small(), tmp_path / "a study")

    assert code is None
    # What a method needs is prepared before its first run, once.
    assert started(toys) == [
        "none-1", "games", "dataset", "labels", "reward", "motif-1", "games", "none-2", "games", "motif-2", "games",
    ]  # fmt: skip
    assert capsys.readouterr().err.startswith(
        "== run 1 of 4: none-1\n== run 2 of 4: motif-1, about 0.0 h left\n== run 3 of 4: none-2, "
    )


@pytest.mark.slow
def test_games_trust_the_code_that_the_training_names(
    toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")
    words = "--config.environment.modules=mine,moles --config.environment.text=tales:Teller"
    config = small(seeds=1, training=f"{small().training} {words}")

    study.run(config, tmp_path / "study")

    assert started(toys)[-1] == "games"
    assert {"mine", "moles", "tales:Teller"} <= set(
        (toys / "trusted").read_text().strip().split(",")
    )


@pytest.mark.slow
def test_a_run_leaves_a_line_and_a_table_row(toys: Path, tmp_path: Path, capsys) -> None:
    study.run(small(), tmp_path)

    rows = lines(tmp_path)
    printed = capsys.readouterr().out
    assert [f"{row['method']}-{row['seed']}" for row in rows] == [
        "none-1",
        "motif-1",
        "none-2",
        "motif-2",
    ]
    # The prepared commands that a method needs are a part of what its run is.
    assert [row["flags"].count(" | ") for row in rows] == [1, 4, 1, 4]
    assert "| motif | 2 |" in printed
    text, _, page = printed.rstrip("\n").rpartition("\n")
    assert (tmp_path / "study.md").read_text() == text
    assert page == f"study: {tmp_path / 'study.html'}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [extra(None), extra(""), '{"seed": 1}\n'],
    ids=["all lines", "no line", "a line without games"],
)
def test_what_is_finished_is_not_run_again(toys: Path, tmp_path: Path, text: str | None) -> None:
    """A kill before the line leaves all that makes it."""
    study.run(small(), tmp_path)
    rows = lines(tmp_path)
    started(toys)
    if text is not None:
        (tmp_path / "rows.jsonl").write_text(text)

    code = study.run(small(), tmp_path)

    assert code is None
    assert started(toys) == []
    assert lines(tmp_path)[-4:] == rows


@pytest.mark.slow
def test_braces_of_json_in_flags_are_no_folders(toys: Path, tmp_path: Path) -> None:
    training = 'configs/oni.py:smoke --config.options={"length":4}'

    code = study.run(small(training=training, tables={"t": "none"}), tmp_path)

    assert code is None
    assert started(toys) == ["none-1", "games", "none-2", "games"]


def lines(workdir: Path) -> list[dict[str, Any]]:
    return list(read_json_lines(workdir / "rows.jsonl"))


@pytest.mark.slow
def test_games_of_a_shorter_training_do_not_count_for_longer(toys: Path, tmp_path: Path) -> None:
    """The agent's folder trains on, and the command of its games stays the same."""
    config = small(tables={"t": "none"}, seeds=1)
    study.run(config, tmp_path)
    started(toys)
    longer = small(
        tables={"t": "none"},
        seeds=1,
        training=f"{config.training} --config.train_for_env_steps=999",
    )

    with pytest.raises(
        UserError, match=r"none-1/games was made when a command before it was another one"
    ):
        study.run(longer, tmp_path)

    assert started(toys) == []
    assert len(lines(tmp_path)) == 1


class Program:
    """A child that saves for a while after its first signal, and would be ended by a second one."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self.looks = 0

    def poll(self) -> int | None:
        self.looks += 1
        if self.looks == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return 75 if self.looks > 5 else None

    def terminate(self) -> None:
        signals.append(self.looks)

    def wait(self) -> None:
        self.looks = 6


signals: list[int] = []


def test_a_program_is_asked_to_stop_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study.subprocess, "Popen", Program)
    signals.clear()

    with Interruption() as stop:
        is_done = study.run_step(study.StudyCommand(tmp_path, ("train",), ("train",)), stop)

    assert not is_done
    assert len(signals) == 1


@pytest.mark.slow
def test_a_stopped_study_ends_its_program_and_can_continue(toys: Path, tmp_path: Path) -> None:
    config = small(tables={"t": "none"})
    (toys / "wait").write_text("games")

    code = study.run(config, tmp_path)
    started_before = started(toys)
    (toys / "wait").unlink()
    code_after = study.run(config, tmp_path)

    assert (code, code_after) == (75, None)
    assert started_before == ["none-1", "games"]
    assert started(toys) == ["games", "none-2", "games"]


def test_unknown_flags_of_any_run_are_refused_at_once(toys: Path, tmp_path: Path) -> None:
    config = small()
    config.methods.motif = "--config.rewrad=1 --config.reward.dir={workdir}/reward"

    message = r"^--config.rewrad is not a key \(of the study's --config=configs/oni.py"
    with pytest.raises(UserError, match=message):
        study.run(config, tmp_path / "study")
    assert started(toys) == []


@pytest.mark.slow
def test_games_of_a_method_have_flags_of_their_own(toys: Path, tmp_path: Path) -> None:
    games = ConfigDict({"none": "--config.policy=random"})

    study.run(small(games=games, seeds=1), tmp_path)

    flags = {row["method"]: row["flags"] for row in lines(tmp_path)}
    assert "--config.policy=random" in flags["none"]
    assert "--config.policy=random" not in flags["motif"]


@pytest.mark.slow
def test_a_claim_that_fails_ends_a_study_with_1(toys: Path, tmp_path: Path) -> None:
    claim = "motif > none + 0.1: score"
    config = small(claims=claim, seeds=1)
    study.check(config, tmp_path)

    code = study.run(config, tmp_path)

    assert code == 1
    assert f"* {claim}: **does not hold**, 0 [" in (tmp_path / "study.md").read_text()


def test_games_that_a_seed_does_not_decide_are_compared_without_pairs(
    toys: Path, tmp_path: Path
) -> None:
    for name, seeded in (("seeded", True), ("unseeded", False)):
        path = toys / "games" / evaluation_files.SUMMARY
        summary = json.loads(path.read_text())
        summary.pop("digest")
        summary["plan"][evaluation_files.SEEDED] = seeded
        rows = evaluation_files.read_rows(toys / "games" / evaluation_files.JOURNAL)
        evaluation_files.write_summary(toys / "games", summary, rows)
        config = small(claims="motif > none: score", seeds=1, prepare="")
        config.methods.motif = "--config.reward.dir=elsewhere"

        study.run(config, tmp_path / name)

        text = (tmp_path / name / "study.md").read_text()
        assert ("paired difference" in text) == seeded
        assert "interval of the " in text


@pytest.mark.slow
def test_other_claims_need_no_new_runs(toys: Path, tmp_path: Path) -> None:
    study.run(small(claims="motif > none: score", seeds=1), tmp_path)
    started(toys)

    code = study.run(small(seeds=1), tmp_path)

    assert code is None
    assert started(toys) == []


def test_games_that_name_the_run_are_not_given_an_agent(tmp_path: Path) -> None:
    config = small(evaluation="configs/evaluate_text.py:wordle --config.agent={run}", seeds=1)

    for run in study.runs(read_study(config), tmp_path):
        *_, games = run.commands.values()
        assert games[-1] == f"--config.agent={tmp_path}/{run.identity['method']}-1"


REWARD = "--config.reward.dir={workdir}/reward"


@pytest.mark.parametrize(
    ("changes", "prepared"),
    [
        ({"methods": {"motif": f"{REWARD}_b"}}, ["reward_b"]),
        ({"methods": {"motif": f"{REWARD}/checkpoint"}}, ["reward_b", "reward"]),
        ({"games": {"motif": REWARD}}, ["reward_b", "reward"]),
        ({"evaluation": f"configs/evaluate.py {REWARD},{{run}}"}, ["reward_b", "reward"]),
    ],
)
def test_folders_that_training_or_games_name_are_prepared(
    tmp_path: Path, changes: dict[str, Any], prepared: list[str]
) -> None:
    steps = "reward_b: configs/train_reward.py; reward: configs/train_reward.py"
    values = {"methods": {"motif": ""}, "tables": {"t": "motif"}, "prepare": steps, **changes}
    config = small(
        **{key: ConfigDict(v) if isinstance(v, dict) else v for key, v in values.items()}
    )

    run, _ = study.runs(read_study(config), tmp_path)

    *folders, _, _ = (folder.name for folder in run.commands)
    assert folders == prepared


def test_a_claim_about_a_method_without_a_table_is_refused(tmp_path: Path) -> None:
    config = small(claims="motif > none: score", tables=ConfigDict({"t": "motif"}))

    message = r"^config\.claims=motif > none: score: must be .* with A and B of motif "
    with pytest.raises(UserError, match=message):
        study.check(config, tmp_path)


def test_a_study_of_one_config_needs_a_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^config\.training="):
        study.check(load_config("study", ""), tmp_path)


def test_a_study_without_tables_compares_all_its_methods() -> None:
    config = studies.study(
        {"training": "configs/train_agent.py", "methods": {"a": "", "b": "--config.seed=1"}}
    )()
    assert config.tables.to_dict() == {"methods": "a,b"}
    assert config.measures == "return"


def test_a_study_without_methods_is_refused() -> None:
    with pytest.raises(UserError, match="the study's methods"):
        studies.study({"training": "configs/train_agent.py"})()


def test_lines_of_different_numbers_of_games_are_refused(tmp_path: Path) -> None:
    first, second = (run.identity for run in study.runs(read_study(small(seeds=1)), tmp_path))
    rows = [{**first, "games": {"score": [1, 2, 3]}}, {**second, "games": {"score": [1, 2]}}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    with pytest.raises(
        UserError, match=r"^config\.rows: its runs have different numbers of games: take out"
    ):
        study.check(small(seeds=1), tmp_path)
