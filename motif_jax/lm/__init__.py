"""Language models: architectures, weights, tokens, scores of candidates, generation.

from motif_jax import lm
model = lm.load("FOLDER")
model.score(["The door is"], [" open", " closed"])

What the lines above pass, in this order:

    text.py                 `load`, `score`, `generate`
    tokens.py               texts and tokens; chat_template.py writes the prompts of chat models
    config.py               a Llama, a Qwen or a GPT-2 from its config.json
    network.py              the network of that config: stacks of blocks, with layers.py and
                            attention.py
    weights.py              its parameters, from safetensors by transformers' names
    model.py                the interface of all models: a prompt is run once, continuations extend
                            it
    scoring.py              scores of candidates after a prompt
    generation.py           draws texts token by token; beams.py searches them

gguf/ makes a folder of llama.cpp's file, which is read as any other (folder.py, then tokenizer.py
and files.py). A judge (motif_jax/motif/model_judge.py) asks for one token after many prompts that
begin alike: next_token.py. folder.py reads and writes whole folders, with heads.py (small networks
on a model's states: values, actions).

Training:

    pretrain_language_model.py      the command: what it refuses, the model, its data and the task
                                    (keys: training_config.py)
    byte_pairs.py, text_data.py     a tokenizer is made, texts become tokens (token_data.py)
    text_batches.py                 batches by an objective (token_batches.py)
    init_model.py                   a fresh model
    finetune_params.py              what is trained: all, or low-rank additions to a frozen base,
                                    maybe quantised (lora.py, linear.py); the loss of predicted
                                    tokens, as sums; masked_head.py is RoBERTa's
    sums_task.py                    what trainings by a sum share; the step is
                                    core/training/gradient_sums.py, dropout.py has its keys

Where a change goes:

    another architecture        config.py reads and writes it; network.py and layers.py build it;
                                weights.py names its tensors; text_batches.py what it learns. A
                                fresh one: init_model.py, byte_pairs.py, training_config.py. A GGUF
                                file: gguf/folder.py, gguf/files.py
    another head                heads.py
    another objective           text_batches.py
"""

from motif_jax.lm.text import TextModel, load

__all__ = ["TextModel", "load"]
