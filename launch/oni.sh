#!/usr/bin/env bash
# Trains an agent whose reward a language model beside it gives (configs/oni.py): starts the model's server on this machine,
# waits until it has answered a question, trains, and ends both, however it comes to an end.
#
#   bash launch/oni.sh MODEL [FLAGS OF THE STAGE...]
#
# A server that dies, or stops answering, is started again; training continues meanwhile. Ctrl-C or SIGTERM: the training
# saves, and the same command resumes. Read from the environment: WORKDIR (runs/oni), CONFIG (configs/oni.py; a variant with a
# colon behind it), GPUS (1: so many serve the model, the others train; on a machine of one both share it), PORT (8000),
# PYTHON (.venv/bin/python where it is, else python), LLM_SERVER (a command of your own in place of launch/llm_server.sh,
# with its arguments), LLM_FLAGS (further flags of vLLM), LLM_WAIT_SECONDS (3600, for the first answer), LLM_CHECK_SECONDS,
# LLM_CHECKS and LLM_ANSWER_SECONDS (launch/keep_server.sh).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
. "$repository/launch/llm.sh"

[ -n "${1:-}" ] && [ "${1#-}" = "$1" ] || die "give a model: bash launch/oni.sh MODEL [FLAGS]"
model=${1%/} gpus=${GPUS:-1} port=${PORT:-8000}
workdir=$(folder_of "${WORKDIR:-}" runs/oni)
# A folder is where the caller says, whose own folder need not be the repository; any other name is the hub's.
[ ! -d "$model" ] || model=$(CDPATH="" cd -- "$model" && pwd)
python=${PYTHON:-python}
[ -n "${PYTHON:-}" ] || ! [ -x "$repository/.venv/bin/python" ] || python=$repository/.venv/bin/python
python=$(python_of "$python")
cd "$repository"
shift
name=${model##*/} url=http://127.0.0.1:$port/v1

is_free "$port" || die "PORT=$port: somebody listens there, or it is no port; give another: PORT=N bash launch/oni.sh $model"

# Who has which GPUs, where there are some.
visible=${CUDA_VISIBLE_DEVICES-$({ nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null || true; } | paste -sd, -)}
IFS=, read -r -a all <<<"$visible"
serving=() learning=() memory=()
if [ "$gpus" -gt 0 ] && [ "${#all[@]}" -gt "$gpus" ]; then
  serving=(CUDA_VISIBLE_DEVICES="$(IFS=,; echo "${all[*]:0:gpus}")")
  learning=(CUDA_VISIBLE_DEVICES="$(IFS=,; echo "${all[*]:gpus}")")
elif [ "$gpus" -gt 0 ] && [ "${#all[@]}" -gt 0 ]; then
  learning=(XLA_PYTHON_CLIENT_MEM_FRACTION="${XLA_PYTHON_CLIENT_MEM_FRACTION:-0.3}")
  memory=(--gpu-memory-utilization 0.6)
fi

mkdir -p "$workdir"
log=$workdir/llm_server.log
training='' early='' stopping='' stopped=''
# Whatever ends this script ends the training first, which saves, and then the server.
finish() {
  local code=$?
  trap '' INT TERM USR1 HUP
  if [ -n "$training" ] && kill -0 "$training" 2>/dev/null; then
    kill -TERM "$training" 2>/dev/null || true
    wait "$training" || true
  fi
  end_server
  exit "$code"
}
# Any signal is passed on as a TERM: a process that bash has just forked loses others. The second Ctrl-C is passed on as such: it
# ends a training that saves for too long.
pass_on() {
  if [ "$1" != INT ] || [ -z "$stopped" ]; then set -- TERM; fi
  stopping=$1 stopped=yes
  kill -"$1" "$training" 2>/dev/null || true
}
read -r -a flags <<<"${LLM_FLAGS:-}"
trap finish EXIT
trap 'exit 75' INT TERM HUP USR1
keep_server "$log" "$url" "$name" env ${serving[@]+"${serving[@]}"} \
  ${LLM_SERVER:-bash launch/llm_server.sh} "$model" "$gpus" "$port" ${memory[@]+"${memory[@]}"} ${flags[@]+"${flags[@]}"}
await_answer "$log" "$url" "$name"

# While the training is started, a signal is kept until there is something to end.
trap 'early=yes' INT TERM HUP USR1

# In the background: bash acts on a signal only between commands, or while it waits.
# In a session of its own: a terminal's Ctrl-C comes through this script alone.
# It tells the server's keeper itself, before it is anything: this script can be killed as soon as there is a training.
{
  echo "training $BASHPID" >&9
  without_thread setsid env ${learning[@]+"${learning[@]}"} "$python" -m motif_jax.launch --config="${CONFIG:-configs/oni.py}" \
    --workdir="$workdir" --config.annotator.kind=openai --config.annotator.openai.base_url="$url" \
    --config.annotator.openai.model="$name" "$@"
} &
training=$!
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM HUP USR1
[ -z "$early" ] || exit 75
# A signal ends `wait` early, with a code of its own.
while true; do
  stopping=''
  code=0
  wait "$training" || code=$?
  [ -n "$stopping" ] || break
done
training=''
exit "$code"
