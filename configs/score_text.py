"""Scores candidate texts after prompts with a language model.

    python -m motif_jax.launch --config=configs/score_text.py --workdir=runs/scores \\
        --config.model=MODEL --config.file=prompts.jsonl

MODEL: a folder with config.json, safetensors and tokenizer.json, as transformers saves it (T5,
GPT-2, Llama, Qwen2, Qwen3, Gemma 3), a GGUF file, or the name of such a model on the Hugging Face
hub. FILE: objects {"prompt": ..., "candidates": [...]} a line, or prompts a line and
--config.candidates='turn left|turn right' for all. A prompt of a .jsonl file may be turns
[{"role": ..., "content": ...}], which the model's own chat template writes, as it does a plain
prompt; --config.chat=never leaves it as it is. Out comes scores.jsonl with one line per prompt, and
with --config.page=20 a page of the first 20 prompts token by token; a run that is stopped resumes.
"""

from motif_jax.lm.prompts_config import ScoreTextConfig
from motif_jax.schema import configs, section_keys

KEYS = {"stage": "score_text", **section_keys(ScoreTextConfig)}
get_config = configs(KEYS)
