"""What stages refuse before their run folder is made: values that fit their keys, but not each other, a folder or a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from motif_jax.actors.rerecording import record_actions
from motif_jax.language.text_agent import Design
from motif_jax.support import run_folder
from tests import stage_inputs, text_agents, texts
from tests.language import talkers
from tests.processes import REPOSITORY
from tests.refusals import config_of, refusal, said_of
from tests.reward_fixtures import load_config, make_dataset

# A config, its flags, and words of its line. AT is a folder that holds a dataset, texts, a list of words, a game, a reward, as `wrong`
# a run of train_reward, as `model` and `talker` language models, and as `ilql` an agent of text.
CART = "environment.name=gym:CartPole-v1"
NO_TEXT = (
    "config.environment.text='': must be module:function, info:KEY or obs:KEY, for gym:CartPole-v1 shows no"
)
WALK = "environment.name=tests.toys:Corridor"
PAIRS = "dataset_dir=AT annotator=test num_devices=1"
TEXTS = "texts=AT/texts num_devices=1"
REWARD = "reward.dir=AT/doorkey.safetensors"
TOY = "task=tests.toy_text:Task policy=half num_devices=1"
NO_WEIGHTS = " ".join(
    f"mixture.{player}=0" for player in "uniform walker runner kicker searcher eater descender".split()
)
AGENT = "agent=AT/ilql"
JUDGE = "dataset_dir=AT annotator=openai openai.model=m"
VLLM = "dataset_dir=AT annotator=vllm vllm.model=some/model"
TALK = "network.model=AT/model network.prompt_tokens=160"
DRRN = "network.tokenizer=AT/model"
PROMPTS = "model=AT/model file=AT/texts/texts.txt"
SAID = "task=dialogues num_devices=1"
CLONE = "trajectories=AT/inputs/trajectories network.model=AT/model network.prompt_tokens=200 num_devices=1"
SPEAKS = "network.model=AT/model network.prompt_tokens=170 probes.prompts="
CHAI = "initial.policy=AT/ilql num_devices=1"
SPOKEN = f"{CHAI} batch_size=8"
REDDIT = "task=reddit policy=friendly"
NAMES = "config.policy='nobody': must be random, bot, zero_shot, the folder"
OUTSIDE = "tests.rl.outside_parts"
TWO = "actors.workers=2"
SHORT = "train_for_env_steps=2000 batch_size=128 algorithm.epochs=2"
LEARNED = "environment.name=Recall-v0 reward.kind=classification"
TALKER = "network.model=AT/talker network.prompt_tokens=160 devices.learner=0"
SMALL = "devices.learner=0,1 algorithm.minibatch_size=16 algorithm.microbatch_size=16"
REFUSED = [
    ("oni_study.py:smoke", "table_order=kinds,others", "config.table_order='others': must be of kinds"),
    ("oni_study.py:smoke", "goal=fame", "config.goal='fame': must be one of"),
    ("oni_study.py:smoke", "page=absent.md", "config.page=absent.md: must be a file with a line"),
    ("oni_study.py:smoke", "claims=motif>none:fame", "config.claims='fame': must be of dlvl"),
    ("train_text.py:bc", f"{SAID} data=AT/silent.jsonl", "must have actions"),
    ("train_text.py:bc", f"{SAID} data=AT", "has 2 files of dialogues, name one"),
    ("train_text.py:bc", SAID, "config.data=None: name the dialogues"),
    ("train_text.py:bc", f"{SAID} data=AT/talk.jsonl options={{\"vocab_size\":9}}", "vocab_size=9: must be at least"),
    ("import_dialogues.py", "file=AT/list.txt", "config.file="),
    ("import_dialogues.py", "file=AT/games.pkl words=nowhere", "config.words="),
    ("clone_behaviour.py:smoke", f"{CLONE} trajectories=AT/damaged", "holds no trajectories"),
    ("clone_behaviour.py:smoke", f"{CLONE} train_pairs=1000000", "config.train_pairs=1000000: must be below the"),
    ("clone_behaviour.py:smoke", f"{CLONE} network.prompt_tokens=1", "config.network.prompt_tokens=1: a prompt has"),
    ("clone_behaviour.py:smoke", f"{CLONE} environment.name=BabyAI-GoToObj-v0", "must be None, or BabyAI-GoToLocal-v0"),
    ("clone_behaviour.py:smoke", f"{CLONE} network.policy=actions", "config.loss='tokens': must be 'candidates'"),
    ("clone_behaviour.py:smoke", f"{CLONE} batch_size=9 accumulate=2", "config.batch_size=9: must be a multiple of 2"),
    ("clone_behaviour.py:smoke", "network.model=AT/model num_devices=1 published.dir=AT", "environment.name=None: must be a level"),
    ("train_text.py:wordle_ilql", f"{TOY} initial.policy=AT/ilql", "was trained with other tokens than the task tests.toy_text:Task"),
    ("train_text.py:wordle_ilql", f"{TOY} initial.policy=AT/begun", "its training has not ended"),
    ("train_language_agent.py:smoke", f"{SPEAKS} tests=action_names", "candidates 'take' and 'release' have the same tokens"),
    ("train_language_agent.py:smoke", f"{SPEAKS} network.prompt_tokens=20", "config.network.prompt_tokens: a prompt of the test no_modification_test has"),
    ("collect.py:smoke", "length=1000", "length=1000: must be at most environment.max_episode_steps=300"),
    ("collect.py:smoke", "environment.name=tests.toys:Corridor", "must be an environment that shows a text"),
    ("collect.py:smoke", "environment.name=Recall-v0 mixture.fighter=1", "fighter=1.0: must be 0: fighter plays NetHack, not Recall-v0"),
    ("collect.py:smoke", "workers=10000000", "config.workers=10000000: these processes need about"),
    ("evaluate.py:smoke", "policy=random workers=10000000 episodes=10000000", "config.workers=10000000: these processes need about"),
    ("collect.py:smoke", "policy=scripted scripted=tests.toys:Flyer", "must be a player that needs no device"),
    ("collect_text.py:wordle", "wordle.words=AT/list.txt", "no five-letter word"),
    ("collect_text.py:wordle", "wordle.num_words=300", "config.wordle.num_words=300: must be at most 236"),
    ("collect_text.py:wordle", "task=tests.toy_text:Letters", "must be a subclass"),
    ("collect_text.py:wordle", 'task=tests.toy_text:Task options={"depth":1}', "no option depth"),
    ("annotate.py", "dataset_dir=AT annotator=json:loads", "config.annotator=json:loads: must be a class of"),
    ("annotate.py", "dataset_dir=AT annotator=score prompt.file=mine.yaml", "score reads no prompt"),
    ("annotate.py", "dataset_dir=AT/wrong", "not a pairs dataset"),
    ("annotate.py", "dataset_dir=AT captions.messages=False", "config.captions.messages=False"),
    ("annotate.py", "dataset_dir=AT name=a.b", "config.name='a.b': must be letters"),
    ("annotate.py", "dataset_dir=AT annotator=vllm vllm.model=./nowhere", "config.vllm.model=./nowhere: there is no such folder"),
    ("annotate.py", f"{VLLM} vllm.tokenizer=./nowhere", "config.vllm.tokenizer='./nowhere': must be the name of a tokenizer"),
    ("annotate.py", f'{VLLM} vllm.engine={{"tokenizer":5}}', "whose tokenizer is a text"),
    ("annotate.py", f'{VLLM} vllm.engine={{"model":null}}', "whose model is a text"),
    ("annotate.py", f'{VLLM} vllm.engine={{"model":"./nowhere"}}', "config.vllm.model=./nowhere: there is no such folder"),
    ("oni.py", "annotator.goal=fame", "config.annotator.goal=fame: must be one of "),
    ("oni.py", "annotator.store_dir=AT/list.txt", "must be a folder"),
    ("oni.py", "annotator.kind=vllm", "module:Class of your own"),
    ("serve_annotator.py", "prompt_file=AT/latin.yaml", "latin.yaml: is not YAML: 'utf-8' codec"),
    ("serve_annotator.py", "prompt_file=AT/asks.yaml", "must be a prompt file whose questions hold {first} and {second}, or {item}"),
    ("serve_annotator.py", "prompt_file=AT/bare.yaml", "bare.yaml: lacks the field goals"),
    ("merge_annotations.py", "dataset_dir=AT names=test,nobody name=e", "must be label files of the dataset"),
    ("merge_annotations.py", "dataset_dir=AT names=test name=e", "config.names='test'"),
    ("merge_annotations.py", "dataset_dir=AT names=test,other name=test", "config.name='test'"),
    ("evaluate.py:smoke", "policy=agent agent.dir=AT/wrong", "is a run of train_reward, not of train_agent"),
    ("evaluate.py:smoke", "reward.dir=AT/wrong", "checkpoint"),
    ("evaluate.py:smoke", "environment.name=Recall-v0 compat.sober_mask=True", "only the game has published quirks"),
    ("evaluate.py:smoke", "policy=tests.toys:Nobody", "config.policy=tests.toys:Nobody: no such class"),
    ("evaluate.py:smoke", "policy=random bot_agreement=True", "bot_agreement=True: must be another: NetHackScore-v1 has no scripted"),
    ("evaluate.py:smoke", "policy=random environment.change=other_episode", "environment.change='other_episode': must be None"),
    ("evaluate.py:smoke", "environment.name=tests.toys:Nothing", "tests.toys:Nothing: no such class"),
    ("evaluate.py:smoke", "environment.name=tests.toys:Flyer", "tests.toys:Flyer: must be a class with make_spec"),
    ("train_agent.py:recall", f"{CART} reward.kind=table reward.table=AT/wrong/other.json reward.intrinsic_coefficient=0.5", NO_TEXT),
    ("train_agent.py:recall", f"{CART} reward.dir=AT/doorkey.safetensors reward.intrinsic_coefficient=0.5", NO_TEXT),
    ("evaluate.py:smoke", f"{CART} policy=random reward.dir=AT/doorkey.safetensors", NO_TEXT),
    ("collect.py:smoke", CART, NO_TEXT),
    ("collect.py:smoke", NO_WEIGHTS, "config.mixture='all 0': must be at least one weight above 0"),
    ("replay.py", "recordings=AT/wrong agent.dir=AT/wrong", "is not a recording of an episode"),
    ("train_language_agent.py:smoke", "network.model=AT/none", "config.network.model="),
    ("train_language_agent.py:smoke", "seed=1", "config.network.model='': must be a folder"),
    ("train_language_agent.py:smoke", f"{TALK} network.head_widths=()", "config.network.head_widths=()"),
    ("train_language_agent.py:smoke", "network.model=AT/model network.prompt_tokens=300", "prompt_tokens=300: prompt and action must fit the 256 positions"),
    ("train_language_agent.py:smoke", f"{TALK} compat.glam_raw_logit_score=True compat.glam_scaled_probability_score=True", "compat.glam_raw_logit_score=True: must be False"),
    ("train_language_agent.py:smoke", f"{TALK} compat.glam_raw_logit_score=True network.score=scaled_probability", "compat.glam_raw_logit_score"),
    ("train_language_agent.py:smoke", f"{TALK} lora.patterns=*/nothing", "pattern '*/nothing' matches no linear layer"),
    ("train_language_agent.py:smoke", f"{TALK} lora.patterns=*/query lora.base=nf4", "base='nf4': needs layers of a multiple of 64 inputs"),
    ("train_language_agent.py:smoke", f"{TALK} lora.patterns=*/query network.pretrained=False", "config.network.pretrained=False"),
    ("train_language_agent.py:smoke", f"{TALK} lora.base=int8", "config.lora.base='int8': must be 'float32' without config.lora.patterns"),
    ("train_language_agent.py:drrn", "network.tokenizer=nowhere", "config.network.tokenizer='nowhere'"),
    ("train_language_agent.py:drrn", f"{DRRN} algorithm.name=ppo", "config.algorithm.name='ppo'"),
    ("train_language_agent.py:drrn", f"{DRRN} algorithm.replay_draw=999", "algorithm.replay_draw=999: must be at most config.batch_size=128"),
    ("train_language_agent.py:drrn", f"{DRRN} algorithm.replay_steps=3", "algorithm.replay_steps=3: must be at least config.batch_size=128"),
    ("score_text.py", "model=AT/model", "config.file must name a file of prompts"),
    ("generate_text.py", f"{PROMPTS} stops=a||b", "config.stops="),
    ("generate_text.py", f"{PROMPTS} most=300", "256 positions"),
    ("generate_text.py", f"{PROMPTS} sampling.top_p=0.0", "config.sampling.top_p=0"),
    ("generate_text.py", f"{PROMPTS} beams=True sampling.greedy=False", "greedy=False: must be True with config.beams"),
    ("generate_text.py", f"{PROMPTS} beams=True sampling.temperature=0.5", "temperature=0.5: must be 1.0 with config.beams"),
    ("generate_text.py", f"{PROMPTS} sampling.top_k=3", "top_k=3: must be 0 with config.beams or config.sampling.greedy"),
    ("generate_text.py", f"{PROMPTS} count=3", "config.count=3: must be 1 with config.sampling.greedy"),
    ("explain_reward.py", f"{REWARD} reward.quantile=0.53", "must be one of 0.05"),
    ("explain_reward.py", f"{REWARD} text=\u2603", "not latin-1"),
    ("explain_reward.py", "reward.dir=AT/agent", "holds a run of train_agent, not of train_reward"),
    ("train_reward.py:smoke", f"{PAIRS} network.crop=True", "the crop needs the status"),
    ("train_reward.py:smoke", f"{PAIRS} network.message=none", "at least one of message"),
    ("train_reward.py:smoke", f"{PAIRS} network.glyphs=True", "data/glyphs.npy is missing"),
    ("train_reward.py:smoke", f"{PAIRS} annotator=test,nobody", "must name annotations of the dataset: other, test"),
    ("train_reward.py:smoke", f"{PAIRS} labels.annotator_weights=1,2", "must be 1 positive numbers"),
    ("train_reward.py:smoke", f"{PAIRS} labels.annotator_weights=0", "must be 1 positive numbers"),
    ("train_reward.py:smoke", f"{PAIRS} labels.soft=True", "probabilities.npy is missing"),
    ("train_reward.py:smoke", f"{PAIRS} batch_size=65537", "batch_size=65537: must be at most 65,536: a batch has no use for more than the 12"),
    ("train_reward.py:smoke", f"{PAIRS} num_devices=3", "config.batch_size=32: must be a multiple of 3: 1 micro-batches on each of 3"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} model.architecture=llama model.width=6 model.heads=2", "and each of an even width"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} model.width=15 model.heads=4", "config.model.width=15: must be a multiple of the 4 heads"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} model.architecture=llama model.width=16 model.heads=4 model.key_value_heads=3", "model.key_value_heads=3: must be a divisor of the 4 heads"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} model.width=16 model.heads=4 model.key_value_heads=2", "must be a divisor of the 4 heads, and for other models"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} sharding.fsdp=2", "sharding={'fsdp': 2, 'tensor': 1}: must be sizes whose product"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} model.architecture=t5 packing=items tokenizer.vocab_size=400", "config.objective=prefix"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} lora.patterns=*/q_proj", "'*/q_proj' matches no linear layer"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} lora.base=nf4 lora.patterns=* model.width=16 model.heads=2", "a multiple of 64 inputs"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} lora.base=nf4", "must be 'float32' without config.lora.patterns"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} length=16 model.max_length=8", "length=16: must be at most the 8 positions"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} model.folder=AT tokenizer.folder=AT", "config.model.folder has a tokenizer"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} tokenizer.phrases=True tokenizer.phrase=(", "config.tokenizer.phrase=(: is no regular"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} tokenizer.vocab_size=256", "tokenizer.vocab_size=256: must be at least 257"),
    ("train_upvote.py:smoke", "reddit.folder=/nowhere", "config.reddit.folder='/nowhere': must be an existing folder"),
    ("train_upvote.py:smoke", "vocab_size=9", "config.vocab_size=9: must be at least"),
    ("train_upvote.py:smoke", "max_len=80", "config.max_len=80: must be at most 64"),
    ("train_upvote.py:smoke", "network.checkpoint=/nowhere", "config.network.checkpoint=/nowhere is neither a folder"),
    ("train_upvote.py:smoke", "reddit.indexes=rows.json", "config.reddit.folder=''"),
    ("train_text.py:wordle_psi", TOY, "config.initial.policy=None: method psi"),
    ("train_text.py:wordle_sarsa", f"{TOY} loss.policy=0 network.checkpoint=gpt2", "config.initial.policy=None: method sarsa"),
    ("train_text.py:wordle_ilql", f"{TOY} data=/nowhere", "config.data=/nowhere: must be a file of dialogues"),
    ("train_text.py:wordle_ilql", f"{TOY} network.width=15 network.heads=2", "config.network.width=15: must be a multiple of the 2 heads"),
    ("train_text.py:wordle_ilql", f"{TOY} network.max_length=16 max_len=40", "config.max_len=40: must be at most 16"),
    ("train_text.py:wordle_ilql", f"{TOY} filter.top=0.5", "must be 1 without config.data"),
    ("train_text.py:wordle_ilql", f"{TOY} method.q_min=1 method.q_max=1", "config.method.q_min=1.0: must be below method.q_max=1.0"),
    ("train_text.py:wordle_ilql", f"{TOY} lora.patterns=*/nothing", "*/nothing"),
    ("train_text.py:wordle_bc", f"{TOY} loss.policy=0", "config.loss.policy=0.0: must be above 0: bc learns nothing else"),
    ("train_text.py:reddit_bc_faithful", "num_devices=1", "config.network.checkpoint=gpt2: must be None while the task learns its own tokens"),
    ("train_text.py:wordle_ilql", "initial.policy=AT/dt num_devices=1", "dt: was trained by dt, whose policy is conditioned on a return"),
    ("train_text.py:wordle_ilql_utterance", "initial.value=AT/ilql num_devices=1", "ilql: was trained by ilql, and has heads of another kind"),
    ("evaluate_text.py:wordle", f"{AGENT} decode.max_tokens=95", "config.decode.max_tokens=95: must be at most 94, the model has 96 positions"),
    ("evaluate_text.py:wordle", "agent=AT/model", "tokenizer.json must have the delimiters of dialogues as tokens, and lacks <"),
    ("evaluate_text.py:wordle", f"{AGENT} decode.width=2", "config.decode.kind"),
    ("evaluate_text.py:wordle", f"{AGENT} decode.kind=beam decode.batches=2", "config.decode.batches"),
    ("evaluate_text.py:wordle", f"{AGENT} decode.advantage_form=sign decode.advantage_weight=1.5", "config.decode.advantage_weight"),
    ("evaluate_text.py:wordle", f"{AGENT} decode.logits=False decode.advantages=False", "config.decode.logits"),
    ("evaluate_text.py:wordle", "agent=AT/dt decode.logits=False", "config.decode.logits=False: must be True, the agent has no values of tokens"),
    ("evaluate_text.py:wordle", f"{AGENT} decode.top_p=0.0", "config.decode.top_p"),
    ("evaluate_text.py:wordle", f"{AGENT} decode.kind=beam decode.width=36", "config.decode.width=36: must be at most 35"),
    ("evaluate_text.py:wordle", f"{AGENT} options=[]", "config.options"),
    ("evaluate_text.py:wordle", f'{AGENT} options={{"words":3}}', "config.wordle.words=3: must be a text"),
    ("evaluate_text.py:wordle", f"{AGENT} task=chess", "config.task"),
    ("evaluate_text.py:wordle", f"{AGENT} policy=cheat", "config.policy"),
    ("evaluate_text.py:wordle", f'{REDDIT} options={{"reward":"upvote"}}', "config.options: reward=upvote"),
    ("evaluate_text.py:wordle", f'{REDDIT} options={{"reward":"upvote_model"}}', "config.options: reward=upvote"),
    ("evaluate_text.py:wordle", "seed=1", "config.agent=None: must be a run folder of train_text"),
    ("train_text.py:wordle_ppo", TOY, "config.initial.policy=None: must be a run of train_text that speaks already"),
    ("train_text.py:wordle_ppo", f"{TOY} batch_size=9 ppo.minibatches=2", "batch_size=9: must be a multiple of ppo.minibatches x accumulate x devices, 2"),
    ("train_text.py:wordle_ppo", f"{TOY} ppo.kl.coefficient=0 ppo.kl.target=0.1", "config.ppo.kl.coefficient=0.0: must be above 0 with"),
    ("evaluate.py:smoke", f"{WALK} policy=tests.toys:NoPolicy", "config.policy='tests.toys:NoPolicy': must be a class with in_workers"),
    ("evaluate.py:smoke", f"{WALK} policy=tests.toys:HalfBot", "config.policy='tests.toys:HalfBot': must be a class with in_workers"),
    ("visualize.py:smoke", f"{WALK} policy=tests.toys:ACTIONS", "config.policy='tests.toys:ACTIONS': must be a class with in_workers"),
    ("evaluate.py:smoke", f"{WALK} policy=random greedy=True", "config.greedy=True: must be False: random chooses"),
    ("visualize.py:smoke", f"{WALK} policy=tests.toys:Stubborn greedy=True", "config.greedy=True: must be False"),
    ("test_language_agent.py:smoke", "policy=nobody", NAMES),
    ("test_language_agent.py:smoke", "policy=bot tests=actions_3", "without actions_3, which means nothing to a player"),
    ("test_language_agent.py:smoke", "greedy=True", "config.greedy=True: must be False: random chooses its actions itself"),
    ("test_language_agent.py:smoke", "action_names=('go','go')", "each different"),
    ("test_language_agent.py:smoke", "environment.name=NetHackScore-v1", "config.environment.name='NetHackScore-v1': must be a level of"),
    ("test_language_agent.py:smoke", "policy=zero_shot", "config.network.model='': must be a folder"),
    ("train_agent.py:recall", "environment.name=NetHackScore", "there is no environment 'NetHackScore'"),
    ("train_agent.py:recall", "actors.workers=2 on_policy=True", "config.batch_size=512: must be 1024 with config.on_policy"),
    ("train_agent.py:recall", "batch_size=100", "config.batch_size=100: must be a multiple of config.rollout=16"),
    ("train_agent.py:recall", "batch_size=144 devices.learner=0,1", "config.batch_size=144: must be rollouts that divide"),
    ("train_agent.py:recall", "actors.workers=100000000", "config.actors.workers=100000000: these processes need about"),
    ("train_agent.py:recall", "actors.workers=2 actors.cores=0", "config.actors.cores='0': must be 'auto', '', or 2 different cores"),
    ("train_agent.py:recall", "devices.actor=0,0", "config.devices.actor='0,0'"),
    ("train_agent.py:recall", f"{TWO} devices.actor=0,1,2", "config.actors.workers=2: must be a multiple of the 3 devices"),
    ("train_agent.py:recall", f"{TWO} actors.envs_per_worker=4 actors.slots_per_group=4", "config.actors.slots_per_group=4: must be at least 5"),
    ("train_agent.py:recall", "reward.dir=/nowhere", "config.reward.dir='/nowhere': must be an existing folder"),
    ("train_agent.py:recall", "reward.intrinsic_coefficient=0.1", "needs a trained reward"),
    ("train_agent.py:recall", f"{TWO} {SHORT} optimizer.warmup_steps=32", "must be below the 32 optimiser steps of the whole run"),
    ("train_agent.py:recall", f"{TWO} network.encoder=nethack", "config.network.encoder='nethack' needs the fields window_chars"),
    ("train_agent.py:recall", "record_every=2 compat.seed_noop=True", "record_every=2: must be 0 with compat.seed_noop"),
    ("train_agent.py:recall", "hosts.coordinator=node1 hosts.count=2 hosts.index=0", "config.hosts.coordinator='node1': must be HOST:PORT"),
    ("train_agent.py:recall", "hosts.coordinator=n:4000 hosts.count=2 hosts.index=2", "config.hosts.index=2: must be this host's number, 0 to 1"),
    ("train_agent.py:recall", "hosts.coordinator=n:4000 hosts.count=2", "config.hosts.index=None"),
    ("train_agent.py:recall", "hosts.count=2", "config.hosts.count=2: must be left out: there is no config.hosts.coordinator"),
    ("train_agent.py:recall", "hosts.coordinator=slurm", "needs SLURM_JOB_ID, SLURM_STEP_NODELIST, SLURM_NTASKS, SLURM_PROCID, SLURM_LOCALID"),
    ("train_agent.py:recall", "reward.kind=magic", "config.reward.kind='magic': must be motif, "),
    ("train_agent.py:recall", "reward.kind=json:JSONDecoder", "config.reward.kind='json:JSONDecoder': must be a subclass of"),
    ("train_agent.py:recall", f"reward.kind={OUTSIDE}:Familiar reward.dir=a", "config.reward.dir=a: must be None with this kind"),
    ("train_agent.py:recall", "algorithm.name=json:JSONDecoder", "must be a class with check, make_state, make_update"),
    ("train_agent.py:recall", f"algorithm.name={OUTSIDE}:Reinforce algorithm.epochs=2", "config.algorithm.epochs=2: must be 1 with this algorithm"),
    ("oni.py", f"{LEARNED} reward.training.deviations=1.0", "must be 0 without several members"),
    ("oni.py", f"{LEARNED} reward.training.device=9", "config.reward.training.device='9': must be 'auto' or"),
    ("train_language_agent.py:smoke", f"{TALKER} sharding.fsdp=3", "must be sizes whose product divides the 1 devices"),
    ("train_language_agent.py:smoke", f"{TALKER} devices.learner=0,1,2 batch_size=192 actors.envs_per_worker=12", "config.algorithm.minibatch_size=32"),
    ("train_language_agent.py:smoke", f"{TALKER} environment.babyai_text.actions=('dance','jump')", "have the same tokens"),
    ("train_language_agent.py:smoke", f"{TALKER} record_every=5 compat.glam_fixed_kind_per_env=True", "config.record_every=5: must be 0 with"),
    ("train_language_agent.py:smoke", f"{TALKER} {SMALL} algorithm.recurrence=16", "recurrence=16: must be a divisor of 8, a device's part"),
    ("train_language_agent.py:smoke", f"{TALKER} network.prompt_tokens=30", "prompt_tokens=30: a prompt has"),
    ("train_agent.py:smoke", "algorithm.advantage_scale=returns", "must be 'batch' where config.algorithm.value_normalisation='none'"),
    ("train_agent.py:smoke", "algorithm.name=sac", "config.algorithm.name='sac': must be appo, ppo, drrn"),
    ("train_agent.py:smoke", "algorithm.name=drrn", "config.network.kind=None: must be 'drrn' for config.algorithm.name=drrn"),
    ("train_agent.py:smoke", f"{CART} environment.text=info:nothing", "must be a key of info; none of 200 random steps had it"),
    ("train_agent.py:smoke", f"{CART} environment.text_bytes=999", "config.environment.text_bytes=999: must be from 1 to 256"),
    ("train_agent.py:smoke", "actors.slots_per_group=2 batch_size=4096", "config.actors.slots_per_group=2: must be at least 33"),
    ("train_agent.py:smoke", "compat.seed_noop=True record_every=1", "config.record_every=1: must be 0 with compat.seed_noop"),
    ("train_agent.py:smoke", f"{REWARD} reward.intrinsic_coefficient=0.1 reward.quantile=0.77", "config.reward.quantile=0.77: must be one of 0.05"),
    ("oni.py:smoke", "reward.kind=bag_of_words reward.similarity=nan", "config.reward.similarity=nan: must be a finite number"),
    ("oni.py:smoke", "reward.kind=bag_of_words reward.vectors=AT/none", "none: No such file or directory"),
    ("oni.py:smoke", "reward.kind=bag_of_words reward.vectors=AT/list.txt", "line 1 must hold the number of words and the size"),
    ("oni.py:smoke", "reward.kind=ranking reward.training.device=9", "must be 'auto' or a number below 4, the devices here"),
    ("oni.py:smoke", "reward.kind=classification reward.training.device=x", "must be 'auto' or the number of a device"),
    ("oni.py:smoke", "reward.kind=table reward.table=AT/none", "must be a JSON file of texts and their rewards"),
    ("oni.py:smoke", "reward.kind=table reward.table=AT/list.txt", "list.txt is damaged (no JSON"),
    ("oni.py:smoke", "annotator.kind=vllm", "config.annotator.kind='vllm': must be lexicon, openai"),
    ("oni.py:smoke", "annotator.kind=openai", "config.annotator.openai.model='': must be the model's name"),
    ("annotate.py", f"{JUDGE} openai.base_url=ftp://x", "config.openai.base_url='ftp://x': must be a URL"),
    ("annotate.py", 'dataset_dir=AT annotator=openai openai.model=m openai.extra_body={"messages":1}', "must be without model and messages"),
    ("annotate.py", f"{JUDGE} sampling.top_k=0", "config.sampling.top_k=0: must be at least 1"),
    ("annotate.py", f"{JUDGE} prompt.file=AT/none", "none: cannot be read: No such file"),
    ("annotate.py", f"{JUDGE} prompt.file=AT/list.txt", "must hold the fields system, question, retry"),
    ("annotate.py", "dataset_dir=AT annotator=tests.toys:Talker", "must be a class of motif_jax.labels.annotator.Annotator"),
    ("annotate.py", "dataset_dir=AT shard_index=1", "config.shard_index=1: must be from 0 to num_shards - 1 = 0"),
    ("annotate.py", "dataset_dir=AT name=a/b", "config.name='a/b': must be letters, digits"),
    ("annotate.py", "dataset_dir=AT store_dir=AT/list.txt", "list.txt: must be a folder, or a path where one can be made"),
    ("evaluate.py:smoke", "policy=agent", "config.agent.dir=None: must be a folder"),
    ("evaluate.py:smoke", "policy=agent agent.dir=AT/agent agent.checkpoint=first", "must be latest, best or a step"),
    ("collect.py:smoke", "policy=agents", "config.agents='': must be run folders of train_agent"),
    ("collect.py:smoke", "environment.name=Recall-v0 glyphs=True", "config.glyphs=True: must be False: Recall-v0 shows none"),
    ("collect_text.py:wordle", 'options={"a":1}', "must be empty: options are below config.wordle"),
    ("compare.py", "methods=", "config.methods='': must be given, or published"),
    ("compare.py", "methods=a", "config.methods='a': must be 'name=folder,folder"),
    ("compare.py", "methods=a=AT/none", "none is neither a finished evaluation"),
    ("explain_reward.py", "reward.dir=None", "config.reward.dir=None: must be a reward"),
    ("explain_reward.py", "reward.dir=AT/doorkey.safetensors dataset_dir=AT/none", "none': must be an existing folder"),
    ("export_reward.py", "reward.dir=None", "config.reward.dir=None: must be a folder"),
    ("export_dataset.py", "dataset_dir=AT/texts", "texts is not a pairs dataset: it has no folder data"),
    ("export_dataset.py", "dataset_dir=AT arrays=nothing", "config.arrays='nothing': must be 'all', or some of data/blstats"),
    ("export_text_agent.py", "agent=AT/none", "none': must be an existing folder"),
    ("export_language_agent.py", "agent=AT/none", "none': must be an existing folder"),
    ("import_ilql.py", "file=AT/none", "none': must be an existing file, the published model.pkl"),
    ("import_ilql.py", "file=AT/list.txt method=nothing", "config.method='nothing': must be one of bc"),
    ("import_dataset.py", "file=AT/none", "must be an existing file, of export_dataset"),
    ("import_dialogues.py", "file=AT/none", "must be an existing file, that ends with .jsonl"),
    ("import_reward.py", "file=AT/none", "must be an existing file, of export_reward"),
    ("import_torch.py", "file=AT/none", "must be an existing file, a checkpoint"),
    ("import_torch.py", "file=AT/list.txt quantiles=AT/none", "none': must be an existing file"),
    ("probe_language_agent.py", "policy=AT/none", "none': must be an existing folder"),
    ("probe_language_agent.py", "policy=AT/ilql checkpoint=first", "must be all, latest, best or a step"),
    ("generate_text.py", "model=AT/model file=AT/none", "none: there is no such file"),
    ("rank_text.py", "agents=", "config.agents='': must be run folders of train_text"),
    ("rank_text.py", "agents=AT/ilql", "config.data=None: must be a file of dialogues"),
    ("rank_text.py", "agents=AT/dt data=AT/texts", "must have values of tokens, method dt has none"),
    ("play_text.py", "agent=AT/none", "must be the run folder of train_text, or an agent's"),
    ("replay.py", "evaluation=None", "config.evaluation=None: must be given, or recordings"),
    ("replay.py", "recordings=AT/none", "none': must be files or folders that exist"),
    ("replay.py", "recordings=AT/texts", "must be folders with recordings (*.json)"),
    ("report.py", "agent.dir=None", "config.agent.dir=None: must be given, or one of dataset_dir"),
    ("report.py", "agent.dir=AT", "must be a run of train_agent; it has no config.json"),
    ("report.py", "agent.dir=AT/wrong", "must be a run of train_agent; it is one of train_reward"),
    ("report.py", "reward.dir=AT/agent", "must be a run of train_reward; it is one of train_agent"),
    ("report.py", "evaluations=AT/none", "none': must be a finished evaluation"),
    ("report.py", "replays=AT/texts", "must be a folder with players"),
    ("serve_annotator.py", "host=", "config.host='': must be an address or name"),
    ("serve_annotator.py", "model=", "config.model='': must be the name that clients ask for"),
    ("serve_annotator.py", "prompt_file=AT/none", "none': must be a prompt file, or empty"),
    ("steering_study.py", "rows=AT", "must be a file of lines, one a run"),
    ("steering_study.py", "goal=", "config.goal='': must be one of combat, gold"),
    ("check_reward.py", "reward.dir=AT/agent", "must be a run of configs/oni.py of kind classification or retrieval"),
    ("clone_behaviour.py:smoke", "trajectories=", "must be a folder of collect_trajectories, or None"),
    ("clone_behaviour.py:smoke", "network.model=AT/model trajectories=AT", "trajectories.parquet does not exist"),
    ("collect_trajectories.py:smoke", "policy=nobody", "config.policy='nobody': must be random, bot"),
    ("benchmark.py:actors", "name=nothing", "config.name='nothing': must be one of actors"),
    ("train_reward.py:smoke", "dataset_dir=None", "config.dataset_dir=None: must be a folder"),
    ("train_text.py:wordle_ilql", "method.name=nothing", "config.method.name='nothing': must be one of bc"),
    ("train_text.py:wordle_ilql", f"{TOY} filter.bottom=0.2 filter.top=0.2", "config.filter.top=0.2: must be 1 with filter.bottom=0.2"),
    ("train_text.py:wordle_ilql", f"{TOY} network.checkpoint=AT/model", "must be a model with the same tokenizer.json"),
    ("train_text.py:wordle_chai", "initial.policy=AT/ilql initial.value=AT/ilql num_devices=1", "must be None with method chai"),
    ("train_text.py:wordle_chai", "initial.policy=AT/ilql lora.patterns=* num_devices=1", "config.lora.patterns='*': must be empty: chai"),
    ("train_text.py:wordle_chai", "initial.policy=AT/ilql candidates.folder=AT/list.txt num_devices=1", "list.txt': must be a folder, or a new one"),
    ("pretrain_language_model.py:smoke", "texts=AT/none", "none: there is no such file or folder"),
    ("pretrain_language_model.py:smoke", "texts=AT/texts tokenizer.folder=AT/none", "none': must be an existing folder"),
    ("train_upvote.py:smoke", "network.checkpoint=AT/model", "model: must be a RoBERTa, it is gpt2"),
    ("train_upvote.py:smoke", "num_devices=99", "config.num_devices=99: must be at most the 4 of this machine"),
    ("evaluate_text.py:wordle", f"{AGENT} decode.kind=beam decode.batches=2", "config.decode.batches=2: must be 1 for beams"),
    ("evaluate_text.py:wordle", f"{AGENT} decode.kind=greedy decode.batches=2", "config.decode.kind='greedy': must be 'beam' or 'rerank'"),
    ("evaluate_text.py:wordle", f"{AGENT} data=AT/none", "none: must be a file of dialogues"),
    ("visualize.py:smoke", "forms.start=5 forms.stop=3", "config.forms.stop=3: must be above start=5"),
    ("train_language_agent.py:smoke", "network.model=AT/texts", "texts is not a language model: it has no config.json"),
    ("train_language_agent.py:smoke", f"{TALKER} {SMALL} sharding.fsdp=2 devices.actor=2", "config.devices.actor='2': must be 'first' or as"),
    ("train_text.py:wordle_chai", "num_devices=1", "config.initial.policy=None: method chai draws candidates"),
    ("train_text.py:wordle_chai", f"{CHAI} candidates.top_p=0", "config.candidates.top_p=0.0: must be above 0"),
    ("train_text.py:wordle_chai", f"{CHAI} candidates.max_tokens=96", "config.candidates.max_tokens=96: leaves no room for a dialogue in the 96"),
    ("train_text.py:wordle_chai", f"{CHAI} loss.policy=1", "config.loss.policy=1.0: must be 0: chai learns Q"),
    ("train_text.py:wordle_bc", f"{TOY} initial.value=AT/ilql", "must be None: bc has no values"),
    ("train_text.py:wordle_ilql", f"{TOY} held_out.data=AT/talk.jsonl", "must be None without config.data: held-out dialogues"),
    ("train_text.py:wordle_ilql", "network.checkpoint=AT/talker num_devices=1", "talker: must be a decoder, it is t5"),
    ("train_text.py:wordle_ppo", f"{SPOKEN} games.decode.top_p=0", "config.games.decode.top_p=0.0: must be above 0"),
    ("train_text.py:wordle_ppo", f"{SPOKEN} task=reddit", "was trained for the task wordle, config.task is reddit"),
    ("evaluate_text.py:wordle", f"{AGENT} task=reddit", "was trained for the task wordle, config.task is reddit"),
    ("evaluate_text.py:wordle", f"{AGENT} data=AT/silent.jsonl", "silent.jsonl: must hold actions (utterances of the agent), and has none"),
    ("evaluate_text.py:wordle", f"{AGENT} data=AT/talk.jsonl", "talk.jsonl: dialogue 0 does not fit the agent's tokens"),
    ("score_text.py", "file=AT/texts/texts.txt", "config.model must name a folder with config.json"),
    ("collect.py:smoke", "num_pairs=1000000000000", "needs about 17,673,600 GB while it is collected"),
    ("collect.py:smoke", "scripted=tests.toys:Flyer", "must be left empty, or given with config.policy=scripted"),
    ("collect.py:smoke", "policy=scripted", "config.scripted='': must be module:Class of scripted players"),
    ("collect.py:smoke", "policy=mixture mixture.fighter=1 screens=False", "config.screens=False: must be True: fighter"),
    ("train_agent.py:recall", "devices.learner=4", "config.devices.learner='4': must be 'all' or different numbers below 4"),
    ("train_agent.py:recall", "actors.envs_per_worker=5 actors.groups_per_worker=2", "must be a multiple of config.actors.groups_per_worker=2"),
    ("pretrain_language_model.py:smoke", "tokens=AT/texts model.folder=AT/model num_devices=1", "texts/train is not a dataset of tokens"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} texts=AT/list.txt length=5", "must be longer: 5 bytes are fewer than the 5 tokens"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} held_out.texts=AT/none", "none: there is no such file or folder"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} objective=spans packing=items model.architecture=t5", "must be 'windows' for spans"),
    ("test_language_agent.py:smoke", "policy=zero_shot network.model=AT/model network.policy=actions", "must be 'score': the head of a model"),
]  # fmt: skip
# What lies at a limit, whose other side is refused.
TAKEN = [
    ("collect.py:smoke", "length=300"),
    ("collect_text.py:wordle", "wordle.num_words=236"),
    ("annotate.py", "dataset_dir=AT shard_index=1 num_shards=2"),
    ("generate_text.py", f"{PROMPTS} sampling.greedy=False sampling.top_p=1.0 count=3"),
    ("train_reward.py:smoke", f"{PAIRS} batch_size=65536"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} length=8 model.max_length=8 tokenizer.vocab_size=257"),
    ("pretrain_language_model.py:smoke", f"{TEXTS} texts=AT/list.txt length=4"),
    ("train_upvote.py:smoke", "max_len=64"),
    ("train_text.py:wordle_ilql", f"{TOY} network.max_length=16 max_len=16 method.q_min=1 method.q_max=1.5"),
    ("train_text.py:wordle_ilql", "initial.policy=AT/ilql initial.value=AT/ilql num_devices=1"),
    ("train_text.py:wordle_chai", f"{CHAI} candidates.max_tokens=95"),
    ("train_text.py:wordle_ppo", f"{SPOKEN} num_devices=2 ppo.minibatches=2 accumulate=2"),
    ("evaluate_text.py:wordle", f"{AGENT} decode.max_tokens=94"),
    ("evaluate_text.py:wordle", f"{AGENT} decode.kind=beam decode.width=35"),
    ("visualize.py:smoke", "forms.start=5 forms.stop=6"),
    ("train_agent.py:recall", f"{TWO} on_policy=True batch_size=1024 compat.seed_noop=True"),
    ("train_agent.py:recall", f"{TWO} devices.actor=0,1 actors.envs_per_worker=4 actors.slots_per_group=5"),
    ("train_agent.py:recall", f"{TWO} {SHORT} optimizer.warmup_steps=31"),
    ("train_agent.py:recall", f"{CART} environment.text_bytes=256"),
    ("train_language_agent.py:smoke", f"{TALKER} {SMALL} algorithm.recurrence=8"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a config's flags trust is trusted no longer than the test."""
    monkeypatch.setenv("MOTIF_JAX_TRUST", os.environ["MOTIF_JAX_TRUST"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refused")
    make_dataset(folder, pairs=12)
    np.save(folder / "preference" / "other.npy", np.zeros(12, np.int8))
    (folder / "list.txt").write_text("four\n")
    said = [{"role": role, "content": "a parcel"} for role in ("user", "assistant")]
    (folder / "games.pkl").touch()
    stage_inputs.Inputs(folder / "inputs").trajectories  # noqa: B018
    (folder / "damaged").mkdir()
    (folder / "damaged" / "trajectories.parquet").write_bytes(b"PAR1")
    (folder / "silent.jsonl").write_text(json.dumps({"messages": said[:1]}))
    (folder / "talk.jsonl").write_text(f"{json.dumps({'messages': said, 'reward': 1})}\n" * 20)
    (folder / "latin.yaml").write_bytes(b"system: \xe9t\xe9\n")
    (folder / "asks.yaml").write_text("question: {analysis: What is it, verdict: Which}\n")
    (folder / "bare.yaml").write_text("question: {analysis: '{item}?', verdict: '{item}?'}\n")
    record_actions("Recall-v0", {}, 1, np.array([0, 1])).save(folder / "wrong" / "game.json")
    (folder / "doorkey.safetensors").symlink_to(REPOSITORY / "docs/examples/doorkey/reward.safetensors")
    (folder / "wrong" / "other.json").write_text("{}")
    texts.write(folder / "texts")
    text_agents.write(folder / "ilql")
    talkers.write(folder / "model", "gpt2")
    talkers.write(folder / "talker")
    text_agents.write(folder / "dt", Design(q="none", prefix=True), "dt")
    run_folder.describe(folder / "agent", {"stage": "train_agent"})
    (folder / "begun" / "checkpoints").mkdir(parents=True)
    trained = load_config("train_reward").to_dict() | {"dataset_dir": "/nowhere"}
    (folder / "wrong" / "config.json").write_text(json.dumps(trained, default=list))
    return folder


def given(flags: str, place: Path) -> list[str]:
    return [f"--config.{flag.replace('AT', str(place))}" for flag in flags.split()]


@pytest.mark.parametrize(("config", "flags", "said"), REFUSED)
def test_what_does_not_fit_is_one_line_before_the_run_folder_is_made(
    config: str, flags: str, said: str, place: Path, tmp_path: Path
) -> None:
    assert said in refusal(config, tmp_path / "new", *given(flags, place))


@pytest.mark.parametrize(("config", "flags"), TAKEN)
def test_what_lies_at_a_limit_is_taken(config: str, flags: str, place: Path, tmp_path: Path) -> None:
    assert said_of(config_of(config, *given(flags, place)), tmp_path / "new") is None
