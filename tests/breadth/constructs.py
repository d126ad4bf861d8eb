"""What of SQL a view may use, construct by construct, with a query for each.

docs/reference/sql.md is made from this (page.py), with the verdict that the planner gives; and
every query that is maintained is held against Spark under changes (test_breadth.py).
"""

from __future__ import annotations

from dataclasses import dataclass

TABLES = {
    name: f"CREATE TABLE {name} (k BIGINT, a BIGINT, b STRING, c BIGINT, PRIMARY KEY (k))"
    for name in ("t", "u")
}


@dataclass(frozen=True)
class Construct:
    """`same_as` is a query that Spark answers in one way only, where the view's own is not."""

    section: str
    name: str
    query: str
    same_as: str = ""


def _all(section: str, queries: dict[str, str]) -> list[Construct]:
    return [Construct(section, name, query) for name, query in queries.items()]


CONSTRUCTS = [
    *_all(
        "Rows",
        {
            "SELECT, WHERE, expressions": "SELECT k, a + c AS s, upper(b) AS u FROM t WHERE c > 2",
            "CASE, COALESCE, <=>, IN, LIKE": "SELECT k, CASE WHEN b LIKE 'x%' THEN 'x' ELSE "
            "coalesce(b, '-') END AS s FROM t WHERE a IN (1, 2) OR a <=> NULL",
            "a condition that divides": "SELECT k FROM t WHERE c > 0 AND 10 / c > 2",
            "a division in CASE": "SELECT k, CASE WHEN c > 0 THEN a / c END AS q FROM t",
            "NULL divided": "SELECT k, a / c AS q FROM t WHERE a IS NULL",
            "VALUES": "SELECT t.k, v.n FROM t JOIN (VALUES (1, 'one'), (2, 'two'), (NULL, 'none')) "
            "v(a, n) ON t.a = v.a",
            "a query without tables": "SELECT 1 AS x, 'a' AS y",
            "range()": "SELECT id, count(k) AS n FROM range(5) LEFT JOIN t ON t.a = id GROUP BY id",
            "LATERAL VIEW explode": "SELECT k, x FROM t LATERAL VIEW explode(split(b, ',')) e AS x",
            "LATERAL VIEW OUTER": "SELECT k, x FROM t LATERAL VIEW OUTER explode(split(b, ',')) e "
            "AS x",
            "posexplode": "SELECT k, p, x FROM t LATERAL VIEW posexplode(split(b, ',')) e AS p, x",
            "inline": "SELECT k, x, y FROM t LATERAL VIEW inline(array(struct(a AS x, c AS y), "
            "struct(c AS x, a AS y))) e AS x, y",
            "stack": "SELECT k, stack(2, 'a', a, 'c', c) AS (n, v) FROM t",
            "common table expressions": "WITH s AS (SELECT a, sum(c) AS n FROM t GROUP BY a) "
            "SELECT s.a, n FROM s JOIN u ON u.k = s.a",
            "text and patterns": "SELECT k, split_part(b, ',', 2) AS p, regexp_replace(b, '[xy]', "
            "'_') AS r, base64(encode(b, 'UTF-8')) AS e FROM t WHERE b RLIKE 'x' OR b LIKE ANY "
            "('y%', 'z%')",
            "dates and times": "SELECT k, to_date('2020-01-0' || a, 'yyyy-MM-dd') AS d, extract("
            "SECOND FROM timestamp_seconds(c)) AS s, date_trunc('HOUR', timestamp_seconds(c * 900))"
            " AS h FROM t WHERE a > 0",
            "intervals": "SELECT k, timestamp_seconds(c * 900) - timestamp_seconds(k) AS s, "
            "date_add(DATE'2020-01-01', CAST(c AS INT)) - DATE'2020-01-05' AS d FROM t WHERE "
            "timestamp_seconds(c * 900) - timestamp_seconds(a) > INTERVAL '30' MINUTE",
            "JSON": "SELECT k, from_json(j, 'a INT, b STRING').b AS f, get_json_object(j, '$.a') "
            "AS g FROM (SELECT k, to_json(struct(a, b)) AS j FROM t)",
            "functions of elements": "SELECT k, transform(split(b, ','), x -> upper(x)) AS l, "
            "filter(array(a, c), x -> x > 2) AS f, aggregate(array(a, c), 0L, (n, x) -> n + "
            "coalesce(x, 0)) AS s, array_contains(array(a, c), 3) AS h FROM t",
            "what forgives": "SELECT k, try_divide(a, c) AS d, try_add(a, 9223372036854775807) AS "
            "s, try_cast(b AS INT) AS n, get(array(a, c), a) AS g FROM t",
            "arrays, structs and maps": "SELECT k, split(b, ',') AS l, named_struct('a', a, 'c', c)"
            " AS s FROM t",
        },
    ),
    *_all(
        "Joins",
        {
            "inner": "SELECT t.k, u.k AS j FROM t JOIN u ON t.a = u.a",
            "left outer": "SELECT t.k, u.k AS j FROM t LEFT JOIN u ON t.a = u.a",
            "right outer, with more conditions": "SELECT t.k, u.k AS j FROM t RIGHT JOIN u ON "
            "t.a = u.a AND t.c < u.c",
            "full outer": "SELECT t.k, t.b, u.k AS j FROM t FULL JOIN u ON t.a = u.a",
            "full outer, with more conditions": "SELECT t.k, u.k AS j FROM t FULL JOIN u ON "
            "t.a = u.a AND t.c < u.c",
            "by NULL-safe equality": "SELECT t.k, u.k AS j FROM t JOIN u ON t.a <=> u.a",
            "cross join": "SELECT t.k, u.k AS j FROM t CROSS JOIN u",
            "cross join with one row": "SELECT t.k, s FROM (SELECT sum(c) AS s FROM u) CROSS JOIN "
            "t",
            "without an equality": "SELECT t.k, u.k AS j FROM t JOIN u ON t.a < u.a",
            "outer, without an equality": "SELECT t.k, u.k AS j FROM t LEFT JOIN u ON t.a < u.a",
            "LATERAL": "SELECT t.k, q.s FROM t, LATERAL (SELECT sum(c) AS s FROM u WHERE u.a = t.a)"
            " q",
        },
    ),
    *_all(
        "Subqueries",
        {
            "EXISTS and IN": "SELECT k FROM t WHERE a IN (SELECT c FROM u) AND EXISTS (SELECT 1 "
            "FROM u WHERE u.a = t.a)",
            "NOT IN, with NULLs": "SELECT k FROM t WHERE a NOT IN (SELECT c FROM u)",
            "NOT EXISTS without an equality": "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u "
            "WHERE u.a > t.a)",
            "IN beside OR": "SELECT k FROM t WHERE c > 5 OR a IN (SELECT c FROM u)",
            "NOT IN beside OR": "SELECT k FROM t WHERE c > 5 OR a NOT IN (SELECT c FROM u)",
            "EXISTS in SELECT": "SELECT k, exists(SELECT 1 FROM u WHERE u.a = t.a AND u.c > t.c) "
            "AS e FROM t",
            "IN in CASE": "SELECT k, CASE WHEN a IN (SELECT a FROM u) THEN 'in' ELSE 'out' END "
            "AS s FROM t",
            "scalar, compared with": "SELECT k FROM t WHERE c > (SELECT avg(c) FROM u)",
            "scalar, in SELECT": "SELECT k, c - (SELECT avg(c) FROM u) AS d, (SELECT count(*) FROM "
            "u) AS n FROM t",
            "scalar, in HAVING": "SELECT b, sum(c) AS s FROM t GROUP BY b HAVING sum(c) > (SELECT "
            "avg(c) FROM u)",
            "correlated, in WHERE": "SELECT k FROM t WHERE c > (SELECT avg(c) FROM u WHERE u.a = "
            "t.a)",
            "correlated, in SELECT": "SELECT k, (SELECT max(b) FROM u WHERE u.a = t.a) AS x FROM t",
            "correlated, of one row": "SELECT k, (SELECT b FROM u WHERE u.k = t.a) AS x FROM t",
            "correlated, in HAVING": "SELECT a, sum(c) AS s FROM t GROUP BY a HAVING sum(c) >= "
            "(SELECT max(c) FROM u WHERE u.a = t.a)",
        },
    ),
    *_all(
        "Sets and order",
        {
            "UNION ALL": "SELECT a FROM t UNION ALL SELECT c FROM u",
            "UNION": "SELECT a FROM t UNION SELECT c FROM u",
            "EXCEPT": "SELECT a, b FROM t EXCEPT SELECT a, b FROM u",
            "EXCEPT ALL": "SELECT a, b FROM t EXCEPT ALL SELECT a, b FROM u",
            "INTERSECT": "SELECT a, b FROM t INTERSECT SELECT a, b FROM u",
            "INTERSECT ALL": "SELECT a, b FROM t INTERSECT ALL SELECT a, b FROM u",
            "DISTINCT": "SELECT DISTINCT a, b FROM t",
            "ORDER BY, an order of reading": "SELECT k, c FROM t ORDER BY c DESC, k",
            "ORDER BY with LIMIT": "SELECT b FROM t ORDER BY c DESC, k LIMIT 3",
            "LIMIT with OFFSET": "SELECT k, c FROM t ORDER BY c DESC, k LIMIT 3 OFFSET 2",
            "OFFSET without LIMIT": "SELECT k FROM t ORDER BY k OFFSET 2",
        },
    ),
    *_all(
        "Aggregates",
        {
            "count, sum, avg": "SELECT b, count(*) AS n, count(a) AS m, sum(c) AS s, avg(c) AS v "
            "FROM t GROUP BY b",
            "min, max": "SELECT b, min(c) AS x, max(c) AS y FROM t GROUP BY b",
            "sums that are NULL if they don't fit": "SELECT b, try_sum(c) AS s, try_avg(c) AS v "
            "FROM t GROUP BY b",
            "of intervals": "SELECT b, sum(s) AS n, avg(s) AS v, min(s) AS x, max(s) AS y FROM "
            "(SELECT b, timestamp_seconds(c * 900) - timestamp_seconds(a) AS s FROM t) GROUP BY b",
            "of all rows": "SELECT count(*) AS n, sum(c) AS s, min(b) AS x FROM t",
            "HAVING": "SELECT b, sum(c) AS s FROM t GROUP BY b HAVING count(*) > 1",
            "DISTINCT": "SELECT b, count(DISTINCT a) AS n, sum(DISTINCT a) AS s FROM t GROUP BY b",
            "several DISTINCT": "SELECT b, count(DISTINCT a) AS x, count(DISTINCT c) AS y, sum(c) "
            "AS s FROM t GROUP BY b",
            "count of several columns": "SELECT b, count(DISTINCT a, c) AS x, count(a, c) AS y FROM"
            " t GROUP BY b",
            "FILTER": "SELECT b, count(*) FILTER (WHERE c > 1) AS n, sum(c) FILTER (WHERE a > 1) "
            "AS s, count(DISTINCT a) FILTER (WHERE c > 2) AS d FROM t GROUP BY b",
            "ROLLUP": "SELECT b, a, sum(c) AS s, grouping(a) AS g FROM t GROUP BY ROLLUP (b, a)",
            "CUBE": "SELECT b, a, count(*) AS n FROM t GROUP BY CUBE (b, a)",
            "GROUPING SETS": "SELECT a, b, count(DISTINCT c) AS n FROM t GROUP BY GROUPING SETS "
            "((a), (b), ())",
            "PIVOT": "SELECT * FROM (SELECT a, b, c FROM t) PIVOT (sum(c) FOR b IN ('x', 'y'))",
            "stddev, variance": "SELECT b, stddev(c) AS s, stddev_pop(c) AS p, variance(c) AS v, "
            "var_pop(c) AS w FROM t GROUP BY b",
            "covariance": "SELECT b, covar_samp(a, c) AS s, covar_pop(a, c) AS p FROM t GROUP BY b",
            "covariance of distinct pairs": "SELECT b, covar_pop(DISTINCT a, c) AS p FROM t "
            "GROUP BY b",
            "bool_and, bool_or, count_if": "SELECT b, bool_and(c > 1) AS x, bool_or(c > 8) AS y, "
            "count_if(c > 2) AS n FROM t GROUP BY b",
            "bit_xor": "SELECT b, bit_xor(c) AS x, bit_xor(DISTINCT a) AS y, bit_xor(CAST(c AS "
            "TINYINT)) FILTER (WHERE a > 1) AS z FROM t GROUP BY b",
            "bit_and, bit_or": "SELECT b, bit_and(c) AS x, bit_or(c) AS y FROM t GROUP BY b",
            "percentile, median": "SELECT b, percentile(c, 0.25) AS p, median(c) AS m FROM t GROUP "
            "BY b",
            "skewness, kurtosis": "SELECT b, skewness(c) AS s, kurtosis(c) AS q FROM t GROUP BY b",
            "listagg": "SELECT b, listagg(CAST(c AS STRING), ',') WITHIN GROUP (ORDER BY c) AS l "
            "FROM t GROUP BY b",
            "both kinds together": "SELECT b, count(*) AS n, sum(c) AS s, median(c) AS m FROM t "
            "GROUP BY b",
            "min, max of structs": "SELECT a, min(struct(c, b)) AS x, max(struct(b, k)).k AS y "
            "FROM t GROUP BY a",
            "regression": "SELECT b, regr_slope(a, c) AS s, regr_sxx(a, c) AS x, regr_count(a, c) "
            "AS n FROM t GROUP BY b",
            "time windows": "SELECT window.start AS w, sum(a) AS s FROM t GROUP BY "
            "window(timestamp_seconds(c * 900), '1 hour', '30 minutes')",
            "session windows": "SELECT session_window.start AS w, sum(a) AS s FROM t GROUP BY "
            "session_window(timestamp_seconds(c * 900), '1 hour')",
            "by touched group, of all rows": "SELECT median(c) AS m, bit_or(a) AS o FROM t",
            "approx_count_distinct": "SELECT b, approx_count_distinct(a) AS n FROM t GROUP BY b",
        },
    ),
    Construct(
        "Aggregates",
        "corr",
        "SELECT b, corr(a, c) AS r FROM t GROUP BY b",
        "SELECT b, CASE WHEN var_pop(x) > 0 AND var_pop(y) > 0 THEN try_divide(covar_pop(x, y), "
        "stddev_pop(x) * stddev_pop(y)) END AS r FROM (SELECT b, CASE WHEN c IS NOT NULL THEN a "
        "END AS x, CASE WHEN a IS NOT NULL THEN c END AS y FROM t) GROUP BY b",
    ),
    Construct(
        "Aggregates",
        "max_by, min_by",
        "SELECT b, max_by(k, c) AS x, min_by(k, c) AS y FROM t GROUP BY b",
        "SELECT b, max(struct(c, k)) FILTER (WHERE c IS NOT NULL).k AS x, min(struct(c, k)) FILTER "
        "(WHERE c IS NOT NULL).k AS y FROM t GROUP BY b",
    ),
    Construct(
        "Aggregates",
        "first, last, any_value: the least, the greatest, the least",
        "SELECT b, first(c) AS x, last(c) AS y, any_value(c) AS z FROM t GROUP BY b",
        "SELECT b, min(c) AS x, max(c) AS y, min(c) AS z FROM t GROUP BY b",
    ),
    Construct(
        "Aggregates",
        "mode: the least of the most frequent",
        "SELECT a, mode(c) AS m FROM t GROUP BY a",
        "SELECT a, mode(c, true) AS m FROM t GROUP BY a",
    ),
    Construct(
        "Aggregates",
        "listagg without an order: sorted",
        "SELECT a, listagg(b) AS l, listagg(DISTINCT b, '|') AS d FROM t GROUP BY a",
        "SELECT a, listagg(b, '') WITHIN GROUP (ORDER BY b) AS l, listagg(DISTINCT b, '|') WITHIN "
        "GROUP (ORDER BY b) AS d FROM t GROUP BY a",
    ),
    Construct(
        "Aggregates",
        "collect_list, collect_set, array_agg: sorted",
        "SELECT b, collect_list(c) AS l, collect_set(c) AS s, array_agg(c) AS g FROM t GROUP BY b",
        "SELECT b, sort_array(collect_list(c)) AS l, sort_array(collect_set(c)) AS s, "
        "sort_array(array_agg(c)) AS g FROM t GROUP BY b",
    ),
    *_all(
        "Windows",
        {
            "row_number": "SELECT k, row_number() OVER (PARTITION BY b ORDER BY c, k) AS r FROM t",
            "rank, dense_rank": "SELECT k, rank() OVER (PARTITION BY b ORDER BY c) AS r, "
            "dense_rank() OVER (PARTITION BY b ORDER BY c DESC NULLS LAST) AS d FROM t",
            "percent_rank, cume_dist, ntile": "SELECT k, percent_rank() OVER (PARTITION BY b ORDER "
            "BY c) AS p, cume_dist() OVER (PARTITION BY b ORDER BY c) AS d, ntile(3) OVER "
            "(PARTITION BY b ORDER BY k) AS n FROM t",
            "lag, lead": "SELECT k, lag(c) OVER (PARTITION BY b ORDER BY k) AS p, lead(c, 2, -1) "
            "OVER (PARTITION BY b ORDER BY k) AS n FROM t",
            "first_value, last_value, nth_value": "SELECT k, first_value(c) OVER w AS f, "
            "last_value(c) OVER w AS l, nth_value(c, 2) OVER w AS n FROM t WINDOW w AS (PARTITION "
            "BY b ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
            "aggregates of a partition": "SELECT k, sum(c) OVER (PARTITION BY b) AS s, avg(CAST(c "
            "AS DECIMAL(7,2))) OVER (PARTITION BY b) AS v FROM t",
            "of rows, running and framed": "SELECT k, sum(c) OVER (PARTITION BY b ORDER BY k) AS s,"
            " min(c) OVER (PARTITION BY b ORDER BY k ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS m"
            " FROM t",
            "of a range": "SELECT k, sum(c) OVER (PARTITION BY b ORDER BY a RANGE BETWEEN 1 "
            "PRECEDING AND 1 FOLLOWING) AS s FROM t WHERE a IS NOT NULL",
            "of a range of time": "SELECT k, sum(a) OVER (ORDER BY timestamp_seconds(c * 900) "
            "RANGE BETWEEN INTERVAL '30' MINUTE PRECEDING AND CURRENT ROW) AS s, count(*) OVER "
            "(PARTITION BY b ORDER BY date_add(DATE'2020-01-01', CAST(c AS INT)) RANGE BETWEEN "
            "2 PRECEDING AND 1 FOLLOWING) AS n FROM t",
            "FILTER in a window": "SELECT k, count(*) FILTER (WHERE c > 3) OVER (PARTITION BY b) AS"
            " n, max(c) FILTER (WHERE a > 1) OVER (PARTITION BY b ORDER BY k) AS m FROM t",
            "over all rows": "SELECT k, count(*) OVER () AS n, rank() OVER (ORDER BY c DESC) AS r "
            "FROM t",
            "over aggregates": "SELECT b, c, sum(sum(a)) OVER (PARTITION BY b ORDER BY c) AS s FROM"
            " t GROUP BY b, c",
            "the first of each group": "SELECT k, b FROM t QUALIFY row_number() OVER (PARTITION BY "
            "b ORDER BY c DESC, k) <= 2",
        },
    ),
    *_all(
        "Of the moment, of chance, or without end",
        {
            "current_date, now": "SELECT k FROM t WHERE c < day(current_date())",
            "rand, uuid": "SELECT k, rand() AS r FROM t",
            "recursive WITH": "WITH RECURSIVE r(n) AS (SELECT a FROM t UNION ALL SELECT n + 1 FROM "
            "r WHERE n < 5) SELECT n FROM r",
            "TABLESAMPLE": "SELECT k FROM t TABLESAMPLE (10 PERCENT)",
        },
    ),
]
