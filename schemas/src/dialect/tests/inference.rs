//! Types that nobody says: what records come to, in every dialect, and what becomes of values that disagree.

use super::*;
use crate::shape::Shape;

fn options(dialect: Dialect, key: Option<&[&str]>) -> Options {
    Options {
        dialect,
        order: Order::Offset,
        infer: true,
        primary_key: key.map(|key| key.iter().map(|name| (*name).to_owned()).collect()),
        ..Options::new("t")
    }
}

fn record<'a>(key: &'a str, value: &'a str) -> Record<'a> {
    let part = |text: &'a str| (!text.is_empty()).then_some(text.as_bytes());
    Record { offset: 7, key: part(key), value: part(value), timestamp: Some(5), ..Record::default() }
}

fn inferred(options: &Options, records: &[(&str, &str)]) -> Inferred {
    let mut members = Members::new(options.clone());
    records.iter().for_each(|(key, value)| members.see(&record(key, value)));
    members.types()
}

/// Columns and types in a word.
fn text(inferred: &Inferred) -> String {
    let columns: Vec<String> = inferred.columns.iter().map(|(name, ty)| format!("{name} {ty}")).collect();
    columns.join(", ")
}

/// A decoder to which all that these records come to is told.
fn settled(options: &Options, records: &[(&str, &str)]) -> Decoder {
    let mut decoder = Decoder::new(options.clone());
    decoder.settle(&inferred(options, records).columns);
    decoder
}

/// The columns of the one change that a record says, or the code under which it is refused.
fn row(decoder: &mut Decoder, key: &str, value: &str) -> Result<String, Reject> {
    let said = say(decoder, record(key, value))?;
    let [said] = &said[..] else { panic!("{} changes", said.len()) };
    let column = |(name, value): (&String, &Option<String>)| format!("{name}={}", value.as_deref().unwrap_or("NULL"));
    Ok(format!("{} [{}] {}", said.op.letter(), said.key_values.join(","), said.after.iter().map(column).collect::<Vec<_>>().join(" ")))
}

