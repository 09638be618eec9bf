-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Where the hours of the ranks went. Waiting for stragglers: what a rank was in collectives longer than the one that was there for the shortest time
-- in that minute. Host-bound: outside of data and collectives, while the GPU had nothing to do (where its use is known). The shares of what was seen
-- are those of all: hours that were not seen are named, not spread.
WITH least_comm AS (
    SELECT cluster, job, m, min(comm_ns / steps) AS comm, count(DISTINCT concat(CASE WHEN rank IS NULL THEN host ELSE '' END, who)) AS ranks
    FROM windows WHERE steps > 0 GROUP BY cluster, job, m
), users AS (
    SELECT cluster, job, host, pid, max(uid) AS uid, max(CASE WHEN gpu IS NULL THEN 0 ELSE 1 END) AS gpu FROM ranks GROUP BY cluster, job, host, pid
), w AS (
    SELECT w.cluster, w.job, w.host, w.pid, w.m, w.seen_ns, w.rested_ns, w.step_ns, w.data_ns, w.checkpoint_ns, w.validation_ns,
        w.jit_ns + w.compile_ns AS compile_ns, w.forward_ns + w.backward_ns + w.optimizer_ns + w.other_ns + w.await_ns + w.transfer_ns AS work_ns,
        coalesce(w.gpu_busy, 1.0) AS busy, w.comm_ns,
        CASE WHEN l.ranks > 1 THEN least(w.comm_ns, l.comm * w.steps) ELSE w.comm_ns END AS moving_ns
    FROM windows w LEFT JOIN least_comm l ON w.cluster = l.cluster AND w.job = l.job AND w.m = l.m
), p AS (
    SELECT cluster, job, host, pid, sum(seen_ns) AS seen, sum(rested_ns) AS rested,
        CASE WHEN max(m) = min(m) THEN sum(seen_ns + rested_ns)
            ELSE (max(m) - min(m) - 1) * 6e10 + min_by(seen_ns + rested_ns, m) + max_by(seen_ns + rested_ns, m) END AS lived,
        sum(work_ns * busy) AS compute, sum(work_ns * (1 - busy)) AS host_bound, sum(data_ns) AS data, sum(moving_ns) AS communication,
        sum(comm_ns - moving_ns) AS stragglers, sum(checkpoint_ns) AS checkpoint, sum(validation_ns) AS validation, sum(compile_ns) AS compile,
        sum(step_ns) AS step_time
    FROM w GROUP BY cluster, job, host, pid
)
SELECT $by AS name, count(DISTINCT p.job) AS jobs, count(*) AS processes, sum(u.gpu) AS with_gpu, sum(greatest(p.lived, p.seen)) / 3.6e12 AS hours,
    sum(p.seen) / 3.6e12 AS seen, sum(p.rested) / 3.6e12 AS rested, sum(p.compute) / 3.6e12 AS compute, sum(p.host_bound) / 3.6e12 AS host_bound,
    sum(p.data) / 3.6e12 AS data, sum(p.communication) / 3.6e12 AS communication, sum(p.stragglers) / 3.6e12 AS stragglers,
    sum(p.checkpoint) / 3.6e12 AS checkpoint, sum(p.validation) / 3.6e12 AS validation, sum(p.compile) / 3.6e12 AS compile,
    sum(greatest(p.seen - p.step_time, 0)) / 3.6e12 AS between_steps, sum(greatest(p.lived - p.seen, 0)) / 3.6e12 AS not_seen
FROM p LEFT JOIN users u ON p.cluster = u.cluster AND p.job = u.job AND p.host = u.host AND p.pid = u.pid
GROUP BY $by ORDER BY hours DESC, name
