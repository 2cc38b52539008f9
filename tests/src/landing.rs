//! What a lander and a normaliser do at the edges of their contract: each test stands for a defect that was found and must not come back.

use std::time::Duration;

use landfall::land::fold::{Config, Unresolved};
use landfall::land::partition::{Instead, LogBounds, Partition, Record as LogRecord, Refuse, Settings, Step, Stop, Verdict};
use landfall::normalise::Outbox;
use landfall::normalise::partition::{Item, Outcome, Partition as Source};
use landfall::sink::memory::{MemorySink, Store, Style};
use landfall::sink::{Claim, Kind, Remedy, Sink, Target};
use landfall::state::SlotName;
use landfall::state::memory::MemoryState;
use landfall_schemas::{LogicalType, TableSchema, Value};

use crate::lander::settings;
use crate::oracle::{At, Record, What};
use crate::small::{self, Parts};

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn name() -> SlotName {
    SlotName { replica: "store.t".to_owned(), generation: 0, partition: 0 }
}

fn write(offset: i64, key: u8, letter: u8) -> Record {
    let at = At { source: 0, offset, ordinal: 0 };
    Record { at, key, seq: 1 + offset.cast_unsigned(), what: What::Write([Some(Some(letter)), Some(None), Some(None)]) }
}

/// A lander with a store that is there at once, stopped wherever a test wants.
struct Desk {
    core: Partition,
    state: MemoryState,
    sink: MemorySink,
    store: Store,
    target: Target,
}

impl Desk {
    fn new() -> Self {
        Self::with(settings(Config::upsert()))
    }

    fn with(settings: Settings) -> Self {
        let store = Store::new(Style::Transactional);
        let target = Target { replica: "store.t".to_owned(), table: "t".to_owned(), generation: 0, build: 0, schema: small::SCHEMA.clone() };
        let core = Partition::new(name(), settings, 0, None, 1);
        Self { core, state: MemoryState::default(), sink: MemorySink::new(store.clone()), store, target }
    }

    fn next(&mut self, now: Duration) -> Step {
        self.core.next(now, &mut self.state).expect("goes on")
    }

    fn claim(&mut self, begin: i64, end: i64) -> Result<i64, Stop> {
        assert!(matches!(self.next(seconds(1)), Step::Claim));
        let claim = self.sink.claim(&self.target, 0).expect("memory");
        self.core.claimed(claim, LogBounds { begin, end }, &mut self.state, seconds(1))
    }

    fn reclaim(&mut self) {
        let opened = self.sink.open("store.t", "t", None).expect("memory");
        self.target.build = opened.build;
        self.core.reclaim(opened.build, opened.schema);
    }

    fn push(&mut self, offset: i64, record: &Record, version: usize) {
        let parts = Parts::of_version(record, version);
        let (value, provenance) = (parts.value(), small::provenance(record));
        let record = LogRecord { offset, key: parts.key.as_deref(), value: &value, provenance: &provenance };
        self.core.push(record, seconds(1)).expect("readable");
    }

    /// Goes on until nothing more is to be done.
    fn settle(&mut self) {
        self.settle_with(&mut |_| {});
    }

    /// The same, with a look at each batch before it lands.
    fn settle_with(&mut self, look: &mut dyn FnMut(&Partition)) {
        loop {
            match self.next(seconds(1)) {
                Step::Contract(fingerprint) => {
                    let version = small::VERSIONS.iter().find(|v| v.1 == fingerprint).expect("published");
                    self.core.contract(fingerprint, version.0.clone()).expect("columns are only added");
                }
                Step::Prepare(schema) => self.prepare(schema),
                Step::Land => {
                    look(&self.core);
                    self.sink.land(&self.target, self.core.batch()).expect("memory");
                    self.core.landed(&mut self.state, seconds(1)).expect("memory");
                }
                Step::Commit(_) => {}
                Step::Wait(_) => return,
                step => panic!("{step:?}"),
            }
        }
    }

    fn prepare(&mut self, schema: TableSchema) {
        self.target.schema = schema.into();
        self.sink.prepare(&self.target).expect("memory");
        let remembered = self.sink.open("store.t", "t", None).expect("memory").schema.expect("just prepared");
        self.target.schema = remembered.clone().into();
        self.core.prepared(remembered);
    }

    fn rows(&self) -> Vec<(u8, crate::oracle::Values)> {
        let replicas = self.store.replicas();
        let replica = &replicas["store.t"];
        let schema = replica.schema.as_ref().expect("prepared");
        replica.live().map(|(_, row)| small::read_row_of(schema, row)).collect()
    }
}

