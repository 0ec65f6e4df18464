"""Checks of the folders that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.play import evaluation_files
from motif_jax.published import glam_results
from motif_jax.reports.config import CompareConfig
from motif_jax.rl.reward_keys import MESSAGE

# What files of published tools hold: returns of GLAM's tests, episodes of ILQL's evaluations.
PUBLISHED_SCORES = {".npy": "returns", ".pkl": "episodes"}
# Keys of a training's config.reward that change nothing of its intrinsic return.
_COEFFICIENTS = (
    "intrinsic_coefficient",
    "extrinsic_coefficient",
    "extrinsic_scale",
    "extrinsic_clip",
)
# Keys of a training's config.reward that decide the values of a frozen reward of kind 'motif'.
_MOTIF_KEYS = ("dir", "step", "normalise", "quantile", "threshold", "count_exponent")


def check_folders(methods: dict[str, list[Path]], measure: str) -> None:
    """Raises UserError: a run counts twice, or evaluations or trainings have no common scale of
    `measure`.
    """
    evaluations: dict[Path, dict[str, Any]] = {}
    runs: list[Path] = []
    first_uses: dict[Path, tuple[str, Path]] = {}
    first_copies: dict[str, Path] = {}
    evaluation_of_training: dict[tuple[str, str, Path], Path] = {}
    for method, folders in methods.items():
        for folder in folders:
            location = folder.resolve()
            if location in first_uses:
                other_method, first_path = first_uses[location]
                raise counted_twice(method, folder, other_method, first_path)
            first_uses[location] = (method, folder)
            kind = kind_of_folder(folder)
            if kind == "run":
                runs.append(folder)
            if kind != "evaluation":
                continue

            evaluation = evaluation_files.read_evaluation(folder)
            copied = first_copies.setdefault(evaluation["digest"], folder)
            if copied is not folder:
                raise UserError(
                    f"config.methods: {folder} is a copy of {copied}: a run counts once"
                )
            evaluations[folder] = evaluation
            plan = evaluation["plan"]
            # The path of an agent begins where it was evaluated.
            policy = run_folder.stored_folder(folder, plan["policy"])
            if policy is None:  # random, or an agent that lies elsewhere now
                continue
            training = (method, plan["environment"], policy.resolve())
            earlier = evaluation_of_training.setdefault(training, folder)
            if earlier is not folder:
                raise UserError(
                    f"config.methods: {earlier} and {folder}, under {method}, both evaluate {plan['policy']}: a "
                    "training counts once, so give one of them"
                )
    evaluation_files.require_comparable(evaluations, measure, "measure")
    if evaluation_files.is_of_the_reward(measure):
        require_one_reward(runs, measure)


def check_unread_keys(config: CompareConfig, methods: dict[str, list[Path]]) -> None:
    """Raises UserError: a key is given that the folders of `methods` leave unread, or published
    files lack their task.
    """
    folders = [folder for folders_of_method in methods.values() for folder in folders_of_method]
    kind_of = {folder: kind_of_folder(folder) for folder in folders}
    scored = {"evaluation", *PUBLISHED_SCORES.values()}
    published = [folder for folder, kind in kind_of.items() if kind not in ("evaluation", "run")]
    has_scores = any(kind in scored for kind in kind_of.values())
    has_curves = any(kind not in scored for kind in kind_of.values())
    has_counts = bool(config.claims or config.measures)

    if published:
        allowed = f"the task that {published[0]} is of, which it does not say"
        checks.require_key(config, "published_task", bool(config.published_task), allowed)
    # Key -> whether it is read, and what reads it.
    readers = {
        "published_task": (bool(published), "a folder or file of a published tool in methods"),
        "published_tasks": (bool(config.published), "published, whose tasks it names"),
        "normalise_zero": (has_scores, "evaluations in methods, whose scores it scales"),
        "normalise_one": (has_scores, "evaluations in methods, whose scores it scales"),
        "efficiency_steps": (has_curves, "trainings in methods, whose curves it ends"),
        "lexicon.file": (has_counts, "claims or measures, which count its events"),
    }
    for key, (is_read, reader) in readers.items():
        is_left_out = not checks.dotted(config, key)
        checks.require_key(config, key, is_read or is_left_out, f"left out without {reader}")


def counted_twice(method: str, folder: Path, other_method: str, first_path: Path) -> UserError:
    """The error of a folder that is given twice."""
    where = (
        f"twice under {method}"
        if other_method == method
        else f"under {other_method} and under {method}"
    )
    # The same folder can be written in two ways.
    also = f" (first as {first_path})" if str(first_path) != str(folder) else ""
    return UserError(f"config.methods: {folder} is given {where}{also}: a run counts once")


def require_one_reward(runs: Sequence[Path], measure: str) -> None:
    """Raises UserError if trainings had different rewards; `require_comparable` does this for
    evaluations.
    """
    rewards = {folder: reward_identity(folder) for folder in runs}
    for folder in runs[1:]:
        first = rewards[runs[0]]
        other = rewards[folder]
        # Rewards of two kinds have no other key in common.
        difference = evaluation_files.rewards_apart(
            {"kind": first["kind"]}, {"kind": other["kind"]}
        )
        difference = difference or evaluation_files.rewards_apart(first, other)
        if difference:
            raise UserError(
                f"config.measure={measure}: {runs[0]} and {folder} were trained with different rewards ({difference}): evaluate "
                "both with the same config.reward, and compare the evaluations"
            )


def reward_identity(run: Path) -> dict[str, Any]:
    """What identifies a training's intrinsic reward; one that is learned online is the run's
    own.
    """
    from motif_jax.oni.online_model import KINDS
    from motif_jax.rl import reward_choice
    from motif_jax.rl.choices import MOTIF

    config = run_folder.read_config(run)
    reward = config.get("reward", {})
    switches = config.get("compat", {})
    if not isinstance(reward, dict) or not isinstance(switches, dict):
        raise UserError(
            f"{run / 'config.json'} is damaged (reward or compat): restore a copy of it"
        )
    kind = reward.get("kind", MOTIF)
    if kind in KINDS:
        return {"kind": kind, "dir": str(run)}
    if kind != MOTIF:
        return {key: value for key, value in reward.items() if key not in _COEFFICIENTS}

    identity = {"kind": kind, **{key: reward.get(key) for key in _MOTIF_KEYS}}
    identity["by"] = reward.get("by", MESSAGE)
    step = reward_choice.pinned_step(run)
    if step is not None:
        identity["step"] = step
    return {**identity, "two_decimals": switches.get("quantile_two_decimals", False)}


def kind_of_folder(folder: Path) -> str:
    """'returns', 'episodes', 'log', 'evaluation' or 'run'; UserError for anything else."""
    if folder.suffix in PUBLISHED_SCORES and folder.is_file():
        return PUBLISHED_SCORES[folder.suffix]
    if glam_results.is_log(folder):
        return "log"
    if (folder / evaluation_files.SUMMARY).is_file():
        return "evaluation"
    if (folder / "config.json").is_file() and run_folder.read_config(folder).get(
        "stage"
    ) == "train_agent":
        return "run"
    raise UserError(
        f"config.methods: {folder} must be a finished evaluation, a run of train_agent, a log.csv's folder or .npy file of GLAM's tool, or a "
        "log (.pkl) of ILQL's evaluations"
    )


def task_names(config: CompareConfig) -> dict[str, str]:
    """The task's name in the published file -> its name here."""
    names = {}
    for part in checks.listed(config.published_tasks):
        theirs, separator, ours = part.partition("=")
        checks.require(
            bool(separator and theirs and ours), "published_tasks", part, "'theirs=ours, ...'"
        )
        names[theirs.strip()] = ours.strip()
    return names
