"""Serve an annotator without a language model over the OpenAI chat protocol, as a stand-in for a model's server.

    python -m motif_jax.launch --config=configs/serve_annotator.py --config.port=8000

answers the questions of this project's prompt files (one text or a pair, every goal and answer mode) by the lexicon, until it is
stopped (SIGTERM, Ctrl-C); it prints its address when it can be asked. For trying out a setup, and for tests. See docs/oni.md.
"""

from motif_jax.motif.annotation import config as annotators
from motif_jax.schema import Key, configs, non_negative, section_keys

KEYS = {
    "stage": "serve_annotator",
    "annotator": Key("lexicon", "annotator: lexicon, or module:Class of your own, without a prompt"),
    "model": Key("lexicon", "the name that clients ask for"),
    "host": Key("127.0.0.1", "one that other machines reach needs a key, or open_to_all"),
    "key_variable": Key("", "environment variable that holds the key which clients must send; empty: none"),
    "open_to_all": Key(False, "answers whoever reaches the address, without a key"),
    "port": non_negative(8000, "0: any that is free; it is printed", below=1 << 16),
    "latency_seconds": non_negative(
        0.0, "seconds from a question to its answer, also of questions asked together"
    ),
    "prompt_file": Key("", "a prompt file of your own whose questions it answers too"),
    "lexicon": section_keys(annotators.LexiconFile),
}
get_config = configs(KEYS)
