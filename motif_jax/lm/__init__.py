"""Language models: architectures, weights, tokens, scores of candidates, generation.

from motif_jax import lm
model = lm.load("FOLDER")
model.score(["The door is"], [" open", " closed"])

The order to read:

    text.py                 what the lines above call
    folder.py               reads and writes folders in transformers' layout: config.py
                            (architecture), weights.py, tokens.py; gguf/ reads llama.cpp's files,
                            checkpoint_fit.py says what does not fit
    model.py                the interface of all models: a prompt is run once, continuations extend
                            it
    network.py              one stack of blocks for every architecture (blocks.py, layers.py,
                            layer_positions.py, block_loop.py)
    scoring.py              scores of candidates after a prompt; candidate_scores.py makes logits of
                            a policy of them, next_token.py and prompt_trees.py run once what
                            several prompts begin with
    generation.py           draws texts (sampling.py, segments.py, caches.py, beams.py, stops.py)
    chat_prompts.py         prompts of chat models (chat_template.py, chat_turns.py)
    heads.py                small networks on a model's states: values, actions

Training:

    pretrain_language_model.py      the command; language_run.py builds the model, its data and the
                                    task, language_task.py
    text_data.py, token_data/       texts become tokens on disk, and batches (text_batches.py,
                                    objectives.py)
    training.py                     losses as sums, micro-batches, one update
    finetune_params.py              what is trained: all, or low-rank additions (lora.py) to a
                                    frozen base, maybe quantised.py

Where a change goes:

    another architecture        config.py reads it, config_file.py writes it (layer_positions.py
                                what is rotary or has a window); network.py, blocks.py and layers.py
                                build it; weights.py names its tensors, checkpoint_fit.py where they
                                stand; objectives.py what it learns. A fresh one: init_model.py,
                                byte_pairs.py, training_config.py. A GGUF file: gguf/
    another head                heads.py
    another objective           objectives.py
"""

from motif_jax.lm.text import TextModel, load

__all__ = ["TextModel", "load"]
