//! A small database and its connector: what stands in the source topic, and what the table truly holds at the end.
//!
//! Positions rise with transactions. The connector streams them, reads single rows beside the stream, reads the whole table at a place and
//! says when it has, sends again after a restart (same sequences, higher offsets), and begins a new epoch when the database was put back.

use landfall::log::murmur2;

use crate::dice::Dice;
use crate::oracle::{At, Cells, Record, Values, What};
use crate::small;

use super::{KEYS, Plan};

/// What a record of the source topic holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Line {
    /// A change or a mark, in a version of the table.
    Record(Record, usize),
    /// Nothing for the log.
    Heartbeat,
    /// Nothing that can be read: it goes to the dead letters.
    Poison,
}

/// Source partitions with the offsets of their records, and the table at the end.
pub(super) struct Source {
    pub parts: Vec<Vec<(i64, Line)>>,
    pub table: [Option<Values>; KEYS],
}

/// What the connector sends for a part of a transaction, each time that it sends it.
#[derive(Clone, Copy)]
struct Sent {
    part: usize,
    key: u8,
    seq: u64,
    what: What,
    version: usize,
    /// A delete is a `d`, a `d` and a tombstone, or a tombstone alone (the `d` was compacted away).
    tombstone: bool,
    delete: bool,
}

struct Connector<'a> {
    dice: &'a mut Dice,
    plan: &'a Plan,
    parts: Vec<Vec<(i64, Line)>>,
    table: [Option<Values>; KEYS],
    /// Version of the table, which gains columns.
    version: usize,
    past: Vec<(u64, [Option<Values>; KEYS], usize)>,
    epoch: u64,
    position: u64,
    snapshots: i64,
    /// What a restarted connector may send again.
    stream: Vec<Sent>,
}

const RECORDS_MAX: usize = 44;

/// The script of a run.
pub(super) fn write(dice: &mut Dice, plan: &Plan) -> Source {
    let parts = vec![Vec::new(); plan.sources];
    let (table, version) = ([None; KEYS], if plan.widening { 0 } else { small::WHOLE });
    let mut c = Connector { dice, plan, parts, table, version, past: Vec::new(), epoch: 1, position: 0, snapshots: 0, stream: Vec::new() };
    if plan.snapshots && c.dice.chance(1, 2) {
        for _ in 0..c.dice.below(4) {
            let _ = c.transact();
        }
        c.snapshot();
    }
    for _ in 0..=c.dice.below(if plan.long { 30 } else { 14 }) {
        if c.parts.iter().any(|p| p.len() > RECORDS_MAX) {
            break;
        }
        match c.dice.below(12) {
            8 if plan.snapshots => {
                // The slot was lost: nobody hears of these.
                for _ in 0..c.dice.below(4) {
                    let _ = c.transact();
                }
                c.snapshot();
            }
            9 if plan.failover && c.dice.chance(1, 2) => c.fail_over(),
            9 if plan.snapshots => c.read_one(),
            10 | 11 if plan.resend => c.send_again(),
            _ => {
                let sent = c.transact();
                c.stream_all(sent);
            }
        }
    }
    Source { parts: c.parts, table: c.table }
}

