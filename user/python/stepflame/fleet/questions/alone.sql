-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Ranks ranks on hosts hosts in minutes minutes, against all others: ns of a step by phase, and the clock of the GPU.
SELECT CASE WHEN who IN ($ranks) AND host IN ($hosts) THEN 1 ELSE 0 END AS it, sum(steps) AS steps, sum(step_ns) AS step_time,
    sum(other_ns) AS other, sum(data_ns) AS data, sum(forward_ns) AS forward, sum(backward_ns) AS backward, sum(optimizer_ns) AS optimizer,
    sum(comm_ns) AS comm, sum(checkpoint_ns) AS checkpoint, sum(validation_ns) AS validation, sum(jit_ns) AS jit, sum(compile_ns) AS compile,
    sum(await_ns) AS await, sum(transfer_ns) AS transfer,
    sum(oncpu_ns) AS oncpu, sum(gc_ns) AS gc, avg(gpu_mhz) AS gpu_mhz, avg(gpu_busy) AS gpu_busy, sum(throttled_ns) AS throttled
FROM windows WHERE steps > 0 AND m IN ($minutes) GROUP BY CASE WHEN who IN ($ranks) AND host IN ($hosts) THEN 1 ELSE 0 END ORDER BY it
