//! The verdict: what replicas showed, during the run and at its end, against the reference fold.
//!
//! The change log is read for its provenance alone: which source record stands at which log offset. So the content of any prefix of the log
//! is a set of source records, and the reference says what a replica must show there. Every sample is held against that:
//! - Postgres and DuckDB show cursor and rows of one moment, so their rows must equal the fold of the log below `K`, key by key;
//! - ClickHouse's cursor is read before the rows: each key must show a state at or after `K`, and never an earlier one than in a sample before;
//! - what a group has committed in Kafka, read before `K`, must not be above it;
//! - what the normaliser has committed of the source must be in the log, or among the dead letters.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::{Hash, Hasher};

use landfall_schemas::Provenance;
use landfall_schemas::provenance::HEADER;

use crate::harness::kafka::Record;
use crate::harness::stores::{Column, Row, Store, View};
use crate::reference::{self, Fact, Place};

/// How a promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Broken {
    /// A row, or a change of it, is missing.
    Lost,
    /// A key has more than one row.
    Duplicated,
    /// A row that was deleted, or a value that was overwritten, is back.
    Resurrected,
    /// A value that was never written.
    Invented,
    /// A position says more than the replica shows.
    Watermark,
    /// Read, but neither in the log nor among the dead letters.
    Ledger,
    /// A dead letter that no record deserves, or one that is missing.
    DeadLetter,
    /// The process ended, stopped or failed where it must not.
    Process,
    /// Not everything has landed in the time that it may take; what is missing then says no more than that.
    Behind,
}

/// One broken promise, with what is needed to look for the cause.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub broken: Broken,
    /// Where and how.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.broken, self.what)
    }
}

/// Adds a violation.
pub fn broken(to: &mut Vec<Violation>, broken: Broken, what: impl Into<String>) {
    to.push(Violation { broken, what: what.into() });
}

/// What a replica showed at one moment of a run. Rows are kept as hashes; [`Seen`] remembers what they were.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Millis since the run began.
    pub at: u128,
    /// Which store.
    pub store: &'static str,
    /// Whether cursors and rows are of one moment.
    pub exact: bool,
    /// What the store's group had committed before.
    pub committed: BTreeMap<i32, i64>,
    /// `K`.
    pub cursors: BTreeMap<i32, i64>,
    /// Key and hash of each row.
    pub rows: Vec<(String, u64)>,
}

/// What the normaliser had committed, and how far the log reached afterwards.
#[derive(Clone, Debug)]
pub struct SourceSample {
    /// Committed offset of each source partition, read first.
    pub committed: BTreeMap<i32, i64>,
    /// End of each log partition, read afterwards.
    pub log: BTreeMap<i32, i64>,
}

/// Rows by hash.
#[derive(Debug, Default)]
pub struct Seen {
    rows: HashMap<u64, Row>,
}

impl Seen {
    /// The hash of a row.
    pub fn hash(&mut self, row: &[Option<String>]) -> u64 {
        let mut hasher = DefaultHasher::new();
        row.hash(&mut hasher);
        let hash = hasher.finish();
        let _ = self.rows.entry(hash).or_insert_with(|| row.to_vec());
        hash
    }

    /// A row as text, bounded.
    pub fn show(&self, hash: Option<u64>) -> String {
        match hash.and_then(|h| self.rows.get(&h)) {
            None => "no row".to_owned(),
            Some(row) => show(row),
        }
    }

    /// Makes a sample of a view; the key is the first column.
    pub fn sample(&mut self, at: u128, store: &Store, committed: BTreeMap<i32, i64>, view: &View) -> Sample {
        let rows = view.rows.iter().map(|row| (row[0].clone().unwrap_or_default(), self.hash(row))).collect();
        Sample { at, store: store.id(), exact: store.is_transactional(), committed, cursors: view.cursors.clone(), rows }
    }
}

fn show(row: &[Option<String>]) -> String {
    let cell = |c: &Option<String>| c.as_deref().map_or_else(|| "NULL".to_owned(), |t| t.chars().take(40).collect());
    row.iter().map(cell).collect::<Vec<String>>().join(" | ")
}

/// States of one key along its log partition.
#[derive(Debug, Default)]
struct Line {
    partition: i32,
    /// After which log offset the key shows what; in ascending order.
    states: Vec<(i64, Option<u64>)>,
}

impl Line {
    /// How many of its changes are below a log offset.
    fn below(&self, next: i64) -> usize {
        self.states.partition_point(|(offset, _)| *offset < next)
    }

