#!/usr/bin/env bash
# ILQL from an empty clone to a report, in some 10 minutes on 2 quiet cores without a GPU: games of Wordle by a noisy expert, whose
# commonest guess is a bad one; an agent that imitates them (behaviour cloning), one that imitates the best fifth of them (%BC); ILQL
# started from the first; 1,024 seeded games each of the data's policy, both imitators sampled and greedy, ILQL greedy and sampled, and as
# yardsticks words that fit and the expert.
#
#   bash launch/quickstart_ilql.sh [FOLDER]      FOLDER: where everything goes, runs/quickstart_ilql by default
#
# It ends with 0 if the 95 % interval of ILQL's mean return lies wholly above those of the data's policy and of both imitators, sampled
# and greedy; else with 1, and says so. The return, -1 a guess, is what is learned. The share of games won is printed beside it, with
# repeated guesses: a greedy agent that guesses a word again loses its game, a sampled one leaves the loop.
# Learning rates and the targets' pace are larger than the published ones, as the training is a thousand times shorter. How ILQL is judged
# was fixed before any of these games: as published for Wordle, greedy, weight 16, clip 0.
#
# Stop it anywhere and run it again: every stage resumes, and a finished one says so at once.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 1 "$@"
runs=$(folder_of "${1:-}" runs/quickstart_ilql)
cd "$repository"

make_environment "$repository/.venv"
install_package "$repository/.venv" ""

words=${QUICKSTART_WORDS:-100}
seed=${QUICKSTART_SEED:-1}
# More words need more of these three (docs/ilql.md).
games=${QUICKSTART_GAMES:-16000}
bc_steps=${QUICKSTART_BC_STEPS:-900}
ilql_steps=${QUICKSTART_ILQL_STEPS:-1000}
# Games that no training meets.
evaluation_seed=${QUICKSTART_EVALUATION_SEED:-77003}
noisy_expert='mixture(0.4, optimal, repeat(optimal))'

train() {
  local method=$1
  shift
  stage "train_text.py:wordle_$method" "$runs/$method" --config.data="$runs/games" --config.seed="$seed" \
    --config.network.width=96 --config.network.layers=3 --config.network.heads=4 --config.network.max_length=128 \
    --config.dropout=0.0 --config.length_buckets=False --config.optimizer.schedule=cosine --config.optimizer.warmup_steps=50 "$@"
}

evaluate() {
  local name=$1
  shift
  stage evaluate_text.py:wordle "$runs/evaluate_$name" --config.seed="$evaluation_seed" "$@"
}

stage collect_text.py:wordle "$runs/games" --config.num_dialogues="$games" --config.policy="$noisy_expert" \
  --config.wordle.num_words="$words" --config.seed="$seed"
train bc --config.max_steps="$bc_steps" --config.optimizer.learning_rate=3e-3
train bc_top --config.max_steps="$bc_steps" --config.optimizer.learning_rate=3e-3
train ilql --config.initial.policy="$runs/bc" --config.initial.value="$runs/bc" --config.loss.policy=0.0 --config.loss.cql=0.01 \
  --config.max_steps="$ilql_steps" --config.optimizer.learning_rate=1e-3 --config.method.polyak=0.1 --config.method.expectile=0.8

evaluate ilql --config.agent="$runs/ilql"
evaluate ilql_sampled --config.agent="$runs/ilql" --config.decode.kind=sample
evaluate data --config.agent="$runs/ilql" --config.policy="$noisy_expert"
for imitator in bc bc_top; do
  evaluate "${imitator}_sampled" --config.agent="$runs/$imitator" --config.decode.kind=sample --config.decode.advantages=False
  evaluate "${imitator}_greedy" --config.agent="$runs/$imitator" --config.decode.kind=greedy --config.decode.advantages=False
done
evaluate fitting --config.agent="$runs/ilql" --config.policy=fitting
evaluate expert --config.agent="$runs/ilql" --config.policy=optimal

listed() { local IFS=,; printf '%s' "${*/#/$runs/evaluate_}"; }
stage report.py "$runs/report" --config.title="ILQL quickstart" --config.text.dir="$runs/ilql" --config.first_must_lead=True \
  --config.evaluations="$(listed ilql data bc_sampled bc_greedy bc_top_sampled bc_top_greedy)" --config.yardsticks="$(listed ilql_sampled fitting expert)"
