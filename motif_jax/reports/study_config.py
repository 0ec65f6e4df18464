"""The keys of studies: trainings of several methods from several seeds, compared.

A study of your own is a config file (docs/tutorials/my_study.md):

    get_config = studies.study(
        {
            "training": "configs/train_agent.py:recall --config.environment.name=gym:Taxi-v3",
            "methods": {
                "slow": "--config.optimizer.learning_rate=1e-4",
                "fast": "--config.optimizer.learning_rate=1e-3",
            },
            "measures": "return,length",
        }
    )
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core.config import unknown_variant
from motif_jax.core.errors import UserError
from motif_jax.motif.annotation.config import LexiconFile
from motif_jax.schema import (
    plain_key,
    positive,
    section,
    section_class,
    section_keys,
    subsection,
    update,
)

_COMMAND = "a config file and flags; {workdir} is the folder of the study, {run} that of a run"


@section_class
class JudgeLexicon(LexiconFile):
    """The lexicon that judges the games of a study."""

    file: str = plain_key("", "a YAML file, or a built-in one; empty: nethack.yaml")


@section_class
class StudyConfig:
    """Trainings of several methods, the games that measure them, and tables of what came out."""

    seed: int = plain_key(1, "seed of the first run of a method; the others follow")
    seeds: int = positive(3, "runs of each method")
    rows: str = plain_key(
        "", "file of finished runs: one JSON line each; empty: rows.jsonl of the work folder"
    )
    prepare: str = plain_key(
        "",
        "'folder: command; ...', done first, once, in this order, for the methods whose training or games name the folder",
    )
    runs: str = plain_key(
        "",
        "'name=folder,folder; name=folder': finished runs to put beside each other; the study then trains nothing. A folder is an evaluation, "
        "a run of train_agent, or one with a log.csv of GLAM's tool; a file is a .npy of its returns, or a log (.pkl) of ILQL's evaluations",
    )
    published: str | None = plain_key(
        None, "file motif_results.pkl of published curves, to stand beside those of runs"
    )
    published_tasks: str = plain_key(
        "", "'theirs=ours, ...' for tasks of published that have another name here"
    )
    training: str = plain_key("", f"what all methods have in common: {_COMMAND}")
    evaluation: str = plain_key(
        "configs/evaluate.py --config.policy=agent --config.reward.dir= --config.seed=77003 --config.episodes=200",
        f"the games that measure what was learned: {_COMMAND}; where {{run}} is not in it, --config.agent.dir={{run}} is added",
    )
    claims: str = plain_key(
        "",
        "'A > B: measure; A > B + 0.3: measure; A > B - 0.1: measure': the 95 % interval of the paired difference lies above the number",
    )
    goal: str = plain_key(
        "defaultgoal",
        "goal of the annotator whose labels judge the games; another goal or lexicon is another run",
    )
    lexicon: JudgeLexicon = subsection(JudgeLexicon)
    # The config names the keys of these three. Method -> its flags of the training.
    methods: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Method -> further flags of its games.
    games: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Title -> methods, compared with the first; without any, one table of all methods.
    tables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    measures: str = plain_key(
        "return",
        "columns of the tables: numbers that the episodes of the evaluation have; of games with messages also judged, gathered",
    )
    resamples: int = positive(2000, "number of resamples of the bootstrap")


def study(
    base: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]] | None = None
) -> Callable[..., ConfigDict]:
    """The function `get_config` of a study: `base`, with the changes of a variant.

    `base` has keys of `StudyConfig`; mappings (`prepare`, `methods`, `games`, `tables`) replace
    those of `StudyConfig` wholly. Raises UserError: it has no methods.
    """
    variants = variants or {"": {}}

    def get_config(variant: str | None = None) -> ConfigDict:
        if (variant or "") not in variants:
            raise unknown_variant(variant, variants)
        values = {**base, **variants[variant or ""]}
        if not values.get("methods"):
            raise UserError(
                "the study's methods: must be given: for each its name, and the flags that it adds to the training"
            )
        values["prepare"] = "; ".join(": ".join(step) for step in values.get("prepare", {}).items())
        values.setdefault("tables", {"methods": ",".join(values["methods"])})
        mappings = {key: value for key, value in values.items() if isinstance(value, Mapping)}
        changes = {key: value for key, value in values.items() if key not in mappings}
        # Mappings replace sections wholly: `update` would refuse the names of methods, which no
        # section has.
        keys = {"stage": "study", "games": {}, **section_keys(StudyConfig), **mappings}
        return update(section(keys), changes)

    return get_config
