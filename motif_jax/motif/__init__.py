"""Motif: a reward from a language model's preferences over recorded games (Klissarov, D'Oro et al. 2023)."""
