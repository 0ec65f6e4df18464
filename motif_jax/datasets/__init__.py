"""The pairs dataset: reading, writing and splitting. numpy only."""
