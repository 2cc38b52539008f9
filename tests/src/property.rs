//! Properties of the core against the naive fold (SEMANTICS.md A.6).
//!
//! A case is a list of source records in the order in which they arrive in one log partition, drawn from a seed: few keys, few sequences,
//! three source partitions, so that ties, late records and marks meet all the time. A case that fails is made smaller by leaving records out
//! for as long as it goes on failing; the seed and what is left of it are printed.

use landfall::land::entry;
use landfall::land::fold::{self, Config, Gap, Marks, Scratch, Shape, Unresolved};
use landfall::land::index::{Arena, Arrival, Event, Index, Kind, RowSpan, Ties};
use landfall_schemas::ColumnSet;
use landfall_schemas::provenance::Place;

use crate::dice::Dice;
use crate::oracle::{self, At, Cells, Record, Row, Rules, Values, What};
use crate::{lander, small};

const CASES: u64 = 40_000;
const KEYS: u8 = 2;
const SOURCES: u8 = 3;

#[derive(Clone, Debug)]
struct Case {
    rules: Rules,
    arrivals: Vec<Record>,
    /// Behind which arrivals a batch ends.
    ends: Vec<bool>,
}

/// What a property lets cases hold.
#[derive(Clone, Copy)]
struct Scope {
    /// Bare tombstones, which need each source partition in its order.
    bare: bool,
    marks: bool,
    /// Key changes: keys rest on each other.
    moves: bool,
}

fn cells(dice: &mut Dice) -> Cells {
    std::array::from_fn(|_| match dice.below(8) {
        0..=2 => None,
        3 => Some(None),
        _ => Some(Some(b'x' + dice.below(2) as u8)),
    })
}

fn case(seed: u64, scope: Scope) -> Case {
    let mut dice = Dice::new(seed);
    let rules = Rules { user: dice.chance(1, 2), blank: dice.chance(1, 2), tracked: std::array::from_fn(|_| dice.chance(2, 3)) };
    let (sequences, count) = (2 + dice.below(5), 1 + dice.below(12));
    let mut offsets = [0; SOURCES as usize];
    let mut arrivals = Vec::new();
    // Halves of key changes that are still to arrive. A source that hashes by key sends the delete half before later changes of its key, and
    // that is what lets a lander forget; everything else may come in any order.
    let mut halves: Vec<(u8, u64, What)> = Vec::new();
    for step in 0..count + 6 {
        if step >= count && halves.is_empty() {
            break;
        }
        let source = dice.below(SOURCES.into()) as u8;
        let last = &mut offsets[usize::from(source)];
        // Offsets have holes, and a record may hold several changes.
        let ordinal = if *last > 0 && dice.chance(1, 6) { 1 } else { 0 };
        *last += if ordinal == 1 { 0 } else { 1 + dice.below(2) as i64 };
        let mut seq = 1 + dice.below(sequences) as u64;
        let mut key = dice.below(if scope.moves { 3 } else { KEYS.into() }) as u8;
        let mut what = match dice.below(20) {
            0..=9 => What::Write(cells(&mut dice)),
            // Rows of a snapshot rank where its end does; several may have been taken at one place.
            10 | 11 => What::Read(cells(&mut dice), Some(seq as i64 * 2 + dice.below(2) as i64)),
            12 if dice.chance(1, 2) => What::Read(cells(&mut dice), None),
            12 => What::Refused(true, Some(seq as i64 * 2)),
            13 if dice.chance(1, 3) => What::Refused(false, None),
            13..=15 => What::Delete,
            16 | 17 if scope.bare => What::Bare,
            18 if scope.marks => What::Truncate,
            19 if scope.marks => What::Sweep(seq as i64 * 2 + dice.below(2) as i64),
            _ => What::Delete,
        };
        let at = At { source, offset: *last * 2, ordinal };
        if arrivals.iter().any(|r: &Record| r.at == at) {
            continue;
        }
        let is_row = |what: What| !matches!(what, What::Bare | What::Truncate | What::Sweep(_));
        let overtakes = |what: What, seq: u64, half: u64| is_row(what) && (seq > half || seq == half && !matches!(what, What::Read(_, Some(_))));
        if !halves.is_empty() && (step >= count || dice.chance(1, 3)) {
            (key, seq, what) = halves.swap_remove(dice.below(halves.len()));
        } else if scope.moves && dice.chance(1, 3) && !arrivals.iter().any(|r: &Record| r.key == key && overtakes(r.what, r.seq, seq)) {
            let other = (key + 1 + dice.below(2) as u8) % 3;
            let (leave, arrive) = ((key, seq, What::Leave(other)), (other, seq, What::Arrive(cells(&mut dice), key, true)));
            let (first, second) = if dice.chance(2, 3) { (leave, arrive) } else { (arrive, leave) };
            halves.push(second);
            (key, seq, what) = first;
        }
        if halves.iter().any(|(k, s, half)| *k == key && overtakes(what, seq, *s) && matches!(half, What::Leave(_))) {
            if matches!(what, What::Leave(_) | What::Arrive(..)) {
                halves.push((key, seq, what));
            }
            continue;
        }
        // A source changes a row once at a place: nothing but a snapshot's read ties with what a key change brought.
        let brings = |what: What| matches!(what, What::Arrive(..));
        let ties = |k: u8, s: u64, other: What| (k, s) == (key, seq) && (brings(what) || brings(other)) && is_row(what) && is_row(other);
        let is_read = |what: What| matches!(what, What::Read(_, Some(_)));
        let mut others = arrivals.iter().map(|r| (r.key, r.seq, r.what)).chain(halves.iter().copied());
        if others.any(|(k, s, other)| ties(k, s, other) && !is_read(what) && !is_read(other)) {
            halves.retain(|(_, s, half)| *s != seq || !matches!(half, What::Leave(k) | What::Arrive(_, k, _) if *k == key));
            continue;
        }
        arrivals.push(Record { at, key, seq, what });
    }
    let ends = arrivals.iter().map(|_| dice.chance(1, 3)).collect();
    Case { rules, arrivals, ends }
}

