//! Values that only Postgres has a say about: numbers of any size, what its input refuses, and rows that stay as they are.
//!
//! The server itself is asked what it accepts. A value that it refuses is named by column and never shown.

use landfall::sink::{Batch, Delta, Kind, Sink as _, version};
use landfall_schemas::store::postgres;
use landfall_schemas::{Decimal, LogicalType, Value, decimal};

use super::Home;
use crate::conformance::{Random, encode, encode_key, schema};

#[test]
fn decimals_of_any_size_read_back_as_they_were_written() {
    let home = Home::new("decimals");
    let mut owner = home.open("t", schema(&[("id", "int64"), ("n", "numeric")], &["id"]));
    let mut random = Random(97);
    let mut texts = Vec::new();
    let mut batch = Batch::default();
    batch.reset(0, owner.claim.fence, owner.claim.next, 20_003);
    for id in 0..20_000 {
        let digits: String = (0..=random.below([3, 20, 45, 120][id as usize % 4])).map(|_| char::from(b'0' + random.below(10) as u8)).collect();
        let zeros = "0".repeat(random.below(12) as usize);
        let sign = if random.below(2) == 0 { "-" } else { "" };
        let written = match random.below(3) {
            0 => format!("{sign}{digits}{zeros}"),
            1 => format!("{sign}0.{zeros}{digits}"),
            _ => format!("{sign}{digits}{zeros}.{digits}{zeros}"),
        };
        let mut unscaled = Vec::new();
        let scale = decimal::parse_into(&written, &mut unscaled).expect("a number");
        let values = [Value::Int(id), Value::Decimal(Decimal { unscaled: &unscaled, scale })];
        let (key, row) = (encode_key(&owner.target.schema, &values), encode(&owner.target.schema, &values));
        batch.push(Delta { key: &key, row: Some(&row), version: version(owner.target.build, id) });
        texts.push(written);
    }
    // The ends of the type.
    for (id, written) in (20_000..).zip(["9".repeat(131_072), format!("-{}", "7".repeat(131_071)), format!("0.{}1", "0".repeat(16_382))]) {
        let mut unscaled = Vec::new();
        let scale = decimal::parse_into(&written, &mut unscaled).expect("a number");
        let value = Value::Decimal(Decimal { unscaled: &unscaled, scale });
        assert_eq!(postgres::refuse(LogicalType::Numeric, &value), None);
        let values = [Value::Int(id), value];
        let (key, row) = (encode_key(&owner.target.schema, &values), encode(&owner.target.schema, &values));
        batch.push(Delta { key: &key, row: Some(&row), version: version(owner.target.build, id) });
        texts.push(written);
    }
    owner.sink.land(&owner.target, &batch).expect("lands");
    // The server reads the text itself: what it makes of it, and its text, must be what landed.
    let mut literals = String::new();
    for (id, text) in texts.iter().enumerate() {
        literals.push_str(&format!("{}({id},'{text}'::numeric)", if id == 0 { "" } else { "," }));
    }
    let sql = format!(
        "SELECT count(*) FILTER (WHERE v.n = t.n AND v.n::text = t.n::text AND scale(v.n) = scale(t.n)) FROM (VALUES {literals}) v(id, n) JOIN {} t USING (id)",
        home.table("t")
    );
    assert_eq!(home.admin.one(&sql), "20003");
}

