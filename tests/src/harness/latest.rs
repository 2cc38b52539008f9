//! A topic of newest rows as a consumer reads it, who knows Kafka and Avro and nothing of Landfall: committed records, the newest of each key,
//! its contract from the topic of contracts, Avro by a library of others.

use std::collections::{BTreeMap, HashMap};

use apache_avro::Schema;
use apache_avro::types::Value;

use super::kafka::{Kafka, Record};
use super::stores::{Column, Kind, Row, View};

/// The topic of newest rows of a log.
pub fn topic(log: &str) -> String {
    format!("{log}.latest")
}

/// The text of a header.
pub fn header<'r>(record: &'r Record, name: &str) -> Option<&'r str> {
    let found = record.headers.iter().find(|(key, _)| key == name)?;
    std::str::from_utf8(&found.1).ok()
}

/// Rows and cursors of a topology's table; `None` where there is no topic.
pub fn view(kafka: &Kafka, topology: &str, table: &str, columns: &[Column]) -> Option<View> {
    let rows = topic(&format!("{topology}.{table}"));
    if kafka.partitions(&rows) == 0 {
        return None;
    }
    // Cursors before rows: what a cursor says is behind the rows that were there then.
    let cursors = cursors(&kafka.read(&format!("{rows}.cursors")));
    let records = kafka.read(&rows);
    let schemas = schemas(&kafka.read(&format!("{topology}.schemas")));
    Some(View { cursors, rows: live(&records).into_iter().map(|r| row(&schemas, r, columns)).collect() })
}

/// `K` by partition.
pub fn cursors(records: &[Record]) -> BTreeMap<i32, i64> {
    let mut cursors = BTreeMap::new();
    for record in records {
        let key = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default());
        let Some(partition) = key.rsplit_once('/').and_then(|(_, n)| n.parse::<i32>().ok()) else { continue };
        let value: serde_json::Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default()).expect("a cursor is JSON");
        let _ = value["next"].as_i64().map(|next| cursors.insert(partition, next));
    }
    cursors
}

/// Contracts by fingerprint, as they are named: little endian.
pub fn schemas(records: &[Record]) -> HashMap<[u8; 8], Schema> {
    let parsed = |record: &Record| {
        let mut name: [u8; 8] = record.key.as_deref()?.try_into().ok()?;
        name.reverse();
        let text = std::str::from_utf8(record.value.as_deref()?).ok()?;
        Some((name, Schema::parse_str(text).unwrap_or_else(|e| panic!("a contract is Avro: {e}: {text}"))))
    };
    records.iter().filter_map(parsed).collect()
}

/// The newest record of every key that is no delete. The records of a key never go back in the log.
pub fn live(records: &[Record]) -> Vec<&Record> {
    let mut newest: BTreeMap<&[u8], (&Record, (u64, i64))> = BTreeMap::new();
    for record in records {
        let key = record.key.as_deref().expect("every record has a key");
        let number = |name| header(record, name).and_then(|text| text.parse::<i64>().ok());
        assert_eq!(number("landfall.partition").unwrap_or(record.partition.unwrap_or(-1).into()), i64::from(record.partition.unwrap_or(-1)));
        let at = (number("landfall.build").expect("a build").cast_unsigned(), number("landfall.offset").unwrap_or(-1));
        assert!(record.value.is_some() || at.1 < 0 || header(record, "landfall.key").is_some(), "a delete says whose: {record:?}");
        if let Some((_, before)) = newest.insert(key, (record, at)) {
            assert!(before <= at, "a row goes back from log offset {before:?} to {at:?}");
        }
    }
    newest.into_values().map(|(record, _)| record).filter(|record| record.value.is_some()).collect()
}

/// A row as canonical text.
pub fn row(schemas: &HashMap<[u8; 8], Schema>, record: &Record, columns: &[Column]) -> Row {
    let value = record.value.as_deref().expect("a row");
    assert_eq!(value[..2], [0xC3, 0x01], "single-object encoding");
    let name: [u8; 8] = value[2..10].try_into().expect("eight bytes");
    let schema = schemas.get(&name).unwrap_or_else(|| panic!("contract {name:?} is not there"));
    let mut rest = &value[10..];
    let read = apache_avro::reader::datum::GenericDatumReader::builder(schema)
        .build()
        .and_then(|reader| reader.read_value(&mut rest))
        .expect("a row of its contract");
    assert!(rest.is_empty(), "{} bytes are left over", rest.len());
    let Value::Record(fields) = read else { panic!("a row is a record: {read:?}") };
    let cell = |column: &Column| {
        let field = fields.iter().find(|(name, _)| *name == column.name).map(|(_, value)| value)?;
        text(column.kind, field).map(|text| column.kind.canonical(&text))
    };
    columns.iter().map(cell).collect()
}

fn text(kind: Kind, value: &Value) -> Option<String> {
    Some(match (kind, value) {
        (_, Value::Union(_, inner)) => return text(kind, inner),
        (_, Value::Null) => return None,
        (_, Value::Boolean(v)) => v.to_string(),
        (_, Value::Int(v)) => v.to_string(),
        (_, Value::Long(v)) => v.to_string(),
        (_, Value::String(v)) => v.clone(),
        (Kind::Decimal(scale), Value::Decimal(v)) => {
            let bytes = Vec::<u8>::try_from(v).expect("digits");
            let number = num_bigint::BigInt::from_signed_bytes_be(&bytes);
            let digits = format!("{:0>width$}", number.magnitude().to_string(), width = scale as usize + 1);
            let (whole, fraction) = digits.split_at(digits.len() - scale as usize);
            let sign = if number.sign() == num_bigint::Sign::Minus { "-" } else { "" };
            if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
        }
        (Kind::TimestampTz, Value::TimestampMicros(v)) => format!("{}Z", instant(*v)),
        (Kind::Timestamp, Value::LocalTimestampMicros(v)) => instant(*v),
        other => panic!("no rendering of {other:?}"),
    })
}

/// Micros since 1970 as date and time.
fn instant(micros: i64) -> String {
    let (seconds, micros) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (days, seconds) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{micros:06}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[test]
fn instants_are_those_of_the_calendar() {
    assert_eq!(instant(0), "1970-01-01T00:00:00.000000");
    assert_eq!(instant(1_709_210_096_000_001), "2024-02-29T12:34:56.000001");
    assert_eq!(instant(-1), "1969-12-31T23:59:59.999999");
}
