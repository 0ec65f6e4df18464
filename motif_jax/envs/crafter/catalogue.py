"""Names of the environments; importing this imports no crafter."""

from __future__ import annotations

SYMBOLS = "Crafter-v1"
PIXELS = "CrafterPixels-v1"
NAMES = (SYMBOLS, PIXELS)
