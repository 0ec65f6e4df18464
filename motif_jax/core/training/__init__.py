"""The offline trainer with exact resume, and what every optimiser step needs."""
