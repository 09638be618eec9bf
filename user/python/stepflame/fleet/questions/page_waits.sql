-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- For the page: what some ranks wait for inside steps, by time, and the line that had most of it.
SELECT host, who, CAST(floor((m - $first) / $width) AS BIGINT) AS slot, phase, cause, max_by(place, ns) AS place, sum(ns) AS ns
FROM waits WHERE who IN ($ranks) AND host IN ($hosts) AND m >= $first AND m < $first + $width * $count
GROUP BY host, who, CAST(floor((m - $first) / $width) AS BIGINT), phase, cause ORDER BY host, who, slot, ns DESC
