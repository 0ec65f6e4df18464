"""Flags with values that do not fit, and with values that lie at a limit, by config.

AT is a folder that holds a dataset, texts, a list of words, a game, a reward, as `wrong` a run of
train_reward, as `model` and `talker` language models, and as `ilql` an agent of text.
"""

from __future__ import annotations

CART = "environment.name=gym:CartPole-v1"
WALK = "environment.name=tests.toys:Corridor"
PAIRS = "dataset_dir=AT annotator=test num_devices=1"
TEXTS = "texts=AT/texts num_devices=1"
REWARD = "reward.dir=AT/doorkey.safetensors"
TOY = "task=tests.toy_text:Task policy=half num_devices=1"
NO_WEIGHTS = " ".join(
    f"mixture.{player}=0"
    for player in "uniform walker runner kicker searcher eater descender".split()
)
AGENT = "agent=AT/ilql"
JUDGE = "dataset_dir=AT annotator=openai openai.model=m"
VLLM = "dataset_dir=AT annotator=vllm vllm.model=some/model"
TALK = "network.model=AT/model network.prompt_tokens=160"
DRRN = "network.tokenizer=AT/model"
PROMPTS = "model=AT/model file=AT/texts/texts.txt"
DIALOGUES = "task=dialogues num_devices=1"
CLONE = "trajectories=AT/inputs/trajectories network.model=AT/model network.prompt_tokens=200 num_devices=1"
SPEAKS = "network.model=AT/model network.prompt_tokens=170 probes.prompts="
CHAI = "initial.policy=AT/ilql num_devices=1"
SPOKEN = f"{CHAI} batch_size=8"
REDDIT = "task=reddit policy=friendly"
OUTSIDE = "tests.rl.outside_parts"
TWO = "actors.workers=2"
SHORT = "train_for_env_steps=2000 batch_size=128 algorithm.epochs=2"
LEARNED = "environment.name=Recall-v0 reward.kind=classification"
TALKER = "network.model=AT/talker network.prompt_tokens=160 devices.learner=0"
SMALL = "devices.learner=0,1 algorithm.minibatch_size=16 algorithm.microbatch_size=16"
REFUSED = {
    "annotate.py": f"""dataset_dir=AT annotator=json:loads | dataset_dir=AT annotator=score
        prompt.file=mine.yaml | dataset_dir=AT/wrong | dataset_dir=AT captions.messages=False |
        dataset_dir=AT name=a.b | dataset_dir=AT annotator=vllm vllm.model=./nowhere | {VLLM}
        vllm.tokenizer=./nowhere | {VLLM} vllm.engine={{"tokenizer":5}} | {VLLM}
        vllm.engine={{"model":null}} | {VLLM} vllm.engine={{"model":"./nowhere"}} | {JUDGE}
        openai.base_url=ftp://x | dataset_dir=AT annotator=openai openai.model=m
        openai.extra_body={{"messages":1}} | {JUDGE} sampling.top_k=0 | {JUDGE} prompt.file=AT/none |
        {JUDGE} prompt.file=AT/list.txt | dataset_dir=AT annotator=tests.toys:Talker | dataset_dir=AT
        shard_index=1 | dataset_dir=AT name=a/b | dataset_dir=AT store_dir=AT/list.txt""",
    "annotate.py:crafter": JUDGE,
    "benchmark.py:actors": """name=nothing""",
    "check_reward.py": """reward.dir=AT/agent""",
    "clone_behaviour.py:smoke": f"""{CLONE} trajectories=AT/damaged | {CLONE} train_pairs=1000000 | {CLONE}
        network.prompt_tokens=1 | {CLONE} environment.name=BabyAI-GoToObj-v0 | {CLONE}
        network.policy=actions | {CLONE} environment.max_episode_steps=32 | {CLONE} batch_size=9 accumulate=2 | network.model=AT/model num_devices=1
        published.dir=AT | trajectories= | network.model=AT/model trajectories=AT""",
    "collect.py:smoke": f"""length=1000 | environment.name=tests.toys:Corridor | environment.name=Recall-v0
        mixture.fighter=1 | workers=10000000 | policy=scripted scripted=tests.toys:Flyer | {CART} |
        {NO_WEIGHTS} | policy=agents | environment.name=Recall-v0 glyphs=True | num_pairs=1000000000000 |
        scripted=tests.toys:Flyer | policy=scripted | policy=mixture mixture.fighter=1 screens=False""",
    "collect_text.py:wordle": """wordle.words=AT/list.txt | wordle.num_words=300 |
        task=tests.toy_text:Letters | task=tests.toy_text:Task options={"depth":1} | options={"a":1}""",
    "collect_trajectories.py:smoke": """policy=nobody""",
    "compare.py": """methods= | methods=a | methods=a=AT/none""",
    "evaluate.py:smoke": f"""policy=random workers=10000000 episodes=10000000 | policy=agent
        agent.dir=AT/wrong | reward.dir=AT/wrong | environment.name=Recall-v0 compat.sober_mask=True |
        policy=tests.toys:Nobody | policy=random bot_agreement=True | policy=random
        environment.change=other_episode | environment.name=tests.toys:Nothing |
        environment.name=tests.toys:Flyer | {CART} policy=random reward.dir=AT/doorkey.safetensors | {WALK}
        policy=tests.toys:NoPolicy | {WALK} policy=tests.toys:HalfBot | {WALK} policy=random greedy=True |
        policy=agent | policy=agent agent.dir=AT/agent agent.checkpoint=first | policy=fixed greedy=True |
        policy=AT/agent agent.dir=AT/wrong | policy=AT/agent compat.sober_mask=True | {CART} environment.modules=a:b |
        policy=random agent.checkpoint=12345 | environment.name=BabyAI-GoToLocal-v0 environment.change=foo""",
    "evaluate_text.py:wordle": f"""{AGENT} decode.max_tokens=95 | agent=AT/model | {AGENT} decode.width=2 |
        {AGENT} decode.kind=beam decode.batches=2 | {AGENT} decode.advantage_form=sign
        decode.advantage_weight=1.5 | {AGENT} decode.logits=False decode.advantages=False | agent=AT/dt
        decode.logits=False | {AGENT} decode.top_p=0.0 | {AGENT} decode.kind=beam decode.width=36 | {AGENT}
        options=[] | {AGENT} options={{"words":3}} | {AGENT} task=chess | {AGENT} policy=cheat | {REDDIT}
        options={{"reward":"upvote"}} | {REDDIT} options={{"reward":"upvote_model"}} | seed=1 | {AGENT}
        decode.kind=greedy decode.batches=2 | {AGENT} data=AT/none | {AGENT} task=reddit | {AGENT}
        data=AT/silent.jsonl | {AGENT} data=AT/talk.jsonl""",
    "explain_reward.py": f"""{REWARD} reward.quantile=0.53 | reward.dir=AT/agent |
        reward.dir=None | reward.dir=AT/doorkey.safetensors dataset_dir=AT/none""",
    "export_dataset.py": """dataset_dir=AT/texts | dataset_dir=AT arrays=nothing""",
    "export_language_agent.py": """agent=AT/none""",
    "export_reward.py": """reward.dir=None""",
    "export_text_agent.py": """agent=AT/none""",
    "generate_text.py": f"""{PROMPTS} stops=a||b | {PROMPTS} max_new_tokens=300 | {PROMPTS} sampling.top_p=0.0 |
        {PROMPTS} beams=True sampling.greedy=False | {PROMPTS} beams=True sampling.temperature=0.5 |
        {PROMPTS} sampling.top_k=3 | {PROMPTS} count=3 | model=AT/model file=AT/none""",
    "import_dataset.py": """file=AT/none""",
    "import_dialogues.py": """file=AT/list.txt | file=AT/games.pkl words=nowhere | file=AT/none""",
    "import_ilql.py": """file=AT/none | file=AT/list.txt method=nothing""",
    "import_reward.py": """file=AT/none""",
    "import_torch.py": """file=AT/none | file=AT/list.txt quantiles=AT/none""",
    "join_datasets.py": """dataset_dirs=AT | dataset_dirs=AT,AT | dataset_dirs=AT,AT/none""",
    "merge_annotations.py": """dataset_dir=AT names=test,nobody name=e | dataset_dir=AT names=test name=e |
        dataset_dir=AT names=test,other name=test""",
    "oni.py": f"""annotator.goal=fame | annotator.store_dir=AT/list.txt | annotator.kind=vllm | {LEARNED}
        reward.training.deviations=1.0 | {LEARNED} reward.training.device=9""",
    "oni.py:smoke": """reward.kind=bag_of_words reward.similarity=nan | reward.kind=bag_of_words
        reward.vectors=AT/none | reward.kind=bag_of_words reward.vectors=AT/list.txt | reward.kind=ranking
        reward.training.device=9 | reward.kind=classification reward.training.device=x | reward.kind=table
        reward.table=AT/none | reward.kind=table reward.table=AT/list.txt | annotator.kind=vllm |
        annotator.kind=openai""",
    "oni_study.py:smoke": """tables.kinds=none,others | goal=fame | prepare=configs/collect.py |
        claims=motif>none""",
    "play_text.py": """agent=AT/none""",
    "pretrain_language_model.py:smoke": f"""{TEXTS} model.architecture=llama model.width=6 model.heads=2 |
        {TEXTS} model.width=15 model.heads=4 | {TEXTS} model.architecture=llama model.width=16 model.heads=4
        model.key_value_heads=3 | {TEXTS} model.width=16 model.heads=4 model.key_value_heads=2 | {TEXTS}
        sharding.fsdp=2 | {TEXTS} model.architecture=t5 packing=items tokenizer.vocab_size=400 | {TEXTS}
        lora.patterns=*/q_proj | {TEXTS} lora.base=nf4 lora.patterns=* model.width=16 model.heads=2 |
        {TEXTS} lora.base=nf4 | {TEXTS} length=16 model.max_length=8 | {TEXTS} model.folder=AT
        tokenizer.folder=AT | {TEXTS} tokenizer.phrases=True tokenizer.phrase=( | {TEXTS}
        tokenizer.vocab_size=256 | texts=AT/none | texts=AT/texts tokenizer.folder=AT/none | tokens=AT/texts
        model.folder=AT/model num_devices=1 | {TEXTS} texts=AT/list.txt length=5 | {TEXTS}
        held_out.texts=AT/none | {TEXTS} objective=spans packing=items model.architecture=t5""",
    "probe_language_agent.py": """policy=AT/none | policy=AT/ilql checkpoint=first""",
    "rank_text.py": """agents= | agents=AT/ilql | agents=AT/dt data=AT/texts""",
    "replay.py": """recordings=AT/wrong agent.dir=AT/wrong | evaluation=None | recordings=AT/none |
        recordings=AT/texts | recordings=AT/wrong/game.json episodes=all | recordings=AT/wrong/game.json
        agent.checkpoint=best""",
    "report.py": """agent.dir=None | agent.dir=AT | agent.dir=AT/wrong | reward.dir=AT/agent |
        evaluations=AT/none | replays=AT/texts""",
    "score_text.py": """model=AT/model | file=AT/texts/texts.txt""",
    "serve_annotator.py": """prompt_file=AT/latin.yaml | prompt_file=AT/asks.yaml | prompt_file=AT/bare.yaml
        | host= | model= | prompt_file=AT/none""",
    "steering_study.py": """goal=""",
    "test_language_agent.py:smoke": """policy=nobody | policy=bot tests=actions_3 | greedy=True |
        action_names=('go','go') | policy=random agent.checkpoint=nonsense | network.model=/no/such |
        network.score=raw_logit | prompt_tokens=7 | action_names=('a','b','c','d','e','f') |
        policy=zero_shot agent.checkpoint=best | environment.name=NetHackScore-v1 | policy=zero_shot | policy=zero_shot
        network.model=AT/model network.policy=actions""",
    "train_agent.py:recall": f"""{CART} reward.kind=table reward.table=AT/wrong/other.json
        reward.intrinsic_coefficient=0.5 | {CART} reward.dir=AT/doorkey.safetensors
        reward.intrinsic_coefficient=0.5 | environment.name=NetHackScore | actors.workers=2 on_policy=True |
        batch_size=100 | batch_size=144 devices.learner=0,1 | actors.workers=100000000 | actors.workers=2
        actors.cores=0 | devices.actor=0,0 | {TWO} devices.actor=0,1,2 | {TWO} actors.envs_per_worker=4
        actors.slots_per_group=4 | reward.dir=/nowhere | reward.intrinsic_coefficient=0.1 | {TWO} {SHORT}
        optimizer.warmup_steps=32 | {TWO} network.encoder=nethack | record_every=2 compat.seed_noop=True | actors.rebuild=True compat.seed_noop=True |
        film_every_seconds=60 | record_every=2 film_every_seconds=60 |
        hosts.coordinator=node1 hosts.count=2 hosts.index=0 | hosts.coordinator=n:4000 hosts.count=2
        hosts.index=2 | hosts.coordinator=n:4000 hosts.count=2 | hosts.count=2 | hosts.coordinator=slurm |
        reward.kind=magic | reward.kind=json:JSONDecoder | reward.kind={OUTSIDE}:RareTexts reward.dir=a |
        algorithm.name=json:JSONDecoder | algorithm.name={OUTSIDE}:Reinforce algorithm.epochs=2 |
        devices.learner=4 | actors.envs_per_worker=5 actors.groups_per_worker=2""",
    "study.py": """training= | training=configs/train_agent.py evaluation=""",
    "train_agent.py:smoke": f"""algorithm.name=datetime:date | reward.kind=any_text reward.dir=AT/doorkey.safetensors |
        reward.kind=none reward.dir=AT/doorkey.safetensors | algorithm.advantage_scale=returns | algorithm.name=sac | algorithm.name=drrn
        | {CART} environment.text=info:nothing | {CART} environment.text_bytes=999 |
        {CART} environment.kwargs={{"id":"a"}} | {CART} environment.kwargs={{"slope":1}} | environment.kwargs={{"slope":1}} |
        {CART} environment.wrappers=nowhere:Wrapper | {CART} environment.wrappers=json:dumps |
        {CART} environment.action_bins=3 | environment.action_bins=3 |
        {CART} environment.action_mask=mask | {CART} environment.action_mask=info:mask |
        actors.slots_per_group=2 batch_size=4096 | compat.seed_noop=True record_every=1 | {REWARD}
        reward.intrinsic_coefficient=0.1 reward.quantile=0.77""",
    "train_language_agent.py:drrn": f"""network.tokenizer=nowhere | {DRRN} algorithm.name=ppo | {DRRN}
        algorithm.replay_draw=999 | {DRRN} algorithm.replay_steps=3""",
    "train_language_agent.py:smoke": f"""{SPEAKS} tests=action_names | {SPEAKS} network.prompt_tokens=20 |
        network.model=AT/none | seed=1 | {TALK} network.head_widths=() | network.model=AT/model
        network.prompt_tokens=300 | {TALK} stats_episodes=1 | {TALK} compat.glam_raw_logit_score=True
        compat.glam_scaled_probability_score=True | {TALK} compat.glam_raw_logit_score=True
        network.score=scaled_probability | {TALK} lora.patterns=*/nothing | {TALK} lora.patterns=*/query
        lora.base=nf4 | {TALK} lora.patterns=*/query network.pretrained=False | {TALK} lora.base=int8 |
        {TALKER} sharding.fsdp=3 | {TALKER} devices.learner=0,1,2 batch_size=192 actors.envs_per_worker=12 |
        {TALKER} environment.babyai_text.actions=('dance','jump') | {TALKER} record_every=5
        compat.glam_fixed_kind_per_env=True | {TALKER} {SMALL} algorithm.recurrence=16 | {TALKER}
        network.prompt_tokens=30 | network.model=AT/texts | {TALKER} {SMALL} sharding.fsdp=2 devices.actor=2""",
    "train_reward.py:smoke": f"""{PAIRS} network.crop=True | {PAIRS} network.message=none | {PAIRS}
        network.glyphs=True | {PAIRS} annotator=test,nobody | {PAIRS} labels.annotator_weights=1,2 | {PAIRS}
        labels.annotator_weights=0 | {PAIRS} labels.soft=True | {PAIRS} batch_size=65537 | {PAIRS}
        num_devices=3 | dataset_dir=None""",
    "train_text.py:bc": f"""{DIALOGUES} data=AT/silent.jsonl | {DIALOGUES} data=AT | {DIALOGUES} | {DIALOGUES}
        data=AT/talk.jsonl options={{"vocab_size":9}}""",
    "train_text.py:reddit_bc_faithful": """num_devices=1""",
    "train_text.py:wordle_bc": f"""{TOY} loss.policy=0 | {TOY} initial.value=AT/ilql""",
    "train_text.py:wordle_chai": f"""initial.policy=AT/ilql initial.value=AT/ilql num_devices=1 |
        initial.policy=AT/ilql lora.patterns=* num_devices=1 | initial.policy=AT/ilql
        candidates.folder=AT/list.txt num_devices=1 | num_devices=1 | {CHAI} candidates.top_p=0 | {CHAI}
        candidates.max_tokens=96 | {CHAI} loss.policy=1 | {CHAI} loss.v=1""",
    "train_text.py:wordle_ilql": f"""{TOY} initial.policy=AT/ilql | {TOY} initial.policy=AT/begun | {TOY}
        data=/nowhere | {TOY} network.width=15 network.heads=2 | {TOY} network.max_length=16 max_len=40 |
        {TOY} filter.top=0.5 | {TOY} method.q_min=1 method.q_max=1 |
        {TOY} method.policy.exponential=False | {TOY} method.policy.exponential=False method.policy.beta=4 | {TOY} lora.patterns=*/nothing |
        initial.policy=AT/dt num_devices=1 | method.name=nothing | {TOY} filter.bottom=0.2 filter.top=0.2 |
        {TOY} network.checkpoint=AT/model | {TOY} held_out.data=AT/talk.jsonl | network.checkpoint=AT/talker
        num_devices=1""",
    "train_text.py:wordle_ilql_utterance": f"""initial.value=AT/ilql num_devices=1 | {TOY} loss.cql=1 | {TOY} loss.margin=1""",
    "train_text.py:wordle_ppo": f"""{TOY} | {TOY} batch_size=9 ppo.minibatches=2 | {TOY}
        ppo.kl.coefficient=0 ppo.kl.target=0.1 | {SPOKEN} games.decode.top_p=0 | {SPOKEN} loss.policy=0 | {SPOKEN} task=reddit""",
    "train_text.py:wordle_psi": f"""{TOY}""",
    "train_text.py:wordle_sarsa": f"""{TOY} loss.policy=0 network.checkpoint=gpt2""",
    "train_upvote.py:smoke": """reddit.folder=/nowhere | vocab_size=9 | max_len=80 |
        network.checkpoint=/nowhere | reddit.indexes=rows.json | network.checkpoint=AT/model |
        num_devices=99""",
    "visualize.py:smoke": f"""{WALK} policy=tests.toys:ACTIONS | {WALK} policy=tests.toys:Stubborn
        greedy=True | forms.start=5 forms.stop=3""",
}
# What lies at a limit, whose other side is refused.
ACCEPTED = {
    "annotate.py": """dataset_dir=AT shard_index=1 num_shards=2""",
    "collect.py:smoke": """length=300""",
    "collect_text.py:wordle": """wordle.num_words=236""",
    "evaluate_text.py:wordle": f"""{AGENT} decode.max_tokens=94 | {AGENT} decode.kind=beam decode.width=35""",
    "generate_text.py": f"""{PROMPTS} sampling.greedy=False sampling.top_p=1.0 count=3""",
    "pretrain_language_model.py:smoke": f"""{TEXTS} length=8 model.max_length=8 tokenizer.vocab_size=257 |
        {TEXTS} texts=AT/list.txt length=4""",
    "train_agent.py:recall": f"""{TWO} on_policy=True batch_size=1024 compat.seed_noop=True | {TWO}
        devices.actor=0,1 actors.envs_per_worker=4 actors.slots_per_group=5 | {TWO} {SHORT}
        optimizer.warmup_steps=31 | {CART} environment.text_bytes=256""",
    "train_language_agent.py:smoke": f"""{SPEAKS} tests=distractors_4 | {TALKER} {SMALL} algorithm.recurrence=8""",
    "train_reward.py:smoke": f"""{PAIRS} batch_size=65536""",
    "train_text.py:wordle_chai": f"""{CHAI} candidates.max_tokens=95""",
    "train_text.py:wordle_ilql": f"""{TOY} network.max_length=16 max_len=16 method.q_min=1 method.q_max=1.5
        | initial.policy=AT/ilql initial.value=AT/ilql num_devices=1""",
    "train_text.py:wordle_ppo": f"""{SPOKEN} num_devices=2 ppo.minibatches=2 accumulate=2""",
    "train_upvote.py:smoke": """max_len=64""",
    "visualize.py:smoke": """forms.start=5 forms.stop=6""",
}
