//! Plain records: rows by themselves, with keys of every kind, headers and registered schemas.

use super::*;

fn options(types: &[(&str, &str)], key: Option<&[&str]>) -> Options {
    Options {
        dialect: Dialect::Plain,
        order: Order::Offset,
        types: types.iter().map(|(name, ty)| ((*name).to_owned(), ty.parse().expect(ty))).collect(),
        types_are_columns: true,
        primary_key: key.map(|key| key.iter().map(|name| (*name).to_owned()).collect()),
        ..Options::new("t")
    }
}

fn record<'a>(key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> Record<'a> {
    Record { offset: 7, key, value, timestamp: Some(5), ..Record::default() }
}

/// What a record says in a word: the operation, the key's values, the columns.
fn brief(options: &Options, record: Record<'_>) -> Result<String, Code> {
    let said = say(&mut Decoder::new(options.clone()), record).map_err(|r| r.code)?;
    let [said] = &said[..] else { return Ok("nothing".to_owned()) };
    assert_eq!((said.sequence_text().as_str(), said.event_time), ("0/7/0/0", Some(5)), "the offset orders, the record's time is the event's");
    let column = |(name, value): (&String, &Option<String>)| format!("{name}={}", value.as_deref().unwrap_or("NULL"));
    let columns: Vec<String> = said.after.iter().map(column).collect();
    Ok(format!("{} [{}] {}", said.op.letter(), said.key_values.join(","), columns.join(" ")))
}