    /// What it shows after so many changes.
    fn after(&self, changes: usize) -> Option<u64> {
        changes.checked_sub(1).and_then(|i| self.states[i].1)
    }
}

/// Everything that a table's source and log say about what its replicas must show.
#[derive(Debug)]
pub struct Truth {
    table: String,
    lines: BTreeMap<String, Line>,
    expected: BTreeMap<String, u64>,
    poison: BTreeSet<Place>,
    /// Log partition and offset at which each source record first stands.
    logged: BTreeMap<Place, (i32, i64)>,
    facts: BTreeMap<Place, Fact>,
    repeats: u64,
    /// What was wrong with the log itself.
    violations: Vec<Violation>,
}

impl Truth {
    /// Reads the truth out of the records of the source topic and of the log.
    pub fn new(table: &str, columns: &[Column], source: &[Record], log: &[Record], seen: &mut Seen) -> Self {
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        let facts: BTreeMap<Place, Fact> = source.iter().map(|r| ((r.partition.unwrap_or(0), r.offset), reference::read(r))).collect();
        let mut truth = Self {
            table: table.to_owned(),
            lines: BTreeMap::new(),
            expected: BTreeMap::new(),
            poison: facts.iter().filter(|(_, f)| **f == Fact::Poison).map(|(p, _)| *p).collect(),
            logged: BTreeMap::new(),
            facts: BTreeMap::new(),
            repeats: 0,
            violations: Vec::new(),
        };
        let mut row = |row: &reference::Row| {
            let cells: Row = names.iter().map(|n| row.get(*n).cloned().flatten()).collect();
            seen.hash(&cells)
        };
        let (rows, _) = reference::replica(source, &names);
        truth.expected = rows.iter().map(|(key, r)| (key.clone(), row(r))).collect();
        let mut above: BTreeMap<(i32, i32), i64> = BTreeMap::new();
        // Facts per partition of the log: a key change finds what was not sent only there. Keys that rest on another one change with it.
        let mut of_log: HashMap<i32, reference::Facts<'_>> = HashMap::new();
        let mut heirs: HashMap<&str, BTreeSet<&str>> = HashMap::new();
        for record in log {
            let (partition, offset) = (record.partition.unwrap_or(0), record.offset);
            let header = record.headers.iter().find(|(name, _)| name == HEADER).map(|(_, value)| value.as_slice());
            let Some(provenance) = header.and_then(|bytes| Provenance::decode(bytes).ok()) else {
                broken(&mut truth.violations, Broken::Ledger, format!("{table}: log record {partition}/{offset} has no provenance"));
                continue;
            };
            let place = (provenance.source.partition, provenance.place.offset);
            let highest = above.entry((partition, place.0)).or_insert(-1);
            if place.1 <= *highest {
                truth.repeats += 1;
                continue;
            }
            *highest = place.1;
            let _ = truth.logged.insert(place, (partition, offset));
            let key = match facts.get(&place) {
                Some(Fact::Change { key, .. } | Fact::Tombstone { key }) => key,
                _ => {
                    broken(
                        &mut truth.violations,
                        Broken::Invented,
                        format!("{table}: log record {partition}/{offset} comes from {place:?}, which is no change"),
                    );
                    continue;
                }
            };
            let known = of_log.entry(partition).or_default();
            known.entry(key).or_default().push((place, &facts[&place]));
            if let Fact::Change { former: Some(former), .. } = &facts[&place] {
                let _ = heirs.entry(former).or_default().insert(key);
            }
            let mut touched: Vec<&str> = vec![key];
            let mut next = 0;
            while let Some(at) = touched.get(next) {
                next += 1;
                let more: Vec<&str> = heirs.get(at).into_iter().flatten().copied().filter(|heir| known.contains_key(heir)).collect();
                more.into_iter().for_each(|heir| {
                    if !touched.contains(&heir) {
                        touched.push(heir)
                    }
                });
            }
            for at in touched {
                let shown = reference::fold(at, known, &names).map(|r| row(&r));
                let line = truth.lines.entry(at.to_owned()).or_insert_with(|| Line { partition, states: Vec::new() });
                if line.partition != partition {
                    let partitions = (line.partition, partition);
                    broken(&mut truth.violations, Broken::Ledger, format!("{table}: key {at} is in log partitions {partitions:?}"));
                }
                line.states.push((offset, shown));
            }
        }
        truth.facts = facts;
        truth
    }

    /// Log records that repeat an earlier one.
    pub const fn repeats(&self) -> u64 {
        self.repeats
    }

