//! How fast 100 000 rows land, inserted and updated, with and without compression, and how long a landing without rows takes.
//!
//! Both are printed; only the count of rows is asserted, for how fast a machine is says nothing of the sink.

use std::time::Instant;

use landfall::sink::{Claim, Sink as _, version};
use landfall_schemas::{Decimal, Value};

use super::{Store, batch, begin, push};
use crate::conformance::schema;

#[test]
fn speed_of_100_000_rows() {
    let store = Store::new("speed");
    let columns = [
        ("id", "int64"),
        ("v", "int64"),
        ("s", "text"),
        ("f", "float64"),
        ("ts", "timestamptz(6)"),
        ("lc", "text"),
        ("d", "decimal(18,4)"),
        ("k", "uuid"),
    ];
    for compress in [false, true] {
        store.sql(&format!("DROP DATABASE IF EXISTS {} SYNC", store.database));
        let mut sink = store.sink().with_compression(compress);
        let (target, mut claim) = begin(&mut sink, schema(&columns, &["id"]));
        let mut best = [0.0_f64; 2];
        for round in 0..6_i64 {
            let mut batch = batch(0, claim, (round + 1) * 100_000);
            for i in 0..100_000_i64 {
                let text = format!("some text {}", i % 1000);
                let unscaled = (i * 100 + round).to_be_bytes();
                let values = [
                    Value::Int(if round < 3 { round * 100_000 + i } else { i * 3 }),
                    if i % 4 == 0 { Value::Null } else { Value::Int(i * 3) },
                    Value::Text(&text),
                    Value::Float64(i as f64 * 0.5),
                    Value::Timestamp(1_700_000_000_000_000 + i),
                    Value::Text(["a", "b", "c"][i as usize % 3]),
                    Value::Decimal(Decimal { unscaled: &unscaled, scale: 4 }),
                    Value::Uuid((i as u128).to_be_bytes()),
                ];
                push(&mut batch, &target.schema, &values, true, version(target.build, round * 100_000 + i));
            }
            let start = Instant::now();
            sink.land(&target, &batch).expect("landed");
            let rate = 100_000.0 / start.elapsed().as_secs_f64();
            claim.next = Some(batch.next);
            let best = &mut best[usize::from(round >= 3)];
            *best = best.max(rate);
        }
        println!("clickhouse_insert_100k{} {:.0} rows/s", if compress { "_lz4" } else { "" }, best[0]);
        println!("clickhouse_update_100k{} {:.0} rows/s", if compress { "_lz4" } else { "" }, best[1]);
        assert_eq!(store.ask("SELECT count() FROM {db}.t_live"), "300000");
    }
    let mut sink = store.sink();
    let (target, claim) = begin(&mut sink, schema(&columns, &["id"]));
    let first = claim.next.expect("a cursor");
    let start = Instant::now();
    for next in first..first + 20 {
        sink.land(&target, &batch(0, Claim { next: Some(next), ..claim }, next + 1)).expect("landed");
    }
    println!("clickhouse_empty_landing {:.2} ms", start.elapsed().as_secs_f64() * 50.0);
}
