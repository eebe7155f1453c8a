//! What is refused, by name, at its place, with what to do.

mod fixtures;

use fixtures::refused;

/// Statement, place, part of the message, part of the hint.
type Refused = (&'static str, Option<(u64, u64)>, &'static str, &'static str);

const REFUSED: &[Refused] = &[
    ("SELECT count(*) FROM source", Some((1, 8)), "the aggregate count is not supported", "each row"),
    ("SELECT carrier, max(dep_delay) FROM source", Some((1, 17)), "the aggregate max", "each row"),
    ("SELECT carrier FROM source GROUP BY carrier", Some((1, 37)), "GROUP BY", "each row"),
    ("SELECT DISTINCT carrier FROM source", Some((1, 1)), "DISTINCT", "each row"),
    ("SELECT carrier FROM source HAVING dep_delay > 1", None, "HAVING", "WHERE"),
    ("SELECT carrier FROM source ORDER BY carrier", None, "ORDER BY", "stream"),
    ("SELECT carrier FROM source LIMIT 10", None, "LIMIT", "WHERE"),
    ("SELECT carrier FROM source OFFSET 10", None, "LIMIT", "WHERE"),
    ("SELECT carrier FROM source FETCH FIRST 3 ROWS ONLY", None, "FETCH", "WHERE"),
    ("SELECT a.carrier FROM source a JOIN source b ON true", None, "JOIN", "one stream"),
    ("SELECT carrier FROM source, planes", None, "a join", "one stream"),
    ("SELECT carrier FROM (SELECT carrier FROM source)", None, "a subquery in FROM", "SELECT columns"),
    ("SELECT (SELECT 1) AS x FROM source", None, "a subquery", "expression on the row"),
    ("SELECT carrier FROM source WHERE carrier IN (SELECT 'a')", None, "a subquery", "expression on the row"),
    ("SELECT carrier FROM source WHERE EXISTS (SELECT 1)", None, "a subquery", "expression on the row"),
    (
        "SELECT row_number() OVER () AS n FROM source",
        Some((1, 8)),
        "the window function row_number",
        "each row",
    ),
    ("SELECT lag(dep_delay) AS n FROM source", Some((1, 8)), "the window function lag", "each row"),
    ("WITH x AS (SELECT 1) SELECT carrier FROM source", None, "WITH", "one SELECT"),
    ("SELECT carrier FROM source UNION ALL SELECT carrier FROM source", None, "UNION", "one job for each"),
    ("VALUES (1)", None, "VALUES", "SELECT columns"),
    ("INSERT INTO source VALUES (1)", None, "INSERT is no transform", "SELECT columns"),
    ("DROP TABLE source", None, "DROP is no transform", "SELECT columns"),
    ("SELECT 1 FROM source; SELECT 2 FROM source", None, "exactly one statement", "SELECT columns"),
    ("", None, "exactly one statement", "SELECT columns"),
    ("SELECT 1", None, "FROM source is missing", "SELECT columns"),
    ("SELECT carrier FROM flights", Some((1, 21)), "no table 'flights'", "the table source"),
    ("SELECT carrier FROM \"Source\"", Some((1, 21)), "no table", "the table source"),
    ("SELECT now() AS t FROM source", Some((1, 8)), "now() is not supported", "_timestamp"),
    ("SELECT carrier FROM source WHERE random() < 0.5", Some((1, 34)), "random()", "same result"),
    ("SELECT current_timestamp AS t FROM source", None, "current_timestamp", "_timestamp"),
    ("SELECT uuid() AS t FROM source", Some((1, 8)), "uuid()", "_offset"),
    ("SELECT carrier FROM source WHERE dep_delay > $1", None, "a placeholder", "write the value"),
    ("SELECT uper(carrier) AS u FROM source", Some((1, 8)), "no function 'uper'", "did you mean upper?"),
    (
        "SELECT carrier,\n  dep_dely FROM source",
        Some((2, 3)),
        "no column 'dep_dely'",
        "did you mean dep_delay?",
    ),
    ("SELECT FlightNo FROM source", Some((1, 8)), "no column 'flightno'", "did you mean \"FlightNo\"?"),
    ("SELECT zzzzzzzz FROM source", Some((1, 8)), "no column 'zzzzzzzz'", "columns: carrier, dep_delay"),
    ("SELECT source.nope FROM source", None, "no column 'nope'", "columns: carrier"),
    ("SELECT _partition FROM source", None, "cannot be named '_partition'", "_partition AS partition"),
    ("SELECT carrier AS _error FROM source", None, "cannot be named '_error'", ""),
    ("SELECT carrier, carrier FROM source", None, "two output columns", "AS"),
    ("SELECT carrier AS a, dep_delay AS a FROM source", None, "two output columns", "AS"),
    ("SELECT carrier FROM source WHERE", Some((1, 33)), "expected", ""),
    ("SELECT carrier FORM source", Some((1, 21)), "expected", ""),
    ("SELECT 'open FROM source", Some((1, 8)), "unterminated string", ""),
    ("SELECT carrier FROM source WHERE dep_delay", None, "non-boolean", ""),
    ("SELECT carrier FROM source WHERE dep_delay + 1", None, "non-boolean", ""),
    ("SELECT substr(distance) AS s FROM source", None, "substr", ""),
];

#[test]
fn each_unsupported_statement_is_named_with_what_to_do() {
    let mut wrong = Vec::new();
    for (sql, place, message, hint) in REFUSED {
        let error = refused(sql);
        let given = error.hint.as_deref().unwrap_or_default();
        let at = error.line.zip(error.column);
        if !error.message.contains(message) || !given.contains(hint) || place.is_some() && at != *place {
            wrong.push(format!("{sql}\n  got  {error:?}\n  want {place:?} '{message}' ... '{hint}'"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_error_reads_as_one_sentence() {
    let error = refused("SELECT carrier,\n  dep_dely FROM source");
    assert_eq!(
        error.to_string(),
        "line 2 column 3: no column 'dep_dely' in source (did you mean dep_delay?)"
    );
}
