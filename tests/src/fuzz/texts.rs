//! What people and other programs write as text.

use landfall_schemas::avro::Schema;
use landfall_schemas::decimal::{self, Decimal};
use landfall_schemas::dialect::{Decoded, Decoder, Options, Order, Record};
use landfall_schemas::{LogicalType, Value, capture, json, row};
use landfall_topology::{Document, LookupError, Severity, check};
use num_bigint::BigInt;

use super::case::Case;
use super::measure::within;
use super::{Run, Seen, Target, corpus};

fn seen(is_taken: bool) -> Result<Seen, String> {
    Ok(if is_taken { Seen::Taken } else { Seen::Refused })
}

fn target(name: &'static str, corpus: Vec<Case>, start: fn() -> Run) -> Target {
    Target { name, corpus, start, both: true }
}

/// Runs on the text of the first part; bytes that are no text are passed over.
fn on_text(mut run: impl FnMut(usize, &str) -> Result<Seen, String> + 'static) -> Run {
    Box::new(move |case| match std::str::from_utf8(case.part(0).unwrap_or_default()) {
        Ok(text) => run(case.variant, text),
        Err(_) => Ok(Seen::Refused),
    })
}

fn cases(texts: &[&str]) -> Vec<Case> {
    texts.iter().map(|text| Case::one(0, *text)).collect()
}

/// Lines of captures: what is a record goes in and comes out.
pub(super) fn capture_lines() -> Target {
    let lines = ["pg-ops", "pg-ops-avro", "canal-my-ops"].map(|file| corpus::text(&format!("tests/fixtures/debezium/{file}.jsonl")));
    let corpus = lines.iter().flat_map(|text| text.lines()).map(|line| Case::one(0, line)).collect();
    target("capture_lines", corpus, || {
        on_text(|_, text| {
            let Ok(record) = within(text.len(), || capture::Record::parse(text))? else { return seen(false) };
            let mut line = String::new();
            record.write(&mut line);
            match capture::Record::parse(&line) {
                Ok(back) if back == record => seen(true),
                back => Err(format!("{record:?} comes back as {back:?}")),
            }
        })
    })
}

/// The scanner takes what `serde_json` takes.
pub(super) fn json_scanner() -> Target {
    let values = ["pg-ops", "pg-types", "maxwell-my-types"].map(corpus::records).into_iter().flatten().filter_map(|r| r.value);
    let corpus =
        values.map(|value| Case::one(0, value)).chain(cases(&["[1, -0.5e+7, \"\\ud83d\\ude00\", true, null, {}]", "\"a\\u0000b\""])).collect();
    target("json_scanner", corpus, || {
        on_text(|_, text| {
            let ours = within(text.len(), || json::is_document(text))?;
            // It passes over values without unescaping; only the reader of a string minds half of a surrogate pair.
            let theirs = serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok();
            if ours == theirs { seen(ours) } else { Err(format!("is a document: {ours}, to serde_json: {theirs}")) }
        })
    })
}

/// Schemas of registries, and values that are passed over by them.
pub(super) fn avro_schemas() -> Target {
    let registries = ["pg-types-avro", "my-types-avro", "pg-ops-avro"].map(corpus::registry);
    let text = |registered: &landfall_schemas::dialect::Registered| match registered {
        landfall_schemas::dialect::Registered::Avro { text, .. } => Some(text.clone()),
        _ => None,
    };
    let golden = corpus::text("schemas/golden/v1/every-type.avsc");
    let own = r#"{"type":"record","name":"R","fields":[{"name":"r","type":{"type":"array","items":"R"}},{"name":"m","type":{"type":"map","values":{"type":"enum","name":"E","symbols":["A","B"]}}},{"name":"f","type":["null",{"type":"fixed","name":"F","size":3},"E"]}]}"#;
    let texts = registries.iter().flat_map(|r| r.values().filter_map(text)).chain([golden, own.to_owned()]);
    let bytes = [0, 2, 4, 1, 0, 0, 6, 9, 9, 9].repeat(20);
    let corpus = texts.map(|text| Case { variant: 0, parts: vec![Some(text.into_bytes()), Some(bytes.clone())] }).collect();
    target("avro_schemas", corpus, || {
        Box::new(|case| {
            let Ok(text) = std::str::from_utf8(case.part(0).unwrap_or_default()) else { return seen(false) };
            let Ok(schema) = within(text.len(), || Schema::parse(text, &[]))? else { return seen(false) };
            let bytes = case.part(1).unwrap_or_default();
            let skip = || {
                let mut reader = landfall_schemas::wire::Reader::new(bytes);
                schema.skip(schema.root(), &mut reader, &mut landfall_schemas::avro::Budget::of(bytes.len())).is_ok()
            };
            let _ = within(bytes.len(), skip)?;
            seen(true)
        })
    })
}

