"""The keys of studies: trainings of several methods from several seeds, compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import sections
from motif_jax.core.config import unknown_variant
from motif_jax.schema import Key, positive, section, update

_COMMAND = "a config file and flags; {workdir} is the folder of the study, {run} that of a run"
# Keys that the three configs of studies share: prepared commands, methods and tables.
STUDY = {
    "stage": "study",
    "seed": Key(1, "of the first run of a method; the others follow"),
    "seeds": positive(3, "runs of each method"),
    "rows": Key("", "file of finished runs: one JSON line each; empty: rows.jsonl of the work folder"),
    "prepare": Key(
        "", "'folder: command; ...', done first, once, in this order, for the methods that name the folder"
    ),
    "training": Key("", f"what all methods have in common: {_COMMAND}"),
    "evaluation": Key("", f"the games that measure what was learned: {_COMMAND}"),
    "claims": Key(
        "",
        "'A > B: measure', by more than a number where one is added: the 95 % interval of the paired difference",
    ),
    "goal": Key(
        "defaultgoal", "of the annotator whose labels judge the games; another goal or lexicon is another run"
    ),
    "lexicon": {"file": Key("", "a YAML file, or a built-in one; empty: nethack.yaml")},
    "games": {},  # method -> flags of its games
    "tables": {},  # title -> methods, compared with the first
    "measures": Key("", "columns of the tables"),
    "resamples": sections.RESAMPLES,
}


def study(base: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]]) -> Callable[..., ConfigDict]:
    """The function `get_config` of a study: `base`, with the changes of a variant."""

    def get_config(variant: str | None = None) -> ConfigDict:
        if (variant or "") not in variants:
            raise unknown_variant(variant, variants)
        values = {**base, **variants[variant or ""]}
        values["prepare"] = "; ".join(": ".join(step) for step in values["prepare"].items())
        own = {name: value for name, value in values.items() if isinstance(value, Mapping)}
        return update(
            section(STUDY | own), {name: value for name, value in values.items() if name not in own}
        )

    return get_config
