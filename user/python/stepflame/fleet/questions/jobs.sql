-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Each job: what was seen of it, and where the time of its steps went. Each process without a rank counts as one.
SELECT cluster, job, count(DISTINCT concat(CASE WHEN rank IS NULL THEN host ELSE '' END, who)) AS ranks, count(DISTINCT host) AS hosts, count(DISTINCT concat(host, ' ', pid)) AS processes,
    min(m) AS first_m, max(m) AS last_m, sum(steps) AS steps, sum(rest_steps) AS rest_steps, sum(seen_ns) AS seen, sum(rested_ns) AS rested,
    sum(step_ns) AS step_time, max(longest_ns) AS longest, sum(slow_steps) AS slow_steps, sum(gc_ns) AS gc,
    sum(other_ns) AS other, sum(data_ns) AS data, sum(forward_ns) AS forward, sum(backward_ns) AS backward, sum(optimizer_ns) AS optimizer,
    sum(comm_ns) AS comm, sum(checkpoint_ns) AS checkpoint, sum(validation_ns) AS validation, sum(jit_ns) AS jit, sum(compile_ns) AS compile,
    sum(await_ns) AS await, sum(transfer_ns) AS transfer,
    avg(gpu_busy) AS gpu_busy, median(gpu_mhz) AS gpu_mhz, median(measured) AS measured, median(accounted) AS accounted
FROM windows GROUP BY cluster, job ORDER BY cluster, job
