"""NetHack tasks, seeding, observations and replay; the only package that imports nle."""
