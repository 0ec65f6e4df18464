"""Dialogues: what is said and paid, turn by turn; as parquet, as tokens with indices. numpy only."""
