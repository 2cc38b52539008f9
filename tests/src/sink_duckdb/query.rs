//! Reading queries: everything that reads works, nothing that writes does, and limits hold.

use std::time::Duration;

use landfall::sink::duckdb::query::{Limits, Table, run};
use landfall::sink::{Batch, Error, Kind, Sink as _};
use landfall_schemas::Value;

use super::{Bench, begin, push, schema, target, texts};

fn filled() -> Bench {
    let schema = schema(&[("id", "int64"), ("moment", "timestamptz(6)"), ("b", "bytes")], &["id"]);
    let mut target = target("t", &schema);
    let mut bench = Bench::new();
    let (fence, next) = begin(&mut bench.sink, &mut target);
    let mut batch = Batch::default();
    batch.reset(0, fence, next, 1);
    for id in 1..=3 {
        push(&mut batch, &schema, &[Value::Int(id), Value::Timestamp(0), Value::Bytes(&[0, 65])], true);
    }
    bench.sink.land(&target, &batch).expect("lands");
    bench
}

fn ask(bench: &mut Bench, query: &str) -> Result<Table, Error> {
    bench.sink.query(query, &Limits::default())
}

#[test]
fn everything_that_reads_works() {
    let mut bench = filled();
    // Through the process that holds the file, and on the file itself.
    for closed in [false, true] {
        if closed {
            bench.sink.idle().expect("closes");
        }
        let table = ask(&mut bench, "SELECT id, moment, b, NULL AS n FROM t ORDER BY id DESC LIMIT 1;").expect("reads");
        assert_eq!(table.columns, ["id", "moment", "b", "n"]);
        assert_eq!(table.rows, texts(&[&["3", "1970-01-01 00:00:00+00", "\\x00A", "NULL"]]));
        for (query, rows) in [
            ("FROM t", 3),
            ("WITH x AS (SELECT 1) SELECT * FROM x -- a comment", 1),
            ("SHOW TABLES", 1),
            ("DESCRIBE t", 3),
            ("SUMMARIZE t", 3),
            ("VALUES ('1'), ('it''s')", 2),
            ("SELECT 1 AS a, 2 AS a", 1),
            ("SELECT * FROM landfall.cursor", 1),
            ("SELECT * FROM t WHERE false", 0),
        ] {
            assert_eq!(ask(&mut bench, query).expect(query).rows.len(), rows, "{query}");
        }
        assert!(format!("{:?}", ask(&mut bench, "EXPLAIN SELECT * FROM t").expect("plans")).contains("SCAN"));
        assert!(format!("{:?}", ask(&mut bench, "explain analyze SELECT count(*) FROM t").expect("plans")).contains("Total Time"));
    }
    // The order of the query is the order of the answer.
    let many = ask(&mut bench, "SELECT range AS r FROM range(9000) ORDER BY r DESC").expect("reads");
    let numbers: Vec<i64> = many.rows.iter().map(|r| r[0].as_ref().expect("a number").parse().expect("a number")).collect();
    assert_eq!(numbers, (0..9_000).rev().collect::<Vec<_>>());
}

#[test]
fn nothing_that_writes_does() {
    let mut bench = filled();
    let outside = bench.folder.path().join("outside");
    let outside = outside.display();
    let path = bench.path();
    for query in [
        "DELETE FROM t".to_owned(),
        "INSERT INTO t VALUES (9, NULL, NULL) RETURNING id".to_owned(),
        "UPDATE t SET id = 0".to_owned(),
        "DROP TABLE t".to_owned(),
        "CREATE TABLE x AS SELECT 1".to_owned(),
        "SELECT 1; DELETE FROM t".to_owned(),
        "COMMIT; DELETE FROM t; SELECT 1".to_owned(),
        "SELECT 1') ; DELETE FROM t; SELECT * FROM query('SELECT 1".to_owned(),
        "WITH x AS (DELETE FROM t RETURNING id) SELECT * FROM x".to_owned(),
        "EXPLAIN ANALYZE DELETE FROM t".to_owned(),
        "EXPLAIN ANALYZE SELECT 1; DELETE FROM t".to_owned(),
        "explain EXPLAIN ANALYZE DELETE FROM t".to_owned(),
        "SET memory_limit = '10GB'".to_owned(),
        "PRAGMA threads = 8".to_owned(),
        "CALL checkpoint()".to_owned(),
        "CHECKPOINT".to_owned(),
        "BEGIN".to_owned(),
        "LOAD httpfs".to_owned(),
        "INSTALL httpfs".to_owned(),
        format!("ATTACH '{outside}' AS o"),
        format!("COPY t TO '{outside}'"),
        format!("EXPORT DATABASE '{outside}'"),
        format!("SELECT * FROM read_text('{}')", path.display()),
        "SELECT * FROM read_csv('/etc/passwd')".to_owned(),
        "FROM '/etc/passwd'".to_owned(),
        "SELECT * FROM glob('/*')".to_owned(),
        "SELECT * FROM query('DELETE FROM t')".to_owned(),
        "SELECT getenv('HOME')".to_owned(),
        "PREPARE p AS DELETE FROM t".to_owned(),
        String::new(),
    ] {
        let error = ask(&mut bench, &query).map(|t| panic!("{query} gave {t:?}")).expect_err("refused");
        assert_eq!(error.kind, Kind::Unsupported, "{query}: {error}");
    }
    assert!(!std::path::Path::new(&outside.to_string()).exists());
    assert_eq!(bench.read("SELECT count(*), sum(id) FROM t"), texts(&[&["3", "6"]]));
    assert_eq!(bench.read("SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'main'"), texts(&[&["1"]]));
}

#[test]
fn limits_cut_and_say_so() {
    let mut bench = filled();
    let limits = |rows, bytes| Limits { rows, bytes, time: Duration::from_secs(30) };
    let whole = bench.sink.query("SELECT * FROM range(5)", &limits(5, 1_000)).expect("reads");
    assert_eq!((whole.rows.len(), whole.cut), (5, false));
    let cut = bench.sink.query("SELECT * FROM range(6)", &limits(5, 1_000)).expect("reads");
    assert_eq!((cut.rows.len(), cut.cut), (5, true));
    let cut = bench.sink.query("SELECT repeat('x', 400) FROM range(6)", &limits(5, 1_000)).expect("reads");
    assert_eq!((cut.rows.len(), cut.cut), (2, true));
    let endless = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range % 7 = b.range % 11";
    let error = bench.sink.query(endless, &Limits { time: Duration::from_millis(200), ..Limits::default() }).expect_err("too long");
    assert_eq!(error.kind, Kind::Unsupported, "{error}");
}

#[test]
fn a_query_of_a_missing_file_makes_none() {
    let bench = Bench::new();
    let error = run(&bench.path(), None, "SELECT 1", &Limits::default()).expect_err("no file");
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(!bench.path().exists());
}
