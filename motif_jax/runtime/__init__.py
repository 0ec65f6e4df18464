"""Threads, processes and devices: inference, batching, the learner loop, episode playing."""
