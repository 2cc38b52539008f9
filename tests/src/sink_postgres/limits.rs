//! What is too long, too many or too odd for Postgres: names, keys and columns.
//!
//! The server cuts a long name short and goes on, so two could meet in one. Each lands as it is or is refused by name.

use std::collections::BTreeSet;

use landfall::sink::{Kind, Sink as _, Target};
use landfall_schemas::Value;
use landfall_schemas::store::postgres;

use super::{Home, Owner, kind, row, text};
use crate::conformance::{Random, encode_key, schema};

#[test]
fn names_longer_than_postgres_keeps_do_not_meet() {
    let home = Home::new("long_names");
    let long = |end: &str| format!("{}{end}", "a long name ".repeat(8));
    let (one, two) = (long("one"), long("two"));
    let mut owner = home.open("t", schema(&[(&one, "int64"), (&two, "text")], &[&one]));
    owner.land(1, &[(&text(1, "x"), true)]);
    owner.land(2, &[(&text(1, "y"), true), (&text(2, "z"), true)]);
    owner.land(3, &[(&text(2, "z"), false)]);
    assert_eq!(home.read(&owner.target), [row(1, "y")]);
    let mut sink = home.sink();
    assert_eq!(kind(sink.open(&format!("{}.x", home.schema), &"t".repeat(64), None)), Kind::Unsupported);
    let replica = format!("{}.sys", home.schema);
    let build = sink.open(&replica, "sys", None).expect("opens").build;
    let target = Target { replica, table: "sys".to_owned(), generation: 1, build, schema: schema(&[("id", "int64"), ("xmin", "int64")], &["id"]) };
    let error = sink.prepare(&target).expect_err("a system column");
    assert!(error.kind == Kind::Unsupported && error.to_string().contains("scd.reserved_column"), "{error}");
}

/// Two thousand names of random, mostly awkward characters: each is its own table with its own column, or refused by name.
#[test]
fn two_thousand_hostile_names() {
    let home = Home::new("hostile");
    let alphabet = [
        "\"",
        "'",
        "\\",
        ";",
        "-",
        " ",
        ".",
        "%",
        "$1",
        "?",
        "\n",
        "\t",
        "é",
        "日",
        "\u{1F600}",
        "\u{202e}",
        "\u{0}",
        "A",
        "a",
        "{",
        "\u{7f}",
        "select",
        "::",
    ];
    let mut random = Random(64);
    let mut sink = home.sink();
    let mut made = BTreeSet::new();
    for _ in 0..2000 {
        let name: String = (0..random.below(26)).map(|_| alphabet[random.below(alphabet.len() as u64) as usize]).collect();
        let legal = !name.is_empty() && !name.contains('\0') && name.len() <= 63;
        let replica = format!("{}:{name}", home.schema);
        if !legal {
            if !name.contains('\0') {
                assert_eq!(kind(sink.open(&replica, &name, None)), Kind::Unsupported, "{name:?}");
            }
            continue;
        }
        // Making a table takes the server a few milliseconds: every tenth name has one.
        if made.len() * 10 > 1300 || random.below(10) > 0 {
            continue;
        }
        let build = sink.open(&replica, &name, None).expect("opens").build;
        let schema = schema(&[("id", "int64"), (&format!("{name}."), "text")], &["id"]);
        if postgres::column_names(&schema).is_err() {
            continue;
        }
        let target = Target { replica, table: name.clone(), generation: 1, build, schema };
        sink.prepare(&target).unwrap_or_else(|e| panic!("{name:?}: {e}"));
        let claim = sink.claim(&target, 0).expect("claims");
        let mut owner = Owner { sink, target, claim };
        let next = owner.claim.next.unwrap_or(0) + 1;
        owner.land(next, &[(&text(1, &name), true)]);
        assert_eq!(home.read(&owner.target), [row(1, &name)], "{name:?}");
        sink = owner.sink;
        let _ = made.insert(name);
    }
    assert!(made.len() > 80, "{}", made.len());
    let found = home.admin.rows(&format!("SELECT tablename FROM pg_tables WHERE schemaname = '{}'", home.schema));
    let found: BTreeSet<String> = found.into_iter().filter_map(|mut r| r.remove(0)).collect();
    assert_eq!(found, made, "nothing else was made");
}

#[test]
fn keys_longer_than_an_index_entry_are_refused_before_they_land() {
    let home = Home::new("long_keys");
    let mut owner = home.open("t", schema(&[("k", "text"), ("b", "bytes")], &["k", "b"]));
    // Text that does not compress, so that its size decides.
    let mut random = Random(3);
    let noise: String = (0..4000).map(|_| char::from(33 + random.below(90) as u8)).collect();
    let mut next = 0;
    for length in [100, 1200, 2000, 2400, 2600, 2650, 2660, 2670, 2680, 2690, 2700, 2750, 3000] {
        let values = [Value::Text(&noise[..length]), Value::Bytes(b"12")];
        let refused = postgres::refuse_key(&owner.target.schema, &encode_key(&owner.target.schema, &values)).expect("a key");
        next += 1;
        let landed = owner.try_land(next, &[(&values, true)]);
        assert!(landed.is_ok() || refused.is_some(), "{length} bytes pass and do not land");
        match landed {
            Ok(()) => assert!(length < 2750 && (refused.is_none() || length > 2600), "{length} bytes are refused too early"),
            Err(error) => assert_eq!(error.kind, Kind::Unsupported, "{error}"),
        }
    }
}

#[test]
fn a_table_of_many_columns() {
    let home = Home::new("wide");
    let names: Vec<String> = (0..postgres::COLUMNS_MAX).map(|i| format!("c{i}")).collect();
    let columns: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), "int32")).collect();
    let mut owner = home.open("t", schema(&columns, &["c7"]));
    let values = |key: i64, other: i64| {
        let value = move |i| {
            if i == 7 {
                Value::Int(key)
            } else if i % 3 == 0 {
                Value::Null
            } else {
                Value::Int(other)
            }
        };
        (0..postgres::COLUMNS_MAX).map(value).collect::<Vec<_>>()
    };
    owner.land(1, &[(&values(1, 10), true), (&values(2, 20), true)]);
    owner.land(2, &[(&values(1, 11), true), (&values(2, 20), false)]);
    assert_eq!(home.admin.rows(&format!("SELECT c7, c1, c0, c{} FROM {}", postgres::COLUMNS_MAX - 1, home.table("t")))[0][1].as_deref(), Some("11"));
    let more: Vec<String> = (0..=postgres::COLUMNS_MAX).map(|i| format!("c{i}")).collect();
    let columns: Vec<(&str, &str)> = more.iter().map(|n| (n.as_str(), "int32")).collect();
    assert_eq!(kind(owner.sink.prepare(&Target { schema: schema(&columns, &["c7"]), ..owner.target.clone() })), Kind::Unsupported);
}
