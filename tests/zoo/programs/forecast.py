# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""neuralforecast's NHITS, which trains by Lightning, on made-up series; it validates every 50 steps."""

import clock
import faults
import numpy as np
import pandas as pd
import torch
from neuralforecast import NeuralForecast
from neuralforecast.models import NHITS

stamps = pd.date_range("2020-01-01", periods=400, freq="D")
rows = [pd.DataFrame({"unique_id": "s%d" % i, "ds": stamps, "y": np.sin(np.arange(400) / 7 + i)}) for i in range(20)]
torch.set_num_threads(1)
clock.by_optimizer()
faults.arm()
settings = {"accelerator": "cpu", "enable_progress_bar": False, "logger": False, "enable_checkpointing": False, "enable_model_summary": False}
model = NHITS(h=12, input_size=48, max_steps=10**6, val_check_steps=50, batch_size=4, windows_batch_size=32, mlp_units=[[64, 64]] * 3, **settings)
NeuralForecast(models=[model], freq="D").fit(pd.concat(rows), val_size=50)