/// Runs a property over many cases; a failing one is made as small as it gets.
fn check(name: &str, cases: u64, scope: Scope, property: impl Fn(&Case) -> Result<(), String> + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    std::thread::scope(|scope_of_threads| {
        for thread in 0..threads {
            let property = &property;
            let _ = scope_of_threads.spawn(move || {
                for seed in (thread..cases).step_by(threads as usize) {
                    let mut failing = case(seed, scope);
                    let Err(mut why) = property(&failing) else { continue };
                    let mut at = 0;
                    while at < failing.arrivals.len() {
                        let mut smaller = failing.clone();
                        let _ = smaller.arrivals.remove(at);
                        let _ = smaller.ends.remove(at);
                        match property(&smaller) {
                            Ok(()) => at += 1,
                            Err(still) => (failing, why, at) = (smaller, still, 0),
                        }
                    }
                    let lines: Vec<String> = failing.arrivals.iter().map(|r| format!("  {r:?}")).collect();
                    panic!("{name}, seed {seed}: {why}\n{:?}, batches end {:?}\n{}", failing.rules, failing.ends, lines.join("\n"));
                }
            });
        }
    });
}

fn config(rules: Rules, history: bool) -> Config {
    let tracked: ColumnSet = (0..3).filter(|c| rules.tracked[*c]).map(|c| c + 1).collect();
    Config {
        shape: if history { Shape::History { tracked: Some(tracked) } } else { Shape::Upsert },
        ties: if rules.user { Ties::User } else { Ties::Dialect },
        unresolved: if rules.blank { Unresolved::Null } else { Unresolved::Withheld },
    }
}

/// The index of one key with what it needs, as a lander would keep it.
struct Held {
    key: u8,
    config: Config,
    index: Index,
    arena: Arena,
    marks: Marks,
    prune: bool,
}

impl Held {
    fn new(key: u8, config: Config, prune: bool) -> Self {
        Self { key, config, index: Index::default(), arena: Arena::default(), marks: Marks::default(), prune }
    }

