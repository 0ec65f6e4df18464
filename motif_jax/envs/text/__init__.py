"""Text tasks: what an agent that speaks does. No jax, no language model."""
