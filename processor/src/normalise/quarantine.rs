//! What is known of the dead letters: which are open, which somebody wants replayed, and which keys wait behind them.
//!
//! A fold of the dead-letter topic, in its order: letters open, notes ask and close, and a letter of the same record that comes later is a new
//! verdict. So every process that reads the topic knows the same, and nothing of it is kept elsewhere. The owner of a source partition acts on
//! its lane: what goes back into the log goes in the order of its offsets, and never past a letter that holds its key (`park_key`).

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};

/// A digest of a canonical key.
pub type Digest = [u8; 16];

/// So many letters of one source partition may hold keys; then the partition waits (`park.full`). A letter takes some 150 bytes here.
pub const PARKED_MAX: usize = 100_000;

/// So many letters are known in all; of more, only those are that hold keys or that somebody asks for.
pub const OPEN_MAX: usize = 1_000_000;

/// Where the record of a letter stands in its source partition, and the number of the replica that has refused it: 0 where none has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Source offset.
    pub offset: i64,
    /// Number of the replica's name.
    pub replica: u16,
}

/// An open letter.
#[derive(Clone, Debug)]
struct Open {
    /// Its offset in the dead-letter topic; none until it has been read back from there.
    letter: Option<i64>,
    /// Number of its table and code.
    label: u16,
    /// Somebody wants it replayed.
    asked: bool,
    /// Nothing is wrong with it: it waits for those before it.
    waits: bool,
    keys: Box<[Digest]>,
}

/// The open letters of one source partition.
#[derive(Clone, Debug, Default)]
struct Lane {
    open: BTreeMap<Id, Open>,
    /// For each key how many of them hold it.
    held: HashMap<Digest, u32>,
    /// How many of them hold keys.
    holding: usize,
    /// Whether something may have become due.
    stirred: bool,
}

/// A letter that goes back into the log now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Which.
    pub id: Id,
    /// Its offset in the dead-letter topic.
    pub letter: i64,
    /// The keys that it holds.
    pub keys: Box<[Digest]>,
}

/// A letter as it is read or written.
#[derive(Clone, Debug)]
pub struct Said<'a> {
    /// Table of the topology.
    pub table: &'a str,
    /// Its code.
    pub code: &'a str,
    /// The keys that it holds.
    pub keys: Vec<Digest>,
    /// Whether it only waits.
    pub waits: bool,
}

/// How many letters are open, and how many keys wait behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally<'b> {
    /// Letters by table and code.
    pub letters: BTreeMap<(&'b str, &'b str), u64>,
    /// Keys by table.
    pub keys: BTreeMap<&'b str, u64>,
}

/// All lanes.
#[derive(Clone, Debug, Default)]
pub struct Book {
    lanes: HashMap<String, BTreeMap<i32, Lane>>,
    labels: Vec<(String, String)>,
    replicas: Vec<String>,
    count: usize,
}

impl Book {
    /// The number of a replica's name.
    pub fn replica(&mut self, name: Option<&str>) -> u16 {
        let Some(name) = name else { return 0 };
        let at = self.replicas.iter().position(|r| r == name).unwrap_or_else(|| {
            self.replicas.push(name.to_owned());
            self.replicas.len() - 1
        });
        u16::try_from(at + 1).unwrap_or(u16::MAX)
    }

    /// The name of a replica by its number.
    pub fn replica_name(&self, number: u16) -> Option<&str> {
        self.replicas.get(usize::from(number).checked_sub(1)?).map(String::as_str)
    }

    /// A letter: a new one, or a new verdict on a record that has one. `at` is its offset in the dead-letter topic, none for one that is being
    /// written.
    pub fn letter(&mut self, topic: &str, partition: i32, id: Id, at: Option<i64>, said: Said<'_>) {
        let is_known = self.lane(topic, partition).is_some_and(|lane| lane.open.contains_key(&id));
        if !is_known && said.keys.is_empty() && self.count >= OPEN_MAX {
            return;
        }
        let label = self.label(said.table, said.code);
        let lane = self.lane_mut(topic, partition);
        let known = lane.remove(id);
        // What was written here and is read back now may have been asked for in between by nobody: its offset was not known.
        let letter = at.or_else(|| known.as_ref().and_then(|open| open.letter));
        // Mostly something before it holds its key; but it may be one that was sent again, and be free.
        lane.stirred |= said.waits && at.is_some();
        lane.insert(id, Open { letter, label, asked: false, waits: said.waits, keys: said.keys.into_boxed_slice() });
        self.count += usize::from(known.is_none());
    }