    fn arrive(&mut self, record: &Record) {
        let sequence = small::sequence(record.seq);
        let place = Place { offset: record.at.offset, ordinal: record.at.ordinal };
        let source = record.at.source.into();
        let (kind, cells, snapshot) = match record.what {
            What::Truncate => {
                if !self.marks.truncates.contains(&sequence) {
                    self.marks.truncates.push(sequence);
                }
                return;
            }
            What::Sweep(id) => {
                let mark = (sequence, id);
                if !self.marks.sweeps.contains(&mark) {
                    self.marks.sweeps.push(mark);
                }
                return;
            }
            _ if record.key != self.key => return,
            What::Bare => return self.index.bury(source, place),
            What::Write(cells) => (Kind::Upsert, Some(cells), None),
            What::Read(cells, id) => (Kind::Read, Some(cells), id),
            What::Delete | What::Leave(_) => (Kind::Delete, None, None),
            What::Arrive(..) => unreachable!("one index does not know another key's"),
            What::Refused(read, id) => {
                let kind = if read { Kind::Read } else { Kind::Upsert };
                return self.index.refuse(source, &sequence, place, kind, id);
            }
        };
        let mut event = Event { kind, place, row: RowSpan::default(), unauthored: ColumnSet::new() };
        if let Some(cells) = cells {
            event.row = RowSpan { span: self.arena.add(&small::row(self.key, &cells, small::WHOLE)), columns: 4 };
            event.unauthored = small::unauthored(&cells, small::WHOLE);
        }
        self.index.insert(Arrival { source, sequence, snapshot, former: None, event }, self.config.ties, &self.arena);
        if self.prune {
            self.index.prune();
        }
    }

    fn store_and_load(&mut self) {
        let stored = self.stored();
        self.arena = Arena::default();
        self.index = entry::decode(&stored, &mut self.arena).expect("what was encoded");
        assert_eq!(self.stored(), stored, "an index is stored as it was read");
    }

    fn stored(&self) -> Vec<u8> {
        let mut out = Vec::new();
        entry::encode(&self.index, &self.arena, &mut out);
        out
    }

    fn rows(&mut self) -> (Vec<Row>, bool) {
        let (mut scratch, mut runs) = (Scratch::default(), Vec::new());
        let columns = small::SCHEMA.columns();
        let gap = fold::fold(&self.index, &self.marks, &self.config, columns, &mut self.arena, &mut scratch, &mut runs).expect("whole rows");
        let row = |run: &fold::Run| Row {
            start: small::rank(&run.start),
            end: run.end.as_ref().map(small::rank),
            tail: small::rank(&run.tail),
            values: small::read_row(self.arena.get(run.row.span)).1,
        };
        (runs.iter().map(row).collect(), gap == Gap::Withheld)
    }

    fn latest(&mut self) -> Option<Values> {
        let (rows, _) = self.rows();
        assert!(rows.len() < 2, "one row per key");
        rows.first().map(|row| row.values)
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, expected: T) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: {got:?} instead of {expected:?}")) }
}

#[test]
fn i4_both_shapes_equal_the_naive_fold_after_every_arrival() {
    check("I2, I4, I9", CASES, Scope { bare: true, marks: true, moves: false }, |case| {
        for key in 0..KEYS {
            let mut history = Held::new(key, config(case.rules, true), false);
            let mut whole = Held::new(key, config(case.rules, false), false);
            let mut pruned = Held::new(key, config(case.rules, false), true);
            for (i, record) in case.arrivals.iter().enumerate() {
                for held in [&mut history, &mut whole, &mut pruned] {
                    held.arrive(record);
                    if case.ends[i] {
                        held.store_and_load();
                    }
                }
                let expected = oracle::history(&case.arrivals[..=i], key, case.rules);
                let latest = oracle::latest(&case.arrivals[..=i], key, case.rules);
                same(&format!("history of key {key} after {i}"), history.rows().0, expected)?;
                same(&format!("row of key {key} after {i}"), whole.latest(), latest)?;
                same(&format!("row of key {key} from pruned state after {i}"), pruned.latest(), latest)?;
                same(&format!("withheld rows of key {key} after {i}"), (whole.rows().1, pruned.rows().1), (history.rows().1, history.rows().1))?;
            }
        }
        Ok(())
    });
}

#[test]
fn i1_order_of_arrival_never_shows() {
    // Without bare tombstones a source partition may come in any order too, and any event twice.
    check("I1, I12", CASES, Scope { bare: false, marks: true, moves: false }, |case| {
        let mut dice = Dice::new(case.arrivals.len() as u64);
        let mut shuffled = case.arrivals.clone();
        shuffled.extend(case.arrivals.iter().filter(|_| dice.chance(1, 3)).copied().collect::<Vec<_>>());
        dice.shuffle(&mut shuffled);
        for key in 0..KEYS {
            for (prune, as_history) in [(false, true), (true, false)] {
                let mut one = Held::new(key, config(case.rules, as_history), prune);
                let mut other = Held::new(key, config(case.rules, as_history), prune);
                case.arrivals.iter().for_each(|r| one.arrive(r));
                shuffled.iter().for_each(|r| other.arrive(r));
                same(&format!("key {key} in the order {shuffled:?}"), other.rows(), one.rows())?;
            }
        }
        Ok(())
    });
}

