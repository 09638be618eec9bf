# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stable-baselines3's PPO on gymnasium's CartPole: rollouts of 256 steps, then 4 epochs of 4 minibatches."""

import sys

import clock
import faults
import torch
from stable_baselines3 import DQN, PPO

torch.set_num_threads(1)
clock.by_optimizer()
faults.arm()
if sys.argv[1:] == ["--dqn"]:
    DQN("MlpPolicy", "CartPole-v1", learning_starts=200, train_freq=4, device="cpu").learn(10**8)
else:
    PPO("MlpPolicy", "CartPole-v1", n_steps=256, batch_size=64, n_epochs=4, device="cpu").learn(10**8)
