"""Reads the published systems' files, such as PyTorch checkpoints and results, without running
their code.

    pickles.py              reads pickles and, by PyTorch (the extra `torch`), checkpoints as data
    imports.py              the stage `import`: its kinds, and the frame of all of them
    import_motif.py, import_oni.py, import_glam.py, import_ilql.py
                            a checkpoint becomes a run folder; name_matching.py finds which tensor
                            is which layer
    import_dialogues.py     dialogues, and ILQL's Wordle games
    results.py              published curves, tests, probes and logs, which a study shows
    exports.py              the stage `export`, the other way: what others read

A file of another system needs a module here, and a command that imports it.
"""
