//! What Landfall itself writes and reads again: keys, rows, changes, contracts, provenance, sequences, and the state of a key.
//!
//! They come from a log and a state of ours, but a log is a topic, and others may write to it.

use landfall::land::entry;
use landfall::land::index::Arena;
use landfall_schemas::change::split_fingerprint;
use landfall_schemas::provenance::{self, Place, SourcePartition};
use landfall_schemas::wire::Reader;
use landfall_schemas::{Change, Column, Provenance, Sequence, TableSchema, Value, contract, key, row};

use super::case::Case;
use super::measure::within;
use super::{Run, Seen, Target, corpus};
use crate::conformance::Random;
use crate::conformance::values::{TYPES, samples};
use crate::meaning::compare;

/// Above this difference of scales the comparison's own integers get too large.
const SCALES_MAX: u32 = 2_000;

fn refused() -> Result<Seen, String> {
    Ok(Seen::Refused)
}

fn target(name: &'static str, corpus: Vec<Case>, start: fn() -> Run) -> Target {
    Target { name, corpus, start, both: true }
}

fn column(ty: &str) -> Column {
    Column { name: format!("c {ty}"), ty: ty.parse().expect(ty), nullable: true }
}

/// Tables of one column each, of every type, with values.
fn values(variant: usize) -> (Column, Vec<Vec<u8>>) {
    let column = column(TYPES[variant % TYPES.len()]);
    let found = samples(|_, _| None, column.ty, &mut Random(variant as u64), 20);
    (column, found.into_iter().filter(|bytes| bytes.len() < 1_000).collect())
}

/// Two values of a type: their keys are equal where they are, and in their order.
pub(super) fn keys() -> Target {
    let pairs = |variant| {
        let found = values(variant).1;
        (1..found.len()).map(|n| vec![Some(found[n - 1][1..].to_vec()), Some(found[n][1..].to_vec())]).collect::<Vec<_>>()
    };
    let case = |variant| pairs(variant).into_iter().map(move |parts| Case { variant, parts });
    let corpus = (0..TYPES.len()).flat_map(case).collect();
    target("canonical_keys", corpus, || {
        Box::new(|case| {
            let ty = column(TYPES[case.variant % TYPES.len()]).ty;
            let read = |part| row::read_plain(ty, &mut Reader::new(case.part(part).unwrap_or_default()));
            let (Ok(a), Ok(b)) = (read(0), read(1)) else { return refused() };
            let encode = |value: Value<'_>| {
                let mut out = Vec::new();
                within(case.bytes(), || {
                    out.clear();
                    key::encode(ty, value, &mut out)
                })
                .map(|encoded| encoded.ok().map(|()| out))
            };
            let (Some(first), Some(second)) = (encode(a)?, encode(b)?) else { return refused() };
            if let (Value::Decimal(a), Value::Decimal(b)) = (a, b)
                && a.scale.abs_diff(b.scale) > SCALES_MAX
            {
                return Ok(Seen::Taken);
            }
            let expected = compare(&a, &b).ok_or_else(|| format!("{a:?} and {b:?} cannot be compared"))?;
            if first.cmp(&second) != expected {
                return Err(format!("{a:?} is {expected:?} to {b:?}, and their keys are {first:02x?} and {second:02x?}"));
            }
            // No key is the beginning of another, or two columns could be taken for two others.
            if first != second && (first.starts_with(&second) || second.starts_with(&first)) {
                return Err(format!("{first:02x?} and {second:02x?}: one begins with the other"));
            }
            Ok(Seen::Taken)
        })
    })
}

/// The tables of rows: one of each type, and one of all of them.
fn tables() -> Vec<TableSchema> {
    let table = |types: &[&str]| {
        let id = Column { name: "id".to_owned(), ty: "int64".parse().expect("a type"), nullable: false };
        TableSchema::new("t", std::iter::once(id).chain(types.iter().map(|ty| column(ty))).collect(), &["id"]).expect("a schema")
    };
    TYPES.iter().map(|ty| table(&[ty])).chain([table(TYPES)]).collect()
}

/// Rows: what is well formed by one reader is by all of them, and every value has a text that costs little.
pub(super) fn rows() -> Target {
    let row = |variant, value: &Vec<u8>| Case::one(variant, [&[2, 14], value.as_slice()].concat());
    let single = (0..TYPES.len()).flat_map(|variant| values(variant).1.iter().map(|v| row(variant, v)).collect::<Vec<_>>());
    let of_all = |n: usize| (0..TYPES.len()).flat_map(|variant| values(variant).1[n].clone()).collect::<Vec<u8>>();
    let all = (0..5).map(|n| Case::one(TYPES.len(), [vec![2, 14], of_all(n)].concat()));
    target("canonical_rows", single.chain(all).collect(), || {
        let tables = tables();
        let (mut spans, mut text) = (Vec::new(), String::new());
        Box::new(move |case| {
            let columns = tables[case.variant % tables.len()].columns();
            let bytes = case.part(0).unwrap_or_default();
            let passed = within(bytes.len(), || row::spans(columns, bytes, &mut spans))?;
            let read = within(bytes.len(), || {
                row::values(columns, bytes).try_for_each(|found| {
                    let (column, value) = found?;
                    text.clear();
                    value.write_text(column.ty, &mut text);
                    Ok::<_, landfall_schemas::wire::WireError>(())
                })
            })?;
            match (passed, read) {
                (Err(passed), Ok(())) if passed != landfall_schemas::wire::WireError::Trailing => {
                    Err(format!("values can be read of a row that cannot be passed over: {passed}"))
                }
                (Ok(()), Ok(())) => Ok(Seen::Taken),
                _ => refused(),
            }
        })
    })
}

