"""What every other package may lean on: errors, files, seeds, configs, metrics, checkpoints."""
