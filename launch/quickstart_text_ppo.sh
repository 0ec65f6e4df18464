#!/usr/bin/env bash
# PPO of free text from an empty clone to a report, on 2 cores without a GPU: games of Wordle with 30 words by a noisy expert, whose commonest
# guess is a bad one; an agent that imitates them (behaviour cloning); the same one trained on by PPO, which plays, writes its guesses letter
# by letter and learns from what they bring; 1,024 seeded games each of it, of the clone sampled and greedy, of the data's policy, and as
# yardsticks words that fit and the expert.
#
#   bash launch/quickstart_text_ppo.sh [FOLDER]      FOLDER: where everything goes, runs/quickstart_text_ppo by default
#
# It ends with 0 if the 95 % interval of the mean return (-1 a guess) after PPO lies wholly above those of the clone, sampled and greedy, and of
# the data's policy; else with 1, and says so. The agent is sampled, as it was while it learned.
#
# Stop it anywhere and run it again: every stage resumes, and a finished one says so at once.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 1 "$@"
runs=$(folder_of "${1:-}" runs/quickstart_text_ppo)
cd "$repository"

make_environment "$repository/.venv"
install_package "$repository/.venv" ""

words=${QUICKSTART_WORDS:-30}
seed=${QUICKSTART_SEED:-1}
games=${QUICKSTART_GAMES:-16000}
bc_steps=${QUICKSTART_BC_STEPS:-400}
ppo_steps=${QUICKSTART_PPO_STEPS:-60}
# Games that no training meets.
evaluation_seed=${QUICKSTART_EVALUATION_SEED:-77003}
noisy_expert='mixture(0.4, optimal, repeat(optimal))'

evaluate() {
  local name=$1
  shift
  stage evaluate_text.py:wordle "$runs/evaluate_$name" --config.seed="$evaluation_seed" "$@"
}

stage collect_text.py:wordle "$runs/games" --config.num_dialogues="$games" --config.policy="$noisy_expert" \
  --config.wordle.num_words="$words" --config.seed="$seed"
stage train_text.py:wordle_bc "$runs/bc" --config.data="$runs/games" --config.seed="$seed" \
  --config.network.width=64 --config.network.layers=2 --config.network.heads=4 --config.network.max_length=96 --config.dropout=0.0 \
  --config.length_buckets=False --config.max_steps="$bc_steps" --config.optimizer.learning_rate=3e-3 \
  --config.optimizer.schedule=cosine --config.optimizer.warmup_steps=50
stage train_text.py:wordle_ppo "$runs/ppo" --config.initial.policy="$runs/bc" --config.seed="$seed" \
  --config.max_steps="$ppo_steps" --config.ppo.epochs=2 --config.optimizer.learning_rate=3e-4

evaluate ppo --config.agent="$runs/ppo" --config.decode.kind=sample
for kind in sample greedy; do
  evaluate "bc_$kind" --config.agent="$runs/bc" --config.decode.kind="$kind"
done
evaluate data --config.agent="$runs/bc" --config.policy="$noisy_expert"
evaluate fitting --config.agent="$runs/bc" --config.policy=fitting
evaluate expert --config.agent="$runs/bc" --config.policy=optimal

listed() { local IFS=,; printf '%s' "${*/#/$runs/evaluate_}"; }
stage report.py "$runs/report" --config.title="PPO of free text" --config.text.dir="$runs/ppo" --config.first_must_lead=True \
  --config.evaluations="$(listed ppo bc_sample bc_greedy data)" --config.yardsticks="$(listed fitting expert)"
