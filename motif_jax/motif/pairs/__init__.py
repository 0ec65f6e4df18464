"""The pairs dataset: reading, writing and splitting. numpy only.

layout.py names the arrays, dataset.py reads them, writer.py writes them. chunks.py and assemble.py
are the way from played episodes to pairs. targets.py makes numbers of labels and parts of the
pairs, for the training of a reward; outcomes.py counts what the labels say of each message, from
which threshold.py advises an agent.
"""

from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.writer import write_pairs

__all__ = ["PairsDataset", "write_pairs"]
