"""The reward model: its data, loss, training, statistics and files."""
