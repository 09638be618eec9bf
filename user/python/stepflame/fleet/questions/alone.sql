-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Ranks ranks on hosts hosts in minutes minutes, against all others: ns of a step by phase, and the clock of the GPU: of GPUs of the same names.
WITH model AS (
    SELECT cluster, job, host, pid, max(gpu) AS gpu FROM ranks GROUP BY cluster, job, host, pid
), w AS (
    SELECT w.*, CASE WHEN coalesce(g.gpu, '') IN ($gpus) THEN w.gpu_mhz END AS mhz
    FROM windows w LEFT JOIN model g ON w.cluster = g.cluster AND w.job = g.job AND w.host = g.host AND w.pid = g.pid
    WHERE w.steps > 0 AND w.m IN ($minutes)
)
SELECT CASE WHEN who IN ($ranks) AND host IN ($hosts) THEN 1 ELSE 0 END AS it, sum(steps) AS steps, sum(step_ns) AS step_time,
    sum(other_ns) AS other, sum(data_ns) AS data, sum(forward_ns) AS forward, sum(backward_ns) AS backward, sum(optimizer_ns) AS optimizer,
    sum(comm_ns) AS comm, sum(checkpoint_ns) AS checkpoint, sum(validation_ns) AS validation, sum(jit_ns) AS jit, sum(compile_ns) AS compile,
    sum(await_ns) AS await, sum(transfer_ns) AS transfer,
    sum(oncpu_ns) AS oncpu, sum(gc_ns) AS gc, avg(mhz) AS gpu_mhz, avg(gpu_busy) AS gpu_busy, sum(throttled_ns) AS throttled
FROM w GROUP BY CASE WHEN who IN ($ranks) AND host IN ($hosts) THEN 1 ELSE 0 END ORDER BY it