#[test]
fn a_claim_that_found_no_store_is_asked_for_again() {
    let mut desk = Desk::new();
    assert!(matches!(desk.next(seconds(1)), Step::Claim));
    assert_eq!(desk.core.failed(Kind::Unavailable), Remedy::Retry);
    assert!(!desk.core.in_doubt());
    assert_eq!(desk.claim(0, 0).expect("an empty log"), 0);
}

#[test]
fn a_look_at_the_cursor_that_found_no_store_is_asked_for_again() {
    let mut desk = Desk::new();
    let _ = desk.claim(0, 0).expect("an empty log");
    assert!(matches!(desk.next(seconds(100)), Step::Check));
    assert_eq!(desk.core.failed(Kind::Unavailable), Remedy::Retry);
    assert!(!desk.core.in_doubt(), "nothing was landed");
    assert!(matches!(desk.next(seconds(101)), Step::Check));
    let cursor = desk.sink.cursor(&desk.target, 0).expect("memory");
    assert_eq!(desk.core.checked(cursor, &mut desk.state, seconds(101)).expect("memory"), Verdict::Done);
}

#[test]
fn nobody_is_told_to_wait_for_the_past() {
    let mut desk = Desk::new();
    let _ = desk.claim(0, 0).expect("an empty log");
    match desk.next(seconds(30)) {
        Step::Wait(Some(until)) => assert_eq!(until, seconds(61), "sixty seconds behind the claim"),
        step => panic!("{step:?}"),
    }
    assert!(matches!(desk.next(seconds(61)), Step::Check), "an owner that never landed looks after its claim too");
}

#[test]
fn an_idle_owner_learns_of_a_rebuild() {
    let mut desk = Desk::new();
    let _ = desk.claim(0, 1).expect("one record");
    desk.push(0, &write(0, 1, b'x'), small::WHOLE);
    desk.settle();
    let _ = desk.sink.rebuild("store.t", "t").expect("memory");
    assert!(matches!(desk.next(seconds(100)), Step::Check));
    let cursor = desk.sink.cursor(&desk.target, 0).expect("memory");
    assert_eq!(desk.core.checked(cursor, &mut desk.state, seconds(100)).expect("memory"), Verdict::Void);
}

#[test]
fn what_state_lacks_must_still_be_in_the_log() {
    // The store has everything up to 5, state is lost, and the log begins at 3: a fold from there would be wrong without a word.
    let mut desk = Desk::new();
    assert!(matches!(desk.next(seconds(1)), Step::Claim));
    let claim = Claim { fence: 1, next: Some(5) };
    let stop = desk.core.claimed(claim, LogBounds { begin: 3, end: 9 }, &mut desk.state, seconds(1)).expect_err("records are gone");
    assert!(matches!(stop, Stop::LogTruncated { begin: 3, end: 9, needed: 0 }), "{stop:?}");
}

#[test]
fn a_log_that_ends_below_state_stops_before_state_is_discarded() {
    let mut desk = Desk::new();
    let _ = desk.claim(0, 2).expect("two records");
    desk.push(0, &write(0, 1, b'x'), small::WHOLE);
    desk.push(1, &write(1, 1, b'y'), small::WHOLE);
    desk.settle();
    // The store was put back to before the first landing, and the log lost its last record: both at once look like a fresh start.
    desk.store.replicas().clear();
    desk.reclaim();
    let stop = desk.claim(0, 1).expect_err("a record is gone");
    assert!(matches!(stop, Stop::LogTruncated { needed: 2, .. }), "{stop:?}");
}

#[test]
fn what_was_fetched_for_an_earlier_claim_is_passed_over() {
    let mut desk = Desk::new();
    desk.push(7, &write(7, 1, b'z'), small::WHOLE);
    let _ = desk.claim(0, 2).expect("two records");
    desk.push(0, &write(0, 1, b'x'), small::WHOLE);
    desk.settle();
    desk.push(0, &write(0, 1, b'x'), small::WHOLE);
    desk.settle();
    assert_eq!(desk.core.landed_next(), Some(1), "K never goes back");
    desk.push(1, &write(1, 1, b'y'), small::WHOLE);
    desk.settle();
    assert_eq!(desk.rows(), [(1, [Some(b'y'), None, None])]);
    desk.reclaim();
    desk.core.landed(&mut desk.state, seconds(1)).expect("an answer to a claim that was given up changes nothing");
    assert!(matches!(desk.next(seconds(1)), Step::Claim));
}

