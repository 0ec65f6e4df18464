"""Environments: their contract, their registry and their replay; a game is a package of its own."""