    /// Somebody wants a letter replayed.
    pub fn asked(&mut self, topic: &str, partition: i32, id: Id, letter: i64) {
        let lane = self.lane_mut(topic, partition);
        lane.stirred = true;
        match lane.open.get_mut(&id) {
            // A later verdict has answered that already.
            Some(open) if open.letter.is_some_and(|known| known > letter) => {}
            Some(open) => (open.asked, open.letter) = (true, Some(letter)),
            None => {
                // Closed, or one of too many: being replayed twice does it no harm.
                let open = Open { letter: Some(letter), label: 0, asked: true, waits: false, keys: Box::default() };
                lane.insert(id, open);
                self.count += 1;
            }
        }
    }

    /// A letter was replayed or dropped.
    pub fn closed(&mut self, topic: &str, partition: i32, id: Id, letter: i64) {
        let lane = self.lane_mut(topic, partition);
        if lane.open.get(&id).is_some_and(|open| open.letter.is_none_or(|known| known <= letter)) {
            drop(lane.remove(id));
            lane.stirred = true;
            self.count -= 1;
        }
    }

    /// A letter is on its way back into the log: nothing waits for it any longer.
    pub fn sent(&mut self, topic: &str, partition: i32, id: Id) {
        if self.lane_mut(topic, partition).remove(id).is_some() {
            self.count -= 1;
        }
    }

    /// A letter was tried again and failed: it stays until somebody asks once more. Its new verdict is on its way.
    pub fn failed(&mut self, topic: &str, partition: i32, id: Id) {
        if let Some(open) = self.lane_mut(topic, partition).open.get_mut(&id) {
            (open.asked, open.waits) = (false, false);
        }
    }

    /// Something may have become due: it was put off.
    pub fn stir(&mut self, topic: &str, partition: i32) {
        self.lane_mut(topic, partition).stirred = true;
    }

    /// Whether an event of one of these keys has to wait.
    pub fn is_held(&self, topic: &str, partition: i32, mut keys: impl Iterator<Item = Digest>) -> bool {
        self.lane(topic, partition).is_some_and(|lane| !lane.held.is_empty() && keys.any(|key| lane.held.contains_key(&key)))
    }

    /// Whether any key is held: while none is, no event needs its digest.
    pub fn holds_any(&self, topic: &str, partition: i32) -> bool {
        self.lane(topic, partition).is_some_and(|lane| !lane.held.is_empty())
    }

    /// Whether no more letters may hold keys.
    pub fn is_full(&self, topic: &str, partition: i32) -> bool {
        self.lane(topic, partition).is_some_and(|lane| lane.holding >= PARKED_MAX)
    }

    /// The letters that go back into the log now, in the order of their offsets, `limit` at most: those that were asked for and those that only
    /// wait, where nothing before them holds their keys. None at or past `committed` goes, since its record may still be read by others
    /// (ARCHITECTURE.md, Dead letters). Without `parks` no letter holds anything.
    pub fn due(&mut self, topic: &str, partition: i32, committed: i64, parks: bool, limit: usize) -> Vec<Due> {
        let Some(lane) = self.lanes.get_mut(topic).and_then(|lanes| lanes.get_mut(&partition)) else { return Vec::new() };
        if !std::mem::take(&mut lane.stirred) {
            return Vec::new();
        }
        let mut held: HashSet<Digest> = HashSet::new();
        let mut due = Vec::new();
        for (id, open) in &lane.open {
            if due.len() == limit {
                lane.stirred = true;
                break;
            }
            let is_free = !parks || !open.keys.iter().any(|key| held.contains(key));
            if is_free && (open.asked || open.waits) {
                match open.letter {
                    Some(letter) if id.offset < committed => {
                        due.push(Due { id: *id, letter, keys: open.keys.clone() });
                        continue;
                    }
                    _ => lane.stirred = true,
                }
            }
            held.extend(open.keys.iter().copied());
        }
        due
    }

