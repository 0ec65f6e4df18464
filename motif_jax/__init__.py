"""Intrinsic motivation from a language model's preferences over NetHack events, in JAX.

docs/architecture.md is the map of the folders, docs/glossary.md has the project's own words.
"""

from motif_jax.envs.registration import register_with_gymnasium

__version__ = "0.2.0"

register_with_gymnasium()
