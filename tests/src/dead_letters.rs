//! Dead letters through the real program: replayed into their place, dropped, and parked behind by later events of their key.
//!
//! A source writes amounts as numbers, and now and then as bytes in base64, which nobody can read until the topology says so
//! (`decimal_handling_mode: precise`).

use std::time::Duration;

use landfall_schemas::Provenance;
use landfall_schemas::provenance::HEADER;
use serde_json::Value;

use crate::harness::kafka::{Kafka, Record};
use crate::harness::process::{Options, Output, Process};
use crate::harness::stores::{Column, Kind, columns};
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::scene::{self, DRAIN, HEAL};

const TABLE: &str = "accounts";
const DECLARED: &str = "    columns: { types: { id: int64, note: text, amount: \"decimal(10,2)\" } }\n";
const UNSENT: &str = "__debezium_unavailable_value";
/// 12.34 as unscaled bytes.
const BAD: &str = "\"BNI=\"";
const PATIENCE: Duration = Duration::from_secs(60);

struct Play {
    topology: Topology,
    kafka: Kafka,
    topic: String,
    sequence: u64,
}

impl Play {
    fn new(stem: &str, stores: Stores, extra: &str) -> Self {
        let mut topology = Topology::new(stem, &[TABLE], stores);
        topology.table_extra = format!("{DECLARED}{extra}");
        topology.write();
        let (kafka, topic) = (Kafka::new(), topology.source(TABLE));
        kafka.create_topic(&topic, 1, &[]);
        Self { topology, kafka, topic, sequence: 0 }
    }