    /// Rows that a replica must show in the end.
    pub fn rows(&self) -> usize {
        self.expected.len()
    }

    /// Source records that must be dead letters.
    pub fn poison(&self) -> usize {
        self.poison.len()
    }

    /// The ledger: every record of the source is in the log, a dead letter, or a tombstone that says nothing; no other is a dead letter.
    pub fn check_ledger(&self, letters: &BTreeSet<Place>, out: &mut Vec<Violation>) {
        let table = &self.table;
        out.extend(self.violations.iter().cloned());
        for (place, fact) in &self.facts {
            let in_log = self.logged.contains_key(place);
            let in_letters = letters.contains(place);
            match fact {
                Fact::Poison if !in_letters => broken(out, Broken::DeadLetter, format!("{table}: poison record {place:?} is no dead letter")),
                Fact::Change { key, at, .. } if !in_log => {
                    broken(out, Broken::Lost, format!("{table}: change of key {key} at {at:?}, record {place:?}, is not in the log"))
                }
                Fact::Tombstone { key } if !in_log && self.speaks(*place, key) => {
                    broken(out, Broken::Lost, format!("{table}: tombstone of key {key}, record {place:?}, is not in the log"));
                }
                Fact::Change { .. } | Fact::Tombstone { .. } if in_letters => {
                    broken(out, Broken::DeadLetter, format!("{table}: record {place:?} is a dead letter without need"));
                }
                _ => {}
            }
        }
        for place in letters.difference(&self.facts.keys().copied().collect()) {
            broken(out, Broken::DeadLetter, format!("{table}: a dead letter names record {place:?}, which does not exist"));
        }
    }

    /// Whether a tombstone follows a record that is not a delete.
    fn speaks(&self, place: Place, key: &str) -> bool {
        let before = self.facts.range((place.0, i64::MIN)..place).rev().find_map(|(_, fact)| match fact {
            Fact::Change { key: k, row, .. } if k == key => Some(row.is_some()),
            _ => None,
        });
        before == Some(true)
    }

    /// What a replica shows in the end, against the fold of the whole source.
    pub fn check_final(&self, store: &str, view: &View, ends: &BTreeMap<i32, i64>, seen: &mut Seen, out: &mut Vec<Violation>) {
        let place = format!("{} in {store}", self.table);
        let mut found: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for row in &view.rows {
            found.entry(row[0].as_deref().unwrap_or_default()).or_default().push(seen.hash(row));
        }
        for (key, rows) in &found {
            if rows.len() > 1 {
                broken(out, Broken::Duplicated, format!("{place}: key {key} has {} rows", rows.len()));
            }
            let expected = self.expected.get(*key);
            if let Some(row) = rows.iter().find(|r| Some(**r) != expected.copied()) {
                let ever = self.lines.get(*key).is_some_and(|l| l.states.iter().any(|(_, s)| *s == Some(*row)));
                let how = match (ever, expected) {
                    (true, None) => Broken::Resurrected,
                    (true, Some(_)) => Broken::Lost,
                    (false, _) => Broken::Invented,
                };
                broken(out, how, format!("{place}: key {key} shows {} instead of {}", seen.show(Some(*row)), seen.show(expected.copied())));
            }
        }
        for (key, row) in &self.expected {
            if !found.contains_key(key.as_str()) {
                broken(out, Broken::Lost, format!("{place}: key {key} is missing: {}", seen.show(Some(*row))));
            }
        }
        for (partition, end) in ends.iter().filter(|(_, end)| **end > 0) {
            if view.cursors.get(partition) != Some(end) {
                broken(
                    out,
                    Broken::Watermark,
                    format!("{place}: K of partition {partition} is {:?}, its log ends at {end}", view.cursors.get(partition)),
                );
            }
        }
    }

