#!/usr/bin/env bash
# A reward that is learned while the agent plays (ONI), on this machine's CPU, in 7 minutes on 2 cores, the installation included (20 beside six other programs):
# train with the lexicon as annotator, play held-out games as the agent and at random, check that the reward says what the annotator says, report.
#
#   bash launch/quickstart_oni.sh [FOLDER]      FOLDER: where everything goes, runs/quickstart_oni by default
#
# Stop it anywhere and run it again: every stage resumes, and a finished one says so at once. It ends with an error
# where reward and annotator agree on fewer than 95 % of the messages that were met at least 3 times.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 1 "$@"
runs=$(folder_of "${1:-}" runs/quickstart_oni)
cd "$repository"

make_environment "$repository/.venv"
install_package "$repository/.venv" ""

stage oni.py:quickstart "$runs/agent" --config.annotator.store_dir="$runs/answers"
for policy in agent random; do
  stage evaluate.py:quickstart "$runs/evaluate_$policy" --config.policy="$policy" --config.agent.dir="$runs/agent" \
    --config.reward.dir="$runs/agent" --config.seed=77003
done
stage check_reward.py:quickstart "$runs/check" --config.reward.dir="$runs/agent" --config.evaluation="$runs/evaluate_agent"
stage report.py:quickstart "$runs/report" --config.title="ONI quickstart" --config.agent.dir="$runs/agent" \
  --config.evaluations="$runs/evaluate_agent,$runs/evaluate_random"
