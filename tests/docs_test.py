"""Every command in the README, the docs and the config files names files, variants and keys that
exist.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import runpy
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from absl import flags

from motif_jax import benchmarks, schema, stages
from motif_jax.core.errors import UserError
from motif_jax.published.config import EXPORTS, IMPORTS
from tests import stage_inputs
from tests.command_configs import config_of
from tests.reward_fixtures import load_config

REPOSITORY = Path(__file__).parent.parent
PAGES = [
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted((REPOSITORY / "configs").glob("*.py")),
    *sorted((REPOSITORY / "docs" / "studies").glob("*.py")),
]
SCRIPTS = sorted([*(REPOSITORY / "launch").glob("*.sh"), *(REPOSITORY / "launch").glob("*.sbatch")])


@functools.cache
def keys(config: str) -> set[str]:
    """The keys of NAME:VARIANT."""
    name, _, variant = config.partition(":")
    return {path for path, _, _ in schema.items(load_config(name, variant or None))}


def keys_given(line: str) -> set[str]:
    # What stands in quotes is the value of a flag, such as the command of a study, which has flags
    # of its own.
    return set(re.findall(r"--config\.([a-z_0-9.]+)=", re.sub(r"'[^']*'", "", line)))


def commands(text: str) -> list[str]:
    """Stretches of text that belong to one launch command: up to the end of the line, cell, or
    block.
    """
    text = text.replace("\\\\\n", " ").replace("\\\n", " ")
    # The quickstart's own short form: stage STAGE.py:VARIANT FOLDER FLAGS.
    text = re.sub(
        r"(?m)^( *)stage ([a-z_]+\.py\S*)", r"\1motif_jax.launch --config=configs/\2", text
    )
    text = re.sub(r"(?m)^( *)stage (docs/\S*)", r"\1motif_jax.launch --config=\2", text)
    return re.findall(r"(?:motif_jax\.launch|`)([^`\n]*--config=(?:configs|docs)/[^`\n]*)", text)


@pytest.mark.parametrize("page", [*PAGES, *SCRIPTS], ids=lambda p: p.name)
def test_commands_name_what_exists(page: Path) -> None:
    lines = commands(page.read_text(encoding="utf-8"))
    assert page.name not in ("quickstart.sh", "quickstart_glam.sh") or len(lines) >= 6
    for command in lines:
        config = CONFIG.search(command)
        if config is None or "STAGE" in command:
            continue
        known = keys(config[1] + (config[2] or "")) | {"trust"}  # which every stage takes
        assert keys_given(command) <= known, command


CONFIG = re.compile(r"--config=(?:configs/)?([a-z_0-9/]+)\.py(:[a-z_]+)?")
TABLE = re.compile(r"^\|.*after `python -m motif_jax\.launch ([^`]*)`")


def test_table_rows_complete_the_command_of_their_header() -> None:
    tables = 0
    for page in PAGES:
        known: set[str] | None = None
        for line in page.read_text(encoding="utf-8").splitlines():
            if header := TABLE.match(line):
                config = CONFIG.search(header[1])
                assert config is not None
                known = keys(config[1] + (config[2] or ""))
                tables += 1
            elif not line.startswith("|"):
                known = None
            assert known is None or keys_given(line) <= known, f"{page.name}: {line}"
    assert tables >= 3, "they are found by how their headers are worded"


# A flag with a value that stands for itself: not N, DIR, {...} or a shell variable.
GIVEN = re.compile(r"--config\.([a-z_0-9.]+)=('[^']*'|\"[^\"]*\"|[^\s`'\",;:)|]+)")
STANDS_FOR_ANOTHER = re.compile(r"[A-Z_]+|.*[${<].*|\.\.\.")
MORE = "train_agent:symbolic train_language_agent:drrn"
CONFIGS = [
    *stage_inputs.CONFIGS,
    *MORE.split(),
    *(f"import:{kind}" for kind in IMPORTS),
    *(f"export:{kind}" for kind in EXPORTS),
    *(f"benchmark:{name}" for name in benchmarks.names()),
]


@functools.cache
def takes(config: str, flag: str) -> bool:
    """Whether `flag` parses with the config, as the entry point parses it."""
    name, _, variant = config.partition(":")
    try:
        config_of(f"{name}.py" + (f":{variant}" if variant else ""), flag)
    except (flags.Error, UserError, AttributeError, KeyError, TypeError, ValueError):
        return False
    return True


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command's flags trust is trusted no longer than the test."""
    monkeypatch.setenv("MOTIF_JAX_TRUST", os.environ["MOTIF_JAX_TRUST"])


