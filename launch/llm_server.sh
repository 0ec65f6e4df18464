#!/usr/bin/env bash
# Serves a language model with vLLM over the OpenAI protocol, for configs/oni.py and configs/annotate.py.
#
#   bash launch/llm_server.sh MODEL [GPUS] [PORT] [VLLM'S FLAGS...]
#
# MODEL is a folder or a name on Hugging Face; it is served under its last part (Meta-Llama-3.1-8B-Instruct). GPUS (1; 0: on
# the CPU) share its weights, PORT is 8000. Read from the environment: LLM_HOST (127.0.0.1, this machine alone; anybody who
# reaches another address can ask) and VLLM (the command; .venv-vllm/bin/vllm where launch/setup_vllm_cpu.sh made it, else
# vllm). A training that asks it, also on another machine:
#
#   python -m motif_jax.launch --config=configs/oni.py --workdir=runs/oni --config.annotator.kind=openai \
#     --config.annotator.openai.base_url=http://HOST:8000/v1 --config.annotator.openai.model=Meta-Llama-3.1-8B-Instruct
set -euo pipefail
repository=$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

[ -n "${1:-}" ] || die "give a model: bash launch/llm_server.sh MODEL [GPUS] [PORT]"
model=${1%/} gpus=${2:-1} port=${3:-8000}
shift $(($# < 3 ? $# : 3))
[[ $gpus =~ ^[0-9]+$ ]] || die "GPUS=$gpus: must be a number"
[[ $port =~ ^[0-9]+$ ]] && [ "$port" -gt 0 ] && [ "$port" -lt 65536 ] || die "PORT=$port: must be a number from 1 to 65535"

vllm=${VLLM:-vllm}
[ -n "${VLLM:-}" ] || ! [ -x "$repository/.venv-vllm/bin/vllm" ] || vllm=$repository/.venv-vllm/bin/vllm
command -v "$vllm" >/dev/null || die "$vllm was not found: pip install vllm, or VLLM=PATH"

spread=()
[ "$gpus" -le 1 ] || spread=(--tensor-parallel-size "$gpus")
exec "$vllm" serve "$model" --host "${LLM_HOST:-127.0.0.1}" --port "$port" --served-model-name "${model##*/}" \
  ${spread[@]+"${spread[@]}"} "$@"
