"""The keys of studies: trainings of several methods from several seeds, compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from motif_jax import sections
from motif_jax.schema import Key, natural, positive, section, update
from motif_jax.support.config import unknown_variant

_COMMAND = "a config file and flags; {workdir} is the folder of the study, {run} that of a run"
# Keys that the three configs of studies share: first steps, methods, tables and curves.
STUDY = {
    "stage": "study",
    "seed": Key(1, "of the first run of a method; the others follow"),
    "seeds": positive(3, "runs of each method"),
    "rows": Key("", "file of finished runs: one JSON line each"),
    "page": Key("", "Markdown file, tables between <!-- study --> and <!-- /study -->; empty: printed"),
    "only": Key("", "runs only these methods, with commas between; empty: all"),
    "most_runs": natural(None, "runs at most; 0: only writes the tables; None: all without a line", int),
    "keep_runs": Key(False, "keeps run folders after their line is written"),
    "prepare_order": Key("", "names of `prepare` (folder -> command), done first, once, in this order"),
    "training": Key("", f"what all methods have in common: {_COMMAND}"),
    "table_order": Key("", "titles of `tables` (title -> methods, compared with the first)"),
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
    "curves": {},
    "measures": Key("", "columns of the tables; curves (table -> measure) are of the training's episodes"),
    "resamples": sections.RESAMPLES,
}


def study(base: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]]) -> Callable[..., ConfigDict]:
    """The function `get_config` of a study: `base`, with the changes of a variant."""

    def get_config(variant: str | None = None) -> ConfigDict:
        if (variant or "") not in variants:
            raise unknown_variant(variant, variants)
        values = {**base, **variants[variant or ""]}
        for order, named in (("prepare_order", "prepare"), ("table_order", "tables")):
            values.setdefault(order, ",".join(values[named]))
        own = {name: value for name, value in values.items() if isinstance(value, Mapping)}
        return update(
            section(STUDY | own), {name: value for name, value in values.items() if name not in own}
        )

    return get_config
