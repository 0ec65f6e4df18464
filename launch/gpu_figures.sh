#!/usr/bin/env bash
# Takes the figures of a machine with a GPU: what docs/performance.md's table of GPUs is made of. Two calls of at most 440 s have all.
# Each item is one JSON line on stdout and in $OUT/figures.jsonl, with a limit of time of its own: one that is late ends alone.
#
#   bash launch/gpu_figures.sh --plan=agents            games, parts of an agent's training, a training of NetHack: 400 s
#   bash launch/gpu_figures.sh --plan=language          language programs cold and warm, GLAM's training, numeric tests: 440 s
#   bash launch/gpu_figures.sh --items=train,learner    these items (--help has all switches)
#   bash launch/gpu_figures.sh --apart --items=...      first starts of language programs one after the other
#   bash launch/gpu_figures.sh --tiny                   tiny sizes, to try the script itself on any machine; into $OUT/tiny
#   python launch/gpu_table.py figures.jsonl            writes the table
#
# It needs no network. Wheels in .gpu_wheels/ (launch/gpu_wheels.sh downloads them) are installed beside what the environment has in
# which it is called; without them that environment must have everything. PYTHON names its interpreter, OUT the folder of results.
#
# Where a tool copies the checkout to a lent machine, .gpu_wheels/ is ignored by git and must be named. The run folder of
# train_reward and the folder of a language model need not be made there where they are named, too:
#
#   run(command="bash launch/gpu_figures.sh --plan=agents --reward=runs/reward", carry=[".gpu_wheels", "runs/reward"], timeout_s=500)
#   run(command="bash launch/gpu_figures.sh --plan=language --model=runs/model", carry=[".gpu_wheels", "runs/model"], timeout_s=500)
#
# Its time limit must exceed the plan's seconds, else results that are packed at the end do not come back.
set -euo pipefail
repository=$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
case " $* " in *" --help "* | *" -h "*) exec "$python" "$repository/launch/gpu_figures.py" --help ;; esac
export OUT=${OUT:-$repository/runs/gpu_figures}
work=${GPU_FIGURES_WORK:-${TMPDIR:-/var/tmp}/gpu_figures-$(id -u)}
mkdir -p "$OUT" "$work"
# Relative paths begin in the folder of the caller, who need not be in the repository.
OUT=$(CDPATH="" cd -- "$OUT" && pwd)
work=$(CDPATH="" cd -- "$work" && pwd)
cd "$repository"

started=$(date +%s)
path=$repository
wheels=(.gpu_wheels/*.whl)
if [ -e "${wheels[0]}" ]; then
  # Of these wheels and this interpreter.
  kind=$({ printf '%s\n' "${wheels[@]}"; "$python" --version; } | cksum | cut -d' ' -f1)
  site=$work/site-$kind
  if [ ! -e "$site/.complete" ]; then
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade --disable-pip-version-check \
      --target "$site" "${wheels[@]}"
    touch "$site/.complete"
  fi
  path=$site:$path
fi
export PYTHONPATH=$path${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
# Each item would fail for itself, in minutes that are lent.
"$python" - "$@" <<'CHECK' || exit 2
import importlib, importlib.util, os, sys
for name in ("nle", "minigrid", "ml_collections", "tensorboardX", "jax"):
    try:
        importlib.import_module(name)
    except ImportError as error:
        sys.exit(f"error: {name} cannot be imported ({error}): make .gpu_wheels/ by launch/gpu_wheels.sh, and have it copied to this machine")
others = "absl chex flax gymnasium jinja2 numpy optax orbax psutil pyarrow rich safetensors tokenizers yaml".split()
missing = [name for name in others if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"error: not installed here: {', '.join(missing)}: add their packages to GPU_WHEELS of launch/gpu_wheels.sh")
# Without its plugin for the GPU jax takes the CPU, and no item would be done in its time.
if "--tiny" not in sys.argv and os.environ.get("JAX_PLATFORMS") != "cpu":
    import jax
    try:
        backend = jax.default_backend()
    except RuntimeError as error:
        sys.exit(f"error: jax cannot use the GPU: {' '.join(str(error).split())}")
    if backend != "gpu":
        sys.exit(f"error: jax sees no GPU here, only the {backend}: install jax[cuda12]; --tiny tries the script without one")
CHECK
exec "$python" launch/gpu_figures.py --work="$work" --out="$OUT" --started="$started" "$@"
