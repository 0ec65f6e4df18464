"""Datasets on disk; numpy only."""
