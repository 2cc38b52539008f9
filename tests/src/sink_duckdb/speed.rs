//! How fast 100 000 rows land, inserted and updated, and that a table that is rewritten again and again stays small.

use std::time::{Duration, Instant};

use landfall::sink::{Batch, Sink as _};
use landfall_schemas::{Decimal, TableSchema, Value};

use super::{Bench, begin, push, schema, target, texts};

/// The table of the measurements in the stores' report: 8 columns of 7 types.
fn columns() -> [(&'static str, &'static str); 8] {
    [
        ("id", "int64"),
        ("name", "text"),
        ("qty", "int32"),
        ("price", "float64"),
        ("amount", "decimal(18,4)"),
        ("ts", "timestamp(6)"),
        ("flag", "bool"),
        ("note", "text"),
    ]
}

fn fill(batch: &mut Batch, schema: &TableSchema, ids: impl Iterator<Item = i64>, salt: i64) {
    for id in ids {
        let (name, note) = (format!("name {} {salt}", id % 1000), format!("a note of some length {id}"));
        let amount = (i128::from(id) * 100 + i128::from(salt)).to_be_bytes();
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
        push(batch, schema, &values, true);
    }
}

/// What this process has used of the processors, in all its threads: tells a slow landing from a busy machine.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a process");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    // Fields 14 and 15 of proc(5), in ticks of 10 ms.
    let ticks: u64 = fields[11..=12].iter().map(|f| f.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn a_hundred_thousand_rows_land_fast() {
    const ROWS: i64 = 100_000;
    let schema = schema(&columns(), &["id"]);
    let mut target = target("speed", &schema);
    let mut bench = Bench::new();
    let (fence, mut next) = begin(&mut bench.sink, &mut target);
    let mut batch = Batch::default();
    let (mut took, mut busy) = ([Duration::MAX; 3], [Duration::MAX; 3]);
    let mut land = |bench: &mut Bench, kind: usize, ids: &mut dyn Iterator<Item = i64>| {
        let to = next.unwrap_or(0) + 1;
        batch.reset(0, fence, next, to);
        fill(&mut batch, &schema, ids, to);
        let (start, before) = (Instant::now(), processor_time());
        bench.sink.land(&target, &batch).expect("lands");
        took[kind] = took[kind].min(start.elapsed());
        busy[kind] = busy[kind].min(processor_time().saturating_sub(before));
        next = Some(to);
    };
    for round in 0..10 {
        land(&mut bench, 0, &mut (round * ROWS..(round + 1) * ROWS));
    }
    for round in 0..4 {
        land(&mut bench, 1, &mut (0..ROWS).map(|i| i * 10 + round));
    }
    for round in 0..20 {
        land(&mut bench, 2, &mut (0..10).map(|i| i * 1_000 + round));
    }
    for (kind, what) in ["insert", "update"].into_iter().enumerate() {
        let rate = ROWS as f64 / took[kind].as_secs_f64() / 1_000.0;
        println!("100 000 rows into DuckDB, best {what}: {rate:.0} k rows/s, {:?} of processor time", busy[kind]);
    }
    println!("10 rows: {:?}", took[2]);
    assert_eq!(bench.read("SELECT count(*), count(DISTINCT id) FROM speed"), texts(&[&["1000000", "1000000"]]));
}

#[test]
fn a_table_that_is_rewritten_stays_small() {
    const ROWS: i64 = 20_000;
    let schema = schema(&columns(), &["id"]);
    let mut target = target("rewritten", &schema);
    let mut bench = Bench::new();
    let (fence, mut next) = begin(&mut bench.sink, &mut target);
    let mut batch = Batch::default();
    let mut first = 0;
    for round in 1..=40_i64 {
        batch.reset(0, fence, next, round);
        fill(&mut batch, &schema, 0..ROWS, round);
        bench.sink.land(&target, &batch).expect("lands");
        next = Some(round);
        if round == 1 {
            bench.sink.idle().expect("closes");
            first = std::fs::metadata(bench.path()).expect("a file").len();
        }
    }
    bench.sink.idle().expect("closes");
    let last = std::fs::metadata(bench.path()).expect("a file").len();
    println!("file of 20 000 rows: {} KiB once, {} KiB after 40 times", first >> 10, last >> 10);
    assert!(last < first * 10, "{last} bytes after 40 landings of what takes {first}");
}
