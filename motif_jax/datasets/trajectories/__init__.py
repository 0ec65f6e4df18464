"""Prompts and the actions that somebody took on them: what language models are cloned from."""
