"""Intrinsic motivation from a language model's preferences over NetHack events, in JAX.

`run` runs a stage as the command line does.

docs/architecture.md is the map of the folders, docs/glossary.md has the project's own words.
"""

from motif_jax.envs.registration import register_with_gymnasium
from motif_jax.running import run

__all__ = ["run"]
__version__ = "0.2.0"

register_with_gymnasium()
