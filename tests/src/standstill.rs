//! What stands still is named at once, and nothing else stands still with it: a part of the process that broke, a store that belongs to another
//! topology, a cluster that is not ready yet.

use std::time::Duration;

use serde_json::Value;

use crate::harness::stack::Private;
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::scene::{self, DRAIN, HEAL, Scene};
use crate::workload::{CUSTOMERS, Mix, ORDERS};

fn ask(http: &str, path: &str) -> (u16, String) {
    let address = http.strip_prefix("http://").and_then(|a| a.parse().ok()).expect("an address");
    let answer = landfall::cli::http::get(address, path, Duration::from_secs(5)).expect("answers");
    (answer.status, String::from_utf8(answer.body).expect("text"))
}

/// A worker of one store panics: that store stops by name, in the status, in the metrics and for whoever asks whether the process is ready.
#[test]
fn a_panic_in_a_store_stops_that_store_alone() {
    let mut scene = Scene::new("panicked", 81, Mix::CALM, Stores::ALL);
    let mut process = scene.topology.run().environment("LANDFALL_PANIC", "pre_land:2").start();
    let http = process.http(HEAL);
    let line = process.await_line("process.panicked", HEAL);
    let (code, text) = ask(&http, "/readyz");
    assert_eq!(code, 503, "{text}");
    let status: Value = serde_json::from_str(&ask(&http, "/api/status").1).expect("JSON");
    let parts = status["parts"].as_object().expect("parts that stand still");
    let stopped: Vec<&str> = parts.iter().filter(|(_, p)| p["stopped"] == true).filter_map(|(name, _)| name.strip_prefix("store ")).collect();
    let [store] = stopped[..] else { panic!("one store: {status:#}") };
    assert!(text.contains(&format!("store {store}")) && line.contains(store), "{text} {line}");
    let replicas = status["replicas"].as_object().expect("replicas").iter().filter(|(_, r)| r["store"] == store);
    let partitions: Vec<&Value> = replicas.flat_map(|(_, r)| r["partitions"].as_object().expect("partitions").values()).collect();
    assert!(!partitions.is_empty() && partitions.iter().all(|p| p["stopped"]["code"] == "process.panicked"), "{status:#}");
    let metrics = ask(&http, "/metrics").1;
    let counted = format!("landfall_sink_errors_total{{replica=\"{store}.{ORDERS}\",kind=\"process.panicked\"}} 1");
    assert!(metrics.contains(&counted), "{metrics}");

    // The others go on.
    scene.produce(60);
    for other in scene.topology.stores.iter().filter(|s| s.id() != store) {
        for table in [ORDERS, CUSTOMERS] {
            let landed = scene.landed(other, table, HEAL);
            landed.unwrap_or_else(|why| panic!("{} does not go on: {why}; the last lines:\n{}", other.id(), process.tail()));
        }
    }
    process.drain_and_exit(DRAIN);
    // Nothing is lost by it.
    let mut process = scene.topology.run().start();
    let sampler = scene.sampler(Duration::from_millis(500));
    let _ = scene.finish("a panic in a store", &mut process, sampler);
}

/// Another topology with the same ids, in the same database and the same file: refused by name, and nothing of ours is touched.
#[test]
fn two_topologies_in_one_store_do_not_meet() {
    let stores = Stores::ALL;
    let mut ours = Scene::on(Topology::new("ours", &[ORDERS, CUSTOMERS], stores), 82, Mix::CALM);
    let mut process = ours.topology.run().start();
    ours.produce(40);
    ours.expect_caught_up(&mut process);

    let mut second = Topology::new("theirs", &[ORDERS, CUSTOMERS], stores);
    second.stores.clone_from(&ours.topology.stores);
    second.write();
    let theirs = Scene::on(second, 83, Mix::CALM);
    // While ours lands, the file is not to be had, and the other servers' tables have an owner.
    let mut other = theirs.topology.run().start();
    let http = other.http(HEAL);
    for store in ["serving", "warehouse"] {
        let refused = wait::until(HEAL, || {
            let status: Value = serde_json::from_str(&ask(&http, "/api/status").1).expect("JSON");
            let partitions = status["replicas"][format!("{store}.{ORDERS}")]["partitions"].as_object().cloned().unwrap_or_default();
            let told = partitions.values().any(|p| {
                let what = p["stopped"]["what"].as_str().unwrap_or_default();
                p["stopped"]["code"] == "binding.table_exists" && what.contains(&format!("{}.{store}.{ORDERS}", ours.topology.name))
            });
            if told { Ok(()) } else { Err(format!("{status:#}")) }
        });
        refused.unwrap_or_else(|why| panic!("{store} is not refused with its owner's name: {why}\n{}", other.tail()));
    }
    let status: Value = serde_json::from_str(&ask(&http, "/api/status").1).expect("JSON");
    let waiting = &status["parts"]["store local"];
    assert!(waiting["reason"]["what"].as_str().is_some_and(|w| w.contains(&ours.topology.name)), "who holds the file is not said: {status:#}");
    process.drain_and_exit(DRAIN);
    // Now the file is free, and its tables have an owner, too.
    let _ = other.await_line("belongs to replica", HEAL);
    let line = other.await_line(&format!("{}.local.", ours.topology.name), HEAL);
    println!("{line}");
    other.drain_and_exit(DRAIN);

    let mut process = ours.topology.run().start();
    let sampler = ours.sampler(Duration::from_millis(500));
    let _ = ours.finish("another topology in the same stores", &mut process, sampler);
}

/// A process that is started while its broker restarts waits for it, and says so; it does not give up with the broker's error.
#[test]
fn a_start_during_a_restart_of_the_broker() {
    let private = Private::start(&["kafka"]);
    let topology = Topology::on(&private.kafka(), "", "restarting", &[ORDERS, CUSTOMERS], Stores::DUCKDB);
    let mut scene = Scene::on(topology, 84, Mix::CALM);
    scene.produce(20);
    let mut process = scene.topology.run().start();
    let _ = process.http(HEAL);
    private.control(&["restart-broker", "TERM"]);
    let caught_up = scene::caught_up(&scene.topology, &scene.kafka, HEAL);
    caught_up.unwrap_or_else(|why| panic!("{why}; the last lines:\n{}", process.tail()));
    process.assert_running();
    process.drain_and_exit(DRAIN);
}