    /// Counts the open letters of some source partitions.
    pub fn tally<'b>(&'b self, lanes: impl Iterator<Item = (&'b str, i32)>) -> Tally<'b> {
        let mut tally = Tally::default();
        for lane in lanes.filter_map(|(topic, partition)| self.lane(topic, partition)) {
            let mut table = None;
            for open in lane.open.values() {
                // One that was only asked for has no label.
                let Some((of, code)) = self.labels.get(usize::from(open.label).wrapping_sub(1)) else { continue };
                *tally.letters.entry((of.as_str(), code.as_str())).or_insert(0) += 1;
                table = Some(of.as_str());
            }
            if let Some(table) = table {
                *tally.keys.entry(table).or_insert(0) += lane.held.len() as u64;
            }
        }
        tally
    }

    fn label(&mut self, table: &str, code: &str) -> u16 {
        let at = self.labels.iter().position(|(t, c)| t == table && c == code).unwrap_or_else(|| {
            self.labels.push((table.to_owned(), code.to_owned()));
            self.labels.len() - 1
        });
        u16::try_from(at + 1).unwrap_or(u16::MAX)
    }

    fn lane(&self, topic: &str, partition: i32) -> Option<&Lane> {
        self.lanes.get(topic)?.get(&partition)
    }

    fn lane_mut(&mut self, topic: &str, partition: i32) -> &mut Lane {
        self.lanes.entry_ref(topic).or_default().entry(partition).or_default()
    }
}

impl Lane {
    fn insert(&mut self, id: Id, open: Open) {
        for key in &open.keys {
            *self.held.entry(*key).or_default() += 1;
        }
        self.holding += usize::from(!open.keys.is_empty());
        drop(self.open.insert(id, open));
    }

    fn remove(&mut self, id: Id) -> Option<Open> {
        let open = self.open.remove(&id)?;
        for key in &open.keys {
            if let Some(count) = self.held.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    let _ = self.held.remove(key);
                }
            }
        }
        self.holding -= usize::from(!open.keys.is_empty());
        Some(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Digest = [1; 16];
    const B: Digest = [2; 16];

    fn id(offset: i64) -> Id {
        Id { offset, replica: 0 }
    }

    fn poison(keys: &[Digest]) -> Said<'static> {
        Said { table: "t", code: "value.kind", keys: keys.to_vec(), waits: false }
    }

