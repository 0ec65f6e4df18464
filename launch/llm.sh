# Sourced by the scripts that run a language model's server beside a training. Needs `python` to be set.

asking='' keeper=''

# python_of NAME: the path of that Python as the caller means it, whose own folder need not be the repository: to be asked before
# the script goes there. Fails with one line where there is none.
python_of() {
  local path
  if ! path=$(type -P "$1") || ! "$path" -c '' 2>/dev/null; then
    echo "error: PYTHON=$1: must be a Python; give another: PYTHON=FILE" >&2
    return 2
  fi
  case $path in /*) ;; *) path=$PWD/$path ;; esac
  printf '%s\n' "$path"
}

# is_free PORT: whether a server can listen there, on this machine.
is_free() {
  "$python" -c 'import socket, sys; socket.create_server(("127.0.0.1", int(sys.argv[1])))' "$1" 2>/dev/null
}

# free_port: 8000, or where somebody listens there another one: above those that Linux gives to outgoing connections, which could
# take it before the server does, and below those where the hosts of Slurm's jobs meet (jax takes one from 61440 on).
free_port() {
  "$python" - <<'PY'
import random
import socket
import sys

others = range(61_000, 61_440)
for port in (8000, *random.sample(others, len(others))):
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        continue
    print(port)
    break
else:
    sys.exit("error: somebody listens at every port from 61000 to 61439; give one: PORT=N")
PY
}

# ask URL MODEL SECONDS: asks the server one question; fails unless it answers within that time. Only an answer proves that
# a server works: vLLM's health and model pages keep answering while its engine hangs.
ask() {
  "$python" - "$@" <<'PY'
import json
import sys
import urllib.request

url, model, seconds = sys.argv[1:4]
question = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Say yes."}]}
request = urllib.request.Request(
    f"{url}/chat/completions", json.dumps(question).encode(), {"Content-Type": "application/json"}
)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    with opener.open(request, timeout=float(seconds)) as reply:
        json.load(reply)["choices"][0]["message"]
except Exception as error:
    sys.exit(f"no answer: {type(error).__name__}: {error}")
PY
}

# keep_server LOG URL MODEL COMMAND...: starts the server with that command, in a process of its own that starts it again
# when it dies or stops answering, and ends it when this shell is gone, however it went. Descriptor 9 is the thread that
# both hang by: nothing else may hold it (see `without_thread`).
keep_server() {
  exec 9> >(exec setsid bash "$(dirname "${BASH_SOURCE[0]}")/keep_server.sh" "$python" "$@")
  keeper=$!
}

# without_thread COMMAND...: becomes the command, without descriptor 9.
without_thread() {
  exec 9>&-
  exec "$@"
}

# await_answer LOG URL MODEL: returns when the server has answered a question. It ends the script where the server has died
# or LLM_WAIT_SECONDS (3600) have passed.
await_answer() {
  local deadline=$((SECONDS + ${LLM_WAIT_SECONDS:-3600}))
  echo "waiting for the first answer of $3 at $2 (its log: $1)" >&2
  while true; do
    # In the background: bash acts on a signal only between commands, or while it waits.
    ask "$2" "$3" 60 2>/dev/null 9>&- &
    asking=$!
    # Whoever answers while the server is gone is another one.
    if wait "$asking" && kill -0 "$keeper" 2>/dev/null; then break; fi
    if ! kill -0 "$keeper" 2>/dev/null; then
      echo "error: the server of $3 ended before its first answer; the end of $1:" >&2
      tail -n 20 "$1" >&2
      exit 2
    fi
    if [ "$SECONDS" -ge "$deadline" ]; then
      echo "error: the server of $3 has not answered a question within LLM_WAIT_SECONDS=${LLM_WAIT_SECONDS:-3600}; see $1" >&2
      exit 2
    fi
    sleep "${LLM_POLL_SECONDS:-2}" 9>&- &
    asking=$!
    wait "$asking" || true
  done
  asking=''
  echo "$3 answers" >&2
  echo answered >&9
}

# end_server: ends the server, where one was started, and waits until it is gone. The keeper does the same when this shell dies.
end_server() {
  exec 9>&-
  [ -z "$asking" ] || kill "$asking" 2>/dev/null || true
  [ -n "$keeper" ] || return 0
  while kill -0 "$keeper" 2>/dev/null; do sleep 0.1; done
}
