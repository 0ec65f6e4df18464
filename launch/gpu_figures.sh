#!/usr/bin/env bash
# Takes the figures of a machine with a GPU: what the table of docs/performance.md is made of. Each is a benchmark with a limit of time,
# and a line at the end of figures.jsonl. One that is late ends alone, with what it had measured by then.
#
#   bash launch/gpu_figures.sh agents          games, training, learner and inference: at most 9 minutes
#   bash launch/gpu_figures.sh language        language programs, compiled side by side, then measured: at most 8 minutes
#   python launch/gpu_table.py figures.jsonl   writes the table
#
#   OUT=runs/gpu_figures    folder of figures.jsonl and logs.tar.gz
#   REWARD=DIR              run folder of train_reward on NetHack; without it no training with the intrinsic reward is measured
#   PYTHON=python3          interpreter that has what motif_jax needs
#   TINY=1                  tiny sizes on any machine, into OUT/tiny: tries the script, not the machine
#
# It needs no network. Wheels in .gpu_wheels/ (launch/gpu_wheels.sh downloads them) are installed beside what PYTHON has. Where a tool
# copies the checkout to a lent machine, git ignores them and REWARD, which must be named:
#
#   run(command="REWARD=runs/reward bash launch/gpu_figures.sh agents", carry=[".gpu_wheels", "runs/reward"], timeout_s=600)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
at_most 1 "$@"
plan=${1:-}
case $plan in agents | language) ;; *) die "give agents or language, the figures that are wanted: bash $0 --help says more" ;; esac
tiny=${TINY:-}
if [ -z "$tiny" ]; then
  # A driver that hangs must not take the whole call.
  timeout -k 1 20 nvidia-smi -L >/dev/null 2>&1 || die "nvidia-smi lists no GPU here; TINY=1 tries the script without one"
  # Else jax takes the CPU where its plugin for the GPU is missing, and no benchmark would be done in its time.
  export JAX_PLATFORMS=cuda,cpu
fi
out=$(folder_of "${OUT:-}" runs/gpu_figures)${tiny:+/tiny}
reward=${REWARD:+$(folder_of "$REWARD" '')}
cd "$repository"
[ -z "$reward" ] || [ -e "$reward" ] || die "REWARD=$reward: there is no such folder"
python=${PYTHON:-python3}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/gpu_figures.XXXXXX")
mkdir "$work/logs"

