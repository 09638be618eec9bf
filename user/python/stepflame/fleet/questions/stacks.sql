-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- The stacks of the same ranks' samples in the thread that makes the steps, outside of collectives, against ranks of others.
WITH s AS (
    SELECT CASE WHEN who IN ($ranks) AND host IN ($hosts) THEN 1 ELSE 0 END AS it, phase, cause, stack, sum(weight_ns) AS ns
    FROM samples WHERE main AND phase <> 'comm' AND host IN ($hosts, $others) AND m IN ($minutes)
    GROUP BY CASE WHEN who IN ($ranks) AND host IN ($hosts) THEN 1 ELSE 0 END, phase, cause, stack
), names AS (
    SELECT stack, min(path) AS path, min(leaf) AS leaf FROM stacks WHERE stack IN (SELECT stack FROM s) GROUP BY stack
)
SELECT s.it, s.phase, s.cause, names.leaf, names.path, s.ns FROM s JOIN names ON s.stack = names.stack ORDER BY s.it, s.ns DESC, names.path
