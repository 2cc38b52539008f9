//! What the decoder keeps between records must not show: plans, orders of members, and the places that it gives to changes.

use super::*;

const FILES: [&str; 9] = [
    "pg-types-schema",
    "pg-types-string-schema",
    "pg-types",
    "pg-types-nanos-schema",
    "pg-types-timespecial-schema",
    "pg-ops",
    "pg-ops-schema",
    "my-ops-schema",
    "my-types-schema",
];

/// Types for every column of `pg-ops`, and the columns of types that have none, so that all of it decodes.
fn pg_ops() -> Options {
    let types = [
        "id int32",
        "Id int32",
        "userId int32",
        "userName text",
        "Név text",
        "quoted \"col\" text",
        "with space text",
        "select text",
        "日本語 text",
        "dash-col int32",
        "1digit int32",
        "dot.col int32",
        "dollar$ int32",
        "first_name text",
        "last_name text",
        "email text",
        "balance decimal(12,2)",
        "created_at timestamptz(6)",
        "region text",
        "customer_id int32",
        "total decimal(10,2)",
        "a json",
        "b text",
        "c text",
        "d int32",
        "e text",
        "c_renamed text",
        "a2 decimal(12,4)",
        "ts json",
        "k1 int32",
        "k2 text",
        "v text",
        "small int32",
        "big text",
        "bigj json",
        "bigb bytes",
        "biga json",
        "p int32",
        "n int32",
        "note text",
    ];
    let split = |t: &str| {
        let (name, ty) = t.rsplit_once(' ').expect("a name and a type");
        (name.to_owned(), ty.parse().expect(ty))
    };
    Options { types: types.iter().map(|t| split(t)).collect(), decimal_strings: DecimalStrings::Base64, ..Options::new("t") }
}

fn options(file: &str) -> Options {
    let excluded = ["c_timetz", "c_timetz3", "c_interval", "c_interval3", "biga"];
    let exclude = excluded.iter().map(|c| (*c).to_owned()).collect();
    if file == "pg-ops" { pg_ops() } else { Options { exclude, ..Options::new("t") } }
}

fn topics(file: &str) -> BTreeMap<String, Vec<capture::Record>> {
    let mut topics: BTreeMap<String, Vec<capture::Record>> = BTreeMap::new();
    for record in records(file) {
        topics.entry(record.topic.clone()).or_default().push(record);
    }
    topics
}

#[test]
fn a_record_decodes_to_the_same_bytes_whatever_came_before() {
    let mut changes = 0;
    for file in FILES {
        for (topic, records) in topics(file) {
            let mut kept = Decoder::new(options(file));
            for record in &records {
                let warm = say(&mut kept, input(record));
                let cold = say(&mut Decoder::new(options(file)), input(record));
                changes += warm.as_ref().map_or(0, Vec::len);
                assert_eq!(warm, cold, "{topic} {}", record.offset);
                assert_eq!(say(&mut kept, input(record)), cold, "{topic} {} again", record.offset);
            }
            // Backwards, every plan is met in another order.
            for record in records.iter().rev() {
                assert_eq!(say(&mut kept, input(record)), say(&mut Decoder::new(options(file)), input(record)));
            }
        }
    }
    assert!(changes > 600, "{changes}");
}

#[test]
fn sequences_ascend_along_every_stream() {
    let mut compared = 0;
    for file in FILES {
        for (topic, records) in topics(file) {
            let mut decoder = Decoder::new(options(file));
            let mut last: Option<(i32, Vec<u8>)> = None;
            for record in &records {
                for said in say(&mut decoder, input(record)).unwrap_or_default() {
                    let Some(sequence) = said.sequence.clone() else { continue };
                    if let Some((partition, last)) = &last
                        && *partition == record.partition
                    {
                        assert!(*last <= sequence, "{topic} {}: {}", record.offset, said.sequence_text());
                        compared += 1;
                    }
                    last = Some((record.partition, sequence));
                }
            }
        }
    }
    assert!(compared > 400, "{compared}");
}

