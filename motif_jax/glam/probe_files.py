"""Names of the files of probes in a run folder: `probing` writes them, and the page of a run reads
them.
"""

DESCRIPTION = "probes.json"  # the situations
LINES = "probes.jsonl"  # a line for each update or checkpoint: the probability of every action
CLAUSES = "clauses.jsonl"  # the same with each clause left out in turn
