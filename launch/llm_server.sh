#!/usr/bin/env bash
# Serves a language model with vLLM over the OpenAI protocol, for configs/oni.py and configs/annotate.py.
#
#   bash launch/llm_server.sh MODEL [GPUS] [PORT] [VLLM'S FLAGS...]
#
# MODEL is a folder or a name on Hugging Face; it is served under its last part (Meta-Llama-3.1-8B-Instruct). GPUS (1; 0: on
# the CPU) share its weights, PORT is 8000. Read from the environment: LLM_HOST (127.0.0.1, this machine alone; anybody who
# reaches another address can ask) and VLLM (the command; else the vLLM of .venv-vllm where launch/setup_vllm_cpu.sh made it, else
# vllm). VLLM'S FLAGS count more than the script's own. A training that asks it, also on another machine:
#
#   python -m motif_jax.launch --config=configs/oni.py --workdir=runs/oni --config.annotator.kind=openai \
#     --config.annotator.openai.base_url=http://HOST:8000/v1 --config.annotator.openai.model=Meta-Llama-3.1-8B-Instruct
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

[ -n "${1:-}" ] && [ "${1#-}" = "$1" ] || die "give a model: bash launch/llm_server.sh MODEL [GPUS] [PORT]"
model=${1%/} gpus=${2:-1} port=${3:-8000}
shift $(($# < 3 ? $# : 3))
[[ $gpus =~ ^[0-9]+$ ]] || die "GPUS=$gpus: must be a number"
[[ $port =~ ^[0-9]+$ ]] && [ "$port" -gt 0 ] && [ "$port" -lt 65536 ] || die "PORT=$port: must be a number from 1 to 65535"

if [ -z "${VLLM:-}" ] && [ -x "$repository/.venv-vllm/bin/python" ]; then
  # By its module: the CPU build's `vllm` looks for a distribution of that name, which the build is not.
  server=("$repository/.venv-vllm/bin/python" -m vllm.entrypoints.openai.api_server --model "$model")
else
  vllm=${VLLM:-vllm}
  command -v "$vllm" >/dev/null || die "$vllm was not found: pip install vllm, or VLLM=PATH"
  server=("$vllm" serve "$model")
fi

flags=()
[ "$gpus" -le 1 ] || flags+=(--tensor-parallel-size "$gpus")
if [ "$gpus" -eq 0 ]; then
  # As configs/annotate.py:laptop. A prompt that is split over two steps breaks seeded draws: all sequences fit into one step.
  flags+=(--dtype float32 --enforce-eager --max-model-len 2048 --max-num-seqs 16 --max-num-batched-tokens 32768 --block-size 32
    --kv-cache-memory-bytes 1G)
fi
exec "${server[@]}" --host "${LLM_HOST:-127.0.0.1}" --port "$port" --served-model-name "${model##*/}" \
  ${flags[@]+"${flags[@]}"} "$@"
