"""On PYTHONPATH: the clock of the wall jumps back and forth by up to a day, as after a wrong start or a bad time server.

Whoever measures how long something took, or what is newer, must not ask it. `time.monotonic` goes on as it does.
"""

import random
import time

_real, _draws = time.time, random.Random(0)


def _jumping() -> float:
    return _real() + _draws.uniform(-86_400.0, 86_400.0)


time.time = _jumping
time.time_ns = lambda: int(_jumping() * 1e9)
