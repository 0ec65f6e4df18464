"""Models as llama.cpp keeps them: one GGUF file with the metadata, the tokenizer and the tensors.

`files` reads the header, `config_values` turns the metadata into the entries of a config.json,
`tokenizer` rebuilds the tokenizer and the chat template, `tensors` reads tensors under
transformers' names, and `folder` makes the small folder by which the package knows the model.
"""
