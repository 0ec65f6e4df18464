"""NetHack: engine, tasks, observations, groups of games; the only package that imports nle."""
