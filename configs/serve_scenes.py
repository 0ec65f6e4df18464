"""Serve synthetic pictures over the protocol of the published server of visual dialogue, as a stand-in for it.

    python -m motif_jax.launch --config=configs/serve_scenes.py --config.port=5000

answers, values and asks by rules on six routes until it is stopped (SIGTERM, Ctrl-C); it prints its address when it can be asked. A request
holds all that was said, so the server can be stopped and started at any time. See docs/visdial.md.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.support.config import unknown_variant


def get_config(variant: str | None = None) -> ConfigDict:
    """The serve_scenes stage's config."""
    if variant:
        raise unknown_variant(variant, ("",))
    config = ConfigDict()
    config.stage = "serve_scenes"
    config.host = "127.0.0.1"
    # 0: any that is free; it is printed.
    config.port = 5000
    # The pictures among which the true one is ranked: how many, and their seed. As collect_text:scenes has them, the values are those of its data.
    config.num_val = 500
    config.data_seed = 1
    # Seconds from a request to its answer, however many come together.
    config.latency_seconds = 0.0
    return config
