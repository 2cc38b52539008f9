//! Several processes, frozen processes, services that go away, disks that are lost: exact each time (RELIABILITY.md B 11, 12, 16, 18, 20,
//! 23, 30, 38).
//!
//! Tests that stop a service start one of their own, so that no other test loses it.

#![allow(clippy::disallowed_methods, reason = "the rules of the core about clocks and threads do not bind tests of real processes")]

use std::time::{Duration, Instant};

use crate::harness::process::Process;
use crate::harness::stack::{self, Private};
use crate::harness::stores::{ClickHouse, Postgres, Store};
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::scene::{DRAIN, HEAL, Scene};
use crate::workload::{CUSTOMERS, Mix, ORDERS, customer_columns, order_columns};

/// Rounds of rebalances and of zombies.
const ROUNDS: u32 = 10;
/// Pause of the samplers of these tests.
const PAUSE: Duration = Duration::from_millis(200);
/// How far behind the other stores may be while one is down.
const BEHIND: Duration = Duration::from_secs(2);
/// Resident memory while a store is down.
const RESIDENT: u64 = 300 << 20;

/// What a process says of itself.
fn status(process: &mut Process) -> serde_json::Value {
    let url = format!("{}/api/status", process.http(HEAL));
    let text = ureq::get(&url).call().and_then(|mut answer| answer.body_mut().read_to_string()).unwrap_or_else(|e| panic!("{url}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{url}: {e}: {text}"))
}

/// Waits until a process owns a partition of some source topic, and of some replica in each of these stores.
fn await_owner(process: &mut Process, stores: &[&str]) {
    let found = wait::until(HEAL, || {
        process.assert_running();
        let status = status(process);
        let owns = |v: &serde_json::Value| v.as_object().is_some_and(|o| !o.is_empty());
        let of_store = |s: &str| [ORDERS, CUSTOMERS].iter().any(|t| owns(&status["replicas"][format!("{s}.{t}")]["partitions"]));
        let source = status["sources"].as_object().is_some_and(|topics| topics.values().any(owns));
        if source && stores.iter().all(|s| of_store(s)) { Ok(()) } else { Err("it owns no partition yet") }
    });
    if let Err(why) = found {
        panic!("process {}: {why}; its last lines:\n{}", process.id(), process.tail());
    }
}

#[test]
fn rebalances() {
    let mut scene = Scene::new("rebalance", 21, Mix::KILL, Stores::ALL);
    let sampler = scene.sampler(PAUSE);
    let mut old = scene.topology.run_as(0).start();
    for round in 1..=ROUNDS {
        scene.produce(30);
        let mut new = scene.topology.run_as(round % 2).start();
        await_owner(&mut new, &["serving", "warehouse"]);
        scene.produce(30);
        // The old one leaves in an orderly way, or as `kill -9` does.
        if round % 3 == 0 {
            old.kill()
        } else {
            old.drain_and_exit(DRAIN)
        }
        scene.produce(30);
        await_owner(&mut new, &["serving", "warehouse", "local"]);
        old = new;
    }
    let _ = scene.finish("ten processes one after the other", &mut old, sampler);
}