impl Connector<'_> {
    fn put(&mut self, part: usize, line: impl FnOnce(At) -> Line) {
        let last = self.parts[part].last().map_or(-1, |l| l.0);
        let hole = if self.plan.holes { self.dice.below(3) as i64 } else { 0 };
        let offset = last + 1 + hole;
        self.parts[part].push((offset, line(At { source: part as u8, offset, ordinal: 0 })));
    }

    fn seq(&self, order: u64) -> u64 {
        self.epoch << 40 | self.position << 16 | order
    }

    /// Equal records go to equal partitions, whatever decides: the table's key, or something else in the record.
    fn part_of(&self, key: u8, seq: u64) -> usize {
        if self.plan.scatter { (u64::from(key) * 31 + (seq >> 16) * 17 + seq) as usize % self.plan.sources } else { self.plan.home[key as usize] }
    }

    fn change(&self, key: u8, seq: u64, what: What) -> Sent {
        Sent { part: self.part_of(key, seq), key, seq, what, version: self.version, tombstone: false, delete: true }
    }

    fn delete(&mut self, key: u8, seq: u64) -> Sent {
        let style = if self.plan.tombstones { self.dice.below(3) } else { 0 };
        Sent { tombstone: style > 0, delete: style < 2, ..self.change(key, seq, What::Delete) }
    }

    fn send(&mut self, sent: Sent) {
        if self.plan.poison && self.dice.chance(1, 16) {
            self.put(sent.part, |_| Line::Poison);
        }
        if self.plan.holes && self.dice.chance(1, 12) {
            self.put(sent.part, |_| Line::Heartbeat);
        }
        let id = self.plan.ids[sent.key as usize];
        if sent.delete {
            self.put(sent.part, |at| Line::Record(Record { at, key: id, seq: sent.seq, what: sent.what }, sent.version));
        }
        if sent.tombstone {
            self.put(sent.part, |at| Line::Record(Record { at, key: id, seq: 0, what: What::Bare }, sent.version));
        }
    }

    fn stream_all(&mut self, sent: Vec<Sent>) {
        for sent in sent {
            self.send(sent);
            self.stream.push(sent);
        }
    }

    fn value(&mut self) -> Option<u8> {
        if self.dice.chance(1, 6) { None } else { Some(b'a' + self.dice.below(self.plan.letters) as u8) }
    }

    /// One transaction, and what the connector would send for it.
    fn transact(&mut self) -> Vec<Sent> {
        let key = self.dice.below(self.plan.keys) as u8;
        self.past.push((self.position, self.table, self.version));
        self.position += 1;
        if self.version < small::WHOLE && self.dice.chance(1, 5) {
            self.version += 1;
        }
        let has = |c: usize| small::columns(self.version).contains(&c);
        let has: [bool; 3] = std::array::from_fn(has);
        let seq = self.seq(2);
        let Some(row) = self.table[key as usize] else {
            let values = std::array::from_fn(|c| if has[c] { self.value() } else { None });
            self.table[key as usize] = Some(values);
            return vec![self.change(key, seq, What::Write(values.map(Some)))];
        };
        let what = self.dice.below(8);
        if what < 4 {
            let mut cells: Cells = row.map(Some);
            for (cell, _) in cells.iter_mut().zip(has).filter(|(_, has)| *has) {
                if self.dice.chance(1, 2) {
                    *cell = Some(self.value());
                } else if self.plan.unauthored && self.dice.chance(2, 3) {
                    *cell = None;
                }
            }
            self.table[key as usize] = Some(std::array::from_fn(|c| cells[c].unwrap_or(row[c])));
            return vec![self.change(key, seq, What::Write(cells))];
        }
        if what == 6
            && self.plan.key_changes
            && let Some(other) = (0..self.plan.keys).find(|k| self.table[*k].is_none())
        {
            self.table[other] = self.table[key as usize].take();
            let ids = [self.plan.ids[key as usize], self.plan.ids[other]];
            let [from, to] = ids.map(|id| murmur2::partition(&small::key(id), self.plan.logs as u32));
            let mut cells: Cells = row.map(Some);
            let delete = self.delete(key, seq);
            // What is not sent is in the other key's row, where that is in the same log, and a key's records come in their order. A tombstone
            // that stands alone has deleted that row before.
            if self.plan.unauthored && from == to && !self.plan.scatter && delete.delete {
                cells.iter_mut().zip(has).filter(|(_, has)| *has).for_each(|(cell, _)| *cell = cell.filter(|_| self.dice.chance(1, 2)));
            }
            let create = self.change(other as u8, seq, What::Arrive(cells, ids[0], from == to));
            let what = if delete.delete { What::Leave(ids[1]) } else { What::Delete };
            return vec![Sent { what, ..delete }, create];
        }
        if what == 7 && self.plan.truncates {
            self.table = [None; KEYS];
            let part = self.dice.below(self.plan.sources);
            return vec![Sent { part, ..self.change(0, seq, What::Truncate) }];
        }
        self.table[key as usize] = None;
        vec![self.delete(key, seq)]
    }

    /// Reads the whole table at a place while transactions go on, perhaps after failed attempts, and says when it has.
    fn snapshot(&mut self) {
        for attempt in 0.. {
            // A snapshot may stand at the place of the last transaction, of which nothing is behind it; its rows lose that tie.
            if self.dice.chance(1, 2) {
                self.position += 1;
            }
            self.snapshots += 1;
            let (seq, id, rows) = (self.seq(3), self.snapshots, self.table);
            let aborted = attempt < 2 && self.dice.chance(1, 4);
            let mut meanwhile = Vec::new();
            for (key, row) in rows.iter().enumerate() {
                let Some(row) = row else { continue };
                if aborted && self.dice.chance(1, 3) {
                    break;
                }
                self.send(self.change(key as u8, seq, What::Read(row.map(Some), Some(id))));
                if self.dice.chance(1, 4) {
                    meanwhile.extend(self.transact());
                }
            }
            if aborted {
                // What was to be streamed behind this attempt is lost with it.
                continue;
            }
            let part = self.dice.below(self.plan.sources);
            let end = Sent { part, ..self.change(0, seq, What::Sweep(id)) };
            self.stream.clear();
            // The notice of the end may come before or behind what is streamed next.
            let early = self.dice.chance(1, 2);
            if early {
                self.send(end);
            }
            self.stream_all(meanwhile);
            if !early {
                self.send(end);
            }
            return;
        }
    }

    /// Reads one row beside the stream.
    fn read_one(&mut self) {
        let key = self.dice.below(self.plan.keys);
        if let Some(row) = self.table[key].filter(|_| self.position > 0) {
            let sent = self.change(key as u8, self.seq(2), What::Read(row.map(Some), None));
            self.stream_all(vec![sent]);
        }
    }

    /// The connector was restarted and sends again, from an earlier place to the end; it may fail once on the way.
    fn send_again(&mut self) {
        let mut reached = self.stream.len();
        let tries = 1 + self.dice.below(2);
        for t in 0..tries {
            if reached == 0 {
                return;
            }
            let from = reached - 1 - self.dice.below(reached.min(5));
            let to = if t + 1 == tries { self.stream.len() } else { from + 1 + self.dice.below(self.stream.len() - from) };
            for i in from..to {
                self.send(self.stream[i]);
            }
            reached = to;
        }
    }

    /// The database is put back to an earlier state; the operator raises the epoch, the connector reads the table anew.
    fn fail_over(&mut self) {
        if self.past.is_empty() {
            return;
        }
        let back = self.past.len() - 1 - self.dice.below(self.past.len().min(6));
        (self.position, self.table, self.version) = self.past[back];
        self.past.truncate(back);
        self.epoch += 1;
        self.stream.clear();
        self.snapshot();
    }
}