    fn parked(keys: &[Digest]) -> Said<'static> {
        Said { table: "t", code: "parked", keys: keys.to_vec(), waits: true }
    }

    fn due(book: &mut Book) -> Vec<i64> {
        book.due("s", 0, 100, true, 1000).iter().map(|d| d.id.offset).collect()
    }

    /// A bad event of A, one of B that passes, two of A that wait.
    fn book() -> Book {
        let mut book = Book::default();
        book.letter("s", 0, id(5), Some(0), poison(&[A]));
        book.letter("s", 0, id(7), Some(1), parked(&[A]));
        book.letter("s", 0, id(9), Some(2), parked(&[A]));
        book
    }

    #[test]
    fn what_waits_follows_what_was_asked_for_in_order() {
        let mut book = book();
        assert!(book.is_held("s", 0, [A].into_iter()) && !book.is_held("s", 0, [B].into_iter()) && !book.is_held("s", 1, [A].into_iter()));
        assert_eq!(due(&mut book), Vec::<i64>::new());
        assert!(!book.lanes["s"][&0].stirred);
        book.asked("s", 0, id(7), 1);
        assert_eq!(due(&mut book), Vec::<i64>::new(), "one that waits cannot be called past the one before it");
        book.asked("s", 0, id(5), 0);
        assert_eq!(due(&mut book), [5, 7, 9]);
        assert_eq!(due(&mut book), Vec::<i64>::new(), "once");
        [5, 7, 9].into_iter().for_each(|offset| book.sent("s", 0, id(offset)));
        assert!(!book.holds_any("s", 0));
        assert_eq!(book.tally([("s", 0)].into_iter()), Tally::default());
    }

    #[test]
    fn a_dropped_letter_releases_its_key() {
        let mut book = book();
        book.closed("s", 0, id(5), 0);
        assert_eq!(due(&mut book), [7, 9]);
    }

    #[test]
    fn a_second_bad_event_holds_what_is_behind_it() {
        let mut book = book();
        book.letter("s", 0, id(8), Some(3), poison(&[A]));
        book.asked("s", 0, id(5), 0);
        assert_eq!(due(&mut book), [5, 7]);
    }

    #[test]
    fn an_event_of_two_keys_waits_for_both_and_holds_both() {
        let mut book = book();
        book.letter("s", 0, id(10), Some(3), parked(&[A, B]));
        book.letter("s", 0, id(11), Some(4), parked(&[B]));
        assert!(book.is_held("s", 0, [B].into_iter()));
        book.letter("s", 0, id(9), Some(5), poison(&[A]));
        book.closed("s", 0, id(5), 0);
        assert_eq!(due(&mut book), [7], "9 got another verdict and holds 10, which holds 11");
    }

    #[test]
    fn a_failure_is_a_new_verdict_and_stays() {
        let mut book = book();
        book.asked("s", 0, id(5), 0);
        assert_eq!(book.due("s", 0, 100, true, 1)[0], Due { id: id(5), letter: 0, keys: [A].into() });
        book.failed("s", 0, id(5));
        assert_eq!(due(&mut book), Vec::<i64>::new());
        book.letter("s", 0, id(5), Some(8), poison(&[A]));
        book.closed("s", 0, id(5), 0);
        book.asked("s", 0, id(5), 0);
        assert_eq!(due(&mut book), Vec::<i64>::new(), "words about the former verdict come too late");
        book.asked("s", 0, id(5), 8);
        assert_eq!(due(&mut book), [5, 7, 9]);
    }

    #[test]
    fn nothing_goes_before_its_offset_is_committed_and_its_letter_is_in_the_topic() {
        let mut book = book();
        book.asked("s", 0, id(5), 0);
        assert!(book.due("s", 0, 5, true, 9).is_empty());
        assert_eq!(book.due("s", 0, 6, true, 9).len(), 1);
        let mut book = Book::default();
        book.letter("s", 0, id(3), None, parked(&[A]));
        assert_eq!(due(&mut book), Vec::<i64>::new());
        book.letter("s", 0, id(3), Some(4), parked(&[A]));
        assert_eq!(due(&mut book), [3], "what nothing holds any longer goes by itself");
    }

    #[test]
    fn what_can_be_read_when_it_is_sent_again_goes_with_what_waits_behind_it() {
        let mut book = book();
        assert_eq!(due(&mut book), Vec::<i64>::new());
        // A process that died before it had committed left letters behind; the next one can read the first record, which its own letter holds.
        book.letter("s", 0, id(5), None, parked(&[A]));
        book.letter("s", 0, id(5), Some(3), parked(&[A]));
        assert_eq!(due(&mut book), [5, 7, 9]);
    }

    #[test]
    fn without_parking_letters_hold_nothing_and_those_that_wait_go() {
        let mut book = book();
        let mut due = || book.due("s", 0, 100, false, 9).iter().map(|d| d.id.offset).collect::<Vec<_>>();
        assert_eq!((due(), due()), (vec![7, 9], Vec::new()));
        book.stir("s", 0);
        assert_eq!(book.due("s", 0, 100, false, 9).len(), 2, "a new owner looks for itself");
    }

    #[test]
    fn letters_of_replicas_are_letters_of_their_own() {
        let mut book = Book::default();
        let serving = Id { offset: 5, replica: book.replica(Some("serving.t")) };
        assert_eq!((serving.replica, book.replica(Some("local.t")), book.replica(None)), (1, 2, 0));
        assert_eq!((book.replica_name(1), book.replica_name(0)), (Some("serving.t"), None));
        book.letter("s", 0, serving, Some(0), poison(&[]));
        book.letter("s", 0, id(5), Some(1), poison(&[]));
        book.closed("s", 0, id(5), 1);
        let expected = Tally { letters: BTreeMap::from([(("t", "value.kind"), 1)]), keys: BTreeMap::from([("t", 0)]) };
        assert_eq!(book.tally([("s", 0)].into_iter()), expected);
    }

    #[test]
    fn what_holds_keys_is_bounded_and_the_rest_counted_up_to_a_bound() {
        let mut book = Book::default();
        for offset in 0..PARKED_MAX as i64 {
            assert!(!book.is_full("s", 0));
            book.letter("s", 0, id(offset), Some(offset), parked(&[A]));
        }
        assert!(book.is_full("s", 0));
        book.closed("s", 0, id(0), 0);
        assert!(!book.is_full("s", 0));
    }
}