/// A process stops in its tracks while it owns partitions of everything, another takes over, the first wakes and goes on as if nothing had
/// been. The first owns the DuckDB file too, which is one process's alone: nobody can take it over while it is frozen, the other stores do
/// not wait for it, and its replica is made up for when it wakes. In the end it is killed while frozen, and the file goes to the other.
#[test]
fn zombies() {
    let mut scene = Scene::new("zombie", 22, Mix::KILL, Stores::ALL);
    let sampler = scene.sampler(PAUSE);
    let mut first = scene.topology.run_as(1).start();
    await_owner(&mut first, &["serving", "warehouse", "local"]);
    let mut second = scene.topology.run_as(2).start();
    for round in 0..ROUNDS {
        await_owner(&mut first, &["serving", "warehouse", "local"]);
        freeze(&mut scene, &mut first, &mut second, round);
        if round % 2 == 1 {
            await_owner(&mut second, &["serving", "warehouse"]);
            freeze(&mut scene, &mut second, &mut first, round);
        }
        if let Err(why) = scene.landed(scene.topology.store("local"), ORDERS, HEAL) {
            panic!("round {round}: the owner of the file does not go on: {why}; its last lines:\n{}", first.tail());
        }
    }
    if let Err(why) = scene.caught_up(HEAL) {
        for process in [&mut first, &mut second] {
            println!("process {}: {:#}\n{}", process.id(), status(process)["sources"], process.tail());
        }
        panic!("two processes that were frozen in turn do not catch up: {why}");
    }
    first.signal("STOP");
    scene.produce(30);
    first.kill();
    await_owner(&mut second, &["serving", "warehouse", "local"]);
    let _ = scene.finish("fifteen zombies", &mut second, sampler);
}

/// Freezes a process until another has landed what the first owned, in both stores that are not one process's alone; then it wakes.
fn freeze(scene: &mut Scene, zombie: &mut Process, heir: &mut Process, round: u32) {
    scene.produce(30);
    zombie.signal("STOP");
    scene.produce(30);
    let source = scene.kafka.group(&format!("{}.normalise", scene.topology.name), &scene.topology.source(ORDERS));
    let ends = scene.kafka.ends(&scene.topology.source(ORDERS));
    let mut taken = wait::until(HEAL, || match source.committed() {
        Some(c) if ends.iter().all(|(p, end)| c.get(p).is_some_and(|at| at >= end)) => Ok(()),
        c => Err(format!("committed {c:?} of {ends:?}")),
    });
    for id in ["serving", "warehouse"] {
        taken = taken.and_then(|()| scene.landed(scene.topology.store(id), ORDERS, HEAL).map_err(|why| format!("{id}: {why}")));
    }
    if let Err(why) = taken {
        panic!("round {round}: the heir did not take over: {why}; its last lines:\n{}", heir.tail());
    }
    zombie.signal("CONT");
    scene.produce(30);
    zombie.assert_running();
    heir.assert_running();
}

#[test]
fn broker_restart() {
    let private = Private::start(&["kafka"]);
    let topology = Topology::on(&private.kafka(), &stack::postgres(), "broker", &[ORDERS, CUSTOMERS], Stores::ALL);
    let mut scene = Scene::on(topology, 23, Mix::KILL);
    let sampler = scene.sampler(PAUSE);
    let mut process = scene.topology.run().start();
    scene.expect_caught_up(&mut process);
    for signal in ["TERM", "KILL"] {
        scene.produce(100);
        private.control(&["restart-broker", signal]);
        scene.produce(100);
        process.assert_running();
        scene.expect_caught_up(&mut process);
    }
    let _ = scene.finish("two restarts of the broker", &mut process, sampler);
}

