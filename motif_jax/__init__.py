"""Intrinsic motivation from a language model's preferences over NetHack events, in JAX."""

__version__ = "0.2.0"
