"""Pages, plots and players for people; nothing here imports jax."""
