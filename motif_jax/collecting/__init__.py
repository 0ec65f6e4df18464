"""Pairs from games: who plays, the processes that sample sub-sequences, and the dataset they become."""