#[test]
fn i12_ties_merge_as_a_semilattice() {
    // Four events at one sequence over a row below: every order, every event twice.
    check("I12", CASES / 8, Scope { bare: false, marks: false, moves: false }, |case| {
        let tied: Vec<Record> = case.arrivals.iter().take(4).map(|r| Record { seq: 5, key: 0, ..*r }).collect();
        let all = |below: Record| [below].into_iter().chain(tied.iter().copied()).collect::<Vec<_>>();
        let below = Record { at: At { source: 9, offset: 0, ordinal: 0 }, key: 0, seq: 1, what: What::Write([Some(Some(b'p')); 3]) };
        let expected = oracle::history(&all(below), 0, case.rules);
        let mut orders = vec![tied.clone(), tied.iter().rev().copied().collect()];
        for i in 0..tied.len() {
            let mut rotated = tied.clone();
            rotated.rotate_left(i);
            orders.push(rotated.clone());
            rotated.reverse();
            orders.push(rotated);
        }
        for order in orders {
            let mut held = Held::new(0, config(case.rules, true), false);
            held.arrive(&below);
            for record in order.iter().chain(&order) {
                held.arrive(record);
            }
            same(&format!("ties in the order {order:?}"), held.rows().0, expected.clone())?;
        }
        Ok(())
    });
}

