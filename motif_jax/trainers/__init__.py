"""Learning from datasets: a trainer with exact resume, and the reward models that it trains."""
