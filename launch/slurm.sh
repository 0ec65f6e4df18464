# Sourced by the Slurm files beside it.

# agent_layout TASKS: sets `layout` to the flags that spread an agent's training over the GPUs and cores that each of a
# node's TASKS processes has. Every GPU acts for equally many actor processes; a core is left for the learner.
agent_layout() {
  local gpus=$((${SLURM_GPUS_ON_NODE:-1} / $1)) cores=${SLURM_CPUS_PER_TASK:-}
  layout=()
  [ "$gpus" -gt 1 ] || return 0
  layout+=(--config.devices.learner=all --config.devices.actor=all)
  if [ -n "$cores" ] && [ "$cores" -gt "$gpus" ]; then
    layout+=(--config.actors.workers=$(((cores - 1) / gpus * gpus)))
  fi
}

# run_stage COMMAND...: runs a stage and ends with its exit code, after it has queued the job again where that helps:
# - Slurm's USR1 ahead of the end of the job's time: the stage saves and ends with 75; the job is queued again.
# - Slurm's TERM (pre-emption, scancel): the stage saves too. Slurm itself queues pre-empted jobs again, and nobody wants
#   a cancelled one back.
# - The stage died (a host was lost, memory ran out): the job is queued again, MAX_RESTARTS times (3) at most.
# - 2, something to put right: the log says what in one line, and the job ends.
run_stage() {
  local stage code=0 requeue=no
  slurm_signal=none
  # In the background: bash acts on a signal only between commands, or while it waits.
  "$@" &
  stage=$!
  trap 'slurm_signal=USR1; kill -USR1 "$stage" 2>/dev/null || true' USR1
  trap 'slurm_signal=TERM; kill -TERM "$stage" 2>/dev/null || true' TERM
  # A signal ends `wait` early; the stage is then still there.
  while true; do
    wait "$stage" && code=0 || code=$?
    kill -0 "$stage" 2>/dev/null || break
  done
  trap - USR1 TERM

  case $code in
    0 | 2) ;;
    75) requeue=yes ;;
    *) [ "${SLURM_RESTART_COUNT:-0}" -ge "${MAX_RESTARTS:-3}" ] || requeue=yes ;;
  esac
  if [ "$requeue" = yes ] && [ "$slurm_signal" != TERM ] && [ -n "${SLURM_JOB_ID:-}" ]; then
    printf 'the stage ended with %s: queued again, and it goes on where it was\n' "$code" >&2
    scontrol requeue "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
  fi
  exit "$code"
}
