"""Serves an embedded annotator over the OpenAI chat protocol."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import http_server
from motif_jax.core.verdicts import FORMS
from motif_jax.motif.annotation.annotator import annotator_class, check_annotator
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.serve import ChatJudge, handle, own_prompts
from motif_jax.motif.config import ServeAnnotatorConfig
from motif_jax.schema import read_open_section, read_section

NEEDS_WORKDIR = False


def check(config_tree: ConfigDict, workdir: Path | None) -> None:
    """Raises UserError unless the annotator judges texts without a language model, and can be
    served at this address.
    """
    del workdir
    config = read_section(ServeAnnotatorConfig, config_tree)
    checks.require_key(
        config, "host", bool(config.host.strip()), "an address or name, such as 127.0.0.1"
    )
    _key(config)
    checks.require_key(config, "model", bool(config.model), "the name that clients ask for")
    annotator = annotator_class(config.annotator)
    can_be_served = annotator.reads_items and not annotator.reads_prompt
    checks.require_key(
        config, "annotator", can_be_served, "one that judges texts without a language model"
    )
    for form in annotator.forms:
        check_annotator(_annotator_config(config_tree), form)
    if config.prompt_file:
        is_file = os.path.isfile(config.prompt_file)
        checks.require_key(config, "prompt_file", is_file, "a prompt file, or empty")
        own_prompts(config.prompt_file)


def run(config_tree: ConfigDict, workdir: Path | None) -> int:
    """Serves until the process is stopped."""
    del workdir
    config = read_section(ServeAnnotatorConfig, config_tree)
    key = _key(config)
    forms = ", ".join(
        form.name for form in FORMS if form in annotator_class(config.annotator).forms
    )

    def print_address(port: int) -> None:
        # The port is known only now where config.port=0 leaves it to the system.
        host = f"[{config.host}]" if ":" in config.host else config.host
        access = ""
        if key:
            access = f"; it asks for the key in {config.key_variable}"
        elif config.open_to_all:
            access = "; open to all: it asks for no key"
        url = f"http://{host}:{port}/v1"
        print(
            f"{config.annotator} answers as {config.model} ({forms}) at {url}{access}", flush=True
        )

    judge = ChatJudge(_annotator_config(config_tree), config.model, config.prompt_file)
    serving = http_server.serve(
        functools.partial(handle, judge),
        config.host,
        config.port,
        config.latency_seconds,
        print_address,
        key,
        config.open_to_all,
    )
    http_server.run(serving, config.host, config.port)
    return 0


def _annotator_config(config_tree: ConfigDict) -> AnnotatorConfig:
    """The keys of the annotator; one from outside the package may have keys of its own."""
    return read_open_section(AnnotatorConfig, config_tree)


def _key(config: ServeAnnotatorConfig) -> str:
    """The key that clients must send, '' for none. Raises UserError: the variable is named, but
    holds no usable key.
    """
    key = os.environ.get(config.key_variable, "").strip()
    is_usable = not config.key_variable or (bool(key) and key.isprintable())
    allowed = "the name of an environment variable that holds a key, or empty"
    checks.require_key(config, "key_variable", is_usable, allowed)
    return key
