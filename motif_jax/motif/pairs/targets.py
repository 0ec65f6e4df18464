"""What a reward model learns from: the targets of the pairs, from one or several annotations of a
dataset, and the published split of labelled pairs into a training and a validation part.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, SECOND, TIE, UNKNOWN
from motif_jax.motif.pairs.dataset import PairsDataset


@dataclasses.dataclass(frozen=True)
class PairTargets:
    """Targets of all pairs of a dataset.

    Attributes:
      labels: int8 [pairs], 0 first, 1 second, 2 tie, 3 unknown to all judges.
      targets: float32 [pairs, 2], probabilities that the first and the second is better, sum 1.
      unsmoothed: float32 [pairs, 2], targets before label smoothing, for metrics.
      weights: float32 [pairs], weight in the loss; 0 for unknown and dropped pairs.
    """

    labels: np.ndarray
    targets: np.ndarray
    unsmoothed: np.ndarray
    weights: np.ndarray

    @property
    def known(self) -> np.ndarray:
        """Ascending indices int64 of the pairs with a known label, with ties."""
        return np.flatnonzero(self.labels != UNKNOWN)


def hard_targets(labels: np.ndarray) -> np.ndarray:
    """Targets float32 [N, 2] of labels int [N]: (1, 0), (0, 1), and (1/2, 1/2) for ties and unknown
    ones.
    """
    return np.array([[1, 0], [0, 1], [0.5, 0.5], [0.5, 0.5]], np.float32)[labels]


def soft_targets(probabilities: np.ndarray) -> np.ndarray:
    """Targets float32 [N, 2] of probabilities [N, 3]: half of a tie's probability goes to each
    side.
    """
    return (probabilities[:, :2] + probabilities[:, 2:] / 2).astype(np.float32)


def read_targets(
    dataset: PairsDataset,
    names: Sequence[str],
    soft: bool = False,
    smoothing: float = 0.0,
    confidence: str = "none",
    ties: str = "half",
    annotator_weights: Sequence[float] = (),
) -> PairTargets:
    """Averages annotations to targets, over the judges that label a pair.

    The loss uses `targets` and `weights`. Accuracies, `ties='drop'`, the pairs that count as
    labelled and the advised threshold use `labels`: those of a single judge, or the sides that the
    average of several prefers.

    Args:
      names: annotations to use, at least one.
      soft: whether to use the judges' probabilities instead of their labels.
      smoothing: share in [0, 1] of each target that moves to one half each.
      confidence: 'probability' weights each judge by the probability of its most likely answer.
      ties: 'half' trains towards equal rewards, 'drop' leaves ties out of the loss.
      annotator_weights: weight of each judge; equal by default.

    Raises UserError: an annotation or its probabilities are missing or damaged, or nothing is
    labelled.
    """
    # Sums over the judges that label a pair: of their weights, and of weight times confidence.
    judge_weight = np.zeros(dataset.num_pairs)
    vote_weight = np.zeros(dataset.num_pairs)
    vote_sum = np.zeros((dataset.num_pairs, 2))
    for name, weight in zip(names, annotator_weights or [1.0] * len(names), strict=True):
        labels = dataset.preference(name)
        # [pairs, 2]. An unknown label has a vote, too, which the weight 0 below leaves out.
        votes = hard_targets(labels)
        certainty = np.ones(dataset.num_pairs)
        if soft or confidence == "probability":
            probabilities = dataset.probabilities(name)
            # A row of NaN has a label without probabilities, which counts as certain.
            has_probabilities = np.isfinite(probabilities).all(axis=1)
            probabilities = np.nan_to_num(probabilities)
            if soft:
                votes = np.where(has_probabilities[:, None], soft_targets(probabilities), votes)
            if confidence == "probability":
                certainty = np.where(has_probabilities, probabilities.max(axis=1), 1.0)

        pair_weight = np.where(labels != UNKNOWN, weight, 0.0)
        judge_weight += pair_weight
        vote_weight += pair_weight * certainty
        vote_sum += (pair_weight * certainty)[:, None] * votes

    is_labelled = vote_weight > 0
    if not is_labelled.any():
        raise UserError(f"{dataset.folder}: no pair has a known label in {', '.join(names)}")
    # The divisors are bounded for the pairs without a label, whose quotients are not used.
    mean_votes = vote_sum / np.maximum(vote_weight, 1e-12)[:, None]
    targets = np.where(is_labelled[:, None], mean_votes, 0.5)
    labels = dataset.preference(names[0]) if len(names) == 1 else _labels_of(targets, is_labelled)
    # The judges' mean certainty: 1 unless `confidence` asks for it, however many judges there are.
    weights = np.where(judge_weight > 0, vote_weight / np.maximum(judge_weight, 1e-12), 0.0)
    if ties == "drop":
        weights = np.where(labels == TIE, 0.0, weights)
    smoothed = (1 - smoothing) * targets + smoothing / 2
    return PairTargets(
        labels=labels.astype(np.int8),
        targets=smoothed.astype(np.float32),
        unsmoothed=targets.astype(np.float32),
        weights=weights.astype(np.float32),
    )


def _labels_of(targets: np.ndarray, is_labelled: np.ndarray) -> np.ndarray:
    """The side that the average of several judges prefers, TIE where the sides are equal but for
    rounding.
    """
    difference = targets[:, 0] - targets[:, 1]
    labels = np.where(np.abs(difference) < 1e-6, TIE, np.where(difference > 0, FIRST, SECOND))
    return np.where(is_labelled, labels, UNKNOWN)


def torch_permutation(num: int, seed: int) -> np.ndarray:
    """The permutation of 0..num-1 of `torch.randperm(num)` by a CPU generator seeded with `seed`,
    int64 [num].

    Forward Fisher-Yates on the raw 32-bit outputs of MT19937: entry i is swapped with entry
    i + raw_i mod (num - i), for i = 0..num-2. For num < 2**32 / 20: above it torch draws 64 bits
    per entry.
    """
    bits = np.random.MT19937()
    # As torch seeds its generator; numpy's own seeding of MT19937 mixes the seed first.
    bits._legacy_seeding(seed)
    positions = np.arange(num - 1, dtype=np.int64)
    raw = bits.random_raw(positions.size).astype(np.int64)
    swaps = (positions + raw % (num - positions)).tolist()
    # A list: swaps of single entries are slow in an array.
    order = list(range(num))
    for i, j in enumerate(swaps):
        order[i], order[j] = order[j], order[i]
    return np.asarray(order, dtype=np.int64)


def torch_split(num: int, seed: int, fraction: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """Training and validation indices, int64, of the published split of `num` labelled pairs
    (ALGORITHMS: Motif, preference loss).

    Indices count only the pairs with a known label, in the dataset's order. The training part has
    floor(fraction * num) entries, plus one if rounding leaves an entry over.
    """
    # Rounded so that 1 - 0.8 is 0.2, not 0.19999999999999996.
    num_validation = math.floor(num * round(1.0 - fraction, 12))
    num_train = math.floor(num * fraction)
    num_train += num - num_train - num_validation
    order = torch_permutation(num, seed)
    return order[:num_train], order[num_train:]