# Also where the call is ended from outside: what runs ends, too, and the logs are kept.
finish() {
  local running
  running=$(jobs -p)
  # shellcheck disable=SC2086  # several numbers
  [ -z "$running" ] || kill $running 2>/dev/null || true
  wait
  if [ -d "$out" ]; then tar -czf "$out/logs.tar.gz" -C "$work" logs; fi
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

path=$repository
wheels=(.gpu_wheels/*.whl)
if [ -e "${wheels[0]}" ]; then
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --disable-pip-version-check \
    --target "$work/site" "${wheels[@]}"
  path=$work/site:$path
fi
export PYTHONPATH=$path${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
# Once, since each benchmark would fail for itself, in minutes that are lent.
problem=$("$python" -c 'import jax, minigrid, ml_collections, nle, tensorboardX; jax.devices()' 2>&1) \
  || die "$(tail -1 <<<"$problem"): what is missing comes from .gpu_wheels/, which launch/gpu_wheels.sh makes"

mkdir -p "$out"
# A first start fills it, a second one of the same program reads it.
export JAX_COMPILATION_CACHE_DIR=$work/compiled JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.3
# Before 10 minutes are over, everything has ended. Bash counts SECONDS from the script's start.
last_second=${TINY:+3600}
last_second=${last_second:-570}

# item NAME LIMIT BENCHMARK KEY=VALUE...: runs configs/benchmark.py:BENCHMARK for at most LIMIT seconds, and appends its line. It is
# called in the background, with a wait where nothing may run beside it: bash obeys no signal before what it runs in front has ended.
item() {
  local name=$1 limit=$2 benchmark=$3 code=124 began=$SECONDS log=$work/logs/$1.log figures rest='}'
  shift 3
  [ -z "$tiny" ] || limit=$((10 * limit))
  [ "$limit" -le $((last_second - began)) ] || limit=$((last_second - began))
  if [ "$limit" -ge 10 ]; then
    code=0
    # Before it starts: an item that ends in between would leave it running.
    trap 'kill $! 2>/dev/null || true' EXIT
    trap 'exit 143' TERM
    timeout -k 5 "$limit" "$python" -m motif_jax.launch --config="configs/benchmark.py:$benchmark" "${@/#/--config.}" >"$log" 2>&1 &
    wait $! || code=$?
  fi
  # Also of one that was late: benchmarks print early what they have measured.
  figures=$(grep -s '^{"benchmark"' "$log" | tail -1) || true
  [ -z "$figures" ] || rest=", ${figures#?}"
  printf '{"item": "%s", "date": "%s", "seconds": %d, "limit": %d, "code": %d%s\n' \
    "$name" "$(date +%F)" $((SECONDS - began)) "$limit" "$code" "$rest" | tee -a "$out/figures.jsonl"
}

# alone NAME LIMIT BENCHMARK KEY=VALUE...: an item with nothing beside it.
alone() {
  item "$@" &
  wait $!
}

agents() {
  local size=() with_reward
  [ -z "$tiny" ] || size=(options.network=quickstart options.workers=1 options.envs_per_worker=8 options.batch_size=64 options.rollout=16
    options.dtype=float32)
  local games=(options.envs_per_worker=80 options.steps=400 options.turn=100)
  [ -z "$tiny" ] || games=(options.workers=1 options.envs_per_worker=8 options.steps=40 options.turn=20)
  alone games 45 actors repeats=1 "${games[@]}"
  local seconds=(options.seconds=5 options.warmup_seconds=5)
  local settled=(options.seconds=20 options.warmup_seconds=100)
  [ -z "$tiny" ] || seconds=(options.seconds=0.5 options.warmup_seconds=0.2) settled=(options.seconds=0.5 options.warmup_seconds=1)
  alone train 75 train_gpu repeats=1 "${size[@]}" "${seconds[@]}"
  if [ -n "$reward" ]; then
    # As many environments as give a batch, so that rollouts are young.
    with_reward=(options.batch_size=4096 options.reward_dir="$reward")
    alone train_reward 75 train_gpu repeats=1 "${with_reward[@]}" "${size[@]}" "${seconds[@]}"
    # A policy that has learned takes longer steps: see docs/performance.md.
    alone train_settled 190 train_gpu repeats=1 "${with_reward[@]}" "${size[@]}" "${settled[@]}"
  fi
  alone learner 50 learner_gpu repeats=3 "${size[@]}" options.seconds=1
  alone inference 50 inference_gpu repeats=3 "${size[@]}" options.seconds=0.25
}

programs=(language_update score generate text_train)

# options_of PROGRAM: our side of a language program alone.
options_of() {
  printf 'options.baseline=False '
  # The compilation of a whole step takes longer than the rest.
  [ "$1" != text_train ] || printf 'options.step=skip '
  [ -n "$tiny" ] || return 0
  case $1 in
    language_update)
      printf 'options.%s ' model=tiny_t5 prompt_tokens=16 batch_size=8 rollout=2 minibatch=4 microbatch=2 dtype=float32
      ;;
    score) printf 'options.%s ' model=tiny_t5 prompt_tokens=16 batch_size=2 dtype=float32 ;;
    generate) printf 'options.%s ' model=tiny_gpt2 prompt_tokens=16 batch_size=2 new_tokens=4 dtype=float32 ;;
    text_train) printf 'options.%s ' width=16 layers=1 vocabulary=64 batch_size=2 length=40 dtype=float32 ;;
  esac
}

language() {
  local name
  # Side by side: one after the other they leave no time for the rest. None takes all memory of the GPU at its start.
  for name in "${programs[@]}"; do
    # shellcheck disable=SC2086  # several options
    XLA_PYTHON_CLIENT_PREALLOCATE=false item "${name}_cold" 150 "${name}_gpu" repeats=1 options.seconds=0.1 $(options_of "$name") &
  done
  wait
  for name in "${programs[@]}"; do
    # shellcheck disable=SC2046
    alone "$name" 75 "${name}_gpu" repeats=3 options.seconds=0.7 $(options_of "$name")
  done
}

"$plan"
