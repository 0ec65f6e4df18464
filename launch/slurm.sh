# Sourced by the Slurm files beside it.

# hosts_layout TASKS: sets `layout` to the flag of a run of several processes, TASKS on every node.
hosts_layout() {
  layout=()
  [ $(($1 * ${SLURM_JOB_NUM_NODES:-1})) -eq 1 ] || layout+=(--config.hosts.coordinator=slurm)
}

# agent_layout TASKS: sets `layout` to the flags that spread an agent's training over the GPUs and cores that each of a
# node's TASKS processes has. Every GPU acts for equally many actor processes. Two cores are left for the threads that feed
# GPUs, without a GPU one for the learner, as config.actors.workers does by default. The cores
# are those that Slurm gave: where it does not bind processes to them, each process sees all of its node's.
agent_layout() {
  local gpus=${SLURM_GPUS_ON_NODE:-0} cores=${SLURM_CPUS_PER_TASK:-} other_cores=1 workers
  gpus=$((gpus / $1))
  [ "$gpus" -eq 0 ] || other_cores=2
  hosts_layout "$1"
  if [ "$gpus" -gt 1 ]; then
    layout+=(--config.devices.learner=all --config.devices.actor=all)
  else
    gpus=1
  fi
  [ -n "$cores" ] || return 0
  workers=$(((cores - other_cores) / gpus * gpus))
  [ "$workers" -ge "$gpus" ] || workers=$gpus
  layout+=(--config.actors.workers="$workers")
}

# step_of TASKS: sets `step` to the command that starts TASKS processes on every node as a step of the job: that is where
# Slurm's own SIGTERM goes (pre-emption, scancel). Each process has its share of the node's GPUs. srun passes USR1 on; of TERM and HUP
# it makes a KILL.
# It must not kill processes that still leave when the first one has left: the hosts of a run end together by themselves.
step_of() {
  local gpus=${SLURM_GPUS_ON_NODE:-0}
  step=()
  if [ $((gpus % $1)) -ne 0 ]; then
    echo "error: the node's $gpus GPUs do not divide over its $1 processes: give sbatch --ntasks-per-node=$gpus," \
      "a process for each GPU" >&2
    exit 2
  fi
  gpus=$((gpus / $1))
  if ! command -v srun >/dev/null; then
    [ "$1" -eq 1 ] && return 0
    echo "error: $1 processes on a node need srun, which is not there" >&2
    exit 2
  fi
  step=(srun --ntasks-per-node="$1" --kill-on-bad-exit=0)
  [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ] || step+=(--ntasks="$1")
  [ -z "${SLURM_CPUS_PER_TASK:-}" ] || step+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
  [ "$1" -eq 1 ] || [ "$gpus" -eq 0 ] || step+=(--gpus-per-task="$gpus")
}

# run_stage WORKDIR COMMAND...: runs a stage and ends with its exit code, after it has queued the job again where that
# helps:
# - Slurm's USR1 ahead of the end of the job's time: the stage saves and ends with 75; the job is queued again.
# - Slurm's TERM (pre-emption, scancel), which may reach the stage alone: it saves too. A job that is pre-empted with time to
#   save (Slurm's GraceTime) has ended by itself before Slurm would queue it again, so it is queued again here. Nobody wants a cancelled one back.
# - The stage died (a host was lost, memory ran out): the job is queued again, unless it is the (MAX_RESTARTS + 1)th time
#   (the fourth) since it last came to an orderly end. WORKDIR/crashes counts, for this job alone.
# - 2, something to put right: the log says what in one line, and the job ends.
run_stage() {
  local stage='' code=0 requeue=no interrupted=no workdir=$1 stop=TERM
  shift
  # What a stage takes for a TERM.
  [ "$1" != srun ] || stop=USR1
  slurm_signal=none
  # Before there is a stage: a signal that comes while it is started would end this shell.
  trap 'slurm_signal=USR1 interrupted=yes; pass_on "$stop" "$stage"' USR1
  trap 'slurm_signal=TERM interrupted=yes; pass_on "$stop" "$stage"' TERM
  # In the background: bash acts on a signal only between commands, or while it waits.
  "$@" &
  stage=$!
  # As a TERM, whichever it was: a process that bash has just forked loses others.
  [ "$slurm_signal" = none ] || kill -TERM "$stage" 2>/dev/null || true
  # A signal ends `wait` early, with a code of its own. (bash keeps that of a stage which has ended.)
  while true; do
    interrupted=no
    wait "$stage" && code=0 || code=$?
    [ "$interrupted" = yes ] || break
  done
  trap - USR1 TERM

  case $code in 0 | 75) rm -f "$workdir/crashes" ;; esac
  # 143: ended by TERM before it could answer.
  case $slurm_signal:$code in
    *:0 | *:2) ;;
    TERM:* | none:75 | none:143) if preempted; then requeue=yes; fi ;;
    USR1:*) requeue=yes ;;
    *) if count_crash "$workdir"; then requeue=yes; fi ;;
  esac
  if [ "$requeue" = yes ] && [ -n "${SLURM_JOB_ID:-}" ]; then
    queue_again "the stage ended with $code"
  fi
  exit "$code"
}

# queue_again WHY: queues the job again.
queue_again() {
  printf '%s: queued again; it resumes where it was\n' "$1" >&2
  scontrol requeue "$(job_number)"
}

# job_number: prints the number of this job, or of this task of an array.
job_number() {
  printf '%s' "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
}

# preempted: whether Slurm is about to take the node from this job, which still runs.
preempted() {
  local job
  [ -n "${SLURM_JOB_ID:-}" ] || return 1
  job=$(scontrol show job "$(job_number)" 2>/dev/null) || return 1
  [[ "$job" == *JobState=RUNNING* && "$job" == *PreemptTime=[0-9]* ]]
}

# pass_on SIGNAL PROCESS: has the process stop; '' is none yet.
pass_on() {
  [ -z "$2" ] || kill -"$1" "$2" 2>/dev/null || true
}

# count_crash WORKDIR: counts one more crash of this job; fails if there have been too many.
count_crash() {
  local job=${SLURM_JOB_ID:-none} counted_job='' crashes=0
  if [ -f "$1/crashes" ]; then
    read -r counted_job crashes <"$1/crashes" || true
  fi
  [ "$counted_job" = "$job" ] || crashes=0
  mkdir -p "$1"
  printf '%s %s\n' "$job" $((crashes + 1)) >"$1/crashes"
  [ "$crashes" -lt "${MAX_RESTARTS:-3}" ]
}
