"""Whole seeded episodes: evaluation, watching, the policy of a checkpoint, ratings by a reward."""
