#!/usr/bin/env bash
# A language model learns to play, on this machine's CPU, from an empty clone to a report:
# play BabyAI-Text at random, relabel what was played in hindsight, make a small T5 of it, train that by PPO to find what its mission names,
# evaluate, ask what it would do in fixed situations, report.
#
#   bash launch/quickstart_glam.sh [FOLDER]      FOLDER: where everything goes, runs/quickstart_glam by default
#
# It holds if, on 400 episodes that nothing was tuned on, the trained model succeeds more often than random play, than the best shares of
# actions that read nothing (fitted on other episodes) and than itself with the prompts of another episode, by 0.15 at least and with
# intervals apart; and if its mean return, which counts steps, is above that before its training (paired difference, interval above 0).
# And its most likely action must be the right one where the goal is ahead, left and right. If not the script says so and ends with code 1.
# Stop it anywhere and run it again: every stage resumes, and a finished one says so at once.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 1 "$@"
runs=$(folder_of "${1:-}" runs/quickstart_glam)
cd "$repository"

make_environment "$repository/.venv"
install_package "$repository/.venv" ""

# Of text, model and training.
seed=${QUICKSTART_SEED:-1}
# Episodes for the final evaluation: seeds that nothing was tuned on and that training does not meet.
evaluation_seed=${QUICKSTART_EVALUATION_SEED:-77015}

stage collect_text.py:babyai "$runs/text" --config.seed="$seed"
stage pretrain_language_model.py:babyai "$runs/language" --config.seed="$seed" --config.texts="$runs/text"
stage train_language_agent.py:quickstart "$runs/agent" --config.seed="$seed" \
  --config.network.model="$runs/language/model"
# All play the same episodes.
played=(--config.agent.dir="$runs/agent" --config.episodes=400 --config.bot_agreement=True --config.seed="$evaluation_seed")
stage evaluate.py:quickstart "$runs/evaluate_agent" --config.policy=agent "${played[@]}"
stage evaluate.py:quickstart "$runs/evaluate_random" --config.policy=random "${played[@]}"
stage evaluate.py:quickstart "$runs/evaluate_fixed" --config.policy=fixed "${played[@]}"
stage evaluate.py:quickstart "$runs/evaluate_exchanged" --config.policy=agent --config.environment.change=other_episode "${played[@]}"
stage evaluate.py:quickstart "$runs/evaluate_before" --config.policy=agent --config.agent.checkpoint=0 "${played[@]}"
evaluations=$(printf ",%s" "$runs"/evaluate_{agent,random,fixed,exchanged,before})
stage report.py:quickstart "$runs/report" --config.title="GLAM quickstart" --config.language.dir="$runs/language" \
  --config.agent.dir="$runs/agent" --config.first_must_lead=True --config.lead=0.15 \
  --config.evaluations="${evaluations#,}"
stage probe_language_agent.py "$runs/probes" --config.policy="$runs/agent" --config.checkpoint=latest \
  --config.probes.prompts=configs/probes/babyai_directions.json --config.must_be_right=True
