//! What ClickHouse keeps in a way of its own: the digits of numbers, the first and last days, and names of any characters.
//!
//! Numbers without a scale are text there, and its days begin in 1900 and end in 2299: both are looked at here.

use landfall::sink::clickhouse::{ClickHouseSink, Options};
use landfall::sink::{Kind, Sink as _, Target, version};
use landfall_schemas::{Decimal, Value};

use super::{REPLICA, Store, batch, begin, kind, live, push, target};
use crate::conformance::schema;

#[test]
fn numbers_without_a_declared_scale_keep_their_digits() {
    let store = Store::new("numeric");
    let mut sink = store.sink();
    let (target, claim) = begin(&mut sink, schema(&[("id", "numeric"), ("n", "numeric"), ("d", "decimal(90,3)")], &["id"]));
    let number = |unscaled, scale| Value::Decimal(Decimal { unscaled, scale });
    let mut batch = batch(0, claim, 10);
    // 1.0, 250 and 0.05 as keys; values with zeros that are digits, an exponent and 38 nines.
    let nines = (10_i128.pow(38) - 1).to_be_bytes();
    push(&mut batch, &target.schema, &[number(&[10], 1), number(&[110], 2), number(&[1], 3)], true, version(target.build, 0));
    push(&mut batch, &target.schema, &[number(&[25], -1), number(&[0xFF], -20), number(&[0], 3)], true, version(target.build, 1));
    push(&mut batch, &target.schema, &[number(&[5], 2), number(&nines, 10), number(&nines, 3)], true, version(target.build, 2));
    sink.land(&target, &batch).expect("landed");
    let rest = "0.05\t9999999999999999999999999999.9999999999\t99999999999999999999999999999999999.999\n";
    let found = store.ask("SELECT * FROM {db}.t_live ORDER BY id FORMAT TSV");
    assert_eq!(found, format!("{rest}1\t1.10\t0.001\n250\t-100000000000000000000\t0.000"));
    // The same key with other zeros is the same row.
    batch.reset(0, claim.fence, Some(10), 20);
    push(&mut batch, &target.schema, &[number(&[1, 0x2C], 2), Value::Null, Value::Null], true, version(target.build, 10));
    push(&mut batch, &target.schema, &[number(&[1], 0), number(&[0, 0x80], 1), Value::Null], true, version(target.build, 11));
    push(&mut batch, &target.schema, &[number(&[0, 250], 0), Value::Null, Value::Null], false, version(target.build, 12));
    sink.land(&target, &batch).expect("landed");
    assert_eq!(store.ask("SELECT * FROM {db}.t_live ORDER BY id FORMAT TSV"), format!("{rest}1\t12.8\t\\N\n3\t\\N\t\\N"));
}

#[test]
fn the_first_and_last_days_arrive_and_the_others_are_refused() {
    let store = Store::new("days");
    let mut sink = store.sink();
    let columns = [("id", "int64"), ("d", "date"), ("t", "timestamp(6)"), ("n", "timestamptz(9)")];
    let (target, claim) = begin(&mut sink, schema(&columns, &["id"]));
    let micros = |days: i64| days * 86_400_000_000;
    // 1900-01-01 and 2299-12-31 as days since 1970, by `date -d`.
    let (first, last) = (-25_567, 120_529);
    let mut batch = batch(0, claim, 2);
    let low = [Value::Int(1), Value::Date(first as i32), Value::Timestamp(micros(first)), Value::Timestamp(micros(first) * 1000)];
    let high = [Value::Int(2), Value::Date(last as i32), Value::Timestamp(micros(last + 1) - 1), Value::Timestamp(i64::MAX - 1)];
    push(&mut batch, &target.schema, &low, true, version(target.build, 0));
    push(&mut batch, &target.schema, &high, true, version(target.build, 1));
    sink.land(&target, &batch).expect("landed");
    let expected = "1\t1900-01-01\t1900-01-01 00:00:00.000000\t1900-01-01 00:00:00.000000000\n\
                    2\t2299-12-31\t2299-12-31 23:59:59.999999\t2262-04-11 23:47:16.854775806";
    assert_eq!(live(&store), expected);
    for beyond in [
        [Value::Int(3), Value::Date(first as i32 - 1), Value::Null, Value::Null],
        [Value::Int(3), Value::Date(last as i32 + 1), Value::Null, Value::Null],
        [Value::Int(3), Value::Null, Value::Timestamp(micros(last + 1)), Value::Null],
        [Value::Int(3), Value::Null, Value::Null, Value::Timestamp(micros(first) * 1000 - 1)],
    ] {
        batch.reset(0, claim.fence, Some(2), 3);
        push(&mut batch, &target.schema, &beyond, true, version(target.build, 2));
        assert_eq!(kind(sink.land(&target, &batch)), Kind::Unsupported);
    }
    assert_eq!(live(&store), expected);
}

#[test]
fn names_may_be_anything() {
    let store = Store::new("names");
    let names = [
        "select",
        "a b",
        "a`b",
        "it's",
        "back\\slash",
        "日本",
        "ID",
        "id",
        "q?",
        "{x:Int8}",
        "n.a",
        "n.b",
        "%",
        "tab\tnl\n",
        "--",
        "nul\0",
        "_part",
        "\"q\"",
    ];
    let columns: Vec<(&str, &str)> = names.iter().map(|n| (*n, "text")).collect();
    for (i, table) in ["order", "Wei`rd \\ 'Tab?le'", "表", "x_live"].iter().enumerate() {
        let schema = schema(&columns, &["a`b", "q?"]);
        let mut sink = ClickHouseSink::new(Options {
            url: store.url.clone(),
            database: "test_names; DROP 'x` \\ é".to_owned(),
            user: Some(store.user.clone()),
            password: Some(store.password.clone()),
        });
        if i == 0 {
            store.sql("DROP DATABASE IF EXISTS `test_names; DROP 'x\\` \\\\ é` SYNC");
        }
        let replica = format!("ware'house.{table}");
        let opened = sink.open(&replica, table, None).expect("open");
        let target = Target { replica, table: (*table).to_owned(), generation: 1, build: opened.build, schema: schema.clone() };
        sink.prepare(&target).expect("prepare");
        sink.prepare(&target).expect("again");
        let claim = sink.claim(&target, 0).expect("claim");
        let mut batch = batch(0, claim, 1);
        let values: Vec<Value<'_>> = names.iter().map(|n| Value::Text(n)).collect();
        push(&mut batch, &schema, &values, true, version(target.build, 0));
        sink.land(&target, &batch).expect("landed");
        let quoted = format!("`{}_live`", table.replace('\\', "\\\\").replace('`', "\\`"));
        let found = store.sql(&format!("SELECT * FROM `test_names; DROP 'x\\` \\\\ é`.{quoted} FORMAT JSONEachRow"));
        let found: serde_json::Value = serde_json::from_str(&found).expect("json");
        for name in names {
            assert_eq!(found[name], name, "{name:?}");
        }
    }
    let mut sink = store.sink();
    let bad = schema(&[("id", "int64"), ("_row_exists", "bool")], &["id"]);
    let opened = sink.open(REPLICA, "t", None).expect("open");
    assert_eq!(kind(sink.prepare(&target(bad, opened.build))), Kind::Unsupported);
}