    /// A change of a row, at the next place of the source's history.
    fn change(&mut self, op: char, id: u32, note: &str, amount: &str) {
        self.sequence += 1;
        let (commit, lsn) = (1_000 + 10 * self.sequence, 1_005 + 10 * self.sequence);
        let source = format!(
            r#"{{"connector":"postgresql","name":"x","ts_ms":1714557600000,"snapshot":"false","db":"d","sequence":"[\"{commit}\",\"{lsn}\"]","schema":"public","table":"{TABLE}","txId":{lsn},"lsn":{lsn}}}"#
        );
        let row = format!(r#"{{"id":{id},"note":"{note}","amount":{amount}}}"#);
        let (before, after) = if op == 'd' { (row.as_str(), "null") } else { ("null", row.as_str()) };
        let value = format!(r#"{{"before":{before},"after":{after},"source":{source},"op":"{op}","ts_ms":1714557600123}}"#);
        self.produce(id, Some(value.into_bytes()));
    }

    fn produce(&mut self, id: u32, value: Option<Vec<u8>>) {
        let key = Some(format!(r#"{{"id":{id}}}"#).into_bytes());
        self.kafka.produce(&[Record { topic: self.topic.clone(), partition: Some(0), key, value, ..Record::default() }]);
    }

    /// From now on the topology can read what it could not.
    fn mend(&self) {
        let yaml = self.topology.yaml();
        let mended = yaml.replacen("cdc: { ", "cdc: { decimal_handling_mode: precise, ", 1);
        assert_ne!(yaml, mended);
        std::fs::write(self.topology.file(), mended).expect("our own file");
    }

    fn letters(&self, process: &Process, count: usize) -> Vec<scene::Letter> {
        let found = wait::until(HEAL, || {
            let letters = scene::letters(&self.kafka, &self.topology);
            if letters.len() >= count { Ok(letters) } else { Err(format!("{} of {count} letters", letters.len())) }
        });
        found.unwrap_or_else(|why| panic!("{why}; the last lines:\n{}", process.tail()))
    }

    fn command(&self, words: &[&str]) -> Output {
        let file = self.topology.file();
        let words: Vec<&str> = ["dead-letters"].iter().chain(words).copied().chain([file.to_str().expect("a path of ours")]).collect();
        Options::command(&words).output(PATIENCE)
    }

    /// What `list --all` says of each letter: its key and what became of it.
    fn states(&self) -> Vec<(i64, String)> {
        let listed = self.command(&["list", "--all", "--output", "json"]);
        let line = |line: &str| {
            let entry: Value = serde_json::from_str(line).expect("JSON");
            (entry["offset"].as_i64().expect("an offset"), entry["state"].as_str().expect("a state").to_owned())
        };
        listed.stdout.lines().map(line).collect()
    }

    fn await_states(&self, process: &Process, expected: &[(i64, &str)]) {
        let found = wait::until(HEAL, || {
            let states = self.states();
            let same = states.iter().map(|(at, state)| (*at, state.as_str())).eq(expected.iter().copied());
            if same { Ok(()) } else { Err(format!("{states:?}")) }
        });
        found.unwrap_or_else(|why| panic!("{why}, not {expected:?}; the last lines:\n{}", process.tail()));
    }

    fn await_rows(&self, process: &mut Process, stores: &[&str], expected: &[(u32, Option<&str>, &str)]) {
        let text = |text: &str| Some(text.to_owned());
        let expected: Vec<Vec<Option<String>>> =
            expected.iter().map(|(id, note, amount)| vec![text(&id.to_string()), note.and_then(text), text(amount)]).collect();
        let found = wait::until(HEAL, || {
            for id in stores {
                let mut rows = self.topology.store(id).view(TABLE, &shown()).map(|v| v.rows).unwrap_or_default();
                rows.sort();
                if rows != expected {
                    return Err(format!("{id}: {rows:?}"));
                }
            }
            Ok(())
        });
        if let Err(why) = found {
            process.assert_running();
            panic!("{why}, not {expected:?}; the last lines:\n{}", process.tail());
        }
    }

    /// Source offsets in the order of the log, of one key.
    fn logged(&self, id: u32) -> Vec<i64> {
        let mut records = self.kafka.read(&self.topology.log(TABLE));
        records.sort_by_key(|r| r.offset);
        let place = |r: &Record| {
            let header = r.headers.iter().find(|(name, _)| name == HEADER).map(|(_, value)| value.as_slice()).expect("provenance");
            Provenance::decode(header).expect("provenance").place.offset
        };
        let key = landfall_key(id);
        records.iter().filter(|r| r.key.as_deref() == Some(&key)).map(place).collect()
    }

    fn committed(&self, process: &Process, offset: i64) {
        let group = self.kafka.group(&format!("{}.normalise", self.topology.name), &self.topic);
        let found = wait::until(HEAL, || match group.committed().and_then(|c| c.get(&0).copied()) {
            Some(at) if at >= offset => Ok(()),
            at => Err(format!("committed {at:?} of {offset}")),
        });
        found.unwrap_or_else(|why| panic!("{why}; the last lines:\n{}", process.tail()));
    }
}

fn shown() -> Vec<Column> {
    columns(&[("id", Kind::Int), ("note", Kind::Text), ("amount", Kind::Decimal(2))])
}

fn landfall_key(id: u32) -> Vec<u8> {
    let mut out = Vec::new();
    landfall_schemas::key::encode(landfall_schemas::LogicalType::Int64, landfall_schemas::Value::Int(id.into()), &mut out).expect("a key");
    out
}

fn status(process: &mut Process) -> Value {
    let url = format!("{}/api/status", process.http(HEAL));
    let text = ureq::get(&url).call().and_then(|mut answer| answer.body_mut().read_to_string()).unwrap_or_else(|e| panic!("{url}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{url}: {e}: {text}"))
}

const LIVE: [&str; 2] = ["serving", "warehouse"];

#[test]
fn a_replayed_letter_takes_its_place() {
    let mut play = Play::new("replay", Stores::ALL, "");
    play.change('c', 1, "a", "1.00");
    play.change('c', 2, "p", "1.00");
    play.change('u', 1, "b", BAD);
    play.change('u', 1, UNSENT, "5.00");
    play.change('u', 2, "q", BAD);
    play.change('u', 2, "r", "7.00");
    play.change('c', 3, "s", BAD);
    // The source has deleted the row again, without a word but this.
    play.produce(3, None);
    play.change('c', 4, "t", BAD);
    let mut process = play.topology.run().start();
    let letters = play.letters(&process, 4);
    assert_eq!(letters.iter().map(|l| (l.offset, l.code.as_str())).collect::<Vec<_>>(), [2, 4, 6, 8].map(|at| (at, "value.kind")));
    play.await_rows(&mut process, &LIVE, &[(1, Some("a"), "5.00"), (2, Some("r"), "7.00")]);
    play.committed(&process, 9);

    // Nothing was mended yet: each gets a new verdict and stays.
    let again = play.command(&["replay", "--table", TABLE]);
    assert_eq!(again.status.code(), Some(1), "{}", again.text());
    assert!(again.stdout.contains("4 letters failed again") && again.stdout.contains("value.kind"), "{}", again.text());
    assert_eq!(play.letters(&process, 8).len(), 8);
    play.await_states(&process, &[2, 4, 6, 8].map(|at| (at, "open")));
    process.drain_and_exit(DRAIN);

    // Asked for while nobody runs: it stays asked for.
    let waiting = play.command(&["replay", "--letter", &format!("{}/0/2", play.topic), "--wait", "1"]);
    assert!(waiting.status.code() == Some(1) && waiting.stdout.contains("1 letter not taken within 1 s"), "{}", waiting.text());
    assert!(play.states().contains(&(2, "asked".to_owned())));
    play.mend();
    let mut process = play.topology.run().start();
    play.await_rows(&mut process, &LIVE, &[(1, Some("b"), "5.00"), (2, Some("r"), "7.00")]);

    let replayed = play.command(&["replay", "--reason", "value"]);
    assert!(replayed.status.success() && replayed.stdout.contains("3 letters replayed"), "{}", replayed.text());
    let rows = [(1, Some("b"), "5.00"), (2, Some("r"), "7.00"), (4, Some("t"), "12.34")];
    play.await_rows(&mut process, &LIVE, &rows);
    play.await_states(&process, &[(2, "replayed"), (4, "replayed"), (6, "superseded"), (8, "replayed")]);
    let open = play.command(&["list"]);
    assert!(open.stdout.starts_with("no open dead letters"), "{}", open.text());
    let none = play.command(&["replay", "--all"]);
    assert!(none.status.code() == Some(1) && none.stderr.contains("no open dead letter"), "{}", none.text());

    // Two operators, or a process that died before it said what it had done: what was asked for is done again, and changes nothing.
    let before = play.kafka.ends(&play.topology.log(TABLE)).values().sum::<i64>();
    let ask: Vec<Record> = play.kafka.read(&play.topology.dead_letters()).into_iter().filter(asks).collect();
    assert!(ask.len() >= 4);
    play.kafka.produce(&ask[ask.len() - 3..]);
    let found = wait::until(HEAL, || {
        let now = play.kafka.ends(&play.topology.log(TABLE)).values().sum::<i64>();
        if now >= before + 3 { Ok(()) } else { Err(format!("the log grew by {}", now - before)) }
    });
    found.unwrap_or_else(|why| panic!("{why}; the last lines:\n{}", process.tail()));
    play.change('u', 4, "u", "9.00");
    let rows = [(1, Some("b"), "5.00"), (2, Some("r"), "7.00"), (4, Some("u"), "9.00")];
    play.await_rows(&mut process, &LIVE, &rows);
    process.drain_and_exit(DRAIN);
    play.await_rows(&mut process, &["serving", "warehouse", "local"], &rows);
}

fn asks(record: &Record) -> bool {
    let value: Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default()).expect("JSON");
    value["act"] == "replay"
}

#[test]
fn a_dropped_letter_is_settled() {
    let mut play = Play::new("drop", Stores::POSTGRES, "");
    play.change('c', 1, "a", "1.00");
    play.change('u', 1, "b", BAD);
    play.change('c', 2, "c", BAD);
    let mut process = play.topology.run().start();
    let _ = play.letters(&process, 2);
    let shown = play.command(&["show", &format!("{}/0/1", play.topic)]);
    for said in ["value.kind", "hint", "record time", "offset 1", "open"] {
        assert!(shown.stdout.contains(said), "{said:?} is not said:\n{}", shown.text());
    }
    let dropped = play.command(&["drop", "--key", r#"{"id":1}"#]);
    assert!(dropped.status.success() && dropped.stdout.starts_with("1 letter dropped"), "{}", dropped.text());
    play.await_states(&process, &[(1, "dropped"), (2, "open")]);
    let open = wait::until(HEAL, || {
        let status = status(&mut process);
        if status["open_letters"][TABLE]["value.kind"] == 1 { Ok(()) } else { Err(format!("{:#}", status["open_letters"])) }
    });
    open.unwrap_or_else(|why| panic!("{why}; the last lines:\n{}", process.tail()));
    play.await_rows(&mut process, &["serving"], &[(1, Some("a"), "1.00")]);
    process.drain_and_exit(DRAIN);
    // A process that is new knows it too: what was dropped does not come back.
    play.mend();
    let mut process = play.topology.run().start();
    let replayed = play.command(&["replay", "--all"]);
    assert!(replayed.status.success() && replayed.stdout.contains("1 letter replayed"), "{}", replayed.text());
    play.await_rows(&mut process, &["serving"], &[(1, Some("a"), "1.00"), (2, Some("c"), "12.34")]);
    process.drain_and_exit(DRAIN);
}

/// A letter outlives the retention of its topic, unless nothing of its record may be kept.
#[test]
fn letters_outlive_their_topic() {
    let hidden = "    columns: { types: { id: int64, note: text, amount: \"decimal(10,2)\", card: text }, exclude: [card] }\n";
    for (stem, hides) in [("kept", false), ("hidden", true)] {
        let mut play = Play::new(stem, Stores::POSTGRES, "");
        if hides {
            play.topology.table_extra = hidden.to_owned();
            play.topology.write();
        }
        play.change('c', 1, "a", "1.00");
        play.change('c', 2, "secret", BAD);
        play.change('c', 3, "b", BAD);
        let mut process = play.topology.run().start();
        let _ = play.letters(&process, 2);
        play.committed(&process, 3);
        process.drain_and_exit(DRAIN);
        let told: Vec<u8> = play.kafka.read(&play.topology.dead_letters()).into_iter().flat_map(|r| bytes(&r)).collect();
        assert_eq!(told.windows(6).any(|w| w == b"secret"), !hides, "what a letter keeps");
        play.mend();
        let mut process = play.topology.run().start();
        // While the topic has the record, it makes no difference.
        let replayed = play.command(&["replay", "--letter", &format!("{}/0/2", play.topic)]);
        assert!(replayed.status.success() && replayed.stdout.contains("1 letter replayed"), "{}", replayed.text());
        play.await_rows(&mut process, &["serving"], &[(1, Some("a"), "1.00"), (3, Some("b"), "12.34")]);
        play.kafka.delete_records(&play.topic, 0, 3);
        let replayed = play.command(&["replay", "--all"]);
        if hides {
            assert!(replayed.stdout.contains("replay.record_gone"), "{}", replayed.text());
            play.await_states(&process, &[(2, "replayed"), (1, "open")]);
        } else {
            assert!(replayed.status.success(), "{}", replayed.text());
            play.await_rows(&mut process, &["serving"], &[(1, Some("a"), "1.00"), (2, Some("secret"), "12.34"), (3, Some("b"), "12.34")]);
        }
        process.drain_and_exit(DRAIN);
    }
}

fn bytes(record: &Record) -> Vec<u8> {
    let headers = record.headers.iter().flat_map(|(_, value)| value.iter().copied());
    [&record.key, &record.value].into_iter().flatten().flatten().copied().chain(headers).collect()
}

/// While an event of a key is a dead letter, later ones of that key wait behind it: through a restart, and through `kill -9` in the middle of
/// their release. Then they stand in the log in their order, and the replicas are as if nothing had been.
#[test]
fn later_events_of_a_key_wait_and_follow_in_order() {
    let mut play = Play::new("park", Stores::ALL, "    park_key: true\n");
    play.change('c', 1, "a", "1.00");
    play.change('c', 2, "p", "1.00");
    play.change('u', 1, "b", BAD);
    play.change('u', 1, UNSENT, "2.00");
    play.change('u', 2, "q", "3.00");
    let mut process = play.topology.run().start();
    let letters = play.letters(&process, 2);
    assert_eq!(letters.iter().map(|l| (l.offset, l.code.as_str())).collect::<Vec<_>>(), [(2, "value.kind"), (3, "parked")]);
    play.await_rows(&mut process, &LIVE, &[(1, Some("a"), "1.00"), (2, Some("q"), "3.00")]);
    let parked = wait::until(HEAL, || {
        let status = status(&mut process);
        let open = &status["open_letters"][TABLE];
        if status["parked_keys"][TABLE] == 1 && open["parked"] == 1 && open["value.kind"] == 1 { Ok(()) } else { Err(format!("{status:#}")) }
    });
    parked.unwrap_or_else(|why| panic!("{why}; the last lines:\n{}", process.tail()));
    play.committed(&process, 5);
    process.kill();

    // Another process, with nothing of the first one's but Kafka: the key still waits.
    let mut process = play.topology.run_as(2).start();
    play.change('u', 1, UNSENT, "4.00");
    play.change('d', 2, "", "0");
    play.change('u', 1, "c", "5.00");
    let _ = play.letters(&process, 4);
    play.await_rows(&mut process, &LIVE, &[(1, Some("a"), "1.00")]);
    play.committed(&process, 8);
    assert_eq!((play.logged(1), play.logged(2)), (vec![0], vec![1, 4, 6]));
    // Those that only wait cannot be called past the one before them.
    let parked = play.command(&["replay", "--reason", "parked"]);
    assert!(parked.status.success() && parked.stdout.contains("3 events parked"), "{}", parked.text());
    process.drain_and_exit(DRAIN);

    // The process dies behind the second of four.
    play.mend();
    let mut process = play.topology.run_as(2).crash("post_replay", 2).start();
    let asked = play.command(&["replay", "--reason", "value.kind", "--wait", "0"]);
    assert!(asked.status.success() && asked.stdout.contains("1 letter asked for"), "{}", asked.text());
    let _ = process.wait(HEAL);
    assert!(process.aborted(), "{}", process.tail());
    let mut process = play.topology.run_as(2).start();
    let rows = [(1, Some("c"), "5.00")];
    play.await_rows(&mut process, &LIVE, &rows);
    play.await_states(&process, &[2, 3, 5, 7].map(|at| (at, "replayed")));
    let logged = play.logged(1);
    println!("the log of key 1: {logged:?}");
    assert!(logged[0] == 0 && logged.ends_with(&[2, 3, 5, 7]), "in order at last: {logged:?}");
    // The key is free.
    play.change('u', 1, "d", "6.00");
    let rows = [(1, Some("d"), "6.00")];
    play.await_rows(&mut process, &LIVE, &rows);
    process.drain_and_exit(DRAIN);
    play.await_rows(&mut process, &["serving", "warehouse", "local"], &rows);
    assert_eq!(scene::letters(&play.kafka, &play.topology).len(), 4, "nothing was set aside that was not before");
}

/// A drop releases the key too; an event among those that wait, which nobody can take, holds what is behind it.
#[test]
fn a_drop_releases_a_key_up_to_the_next_bad_event() {
    let mut play = Play::new("parkdrop", Stores { clickhouse: false, ..Stores::ALL }, "    park_key: true\n");
    play.change('c', 1, "a", "1.00");
    play.change('u', 1, "b", BAD);
    play.change('u', 1, "c", "2.00");
    play.change('u', 1, "d", BAD);
    play.change('u', 1, "e", "3.00");
    let mut process = play.topology.run().start();
    let codes: Vec<String> = play.letters(&process, 4).into_iter().map(|l| l.code).collect();
    assert_eq!(codes, ["value.kind", "parked", "value.kind", "parked"]);
    let dropped = play.command(&["drop", "--letter", &format!("{}/0/1", play.topic)]);
    assert!(dropped.status.success(), "{}", dropped.text());
    play.await_rows(&mut process, &["serving"], &[(1, Some("c"), "2.00")]);
    play.await_states(&process, &[(1, "dropped"), (2, "replayed"), (3, "open"), (4, "open")]);
    let dropped = play.command(&["drop", "--reason", "value.kind"]);
    assert!(dropped.status.success() && dropped.stdout.starts_with("1 letter"), "{}", dropped.text());
    play.await_rows(&mut process, &["serving"], &[(1, Some("e"), "3.00")]);
    assert_eq!(play.logged(1), [0, 2, 4]);
    process.drain_and_exit(DRAIN);
    play.await_rows(&mut process, &["serving", "local"], &[(1, Some("e"), "3.00")]);
}

/// What a replica has refused goes into the log once more, for all of them; the one that refuses it again says so again.
#[test]
fn a_letter_of_a_replica_is_judged_anew() {
    let mut play = Play::new("refused", Stores { clickhouse: false, ..Stores::ALL }, "");
    play.change('c', 1, "a\\u0000b", "1.00");
    play.change('c', 2, "c", "2.00");
    let mut process = play.topology.run().start();
    let letters = play.letters(&process, 1);
    assert_eq!((letters[0].code.as_str(), letters[0].replica.as_deref()), ("value.nul", Some("serving.accounts")));
    let _ = play.command(&["replay", "--reason", "value.nul"]);
    assert_eq!(play.letters(&process, 2).len(), 2);
    play.await_states(&process, &[(0, "open")]);
    play.change('u', 1, "d", "3.00");
    let rows = [(1, Some("d"), "3.00"), (2, Some("c"), "2.00")];
    play.await_rows(&mut process, &["serving"], &rows);
    // A later change has landed, so the refused one has nothing to say any more; its letter is settled by hand.
    let dropped = play.command(&["drop", "--all"]);
    assert!(dropped.status.success(), "{}", dropped.text());
    play.await_states(&process, &[(0, "dropped")]);
    process.drain_and_exit(DRAIN);
    play.await_rows(&mut process, &["serving", "local"], &rows);
}
