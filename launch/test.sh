#!/usr/bin/env bash
# Sets up what the tests need and runs all of them: lint, types, tests. No GPU, no network but package registries.
#
#   bash launch/test.sh            everything, at most 40 minutes on 2 cores
#   bash launch/test.sh --quick    without the slow ones, under 5 minutes
#   bash launch/test.sh tests/envs -k replay    further arguments go to pytest
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$repository"

quick=no
for argument in "$@"; do [ "$argument" = --quick ] && quick=yes; done

make_environment "$repository/.venv"
install_package "$repository/.venv" "[test]"
if [ "$quick" = no ]; then
  # Real vLLM on the CPU, the examples' libraries, and a browser for the pages. Where one cannot be had, its tests say so and are skipped.
  # vLLM, which takes longest, beside all else, in a group of processes that ends with this script.
  set -m
  bash launch/setup_vllm_cpu.sh &
  vllm=$!
  set +m
  trap 'kill -- "-$vllm" 2>/dev/null || true' EXIT
  bash launch/setup_examples.sh || echo "the tests of docs/examples with PyTorch will be skipped"
  bash launch/setup_browser.sh || echo "the browser tests will be skipped"
fi

export PATH="$repository/.venv/bin:$PATH"
ruff check .
ruff format --check .
mypy

if [ "$quick" = no ]; then
  wait "$vllm" || echo "the vLLM tests will be skipped (in CI that is a failure)"
  trap - EXIT
fi

# Two files of tests at a time, on larger machines four; a person who chooses tests sees them run in this process.
workers=()
if [ $# -eq 0 ] || [ "$*" = --quick ]; then
  cores=$(python -c 'import os; print(len(os.sched_getaffinity(0)))')
  workers=(--numprocesses $((cores < 2 ? 0 : cores < 8 ? 2 : 4)) --dist loadfile)
fi
exec python -m pytest ${workers[@]+"${workers[@]}"} "$@"
