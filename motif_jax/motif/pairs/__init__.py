"""The pairs dataset: reading, writing and splitting. numpy only."""

from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.writer import write_pairs

__all__ = ["PairsDataset", "write_pairs"]
