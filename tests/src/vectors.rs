//! The worked vectors of SEMANTICS.md A.7, through the core's index and fold, and for one row per key through a whole partition.
//!
//! Expected rows are the table's, written by hand. Every vector runs in every order of arrival of what has arrived at each of its stages, and
//! for every order in every split into batches; between batches an index goes through its stored form. Vectors use user sequencing columns.

use landfall::land::entry;
use landfall::land::fold::{self, Config, Gap, Marks, Scratch, Shape, Unresolved};
use landfall::land::index::{Arena, Arrival, Event, Index, Kind, RowSpan, Ties};
use landfall_schemas::ColumnSet;
use landfall_schemas::provenance::Place;

use crate::oracle::{At, Cells, Record, Values, What};
use crate::{lander, small};

/// Start, end (none while open), tail, values of a row in the table of vectors.
type Row = (u64, Option<u64>, u64, &'static str);

/// What arrives in one batch of the table, and what it shows afterwards, per key.
struct Stage {
    arrives: Vec<Record>,
    /// SCD2 rows of each key.
    history: Vec<(u8, Vec<Row>)>,
    /// SCD1 rows of each key.
    latest: Vec<(u8, Option<&'static str>)>,
}

fn record(key: u8, seq: u64, what: What) -> Record {
    Record { at: At { source: 0, offset: 0, ordinal: 0 }, key, seq, what }
}

/// `"A"` is column a, `"Ax"` a and b; `"z-"` leaves b to its predecessor. Other columns are NULL.
fn cells(text: &str) -> Cells {
    let mut cells = [Some(None); 3];
    for (cell, letter) in cells.iter_mut().zip(text.bytes()) {
        *cell = (letter != b'-').then_some(Some(letter));
    }
    cells
}

fn up(seq: u64, text: &str) -> Record {
    record(1, seq, What::Write(cells(text)))
}

fn del(seq: u64) -> Record {
    record(1, seq, What::Delete)
}

fn stage(arrives: Vec<Record>, history: Vec<Row>, latest: Option<&'static str>) -> Stage {
    Stage { arrives, history: vec![(1, history)], latest: vec![(1, latest)] }
}

fn values(text: &str) -> Values {
    // `.` stands for NULL in expected rows.
    cells(&text.replace('.', "-")).map(Option::flatten)
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(n - 1) {
        for at in 0..n {
            let mut longer = shorter.clone();
            longer.insert(at, n - 1);
            all.push(longer);
        }
    }
    all
}

/// Runs a vector: `tracked` are the names of the tracked columns, `None` for all.
fn run(tracked: Option<&str>, stages: &[Stage]) {
    let tracked: Option<ColumnSet> =
        tracked.map(|names| names.bytes().map(|name| small::SCHEMA.position(&char::from(name).to_string()).expect("a column")).collect());
    let mut arrived: Vec<Record> = Vec::new();
    for stage in stages {
        for record in &stage.arrives {
            let offset = arrived.len() as i64;
            // A repeat has the place of its original; everything else a source partition of its own, so that any order may arrive.
            let original = arrived.iter().find(|r| r.seq == record.seq && r.what == record.what && r.key == record.key);
            let at = original.map_or(At { source: offset as u8, offset, ordinal: 0 }, |r| r.at);
            arrived.push(Record { at, ..*record });
        }
        for order in permutations(arrived.len()) {
            let order: Vec<Record> = order.iter().map(|i| arrived[*i]).collect();
            for split in 0..1_u32 << (order.len() - 1) {
                let shape = Shape::History { tracked: tracked.clone() };
                for (key, expected) in &stage.history {
                    let got = fold_index(&order, split, *key, shape.clone());
                    let expected: Vec<_> = expected.iter().map(|(s, e, t, v)| (*s, *e, *t, values(v))).collect();
                    assert_eq!(got, expected, "history of key {key} after {order:?}, split {split:b}");
                }
                for (key, expected) in &stage.latest {
                    let got: Vec<Values> = fold_index(&order, split, *key, Shape::Upsert).into_iter().map(|row| row.3).collect();
                    assert_eq!(got, expected.map(values).into_iter().collect::<Vec<_>>(), "row of key {key} after {order:?}, split {split:b}");
                }
                let mut expected: Vec<(u8, Values)> = stage.latest.iter().filter_map(|(key, row)| Some((*key, values((*row)?)))).collect();
                expected.sort_unstable();
                assert_eq!(land(&order, split), expected, "replica after {order:?}, split {split:b}");
            }
        }
    }
}

/// The rows of a key by index and fold; bit `i` of `split` ends a batch behind the record `i`.
fn fold_index(order: &[Record], split: u32, key: u8, shape: Shape) -> Vec<(u64, Option<u64>, u64, Values)> {
    let (mut index, mut arena, mut marks) = (Index::default(), Arena::default(), Marks::default());
    let pruned = shape == Shape::Upsert;
    for (i, record) in order.iter().enumerate() {
        let sequence = small::sequence(record.seq);
        let event = |kind, row, unauthored| Event { kind, place: Place { offset: record.at.offset, ordinal: 0 }, row, unauthored };
        let event = match record.what {
            What::Truncate => {
                if !marks.truncates.contains(&sequence) {
                    marks.truncates.push(sequence);
                }
                continue;
            }
            _ if record.key != key => continue,
            What::Write(cells) => {
                let row = RowSpan { span: arena.add(&small::row(key, &cells, small::WHOLE)), columns: 4 };
                event(Kind::Upsert, row, small::unauthored(&cells, small::WHOLE))
            }
            _ => event(Kind::Delete, RowSpan::default(), ColumnSet::new()),
        };
        index.insert(Arrival { source: record.at.source.into(), sequence, snapshot: None, former: None, event }, Ties::User, &arena);
        if pruned {
            index.prune();
        }
        if split >> i & 1 == 1 {
            let mut stored = Vec::new();
            entry::encode(&index, &arena, &mut stored);
            arena = Arena::default();
            index = entry::decode(&stored, &mut arena).expect("what was encoded");
        }
    }
    let config = Config { shape, ties: Ties::User, unresolved: Unresolved::Null };
    let (mut scratch, mut runs) = (Scratch::default(), Vec::new());
    let gap = fold::fold(&index, &marks, &config, small::SCHEMA.columns(), &mut arena, &mut scratch, &mut runs).expect("rows are whole");
    assert_ne!(gap, Gap::Withheld);
    let row = |run: &fold::Run| small::read_row(arena.get(run.row.span)).1;
    runs.iter().map(|r| (small::rank(&r.start).0, r.end.as_ref().map(|e| small::rank(e).0), small::rank(&r.tail).0, row(r))).collect()
}

/// The rows of a replica behind a partition; bit `i` of `split` ends a batch behind the record `i`.
fn land(order: &[Record], split: u32) -> Vec<(u8, Values)> {
    let config = Config { shape: Shape::Upsert, ties: Ties::User, unresolved: Unresolved::Null };
    lander::land(config, order, |i| split >> i & 1 == 1).rows
}

#[test]
fn v1_late_update_inside_a_run() {
    let first = vec![up(5, "A"), up(10, "A"), up(15, "A"), up(20, "C")];
    run(
        Some("a"),
        &[
            stage(first, vec![(5, Some(20), 15, "A"), (20, None, 20, "C")], Some("C")),
            stage(vec![up(12, "B")], vec![(5, Some(12), 10, "A"), (12, Some(15), 12, "B"), (15, Some(20), 15, "A"), (20, None, 20, "C")], Some("C")),
        ],
    );
}

#[test]
fn v2_early_delete() {
    run(
        Some("a"),
        &[
            stage(vec![del(10)], vec![], None),
            stage(vec![up(5, "A")], vec![(5, Some(10), 5, "A")], None),
            stage(vec![up(12, "A")], vec![(5, Some(10), 5, "A"), (12, None, 12, "A")], Some("A")),
        ],
    );
}

#[test]
fn v3_late_delete() {
    run(Some("a"), &[stage(vec![up(5, "A"), up(20, "B"), del(12)], vec![(5, Some(12), 5, "A"), (20, None, 20, "B")], Some("B"))]);
}

#[test]
fn v4_replay() {
    let rows = || vec![(5, Some(10), 5, "A")];
    run(Some("a"), &[stage(vec![up(5, "A"), del(10)], rows(), None), stage(vec![up(5, "A"), del(10)], rows(), None)]);
}

#[test]
fn v5_untracked_column() {
    let events = vec![up(5, "Ax"), up(10, "Ay"), up(15, "By")];
    run(Some("a"), &[stage(events, vec![(5, Some(15), 10, "Ay"), (15, None, 15, "By")], Some("By"))]);
}

#[test]
fn v6_bisected_closed_run() {
    run(
        Some("a"),
        &[
            stage(vec![up(10, "A"), del(20)], vec![(10, Some(20), 10, "A")], None),
            stage(vec![up(15, "B")], vec![(10, Some(15), 10, "A"), (15, Some(20), 15, "B")], None),
        ],
    );
}

#[test]
fn v7_surviving_boundary() {
    run(
        Some("a"),
        &[
            stage(vec![up(10, "A"), del(20), del(15)], vec![(10, Some(15), 10, "A")], None),
            stage(vec![up(17, "C")], vec![(10, Some(15), 10, "A"), (17, Some(20), 17, "C")], None),
        ],
    );
}

#[test]
fn v8_two_anchors() {
    let events = vec![up(10, "a"), up(11, "a"), del(12), up(20, "b")];
    run(Some("a"), &[stage(events, vec![(10, Some(12), 11, "a"), (20, None, 20, "b")], Some("b"))]);
}

#[test]
fn v9_tie_of_delete_and_update() {
    run(Some("a"), &[stage(vec![up(5, "A"), del(10), up(10, "A")], vec![(5, Some(10), 5, "A")], None)]);
}

#[test]
fn v10_tie_of_updates() {
    run(
        Some("a"),
        &[
            stage(vec![up(5, "A"), up(10, "B"), up(15, "A")], vec![(5, Some(10), 5, "A"), (10, Some(15), 10, "B"), (15, None, 15, "A")], Some("A")),
            stage(vec![up(10, "A")], vec![(5, None, 15, "A")], Some("A")),
        ],
    );
}

#[test]
fn v11_unauthored_column() {
    run(
        Some("ab"),
        &[
            stage(
                vec![up(5, "x1"), up(15, "z-"), up(10, "y2")],
                vec![(5, Some(10), 5, "x1"), (10, Some(15), 10, "y2"), (15, None, 15, "z2")],
                Some("z2"),
            ),
            stage(vec![del(12)], vec![(5, Some(10), 5, "x1"), (10, Some(12), 10, "y2"), (15, None, 15, "z.")], Some("z.")),
        ],
    );
}

#[test]
fn v12_truncate() {
    let arrives = vec![
        record(1, 5, What::Write(cells("A"))),
        record(2, 6, What::Write(cells("B"))),
        record(0, 8, What::Truncate),
        record(2, 7, What::Write(cells("C"))),
        record(1, 9, What::Write(cells("D"))),
    ];
    let one = vec![(5, Some(8), 5, "A"), (9, None, 9, "D")];
    let two = vec![(6, Some(7), 6, "B"), (7, Some(8), 7, "C")];
    run(Some("a"), &[Stage { arrives, history: vec![(1, one), (2, two)], latest: vec![(1, Some("D")), (2, None)] }]);
}

#[test]
fn v13_nothing_tracked() {
    run(
        Some(""),
        &[
            stage(vec![up(5, "A"), up(10, "B")], vec![(5, None, 10, "B")], Some("B")),
            stage(vec![del(15)], vec![(5, Some(15), 10, "B")], None),
            stage(vec![up(20, "C")], vec![(5, Some(15), 10, "B"), (20, None, 20, "C")], Some("C")),
        ],
    );
}

#[test]
fn v14_earlier_head() {
    run(Some("a"), &[stage(vec![up(10, "A")], vec![(10, None, 10, "A")], Some("A")), stage(vec![up(7, "A")], vec![(7, None, 10, "A")], Some("A"))]);
}
