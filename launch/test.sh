#!/usr/bin/env bash
# Sets up what the tests need and runs them: lint, types, tests. No GPU, no network but package registries. Where Chromium is missing,
# a root's run installs it by apt for the whole system, and says so before.
#
#   bash launch/test.sh            what a change must pass, 6 minutes on 2 cores
#   bash launch/test.sh --quick    without processes and stages, about 3 minutes
#   bash launch/test.sh --all      everything, vLLM and the examples included: before a release (tests/README.md)
#   bash launch/test.sh --no-apt   installs nothing by apt: without a Chromium the tests that open pages are skipped
#   bash launch/test.sh tests/envs -k replay    further arguments go to pytest
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$repository"

chosen=default
apt=yes
arguments=()  # for pytest
for argument in "$@"; do
  case $argument in
    --no-apt) apt=no ;;
    --quick | --all) chosen=${argument#--}; arguments+=("$argument") ;;
    *) arguments+=("$argument") ;;
  esac
done

make_environment "$repository/.venv"
install_package "$repository/.venv" "[test]"
# In a group of processes of their own, which ends with this script. What cannot be had is skipped by its tests, which say so.
set -m
trap 'kill -- ${setups[@]/#/-} 2>/dev/null || true' EXIT
setups=()
if [ "$chosen" != quick ] && [ "$apt" = yes ]; then bash launch/setup_browser.sh & setups+=($!); fi
if [ "$chosen" = all ]; then
  bash launch/setup_examples.sh & setups+=($!)
  bash launch/setup_vllm_cpu.sh & setups+=($!)
  bash launch/docs.sh --install & setups+=($!)
fi
set +m

export PATH="$repository/.venv/bin:$PATH"
# numpy's threads wait by spinning, which takes the processor from the other tests.
export OPENBLAS_NUM_THREADS=1
# Beside the tests, which on two cores leave mypy time while they are collected; what it says stands below theirs.
lint=$(mktemp)
{ ruff check . && ruff format --check . && mypy; } >"$lint" 2>&1 & linting=$!

for setup in ${setups[@]+"${setups[@]}"}; do
  wait "$setup" || echo "a part of the set-up failed: its tests will be skipped (with --all in CI, that is a failure)"
done
trap 'rm "$lint"' EXIT

# Three files of tests at a time on two cores, since many tests wait for processes, and five on larger machines. A person who
# chooses tests sees them run in this process.
workers=()
if [ ${#arguments[@]} -eq 0 ] || [ "${arguments[*]}" = --quick ] || [ "${arguments[*]}" = --all ]; then
  cores=$(python -c 'import os; print(len(os.sched_getaffinity(0)))')
  workers=(--numprocesses $((cores < 2 ? 0 : cores < 8 ? 3 : 5)) --dist worksteal)
fi
ended=0
python -m pytest ${workers[@]+"${workers[@]}"} ${arguments[@]+"${arguments[@]}"} || ended=$?
if [ "$chosen" = all ]; then
  # Once more as a training compiles them: tests leave the compiler's best out, which takes longer than their models run.
  JAX_DISABLE_MOST_OPTIMIZATIONS=0 python -m pytest ${workers[@]+"${workers[@]}"} --numeric || ended=$?
  # Of the environments here that of the examples alone has PyTorch.
  if [ -x .venv-examples/bin/python ]; then
    .venv-examples/bin/python -m pytest ${workers[@]+"${workers[@]}"} -m torch || ended=$?
  fi
fi
wait "$linting" || ended=1
cat "$lint"
exit "$ended"
