"""Episodes are functions of their seeds: not of the clock, the user's settings of the game, or
Python's hashes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.processes import REPOSITORY

PLAY = """
import contextlib, hashlib, sys
import numpy as np
from motif_jax.envs import registry
from motif_jax.envs.spec import empty_observation

for name in sys.argv[1:]:
    shown = registry.spec(name).optional_fields
    fields = {"fields": ("tty_chars", "glyphs")} if "glyphs" in shown else {}
    digest, draws = hashlib.sha256(), np.random.default_rng(0)
    with contextlib.closing(registry.make(name, **fields)) as environment:
        out = empty_observation(environment.spec)
        for seed in (7, 100, 7):
            environment.reset(seed, out)
            end = 0
            for _ in range(60):
                for field in sorted(out):
                    digest.update(out[field].tobytes())
                if end:
                    break
                reward, end = environment.step(int(draws.integers(environment.spec.num_actions)), out)
                digest.update(repr((reward, end)).encode())
    print(name, digest.hexdigest())
"""
CLOCK = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static time_t error_line(void) { return atol(getenv("TOLD_TIME")); }
time_t time(time_t *into) { time_t now = error_line(); if (into) *into = now; return now; }
int gettimeofday(struct timeval *into, void *zone) {
  if (into) { into->tv_sec = error_line(); into->tv_usec = 0; }
  return 0;
}
"""
# A new moon, and a Friday the 13th at midnight (UTC): NetHack changes luck on these.
NEW_MOON = "947203200"
FRIDAY = "947721600"
GAMES = ("NetHackScore-v1", "NetHackOracleExtendedActions-v1", "MiniHack-Room-Monster-5x5-v0")
WORLDS = (
    "MiniGrid-DoorKey-5x5-v0",
    "MiniGrid-KeyCorridorS3R1-v0",
    "BabyAI-MixedTrainLocal-v0",
    "Recall-v0",
)


def played(names, home, **variables):
    environment = {key: value for key, value in os.environ.items() if key != "NETHACKOPTIONS"}
    environment |= {"PYTHONPATH": str(REPOSITORY), "HOME": str(home), **variables}
    done = subprocess.run(
        [sys.executable, "-c", PLAY, *names],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.splitlines()) == len(names)
    return done.stdout


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return played(GAMES, tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("moment", [NEW_MOON, FRIDAY])
def test_the_games_do_not_see_the_clock(moment, usual, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source = tmp_path / "clock.c"
    library = tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    assert played(GAMES, tmp_path, LD_PRELOAD=str(library), TOLD_TIME=moment) == usual


def test_the_games_do_not_read_the_users_settings(usual, tmp_path):
    (tmp_path / ".nethackrc").write_text(
        "OPTIONS=role:wiz,race:elf,pettype:none,!autopickup,symset:IBMgraphics\n"
    )
    assert (
        played(GAMES, tmp_path, NETHACKOPTIONS="role:sam,name:Other,pettype:dog,!number_pad")
        == usual
    )


@pytest.mark.slow
def test_no_world_depends_on_the_order_of_hashes(tmp_path):
    digests = {
        played((*WORLDS, GAMES[2]), tmp_path, PYTHONHASHSEED=seed) for seed in ("0", "1", "4242")
    }
    assert len(digests) == 1