#[test]
fn i5_to_i10_rows_of_a_key_never_overlap() {
    check("I6, I7, I8, I10", CASES / 2, Scope { bare: true, marks: true, moves: false }, |case| {
        for key in 0..KEYS {
            let mut held = Held::new(key, config(case.rules, true), false);
            case.arrivals.iter().for_each(|r| held.arrive(r));
            let (rows, _) = held.rows();
            for (i, row) in rows.iter().enumerate() {
                let next = rows.get(i + 1);
                let ordered = row.start <= row.tail && row.end.is_none_or(|end| row.tail < end);
                let closed = row.end.is_some() || next.is_none();
                let apart = next.is_none_or(|next| row.end.is_some_and(|end| end <= next.start));
                let touch = next.is_some_and(|next| row.end == Some(next.start));
                let differs = next.is_none_or(|next| (0..3).any(|c| case.rules.tracked[c] && row.values[c] != next.values[c]));
                if !(ordered && closed && apart) || (touch && !differs) {
                    return Err(format!("rows of key {key}: {rows:?}"));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn i18_a_truncate_is_a_delete_in_every_key() {
    check("I18", CASES / 2, Scope { bare: true, marks: false, moves: false }, |case| {
        let seq = 1 + case.arrivals.len() as u64 % 6;
        let mut place = At { source: 8, offset: 1_000_000, ordinal: 0 };
        for key in 0..KEYS {
            let (mut marked, mut deleted) = (Held::new(key, config(case.rules, false), true), Held::new(key, config(case.rules, false), true));
            for record in &case.arrivals {
                marked.arrive(record);
                deleted.arrive(record);
            }
            marked.arrive(&Record { at: place, key, seq, what: What::Truncate });
            place.offset += 1;
            deleted.arrive(&Record { at: place, key, seq, what: What::Delete });
            same(&format!("key {key} truncated at {seq}"), marked.latest(), deleted.latest())?;
        }
        Ok(())
    });
}

#[test]
fn landed_rows_are_a_function_of_identity_and_version() {
    check("INV-2, I3", CASES / 2, Scope { bare: true, marks: true, moves: false }, land_with_repeats);
}

#[test]
fn key_changes_take_along_what_was_not_sent() {
    check("key changes", CASES, Scope { bare: true, marks: true, moves: true }, land_with_repeats);
}

/// Repeats of what arrived come in between, as zombies send them: they change nothing and bring nothing (I3).
fn land_with_repeats(case: &Case) -> Result<(), String> {
    let mut case = case.clone();
    // What the store refuses is refused inside the lander; the simulator has that.
    case.arrivals.iter_mut().filter(|r| matches!(r.what, What::Refused(..))).for_each(|r| r.what = What::Delete);
    let mut dice = Dice::new(case.arrivals.len() as u64);
    let (mut log, mut ends) = (Vec::new(), Vec::new());
    for (i, record) in case.arrivals.iter().enumerate() {
        log.push(*record);
        ends.push(case.ends[i]);
        if dice.chance(1, 3) {
            log.push(case.arrivals[dice.below(i + 1)]);
            ends.push(dice.chance(1, 2));
        }
    }
    let landed = lander::land(config(case.rules, false), &log, |i| ends[i]);
    let distinct = |upto: usize| -> Vec<Record> {
        let mut seen = Vec::new();
        log[..upto].iter().for_each(|r| {
            if !seen.contains(r) {
                seen.push(*r)
            }
        });
        seen
    };
    let expected: Vec<(u8, Values)> = (0..3).filter_map(|key| Some((key, oracle::latest(&distinct(log.len()), key, case.rules)?))).collect();
    same("replica", landed.rows, expected)?;
    for batch in &landed.batches {
        for (i, (key, row, offset)) in batch.iter().enumerate() {
            same("identities in a batch", batch[..i].iter().any(|d| d.0 == *key), false)?;
            let (upto, before) = (distinct(*offset as usize + 1), distinct(*offset as usize));
            same(&format!("key {key} at version {offset}"), *row, oracle::latest(&upto, *key, case.rules))?;
            if oracle::latest(&before, *key, case.rules) == *row {
                return Err(format!("key {key} at version {offset}: the change at this offset did not alter it"));
            }
        }
    }
    // The whole log again brings no delta at all.
    let twice: Vec<Record> = log.iter().chain(&log).copied().collect();
    let again = lander::land(config(case.rules, false), &twice, |i| i + 1 == log.len());
    let replayed = |delta: &&(u8, Option<Values>, i64)| delta.2 >= log.len() as i64;
    same("deltas of a replay", again.batches.iter().flatten().filter(replayed).count(), 0_usize)
}

#[test]
fn a_table_that_two_snapshots_read_at_one_place_is_spared_by_both_ends() {
    let record = |offset, seq, what| Record { at: At { source: 0, offset, ordinal: 0 }, key: 0, seq, what };
    let read = |id| What::Read([Some(Some(b'x')); 3], Some(id));
    let records = [record(0, 1, What::Write([Some(Some(b'x')); 3])), record(1, 2, read(4)), record(2, 2, read(5)), record(3, 2, What::Sweep(4))];
    let rules = Rules { user: false, blank: false, tracked: [true; 3] };
    let mut held = Held::new(0, config(rules, true), false);
    records.iter().for_each(|r| held.arrive(r));
    let one_run = Row { start: (1, 1), end: None, tail: (2, 1), values: [Some(b'x'); 3] };
    assert_eq!(held.rows().0, [one_run]);
}

/// The stored state of a key after a history.
pub(crate) fn stored(seed: u64) -> Vec<u8> {
    let case = case(seed, Scope { bare: true, marks: false, moves: false });
    let mut held = Held::new(0, config(case.rules, true), false);
    case.arrivals.iter().for_each(|r| held.arrive(r));
    held.stored()
}

#[test]
fn damaged_state_is_refused_and_never_panics() {
    for seed in 0..4_000 {
        let case = case(seed, Scope { bare: true, marks: false, moves: false });
        let mut held = Held::new(0, config(case.rules, true), false);
        case.arrivals.iter().for_each(|r| held.arrive(r));
        let stored = held.stored();
        let mut dice = Dice::new(seed);
        for end in 0..stored.len() {
            assert!(entry::decode(&stored[..end], &mut Arena::default()).is_err(), "seed {seed}: cut at {end} of {}", stored.len());
        }
        for _ in 0..20 {
            let mut damaged = stored.clone();
            let at = dice.below(damaged.len());
            damaged[at] ^= 1 << dice.below(8);
            let mut arena = Arena::default();
            if let Ok(index) = entry::decode(&damaged, &mut arena) {
                let (mut scratch, mut runs) = (Scratch::default(), Vec::new());
                let columns = small::SCHEMA.columns();
                let _folded = fold::fold(&index, &Marks::default(), &held.config, columns, &mut arena, &mut scratch, &mut runs);
            }
        }
    }
}
