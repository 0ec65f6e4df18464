"""Models as llama.cpp keeps them: one GGUF file with the metadata, the tokenizer and the tensors.

`folder` makes the small folder by which the package knows the model, with the entries of a
config.json from the metadata; `tokenizer` rebuilds the tokenizer and the chat template; `files`
reads the metadata, and the tensors under transformers' names.
"""