#[test]
fn snapshots_say_which_one_they_are() {
    let said = |file: &str, offset: usize| {
        let record = &records_of(file, "customers")[offset];
        say(&mut Decoder::new(options(file)), input(record)).expect("decodes").remove(0)
    };
    let first = said("pg-ops-schema", 0);
    assert_eq!((first.op, first.snapshot, first.sequence_text()), (Op::Read, Some(809_241_576), "0/809241576/809241576/0".to_owned()));
    assert_eq!(first.event_time, Some(1_796_033_209_630_152));
    // Sent behind the commit 809486024 with the LSN of a signal: below the whole transaction that follows.
    let incremental = said("pg-ops-schema", 62);
    assert_eq!((incremental.op, incremental.snapshot, incremental.sequence_text()), (Op::Read, None, "0/809486024/0/0".to_owned()));
    let streamed = said("pg-ops-schema", 14);
    assert_eq!((streamed.op, streamed.snapshot), (Op::Create, None));
    let mariadb = said("my-ops-schema", 0);
    assert_eq!((mariadb.snapshot, mariadb.sequence_text()), (Some((1 << 40) + 192_989), "0/1/192989/0".to_owned()));
}

#[test]
fn the_epoch_leads_every_sequence() {
    let record = &records_of("pg-ops-schema", "customers")[14];
    let mut decoder = Decoder::new(options("pg-ops-schema"));
    decoder.epoch = 7;
    assert!(say(&mut decoder, input(record)).expect("decodes")[0].sequence_text().starts_with("7/"));
}

#[test]
fn images_are_kept_where_the_source_gave_them() {
    let full = records_of("pg-ops-schema", "pk_full");
    let mut decoder = Decoder::new(options("pg-ops-schema"));
    let said: Vec<_> = full.iter().flat_map(|r| say(&mut decoder, input(r)).expect("decodes")).collect();
    let updates: Vec<_> = said.iter().filter(|s| s.op == Op::Update).collect();
    assert!(!updates.is_empty());
    assert!(updates.iter().all(|s| s.before.as_ref().is_some_and(|b| b["b"] == Some("ten".to_owned()))));
    assert!(said.iter().filter(|s| s.op == Op::Delete).all(|s| s.before.is_none() && s.after.is_empty()));
}

#[test]
fn a_schema_is_what_its_record_says() {
    // The table was altered again and again: each record has the columns of its own time.
    let mut decoder = Decoder::new(options("pg-ops-schema"));
    let mut seen = Vec::new();
    for record in records_of("pg-ops-schema", "ddl") {
        for said in say(&mut decoder, input(&record)).expect("decodes") {
            let names: Vec<_> = said.schema.columns().iter().map(|c| c.name.clone()).collect();
            if said.sequence.is_some() && seen.last() != Some(&names) {
                seen.push(names);
            }
        }
    }
    let as_text: Vec<String> = seen.iter().map(|names| names.join(" ")).collect();
    assert_eq!(as_text, ["id a b c", "id a b c d", "id a b c d e", "id a b c_renamed d e", "id a b c_renamed e", "id a b c_renamed e a2 ts"]);
}

#[test]
fn types_without_a_logical_type_stop_the_table_and_are_all_named() {
    let net = &records_of("pg-types-schema", "t_net")[0];
    let reject = say(&mut Decoder::new(Options::new("t")), input(net)).expect_err("a string of bits without a bound");
    assert_eq!((reject.code, reject.kind()), (Code::TypeUnsupported, RejectKind::StopTable));
    // It could take any number of bytes, however few carried it.
    assert!(reject.reason.contains("\"c_varbit\" (io.debezium.data.Bits)"), "{reject}");
    let said = say(&mut Decoder::new(Options { exclude: vec!["c_varbit".to_owned()], ..Options::new("t") }), input(net)).expect("the rest decodes");
    assert_eq!(said[0].schema.columns().len(), 9);
    // Structured values may be taken as documents where that is asked for.
    let record = &records_of("pg-types-schema", "t_arr")[0];
    let types = vec![("a_int".to_owned(), LogicalType::Json)];
    let said = say(&mut Decoder::new(Options { types, ..Options::new("t") }), input(record)).expect("as documents");
    assert_eq!((said[0].after["a_int"].as_deref(), said[0].after["a_int2"].as_deref()), (Some("[]"), Some("[]")));
}

