"""Text tasks, whose actions are texts; imports no jax and no language model."""
