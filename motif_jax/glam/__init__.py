"""GLAM: a language model is the agent (Carta et al. 2023)."""
