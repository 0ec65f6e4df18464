"""Neural networks; the only package that imports flax."""
