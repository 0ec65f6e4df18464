"""Minigrid levels whose steps come with a caption of what happened."""
