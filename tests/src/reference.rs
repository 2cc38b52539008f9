//! The reference: what a replica must show, out of the source topic alone.
//!
//! Independent of Landfall: it shares no code with it, reads records with `serde_json`, and folds the set of a key's events naively, from
//! nothing, each time (SEMANTICS.md A.2, A.3; ARCHITECTURE.md, Repeats, zombies and order, for bare tombstones). Slow and plain on purpose.

use std::collections::{BTreeMap, HashMap};

use num_bigint::BigInt;
use serde_json::Value;

use crate::harness::kafka::Record;
use crate::workload::PLACEHOLDER;

/// A row by column; the value is canonical text, `None` is NULL.
pub type Row = BTreeMap<String, Option<String>>;

/// What a source record says.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A row was written, or deleted where there is no row. Columns that were not sent are missing; they are in the row of the former key
    /// where the change names one.
    Change { key: String, at: (u64, u64), snapshot: bool, row: Option<Row>, former: Option<String> },
    /// A null value.
    Tombstone { key: String },
    /// Nothing that could be a change: a dead letter.
    Poison,
}

/// Where a record stood: partition and offset.
pub type Place = (i32, i64);

fn cell(schema: &Value, value: &Value) -> Option<Option<String>> {
    if value.is_null() {
        return Some(None);
    }
    let text = match (schema["name"].as_str(), value) {
        (_, Value::String(s)) if s == PLACEHOLDER => return None,
        (Some("org.apache.kafka.connect.data.Decimal"), Value::String(s)) => {
            let scale: usize = schema["parameters"]["scale"].as_str()?.parse().ok()?;
            decimal(&BigInt::from_signed_bytes_be(&unbase64(s)), scale)
        }
        (_, Value::String(s)) => s.clone(),
        (_, other) => other.to_string(),
    };
    Some(Some(text))
}

