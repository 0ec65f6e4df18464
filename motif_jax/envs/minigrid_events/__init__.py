"""Minigrid levels with captions of each step's events."""