#[test]
fn records_beside_changes_are_counted_not_landed() {
    let mut counts = BTreeMap::new();
    for file in ["pg-ops", "pg-ops-schema", "my-ops-schema"] {
        let mut decoder = Decoder::new(options(file));
        for record in records(file) {
            if let Ok(Decoded::Ignored(ignored)) = decoder.decode(input(&record)) {
                *counts.entry(ignored.name()).or_insert(0) += 1;
            }
        }
    }
    let want = [("empty", 4), ("heartbeat", 2), ("message", 4), ("schema_change", 2), ("transaction", 10)];
    assert_eq!(counts, want.into_iter().collect());
}

#[test]
fn tables_without_a_key_are_refused_by_name() {
    let rejects = |file: &str, table: &str| -> Vec<Code> {
        let mut decoder = Decoder::new(options(file));
        records_of(file, table).iter().filter_map(|r| say(&mut decoder, input(r)).err()).map(|r| r.code).collect()
    };
    assert_eq!(rejects("pg-ops-schema", "nopk_full"), [Code::NullKey; 8]);
}

#[test]
fn a_truncate_is_of_the_table_that_the_topic_is_named_after() {
    let value = |table: &str| format!(r#"{{"op":"t","source":{{"connector":"postgresql","schema":"public","table":"{table}","lsn":9}}}}"#);
    let said = |options: &Options, table: &str| {
        let value = value(table);
        let record = Record { value: Some(value.as_bytes()), ..Record::default() };
        say(&mut Decoder::new(options.clone()), record).map(|said| said[0].op).map_err(|r| r.code)
    };
    let options = Options { topic: "shop.public.T_bla__n_code".to_owned(), ..Options::new("t") };
    assert_eq!(said(&options, "Tábla ünïcode"), Ok(Op::Truncate));
    assert_eq!(said(&options, "orders_2023"), Err(Code::TruncateUnsupported), "one of several tables that are routed into the topic");
    let named = Options { source_table: Some("orders".to_owned()), ..options };
    assert_eq!((said(&named, "orders"), said(&named, "orders_2023")), (Ok(Op::Truncate), Err(Code::TruncateUnsupported)));
    let by_offset = Options { order: Order::Offset, partitions: 2, topic: String::new(), ..Options::new("t") };
    assert_eq!(said(&by_offset, "t"), Err(Code::TruncateUnsupported));
    assert_eq!(said(&Options { partitions: 1, ..by_offset }, "t"), Ok(Op::Truncate), "one partition has one order");
}

#[test]
fn a_key_change_is_not_ordered_by_the_offsets_of_two_partitions() {
    let maxwell = r#"{"type":"update","database":"shop","table":"t","data":{"id":4,"v":"b"},"old":{"id":3}}"#;
    let types = vec![("id".to_owned(), LogicalType::Int32), ("v".to_owned(), LogicalType::Text)];
    let options = Options { dialect: Dialect::Maxwell, order: Order::Offset, types, partitions: 3, ..Options::new("t") };
    let record = Record { key: Some(br#"{"database":"shop","table":"t","pk.id":4}"#), value: Some(maxwell.as_bytes()), ..Record::default() };
    let said = |options: &Options| say(&mut Decoder::new(options.clone()), record).map(|said| said.len()).map_err(|r| (r.code, r.kind()));
    assert_eq!(said(&options), Err((Code::NoOrder, RejectKind::StopTable)));
    assert_eq!(said(&Options { partitions: 1, ..options }), Ok(2));
}

#[test]
fn records_of_other_tables_and_databases_are_passed_over() {
    let value = |database: &str, table: &str| format!(r#"{{"type":"insert","database":"{database}","table":"{table}","data":{{"id":4}}}}"#);
    let options = Options {
        dialect: Dialect::Maxwell,
        order: Order::Offset,
        types: vec![("id".to_owned(), LogicalType::Int32)],
        source_schema: Some("shop".to_owned()),
        source_table: Some("t".to_owned()),
        ..Options::new("t")
    };
    for (database, table, changes) in [("shop", "t", 1), ("shop", "u", 0), ("shop2", "t", 0)] {
        let value = value(database, table);
        let record = Record { key: Some(br#"{"pk.id":4}"#), value: Some(value.as_bytes()), ..Record::default() };
        assert_eq!(say(&mut Decoder::new(options.clone()), record).map(|said| said.len()), Ok(changes), "{database}.{table}");
    }
}
