//! What a landing of the largest batch takes: DuckDB works in this process, and the whole of it has to stay under 300 MB.

use std::process::Command;

use landfall::sink::{Batch, Sink as _};
use landfall_schemas::Value;
use landfall_topology::plan::StoreKind;

use super::{Bench, begin, push, schema, target, texts};
use crate::conformance::Random;

const ROLE: &str = "LANDFALL_TEST_DUCKDB_MEMORY";
/// Bytes of a row's text: below the size at which DuckDB gives a text a page of its own.
const TEXT_BYTES: usize = 4_000;
/// Enough for nearly a row group of DuckDB's: a checkpoint rewrites the last one as a whole.
const LANDINGS: i64 = 26;

/// Not a test of its own: lands text that does not compress, in a process whose memory is nobody else's.
#[test]
fn child() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let most = StoreKind::DuckDb { path: String::new(), schema: String::new() }.batch_bytes_most().expect("a limit");
    let schema = schema(&[("id", "int64"), ("v", "text")], &["id"]);
    let mut target = target("t", &schema);
    let mut bench = Bench::new();
    let (fence, mut next) = begin(&mut bench.sink, &mut target);
    let mut random = Random(7);
    let mut batch = Batch::default();
    let (mut rows, mut text) = (0, String::new());
    for to in 1..=LANDINGS {
        batch.reset(0, fence, next, to);
        while batch.bytes() + TEXT_BYTES < most as usize {
            text.clear();
            text.extend((0..TEXT_BYTES).map(|_| char::from(33 + (random.next() >> 40) as u8 % 90)));
            push(&mut batch, &schema, &[Value::Int(rows), Value::Text(&text)], true);
            rows += 1;
        }
        bench.sink.land(&target, &batch).expect("lands");
        next = Some(to);
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("a process");
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("a peak").trim().trim_end_matches(" kB");
    assert_eq!(bench.read("SELECT count(*) FROM t"), texts(&[&[&rows.to_string()]]));
    println!("PEAK {peak} KiB with {} MiB a landing", most >> 20);
}

#[test]
fn the_largest_batch_stays_within_the_memory_of_a_process() {
    let output = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "sink_duckdb::memory::child", "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let said = text.lines().find_map(|l| l.split_once("PEAK ")).expect("it measured").1;
    println!("DuckDB: {said}");
    let peak: u64 = said.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!(peak < 300_000, "{peak} KiB resident");
}