#[test]
fn a_value_is_an_upsert_and_null_a_delete() {
    let options = options(&[("id", "int64"), ("v", "text"), ("w", "text")], None);
    let key = br#"{"id":1}"#.as_slice();
    let said = |value| brief(&options, record(Some(key), value));
    assert_eq!(said(Some(br#"{"id":1,"v":"a","w":null}"#)).as_deref(), Ok("u [1] id=1 v=a w=NULL"));
    assert_eq!(said(Some(br#"{"v":"a","id":1}"#)).as_deref(), Ok("u [1] id=1 v=a w=NULL"), "a row is whole: what it lacks is NULL");
    assert_eq!(said(Some(br#"{"v":"a"}"#)).as_deref(), Ok("u [1] id=1 v=a w=NULL"), "the record key's columns are columns");
    assert_eq!(said(None).as_deref(), Ok("d [1] "));
    assert_eq!(said(Some(b"null")).as_deref(), Ok("d [1] "));
    assert_eq!(said(Some(br#"{"id":2,"v":"a"}"#)), Err(Code::KeyMismatch));
    let typed = br#"{"schema":{"type":"struct","fields":[{"type":"string","optional":true,"field":"v"}]},"payload":{"id":1,"v":"a"}}"#;
    assert_eq!(said(Some(typed)), Err(Code::EnvelopeUnknownColumn), "the record key's column is none of the row, by its schema");
    assert_eq!(said(Some(br#"{"v":"a","x":1}"#)), Err(Code::TypesMissing));
    assert_eq!(said(Some(b"7")), Err(Code::EnvelopeInvalid));
    assert_eq!(brief(&options, record(None, None)).as_deref(), Ok("nothing"));
    assert_eq!(brief(&options, record(None, Some(br#"{"id":1}"#))), Err(Code::NullKey));
}

#[test]
fn a_placeholder_of_a_connector_is_text_like_any_other() {
    let options = options(&[("id", "int64"), ("v", "text"), ("b", "bytes")], None);
    let value = format!(r#"{{"id":1,"v":"{PLACEHOLDER}","b":""}}"#);
    let said = brief(&options, record(Some(br#"{"id":1}"#), Some(value.as_bytes())));
    assert_eq!(said, Ok(format!("u [1] b= id=1 v={PLACEHOLDER}")));
}

#[test]
fn a_key_that_is_one_value_is_the_column_of_the_tables_key() {
    let of = |ty: &str, format: KeyFormat| Options { key_format: format, ..options(&[("id", ty), ("v", "text")], Some(&["id"])) };
    let said = |options: &Options, key: &[u8]| {
        let upsert = brief(options, record(Some(key), Some(br#"{"v":"a"}"#)))?;
        let delete = brief(options, record(Some(key), None))?;
        assert_eq!(upsert.split(' ').nth(1), delete.split(' ').nth(1), "both name one row");
        Ok(upsert)
    };
    let text = of("text", KeyFormat::Detected);
    assert_eq!(said(&text, b"user-1").as_deref(), Ok("u [user-1] id=user-1 v=a"));
    assert_eq!(said(&text, b"\"user-1\"").as_deref(), Ok("u [user-1] id=user-1 v=a"), "a string of JSON");
    assert_eq!(said(&text, b"007").as_deref(), Ok("u [007] id=007 v=a"));
    assert_eq!(said(&text, b"7").as_deref(), Ok("u [7] id=7 v=a"));
    assert_eq!(said(&text, b"{\"user-1").map_err(|code| code == Code::JsonInvalid), Err(true), "damaged JSON is no text");
    assert_eq!(said(&of("text", KeyFormat::Text), b"\"user-1\"").as_deref(), Ok("u [\"user-1\"] id=\"user-1\" v=a"));
    assert_eq!(said(&of("text", KeyFormat::Text), b"{x").as_deref(), Ok("u [{x] id={x v=a"));
    assert_eq!(said(&of("text", KeyFormat::Text), &[0xFF]), Err(Code::JsonInvalid));
    let number = of("int64", KeyFormat::Detected);
    assert_eq!(said(&number, b"17").as_deref(), Ok("u [17] id=17 v=a"));
    assert_eq!(said(&number, b"\"17\"").as_deref(), Ok("u [17] id=17 v=a"));
    assert_eq!(said(&number, b"seventeen"), Err(Code::ValueKind));
    let wrapped = br#"{"schema":{"type":"int64","optional":false},"payload":17}"#;
    assert_eq!(said(&number, wrapped).as_deref(), Ok("u [17] id=17 v=a"));
    assert_eq!(said(&options(&[("v", "text")], Some(&["id"])), wrapped).as_deref(), Ok("u [17] id=17 v=a"), "its schema gives the type");
    assert_eq!(said(&options(&[("v", "text")], Some(&["id"])), b"17"), Err(Code::TypesMissing));
    assert_eq!(said(&of("int64", KeyFormat::Int64), &17_i64.to_be_bytes()).as_deref(), Ok("u [17] id=17 v=a"));
    assert_eq!(said(&of("int64", KeyFormat::Int32), &(-17_i32).to_be_bytes()).as_deref(), Ok("u [-17] id=-17 v=a"));
    assert_eq!(said(&options(&[("v", "text")], Some(&["id"])).format(KeyFormat::Int16), &[1, 0]).as_deref(), Ok("u [256] id=256 v=a"));
    assert_eq!(said(&of("int64", KeyFormat::Int64), b"17"), Err(Code::ValueKind));
    assert_eq!(said(&of("uuid", KeyFormat::Text), b"7D444840-9DC0-11D1-B245-5FFDCE74FAD2").as_deref(), {
        Ok("u [7d444840-9dc0-11d1-b245-5ffdce74fad2] id=7d444840-9dc0-11d1-b245-5ffdce74fad2 v=a")
    });
    let unnamed = options(&[("id", "text"), ("v", "text")], None);
    assert_eq!(brief(&unnamed, record(Some(b"\"x\""), Some(br#"{"id":"x","v":"a"}"#))), Err(Code::KeyMissing), "no column is said to be the key");
}

impl Options {
    fn format(self, key_format: KeyFormat) -> Self {
        Self { key_format, ..self }
    }
}

#[test]
fn a_single_key_serves_debeziums_events_too() {
    let mut decoder = Decoder::new(Options { dialect: Dialect::Debezium, ..options(&[("id", "int64"), ("v", "text")], Some(&["id"])) });
    let updated = one(&mut decoder, "17", r#"{"op":"u","before":null,"after":{"id":17,"v":"a"}}"#).expect("an update");
    let deleted = one(&mut decoder, "17", r#"{"op":"d","before":{"id":0,"v":null},"after":null}"#).expect("a delete");
    assert_eq!((updated.key_values.as_slice(), &updated.key), (&["17".to_owned()][..], &deleted.key));
}

/// Offsets order a table only where all changes of a row are in one partition.
#[test]
fn what_offsets_do_not_order_is_refused() {
    let types = [("id", "int64"), ("tenant", "int64"), ("v", "text")];
    let row = br#"{"id":1,"tenant":5,"v":"a"}"#.as_slice();
    let said = |key: &[&str], partitions: u32, record_key: Option<&[u8]>| {
        let options = Options { partitions, ..options(&types, Some(key)) };
        brief(&options, record(record_key, Some(row)))
    };
    let good = Ok("u [1] id=1 tenant=5 v=a".to_owned());
    assert_eq!(said(&["id"], 1, None), good, "one partition orders everything");
    assert_eq!(said(&["id"], 1, Some(b"{damaged")), good);
    assert_eq!(said(&["id"], 4, None), Err(Code::NoOrder));
    assert_eq!(said(&["id"], 4, Some(br#"{"id":1}"#)), good);
    assert_eq!(said(&["id"], 4, Some(br#"{"tenant":5,"id":1}"#)), Err(Code::NoOrder), "rows of one id may be keyed by two tenants");
    assert_eq!(said(&["tenant", "id"], 4, Some(br#"{"tenant":5}"#)), Ok("u [5,1] id=1 tenant=5 v=a".to_owned()));
    assert_eq!(said(&["tenant", "id"], 4, Some(br#"{"tenant":6}"#)), Err(Code::KeyMismatch));
    assert_eq!(said(&["id"], 4, Some(b"{damaged")), Err(Code::JsonInvalid));
}

#[test]
fn headers_are_columns_where_that_is_asked() {
    #[derive(Debug)]
    struct Two;
    impl Headers for Two {
        fn get(&self, name: &str) -> Option<&[u8]> {
            match name {
                "x-trace" => Some(b"00-ab"),
                "x-count" => Some(b"3"),
                "x-raw" => Some(&[0xFF]),
                _ => None,
            }
        }
    }
    let asked = |columns: &[(&str, &str)], types: &[(&str, &str)]| {
        let types = [&[("id", "int64")], types].concat();
        let headers = columns.iter().map(|(column, header)| ((*column).to_owned(), (*header).to_owned())).collect();
        Options { headers, ..options(&types, None) }
    };
    let key = br#"{"id":1}"#.as_slice();
    let said = |options: &Options, value| brief(options, Record { headers: Some(&Two), ..record(Some(key), value) });
    let all = asked(&[("trace", "x-trace"), ("n", "x-count"), ("raw", "x-raw"), ("none", "x-none")], &[("n", "int32"), ("raw", "bytes")]);
    assert_eq!(said(&all, Some(b"{}")), Err(Code::EnvelopeRowMissing));
    assert_eq!(said(&all, Some(key)).as_deref(), Ok("u [1] id=1 n=3 none=NULL raw=ff trace=00-ab"));
    assert_eq!(said(&all, None).as_deref(), Ok("d [1] "));
    let deleted = say(&mut Decoder::new(all.clone()), Record { headers: Some(&Two), ..record(Some(key), None) }).expect("a delete");
    assert_eq!(deleted[0].schema.columns().len(), 1, "a delete knows its key alone");
    assert_eq!(said(&asked(&[("n", "x-trace")], &[("n", "int32")]), Some(key)), Err(Code::ValueKind));
    assert_eq!(said(&asked(&[("t", "x-raw")], &[]), Some(key)), Err(Code::ValueKind), "text is UTF-8");
    assert_eq!(said(&asked(&[("id", "x-count")], &[]), Some(key)), Err(Code::DuplicateColumn));
}

const ROW: &str = r#"["null",{"type":"record","name":"Row","fields":[{"name":"id","type":"long"},{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
    {"name":"size","type":{"type":"enum","name":"Size","symbols":["S","L"]}},{"name":"note","type":["null","string"],"default":null},
    {"name":"__op","type":"string"},{"name":"__deleted","type":"string"},{"name":"__source_lsn","type":["null","long"]}]}]"#;

fn registered(options: Options) -> Decoder {
    let mut decoder = Decoder::new(Options { registry: Some(IdBytes::Four), ..options });
    for (id, text) in [(1, ROW), (2, r#""string""#), (3, r#"{"type":"long"}"#)] {
        decoder.bring(id, &Registered::Avro { text: text.to_owned(), references: Vec::new() });
    }
    decoder
}

/// Rows of Avro stand alone as well as in an envelope, nullable as a connector writes them, and so do keys of one value.
#[test]
fn rows_and_keys_of_avro_need_no_envelope() {
    let mut row = vec![0, 0, 0, 0, 1, 2, 34];
    wire::put_long(&mut row, 1_709_281_800_123);
    row.extend([2, 2, 4, b'h', b'i']);
    for text in ["u", "false"] {
        wire::put_long(&mut row, text.len() as i64);
        row.extend(text.as_bytes());
    }
    row.extend([2, 20]);
    let text_key = [&[0, 0, 0, 0, 2, 8][..], b"user"].concat();
    let plain = || Options { exclude: vec!["__op".into(), "__deleted".into(), "__source_lsn".into()], ..options(&[], Some(&["key"])) };
    let mut decoder = registered(plain());
    let said = say(&mut decoder, record(Some(&text_key), Some(&row))).expect("a row");
    let columns = [("at", "2024-03-01T08:30:00.123Z"), ("id", "17"), ("key", "user"), ("note", "hi"), ("size", "L")];
    let expected: BTreeMap<String, Option<String>> = columns.iter().map(|(n, v)| ((*n).to_owned(), Some((*v).to_owned()))).collect();
    assert_eq!((said[0].op, &said[0].after), (Op::Update, &expected));
    // The null of the union is a delete, and so is none at all.
    for value in [Some(&[0, 0, 0, 0, 1, 0][..]), None] {
        let said = say(&mut decoder, record(Some(&text_key), value)).expect("a delete");
        assert_eq!((said[0].op, said[0].key_values.as_slice()), (Op::Delete, &["user".to_owned()][..]));
    }
    for end in 5..row.len() {
        assert_eq!(say(&mut decoder, record(Some(&text_key), Some(&row[..end]))).expect_err("cut short").code, Code::AvroInvalid);
    }
    // The same row, flattened: what the connector added is no column, and says what happened and where.
    let long_key = [0, 0, 0, 0, 3, 34];
    let flattened = Options {
        dialect: Dialect::Flattened,
        order: Order::Dialect,
        connector: "postgresql",
        primary_key: Some(vec!["id".into()]),
        ..options(&[], None)
    };
    // Without `sequence` an LSN orders the source's own key only.
    let refused = say(&mut registered(flattened.clone()), record(Some(&long_key), Some(&row)));
    assert_eq!(refused.expect_err("a key of the topology's").code, Code::NoOrder);
    let mut decoder = registered(Options { order: Order::Offset, ..flattened });
    let said = say(&mut decoder, record(Some(&long_key), Some(&row))).expect("a row");
    assert_eq!((said[0].op, said[0].after.len(), said[0].after["size"].as_deref()), (Op::Update, 4, Some("L")));
}
