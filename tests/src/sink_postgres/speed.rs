//! How fast rows land, and that many tables on one connection cost each no more.
//!
//! Beside it stands the floor: what the server alone takes for the same statement, with nothing sent.

use std::time::Instant;

use landfall::sink::{Batch, Delta, Sink as _, Target};
use landfall_schemas::{Decimal, Value};

use super::{Home, Owner, pair, text};
use crate::conformance::{encode, encode_key, schema};

/// A connection that lands three hundred tables in turn lands each as fast as one alone: no cost grows with the number of stages.
#[test]
fn many_tables_share_a_connection() {
    let home = Home::new("many");
    let mut owner = home.open("t0", pair());
    let time = |owner: &mut Owner, count: i64| {
        let begun = Instant::now();
        for _ in 0..count {
            let next = owner.claim.next.unwrap_or(0) + 1;
            owner.land(next, &[(&text(next, "x"), true)]);
        }
        begun.elapsed().as_secs_f64() * 1000.0 / count as f64
    };
    let _ = time(&mut owner, 3);
    let alone = time(&mut owner, 40);
    let (target, claim) = (owner.target.clone(), owner.claim);
    for at in 1..150 {
        let replica = format!("{}.t{at}", home.schema);
        let table = format!("t{at}");
        let build = owner.sink.open(&replica, &table, None).expect("opens").build;
        owner.target = Target { replica, table, build, ..target.clone() };
        owner.sink.prepare(&owner.target).expect("prepares");
        owner.claim = owner.sink.claim(&owner.target, 0).expect("claims");
        owner.land(1, &[(&text(1, "x"), true)]);
    }
    (owner.target, owner.claim) = (target, claim);
    let together = time(&mut owner, 40);
    println!("one-row landing: {alone:.2} ms with 1 stage, {together:.2} ms with 150");
    assert!(together < alone * 4.0 + 20.0, "{alone} {together}");
}

/// Seconds that a process of this machine has had of a processor; nothing where it is another's.
fn cpu_seconds(process: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

/// Prints rows a second for batches of 100 000 in a table of a million, beside what the server alone takes for the same statement.
#[test]
fn speed_of_large_batches() {
    let home = Home::new("speed");
    let columns = [
        ("id", "int64"),
        ("name", "text"),
        ("qty", "int32"),
        ("price", "float64"),
        ("amount", "decimal(18,4)"),
        ("ts", "timestamptz(6)"),
        ("flag", "bool"),
        ("note", "text"),
    ];
    let mut owner = home.open("t", schema(&columns, &["id"]));
    let base: i64 = std::env::var("LANDFALL_SPEED_ROWS").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    home.admin.run(&format!(
        "INSERT INTO {0} SELECT i, 'name '||(i%1000), i%500, i*0.5, i/100.0, now(), i%2=0, CASE WHEN i%4<>0 THEN 'a note of some length '||i END \
         FROM generate_series(0,{1}) i; ANALYZE {0}; CHECKPOINT",
        home.table("t"),
        base - 1
    ));
    let batch = |owner: &Owner, ids: &mut dyn Iterator<Item = i64>, salt: i64, live: bool| {
        let mut batch = Batch::default();
        batch.reset(0, owner.claim.fence, owner.claim.next, owner.claim.next.unwrap_or(0) + 1);
        for id in ids {
            let (name, note) = (format!("name {} {salt}", id % 1000), format!("a note of some length {id}"));
            let amount = (id * 100).to_be_bytes();
            let values = [
                Value::Int(id),
                Value::Text(&name),
                Value::Int(id % 500),
                Value::Float64(id as f64 * 0.5),
                Value::Decimal(Decimal { unscaled: &amount, scale: 4 }),
                Value::Timestamp(1_700_000_000_000_000 + id),
                Value::Bool(id % 2 == 0),
                if id % 4 == 0 { Value::Null } else { Value::Text(&note) },
            ];
            let (key, row) = (encode_key(&owner.target.schema, &values), encode(&owner.target.schema, &values));
            batch.push(Delta { key: &key, row: live.then_some(&row), version: 1 });
        }
        batch
    };
    const ROWS: i64 = 100_000;
    let step = (base / ROWS).max(1);
    let mut land = |what: &str, first: i64, step: i64, salt: i64, live: bool| {
        let batch = batch(&owner, &mut (0..ROWS).map(|i| first + i * step), salt, live);
        let process = home.admin.one(&format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{}'", home.schema));
        let cpu = || (cpu_seconds("thread-self"), cpu_seconds(&process));
        let (begun, before) = (Instant::now(), cpu());
        owner.sink.land(&owner.target, &batch).expect("lands");
        let (seconds, after) = (begun.elapsed().as_secs_f64(), cpu());
        owner.claim.next = Some(owner.claim.next.unwrap_or(0) + 1);
        let micros = |from: f64, to: f64| (to - from) * 1e6 / ROWS as f64;
        println!(
            "{what}: {:.0} rows/s; CPU a row: own {:.2} us, server {:.2} us",
            ROWS as f64 / seconds,
            micros(before.0, after.0),
            micros(before.1, after.1)
        );
    };
    for round in 0..2 {
        land("insert", base + round * ROWS, 1, 0, true);
        land("update", 0, step, round + 1, true);
        land("unchanged", 0, step, round + 1, true);
        land("delete", base + round * ROWS, 1, 0, false);
    }
    // The floor: the same rows out of a filled stage, nothing sent.
    let stage = "c0 bigint, c1 text, c2 int, c3 float8, c4 numeric(18,4), c5 timestamptz, c6 bool, c7 text";
    home.admin.run(&format!("CREATE TEMP TABLE floor ({stage})"));
    for (what, first, step) in [("insert", base * 2, 1), ("update", 0, step)] {
        home.admin.run(&format!(
            "TRUNCATE floor; INSERT INTO floor SELECT i, 'name '||i, i%500, i*0.5, i/100.0, now(), i%2=0, 'a note of some length '||i \
             FROM (SELECT {first} + i * {step} i FROM generate_series(0,{}) i) s",
            ROWS - 1
        ));
        let process = home.admin.one("SELECT pg_backend_pid()");
        let (begun, before) = (Instant::now(), cpu_seconds(&process));
        home.admin.run(&format!(
            "INSERT INTO {} AS t SELECT * FROM floor ON CONFLICT (id) DO UPDATE SET name=excluded.name, qty=excluded.qty, price=excluded.price, \
             amount=excluded.amount, ts=excluded.ts, flag=excluded.flag, note=excluded.note WHERE ROW(t.name,t.qty,t.amount,t.ts,t.flag,t.note) \
             IS DISTINCT FROM ROW(excluded.name,excluded.qty,excluded.amount,excluded.ts,excluded.flag,excluded.note)",
            home.table("t")
        ));
        let (seconds, after) = (begun.elapsed().as_secs_f64(), cpu_seconds(&process));
        println!("floor of {what}: {:.0} rows/s; CPU a row: server {:.2} us", ROWS as f64 / seconds, (after - before) * 1e6 / ROWS as f64);
    }
}
