"""Config sections of a training that asks for labels (`label_service.py`)."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import Form
from motif_jax.motif.annotation.annotator import (
    annotator_class,
    check_annotator,
    check_keys_of_others,
)
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.store import check_store
from motif_jax.oni.config import OnlineAnnotator
from motif_jax.rl.config import AgentConfig
from motif_jax.schema import read_open_section, section_keys

# Folder of a run's own answer store, in the run folder.
STORE = "answers"


def check(config: AgentConfig, form: Form) -> None:
    """Raises UserError for a bad value of the sections; asks no server and loads no model."""
    allowed = "lexicon, model, openai (a model of vLLM: bash launch/oni.sh MODEL), or module:Class of your own"
    with naming_section():
        beside_training = annotator_class(config.annotator.kind).beside_training
    checks.require(beside_training, "annotator.kind", config.annotator.kind, allowed)
    default = OnlineAnnotator().openai.retries
    has_default = config.annotator.openai.retries == default
    allowed = f"left at {default}: a training queues a failed question again, without an end"
    checks.require_key(config, "annotator.openai.retries", has_default, allowed)
    with naming_section():
        if config.annotator.store_dir:
            check_store(config.annotator.store_dir)
        check_annotator(annotator_config(config), form)
        check_keys_of_others(annotator_config(config))


def annotator_config(config: AgentConfig) -> AnnotatorConfig:
    """The section `annotator` in the form that annotators read."""
    values = {**vars(config.annotator), "annotator": config.annotator.kind, "compat": config.compat}
    return read_open_section(AnnotatorConfig, values)


@contextlib.contextmanager
def naming_section() -> Iterator[None]:
    """Names keys in errors as in this config: config.annotator.goal for config.goal."""
    try:
        yield
    except UserError as error:
        text = re.sub(r"\bconfig\.annotator=", "config.kind=", str(error))
        # Only keys of the section: an error may also name files, such as config.json.
        names = "|".join(section_keys(OnlineAnnotator))
        raise UserError(re.sub(rf"\bconfig\.(?=({names})\b)", "config.annotator.", text)) from error


def in_run(config: AgentConfig, folder: str | os.PathLike[str]) -> AgentConfig:
    """`config` with the default of the answer store in a run's folder."""
    section = config.annotator
    store = section.store_dir or os.path.join(folder, STORE)
    return dataclasses.replace(config, annotator=dataclasses.replace(section, store_dir=store))
