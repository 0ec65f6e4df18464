"""Texts as tokens: writing, reading, and their order in training. numpy only."""
