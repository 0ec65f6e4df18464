"""How probable a decoder finds the six actions after prompts of BabyAI-Text, tokenised together
with the prompt and apart.

    python docs/examples/action_mass.py FOLDER

FOLDER is a decoder's, a GGUF file, or a name of the hub. Of each of the package's eleven probes the
probabilities of all actions are added up.
"""

import sys

import numpy as np

from motif_jax import lm
from motif_jax.envs.babyai_text.catalogue import ACTIONS, ENGLISH
from motif_jax.envs.babyai_text.probes import PACKAGE_PROBES, read
from motif_jax.envs.babyai_text.prompts import after_prompt
from motif_jax.lm import scoring
from motif_jax.lm.tokens import candidate_rows, padded

model = lm.load(sys.argv[1])
prompts = [probe.prompt(ACTIONS, ENGLISH) for probe in read(PACKAGE_PROBES)]

# As GLAM acts by default: the prompt ends before its last blank, with which each action begins.
before = [prompt.rstrip(" ") for prompt in prompts]
together = np.exp(model.score(before, [after_prompt(action) for action in ACTIONS]))

# As published (compat.glam_separate_tokens): actions without the blank, after a prompt that ends
# with one.
rows = padded(model.tokenizer.encode(prompts))
candidates = padded(candidate_rows(model.tokenizer, ACTIONS))
apart = np.exp(scoring.score(model.model, model.params, *rows, *candidates).total)

masses = {"together": together, "apart": apart}
if model.template is not None:
    # With network.chat=auto: the prompt is the user's turn, and the action begins the answer.
    turns = [[{"role": "user", "content": prompt}] for prompt in before]
    masses["in turns"] = np.exp(model.score(turns, list(ACTIONS)))

for name, probabilities in masses.items():
    mass = probabilities.sum(axis=1)
    print(f"{name}: mean {mass.mean():.4f}, least {mass.min():.4f}, greatest {mass.max():.4f}")
