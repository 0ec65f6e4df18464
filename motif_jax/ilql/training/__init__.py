"""Training on datasets: a trainer with exact resume, and its tasks."""
