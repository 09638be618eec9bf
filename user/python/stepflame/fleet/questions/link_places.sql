-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- How many lines of the program wait in collectives: with one for all ranks, links.sql can find nothing.
WITH s AS (
    SELECT DISTINCT stack FROM samples WHERE main AND phase = 'comm'
)
SELECT count(DISTINCT leaf) AS places FROM stacks WHERE stack IN (SELECT stack FROM s)
