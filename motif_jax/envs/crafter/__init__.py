"""Crafter (Hafner 2021) with captions of each step's events; needs the package crafter."""
