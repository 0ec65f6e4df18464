"""Plays and evaluates agents that speak."""