@pytest.mark.parametrize("page", [*PAGES, *SCRIPTS], ids=lambda p: p.name)
def test_every_documented_value_parses(page: Path) -> None:
    for key, value in GIVEN.findall(page.read_text(encoding="utf-8")):
        value = value.strip("'\"").rstrip(".")
        if STANDS_FOR_ANOTHER.fullmatch(value) or key == "trust":
            continue
        having = [config for config in CONFIGS if key in keys(config)]
        assert any(takes(config, f"--config.{key}={value}") for config in having), (
            f"{page.name}: --config.{key}={value} is a flag of none of {', '.join(having) or 'the configs'}"
        )


def is_importable(module: str, name: str) -> bool:
    """Whether `from module import name` works: an attribute of the module, or a module in its
    folder.
    """
    try:
        if hasattr(importlib.import_module(module), name):
            return True
        importlib.import_module(f"{module}.{name}")
    except ImportError:
        return False
    return True


@pytest.mark.parametrize("page", [p for p in PAGES if p.suffix == ".md"], ids=lambda p: p.name)
def test_imports_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for module, names in re.findall(r"(?m)^from (motif_jax[\w.]*) import ([\w, ]+)", text):
        for name in names.split(","):
            name = name.strip().partition(" as ")[0]
            assert is_importable(module, name), f"{page.name}: from {module} import {name}"


@pytest.mark.parametrize("page", [p for p in PAGES if p.suffix == ".md"], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


# The published tool's flags by the sections of docs/from_the_published_tool.md, and the config that
# each section is about.
PUBLISHED_FLAGS = {
    "Annotation": (
        "annotate",
        """directory annotator-type prompt-version goal-key llm-size num-gpus n-annotation-chunks chunk-number
        ignore-existing custom-annotator-string use-messages use-blstats logdir batch-size num-workers flushing-freq""",
    ),
    "Reward": (
        "train_reward",
        """batch_size num_workers reward_lr num_epochs seed dataset_dir annotator experiment train_dir
        encoder_embedding_dim encoder_hidden_dim encoder_crop_dim encoder_num_layers encoder_msg_model use_crop
        use_glyphs use_blstats""",
    ),
    "Agent": (
        "train_agent",
        """algo env num_workers num_envs_per_worker batch_size reward_scale obs_scale train_for_env_steps
        save_every_steps keep_checkpoints stats_avg seed reward_dir experiment train_dir extrinsic_reward llm_reward
        reward_encoder root_env beta_count_exponent eps_threshold_quantile rollout recurrence gamma learning_rate
        ppo_epochs num_batches_per_iteration ppo_clip_ratio ppo_clip_value value_loss_coeff exploration_loss_coeff
        exploration_loss max_grad_norm adam_eps adam_beta1 adam_beta2 reward_clip with_vtrace vtrace_rho vtrace_c
        gae_lambda max_policy_lag use_rnn rnn_type rnn_num_layers hidden_size nonlinearity
        actor_critic_share_weights encoder_type encoder_subtype rew_norm checkpoint_num msg_count_bonus
        save_ttyrec_every save_dir wandb experiment_summaries_interval""",
    ),
    "ONI": (
        "oni",
        """llm_reward_type llm_reward_coeff extrinsic_reward_coeff llm_server_addr llm_model llm_batch_size prompt_version
        goal_key reward_model_batch_size reward_model_lr reward_model_gradient_steps_per_update classification_threshold
        online_dataset_subsample remove_duplicated_obs eps_threshold_quantile beta_count_exponent rew_norm reward_dir
        checkpoint_num root_env reward_scale obs_scale batch_size num_workers num_envs_per_worker train_for_env_steps seed
        save_every_steps keep_checkpoints save_every_sec stats_avg wandb wandb_entity wandb_proj train_for_seconds
        save_milestones_sec checkpoint_id pop_bl device encoder_custom encoder_extra_fc_layers policy_initialization
        policy_init_gain use_spectral_norm adaptive_stddev initial_stddev obs_subtract_mean""",
    ),
    "Watching": ("visualize", "train_dir experiment sleep render"),
}


@pytest.mark.parametrize("section", PUBLISHED_FLAGS)
def test_the_flag_table_maps_each_published_flag_to_our_keys(section: str) -> None:
    stage, published = PUBLISHED_FLAGS[section]
    text = (REPOSITORY / "docs" / "from_the_published_tool.md").read_text(encoding="utf-8")
    table = text[text.index(f"\n**{section}** (") :].split("\n\n")[1]
    rows = [line.split(": ", 1) for line in table.splitlines() if line.startswith("* `--")]
    flags_there = [flag for theirs, _ in rows for flag in re.findall(r"--([a-z_0-9-]+)", theirs)]
    assert sorted(flags_there) == sorted(published.split())
    for _, ours in rows:
        for key in re.findall(r"`config\.([a-z_0-9.]+)", ours):
            assert any(f"{known}.".startswith(f"{key}.") for known in keys(stage)), (
                f"{section}: {key}"
            )


def test_the_stage_table_has_every_stage() -> None:
    text = (REPOSITORY / "docs" / "stages.md").read_text(encoding="utf-8")
    table = text[text.index("| stage | does | command |") :].split("\n\n")[0]
    named = [line.split("`")[1] for line in table.splitlines()[2:]]
    assert sorted(named) == stages.names()
    for name, line in zip(named, table.splitlines()[2:], strict=True):
        config = re.search(r"`(?:--config=configs/([a-z_]+)\.py)?(:[a-z_]+)?", line.split("|")[3])
        stage, variant = config.groups() if config else (None, None)
        assert keys_given(line) <= keys((stage or name) + (variant or "")), name
    files = (REPOSITORY / "docs" / "files.md").read_text(encoding="utf-8")
    assert not [name for name in named if f"`{name}`" not in files]
    rows = re.findall(
        r"^\|([^|]*)\|", files[files.index("| stage | files |") :], flags=re.MULTILINE
    )
    cells = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row)]
    assert not [name for name in named if cells.count(name) > 1], "a row for each"


