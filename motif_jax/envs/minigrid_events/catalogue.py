"""Names of the levels; importing this imports no minigrid."""

from __future__ import annotations

LEVELS = (
    *(f"MiniGrid-DoorKey-{size}x{size}-v0" for size in (5, 6, 8, 16)),
    *(
        f"MiniGrid-KeyCorridor{size}-v0"
        for size in ("S3R1", "S3R2", "S3R3", "S4R3", "S5R3", "S6R3")
    ),
    "MiniGrid-UnlockPickup-v0",
    "MiniGrid-MultiRoom-N2-S4-v0",
    "MiniGrid-MultiRoom-N4-S5-v1",
    "MiniGrid-MultiRoom-N6-v0",
)