/// The same in Protobuf: a schema, and the indexes that name one of its messages.
pub(super) fn protobuf_schemas() -> Target {
    let text = |registered: &landfall_schemas::dialect::Registered| match registered {
        landfall_schemas::dialect::Registered::Protobuf { text, .. } => Some(text.clone()),
        _ => None,
    };
    let registries = ["pg-types-protobuf", "pg-types-wrapper-protobuf", "pg-types-connect-protobuf"].map(corpus::registry);
    let own = "syntax = \"proto2\"; package a.b; message M { required M m = 1; oneof o { string s = 2; E e = 3; } enum E { A = 0; B = -1; } \
        optional group G = 4 { repeated int32 n = 1 [packed = true, default = 5]; } map<string, M> map = 5; extensions 100 to max; reserved 7, 9 to 11; } \
        extend M { optional string x = 100 [(confluent.field_meta).params = { key: \"a\", value: \"b\" }]; } service S { rpc R (M) returns (stream M); }";
    let texts =
        registries.iter().flat_map(|r| r.values().filter_map(text)).chain([own.to_owned(), corpus::text("tests/fixtures/protobuf/colour.proto")]);
    let indexes = [vec![0], vec![2, 0], vec![4, 0, 0], vec![2, 2], vec![6, 0, 0, 0]];
    let corpus =
        texts.zip(indexes.iter().cycle()).map(|(text, indexes)| Case { variant: 0, parts: vec![Some(text.into_bytes()), Some(indexes.clone())] });
    target("protobuf_schemas", corpus.collect(), || {
        Box::new(|case| {
            let Ok(text) = std::str::from_utf8(case.part(0).unwrap_or_default()) else { return seen(false) };
            let Ok(schema) = within(text.len(), || landfall_schemas::protobuf::Schema::parse(text, &[]))? else { return seen(false) };
            let bytes = case.part(1).unwrap_or_default();
            let named = || schema.named(&mut landfall_schemas::wire::Reader::new(bytes)).map(|id| schema.message(id).fields.len());
            seen(within(bytes.len(), named)?.is_ok())
        })
    })
}

/// A decimal's value, compared by another library's integers.
fn exact(value: &Decimal<'_>, text: &str) -> Option<bool> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or(Some((text, 0)), |(m, e)| Some((m, e.parse::<i64>().ok()?)))?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: BigInt = format!("{whole}{fraction}").parse().ok()?;
    let scale = fraction.len() as i64 - exponent;
    Some(digits == value.unscaled_big() && scale == i64::from(value.scale))
}

/// Decimals as text: the value is that of the digits, and its own text is read as the same value.
pub(super) fn decimals() -> Target {
    let long = format!("-{}.{}", "1234567890".repeat(8), "9".repeat(40));
    let texts = ["0", "-0.00", "12.30", "+7", "1E+5", "1e-100", ".5", "5.", "99999999999999999999999999999999999999", "1E147455", &long];
    target("decimal_texts", cases(&texts), || {
        let mut bytes = Vec::new();
        on_text(move |_, text| {
            // The digits of a record's numbers are counted before they are read.
            if text.len() > 10_000 {
                return seen(false);
            }
            let read = |text: &str, bytes: &mut Vec<u8>| {
                bytes.clear();
                decimal::parse_into(text, bytes)
            };
            let Some(scale) = within(text.len(), || read(text, &mut bytes))? else { return seen(false) };
            let value = Decimal { unscaled: &bytes, scale };
            if exact(&value, text) == Some(false) {
                return Err(format!("{text} is read as {value:?}"));
            }
            let (mut plain, mut again) = (String::new(), Vec::new());
            value.write_text(&mut plain);
            // Without zeros in front of the point there is no other way to write a negative scale.
            let same = decimal::parse_into(&plain, &mut again).is_some_and(|back| {
                let mut moved = Vec::new();
                back == scale.max(0) && value.rescale_into(back, &mut moved) && moved == again
            });
            if same { seen(true) } else { Err(format!("{text}, written as {plain}, is not read back")) }
        })
    })
}

const TEMPORAL: [&str; 9] =
    ["date", "time(0)", "time(6)", "time(9)", "timestamp(3)", "timestamp(6)", "timestamp(9)", "timestamptz(6)", "timestamptz(9)"];