/// A key with NUL in Postgres: its rows are dead letters, and neither they nor their absence reach the store, whatever the change says.
#[test]
fn a_key_that_the_store_cannot_hold_is_never_landed() {
    let refuse = Refuse {
        may: |_| true,
        value: |_, _| None,
        cuts: |_, _| false,
        nearest: |_, _| None,
        instead: None,
        key: |_, plain| Ok((small::read_key(plain) == 2).then_some((0, "value.nul"))),
    };
    let mut desk = Desk::with(Settings { refuse: Some(refuse), ..settings(Config::upsert()) });
    let _ = desk.claim(0, 6).expect("six records");
    let (mut letters, mut landed) = (Vec::new(), Vec::new());
    let changes = [
        write(0, 1, b'a'),
        write(1, 2, b'x'),
        Record { what: What::Delete, ..write(2, 2, b'x') },
        Record { what: What::Bare, ..write(3, 2, b'x') },
        write(4, 2, b'y'),
        write(5, 3, b'c'),
    ];
    for (offset, record) in changes.iter().enumerate() {
        desk.push(offset as i64, record, small::WHOLE);
        desk.settle_with(&mut |core| {
            letters.extend(core.letters().iter().map(|l| (l.offset, l.code, l.column.clone())));
            landed.extend(core.batch().deltas().map(|d| small::read_key(d.key)));
        });
    }
    assert_eq!(landed, [1, 3], "nothing is said to the store of a key that it cannot hold");
    let key = || small::SCHEMA.columns()[0].name.clone();
    assert_eq!(letters, [(1, "value.nul", key()), (4, "value.nul", key())]);
    assert_eq!(desk.core.landed_next(), Some(6), "nothing waits");
    assert_eq!(desk.rows().iter().map(|(key, _)| *key).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn state_in_columns_of_another_order_is_folded_again() {
    let values = |letter| What::Write([Some(Some(letter)), Some(None), Some(Some(b'c'))]);
    let first = Record { what: values(b'x'), ..write(0, 1, b'x') };
    let unauthored = Record { what: What::Write([Some(Some(b'y')), Some(Some(b'b')), None]), ..write(1, 1, b'y') };
    let mut desk = Desk::new();
    let _ = desk.claim(0, 2).expect("two records");
    // State stands in columns id, a, c.
    desk.push(0, &first, 1);
    desk.settle();
    // The store is put back to an empty one, and another process prepares and lands the same in columns id, a, b, c.
    desk.store.replicas().clear();
    let mut other = Desk { store: desk.store.clone(), sink: MemorySink::new(desk.store.clone()), ..Desk::new() };
    let _ = other.claim(0, 2).expect("two records");
    other.prepare((**small::SCHEMA).clone());
    other.push(0, &first, 1);
    other.settle();
    // Its state would now be read as if column c were column b.
    desk.reclaim();
    desk.target.schema = small::SCHEMA.clone();
    assert_eq!(desk.claim(0, 2).expect("two records"), 0, "folded from the start");
    desk.push(0, &first, 1);
    desk.push(1, &unauthored, small::WHOLE);
    desk.settle();
    assert_eq!(desk.rows(), [(1, [Some(b'y'), Some(b'b'), Some(b'c')])]);
}

/// Small changes of large rows: the batch is bounded by what it holds, not by what stood in the log.
#[test]
fn a_batch_ends_where_its_rows_weigh_enough() {
    let mut bounded = settings(Config::upsert());
    bounded.debounce.bytes_max = 2048;
    let mut desk = Desk::with(bounded);
    let _ = desk.claim(0, 70).expect("seventy records");
    desk.push(0, &write(0, 1, b'a'), small::WHOLE);
    // Updates that leave a column to their predecessors are kept with the key, which grows to more than the bound.
    let letter = |offset: i64| b'a' + (offset % 26) as u8;
    let update = |offset| Record { what: What::Write([Some(Some(letter(offset))), None, Some(None)]), ..write(offset, 1, b'x') };
    for offset in 1..60 {
        desk.push(offset, &update(offset), small::WHOLE);
    }
    desk.settle();
    for offset in 60..70 {
        desk.push(offset, &update(offset), small::WHOLE);
    }
    let mut landed = Vec::new();
    desk.settle_with(&mut |core| landed.push(core.batch().next));
    assert_eq!(landed, (61..=70).collect::<Vec<_>>(), "ten changes of some hundred bytes each, one at a time");
    assert_eq!(desk.rows(), [(1, [Some(letter(69)), None, None])]);
}

/// `fallback: { refused: clamp }`: the nearest value stands for what the store cannot hold, and is counted; where none is near, the change is a dead letter.
#[test]
fn the_nearest_value_stands_for_one_that_cannot_land_where_that_is_asked() {
    let refuse = Refuse {
        may: |_| true,
        value: |ty, value| (ty == LogicalType::Text && matches!(value, Value::Text("x" | "y"))).then_some("value.out_of_range"),
        nearest: |_, value| (*value == Value::Text("x")).then_some(Value::Text("w")),
        cuts: |_, _| false,
        instead: Some(Instead::Nearest),
        key: |_, _| Ok(None),
    };
    let mut desk = Desk::with(Settings { refuse: Some(refuse), ..settings(Config::upsert()) });
    let _ = desk.claim(0, 2).expect("two records");
    let (mut letters, mut clamped) = (Vec::new(), 0);
    for (offset, record) in [write(0, 1, b'x'), write(1, 2, b'y')].iter().enumerate() {
        desk.push(offset as i64, record, small::WHOLE);
        desk.settle_with(&mut |core| letters.extend(core.letters().iter().map(|l| (l.offset, l.code))));
        clamped += desk.core.take_counts().clamped;
    }
    assert_eq!((letters, clamped), (vec![(1, "value.out_of_range")], 1));
    assert_eq!(desk.rows(), [(1, [Some(b'w'), None, None])]);
}

#[test]
fn the_end_of_a_snapshot_is_no_step_back() {
    let mut source = Source::new(small::TOPIC, small::source(0), 1, "");
    let mut outbox = Outbox::default();
    let end = Record { what: What::Sweep(1), ..write(0, 1, b'x') };
    for (offset, record) in [(5, write(5, 1, b'x')), (6, end), (7, write(7, 1, b'y'))] {
        let parts = Parts::new(&record);
        let item = Item { ordinal: 0, key: parts.key.as_deref(), change: &parts.change() };
        let token = source.fetched(offset);
        assert_eq!(source.process(token, offset, parts.fingerprint(), &[item], seconds(1), &mut outbox), Outcome::Produced, "offset {offset}");
    }
}

/// `fallback: { missing: set_null, refused: set_null }`: NULL stands for what nobody knows and for what the store cannot hold, and is counted; a key
/// stays what it is.
#[test]
fn null_stands_for_values_that_cannot_land_where_that_is_asked() {
    let refuse = Refuse {
        may: |_| true,
        value: |ty, value| (ty == LogicalType::Text && *value == Value::Text("x")).then_some("value.nul"),
        cuts: |_, _| false,
        nearest: |_, _| None,
        instead: Some(Instead::Null),
        key: |_, plain| Ok((small::read_key(plain) == 2).then_some((0, "value.nul"))),
    };
    let fold = Config { unresolved: Unresolved::Null, ..Config::upsert() };
    let mut desk = Desk::with(Settings { refuse: Some(refuse), ..settings(fold) });
    let _ = desk.claim(0, 4).expect("four records");
    let unsent = Record { what: What::Write([None, Some(Some(b'c')), Some(None)]), ..write(2, 3, b'c') };
    let (mut letters, mut nulled) = (Vec::new(), [0; 2]);
    for (offset, record) in [write(0, 1, b'x'), write(1, 2, b'x'), unsent].iter().enumerate() {
        desk.push(offset as i64, record, small::WHOLE);
        desk.settle_with(&mut |core| letters.extend(core.letters().iter().map(|l| (l.offset, l.code))));
        for (all, more) in nulled.iter_mut().zip(desk.core.take_counts().nulled) {
            *all += more;
        }
    }
    assert_eq!(letters, [(1, "value.nul")], "a key is not NULL");
    assert_eq!(nulled, [1, 1], "each is counted");
    assert_eq!(desk.rows(), [(1, [None, None, None]), (3, [None, Some(b'c'), None])]);
    // The value comes, and stands where NULL stood.
    desk.push(3, &write(3, 3, b'd'), small::WHOLE);
    desk.settle_with(&mut |_| {});
    assert_eq!(desk.rows()[1], (3, [Some(b'd'), None, None]));
    assert_eq!(desk.core.take_counts().nulled, [0, 0]);
}
