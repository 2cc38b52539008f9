//! The naive fold: what a replica must show, written from SEMANTICS.md A.2 and A.3 and from ARCHITECTURE.md alone.
//!
//! It takes the set of distinct source records, sorts them and walks once. It keeps no state and shares no code and no type with the core;
//! it is as simple as the texts allow, so that it can be read against them. Three columns are enough for every rule about columns.

use std::collections::BTreeMap;

/// A value: NULL or a letter.
pub(crate) type Value = Option<u8>;

/// The columns of a row.
pub(crate) type Values = [Value; 3];

/// What a record says of each column: nothing, or a value.
pub(crate) type Cells = [Option<Value>; 3];

/// Where a record stands: source partition, offset, ordinal in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    pub source: u8,
    pub offset: i64,
    pub ordinal: u32,
}

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Create or update.
    Write(Cells),
    /// Read by a snapshot; a full one has an id.
    Read(Cells, Option<i64>),
    /// Delete.
    Delete,
    /// The delete half of a key change: the key that the row has from now on.
    Leave(u8),
    /// The create half: the key that the row had before, and whether that key's changes are in the same partition of the log.
    Arrive(Cells, u8, bool),
    /// A bare tombstone; its sequence means nothing.
    Bare,
    /// The whole table is emptied; its key means nothing.
    Truncate,
    /// A full snapshot ended.
    Sweep(i64),
    /// A change, or a read (true) of a full snapshot with its id, that the replica cannot take: it is with the dead letters.
    Refused(bool, Option<i64>),
}

/// One record of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub at: At,
    pub key: u8,
    pub seq: u64,
    pub what: What,
}

/// The rules that differ from table to table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Ties by the user's sequencing columns; else by a dialect's own sequence.
    pub user: bool,
    /// A column that nobody authored reads NULL; else its row is absent.
    pub blank: bool,
    /// Columns that end a run when they change.
    pub tracked: [bool; 3],
}

/// A place in the fold: sequence, then what stands there (0 sweep, 1 event, 2 tombstone, 3 truncate).
pub(crate) type Rank = (u64, u8);

/// A row of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub start: Rank,
    pub end: Option<Rank>,
    pub tail: Rank,
    pub values: Values,
}

fn cells(what: What) -> Option<Cells> {
    match what {
        What::Write(cells) | What::Read(cells, _) | What::Arrive(cells, ..) => Some(cells),
        _ => None,
    }
}

fn deletes(what: What) -> bool {
    matches!(what, What::Delete | What::Leave(_))
}

/// Greater wins. Where the texts end (equal offsets of two source partitions, under a dialect's sequence), delete wins, then bytes.
fn tie(record: &Record, rules: Rules) -> (u8, i64, u32, bool, Values) {
    let (delete, read) = (deletes(record.what), matches!(record.what, What::Read(..)));
    let bytes = cells(record.what).unwrap_or_default().map(Option::flatten);
    if rules.user {
        (if delete { 2 } else { u8::from(!read) }, record.at.offset, 0, delete, bytes)
    } else {
        (u8::from(!read), record.at.offset, record.at.ordinal, delete, bytes)
    }
}

/// Ranks at which something other than an event of the key deletes it.
fn cuts(records: &[Record], events: &[&Record], key: u8) -> Vec<Rank> {
    let mut cuts = Vec::new();
    let refused: Vec<&Record> = records.iter().filter(|r| r.key == key && matches!(r.what, What::Refused(..))).collect();
    let spares = |of: &Record, id: i64| matches!(of.what, What::Read(_, Some(by)) | What::Refused(_, Some(by)) if by == id);
    for record in records {
        match record.what {
            What::Truncate => cuts.push((record.seq, 3)),
            // A row of that snapshot spares the key, also one that was refused.
            What::Sweep(id) if events.iter().chain(&refused).any(|e| spares(e, id)) => {}
            What::Sweep(_) => cuts.push((record.seq, 0)),
            What::Bare if record.key == key => {
                let mut line: Vec<&&Record> = events.iter().chain(&refused).filter(|e| e.at.source == record.at.source).collect();
                line.sort_by_key(|e| e.at);
                let mut before: Option<&Record> = None;
                for event in line.iter().filter(|e| e.at < record.at) {
                    let read = matches!(event.what, What::Read(..) | What::Refused(true, _));
                    let passed_over = before.is_some_and(|b| read && event.seq <= b.seq);
                    if !passed_over {
                        before = Some(event);
                    }
                }
                let Some(before) = before.filter(|b| !deletes(b.what)) else { continue };
                let void = line.iter().any(|e| e.at > record.at && e.seq == before.seq && !matches!(e.what, What::Refused(..)));
                if !void {
                    cuts.push((before.seq, 2));
                }
            }
            _ => {}
        }
    }
    cuts
}

/// All rows that a key ever had.
pub(crate) fn history(records: &[Record], key: u8, rules: Rules) -> Vec<Row> {
    walk(records, key, rules, None).0
}

