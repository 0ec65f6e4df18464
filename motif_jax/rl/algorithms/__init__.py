"""Pure JAX functions: V-trace, APPO, preference loss, statistics."""
