//! The same changes in Avro, in a registry's frame, as Connect's Avro converter writes them.

use landfall::log::murmur2;
use landfall_schemas::dialect::{Decoder, IdBytes, Options, Registered};
use landfall_schemas::wire::{put_bytes, put_long};

use crate::workload::{Events, PARTITIONS};

/// Ids of the key's schema and the value's.
const IDS: [u8; 2] = [1, 2];

const KEY: &str = r#"{"type":"record","name":"Key","namespace":"shop.public.orders","fields":[{"name":"id","type":"long"}]}"#;

const VALUE: &str = r#"{"type":"record","name":"Envelope","namespace":"shop.public.orders","fields":[
    {"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"customer_id","type":"int"},
        {"name":"status","type":["null","string"]},{"name":"amount","type":["null",{"type":"bytes","scale":2,"precision":12,"connect.version":1,
        "connect.parameters":{"scale":"2","connect.decimal.precision":"12"},"connect.name":"org.apache.kafka.connect.data.Decimal",
        "logicalType":"decimal"}]},{"name":"qty","type":["null","int"]},{"name":"note","type":["null","string"]},
        {"name":"created_at","type":["null",{"type":"string","connect.name":"io.debezium.time.ZonedTimestamp"}]},
        {"name":"updated_at","type":["null",{"type":"long","connect.name":"io.debezium.time.Timestamp"}]},
        {"name":"active","type":["null","boolean"]},{"name":"payload","type":["null",{"type":"string","connect.name":"io.debezium.data.Json"}]}],
        "connect.name":"shop.public.orders.Value"}],"default":null},{"name":"after","type":["null","Value"],"default":null},
    {"name":"source","type":{"type":"record","name":"Source","namespace":"io.debezium.connector.postgresql","fields":[
        {"name":"version","type":"string"},{"name":"connector","type":"string"},{"name":"name","type":"string"},{"name":"ts_ms","type":"long"},
        {"name":"snapshot","type":["string","null"]},{"name":"db","type":"string"},{"name":"sequence","type":["null","string"]},
        {"name":"ts_us","type":["null","long"]},{"name":"ts_ns","type":["null","long"]},{"name":"schema","type":"string"},
        {"name":"table","type":"string"},{"name":"txId","type":["null","long"]},{"name":"lsn","type":["null","long"]},
        {"name":"xmin","type":["null","long"]},{"name":"origin","type":["null","string"]},{"name":"origin_lsn","type":["null","long"]}]}},
    {"name":"transaction","type":["null",{"type":"record","name":"block","namespace":"event","fields":[{"name":"id","type":"string"},
        {"name":"total_order","type":"long"},{"name":"data_collection_order","type":"long"}]}]},{"name":"op","type":"string"},
    {"name":"ts_ms","type":["null","long"]},{"name":"ts_us","type":["null","long"]},{"name":"ts_ns","type":["null","long"]}]}"#;

/// A decoder that has asked the registry already.
pub fn decoder() -> Decoder {
    let mut decoder = Decoder::new(Options { registry: Some(IdBytes::Four), ..Options::new("orders") });
    for (id, text) in IDS.into_iter().zip([KEY, VALUE]) {
        decoder.bring(u64::from(id), &Registered::Avro { text: text.to_owned(), references: Vec::new() });
    }
    decoder
}

/// As many events of the same table and the same mix as [`crate::workload::Workload::new`] makes.
pub fn events(events: usize) -> Vec<Events> {
    let tenth = (events / 10) as i64;
    let mut partitions: Vec<Events> = (0..PARTITIONS).map(|_| Events::default()).collect();
    let mut lsn = 24_000_000;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for (op, id) in (1..=6 * tenth).map(|id| ('c', id)).chain((1..=3 * tenth).map(|id| ('u', id))).chain((1..=tenth).map(|id| ('d', id))) {
        lsn += 168;
        key.clear();
        frame(IDS[0], &mut key);
        put_long(&mut key, id);
        value.clear();
        frame(IDS[1], &mut value);
        event(op, id, lsn, &mut value);
        partitions[murmur2::partition(&key, PARTITIONS) as usize].push(&key, &value);
    }
    partitions
}

fn frame(id: u8, out: &mut Vec<u8>) {
    out.extend([0, 0, 0, 0, id]);
}

fn some(out: &mut Vec<u8>) {
    put_long(out, 1);
}

fn text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn event(op: char, id: i64, lsn: i64, out: &mut Vec<u8>) {
    if op == 'd' {
        // A delete carries the key and values that nobody wrote.
        some(out);
        put_long(out, id);
        put_long(out, 0);
        out.extend([0; 8]);
        put_long(out, 0);
    } else {
        put_long(out, 0);
        some(out);
        row(op == 'u', id, out);
    }
    let millis = 1_796_033_218_171 + id / 100;
    text(out, "3.6.1.Final");
    text(out, "postgresql");
    text(out, "shop");
    put_long(out, millis);
    put_long(out, 0);
    text(out, "false");
    text(out, "shop");
    some(out);
    text(out, &format!("[\"{}\",\"{lsn}\"]", lsn - lsn % 20_160));
    for (per_milli, rest) in [(1_000, 112), (1_000_000, 112_000)] {
        some(out);
        put_long(out, millis * per_milli + rest);
    }
    text(out, "public");
    text(out, "orders");
    for number in [2700 + lsn / 20_160, lsn] {
        some(out);
        put_long(out, number);
    }
    // xmin, origin, origin_lsn, transaction.
    out.extend([0; 4]);
    text(out, &op.to_string());
    for (per_milli, rest) in [(1, 0), (1_000, 866), (1_000_000, 866_395)] {
        some(out);
        put_long(out, millis * per_milli + rest);
    }
}

fn row(updated: bool, id: i64, out: &mut Vec<u8>) {
    put_long(out, id);
    put_long(out, id % 1000);
    some(out);
    text(out, if updated { "upd" } else { ["new", "paid", "shipped", "done"][(id % 4) as usize] });
    some(out);
    let cents = (id * 100 / 7 % 10_000_000 + if updated { 100 } else { 0 }).to_be_bytes();
    let skip = (0..7).take_while(|i| cents[*i] == 0 && cents[i + 1] < 0x80).count();
    put_bytes(out, &cents[skip..]);
    some(out);
    put_long(out, id % 50);
    some(out);
    let mixed = [0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F].map(|factor| id.cast_unsigned().wrapping_mul(factor));
    text(out, &format!("note for order {id} {:016x}{:016x}", mixed[0], mixed[1]));
    some(out);
    let (day, second) = (1 + (id / 86_400) % 28, id % 86_400);
    text(out, &format!("2024-01-{day:02}T{:02}:{:02}:{:02}.000000Z", second / 3600, second / 60 % 60, second % 60));
    some(out);
    put_long(out, (1_704_067_200 + id) * 1000);
    some(out);
    out.push(u8::from(id % 2 == 0));
    some(out);
    text(out, &format!("{{\"k\": {id}, \"tags\": [\"a\", \"b\"]}}"));
}
