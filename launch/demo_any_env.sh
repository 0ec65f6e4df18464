#!/usr/bin/env bash
# A sparse task that its own reward does not teach and captions do: DoorKey-8x8 of minigrid, from nothing to the curve. Random play in a
# small level, a judge of eight lines, a reward, and two agents of 250,000 steps, by the task's reward and by both; 5 minutes on 2 quiet cores.
#
#   bash launch/demo_any_env.sh [FOLDER]      FOLDER: where everything goes, runs/any_env by default
#
# Ends with exit code 1 where both rewards do not succeed more often than the task's alone by 0.3 (95 % interval of the paired
# difference over 200 games that no training meets). Stop it anywhere and run it again.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 1 "$@"
runs=$(folder_of "${1:-}" runs/any_env)
cd "$repository"

make_environment "$repository/.venv"
install_package "$repository/.venv" ""

study=$runs/study seed=${ANY_ENV_SEED:-11}
stage docs/studies/minigrid.py:demo "$study" --config.seed="$seed"
printf '\ncurve: %s\nwatch the agent: .venv/bin/python -m motif_jax.launch --config=configs/visualize.py --workdir=%s --config.policy=agent --config.agent.dir=%s\n' \
  "$study/study.html" "$runs/film" "$study/doorkey_both-$seed"
