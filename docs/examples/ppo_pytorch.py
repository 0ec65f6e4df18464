"""A trained reward around NetHack, and PPO in one file of PyTorch, in CleanRL's habit.

    python docs/examples/ppo_pytorch.py --reward runs/quickstart/reward

Needs PyTorch besides motif_jax: `bash launch/setup_examples.sh` makes an environment with it. All
that is not PPO is marked with `motif_jax`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from pathlib import Path

import gymnasium as gym
import nle  # noqa: F401 - registers NetHack's tasks
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.distributions import Categorical

from motif_jax import wrappers  # motif_jax

FIELDS = ("chars", "blstats", "message")
CROP = 9


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "--reward", required=True, help="run folder of train_reward, or a .safetensors file"
    )
    parser.add_argument("--env-id", default="NetHackScore-v0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=200_000)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--num-steps", type=int, default=64)
    parser.add_argument("--max-episode-steps", type=int, default=500)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--num-minibatches", type=int, default=4)
    parser.add_argument("--update-epochs", type=int, default=2)
    parser.add_argument("--clip-coef", type=float, default=0.2)
    parser.add_argument("--ent-coef", type=float, default=0.01)
    parser.add_argument("--vf-coef", type=float, default=0.5)
    parser.add_argument("--max-grad-norm", type=float, default=0.5)
    parser.add_argument("--intrinsic-coefficient", type=float, default=0.5)
    parser.add_argument("--extrinsic-coefficient", type=float, default=0.0)
    parser.add_argument("--out", type=Path, default=Path("runs/ppo_pytorch"))
    return parser.parse_args()


def make_env(args: argparse.Namespace):
    return lambda: gym.make(
        args.env_id, observation_keys=FIELDS, max_episode_steps=args.max_episode_steps
    )


def crop(chars: np.ndarray, blstats: np.ndarray) -> np.ndarray:
    """The cells around the hero: uint8 [N, 21, 79] -> [N, CROP, CROP]."""
    half = CROP // 2
    padded = np.pad(chars, ((0, 0), (half, half), (half, half)), constant_values=ord(" "))
    return np.stack(
        [padded[i, y : y + CROP, x : x + CROP] for i, (x, y) in enumerate(blstats[:, :2])]
    )


def features(obs: dict[str, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    cells = torch.from_numpy(crop(obs["chars"], obs["blstats"]).astype(np.int64))
    status = torch.from_numpy(np.tanh(obs["blstats"].astype(np.float32) / 20))
    return cells, status


def layer_init(layer: nn.Module, std: float = np.sqrt(2)) -> nn.Module:
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    def __init__(self, actions: int, status: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 16)
        self.image = nn.Sequential(
            layer_init(nn.Conv2d(16, 32, 3)), nn.ReLU(),
            layer_init(nn.Conv2d(32, 32, 3)), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        self.body = nn.Sequential(
            layer_init(nn.Linear(32 * (CROP - 4) ** 2 + status, 128)), nn.ReLU()
        )
        self.actor = layer_init(nn.Linear(128, actions), std=0.01)
        self.critic = layer_init(nn.Linear(128, 1), std=1)

    def forward(
        self, cells: torch.Tensor, status: torch.Tensor
    ) -> tuple[Categorical, torch.Tensor]:
        image = self.image(self.embedding(cells).permute(0, 3, 1, 2))
        hidden = self.body(torch.cat([image, status], 1))
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


def main() -> None:
    args = parse()
    torch.manual_seed(args.seed)
    terms = wrappers.Terms.nethack(  # motif_jax
        intrinsic_coefficient=args.intrinsic_coefficient,
        extrinsic_coefficient=args.extrinsic_coefficient,
    )
    envs = SyncVectorEnv([make_env(args)] * args.num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    envs = wrappers.VectorIntrinsicReward(envs, args.reward, terms)  # motif_jax

    agent = Agent(envs.single_action_space.n, envs.single_observation_space["blstats"].shape[0])
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    all_cells = torch.zeros((*shape, CROP, CROP), dtype=torch.int64)
    all_status = torch.zeros((*shape, envs.single_observation_space["blstats"].shape[0]))
    actions, log_probs, rewards, values = (torch.zeros(shape) for _ in range(4))
    dones = torch.zeros(shape)  # whether the episode ended with the step

    obs, _ = envs.reset(seed=args.seed)
    episodes: deque[dict[str, float]] = deque(maxlen=100)
    history = []
    global_step = 0
    start = time.time()
    batch = args.num_steps * args.num_envs
    for update in range(1, args.total_timesteps // batch + 1):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (
            1 - (update - 1) * batch / args.total_timesteps
        )
        for t in range(args.num_steps):
            global_step += args.num_envs
            all_cells[t], all_status[t] = features(obs)
            with torch.no_grad():
                policy, values[t] = agent(all_cells[t], all_status[t])
                action = policy.sample()
            actions[t] = action
            log_probs[t] = policy.log_prob(action)
            obs, reward, terminated, truncated, infos = envs.step(action.numpy())
            rewards[t] = torch.from_numpy(np.asarray(reward, np.float32))
            dones[t] = torch.from_numpy(np.logical_or(terminated, truncated).astype(np.float32))
            if "reward_episode" in infos:  # motif_jax: sums of the episodes that ended
                sums = infos["reward_episode"]
                for i in np.flatnonzero(infos["_reward_episode"]):
                    episodes.append({name: float(of[i]) for name, of in sums.items()})

        with torch.no_grad():
            next_value = agent(*features(obs))[1]
            advantages = torch.zeros(shape)
            last = torch.zeros(args.num_envs)
            for t in reversed(range(args.num_steps)):
                running = 1 - dones[t]
                following = values[t + 1] if t + 1 < args.num_steps else next_value
                delta = rewards[t] + args.gamma * following * running - values[t]
                last = delta + args.gamma * args.gae_lambda * running * last
                advantages[t] = last
            returns = advantages + values

        flat = [
            x.flatten(0, 1)
            for x in (all_cells, all_status, actions, log_probs, advantages, returns)
        ]
        for _ in range(args.update_epochs):
            for rows in torch.randperm(batch).chunk(args.num_minibatches):
                cells, status, action, old, advantage, target = (x[rows] for x in flat)
                policy, value = agent(cells, status)
                ratio = (policy.log_prob(action) - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                policy_loss = -torch.min(advantage * ratio, advantage * clipped).mean()
                value_loss = 0.5 * (value - target).square().mean()
                loss = (
                    policy_loss
                    + args.vf_coef * value_loss
                    - args.ent_coef * policy.entropy().mean()
                )
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()

        row = {
            "step": global_step,
            "steps_per_second": round(global_step / (time.time() - start)),
            "loss": loss.item(),
        }
        if episodes:
            row |= {name: float(np.mean([one[name] for one in episodes])) for name in episodes[0]}
        history.append(row)
        if update % 10 == 0 or global_step + batch > args.total_timesteps:
            shown = ("step", "steps_per_second", "counted_return", "extrinsic_return", "length")
            print(
                ", ".join(f"{name} {row[name]:,.5g}" for name in shown if name in row), flush=True
            )
    envs.close()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.save(agent.state_dict(), args.out / "agent.pt")
    (args.out / "history.json").write_text(json.dumps(history, indent=1))
    print(f"written: {args.out}/agent.pt, history.json")


if __name__ == "__main__":
    main()
