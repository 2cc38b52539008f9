//! Bytes that nobody would send: real records, damaged at random with a fixed seed. Nothing may panic, and nothing may take long.

#![expect(clippy::disallowed_methods, reason = "how long a record takes is what is tested")]

use std::time::{Duration, Instant};

use super::*;

/// A small generator of numbers that need not be good, only repeatable.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

fn damage(bytes: &mut Vec<u8>, dice: &mut Dice) {
    const BITS: [&[u8]; 16] = [
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"null",
        b"-",
        b"9999999999999999999999",
        b"1e999",
        b"\\ud800",
        b"\xFF",
        b"\"schema\":",
        b"\"payload\":",
    ];
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len() + 1);
        match dice.below(6) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => {
                let end = (at + dice.below(40)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + dice.below(200)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => drop(bytes.splice(at..at, BITS[dice.below(BITS.len())].iter().copied())),
        }
    }
}

#[test]
fn damaged_records_never_panic_and_never_take_long() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let (mut decoded, mut rejected) = (0, 0);
    for (file, dialect) in [
        ("pg-types-schema", Dialect::Debezium),
        ("pg-types", Dialect::Debezium),
        ("pg-ops", Dialect::Debezium),
        ("pg-ops-schema", Dialect::Debezium),
        ("my-ops-schema", Dialect::Debezium),
        ("pg-types-string-schema", Dialect::Debezium),
        ("pg-types-avro", Dialect::Debezium),
        ("my-types-avro", Dialect::Debezium),
        ("pg-ops-avro", Dialect::Debezium),
        ("pg-ops-flat-json", Dialect::Flattened),
        ("pg-ops-flat-rewrite-json-schema", Dialect::Flattened),
        ("maxwell-my-ops", Dialect::Maxwell),
        ("maxwell-my-types", Dialect::Maxwell),
        ("canal-my-ops", Dialect::Canal),
        ("canal-my-types", Dialect::Canal),
    ] {
        let (records, registry) = (records(file), registry(file));
        let types = [("id", "int32"), ("c_num_10_2", "decimal(10,2)"), ("a", "int32"), ("b", "text"), ("v", "text"), ("small", "int32")];
        let types: Vec<_> = types.iter().map(|(name, ty)| ((*name).to_owned(), ty.parse().expect(ty))).collect();
        let exclude = ["c_timetz", "c_interval", "biga"].map(str::to_owned).to_vec();
        let order = if matches!(dialect, Dialect::Maxwell | Dialect::Canal) { Order::Offset } else { Order::Dialect };
        let (known, connector) = ((!registry.is_empty()).then_some(IdBytes::Four), "postgresql");
        let mut decoder = Decoder::new(Options { types, exclude, dialect, order, connector, registry: known, ..Options::new("t") });
        for _ in 0..1_500 {
            let record = &records[dice.below(records.len())];
            let (mut key, mut value, mut headers) = (record.key.clone(), record.value.clone(), record.clone());
            match dice.below(4) {
                3 => headers.headers.iter_mut().filter_map(|(_, v)| v.as_mut()).for_each(|v| damage(v, &mut dice)),
                0 => key.iter_mut().for_each(|k| damage(k, &mut dice)),
                _ => value.iter_mut().for_each(|v| damage(v, &mut dice)),
            }
            let start = Instant::now();
            let damaged = Record { offset: record.offset, key: key.as_deref(), value: value.as_deref(), headers: Some(&headers) };
            bring(&mut decoder, &registry, &damaged);
            let said = say(&mut decoder, damaged);
            let mut fresh = Decoder::new(decoder.options().clone());
            bring(&mut fresh, &registry, &damaged);
            let fresh = say(&mut fresh, damaged);
            assert_eq!(said, fresh, "what came before must not show");
            match said {
                Ok(_) => decoded += 1,
                Err(reject) => {
                    assert!(reject.reason.len() < 10_000);
                    rejected += 1;
                }
            }
            assert!(start.elapsed() < Duration::from_secs(4), "a record of {} bytes took {:?}", value.map_or(0, |v| v.len()), start.elapsed());
        }
    }
    assert!(decoded > 500 && rejected > 2_000, "{decoded} {rejected}");
}

#[test]
fn numbers_without_end_are_refused_in_time() {
    let mut decoder = declared(&[("id", "int32"), ("n", "numeric"), ("d", "decimal(12,2)"), ("w", "decimal(140000,2)")]);
    let digits = "9".repeat(1_000_000);
    let zeros = "A".repeat(1_000_000);
    for value in [
        format!("{{\"n\":{digits}}}"),
        format!("{{\"d\":{digits}.5}}"),
        "{\"n\":1e999999999999}".to_owned(),
        "{\"d\":1e140000}".to_owned(),
        "{\"w\":1e-140000}".to_owned(),
        format!("{{\"w\":{}}}", &digits[..150_000]),
        format!("{{\"n\":{{\"scale\":0,\"value\":\"/{zeros}AAA\"}}}}"),
    ] {
        let row = value.replacen('{', "{\"id\":1,", 1);
        let start = Instant::now();
        let said = one(&mut decoder, "{\"id\":1}", &format!("{{\"op\":\"c\",\"after\":{row}}}"));
        assert!(said.is_err(), "{}", &value[..20]);
        assert!(start.elapsed() < Duration::from_secs(4), "{} took {:?}", &value[..20], start.elapsed());
    }
}

#[test]
fn nesting_without_end_is_refused() {
    let mut decoder = declared(&[("id", "int32")]);
    for open in ["[", "{\"a\":", "{\"schema\":{\"fields\":["] {
        let deep = format!("{{\"op\":\"c\",\"after\":{}", open.repeat(300_000));
        let record = |value| Record { offset: 0, key: Some(b"{\"id\":1}"), value: Some(value), headers: None };
        assert_eq!(say(&mut decoder, record(deep.as_bytes())).map_err(|r| r.code), Err(Code::JsonInvalid));
        assert!(say(&mut decoder, record(open.repeat(300_000).as_bytes())).is_err());
    }
}