#[test]
fn rows_get_the_columns_that_they_have_exactly() {
    let options = options(Dialect::Plain, None);
    let records = [
        (r#"{"id":1}"#, r#"{"id":1,"n":1,"big":1,"f":1,"s":"2024-01-01","b":true,"o":{"x":[1.10]},"any":1,"never":null}"#),
        (r#"{"id":2}"#, r#"{"id":2,"n":-5,"big":9223372036854775808,"f":0.10,"s":"x","b":null,"o":[],"any":"1","late":"z"}"#),
    ];
    let found = inferred(&options, &records);
    assert_eq!(text(&found), "id int64, n int64, big numeric, f numeric, s text, b bool, o json, any json, late text");
    assert!(found.refused.is_empty() && !found.has_more);
    let mut decoder = settled(&options, &records);
    let all = |(key, value): (&str, &str), decoder: &mut Decoder| row(decoder, key, value);
    assert_eq!(
        all(records[0], &mut decoder).as_deref(),
        Ok(r#"u [1] any=1 b=true big=1 f=1 id=1 late=NULL n=1 o={"x":[1.10]} s=2024-01-01"#),
        "what is NULL everywhere is no column, and what a plain row lacks is NULL"
    );
    assert_eq!(
        all(records[1], &mut decoder).as_deref(),
        Ok(r#"u [2] any="1" b=NULL big=9223372036854775808 f=0.10 id=2 late=z n=-5 o=[] s=x"#),
        "a string within a document is none of its digits"
    );
    assert_eq!(row(&mut decoder, r#"{"id":1}"#, "").as_deref(), Ok("d [1] "));
}

#[test]
fn a_member_without_a_type_waits_for_one_unless_it_is_null() {
    let options = options(Dialect::Plain, None);
    let mut decoder = settled(&options, &[(r#"{"id":1}"#, r#"{"id":1,"v":"a"}"#)]);
    assert_eq!(row(&mut decoder, r#"{"id":1}"#, r#"{"id":1,"v":"b","w":null}"#).as_deref(), Ok("u [1] id=1 v=b"));
    let lacks = |decoder: &mut Decoder, value| row(decoder, r#"{"id":1}"#, value).map_err(|reject| (reject.code, reject.reason));
    let (code, reason) = lacks(&mut decoder, r#"{"id":1,"v":"b","w":7}"#).expect_err("w has no type");
    assert!(code == Code::TypesMissing && reason.ends_with("no type is known yet for \"w\""), "{reason}");
    let types = [("id", LogicalType::Int64), ("v", LogicalType::Text), ("w", LogicalType::Int64)].map(|(name, ty)| (name.to_owned(), ty));
    decoder.settle(&types);
    assert_eq!(lacks(&mut decoder, r#"{"id":1,"v":"b","w":7}"#).as_deref(), Ok("u [1] id=1 v=b w=7"));
    assert_eq!(lacks(&mut decoder, r#"{"id":1,"v":"b"}"#).as_deref(), Ok("u [1] id=1 v=b w=NULL"), "and is a column of every row from then on");
    // Where nothing is inferred, everything is as it was.
    let refused = Options { infer: false, ..options };
    assert_eq!(row(&mut Decoder::new(refused), r#"{"id":1}"#, r#"{"id":1}"#).map_err(|r| r.code), Err(Code::TypesMissing));
}

/// Whatever members a row has, and in whatever order: one contract, and what it decodes to hangs on no record before it.
#[test]
fn rows_of_any_members_have_one_schema() {
    let options = Options { exclude: vec!["secret".to_owned()], ..options(Dialect::Plain, None) };
    let key = r#"{"id":1}"#;
    let whole = r#"{"id":1,"a":"x","b":2,"c":true}"#;
    let rows = [
        (whole, Ok("u [1] a=x b=2 c=true id=1")),
        (r#"{"id":1,"b":2}"#, Ok("u [1] a=NULL b=2 c=NULL id=1")),
        (r#"{"c":true,"id":1,"a":"x"}"#, Ok("u [1] a=x b=NULL c=true id=1")),
        (r#"{"b":2}"#, Ok("u [1] a=NULL b=2 c=NULL id=1")),
        (r#"{"secret":7,"id":1,"never":null,"c":false}"#, Ok("u [1] a=NULL b=NULL c=false id=1")),
        (r#"{"never":null,"b":2,"never":null}"#, Ok("u [1] a=NULL b=2 c=NULL id=1")),
        (r#"{"id":1,"b":2,"b":2}"#, Err(Code::JsonDuplicateKey)),
        (r#"{"b":2,"c":true,"b":2}"#, Err(Code::JsonDuplicateKey)),
        (r#"{"id":null,"b":2}"#, Err(Code::NullKey)),
        (r#"{"id":1,"new":2}"#, Err(Code::TypesMissing)),
        ("{}", Err(Code::EnvelopeRowMissing)),
    ];
    let fresh = settled(&options, &[(key, whole)]);
    let mut warm = settled(&options, &[(key, whole)]);
    let mut schemas = std::collections::BTreeSet::new();
    for first in rows {
        for (value, expected) in [first, rows[0], first, rows[3], first] {
            let said = row(&mut warm, key, value).map_err(|reject| reject.code);
            assert_eq!(said.as_deref().map_err(|code| *code), expected, "{value} behind others");
            let mut fresh = Decoder::new(fresh.options().clone());
            assert_eq!(row(&mut fresh, key, value).map_err(|reject| reject.code), said, "{value} by itself");
            if let Ok(Decoded::Changes(changes)) = fresh.decode(record(key, value)) {
                let _ = schemas.insert(changes.fingerprint.0);
            }
        }
    }
    assert_eq!(schemas.len(), 2, "one where the key stands in the row, one where it stands beside it");
}

/// An update of a connector that does not send a column leaves it as it was, a new row has NULL there.
#[test]
fn what_an_update_does_not_send_stays() {
    let options = options(Dialect::Debezium, None);
    let event = |op: &str, after: &str| format!(r#"{{"before":null,"after":{after},"op":"{op}"}}"#);
    let whole = event("c", r#"{"id":1,"a":"x","b":2}"#);
    let mut decoder = settled(&options, &[(r#"{"id":1}"#, &whole)]);
    for after in [r#"{"id":1,"b":3}"#, r#"{"b":3,"id":1}"#] {
        let said = |decoder: &mut Decoder, op| {
            let said = say(decoder, record(r#"{"id":1}"#, &event(op, after))).expect("typed");
            (said[0].unauthored.clone(), said[0].after.get("a").cloned())
        };
        assert_eq!(said(&mut decoder, "u"), (vec!["a".to_owned()], None), "{after}");
        assert_eq!(said(&mut decoder, "c"), (Vec::new(), Some(None)), "{after}");
    }
}

#[test]
fn a_value_that_disagrees_is_refused_with_the_type_that_takes_both() {
    let options = options(Dialect::Plain, None);
    let mut decoder = settled(&options, &[(r#"{"id":1}"#, r#"{"id":1,"n":1,"s":"a","b":true,"f":1.5}"#)]);
    let mut refused = |member: &str| {
        let reject = row(&mut decoder, r#"{"id":1}"#, &format!(r#"{{"id":1,{member}}}"#)).expect_err(member);
        assert_eq!(reject.kind(), RejectKind::Poison, "{member}");
        let both = reject.reason.split("`types: { ").nth(1).and_then(|rest| rest.split(" }`").next()).unwrap_or_default().to_owned();
        (reject.code.as_str(), both)
    };
    let disagrees = |both: &str| ("value.not_as_inferred", both.to_owned());
    for (member, both) in [
        (r#""n":1.5"#, r#""n": numeric"#),
        (r#""n":9223372036854775808"#, r#""n": numeric"#),
        (r#""n":"1""#, r#""n": json"#),
        (r#""n":true"#, r#""n": json"#),
        (r#""s":1"#, r#""s": json"#),
        (r#""b":1"#, r#""b": json"#),
        (r#""f":"1.5""#, r#""f": json"#),
        (r#""s":{}"#, r#""s": json"#),
    ] {
        assert_eq!(refused(member), disagrees(both), "{member}");
    }
    // Declared, the very values go.
    let declared = Options { types: vec![("n".to_owned(), LogicalType::Numeric)], ..options };
    let mut decoder = settled(&declared, &[(r#"{"id":1}"#, r#"{"id":1,"n":1}"#)]);
    assert_eq!(row(&mut decoder, r#"{"id":1}"#, r#"{"id":1,"n":1.5}"#).as_deref(), Ok("u [1] id=1 n=1.5"));
}

#[test]
fn debezium_without_a_schema_part() {
    let options = Options { order: Order::Dialect, ..options(Dialect::Debezium, None) };
    let event = |op: &str, before: &str, after: &str| {
        format!(r#"{{"before":{before},"after":{after},"source":{{"connector":"postgresql","sequence":"[\"1\",\"2\"]"}},"op":"{op}"}}"#)
    };
    let create = event("c", "null", r#"{"id":1,"v":"a","large":"__debezium_unavailable_value"}"#);
    let update = event("u", r#"{"id":1,"v":"a","gone":3}"#, r#"{"id":1,"v":null,"large":"text","gone":null}"#);
    let heartbeat = (r#"{"serverName":"x"}"#, r#"{"ts_ms":1}"#);
    let key = r#"{"id":1}"#;
    let found = inferred(&options, &[heartbeat, (key, &create), (key, &update), (key, "")]);
    assert_eq!(text(&found), "id int64, v text, large text, gone int64", "a marker says nothing, a heartbeat is no row, and what a row was counts");
    let mut decoder = settled(&options, &[(key, &create), (key, &update)]);
    let said = say(&mut decoder, record(key, &create)).expect("typed");
    assert_eq!((said[0].unauthored.as_slice(), said[0].after.get("gone")), (&["large".to_owned()][..], Some(&None)));
    assert_eq!(row(&mut decoder, key, &event("d", key, "null")).as_deref(), Ok("d [1] "));
    assert_eq!(row(&mut decoder, key, "").as_deref(), Ok("d [1] "), "a tombstone needs the key's type alone");
    // What a row was is not dropped in silence for want of a type.
    let mut decoder = settled(&options, &[(key, &create)]);
    assert_eq!(row(&mut decoder, key, &event("u", r#"{"id":1,"v":"a","x":1}"#, r#"{"id":1,"v":"b","x":null}"#)).map_err(|r| r.code), {
        Err(Code::TypesMissing)
    });
}

#[test]
fn case_env_01_a_table_that_had_a_schema_part_keeps_the_sizes_of_its_numbers() {
    let options = options(Dialect::Debezium, None);
    let column = |name: &str, ty: &str| crate::Column { name: name.to_owned(), ty: ty.parse().expect(ty), nullable: true };
    let known = vec![column("id", "int32"), column("f", "float64"), column("d", "decimal(9,2)"), column("at", "timestamp(6)"), column("v", "text")];
    let known = TableSchema::new("t", known, &["id"]).expect("valid");
    let mut members = Members::new(options).of(Some(Arc::new(known)));
    members.see(&record(r#"{"id":1}"#, r#"{"op":"c","after":{"id":1,"f":1.5,"d":"AfQ=","at":17,"v":"a"}}"#));
    assert_eq!(text(&members.types()), "id int32, f float64, d text, at int64, v text", "what is written otherwise is another type, by name");
}

#[test]
fn other_dialects() {
    let flattened = options(Dialect::Flattened, None);
    let found = inferred(&flattened, &[(r#"{"id":1}"#, r#"{"id":1,"v":1.0,"__op":"u","__source_lsn":5}"#)]);
    assert_eq!(text(&found), "id int64, v numeric");
    let maxwell = Options { source_table: Some("t".to_owned()), ..options(Dialect::Maxwell, None) };
    let event = |table: &str, data: &str| format!(r#"{{"database":"d","table":"{table}","type":"update","ts":1,"data":{data},"old":{{"v":"b"}}}}"#);
    let key = r#"{"database":"d","table":"t","pk.id":1}"#;
    let (ours, others) = (event("t", r#"{"id":1,"v":null}"#), event("other", r#"{"x":1}"#));
    let found = inferred(&maxwell, &[(key, &ours), (r#"{"pk.x":1}"#, &others)]);
    assert_eq!(text(&found), "id int64, v text");
    assert!(row(&mut settled(&maxwell, &[(key, &ours)]), key, &ours).is_ok_and(|row| row.ends_with("id=1 v=NULL")));
    for dialect in [Dialect::Canal, Dialect::Mongodb] {
        assert_eq!(inferred(&options(dialect, None), &[(key, &ours)]), Inferred::default());
    }
}

#[test]
fn keys_follow_the_same_rules_and_no_float_is_one() {
    let by_key = options(Dialect::Plain, None);
    let refused =
        |options: &Options, records: &[(&str, &str)]| inferred(options, records).refused.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(refused(&by_key, &[(r#"{"k":1.5}"#, r#"{"v":1}"#)]), ["k"]);
    assert_eq!(refused(&by_key, &[(r#"{"k":1}"#, r#"{"v":1}"#), (r#"{"k":"a"}"#, r#"{"v":1}"#)]), ["k"]);
    assert_eq!(text(&inferred(&by_key, &[(r#"{"b":1,"a":"x"}"#, r#"{"v":1}"#)])), "v int64, b int64, a text");
    let mut decoder = settled(&by_key, &[(r#"{"b":1,"a":"x"}"#, r#"{"v":1}"#)]);
    assert_eq!(
        row(&mut decoder, r#"{"a":"x","b":1}"#, r#"{"v":1}"#).as_deref(),
        Ok("u [1,x] a=x b=1 v=1"),
        "in the order in which they were settled"
    );
    // A NULL in a key is what is wrong with its record, and nobody is asked for its type.
    let own = options(Dialect::Plain, Some(&["id"]));
    let code = |options: &Options, key, value| row(&mut Decoder::new(options.clone()), key, value).map_err(|r| r.code);
    assert_eq!(code(&own, "", r#"{"id":null,"v":1}"#), Err(Code::NullKey));
    assert_eq!(code(&by_key, r#"{"id":null}"#, r#"{"v":1}"#), Err(Code::NullKey));
    assert_eq!(code(&own, "", r#"{"id":1,"v":null}"#), Err(Code::TypesMissing));
    assert_eq!(code(&own, "", r#"{"v":null}"#), Err(Code::KeyMissing));
}

#[test]
fn keys_that_are_one_value() {
    let own = options(Dialect::Plain, Some(&["id"]));
    let of = |records: &[(&str, &str)]| text(&inferred(&own, records));
    assert_eq!(of(&[("17", r#"{"v":1}"#), ("18", r#"{"v":1}"#)]), "v int64, id int64");
    assert_eq!(of(&[("17", r#"{"v":1}"#), ("user-1", r#"{"v":1}"#)]), "v int64, id text", "as texts all of them stand for themselves");
    assert_eq!(of(&[("17", r#"{"id":"17"}"#)]), "id text", "the row says it");
    assert_eq!(inferred(&own, &[("1.5", r#"{"v":1}"#)]).refused.len(), 1);
    let mut decoder = settled(&own, &[("17", r#"{"v":1}"#), ("user-1", r#"{"v":1}"#)]);
    assert_eq!(row(&mut decoder, "17", r#"{"v":2}"#).as_deref(), Ok("u [17] id=17 v=2"));
    assert_eq!(row(&mut decoder, "user-1", r#"{"v":2}"#).as_deref(), Ok("u [user-1] id=user-1 v=2"));
    assert_eq!(row(&mut decoder, "user-1", "").as_deref(), Ok("d [user-1] "));
    let long = Options { key_format: KeyFormat::Int64, ..own };
    assert_eq!(text(&inferred(&long, &[("8 bytes!", r#"{"v":1}"#)])), "v int64", "the format says it");
}

#[test]
fn what_is_known_is_not_asked_and_what_is_left_out_is_not_looked_at() {
    let mut options = options(Dialect::Plain, None);
    options.types = vec![("a".to_owned(), LogicalType::Text)];
    options.inferred = vec![("b".to_owned(), LogicalType::Bool)];
    options.exclude = vec!["c".to_owned()];
    assert_eq!(text(&inferred(&options, &[(r#"{"id":1}"#, r#"{"id":1,"a":1,"b":1,"c":1,"d":1}"#)])), "id int64, d int64");
}

#[test]
fn members_are_bounded_and_keys_are_not_among_what_is_folded() {
    let own = options(Dialect::Plain, Some(&["id"]));
    let many = |from: usize, to: usize| (from..to).map(|n| format!(r#""m{n}":1,"#)).collect::<String>();
    let first = format!("{{{}\"x\":1}}", many(0, 900));
    let (second, third) = (format!("{{{}\"x\":1}}", many(1_000, 7_000)), r#"{"id":1,"y":1}"#);
    let found = inferred(&own, &[("", &first), ("", &second), ("", third)]);
    assert!(found.has_more);
    assert_eq!((found.columns.len(), &found.columns[900]), (1_001, &("x".to_owned(), LogicalType::Int64)), "the record that asks, and some beside");
    assert_eq!(found.columns.last(), Some(&("id".to_owned(), LogicalType::Int64)), "never a key");
    let name = "n".repeat(600_000);
    let found = inferred(&own, &[("", &format!(r#"{{"a{name}":1,"b{name}":1}}"#))]);
    assert_eq!((found.columns.len(), found.has_more), (1, true));
}

/// Seeded documents: what they come to hangs on their order in nothing, and each of them is taken with it.
#[test]
fn every_document_seen_is_taken_and_the_order_does_not_show() {
    const VALUES: [&str; 16] = [
        "null",
        "1",
        "-7",
        "0",
        "9223372036854775808",
        "1.50",
        "-0.0",
        "1e3",
        "true",
        "false",
        "\"a\"",
        "\"1\"",
        "\"\\u00e9\\\"\"",
        "{\"a\":1}",
        "[1,\"x\"]",
        "\"\"",
    ];
    let options = options(Dialect::Plain, None);
    let mut seed = 20_241_201_u64;
    let mut below = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    for _ in 0..500 {
        let kinds: Vec<usize> = (0..5).map(|_| 1 + below(VALUES.len())).collect();
        let records: Vec<(String, String)> = (0..=below(8))
            .map(|id| {
                let members: Vec<String> = kinds
                    .iter()
                    .enumerate()
                    .map(|(n, kinds)| (below(4) > 0, format!("\"c{n}\":{}", VALUES[below(*kinds)])))
                    .filter(|(is_there, _)| *is_there)
                    .map(|(_, member)| member)
                    .collect();
                (format!("{{\"id\":{id}}}"), format!("{{{}}}", members.join(",")))
            })
            .filter(|(_, value)| value != "{}")
            .collect();
        let borrowed: Vec<(&str, &str)> = records.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let sorted = |records: &[(&str, &str)]| {
            let mut columns = inferred(&options, records).columns;
            columns.sort_by(|(a, _), (b, _)| a.cmp(b));
            columns
        };
        let all = sorted(&borrowed);
        let reversed: Vec<(&str, &str)> = borrowed.iter().rev().copied().collect();
        assert_eq!(all, sorted(&reversed));
        let twice: Vec<(&str, &str)> = borrowed.iter().chain(&reversed).copied().collect();
        assert_eq!(all, sorted(&twice), "seeing again adds nothing");
        // More documents only loosen.
        for (name, ty) in sorted(&borrowed[..borrowed.len() / 2]) {
            let now = all.iter().find(|(known, _)| *known == name).expect("never forgotten").1;
            assert!(Shape::of_column(now).covers(Shape::of_column(ty)), "{name}: {ty} became {now}");
        }
        let mut decoder = settled(&options, &borrowed);
        for (key, value) in &borrowed {
            assert!(row(&mut decoder, key, value).is_ok(), "{key} {value}: {:?} with {all:?}", row(&mut decoder, key, value));
        }
    }
}
