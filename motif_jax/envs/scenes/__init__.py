"""Synthetic pictures to talk about: what is in them, who answers, who guesses, and who asks; by rules. numpy only."""