    /// Every sample of one store, in the order in which they were taken.
    pub fn check_samples(&self, samples: &[Sample], seen: &Seen, out: &mut Vec<Violation>) {
        let mut least: BTreeMap<&str, usize> = BTreeMap::new();
        for sample in samples {
            let place = format!("{} in {}, sample at {} ms", self.table, sample.store, sample.at);
            for (partition, committed) in &sample.committed {
                let k = sample.cursors.get(partition).copied().unwrap_or(0);
                if *committed > k {
                    broken(out, Broken::Watermark, format!("{place}: the group has committed {committed} of partition {partition}, K is {k}"));
                }
            }
            let mut found: BTreeMap<&str, u64> = BTreeMap::new();
            for (key, hash) in &sample.rows {
                if found.insert(key, *hash).is_some() {
                    broken(out, Broken::Duplicated, format!("{place}: key {key} has more than one row"));
                }
                if !self.lines.contains_key(key) {
                    broken(out, Broken::Invented, format!("{place}: key {key} was never written"));
                }
            }
            for (key, line) in &self.lines {
                let k = sample.cursors.get(&line.partition).copied().unwrap_or(0);
                let (at_k, shows) = (line.below(k), found.get(key.as_str()).copied());
                if sample.exact {
                    if line.after(at_k) != shows {
                        let how = self.how(line, at_k, shows);
                        let expected = seen.show(line.after(at_k));
                        broken(
                            out,
                            how,
                            format!(
                                "{place}: key {key} shows {} but the log below K {k} of partition {} gives {expected}",
                                seen.show(shows),
                                line.partition
                            ),
                        );
                    }
                    continue;
                }
                let from = at_k.max(least.get(key.as_str()).copied().unwrap_or(0));
                match (from..=line.states.len()).find(|n| line.after(*n) == shows) {
                    Some(n) => drop(least.insert(key, n)),
                    None => {
                        let how = self.how(line, from, shows);
                        broken(
                            out,
                            how,
                            format!(
                                "{place}: key {key} shows {}, which it does not from K {k} of partition {} on, {}",
                                seen.show(shows),
                                line.partition,
                                seen.show(line.after(from))
                            ),
                        );
                    }
                }
            }
        }
    }

    /// What it means that a key shows another state than after so many changes.
    fn how(&self, line: &Line, changes: usize, shows: Option<u64>) -> Broken {
        let earlier = (0..changes).any(|n| line.after(n) == shows);
        let later = (changes..=line.states.len()).any(|n| line.after(n) == shows);
        match (shows, earlier, later) {
            (None, ..) => Broken::Lost,
            (Some(_), true, _) => Broken::Resurrected,
            (Some(_), false, true) => Broken::Watermark,
            (Some(_), false, false) => Broken::Invented,
        }
    }

