#!/usr/bin/env bash
# Makes docs/examples/doorkey again: DoorKey's dataset, its reward as one file, and an agent without what only its training needs. About
# two minutes on 2 cores. The folder is an agent's, with its reward beside it, as it would go to a hub.
#
#   bash launch/doorkey_example.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 0 "$@"
cd "$repository"
make_environment "$repository/.venv"
install_package "$repository/.venv" ""

runs=runs/doorkey_example example=$runs/example made=docs/examples/doorkey
rm -rf "$runs"
stage collect.py:minigrid "$example/dataset"
stage annotate.py:minigrid "$runs/annotate" --config.dataset_dir="$example/dataset" --config.store_dir="$runs/answers"
stage train_reward.py:minigrid "$runs/reward" --config.dataset_dir="$example/dataset" --config.annotator=minigrid_msg_defaultgoal
stage export.py:reward "$runs/export" --config.reward.dir="$runs/reward"
cp "$runs/export/reward.safetensors" "$example"
stage train_agent.py:minigrid "$runs/agent" --config.reward.dir="$example/reward.safetensors"
sed "s#$example/#$made/#" "$runs/agent/config.json" > "$example/config.json"
cp "$runs/agent/plan.json" "$example"
rm -rf "$example"/dataset/{annotations,.lock,episodes.jsonl,versions.json}
.venv/bin/python - "$runs/agent/checkpoints" "$example/checkpoints" <<'EOF'
import sys
from motif_jax.core.checkpoints import ANY, JSON, Checkpoints

with Checkpoints(sys.argv[1], read_only=True) as trained, Checkpoints(sys.argv[2]) as example:
    step = trained.latest()
    example.save(step, trained.restore(step, {"params": ANY, "progress": JSON}), asynchronous=False)
EOF
rm -rf "$made"
mv "$example" "$made"
du -sh "$made"
