-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Who did something else than wait around a minute: own time beyond what the same rank has in the ten minutes before and behind, and beyond the other
-- ranks' in that minute; and the phase that has most of it.
WITH usual AS (
    SELECT host, who, sum(step_ns - comm_ns) / sum(steps) AS own FROM windows
    WHERE steps > 0 AND m BETWEEN $m - 10 AND $m + 10 AND NOT m BETWEEN $m - 1 AND $m + 1 GROUP BY host, who
), w AS (
    SELECT host, who, sum(steps) AS steps, sum(step_ns - comm_ns) AS own, sum(data_ns) AS data, sum(forward_ns) AS forward, sum(backward_ns) AS backward,
        sum(optimizer_ns) AS optimizer, sum(other_ns) AS other, sum(checkpoint_ns) AS checkpoint, sum(validation_ns) AS validation
    FROM windows WHERE m BETWEEN $m - 1 AND $m + 1 GROUP BY host, who
), more AS (
    SELECT w.host, w.who, w.own - coalesce(usual.own, 0) * w.steps AS excess, w.data, w.forward, w.backward, w.optimizer, w.other, w.checkpoint, w.validation
    FROM w LEFT JOIN usual ON w.host = usual.host AND w.who = usual.who
), middle AS (
    SELECT CASE WHEN count(*) > 2 THEN median(excess) ELSE min(excess) END AS excess,
        CASE WHEN count(*) > 2 THEN median(data) ELSE min_by(data, excess) END AS data,
        CASE WHEN count(*) > 2 THEN median(forward) ELSE min_by(forward, excess) END AS forward,
        CASE WHEN count(*) > 2 THEN median(backward) ELSE min_by(backward, excess) END AS backward,
        CASE WHEN count(*) > 2 THEN median(optimizer) ELSE min_by(optimizer, excess) END AS optimizer,
        CASE WHEN count(*) > 2 THEN median(other) ELSE min_by(other, excess) END AS other,
        CASE WHEN count(*) > 2 THEN median(checkpoint) ELSE min_by(checkpoint, excess) END AS checkpoint,
        CASE WHEN count(*) > 2 THEN median(validation) ELSE min_by(validation, excess) END AS validation
    FROM more
)
SELECT more.host, more.who, more.excess - middle.excess AS excess, more.data - middle.data AS data, more.forward - middle.forward AS forward,
    more.backward - middle.backward AS backward, more.optimizer - middle.optimizer AS optimizer, more.other - middle.other AS other,
    more.checkpoint - middle.checkpoint AS checkpoint, more.validation - middle.validation AS validation
FROM more CROSS JOIN middle WHERE more.excess - middle.excess > 0.5 * $lost ORDER BY more.excess DESC, more.who LIMIT 100
