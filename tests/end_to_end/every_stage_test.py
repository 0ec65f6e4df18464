"""Every stage once, by the flags of a command line: it ends with 0, and its files hold what they
should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from motif_jax import stages
from tests.commands import Commands, commands
from tests.end_to_end import stage_files
from tests.force.outcomes import rows_of
from tests.force.scenarios import OF_TORCH, SCENARIOS, Inputs
from tests.processes import REPOSITORY
from tests.reward_fixtures import environment, load_config

# What most stages import. Each command runs in a fork of one process that has imported it.
IMPORTED = ("jax", "flax.linen", "optax", "orbax.checkpoint", "nle", "pyarrow.parquet", "gymnasium")
# Scenarios of chaos.py alone: of stages that another one starts.
# Trainings that other tests of the default set run through the same commands, and kill; and stages
# whose own tests run them from their check to their last file.
LONG = {
    "annotate",
    "collect",
    "evaluate",
    "evaluate_text",
    "explain_reward",
    "pretrain_language_model",
    "train_reward",
    "train_text",
    "train_upvote",
    "train_agent",
    "train_agent_nethack",
    "train_language_agent",
    "clone_behaviour",
    "oni",
    "oni_serial",
}
REPEATED = {"study", "report", "train_text_visdial", "train_agent_processes"}
_SMALL_BENCHMARK = [
    "--config.repeats=1", *(f"--config.options.{key}" for key in ("workers=1", "envs_per_worker=4", "rollout=8", "steps=40")),
]  # fmt: skip
# Besides the scenarios of chaos.py: a config, its flags, and a file that it leaves or a word that
# it prints.
OTHERS: dict[str, tuple[str, Callable[[Inputs], Sequence[str]], str]] = {
    "export_text_agent": ("export.py:text_agent", lambda at: [f"--config.agent={at.text_agent}"], "config.json"),
    "export_language_agent": (
        "export.py:language_agent", lambda at: [f"--config.agent={at.language_agent}"], "config.json",
    ),
    "benchmark": ("benchmark.py:actors", lambda at: _SMALL_BENCHMARK, "steps_per_second_by_the_clock"),
    "report": (
        "report.py:smoke",
        lambda at: [
            f"--config.dataset_dir={at.dataset}", f"--config.reward.dir={at.reward}", f"--config.evaluations={at.evaluations[0]}",
            f"--config.yardsticks={at.evaluations[1]}",
        ],
        "report.html",
    ),
    "study": (
        "study.py",
        lambda at: [f"--config.runs=a={at.evaluations[0]}; b={at.evaluations[1]}"],
        "study.html",
    ),
    "docs/studies/results": ("docs/studies/results.py:diagnosis", lambda at: ["--config.resamples=50"], "study.md"),
}  # fmt: skip
_EACH_UPDATE = ("--config.log_every_seconds=1e-6",)
MORE_FLAGS = {
    **dict.fromkeys(("train_agent", "oni_serial", "train_language_agent"), _EACH_UPDATE),
    "evaluate": ("--config.record_every=3",),
    "train_agent_nethack": ("--config.profile.start=2", "--config.profile.steps=3"),
    "visualize": ("--config.forms.gif=True", "--config.forms.stop=10"),
}


NAMES = [name for name in SCENARIOS if name not in REPEATED]


@pytest.fixture(scope="module")
def started() -> Iterator[Commands]:
    with commands(REPOSITORY, *IMPORTED, **environment()) as shell:
        yield shell


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, started: Commands) -> Inputs:
    def run(stage: str, workdir: Path, *flags: str) -> None:
        launch(started, f"{stage}.py:smoke", workdir, *flags)

    return Inputs(tmp_path_factory.mktemp("inputs") / "all", run)


def launch(started: Commands, config: str, workdir: Path, *flags: str, typed: str = "") -> str:
    path = config if "/" in config else f"configs/{config}"
    line = (f"--config={path}", f"--workdir={workdir}", *flags)
    done = started.launch(REPOSITORY, *line, typed=typed)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def trained_on_nethack(workdir: Path) -> None:
    names = (
        "return length score dlvl gold xlvl scout turns success end intrinsic_return seed env step"
    )
    episodes = rows_of(workdir / "episodes.jsonl")
    assert episodes, "a game ends after 100 steps"
    assert all(set(names.split()) <= set(episode) for episode in episodes)
    assert list((workdir / "profile").rglob("*.xplane.pb"))
    assert {"config.json", "versions.json", "tensorboard"} <= {
        path.name for path in workdir.iterdir()
    }


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [
        *([pytest.mark.extra] if name in LONG else []),
        *([pytest.mark.torch] if name in OF_TORCH else []),
    ]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in NAMES])
def test_a_stage_ends_and_leaves_its_files(
    name: str, started: Commands, inputs: Inputs, tmp_path: Path
) -> None:
    scenario = SCENARIOS[name]
    workdir = tmp_path / "run"
    flags = (*scenario.flags(inputs, tmp_path), *MORE_FLAGS.get(name, ()))
    launch(started, scenario.config, workdir, *flags, typed=scenario.typed)
    assert scenario.compared.of(workdir, tmp_path)
    if name in stage_files.FILES:
        stage_files.check_stage(name, tmp_path)
    if name == "train_agent_nethack":
        trained_on_nethack(workdir)


@pytest.mark.parametrize("name", OTHERS)
def test_a_stage_without_a_scenario_ends_and_leaves_its_file(
    name: str, started: Commands, inputs: Inputs, tmp_path: Path
) -> None:
    config, flags, left = OTHERS[name]
    printed = launch(started, config, tmp_path, *flags(inputs))
    assert left in printed or (tmp_path / left).is_file()
    if name in stage_files.FILES:
        stage_files.check_stage(name, tmp_path)


def test_every_stage_has_a_list_of_its_files() -> None:
    # What these leave hangs on the times of their processes.
    timed = {"oni", "train_agent_nethack", "benchmark"}
    started = {name for name in SCENARIOS if name not in REPEATED}
    assert stage_files.FILES.keys() == (started | OTHERS.keys()) - timed


def test_every_stage_is_started() -> None:
    configs = [scenario.config for name, scenario in SCENARIOS.items() if name not in REPEATED]
    configs += [config for config, _, _ in OTHERS.values()]
    files = {config.partition(".py")[0] for config in configs}
    assert {load_config(file, None).stage for file in files} == set(stages.names())
    # What chaos.py need not kill writes nothing or replaces a folder as a whole, or is the stage of
    # another scenario.
    exports = {"export_text_agent", "export_language_agent"}
    assert set(OTHERS) - SCENARIOS.keys() == {"benchmark", "docs/studies/results", *exports}