/// Dates and times as text, in a column of each type: what is taken is written in one way, which is read as the same value.
pub(super) fn temporals() -> Target {
    const DATES: &[&str] = &["2024-02-29", "-0043-03-15", "+5874897-12-31", "2024-01-01Z", "-4713-11-24"];
    const TIMES: &[&str] = &["13:51:30", "24:00:00", "00:00", "23:59:59.000", "13:51:30Z"];
    const TIMESTAMPS: &[&str] =
        &["2023-09-08T16:00:01.7Z", "2023-09-08 13:00:01Z", "1970-01-01T00:00Z", "+2262-04-11T23:47:16.854Z", "1677-09-22T00:00:00.000Z", "infinity"];
    const INSTANTS: &[&str] =
        &["2023-09-08T16:00:01.702905+03:00", "2023-09-08T13:00:01-0330", "1970-01-01T00:00:00+14", "2023-09-08T13:00:01+05:30:15"];
    const FINE: &[&str] = &["13:51:30.123456789", "1970-01-01T00:00:00.000000001Z"];
    let texts = |ty: &str| match ty {
        "date" => vec![DATES],
        "time(9)" => vec![TIMES, FINE],
        _ if ty.starts_with("time(") => vec![TIMES],
        "timestamp(9)" => vec![TIMESTAMPS, FINE],
        _ if ty.starts_with("timestamptz") => vec![TIMESTAMPS, INSTANTS],
        _ => vec![TIMESTAMPS],
    };
    let all = TEMPORAL.iter().enumerate().flat_map(|(variant, ty)| texts(ty).concat().into_iter().map(move |text| Case::one(variant, text)));
    target("temporal_texts", all.collect(), || {
        let types: Vec<LogicalType> = TEMPORAL.iter().map(|t| t.parse().expect("a type")).collect();
        let mut decoders: Vec<Decoder> = types
            .iter()
            .map(|ty| {
                let types = vec![("id".to_owned(), LogicalType::Int32), ("v".to_owned(), *ty)];
                Decoder::new(Options { types, order: Order::Offset, ..Options::new("t") })
            })
            .collect();
        on_text(move |variant, text| {
            let at = variant % types.len();
            let Some(written) = within(text.len(), || through(&mut decoders[at], types[at], text))? else { return seen(false) };
            match through(&mut decoders[at], types[at], &written) {
                Some(again) if again == written => seen(true),
                other => Err(format!("{text} is written as {written}, which is read as {other:?}")),
            }
        })
    })
}

/// The text of the value that a record with a text in its column has.
fn through(decoder: &mut Decoder, ty: LogicalType, text: &str) -> Option<String> {
    let value = format!("{{\"op\":\"c\",\"after\":{{\"id\":1,\"v\":{}}}}}", serde_json::Value::from(text));
    let record = Record { offset: 0, key: Some(b"{\"id\":1}"), value: Some(value.as_bytes()), headers: None, timestamp: None };
    let Ok(Decoded::Changes(changes)) = decoder.decode(record) else { return None };
    let (_, value) = row::values(changes.schema.columns(), changes.change.change.after?).nth(1)?.ok()?;
    let mut out = String::new();
    value.write_text(ty, &mut out);
    (value != Value::Null).then_some(out)
}

/// Type expressions: what is a type is written in one way, which is read as the same type.
pub(super) fn types() -> Target {
    let mut texts = LogicalType::NAMES.to_vec();
    texts.extend(["decimal(12,2)", "Decimal( 12 , 2 )", "time(3)", "timestamp", "timestamptz(9)", "decimal(147455,147455)"]);
    target("type_expressions", cases(&texts), || {
        on_text(|_, text| {
            let Ok(ty) = within(text.len(), || text.parse::<LogicalType>())? else { return seen(false) };
            if ty.to_string().parse() == Ok(ty) { seen(true) } else { Err(format!("{text} is {ty}, which is not read back")) }
        })
    })
}

/// Topology files: a plan or an error, never both and never neither; every issue stands somewhere in the file, and no text of it steers a terminal.
pub(super) fn topologies() -> Target {
    let files = ["shop", "supported", "everything"].map(|name| corpus::text(&format!("topology/samples/{name}.yaml")));
    target("topologies", files.iter().map(|text| Case::one(0, text.as_str())).collect(), || {
        on_text(|_, text| {
            let documents = [Document::new("landfall.yaml", text)];
            let checked = within(text.len(), || check(&documents, &|_| Err(LookupError::new("is not set"))))?;
            let is_wrong = checked.issues.iter().any(|i| i.severity == Severity::Error);
            if checked.plan.is_none() != is_wrong {
                return Err(format!("a plan: {}, errors: {is_wrong}", checked.plan.is_some()));
            }
            let lines = text.split('\n').count().max(1);
            for issue in &checked.issues {
                if issue.line == 0 || issue.column == 0 || issue.line as usize > lines {
                    return Err(format!("an issue stands nowhere: {issue}"));
                }
                if issue.to_string().contains(['\u{1b}', '\u{202e}', '\r', '\0']) {
                    return Err(format!("an issue steers a terminal: {issue:?}"));
                }
            }
            if let Some(plan) = checked.plan {
                let _ = (plan.describe(), plan.expand(["shop.public.orders", "shop.public.x", "", "…"]));
            }
            seen(!is_wrong)
        })
    })
}

#[test]
fn exact_says_what_differs() {
    let value = Decimal { unscaled: &[123], scale: 1 };
    assert_eq!(exact(&value, "12.3"), Some(true));
    assert_eq!(exact(&value, "123e-1"), Some(true));
    assert_eq!((exact(&value, "1.23"), exact(&value, "12.4")), (Some(false), Some(false)));
}
