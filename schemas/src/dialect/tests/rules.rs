//! Columns that are masked, renamed and left out: the same in every dialect and encoding.

use super::golden::{CUSTOMERS, plain, typed};
use super::*;
use crate::mask::Mask;

/// What a rule asks for, of a column of text in every dialect and encoding: a mask under another name, the next one gone.
#[test]
fn rules_for_columns_hold_in_every_dialect() {
    let masked = |text: &str| {
        let (mut scratch, mut out) = (String::new(), String::new());
        Mask::new(b"pepper").write(LogicalType::Text, &crate::Value::Text(text), &mut scratch, &mut out);
        out
    };
    let rules = |hide: &str, leave: &str, options: Options| Options {
        masked: Some((vec![hide.to_owned()], Mask::new(b"pepper"))),
        rename: vec![(hide.to_owned(), "hidden".to_owned()), ("id".to_owned(), "number".to_owned())],
        exclude: vec![leave.to_owned()],
        registry: Some(IdBytes::Four),
        ..options
    };
    let offset = |dialect, table: &str, types: &[(&str, &str)]| Options {
        dialect,
        order: Order::Offset,
        source_table: Some(table.to_owned()),
        decimal_strings: DecimalStrings::Numbers,
        ..typed(types)
    };
    let flat = Options { dialect: Dialect::Flattened, connector: "postgresql", ..plain() };
    let maxwell = [
        &[("id", "int32"), ("first_name", "text"), ("last_name", "text"), ("email", "text")][..],
        &[("balance", "decimal(12,2)"), ("created_at", "timestamp(6)")],
    ]
    .concat();
    for (file, options) in [
        ("pg-ops-schema", plain()),
        ("pg-ops", typed(&CUSTOMERS)),
        ("pg-ops-avro", plain()),
        ("pg-ops-flat-rewrite-json-schema", flat),
        ("my-ops-schema", plain()),
        ("maxwell-my-ops", offset(Dialect::Maxwell, "customers", &maxwell)),
        ("canal-my-ops", offset(Dialect::Canal, "customers", &[])),
    ] {
        let registry = registry(file);
        let mut clear = Decoder::new(Options { registry: Some(IdBytes::Four), ..options.clone() });
        let mut ruled = Decoder::new(rules("email", "last_name", options));
        let mut shown = 0;
        for record in records_of(file, "customers") {
            for decoder in [&mut clear, &mut ruled] {
                bring(decoder, &registry, &input(&record));
            }
            let (Ok(before), Ok(after)) = (say(&mut clear, input(&record)), say(&mut ruled, input(&record))) else { continue };
            assert_eq!(before.len(), after.len(), "{file}");
            for (before, after) in before.iter().zip(&after).filter(|(b, _)| b.op != Op::Truncate) {
                // The key is the same to the last byte, whatever its column is called.
                assert_eq!((&before.key, &before.sequence, &before.key_values), (&after.key, &after.sequence, &after.key_values), "{file}");
                let names: Vec<&str> = after.schema.columns().iter().map(|c| c.name.as_str()).collect();
                assert!(names.contains(&"number") && !names.contains(&"email") && !names.contains(&"last_name"), "{file}: {names:?}");
                let images = [(Some(&before.after), Some(&after.after)), (before.before.as_ref(), after.before.as_ref())];
                for (old, new) in images.into_iter().filter_map(|(old, new)| Some((old?, new?))).filter(|(old, _)| !old.is_empty()) {
                    assert_eq!(new.get("hidden").cloned().flatten(), old["email"].as_deref().map(masked), "{file}");
                    assert_eq!(new.get("first_name"), old.get("first_name"), "{file}");
                    shown += usize::from(old["email"].is_some());
                }
                let email = before.after.get("email").cloned().flatten().filter(|e| e.len() > 3);
                if let Some(email) = email {
                    let is_there = after.encoded.windows(email.len()).any(|w| w == email.as_bytes());
                    assert!(!is_there, "{file}: {email} is in the record of the log");
                }
            }
        }
        assert!(shown > 2, "{file} shows nothing");
    }
}

#[test]
fn a_key_cannot_be_masked_nor_a_name_be_given_twice() {
    let record = &records_of("pg-ops-schema", "customers")[0];
    let refuse = |options: Options| say(&mut Decoder::new(options), input(record)).map(drop).map_err(|r| (r.code, r.kind()));
    let masked = Some((vec!["id".to_owned()], Mask::new(b"pepper")));
    assert_eq!(refuse(Options { masked, ..plain() }), Err((Code::KeyType, RejectKind::StopTable)));
    let rename = vec![("email".to_owned(), "last_name".to_owned())];
    assert!(matches!(refuse(Options { rename, ..plain() }), Err((_, RejectKind::StopTable))));
    let rename = vec![("email".to_owned(), "__LF_x".to_owned())];
    assert!(matches!(refuse(Options { rename, ..plain() }), Err((_, RejectKind::StopTable))));
}
