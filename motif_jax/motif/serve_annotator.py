"""Serves an embedded annotator over the OpenAI chat protocol."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import http_server
from motif_jax.core.verdicts import FORMS
from motif_jax.motif.annotation import serve as replies
from motif_jax.motif.annotation.annotator import annotator_class, check_annotator
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.annotation.serve import ChatJudge, own_prompts
from motif_jax.schema import read_open_section

NEEDS_WORKDIR = False


def check(config: ConfigDict, workdir: Path | None) -> None:
    del workdir
    checks.require_key(config, "host", bool(config.host.strip()), "an address or name, such as 127.0.0.1")
    _key(config)
    checks.require_key(config, "model", bool(config.model), "the name that clients ask for")
    annotator = annotator_class(config.annotator)
    embedded = annotator.reads_items and not annotator.reads_prompt
    checks.require_key(config, "annotator", embedded, "one that judges texts without a language model")
    for form in annotator.forms:
        check_annotator(read_open_section(AnnotatorConfig, config), form)
    if config.prompt_file:
        there = os.path.isfile(config.prompt_file)
        checks.require_key(config, "prompt_file", there, "a prompt file, or empty")
        own_prompts(config.prompt_file)


def run(config: ConfigDict, workdir: Path | None) -> int:
    del workdir
    key = _key(config)
    forms = ", ".join(form.name for form in FORMS if form in annotator_class(config.annotator).forms)

    def listening(port: int) -> None:
        host = f"[{config.host}]" if ":" in config.host else config.host
        who = f"; it asks for the key in {config.key_variable}" if key else ""
        if config.open_to_all and not key:
            who = "; open to all: it asks for no key"
        url = f"http://{host}:{port}/v1"
        print(f"{config.annotator} answers as {config.model} ({forms}) at {url}{who}", flush=True)

    judge = ChatJudge(read_open_section(AnnotatorConfig, config), config.model, config.prompt_file)
    handle = functools.partial(replies.handle, judge)
    where = config.host, config.port
    serving = http_server.serve(handle, *where, config.latency_seconds, listening, key, config.open_to_all)
    http_server.run(serving, *where)
    return 0


def _key(config: ConfigDict) -> str:
    key = os.environ.get(config.key_variable, "").strip()
    holds_one = not config.key_variable or (bool(key) and key.isprintable())
    allowed = "the name of an environment variable that holds a key, or empty"
    checks.require_key(config, "key_variable", holds_one, allowed)
    return key