/// The changes of the golden file, with their schema.
fn golden() -> (TableSchema, Vec<Vec<u8>>) {
    let schema = contract::parse(&corpus::text("schemas/golden/v1/every-type.avsc")).expect("a contract");
    let lines = corpus::text("schemas/golden/v1/every-type.jsonl");
    (schema, lines.lines().map(|line| crate::golden::parts(line).1).collect())
}

/// Changes: one that is read is written as the same change, and has a text.
pub(super) fn changes() -> Target {
    let corpus = golden().1.into_iter().map(|bytes| Case::one(0, bytes)).collect();
    target("canonical_changes", corpus, || {
        let schema = golden().0;
        let fingerprint = contract::of(&schema).1;
        Box::new(move |case| {
            let bytes = case.part(0).unwrap_or_default();
            let Ok((_, body)) = split_fingerprint(bytes) else { return refused() };
            let Ok(change) = within(bytes.len(), || Change::decode(&schema, body))? else { return refused() };
            let (mut again, mut text) = (Vec::new(), String::new());
            change.encode(fingerprint, &mut again);
            let (_, body) = split_fingerprint(&again).map_err(|e| e.to_string())?;
            if Change::decode(&schema, body).as_ref() != Ok(&change) {
                return Err(format!("{change:?} comes back as {:?}", Change::decode(&schema, body)));
            }
            // A text or a reason why there is none: it looks into the values, which reading a change does not.
            let _ = within(bytes.len(), || {
                text.clear();
                change.write_json(&schema, &mut text).is_ok()
            })?;
            Ok(Seen::Taken)
        })
    })
}

/// Contracts: one that is read is that of its schema.
pub(super) fn contracts() -> Target {
    let small = tables().into_iter().map(|schema| contract::of(&schema).0);
    let texts = small.chain([corpus::text("schemas/golden/v1/every-type.avsc")]);
    target("contracts", texts.map(|text| Case::one(0, text)).collect(), || {
        Box::new(|case| {
            let Ok(text) = std::str::from_utf8(case.part(0).unwrap_or_default()) else { return refused() };
            let Ok(schema) = within(text.len(), || contract::parse(text))? else { return refused() };
            let (own, _) = within(text.len(), || contract::of(&schema))?;
            match contract::parse(&own) {
                Ok(back) if back == schema => Ok(Seen::Taken),
                back => Err(format!("{schema:?} comes back as {back:?}")),
            }
        })
    })
}

/// Provenance headers.
pub(super) fn provenances() -> Target {
    let header = |topic: &str, partition, offset, ordinal, replayed| {
        let mut out = Vec::new();
        let source = SourcePartition { incarnation: [7; 16], partition };
        Provenance { dialect: provenance::Dialect::Debezium, topic, source, place: Place { offset, ordinal }, replayed }.encode(&mut out);
        Case::one(0, out)
    };
    let corpus = vec![
        header("shop.public.orders", 0, 0, 0, None),
        header("", i32::MAX, i64::MAX, u32::MAX, None),
        header("日本", 3, 1 << 40, 2, None),
        header("shop.public.orders", 1, 9, 0, Some(700)),
    ];
    target("provenances", corpus, || {
        Box::new(|case| {
            let bytes = case.part(0).unwrap_or_default();
            let Ok(found) = within(bytes.len(), || Provenance::decode(bytes))? else { return refused() };
            let mut again = Vec::new();
            found.encode(&mut again);
            if Provenance::decode(&again) == Ok(found) { Ok(Seen::Taken) } else { Err(format!("{found:?} does not come back")) }
        })
    })
}

/// Sequences: the bytes are kept, have a text, and those of a dialect are made of their parts.
pub(super) fn sequences() -> Target {
    let corpus =
        vec![Case::one(0, Sequence::of_dialect(1, 2, 3, 4).as_bytes()), Case::one(0, Sequence::of_dialect(0, u64::MAX, 0, u32::MAX).as_bytes())];
    target("sequences", corpus, || {
        Box::new(|case| {
            let bytes = case.part(0).unwrap_or_default();
            let sequence = within(bytes.len(), || Sequence::from_bytes(bytes))?;
            let text = within(bytes.len(), || sequence.to_string())?;
            let Some((epoch, commit, order, ordinal)) = sequence.dialect_parts() else {
                return if text.len() == 2 * bytes.len() { refused() } else { Err(format!("{bytes:02x?} has text {text}")) };
            };
            let same = sequence.as_bytes() == bytes && Sequence::of_dialect(epoch, commit, order, ordinal) == sequence;
            if same { Ok(Seen::Taken) } else { Err(format!("{bytes:02x?} are {sequence}")) }
        })
    })
}

/// The state of a key: one that is read is written as one that is read as the same.
pub(super) fn states() -> Target {
    let corpus = (0..200).map(|seed| Case::one(0, crate::property::stored(seed))).collect();
    target("states", corpus, || {
        Box::new(|case| {
            let bytes = case.part(0).unwrap_or_default();
            let mut arena = Arena::default();
            let read = within(bytes.len(), || {
                arena = Arena::default();
                entry::decode(bytes, &mut arena)
            })?;
            let Ok(index) = read else { return refused() };
            let (mut once, mut twice) = (Vec::new(), Vec::new());
            entry::encode(&index, &arena, &mut once);
            let mut arena = Arena::default();
            let again = entry::decode(&once, &mut arena).map_err(|e| format!("what is read cannot be written: {e}"))?;
            entry::encode(&again, &arena, &mut twice);
            if once == twice { Ok(Seen::Taken) } else { Err(format!("{once:02x?} is written again as {twice:02x?}")) }
        })
    })
}
