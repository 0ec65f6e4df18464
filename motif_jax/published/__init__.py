"""Reads the published systems' files, such as PyTorch checkpoints and results, without running
their code.

    pickles.py, torch_file.py       read pickles and, by PyTorch (the extra `torch`), checkpoints as
                                    data; name_matching.py finds which tensor is which layer
    imports.py                      the stage `import`: its kinds, and the frame of all of them
    import_torch.py                 of Motif (motif_checkpoint.py), ONI (oni_checkpoint.py) and GLAM
                                    (glam_checkpoint.py); import_ilql.py of ILQL
                                    (ilql_checkpoint.py, transformers_parts.py)
    upvote_model.py, wordle_games.py        the rest of ILQL's files
    results.py, glam_results.py, glam_probes.py, evaluation_logs.py
                                    published curves, tests, probes and logs
    exports.py, model_card.py       the other way: what others read

What a file of another version may hold is refused in one line. A file of another system needs a
module here, and a command that imports it.
"""
