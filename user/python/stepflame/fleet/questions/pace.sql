-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- A step of an ordinary rank in each minute, by phase: the median over the ranks.
SELECT m, count(*) AS ranks, sum(steps) AS steps, median(step_ns / steps) AS step, median(other_ns / steps) AS other, median(data_ns / steps) AS data,
    median(forward_ns / steps) AS forward, median(backward_ns / steps) AS backward, median(optimizer_ns / steps) AS optimizer,
    median(comm_ns / steps) AS comm, median(checkpoint_ns / steps) AS checkpoint, median(validation_ns / steps) AS validation,
    median(jit_ns / steps) AS jit, median(compile_ns / steps) AS compile, median(await_ns / steps) AS await, median(transfer_ns / steps) AS transfer
FROM windows WHERE steps > 0 GROUP BY m ORDER BY m
