"""Dialogues with rewards by turn, as parquet or as tokens with indices. numpy only."""
