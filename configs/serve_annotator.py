"""Serve an annotator without a language model over the OpenAI chat protocol, as a stand-in for a model's server.

    python -m motif_jax.launch --config=configs/serve_annotator.py --config.port=8000

answers the questions of this project's prompt files (one text or a pair, every goal and answer mode) by the lexicon, until it is
stopped (SIGTERM, Ctrl-C); it prints its address when it can be asked. For trying out a setup, and for tests. See docs/oni.md.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    """The serve_annotator stage's config."""
    if variant:
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "serve_annotator"
    # lexicon, or module:Class of your own, without a prompt.
    config.annotator = "lexicon"
    # The name that clients ask for.
    config.model = "lexicon"
    # An address that other machines reach wants a key, or open_to_all.
    config.host = "127.0.0.1"
    # The environment variable that holds the key which clients must send; empty: none is asked for.
    config.key_variable = ""
    # Answers whoever reaches the address, without a key.
    config.open_to_all = False
    # 0: any that is free; it is printed.
    config.port = 8000
    # Seconds from a question to its answer, however many are asked together.
    config.latency_seconds = 0.0
    # A prompt file of your own that is understood too.
    config.prompt_file = ""
    # The lexicon's YAML file; empty: the one that is built in.
    config.lexicon = ConfigDict({"file": ""})
    return config