/// One store is down for a minute (`LANDFALL_OUTAGE_SECONDS`): the others do not notice, and memory does not grow.
#[test]
fn postgres_outage() {
    let seconds = std::env::var("LANDFALL_OUTAGE_SECONDS").map_or(60, |s| s.parse().expect("LANDFALL_OUTAGE_SECONDS is a number"));
    let private = Private::start(&["postgres"]);
    let topology = Topology::on(&stack::kafka(), &private.postgres(), "outage", &[ORDERS, CUSTOMERS], Stores::ALL);
    let mut scene = Scene::on(topology, 24, Mix::KILL);
    let sampler = scene.sampler(PAUSE);
    let mut process = scene.topology.run().start();
    scene.produce(50);
    scene.expect_caught_up(&mut process);
    private.control(&["stop", "postgres"]);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut slowest, mut largest, mut slices) = (Duration::ZERO, 0, 0);
    while Instant::now() < end {
        scene.produce(40);
        slices += 1;
        // What the logs hold now must have landed in the other stores before long.
        let (held, logs) = (Instant::now(), [ORDERS, CUSTOMERS].map(|t| (t, scene.kafka.ends(&scene.topology.log(t)))));
        let landed = wait::until(HEAL, || {
            process.assert_running();
            let status = status(&mut process);
            for (table, ends) in &logs {
                for store in ["warehouse", "local"] {
                    let partitions = &status["replicas"][format!("{store}.{table}")]["partitions"];
                    if let Some((p, end)) = ends.iter().find(|(p, end)| partitions[p.to_string()]["next"].as_i64().unwrap_or(0) < **end) {
                        return Err(format!("{store}.{table}: partition {p} is not at {end}"));
                    }
                }
            }
            Ok(())
        });
        if let Err(why) = landed {
            panic!("while Postgres is down: {why}; the last lines:\n{}", process.tail());
        }
        slowest = slowest.max(held.elapsed());
        largest = largest.max(process.resident().unwrap_or_default());
    }
    println!("{slices} slices while Postgres was down: the others at most {slowest:?} behind, resident memory at most {} MB", largest >> 20);
    assert!(slowest < BEHIND, "the other stores were {slowest:?} behind while Postgres was down");
    assert!(largest < RESIDENT, "resident memory rose to {} MB", largest >> 20);
    private.control(&["start", "postgres"]);
    let _ = scene.finish("an outage of Postgres", &mut process, sampler);
}

#[test]
fn state_deleted() {
    let mut scene = Scene::new("statelost", 25, Mix::KILL, Stores::ALL);
    let sampler = scene.sampler(PAUSE);
    for round in 0..4 {
        let mut process = scene.topology.run().start();
        scene.produce(80);
        scene.expect_caught_up(&mut process);
        scene.produce(40);
        if round % 2 == 0 {
            process.kill()
        } else {
            process.drain_and_exit(DRAIN)
        }
        scene.look_at_file();
        std::fs::remove_dir_all(scene.topology.state(1)).expect("the state directory is there");
    }
    let mut process = scene.topology.run().start();
    let _ = scene.finish("state lost four times", &mut process, sampler);
}

/// Each store's replica is put back to what it was before, while nobody lands: state is ahead of it and must not be trusted.
#[test]
fn sinks_put_back() {
    let mut scene = Scene::new("putback", 26, Mix::KILL, Stores::ALL);
    scene.groups = false;
    let mut process = scene.topology.run().start();
    scene.produce(80);
    scene.expect_caught_up(&mut process);
    process.drain_and_exit(DRAIN);
    for store in &scene.topology.stores {
        keep(store);
    }
    let mut process = scene.topology.run().start();
    scene.produce(80);
    scene.expect_caught_up(&mut process);
    process.drain_and_exit(DRAIN);
    for store in &scene.topology.stores {
        put_back(store);
    }
    let mut process = scene.topology.run().start();
    scene.produce(80);
    let sampler = scene.sampler(PAUSE);
    scene.expect_caught_up(&mut process);
    // And once more under a living lander, where the store has transactions: the next landing finds another cursor than it left.
    scene.forget_samples();
    drop(sampler);
    put_back(scene.topology.store("serving"));
    scene.produce(80);
    let sampler = scene.sampler(PAUSE);
    let _ = scene.finish("stores put back to an older copy", &mut process, sampler);
}

