-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- For the page: the stacks of some ranks, of the thread that makes the steps, that had most samples, by time.
WITH s AS (
    SELECT host, who, CAST(floor((m - $first) / $width) AS BIGINT) AS slot, stack, sum(weight_ns) AS ns
    FROM samples WHERE main AND who IN ($ranks) AND host IN ($hosts) AND m >= $first AND m < $first + $width * $count
    GROUP BY host, who, CAST(floor((m - $first) / $width) AS BIGINT), stack
), top AS (
    SELECT *, row_number() OVER (PARTITION BY host, who, slot ORDER BY ns DESC, stack) AS place, sum(ns) OVER (PARTITION BY host, who, slot) AS all_ns FROM s
), names AS (
    SELECT stack, min(path) AS path FROM stacks WHERE stack IN (SELECT stack FROM top WHERE place <= $stacks) GROUP BY stack
)
SELECT top.host, top.who, top.slot, names.path, top.ns / top.all_ns AS share FROM top JOIN names ON top.stack = names.stack
WHERE top.place <= $stacks ORDER BY top.host, top.who, top.slot, top.place
