"""Language models: architectures, weights, tokens, scores of candidates, generation.

from motif_jax import lm
model = lm.load("FOLDER")
model.score(["The door is"], [" open", " closed"])
"""

from motif_jax.lm.text import TextModel, load

__all__ = ["TextModel", "load"]
