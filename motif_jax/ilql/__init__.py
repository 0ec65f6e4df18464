"""ILQL: agents that speak, trained on recorded dialogues (Snell et al. 2022)."""
