"""Wordle as in Snell et al. (2022), where the hidden word is redrawn every turn among the words
that still fit.
"""
