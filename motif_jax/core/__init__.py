"""Shared basics: errors, files, seeds, configs, metrics, checkpoints."""
