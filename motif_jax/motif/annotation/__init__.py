"""Captions, prompts, answers, annotators and the shard store; nothing here imports jax."""
