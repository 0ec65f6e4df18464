# Sourced by the scripts beside it: makes and fills a Python environment of the project's own.
# The system's Python is only ever asked to make it. Needs `set -o pipefail` in the script that sources it.

# Images of containers often set it. Every command would then compile a thousand modules anew: 4 seconds of each start.
unset PYTHONDONTWRITEBYTECODE

repository=$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)  # with CDPATH set, cd prints the folder too

die() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

# `--help`, or `-h`, as the first argument of any script that sources this: the script's head, which says what it takes.
case ${1:-} in
  --help | -h)
    awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"
    exit 0
    ;;
esac

# at_most NUMBER "$@": ends a script that was given more arguments than it takes, before it removes or makes anything.
at_most() {
  local number=$1
  shift
  [ $# -le "$number" ] || die "${*:number + 1}: more than this script takes; bash $0 --help says what it takes"
}

# folder_of GIVEN DEFAULT: the folder that a script was given, as its caller means it, whose own folder need not be the repository.
# To be asked before the script goes there.
folder_of() {
  case $1 in
    '') printf '%s\n' "$2" ;;
    -*) die "a folder is expected in place of $1: bash $0 --help says what this script takes" ;;
    /*) printf '%s\n' "$1" ;;
    *) if [ "$PWD" -ef "$repository" ]; then printf '%s\n' "$1"; else printf '%s\n' "$PWD/$1"; fi ;;
  esac
}

# is_tested PYTHON: whether it is a Python of 3.11, 3.12 or 3.13, which the tests run with.
is_tested() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1; }

# The first Python that is tested (MOTIF_JAX_PYTHON chooses one of them).
find_python() {
  local candidate candidates=(python3.12 python3.11 python3.13 python3 python)
  [ -z "${MOTIF_JAX_PYTHON:-}" ] || candidates=("$MOTIF_JAX_PYTHON")
  for candidate in "${candidates[@]}"; do
    if is_tested "$candidate"; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  die "Python 3.11, 3.12 or 3.13 is needed and was not found${MOTIF_JAX_PYTHON:+ (MOTIF_JAX_PYTHON=$MOTIF_JAX_PYTHON)}: install one of them"
}

# can_lock FILE: whether there is anything to lock with, and anything to lock: who may not write the clone fills no environment in it.
can_lock() { command -v flock >/dev/null && [ -w "$1" ]; }

# one_at_a_time COMMAND...: the command, when no other script here makes or fills an environment (where the system has flock).
one_at_a_time() {
  local file=$repository/launch/requirements.txt
  if ! can_lock "$file"; then
    "$@"
    return
  fi
  # For writing, too, although nothing is written: NFS locks no file that is open for reading alone.
  { flock 8 && "$@"; } 8<>"$file"
}

# alone_with FILE: returns when no other script has FILE, and has it until this one ends (where the system has flock).
alone_with() {
  can_lock "$1" || return 0
  exec 9<>"$1"
  flock 9
}

# make_environment FOLDER: venv; without ensurepip (Debian's split) the pip that is there fills it; then virtualenv.
make_environment() { one_at_a_time _make_environment "$@"; }

_make_environment() {
  local folder=$1 python version messages
  if version=$("$folder/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) && ! is_tested "$folder/bin/python"; then
    die "$folder has Python $version, and 3.11, 3.12 or 3.13 is needed: remove that folder or give it another name, then start this again"
  fi
  if [ -x "$folder/bin/python" ] && "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    return 0
  fi
  # One that somebody made without pip, or whose making was killed, keeps what is in it.
  if [ -x "$folder/bin/python" ] && "$folder/bin/python" -m ensurepip >/dev/null 2>&1; then return 0; fi
  python=$(find_python) || exit 2
  rm -rf "$folder"
  if messages=$("$python" -m venv "$folder" 2>&1); then return 0; fi
  rm -rf "$folder"
  if "$python" -m venv --without-pip "$folder" >/dev/null 2>&1 \
    && "$python" -m pip --python "$folder/bin/python" install --quiet pip setuptools wheel >/dev/null 2>&1; then
    return 0
  fi
  rm -rf "$folder"
  if "$python" -m virtualenv --quiet "$folder" >/dev/null 2>&1; then return 0; fi
  if virtualenv --quiet --python "$python" "$folder" >/dev/null 2>&1; then return 0; fi
  rm -rf "$folder"
  printf '%s\n' "$messages" >&2
  die "no Python environment could be made in $folder: the lines above are those of $python -m venv." \
    "Without ensurepip install python3-venv (Debian: apt-get install python3-venv) or virtualenv"
}

# install_package FOLDER EXTRAS: the package, editable, with the exact versions that the tests ran with; EXTRAS is '' or '[test]'.
# Every file that is installed has a hash that launch/lock.sh wrote down.
install_package() { one_at_a_time _install_package "$@"; }

_install_package() {
  local folder=$1 extras=$2 stamp wanted locks
  locks=(--requirement "$repository/launch/requirements.txt")
  [ -z "$extras" ] || locks+=(--requirement "$repository/launch/requirements-test.txt")
  stamp="$folder/motif_jax.stamp"
  wanted=$(cat "$repository/setup.cfg" "$repository"/launch/requirements*.txt | sha256sum | cut -c1-64)$extras
  # What [test] installs holds what '' does.
  case $(cat "$stamp" 2>/dev/null) in "$wanted" | "${wanted}[test]") return 0 ;; esac
  printf 'installing motif_jax%s into %s (about a minute)\n' "$extras" "${folder#"$repository"/}"
  # What builds packages first: without it older pips build otherwise, and complain.
  if ! pip_into "$folder" --require-hashes --no-deps --requirement <(sed -n '/^\(setuptools\|wheel\)==/,/[^\\]$/p' "${locks[1]}") \
    || ! pip_into "$folder" --require-hashes --no-deps "${locks[@]}" \
    || ! pip_into "$folder" --no-build-isolation --no-deps --editable "$repository"; then
    die "the packages could not be installed; the lines above say why (no network, or an index that lacks one?). Of an index that builds" \
      "its own files: pip install -c launch/constraints.txt -e ."
  fi
  printf '%s' "$wanted" > "$stamp"
}

# pip_into FOLDER ARGUMENTS...: pip install; its packages are counted on stdout, and on stderr is only what went wrong.
pip_into() {
  local folder=$1
  shift
  {
    # Python compiles what it imports, on its first import: a fraction of what is installed.
    "$folder/bin/python" -m pip install --no-compile --progress-bar off --disable-pip-version-check "$@" 2>&1 >&3 \
      | { grep -v -e '^WARNING: Location' -e '^WARNING: Running pip as' || true; } >&2
  } 3>&1 | awk '/^(Collecting|Processing) / && ++n % 20 == 0 { print "  " n " packages"; fflush() }
                /^Installing collected/ { print "  installing " n + 0 " packages"; fflush() }'
}

# stage CONFIG FOLDER FLAGS...: runs a stage of configs/CONFIG, or of a file elsewhere, in FOLDER with the environment `.venv`; ends the
# script where it does not end well.
stage() {
  local config=$1 folder=$2 status=0
  shift 2
  case $config in */*) ;; *) config=configs/$config ;; esac
  printf '\n== %s -> %s\n' "$config" "$folder"
  "$repository/.venv/bin/python" -m motif_jax.launch --config="$config" --workdir="$folder" "$@" || status=$?
  if [ "$status" -eq 75 ]; then
    printf '\nstopped; the same command resumes\n' >&2
  fi
  [ "$status" -eq 0 ] || exit "$status"
}
