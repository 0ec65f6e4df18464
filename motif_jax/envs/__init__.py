"""Environments: contract, registry and replay; each game is a package."""
