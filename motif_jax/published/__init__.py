"""Reads the published systems' files, such as PyTorch checkpoints and results, without running their code."""