#[test]
fn what_is_refused_is_what_the_server_refuses() {
    let home = Home::new("refused");
    home.admin.run(&format!(
        "CREATE FUNCTION \"{}\".valid(t text) RETURNS boolean LANGUAGE plpgsql AS \
         $f$ BEGIN PERFORM t::jsonb; RETURN true; EXCEPTION WHEN OTHERS THEN RETURN false; END $f$",
        home.schema
    ));
    let seed = r#"{"a\n": [1, -2.5e+3, true, null, "\u00e9\ud83d\ude00"], "o": {"": [[]]}, "big": 1e131071, "small": 1e-16383}"#;
    let pieces = [
        "\\u0000", "\\ud800", "\\udc00", "e131072", "e-16384", "0", "\"", "}", "]", ",", ":", "\\", ".", "-", "e", "1", " ", "\u{1}", "\u{7f}", "nul",
    ];
    let mut random = Random(5);
    let mut documents: Vec<String> = vec![seed.to_owned(), String::new()];
    for _ in 0..4000 {
        let mut bytes = seed.as_bytes().to_vec();
        for _ in 0..=random.below(2) {
            let at = random.below(bytes.len() as u64) as usize;
            let to = (at + random.below(4) as usize).min(bytes.len());
            let piece = pieces[random.below(pieces.len() as u64) as usize].as_bytes();
            drop(bytes.splice(at..to, piece.iter().copied()));
        }
        documents.push(String::from_utf8(bytes).expect("the document is ASCII"));
    }
    let valid = format!("SELECT \"{}\".valid(d) FROM unnest($1::text[]) WITH ORDINALITY u(d, n) ORDER BY n", home.schema);
    let found = home.admin.runtime.block_on(home.admin.client.query(&valid, &[&documents])).expect("asks");
    let mut accepted = 0;
    for (document, row) in documents.iter().zip(found) {
        let server: bool = row.get(0);
        accepted += usize::from(server);
        assert_eq!(postgres::refuse(LogicalType::Json, &Value::Json(document)).is_none(), server, "{document}");
    }
    assert!(accepted > 100 && accepted < 3500, "{accepted} accepted: the sample says little");
    // The ends of the calendar, as the server reads them.
    let mut owner = home.open("ends", schema(&[("id", "int64"), ("d", "date"), ("t", "timestamp(6)"), ("z", "timestamptz(6)")], &["id"]));
    let first_day = -2_451_545 + 10_957;
    let first = i64::from(first_day) * 86_400_000_000;
    owner.land(1, &[(&[Value::Int(1), Value::Date(first_day), Value::Timestamp(first), Value::Timestamp(first)], true)]);
    // The last number is infinity, here and there.
    let last = Value::Timestamp(i64::MAX - 1);
    owner.land(2, &[(&[Value::Int(2), Value::Date(2_145_031_948 + 10_957), last, last], true)]);
    let sql = format!(
        "SELECT string_agg(d::text || ' ' || t::text || ' ' || isfinite(z), ', ' ORDER BY id) FROM {}, \
         (SELECT '4714-11-24 BC'::date, '5874897-12-31'::date) bounds WHERE isfinite(d) AND isfinite(t)",
        home.table("ends")
    );
    assert_eq!(home.admin.one(&sql), "4714-11-24 BC 4714-11-24 00:00:00 BC true, 5874897-12-31 294247-01-10 04:00:54.775806 true");
    assert!(home.admin.try_run("SELECT '4714-11-23 BC'::date").is_err() && home.admin.try_run("SELECT '5874898-01-01'::date").is_err());
}

#[test]
fn a_value_that_was_not_asked_about_names_its_column() {
    let home = Home::new("unasked");
    let mut owner = home.open("t", schema(&[("id", "int64"), ("a", "text"), ("d", "date"), ("j", "json")], &["id"]));
    owner.land(1, &[(&[Value::Int(1), Value::Text("x"), Value::Date(0), Value::Null], true)]);
    for (values, column, code) in [
        ([Value::Int(2), Value::Text("s3cret\0"), Value::Date(0), Value::Null], "\"a\"", "value.nul"),
        ([Value::Int(2), Value::Text("s3cret"), Value::Date(i32::MAX), Value::Null], "\"d\"", "value.out_of_range"),
        ([Value::Int(2), Value::Text("s3cret"), Value::Date(0), Value::Json("[\"s3cret\"")], "\"j\"", "value.malformed"),
    ] {
        let good = [Value::Int(3), Value::Text("y"), Value::Null, Value::Null];
        let error = owner.try_land(2, &[(&good, true), (&values, true)]).expect_err("the server cannot hold it");
        assert_eq!(error.kind, Kind::Unsupported);
        let text = format!("{error} {error:?}");
        assert!(text.contains(column) && text.contains(code) && !text.contains("s3cret"), "{text}");
        home.assert_no_open_transaction();
    }
    assert_eq!(owner.sink.cursor(&owner.target, 0).expect("reads").and_then(|c| c.next), Some(1));
    owner.land(2, &[(&[Value::Int(3), Value::Text("y"), Value::Null, Value::Null], true)]);
    assert_eq!(home.read(&owner.target).len(), 2);
}

#[test]
fn landing_the_same_rows_again_writes_nothing() {
    let home = Home::new("unchanged");
    let columns = [("id", "numeric"), ("f", "float64"), ("n", "numeric"), ("j", "json"), ("t", "text"), ("d", "decimal(9,2)")];
    let mut owner = home.open("t", schema(&columns, &["id"]));
    let number = |unscaled: &'static [u8], scale| Value::Decimal(Decimal { unscaled, scale });
    let values = |id| [number(id, 0), Value::Float64(f64::NAN), number(&[100], 2), Value::Json("{\"a\": 1.0}"), Value::Null, number(&[5], 2)];
    let (one, two) = (values(&[1]), values(&[2]));
    owner.land(1, &[(&one, true), (&two, true)]);
    let places = format!("SELECT ctid::text, xmin::text FROM {} ORDER BY id", home.table("t"));
    let before = home.admin.rows(&places);
    owner.land(2, &[(&one, true), (&two, true)]);
    assert_eq!(home.admin.rows(&places), before);
    // The same key in another look is the same row, and shows the new look.
    let mut other = one;
    other[0] = number(&[10], 1);
    owner.land(3, &[(&other, true)]);
    assert_eq!(home.admin.one(&format!("SELECT string_agg(id::text, ' ' ORDER BY id) FROM {}", home.table("t"))), "1.0 2");
}
