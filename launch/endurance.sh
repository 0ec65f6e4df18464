#!/usr/bin/env bash
# Runs every long stage for a while at full load and watches memory, threads, files and disk of all its processes
# (benchmark.py:endurance; docs/reliability.md has what came of it).
#
#   bash launch/endurance.sh [MINUTES] [STAGE...]        15 minutes of each stage; a line each in runs/endurance/endurance.jsonl
#   bash launch/endurance.sh --together 4 60 oni         several side by side, where there are cores for them
#
# It works on what the three quick runs made: launch/quickstart.sh, quickstart_glam.sh and quickstart_ilql.sh first.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$repository"

make_environment "$repository/.venv"
install_package "$repository/.venv" "[test]"
exec "$repository/.venv/bin/python" tests/endurance.py "$@"