def pages_of(nav: list[Any]) -> list[str]:
    """The pages that a navigation of mkdocs lists, in its order."""
    pages = []
    for entry in nav:
        for below in entry.values():
            pages += [below] if isinstance(below, str) else pages_of(below)
    return pages


def test_the_site_lists_every_page_once() -> None:
    site = yaml.safe_load(
        (REPOSITORY / "launch" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
    )
    docs = REPOSITORY / "docs"
    # Pages of studies lie beside their scripts; results.md links to them.
    pages = [page for page in docs.rglob("*.md") if page.parent.name != "studies"]
    # The index of the options is made when the site is built.
    assert set(pages_of(site["nav"])) - {"options/index.md"} == {
        str(page.relative_to(docs)) for page in pages
    }
    assert len(pages_of(site["nav"])) == len(set(pages_of(site["nav"])))


@pytest.mark.extra
def test_the_site_builds_without_a_warning() -> None:
    if not (REPOSITORY / ".venv-docs" / "docs.stamp").exists():
        pytest.skip("no .venv-docs: bash launch/docs.sh makes it")
    done = subprocess.run(
        ["bash", "launch/docs.sh"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert (REPOSITORY / "site" / "index.html").is_file()
    options = (REPOSITORY / "site" / "options" / "train_reward.html").read_text(encoding="utf-8")
    assert "early_stopping.patience" in options


def test_architecture_names_files_that_exist_and_every_room() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:motif_jax|tests|configs|launch|third_party)/[A-Za-z0-9_./]*)`", text)
    assert not [name for name in named if not (REPOSITORY / name).exists()]
    rooms = [path.parent.name for path in (REPOSITORY / "motif_jax").glob("*/__init__.py")]
    assert not [room for room in rooms if f"{room}/" not in text]


def test_the_quickstart_writes_the_files_that_the_readme_loads() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    quickstart = (REPOSITORY / "launch" / "quickstart.sh").read_text(encoding="utf-8")
    loaded = re.findall(r'\.load\("([^"]+)"\)', readme)
    assert len(loaded) == 2
    for folder in loaded:
        assert f' "{folder.replace("runs/quickstart", "$runs")}"' in quickstart


def test_the_table_of_judges_is_that_of_the_studies_rows() -> None:
    script = runpy.run_path(str(REPOSITORY / "docs/studies/judges_by_game.py"))

    assert script["table"]() in (REPOSITORY / "docs/results.md").read_text(encoding="utf-8")


def test_the_table_of_judges_and_lexicon_has_the_stored_answers() -> None:
    script = runpy.run_path(str(REPOSITORY / "docs/studies/judges_beside_lexicon.py"))

    assert script["table"]() in (REPOSITORY / "docs/studies/judges.md").read_text(encoding="utf-8")


def test_shell_scripts_parse() -> None:
    for script in SCRIPTS:
        done = subprocess.run(
            ["bash", "-n", str(script)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{shlex.quote(str(script))}: {done.stderr}"
