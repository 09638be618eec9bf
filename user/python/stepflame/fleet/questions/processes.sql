-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- The processes of a job, and when they were seen.
WITH w AS (
    SELECT cluster, job, host, pid, who, min(m) AS first_m, max(m) AS last_m, sum(steps) AS steps, sum(rest_steps) AS rest_steps, sum(seen_ns) AS seen, sum(rested_ns) AS rested
    FROM windows GROUP BY cluster, job, host, pid, who
), r AS (
    SELECT cluster, job, host, pid, max(uid) AS uid, max_by(gpu, until) AS gpu, max_by(torch, until) AS torch, max_by(launcher, until) AS launcher,
        max_by(world_size, until) AS world_size, max_by(restarts, until) AS restarts, max_by(ending, until) AS ending, max_by(steps_by, until) AS steps_by
    FROM ranks GROUP BY cluster, job, host, pid
)
SELECT w.host, w.pid, w.who, w.first_m, w.last_m, w.steps, w.rest_steps, w.seen, w.rested, r.uid, r.gpu, r.torch, r.launcher, r.world_size, r.restarts,
    r.ending, r.steps_by
FROM w LEFT JOIN r ON w.cluster = r.cluster AND w.job = r.job AND w.host = r.host AND w.pid = r.pid ORDER BY w.who, w.first_m, w.host, w.pid
