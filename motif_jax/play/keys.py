"""Keys and sections of the commands that play episodes and show them."""

from __future__ import annotations

from motif_jax.core.config import default_workers
from motif_jax.schema import (
    layer_size_key,
    length_key,
    non_negative,
    plain_key,
    positive,
    section_class,
)

# Keys of stages that play episodes.
WORKERS = positive(default_workers(), "number of processes that play")


LANES = length_key(
    32, "episodes of an agent at a time; the network sees lanes / 2 at once", multiple_of=2
)


GREEDY = plain_key(False, "takes the most likely action instead of drawing one (networks only)")


CHECKPOINT = plain_key(
    "latest", "'latest', 'best' (by mean return in training), or a step; 0: before it"
)


# Episodes of an evaluation that `visualize` shows.
EPISODES = "best,worst"


THREADS = layer_size_key(
    1, "environments that answer at a time; take more where they wait for a server"
)


@section_class
class Forms:
    """Files that show episodes."""

    gif: bool = plain_key(False, "writes a movie")
    frames_per_second: float = positive(10.0, "frames per second of movies")
    start: int = non_negative(0, "step at which movies start; they show steps [start, stop)")
    stop: int | None = positive(None, "step at which movies end, see start; None: the end")
