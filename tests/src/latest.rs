//! `<log topic>.latest` through the real program: completed, deleted, killed, frozen, and read by a consumer that knows nothing of Landfall.

use std::time::Duration;

use crate::checker::Violation;
use crate::crash::{Campaign, Kill};
use crate::harness::kafka::{Kafka, Record};
use crate::harness::latest;
use crate::harness::process::Options;
use crate::harness::stores::{Kind, columns};
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::scene::{DRAIN, HEAL, Scene};
use crate::workload::{CUSTOMERS, Mix, ORDERS, PLACEHOLDER};

fn change(topic: &str, n: u64, op: char, id: u32, after: &str) -> Record {
    let (commit, lsn) = (1_000 + 10 * n, 1_005 + 10 * n);
    let source = format!(
        r#"{{"connector":"postgresql","name":"x","ts_ms":1714557600000,"snapshot":"false","db":"shop","sequence":"[\"{commit}\",\"{lsn}\"]","schema":"public","table":"notes","txId":{n},"lsn":{lsn}}}"#
    );
    let value = format!(r#"{{"before":null,"after":{after},"source":{source},"op":"{op}","ts_ms":1714557600123}}"#);
    let key = format!(r#"{{"id":{id}}}"#).into_bytes();
    Record { topic: topic.to_owned(), partition: Some(0), offset: 0, key: Some(key), value: Some(value.into_bytes()), headers: Vec::new() }
}

/// What an update does not send is taken from state: within a batch, in a later one, after `kill -9`, after a restart without state; a delete is null.
#[test]
fn what_is_not_sent_keeps_its_value_in_the_newest_rows() {
    let mut topology = Topology::new("latesttoast", &["notes"], Stores::LATEST);
    topology.table_extra = "    columns: { types: { id: int64, v: text, large: text } }\n".to_owned();
    topology.write();
    let kafka = Kafka::new();
    let topic = topology.source("notes");
    kafka.create_topic(&topic, 1, &[]);
    let row = |id: u32, v: &str, large: &str| format!(r#"{{"id":{id},"v":"{v}","large":"{large}"}}"#);
    let seen = columns(&[("id", Kind::Int), ("v", Kind::Text), ("large", Kind::Text)]);
    let expect = |process: &mut crate::harness::process::Process, rows: &[(u32, &str, &str)]| {
        let expected: Vec<_> =
            rows.iter().map(|(id, v, large)| vec![Some(id.to_string()), Some((*v).to_owned()), Some((*large).to_owned())]).collect();
        let landed = wait::until(HEAL, || {
            process.assert_running();
            let mut found = topology.store("latest").view("notes", &seen).map(|v| v.rows).unwrap_or_default();
            found.sort();
            if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
        });
        if let Err(why) = landed {
            panic!("{why} instead of {expected:?}; the last lines:\n{}", process.tail());
        }
    };
    let mut process = topology.run().start();
    kafka.produce(&[
        change(&topic, 0, 'c', 1, &row(1, "a", "LARGE-1")),
        change(&topic, 1, 'u', 1, &row(1, "b", PLACEHOLDER)),
        change(&topic, 2, 'c', 2, &row(2, "a", "LARGE-2")),
        change(&topic, 3, 'c', 3, &row(3, "a", "LARGE-3")),
    ]);
    expect(&mut process, &[(1, "b", "LARGE-1"), (2, "a", "LARGE-2"), (3, "a", "LARGE-3")]);
    kafka.produce(&[change(&topic, 4, 'u', 2, &row(2, "b", PLACEHOLDER)), change(&topic, 5, 'd', 3, "null")]);
    expect(&mut process, &[(1, "b", "LARGE-1"), (2, "b", "LARGE-2")]);
    process.kill();
    kafka.produce(&[change(&topic, 6, 'u', 1, &row(1, "c", PLACEHOLDER))]);
    let mut process = topology.run().start();
    expect(&mut process, &[(1, "c", "LARGE-1"), (2, "b", "LARGE-2")]);
    process.drain_and_exit(DRAIN);
    std::fs::remove_dir_all(topology.state(1)).expect("the state directory is there");
    kafka.produce(&[change(&topic, 7, 'u', 2, &row(2, "c", PLACEHOLDER)), change(&topic, 8, 'c', 3, &row(3, "z", "LARGE-4"))]);
    let mut process = topology.run().start();
    expect(&mut process, &[(1, "c", "LARGE-1"), (2, "c", "LARGE-2"), (3, "z", "LARGE-4")]);

    // The same picture in what people look at.
    let http = process.http(HEAL);
    let status: serde_json::Value =
        serde_json::from_str(&ureq::get(format!("{http}/api/status")).call().expect("answers").body_mut().read_to_string().expect("text"))
            .expect("JSON");
    let replica = &status["replicas"]["latest.notes"];
    assert_eq!((replica["table"].as_str(), replica["store"].as_str()), (Some("notes"), Some("latest")), "{status:#}");

    // Folded again under a process that runs: the same rows, under another build.
    let file = topology.file();
    let rebuilt = Options::command(&["rebuild", "latest.notes", file.to_str().expect("a path of ours")]).output(HEAL);
    assert!(rebuilt.status.success(), "{}", rebuilt.text());
    wait::expect("the rows are landed again", HEAL, || {
        process.assert_running();
        let records = kafka.read(&latest::topic(&topology.log("notes")));
        let again = latest::live(&records).into_iter().filter(|r| latest::header(r, "landfall.build") == Some("1")).count();
        if again == 3 { Ok(()) } else { Err(format!("{again} rows; the last lines:\n{}", process.tail())) }
    });
    expect(&mut process, &[(1, "c", "LARGE-1"), (2, "c", "LARGE-2"), (3, "z", "LARGE-4")]);
    process.drain_and_exit(DRAIN);

    let records = kafka.read(&latest::topic(&topology.log("notes")));
    let (records, rebuilt): (Vec<_>, Vec<_>) = records.into_iter().partition(|r| latest::header(r, "landfall.build") == Some("0"));
    let gone = rebuilt.iter().filter(|r| r.value.is_none() && latest::header(r, "landfall.key").is_none()).count();
    assert!(gone >= 3, "every row was deleted before: {rebuilt:?}");
    let placed = |r: &Record| latest::header(r, "landfall.offset").and_then(|o| o.parse::<i64>().ok()).expect("a log offset");
    let log = kafka.read(&topology.log("notes"));
    for record in &records {
        // Key and partition are those of the change that the header names.
        let named = log.iter().find(|l| (l.partition, l.offset) == (record.partition, placed(record))).expect("the log has it");
        assert_eq!(named.key, record.key);
    }
    let nulls: Vec<_> = records.iter().filter(|r| r.value.is_none()).map(|r| latest::header(r, "landfall.key")).collect();
    assert_eq!(nulls, [Some(r#"{"id":3}"#)], "one delete, one null");
    let bytes: Vec<u8> = records.into_iter().filter_map(|r| r.value).flatten().collect();
    assert!(!bytes.windows(PLACEHOLDER.len()).any(|w| w == PLACEHOLDER.as_bytes()), "no placeholder is seen");
}

/// Killed at every step of a landing and at random moments; what a consumer sees at any time never goes back, and is the source's in the end.
#[test]
fn the_newest_rows_survive_kills() {
    let at = |point: &'static str| [1, 3].map(|hit| Kill::At(point, hit));
    let kills =
        ["pre_land", "mid_land", "reply_lost", "post_land", "mid_state", "post_state"].into_iter().flat_map(at).chain([900, 1_700].map(Kill::After));
    let campaign = Campaign { kills: kills.collect(), stores: Stores::LATEST, ..Campaign::kill_test("latestkill", 71, 0) };
    let outcome = campaign.run();
    assert_eq!(outcome.violations.iter().map(Violation::to_string).collect::<Vec<_>>(), Vec::<String>::new());
    println!("{} kills in {:?}: {:?}", outcome.kills, outcome.took, outcome.summary);
}

/// Two processes, frozen in turn while they own partitions: the other takes over, and the one that wakes writes nothing that anybody sees.
#[test]
fn a_frozen_owner_of_the_newest_rows_loses() {
    let mut scene = Scene::on(Topology::new("latestzombie", &[ORDERS, CUSTOMERS], Stores::LATEST), 72, Mix::KILL);
    let sampler = scene.sampler(Duration::from_millis(100));
    let mut first = scene.topology.run_as(1).start();
    scene.expect_caught_up(&mut first);
    let mut second = scene.topology.run_as(2).start();
    for round in 0..4 {
        let (zombie, heir) = if round % 2 == 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
        scene.produce(30);
        zombie.signal("STOP");
        scene.produce(30);
        if let Err(why) = scene.caught_up(HEAL) {
            panic!("round {round}: nobody took over: {why}; the heir's last lines:\n{}", heir.tail());
        }
        zombie.signal("CONT");
        scene.produce(30);
        zombie.assert_running();
        heir.assert_running();
    }
    scene.expect_caught_up(&mut second);
    first.kill();
    scene.produce(30);
    let _ = scene.finish("four zombies of the newest rows", &mut second, sampler);
}
