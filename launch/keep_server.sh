#!/usr/bin/env bash
# Keeps a language model's server running beside a training; started by `keep_server` of launch/llm.sh.
#
#   keep_server.sh PYTHON LOG URL MODEL COMMAND...
#
# Standard input is what it hangs by: it ends the server when that is closed. Lines on it:
#   answered       the server has answered; from now on it is started again when it dies (before, its death ends this too)
#   training PID   ended, and waited for, before the server
# Started again: after 1 s, and twice as long after each death in a row, at most 60 s. A server that has answered no question
# of LLM_CHECKS (3) in a row, one every LLM_CHECK_SECONDS (60) with as much time as LLM_ANSWER_SECONDS (300), is killed.
set -uo pipefail
python=$1 log=$2 url=$3 model=$4
shift 4
. "$(dirname "${BASH_SOURCE[0]}")/llm.sh"
# Ctrl-C is the training's, which saves; the server is ended after it. (A signal that is ignored would stay so in the server.)
trap : INT HUP TERM USR1

server='' training='' answered=no starts=0 delay=1 start_at=0 check='' unanswered=0

start() {
  starts=$((starts + 1)) check_at=$((SECONDS + ${LLM_CHECK_SECONDS:-60})) unanswered=0
  # In a group of its own, so that all of its processes can be ended.
  setsid "${command[@]}" >>"$log" 2>&1 </dev/null &
  server=$!
  # Whoever ends it at once finds the group.
  until kill -0 -- "-$server" 2>/dev/null || ! kill -0 "$server" 2>/dev/null; do sleep 0.01; done
}

# Ends the server's whole group: asks, and does not ask twice.
end() {
  local patience=$((SECONDS + ${1:-20}))
  kill -TERM -- "-$server" 2>/dev/null
  while kill -0 -- "-$server" 2>/dev/null && [ "$SECONDS" -lt "$patience" ]; do sleep 0.1; done
  kill -KILL -- "-$server" 2>/dev/null
  wait "$server" 2>/dev/null
}

say() { printf '%s: %s\n' "$(date '+%H:%M:%S')" "$*" | tee -a "$log" >&2; }

command=("$@")
start
while true; do
  if read -r -t 1 word pid; then
    case $word in
      answered) answered=yes ;;
      training) training=$pid ;;
    esac
    continue
  elif [ $? -le 128 ]; then
    break  # the script that started this is gone
  fi
  if [ -z "$server" ]; then
    [ "$SECONDS" -lt "$start_at" ] || start
  elif ! kill -0 "$server" 2>/dev/null; then
    wait "$server"
    code=$?
    end 0  # what it has left
    server='' check=''
    [ "$answered" = yes ] || exit 1
    start_at=$((SECONDS + delay))
    say "the server of $model ended with $code: started again in $delay s ($starts so far)"
    delay=$((delay < 30 ? 2 * delay : 60))
  elif [ -n "$check" ]; then
    kill -0 "$check" 2>/dev/null && continue
    if wait "$check"; then
      unanswered=0 delay=1
    elif [ "$answered" = yes ]; then
      unanswered=$((unanswered + 1))
    fi
    check=''
    if [ "$unanswered" -ge "${LLM_CHECKS:-3}" ]; then
      say "the server of $model runs and does not answer: killed"
      end 5
    fi
  elif [ "$answered" = yes ] && [ "$SECONDS" -ge "$check_at" ]; then
    check_at=$((SECONDS + ${LLM_CHECK_SECONDS:-60}))
    ask "$url" "$model" "${LLM_ANSWER_SECONDS:-300}" 2>/dev/null </dev/null &
    check=$!
  fi
done
if [ -n "$training" ]; then
  # Asked again every 5 s: bash loses a signal that comes just after it has forked, and a training only notes each of them.
  for ((waited = 0; ; waited++)); do
    kill -0 "$training" 2>/dev/null || break
    [ $((waited % 50)) -ne 0 ] || kill -TERM "$training" 2>/dev/null
    sleep 0.1
  done
fi
[ -z "$check" ] || kill "$check" 2>/dev/null
[ -z "$server" ] || end
