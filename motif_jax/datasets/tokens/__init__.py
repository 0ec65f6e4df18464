"""Texts as tokens: writing, reading, and the order in which a training goes through them. numpy only."""