fn decimal(unscaled: &BigInt, scale: usize) -> String {
    let digits = format!("{:0>width$}", unscaled.magnitude().to_string(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    format!("{}{whole}.{fraction}", if unscaled.sign() == num_bigint::Sign::Minus { "-" } else { "" })
}

fn unbase64(text: &str) -> Vec<u8> {
    let six = |c: u8| b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".iter().position(|a| *a == c);
    let bits: Vec<u32> = text.bytes().filter_map(six).map(|n| n as u32).collect();
    bits.chunks(4)
        .flat_map(|c| {
            let n = c.iter().fold(0, |n, b| n << 6 | b) << (6 * (4 - c.len()));
            n.to_be_bytes()[1..c.len()].to_vec()
        })
        .collect()
}

/// An event on its way into the fold: position, tick, whether it was streamed, place, row. In this order it sorts; of equal positions the
/// last wins.
type Event<'a> = ((u64, u64), u8, bool, Place, Option<&'a Row>, Option<&'a str>);

/// Reads a record of a Debezium topic with schemas.
pub fn read(record: &Record) -> Fact {
    parse(record).unwrap_or(Fact::Poison)
}

fn parse(record: &Record) -> Option<Fact> {
    let joined = |key: &Value| Some(key.as_object()?.values().map(Value::to_string).collect::<Vec<_>>().join(","));
    let key: Value = serde_json::from_slice(record.key.as_deref()?).ok()?;
    let key = joined(&key["payload"])?;
    let Some(value) = &record.value else { return Some(Fact::Tombstone { key }) };
    let value: Value = serde_json::from_slice(value).ok()?;
    let (payload, op) = (&value["payload"], value["payload"]["op"].as_str()?);
    let source = &payload["source"];
    let pair: Value = serde_json::from_str(source["sequence"].as_str()?).ok()?;
    let lsn: u64 = pair[1].as_str()?.parse().ok()?;
    let commit = pair[0].as_str().map_or(Some(lsn), |c| c.parse().ok())?;
    // A row of an incremental snapshot was read before the transaction that follows the commit: it ranks below all of that.
    let snapshot = op == "r" && source["snapshot"].as_str().is_some_and(|s| s != "false");
    let lsn = if source["snapshot"] == "incremental" && pair[0].is_string() { 0 } else { lsn };
    let row = match op {
        "d" => None,
        "c" | "u" | "r" => {
            let schema = value["schema"]["fields"].as_array()?.iter().find(|f| f["field"] == "after")?;
            let mut row = Row::new();
            for field in schema["fields"].as_array()? {
                let name = field["field"].as_str()?;
                if let Some(cell) = cell(field, &payload["after"][name]) {
                    let _ = row.insert(name.to_owned(), cell);
                }
            }
            Some(row)
        }
        _ => return None,
    };
    let header = record.headers.iter().find(|(name, _)| name == "__debezium.oldkey").map(|(_, value)| value);
    let former = header.filter(|_| op == "c").and_then(|value| joined(&serde_json::from_slice(value).ok()?));
    Some(Fact::Change { key, at: (commit, lsn), snapshot, row, former })
}

/// Facts by key.
pub type Facts<'a> = HashMap<&'a str, Vec<(Place, &'a Fact)>>;

/// The row of one key after these facts, whatever the order in which they are given; `None` where there is none. All keys that are given
/// are in one partition of the log, or no value is asked for across its partitions.
pub fn fold(key: &str, facts: &Facts<'_>, columns: &[&str]) -> Option<Row> {
    // A value that was never sent is no NULL: the row waits until it comes.
    state(key, facts, columns, None).filter(|row| columns.iter().all(|c| row.contains_key(*c)))
}

/// What is known of the row of a key, at last or just before a position.
fn state(key: &str, facts: &Facts<'_>, columns: &[&str], before_position: Option<(u64, u64)>) -> Option<Row> {
    let all = facts;
    let mut facts = facts.get(key)?.clone();
    facts.sort_by_key(|(place, _)| *place);
    // Where each partition sends a position for the last time, and the record of the key that a tombstone there would follow.
    let mut sent: BTreeMap<(i32, (u64, u64)), i64> = BTreeMap::new();
    for (place, fact) in &facts {
        if let Fact::Change { at, .. } = fact {
            let _ = sent.insert((place.0, *at), place.1);
        }
    }
    let mut before: BTreeMap<i32, ((u64, u64), bool)> = BTreeMap::new();
    let mut events: Vec<Event<'_>> = Vec::new();
    for (place, fact) in &facts {
        match fact {
            Fact::Change { at, snapshot, row, former, .. } => {
                events.push((*at, 0, !snapshot, *place, row.as_ref(), former.as_deref()));
                if !(*snapshot && before.get(&place.0).is_some_and(|(last, _)| at < last)) {
                    let _ = before.insert(place.0, (*at, row.is_some()));
                }
            }
            Fact::Poison => {}
            Fact::Tombstone { .. } => {
                if let Some((behind, true)) = before.get(&place.0)
                    && sent[&(place.0, *behind)] < place.1
                {
                    events.push((*behind, 1, true, *place, None, None));
                }
            }
        }
    }
    if let Some(position) = before_position {
        // A row that a snapshot read at that very position would be the one, but it is not known to stand above all others.
        if events.iter().any(|e| e.0 == position && !e.2) {
            return None;
        }
        events.retain(|e| e.0 < position);
    }
    events.sort_by_key(|(at, tick, streamed, place, ..)| (*at, *tick, *streamed, *place));
    let mut current: Option<Row> = None;
    for group in events.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        // What a key change brought continues the row of its former key, not what stood here.
        if let Some(former) = group.iter().find_map(|e| e.5) {
            current = state(former, all, columns, Some(group[0].0));
        }
        current = group.last().and_then(|winner| winner.4).map(|_| {
            let from_tie = |c: &str| group.iter().rev().map_while(|e| e.4).find_map(|row| row.get(c).cloned());
            let from_before = |c: &str| current.as_ref().and_then(|row| row.get(c).cloned());
            columns.iter().filter_map(|c| Some(((*c).to_owned(), from_tie(c).or_else(|| from_before(c))?))).collect()
        });
    }
    current
}

/// The rows of all keys, and where the dead letters stood. Sources leave nothing unsent in a key change across partitions of the log.
pub fn replica(records: &[Record], columns: &[&str]) -> (BTreeMap<String, Row>, Vec<Place>) {
    let facts: Vec<(Place, Fact)> = records.iter().map(|r| ((r.partition.unwrap_or(0), r.offset), read(r))).collect();
    let mut by_key: Facts<'_> = HashMap::new();
    let mut poison = Vec::new();
    for (place, fact) in &facts {
        match fact {
            Fact::Change { key, .. } | Fact::Tombstone { key } => by_key.entry(key).or_default().push((*place, fact)),
            Fact::Poison => poison.push(*place),
        }
    }
    (by_key.keys().filter_map(|key| Some(((*key).to_owned(), fold(key, &by_key, columns)?))).collect(), poison)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [&str; 2] = ["a", "b"];

    fn write(at: u64, a: Option<&str>, b: Option<&str>) -> Fact {
        let cell = |name: &str, v: Option<&str>| v.map(|v| (name.to_owned(), Some(v.to_owned())));
        Fact::Change {
            key: "1".into(),
            at: (at, at),
            snapshot: false,
            row: Some([cell("a", a), cell("b", b)].into_iter().flatten().collect()),
            former: None,
        }
    }

    fn delete(at: u64) -> Fact {
        Fact::Change { key: "1".into(), at: (at, at), snapshot: false, row: None, former: None }
    }

    fn bare() -> Fact {
        Fact::Tombstone { key: "1".into() }
    }

    fn shown(facts: &[Fact]) -> Option<String> {
        shown_at("1", facts)
    }

    fn shown_at(key: &str, facts: &[Fact]) -> Option<String> {
        let mut placed: Facts<'_> = HashMap::new();
        for (i, fact) in facts.iter().enumerate() {
            let (Fact::Change { key, .. } | Fact::Tombstone { key }) = fact else { continue };
            placed.entry(key).or_default().push(((0, i as i64), fact));
        }
        let forward = fold(key, &placed, &COLUMNS);
        placed.values_mut().for_each(|facts| facts.reverse());
        assert_eq!(forward, fold(key, &placed, &COLUMNS), "the fold is of the set");
        forward.map(|row| row.values().map(|v| v.clone().unwrap_or_default()).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn the_fold_says_what_the_documents_say() {
        let (x, y) = (Some("x"), Some("y"));
        assert_eq!(shown(&[write(5, x, x), write(9, y, x)]).as_deref(), Some("y,x"));
        assert_eq!(shown(&[write(9, y, x), write(5, x, x)]).as_deref(), Some("y,x"), "the source's order counts");
        assert_eq!(shown(&[write(5, x, x), delete(9)]), None);
        assert_eq!(shown(&[delete(9), write(5, x, x)]), None, "an early delete stays");
        assert_eq!(shown(&[write(5, x, x), write(7, y, None)]).as_deref(), Some("y,x"), "a value that was not sent is the one before");
        assert_eq!(shown(&[write(5, x, x), delete(6), write(7, y, None)]), None, "there is none before: the row waits");
        assert_eq!(shown(&[write(5, x, x), bare()]), None, "a bare tombstone deletes");
        assert_eq!(shown(&[write(5, x, x), bare(), write(9, y, y)]).as_deref(), Some("y,y"));
        assert_eq!(shown(&[write(5, x, x), bare(), write(5, x, x)]).as_deref(), Some("x,x"), "sent again behind it: void");
        assert_eq!(shown(&[write(5, x, x), bare(), write(5, x, x), bare()]), None);
        assert_eq!(shown(&[write(5, x, x), bare(), write(9, y, y), bare(), write(9, y, y)]).as_deref(), Some("y,y"));
        assert_eq!(shown(&[write(5, x, x), delete(7), bare(), write(9, y, y)]).as_deref(), Some("y,y"), "behind a d it says nothing");
        assert_eq!(shown(&[bare()]), None);
        assert_eq!(shown(&[write(5, x, x), write(5, y, None)]).as_deref(), Some("y,x"), "a tie: the later wins, its gap is filled from the tie");
    }

    #[test]
    fn a_key_change_takes_along_what_was_not_sent() {
        let came = |at: u64, from: &str, a: Option<&str>, b: Option<&str>| match write(at, a, b) {
            Fact::Change { at, row, .. } => Fact::Change { key: "2".into(), at, snapshot: false, row, former: Some(from.into()) },
            other => other,
        };
        let (x, y) = (Some("x"), Some("y"));
        assert_eq!(shown_at("2", &[write(5, x, y), delete(7), bare(), came(7, "1", x, None)]).as_deref(), Some("x,y"));
        assert_eq!(shown_at("2", &[came(7, "1", x, None), write(5, x, y)]).as_deref(), Some("x,y"), "whatever came first");
        assert_eq!(shown_at("2", &[write(5, x, y), write(9, y, x), came(7, "1", x, None)]).as_deref(), Some("x,y"), "as it was at that place");
        assert_eq!(shown_at("2", &[write(5, x, y), delete(6), came(7, "1", x, None)]), None, "there was no row");
    }

    #[test]
    fn decimals_and_times_are_read() {
        for (text, expected) in [("bg==", "1.10"), ("ANw=", "2.20"), ("/w==", "-0.01"), ("AA==", "0.00"), ("A+g=", "10.00")] {
            assert_eq!(decimal(&BigInt::from_signed_bytes_be(&unbase64(text)), 2), expected);
        }
    }

    #[test]
    fn it_agrees_with_the_model_of_the_source() {
        use crate::workload::{Mix, ORDERS, Workload};
        let mut workload = Workload::new("shop", 11, Mix { poison: 3, ..Mix::KILL });
        let mut records: Vec<Record> = workload.snapshot(40);
        records.extend(workload.slice(1_500));
        records.retain(|r| r.topic.ends_with(ORDERS));
        for (offset, record) in records.iter_mut().enumerate() {
            (record.partition, record.offset) = (Some(0), offset as i64);
        }
        let (rows, poison) = replica(&records, &["id", "note", "amount", "changed_at", "active", "body"]);
        let live: Vec<String> = workload.live_keys().map(|k| k.to_string()).collect();
        let mut keys: Vec<String> = rows.keys().cloned().collect();
        keys.sort_by_key(|k| k.parse::<i64>().unwrap());
        assert_eq!(keys, live);
        assert_eq!(poison.len() as u64, workload.tally().poison);
        for (key, row) in &rows {
            assert_eq!(row["body"].as_deref(), Some(workload.body(key.parse().unwrap())), "key {key}");
        }
    }
}
