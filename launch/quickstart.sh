#!/usr/bin/env bash
# The whole job on this machine's CPU, from an empty clone to reports: collect games, annotate pairs of what was said in them, train a
# reward, train an agent with it, evaluate, report. First DoorKey from captions of its events, which an agent solves within 5 minutes on 2
# quiet cores, the set-up not counted; then NetHack, in 4 to 15 minutes more, from kept pairs of trained agents' play and a language
# model's answers about them.
#
#   bash launch/quickstart.sh [FOLDER]      FOLDER: where everything goes, runs/quickstart by default
#
# Each report ends with its agent beside random play on the same games: NetHack's is the last thing that is printed.
#
# Stop it anywhere and run it again: every stage resumes, and a finished one says so at once.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 1 "$@"
runs=$(folder_of "${1:-}" runs/quickstart)
cd "$repository"

make_environment "$repository/.venv"
install_package "$repository/.venv" ""

# Games for the final evaluation: seeds that nothing was tuned on and that training does not meet.
evaluation_seed=${QUICKSTART_EVALUATION_SEED:-77003}

# DoorKey: find the key, unlock the door, walk to the goal. Neither random play nor the task's reward alone gets there.
doorkey=$runs/doorkey
stage collect.py:minigrid "$doorkey/dataset"
stage annotate.py:minigrid "$doorkey/annotate" --config.dataset_dir="$doorkey/dataset" --config.store_dir="$runs/answers"
stage train_reward.py:minigrid "$doorkey/reward" --config.dataset_dir="$doorkey/dataset" \
  --config.annotator=minigrid_msg_defaultgoal
stage train_agent.py:minigrid "$doorkey/agent" --config.reward.dir="$doorkey/reward"
for policy in agent random; do
  stage evaluate.py:quickstart "$doorkey/evaluate_$policy" --config.policy="$policy" --config.agent.dir="$doorkey/agent" \
    --config.reward.dir="$doorkey/reward" --config.reward.threshold=auto --config.reward.pay=caused --config.seed="$evaluation_seed"
done
stage report.py:quickstart "$doorkey/report" --config.title="Motif quickstart: DoorKey" --config.dataset_dir="$doorkey/dataset" \
  --config.reward.dir="$doorkey/reward" --config.reward.threshold=auto --config.agent.dir="$doorkey/agent" \
  --config.evaluations="$doorkey/evaluate_agent,$doorkey/evaluate_random"
# The film of a game: its path is printed, the folder has it as a page besides.
stage visualize.py "$doorkey/film" --config.policy=agent --config.agent.dir="$doorkey/agent" --config.live=False \
  --config.forms.gif=True --config.seed="$evaluation_seed"

printf '\nNetHack\n'
# The labels of other annotators are written into a dataset's folder: a copy.
if [ ! -d "$runs/dataset" ]; then
  rm -rf "$runs/dataset.partial"
  cp -R docs/studies/judges/nethack_played "$runs/dataset.partial"
  mv "$runs/dataset.partial" "$runs/dataset"
fi
stage train_reward.py:quickstart "$runs/reward" --config.dataset_dir="$runs/dataset" --config.annotator=qwen15 --config.labels.soft=True
stage train_agent.py:laptop "$runs/agent" --config.reward.dir="$runs/reward" --config.train_for_env_steps=1000000
for policy in agent random; do
  stage evaluate.py:quickstart "$runs/evaluate_$policy" --config.policy="$policy" --config.agent.dir="$runs/agent" \
    --config.reward.dir="$runs/reward" --config.reward.by=sentence --config.seed="$evaluation_seed"
done
stage report.py:quickstart "$runs/report" --config.title="Motif quickstart: NetHack" --config.dataset_dir="$runs/dataset" \
  --config.reward.dir="$runs/reward" --config.agent.dir="$runs/agent" \
  --config.evaluations="$runs/evaluate_agent,$runs/evaluate_random"
