"""Pure JAX functions: V-trace, APPO and PPO, and the distributions that policies draw actions
from.
"""
