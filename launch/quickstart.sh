#!/usr/bin/env bash
# The whole job on this machine's CPU, from an empty clone to a report, in 4 to 15 minutes on 2 cores:
# collect NetHack games, annotate pairs of messages, train a reward, train an agent with it, evaluate, report.
#
#   bash launch/quickstart.sh [FOLDER]      FOLDER: where everything goes, runs/quickstart by default
#
# Stop it anywhere and run it again: every stage goes on where it was, and a finished one says so at once.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
runs=$(folder_of "${1:-}" runs/quickstart)
cd "$repository"

make_environment "$repository/.venv"
install_package "$repository/.venv" ""

# Games for the final evaluation: seeds that nothing was tuned on and that training does not meet.
evaluation_seed=${QUICKSTART_EVALUATION_SEED:-77003}

stage collect.py:quickstart "$runs/dataset"
stage annotate.py:quickstart "$runs/annotate" --config.dataset_dir="$runs/dataset" --config.store_dir="$runs/answers"
stage train_reward.py:quickstart "$runs/reward" --config.dataset_dir="$runs/dataset" \
  --config.annotator=lexicon_msg_defaultgoal
stage train_agent.py:quickstart "$runs/agent" --config.reward.dir="$runs/reward"
# Both play the games of the training: as many steps at most.
for policy in agent random; do
  stage evaluate.py:quickstart "$runs/evaluate_$policy" --config.policy="$policy" --config.agent.dir="$runs/agent" \
    --config.reward.dir="$runs/reward" --config.seed="$evaluation_seed" --config.environment.max_episode_steps=500
done
stage report.py:quickstart "$runs/report" --config.dataset_dir="$runs/dataset" --config.reward.dir="$runs/reward" \
  --config.agent.dir="$runs/agent" --config.evaluations="$runs/evaluate_agent,$runs/evaluate_random"