/// The rows of a key, and what each column is at last: below a place, where one is given. The row that a key change takes along is what its
/// former key has just below the place of the change; nothing that stood under the new key is part of it.
fn walk(records: &[Record], key: u8, rules: Rules, below: Option<u64>) -> (Vec<Row>, Cells) {
    let mut events: Vec<&Record> = records.iter().filter(|r| r.key == key && (cells(r.what).is_some() || deletes(r.what))).collect();
    let cuts = cuts(records, &events, key);
    events.sort_by_key(|e| (e.seq, tie(e, rules)));

    // Collapse ties: the winner says what happened, and each column comes from the first of the tie that has it. A delete has NULL for all.
    let nothing: Cells = if rules.blank { [Some(None); 3] } else { [None; 3] };
    let mut line: BTreeMap<Rank, Option<Cells>> = BTreeMap::new();
    // Where key changes brought a row here: from which key, and whether that key's changes are known here.
    let mut brought: BTreeMap<u64, (u8, bool)> = BTreeMap::new();
    for event in &events {
        if let What::Arrive(cells, from, near) = event.what
            && cells.iter().any(Option::is_none)
        {
            let known = brought.entry(event.seq).or_insert((from, near));
            *known = (*known).max((from, near));
        }
    }
    for event in events {
        let of_tie = line.entry((event.seq, 1)).or_insert(Some([None; 3]));
        // A row that was brought here is not blanked by a delete of what stood here at that place.
        let losers = of_tie.unwrap_or(if brought.contains_key(&event.seq) { [None; 3] } else { [Some(None); 3] });
        *of_tie = cells(event.what).map(|own| std::array::from_fn(|c| own[c].or(losers[c])));
    }
    for cut in cuts {
        if cut.1 == 3 {
            let _ = line.remove(&(cut.0, 1));
        }
        let _ = line.insert(cut, None);
    }

    if let Some(below) = below {
        line.retain(|rank, _| *rank < (below, 1));
        // What a full snapshot read at that very place would be the row, but the delete there has outranked it.
        if records.iter().any(|r| r.key == key && r.seq == below && matches!(r.what, What::Read(_, Some(_)))) {
            return (Vec::new(), nothing);
        }
    }
    let mut rows: Vec<Row> = Vec::new();
    let mut previous = nothing;
    let mut open = false;
    for (rank, cells) in line {
        let Some(cells) = cells else {
            if std::mem::take(&mut open) {
                rows.last_mut().expect("a run is open").end = Some(rank);
            }
            previous = nothing;
            continue;
        };
        if let Some((from, near)) = brought.get(&rank.0) {
            previous = if *near { walk(records, *from, rules, Some(rank.0)).1 } else { nothing };
        }
        let resolved: Cells = std::array::from_fn(|c| cells[c].or(previous[c]));
        previous = resolved;
        let complete = resolved.iter().all(Option::is_some);
        let values = resolved.map(Option::flatten);
        if open {
            let run = rows.last_mut().expect("a run is open");
            if complete && (0..3).all(|c| !rules.tracked[c] || run.values[c] == values[c]) {
                (run.tail, run.values) = (rank, values);
                continue;
            }
            run.end = Some(rank);
        }
        open = complete;
        if complete {
            rows.push(Row { start: rank, end: None, tail: rank, values });
        }
    }
    (rows, previous)
}

/// The row that a key has now.
pub(crate) fn latest(records: &[Record], key: u8, rules: Rules) -> Option<Values> {
    history(records, key, rules).last().filter(|row| row.end.is_none()).map(|row| row.values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACK_ALL: Rules = Rules { user: true, blank: true, tracked: [true; 3] };

    fn write(offset: i64, seq: u64, a: u8) -> Record {
        Record { at: At { source: 0, offset, ordinal: 0 }, key: 1, seq, what: What::Write([Some(Some(a)), Some(None), Some(None)]) }
    }

    #[test]
    fn the_first_vector_of_the_document() {
        let mut records = vec![write(0, 5, b'A'), write(1, 10, b'A'), write(2, 15, b'A'), write(3, 20, b'C')];
        let show = |records: &[Record]| -> Vec<(u64, Option<u64>, u64, u8)> {
            history(records, 1, TRACK_ALL).iter().map(|r| (r.start.0, r.end.map(|e| e.0), r.tail.0, r.values[0].expect("authored"))).collect()
        };
        assert_eq!(show(&records), [(5, Some(20), 15, b'A'), (20, None, 20, b'C')]);
        records.push(write(4, 12, b'B'));
        assert_eq!(show(&records), [(5, Some(12), 10, b'A'), (12, Some(15), 12, b'B'), (15, Some(20), 15, b'A'), (20, None, 20, b'C')]);
    }

    #[test]
    fn a_tombstone_ranks_behind_the_record_before_it_until_that_is_sent_again() {
        let bare = Record { at: At { source: 0, offset: 1, ordinal: 0 }, key: 1, seq: 0, what: What::Bare };
        let mut records = vec![write(0, 5, b'A'), bare];
        assert_eq!(latest(&records, 1, TRACK_ALL), None);
        records.push(write(2, 5, b'A'));
        assert_eq!(latest(&records, 1, TRACK_ALL), Some([Some(b'A'), None, None]));
    }
}
