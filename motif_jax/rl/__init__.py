"""Learning while playing: actors, inference, batcher and learner as one system, and its run folder."""