/// Copies rows and cursors of a store aside.
fn keep(store: &Store) {
    match store {
        Store::Postgres { server, database, .. } => {
            let mut postgres = Postgres::connect(server, database).expect("Postgres is up");
            postgres.run(&format!(
                "CREATE SCHEMA kept; CREATE TABLE kept.cursor AS TABLE landfall.cursor; CREATE TABLE kept.{ORDERS} AS TABLE replica.{ORDERS}; \
                 CREATE TABLE kept.{CUSTOMERS} AS TABLE replica.{CUSTOMERS}"
            ));
        }
        Store::ClickHouse { database } => {
            let clickhouse = ClickHouse::new();
            // The cursor before the rows, as a backup of a store without transactions must do.
            for table in ["landfall_cursor", ORDERS, CUSTOMERS] {
                clickhouse.run(&format!("CREATE TABLE {database}.kept_{table} AS {database}.{table}"));
                clickhouse.run(&format!("INSERT INTO {database}.kept_{table} SELECT * FROM {database}.{table}"));
            }
        }
        Store::DuckDb { path, .. } => {
            let _ = std::fs::copy(path, path.with_extension("kept")).expect("the file is there");
        }
        Store::Latest { .. } => unreachable!("a topic has no copies to put back"),
    }
}

/// Puts back what [`keep`] copied.
fn put_back(store: &Store) {
    match store {
        Store::Postgres { server, database, .. } => {
            let mut postgres = Postgres::connect(server, database).expect("Postgres is up");
            postgres.run(&format!(
                "BEGIN; DELETE FROM landfall.cursor; INSERT INTO landfall.cursor TABLE kept.cursor; DELETE FROM replica.{ORDERS}; \
                 INSERT INTO replica.{ORDERS} TABLE kept.{ORDERS}; DELETE FROM replica.{CUSTOMERS}; \
                 INSERT INTO replica.{CUSTOMERS} TABLE kept.{CUSTOMERS}; COMMIT"
            ));
        }
        Store::ClickHouse { database } => {
            let clickhouse = ClickHouse::new();
            for table in ["landfall_cursor", ORDERS, CUSTOMERS] {
                clickhouse.run(&format!("TRUNCATE TABLE {database}.{table}"));
                clickhouse.run(&format!("INSERT INTO {database}.{table} SELECT * FROM {database}.kept_{table}"));
            }
        }
        Store::DuckDb { path, .. } => {
            let wal = path.with_extension("duckdb.wal");
            if wal.exists() {
                std::fs::remove_file(&wal).expect("our own file");
            }
            let _ = std::fs::copy(path.with_extension("kept"), path).expect("the copy is there");
        }
        Store::Latest { .. } => unreachable!("a topic has no copies to put back"),
    }
}

/// A source topic is deleted and created again, under a running process and while none runs: its offsets mean other records now. Once it soon holds
/// more than it did, so that records stand where the next one is awaited, and once less.
#[test]
fn source_recreated() {
    for (live, again) in [(true, 160), (true, 20), (false, 40)] {
        let mut scene = Scene::new("recreated", 27, Mix::CALM, Stores::ALL);
        let mut process = scene.topology.run().start();
        scene.produce(40);
        scene.expect_caught_up(&mut process);
        if !live {
            process.drain_and_exit(DRAIN);
        }
        let source = scene.topology.source(ORDERS);
        scene.kafka.delete_topic(&source);
        scene.kafka.create_topic(&source, crate::scene::SOURCE_PARTITIONS, &[]);
        let (serving, columns) = (scene.topology.store("serving").clone(), order_columns());
        let before = serving.view(ORDERS, &columns).expect("the replica is there").rows;
        scene.produce(again);
        if !live {
            process = scene.topology.run().start();
        }
        let _ = process.await_line("source.recreated", HEAL);
        // The table beside it goes on.
        let customers = scene.topology.source(CUSTOMERS);
        let expected = crate::reference::replica(&scene.kafka.read(&customers), &["id", "name"]).0.len();
        wait::expect("the other table goes on", HEAL, || match serving.view(CUSTOMERS, &customer_columns()).map_or(0, |v| v.rows.len()) {
            n if n == expected => Ok(()),
            n => Err(format!("{n} of {expected} rows")),
        });
        assert_eq!(sorted(serving.view(ORDERS, &columns).expect("the replica is there").rows), sorted(before), "the replica stays as it was");
        process.drain_and_exit(DRAIN);
    }
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}
