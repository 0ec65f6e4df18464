"""BabyAI-Text: grid worlds of BabyAI whose observations are sentences."""
