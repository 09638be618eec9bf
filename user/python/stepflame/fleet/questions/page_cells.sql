-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- For the page: a row for each rank of a host, with its figures at each time as one text, for there are many. Times are $width minutes long;
-- phases and waits are nanoseconds of a step.
WITH sync AS (
    SELECT host, who, CAST(floor((m - $first) / $width) AS BIGINT) AS slot, sum(ns) AS ns FROM waits
    WHERE cause = 'gpu_sync' AND phase <> 'comm' AND m >= $first AND m < $first + $width * $count
    GROUP BY host, who, CAST(floor((m - $first) / $width) AS BIGINT)
), cells AS (
    SELECT host, who, CAST(floor((m - $first) / $width) AS BIGINT) AS slot, max(pid) AS pid, sum(seen_ns) AS seen, sum(rested_ns) AS rested,
        sum(steps) AS steps, sum(slow_steps) AS slow, max(longest_ns) AS longest, greatest(sum(steps), 1) AS per,
        sum(other_ns) AS other, sum(data_ns) AS data, sum(forward_ns) AS forward, sum(backward_ns) AS backward, sum(optimizer_ns) AS optimizer,
        sum(comm_ns) AS comm, sum(checkpoint_ns) AS checkpoint, sum(validation_ns) AS validation, sum(jit_ns) AS jit, sum(compile_ns) AS compile,
        sum(await_ns) AS await, sum(transfer_ns) AS transfer,
        coalesce(avg(CASE WHEN gpu_mhz BETWEEN 0 AND 100000 THEN gpu_mhz END), -1) AS mhz
    FROM windows WHERE m >= $first AND m < $first + $width * $count GROUP BY host, who, CAST(floor((m - $first) / $width) AS BIGINT)
), texts AS (
    SELECT c.host, c.who, c.pid, concat_ws(',', CAST(c.slot AS STRING), CAST(CAST(seen AS BIGINT) AS STRING), CAST(CAST(rested AS BIGINT) AS STRING),
        CAST(CAST(steps AS BIGINT) AS STRING), CAST(CAST(slow AS BIGINT) AS STRING), CAST(CAST(longest AS BIGINT) AS STRING),
        CAST(CAST(floor(mhz) AS BIGINT) AS STRING), CAST(CAST(floor(coalesce(y.ns, 0) / per) AS BIGINT) AS STRING), CAST(CAST(floor(other / per) AS BIGINT) AS STRING), CAST(CAST(floor(data / per) AS BIGINT) AS STRING),
        CAST(CAST(floor(forward / per) AS BIGINT) AS STRING), CAST(CAST(floor(backward / per) AS BIGINT) AS STRING),
        CAST(CAST(floor(optimizer / per) AS BIGINT) AS STRING), CAST(CAST(floor(comm / per) AS BIGINT) AS STRING),
        CAST(CAST(floor(checkpoint / per) AS BIGINT) AS STRING), CAST(CAST(floor(validation / per) AS BIGINT) AS STRING),
        CAST(CAST(floor(jit / per) AS BIGINT) AS STRING), CAST(CAST(floor(compile / per) AS BIGINT) AS STRING),
        CAST(CAST(floor(await / per) AS BIGINT) AS STRING), CAST(CAST(floor(transfer / per) AS BIGINT) AS STRING)) AS cell
    FROM cells c LEFT JOIN sync y ON c.host = y.host AND c.who = y.who AND c.slot = y.slot
)
SELECT host, who, max(pid) AS pid, string_agg(cell, ',') AS cells FROM texts GROUP BY host, who ORDER BY who, host
