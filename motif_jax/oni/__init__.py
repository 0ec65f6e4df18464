"""ONI: labels that arrive while the agent plays (Zheng et al. 2024)."""
