"""Serve an annotator without a language model over the OpenAI chat protocol, as a stand-in for a
model's server.

    python -m motif_jax.launch --config=configs/serve_annotator.py --config.port=8000

answers the questions of this project's prompt files (one text or a pair, every goal and answer
mode) by the lexicon, until it is stopped (SIGTERM, Ctrl-C); it prints its address when it can be
asked. For trying out a setup, and for tests. See docs/oni.md.
"""

from motif_jax.motif.config import ServeAnnotatorConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "serve_annotator", **section_keys(ServeAnnotatorConfig)}
get_config = configs(KEYS)
