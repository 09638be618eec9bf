-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Who did something else than wait around minute $m: own time beyond the other ranks', and the phase that has most of it.
WITH w AS (
    SELECT host, who, sum(step_ns - comm_ns) AS own, sum(data_ns) AS data, sum(forward_ns) AS forward, sum(backward_ns) AS backward,
        sum(optimizer_ns) AS optimizer, sum(other_ns) AS other, sum(checkpoint_ns) AS checkpoint, sum(validation_ns) AS validation
    FROM windows WHERE m BETWEEN $m - 1 AND $m + 1 GROUP BY host, who
), middle AS (
    SELECT median(own) AS own, median(data) AS data, median(forward) AS forward, median(backward) AS backward, median(optimizer) AS optimizer,
        median(other) AS other, median(checkpoint) AS checkpoint, median(validation) AS validation
    FROM w
)
SELECT w.host, w.who, w.own - middle.own AS excess, w.data - middle.data AS data, w.forward - middle.forward AS forward,
    w.backward - middle.backward AS backward, w.optimizer - middle.optimizer AS optimizer, w.other - middle.other AS other,
    w.checkpoint - middle.checkpoint AS checkpoint, w.validation - middle.validation AS validation
FROM w CROSS JOIN middle WHERE w.own - middle.own > 0.5 * $lost ORDER BY excess DESC, w.who LIMIT 100
