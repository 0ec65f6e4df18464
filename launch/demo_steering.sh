#!/usr/bin/env bash
# Goals steer: one dataset, a reward for combat and one for gold, an agent of each, and the same 300 games for both and for random
# play; 15 minutes on 2 quiet cores.
#
#   bash launch/demo_steering.sh [FOLDER]      FOLDER: where everything goes, runs/steering by default
#
# Ends with exit code 1 where a claim does not hold (95 % intervals of the differences game by game): the combat agent kills more than
# the other two, the gold agent gathers more gold than the other two. Stop it anywhere and run it again.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 1 "$@"
runs=$(folder_of "${1:-}" runs/steering)
cd "$repository"

make_environment "$repository/.venv"
install_package "$repository/.venv" ""

stage docs/studies/steering.py:demo "$runs/study" --config.seed="${STEERING_SEED:-11}"
