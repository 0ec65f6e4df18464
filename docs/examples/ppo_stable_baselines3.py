"""A trained reward around NetHack, and the PPO of Stable-Baselines3.

    python docs/examples/ppo_stable_baselines3.py --reward runs/quickstart/reward

Needs Stable-Baselines3 besides motif_jax: `bash launch/setup_examples.sh` makes an environment with
it.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from pathlib import Path

import gymnasium as gym
import nle  # noqa: F401 - registers NetHack's tasks
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from motif_jax import rewards, wrappers  # motif_jax

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
    parser.add_argument("--out", type=Path, default=Path("runs/ppo_stable_baselines3"))
    return parser.parse_args()


class Near(gym.ObservationWrapper):
    """The cells around the hero and the status line, in place of the whole screen."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.observation_space = gym.spaces.Dict(
            {
                "cells": gym.spaces.Box(0, 255, (CROP, CROP), np.float32),
                "status": gym.spaces.Box(-1, 1, env.observation_space["blstats"].shape, np.float32),
            }
        )

    def observation(self, obs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        x, y = obs["blstats"][:2]
        padded = np.pad(obs["chars"], CROP // 2, constant_values=ord(" "))
        cells = padded[y : y + CROP, x : x + CROP].astype(np.float32)
        return {"cells": cells, "status": np.tanh(obs["blstats"].astype(np.float32) / 20)}


class Encoder(BaseFeaturesExtractor):
    """Characters are embedded, then convolved."""

    def __init__(self, space: gym.spaces.Dict) -> None:
        status = space["status"].shape[0]
        super().__init__(space, features_dim=32 * (CROP - 4) ** 2 + status)
        self.embedding = nn.Embedding(256, 16)
        self.image = nn.Sequential(
            nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten()
        )

    def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        image = self.image(self.embedding(obs["cells"].long()).permute(0, 3, 1, 2))
        return torch.cat([image, obs["status"]], 1)


class Returns(BaseCallback):
    """Says what the episodes that ended came to, by the parts of their reward."""

    def __init__(self) -> None:
        super().__init__()
        self.episodes: deque[dict[str, float]] = deque(maxlen=100)
        self.history: list[dict[str, float]] = []

    def _on_step(self) -> bool:
        self.episodes.extend(
            info["reward_episode"] for info in self.locals["infos"] if "reward_episode" in info
        )
        return True

    def _on_rollout_end(self) -> None:
        row = {"step": self.num_timesteps}
        if self.episodes:
            row |= {
                name: float(np.mean([one[name] for one in self.episodes]))
                for name in self.episodes[0]
            }
        self.history.append(row)
        if len(self.history) % 10 == 0:
            print(", ".join(f"{name} {value:,.5g}" for name, value in row.items()), flush=True)


def main() -> None:
    args = parse()
    # motif_jax: one reward for all environments, so that what is computed once is known to all.
    reward = rewards.load(args.reward)
    terms = wrappers.Terms.nethack(intrinsic_coefficient=0.5, extrinsic_coefficient=0.0)

    def make_env() -> gym.Env:
        env = gym.make(
            args.env_id,
            observation_keys=("chars", "blstats", "message"),
            max_episode_steps=args.max_episode_steps,
        )
        return Near(wrappers.IntrinsicReward(env, reward, terms))  # motif_jax

    envs = DummyVecEnv([make_env] * args.num_envs)
    model = PPO(
        "MultiInputPolicy",
        envs,
        n_steps=args.num_steps,
        batch_size=args.num_steps * args.num_envs // 4,
        n_epochs=2,
        learning_rate=5e-4,
        ent_coef=0.01,
        seed=args.seed,
        device="cpu",
        policy_kwargs={"features_extractor_class": Encoder, "net_arch": [128]},
    )
    returns = Returns()
    model.learn(args.total_timesteps, callback=returns)
    envs.close()
    args.out.mkdir(parents=True, exist_ok=True)
    model.save(args.out / "agent.zip")
    (args.out / "history.json").write_text(json.dumps(returns.history, indent=1))
    print(f"written: {args.out}/agent.zip, history.json")


if __name__ == "__main__":
    main()
