"""Grid worlds of minigrid whose steps come with a caption of what happened."""