    /// What the normaliser had committed was in the log, or needed not to be.
    pub fn check_source(&self, samples: &[SourceSample], out: &mut Vec<Violation>) {
        for (place, fact) in &self.facts {
            let needed = match fact {
                Fact::Change { .. } => true,
                Fact::Tombstone { key } => self.speaks(*place, key),
                Fact::Poison => false,
            };
            if !needed {
                continue;
            }
            for sample in samples.iter().filter(|s| s.committed.get(&place.0).is_some_and(|g| place.1 < *g)) {
                let held = self.logged.get(place).is_some_and(|(partition, offset)| sample.log.get(partition).is_some_and(|end| offset < end));
                if !held {
                    broken(
                        out,
                        Broken::Watermark,
                        format!("{}: the normaliser had committed past record {place:?}, which was not in the log", self.table),
                    );
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::stores::{Kind, columns};

    fn source() -> Vec<Record> {
        let schema = |name: &str, ty: &str| format!(r#"{{"type":"{ty}","optional":true,"field":"{name}"}}"#);
        let row = format!(r#"{{"field":"after","fields":[{},{}]}}"#, schema("id", "int32"), schema("v", "string"));
        let event = |offset: i64, id: i64, lsn: u64, op: &str, v: &str| {
            let after = if op == "d" { "null".to_owned() } else { format!(r#"{{"id":{id},"v":"{v}"}}"#) };
            let source = format!(r#"{{"sequence":"[\"{lsn}\",\"{lsn}\"]","snapshot":"false"}}"#);
            Record {
                partition: Some(0),
                offset,
                key: Some(format!(r#"{{"payload":{{"id":{id}}}}}"#).into_bytes()),
                value: Some(format!(r#"{{"schema":{{"fields":[{row}]}},"payload":{{"op":"{op}","after":{after},"source":{source}}}}}"#).into_bytes()),
                ..Record::default()
            }
        };
        let poison = Record { partition: Some(0), offset: 4, key: Some(b"x".to_vec()), value: Some(b"y".to_vec()), ..Record::default() };
        vec![event(0, 1, 10, "c", "a"), event(1, 1, 20, "u", "b"), event(2, 2, 30, "c", "c"), event(3, 1, 40, "d", ""), poison]
    }

    fn log(offsets: &[i64]) -> Vec<Record> {
        let one = |(at, offset): (usize, &i64)| {
            let mut value = Vec::new();
            Provenance {
                dialect: landfall_schemas::provenance::Dialect::Debezium,
                topic: "t",
                source: landfall_schemas::provenance::SourcePartition { incarnation: [0; 16], partition: 0 },
                place: landfall_schemas::provenance::Place { offset: *offset, ordinal: 0 },
                replayed: None,
            }
            .encode(&mut value);
            Record { partition: Some(0), offset: at as i64, headers: vec![(HEADER.to_owned(), value)], ..Record::default() }
        };
        offsets.iter().enumerate().map(one).collect()
    }

    fn view(k: i64, rows: &[(&str, &str)]) -> View {
        let row = |(id, v): &(&str, &str)| vec![Some((*id).to_owned()), Some((*v).to_owned())];
        View { cursors: [(0, k)].into(), rows: rows.iter().map(row).collect() }
    }

    fn kinds(violations: &[Violation]) -> Vec<Broken> {
        violations.iter().map(|v| v.broken).collect()
    }

    #[test]
    fn every_broken_promise_is_named() {
        let mut seen = Seen::default();
        let truth = Truth::new("t", &columns(&[("id", Kind::Int), ("v", Kind::Text)]), &source(), &log(&[0, 1, 0, 1, 2, 3]), &mut seen);
        assert_eq!((truth.rows(), truth.poison(), truth.repeats()), (1, 1, 2));
        let ends = [(0, 6)].into();
        let mut last = |k, rows: &[(&str, &str)]| {
            let mut out = Vec::new();
            truth.check_final("s", &view(k, rows), &ends, &mut seen, &mut out);
            kinds(&out)
        };
        assert_eq!(last(6, &[("2", "c")]), []);
        assert_eq!(last(5, &[("2", "c")]), [Broken::Watermark]);
        assert_eq!(last(6, &[]), [Broken::Lost]);
        assert_eq!(last(6, &[("2", "c"), ("1", "b")]), [Broken::Resurrected]);
        assert_eq!(last(6, &[("2", "c"), ("2", "c")]), [Broken::Duplicated]);
        assert_eq!(last(6, &[("2", "z")]), [Broken::Invented]);

        let mut samples = |store: &Store, views: &[View]| {
            let samples: Vec<Sample> = views.iter().map(|v| seen.sample(0, store, BTreeMap::new(), v)).collect();
            let mut out = Vec::new();
            truth.check_samples(&samples, &seen, &mut out);
            kinds(&out)
        };
        let exact = Store::Postgres { server: String::new(), database: String::new(), schema: String::new() };
        assert_eq!(
            samples(
                &exact,
                &[view(0, &[]), view(1, &[("1", "a")]), view(2, &[("1", "b")]), view(4, &[("1", "b")]), view(5, &[("1", "b"), ("2", "c")])]
            ),
            []
        );
        assert_eq!(samples(&exact, &[view(2, &[("1", "a")])]), [Broken::Resurrected]);
        assert_eq!(samples(&exact, &[view(1, &[("1", "b")])]), [Broken::Watermark]);
        assert_eq!(samples(&exact, &[view(5, &[("1", "b")])]), [Broken::Lost]);
        let loose = Store::ClickHouse { database: String::new() };
        assert_eq!(samples(&loose, &[view(0, &[("1", "b")]), view(1, &[("1", "b"), ("2", "c")]), view(6, &[("2", "c")])]), []);
        assert_eq!(samples(&loose, &[view(0, &[("1", "b")]), view(0, &[("1", "a")])]), [Broken::Resurrected]);
        assert_eq!(samples(&loose, &[view(5, &[("1", "b")])]), [Broken::Lost]);

        let ledger = |truth: &Truth, letters: &[Place]| {
            let mut out = Vec::new();
            truth.check_ledger(&letters.iter().copied().collect(), &mut out);
            kinds(&out)
        };
        assert_eq!(ledger(&truth, &[(0, 4)]), []);
        assert_eq!(ledger(&truth, &[]), [Broken::DeadLetter]);
        assert_eq!(ledger(&truth, &[(0, 4), (0, 2)]), [Broken::DeadLetter]);
        let short = Truth::new("t", &columns(&[("id", Kind::Int), ("v", Kind::Text)]), &source(), &log(&[0, 1, 3]), &mut seen);
        assert_eq!(ledger(&short, &[(0, 4)]), [Broken::Lost]);

        let mut out = Vec::new();
        truth.check_source(&[SourceSample { committed: [(0, 3)].into(), log: [(0, 5)].into() }], &mut out);
        assert_eq!(kinds(&out), []);
        truth.check_source(&[SourceSample { committed: [(0, 4)].into(), log: [(0, 5)].into() }], &mut out);
        assert_eq!(kinds(&out), [Broken::Watermark]);
    }
}
