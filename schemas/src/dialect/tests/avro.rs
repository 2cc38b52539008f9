//! Avro in a registry's frame: the hard cases of the encoding, and bytes that nobody would send.

use super::*;
use crate::wire::{put_bytes, put_long};

/// An envelope whose row has the fields that are given as JSON.
fn envelope(fields: &str) -> String {
    let source =
        r#"{"type":"record","name":"Source","namespace":"c","fields":[{"name":"connector","type":"string"},{"name":"lsn","type":["null","long"]}]}"#;
    format!(
        r#"{{"type":"record","name":"Envelope","namespace":"s.t","fields":[
            {{"name":"before","type":["null",{{"type":"record","name":"Value","fields":[{fields}]}}],"default":null}},
            {{"name":"after","type":["null","Value"],"default":null}},
            {{"name":"source","type":{source}}},{{"name":"op","type":"string"}},{{"name":"ts_ms","type":["null","long"]}}]}}"#
    )
}

const KEY: &str = r#"{"type":"record","name":"Key","namespace":"s.t","fields":[{"name":"id","type":"int"}]}"#;

fn avro(text: &str) -> Registered {
    Registered::Avro { text: text.to_owned(), references: Vec::new() }
}

/// A decoder that has the key's schema as 6 and the envelope's as 7.
fn decoder(fields: &str) -> Decoder {
    decoder_of(fields, Options::new("t"))
}

fn decoder_of(fields: &str, options: Options) -> Decoder {
    let mut decoder = Decoder::new(Options { registry: options.registry.or(Some(IdBytes::Four)), ..options });
    decoder.bring(6, &avro(KEY));
    decoder.bring(7, &avro(&envelope(&format!(r#"{{"name":"id","type":"int"}},{fields}"#))));
    decoder
}

fn framed(id: u8, body: &[u8]) -> Vec<u8> {
    [&[0, 0, 0, 0, id], body].concat()
}

/// The create of row 1, whose further columns are given in bytes.
fn create(columns: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 2, 2];
    body.extend(columns);
    put_bytes(&mut body, b"postgresql");
    body.push(2);
    put_long(&mut body, 77);
    put_bytes(&mut body, b"c");
    body.push(0);
    framed(7, &body)
}

fn said(decoder: &mut Decoder, value: &[u8]) -> Result<Said, Reject> {
    let key = framed(6, &[2]);
    let mut said = say(decoder, Record { key: Some(&key), value: Some(value), ..Record::default() })?;
    assert_eq!(said.len(), 1);
    Ok(said.remove(0))
}

/// Avro's single-object encoding names a schema by its fingerprint; those that are given are known without anybody being asked.
#[test]
fn single_objects_name_one_of_the_schemas_that_are_given() {
    let schema = r#"{"type":"record","name":"R","doc":"no part of the fingerprint","fields":[{"name":"id","type":"int"},{"name":"v","type":["null","string"]}]}"#;
    let key = r#"{"type":"record","name":"K","fields":[{"name":"id","type":"int"}]}"#;
    let options = Options { dialect: Dialect::Plain, order: Order::Offset, schemas: vec![key.to_owned(), schema.to_owned()], ..Options::new("t") };
    let object =
        |schema: &str, body: &[u8]| [&[0xC3, 1], crate::avro::fingerprint(schema).expect("a schema").to_le_bytes().as_slice(), body].concat();
    for encoding in [Encoding::Detected, Encoding::Avro] {
        let mut decoder = Decoder::new(Options { encoding, ..options.clone() });
        let mut said = |key: &[u8], value: &[u8]| {
            let record = Record { key: Some(key), value: Some(value), ..Record::default() };
            assert_eq!(decoder.wanted(&record), None, "no registry is asked");
            say(&mut decoder, record).map(|said| (said[0].key_values[0].clone(), said[0].after["v"].clone())).map_err(|reject| reject.code)
        };
        let id = object(key, &[14]);
        assert_eq!(said(&id, &object(schema, &[14, 2, 2, b'a'])), Ok(("7".to_owned(), Some("a".to_owned()))));
        assert_eq!(said(&id, &object("\"long\"", &[2])), Err(Code::FingerprintUnknown));
        assert_eq!(said(&id, &object(schema, &[14, 2, 2])), Err(Code::AvroInvalid));
        assert_eq!(said(&id, &[0xC3, 1, 0]), Err(Code::FrameInvalid));
    }
    let mut json = Decoder::new(Options { encoding: Encoding::Json, ..options });
    let object = object(schema, &[14, 0]);
    let reject = json.decode(Record { key: Some(b"{\"id\":7}"), value: Some(&object), ..Record::default() });
    assert_eq!(reject.map(drop).map_err(|reject| reject.code), Err(Code::JsonInvalid));
}

#[test]
fn case_enc_01_what_is_no_frame_is_refused_and_says_why() {
    let field = r#"{"name":"v","type":"string"}"#;
    let mut decoder = decoder_of(field, Options { encoding: Encoding::Avro, ..Options::new("t") });
    for (value, why) in [(&b"{\"id\":1}"[..], "0x7b"), (&[0, 0, 0], "too short"), (&[], "empty")] {
        let reject = said(&mut decoder, value).expect_err("no frame");
        assert_eq!(reject.code, Code::FrameInvalid);
        assert!(reject.reason.contains(why), "{reject}");
    }
    let good = said(&mut decoder, &create(&[2, b'x'])).expect("a good record");
    assert_eq!(good.after["v"].as_deref(), Some("x"));
    // Without a setting, the first byte tells; nothing at all is never a tombstone.
    assert!(said(&mut self::decoder(field), b"").is_err());
}

#[test]
fn case_enc_02_semantic_names_of_primitives() {
    let mut decoder = decoder(
        r#"{"name":"ts","type":["null",{"type":"long","connect.version":1,"connect.name":"io.debezium.time.MicroTimestamp"}],"default":null}"#,
    );
    let mut column = vec![2];
    put_long(&mut column, 1_709_281_800_123_456);
    let said = said(&mut decoder, &create(&column)).expect("a row");
    assert_eq!(said.after["ts"].as_deref(), Some("2024-03-01T08:30:00.123456"));
    assert_eq!(said.schema.columns()[1].ty.to_string(), "timestamp(6)");
}

#[test]
fn case_enc_03_decimals_and_branches_as_the_writer_says() {
    let decimal = r#"{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}"#;
    let fixed = r#"{"type":"fixed","name":"F","size":3,"logicalType":"decimal","precision":5,"scale":1}"#;
    let fields = format!(
        r#"{{"name":"d","type":[{decimal},"null"],"default":"\u0000"}},{{"name":"e","type":["null",{decimal}],"default":null}},{{"name":"f","type":{fixed}}}"#
    );
    let mut decoder = decoder(&fields);
    let first = said(&mut decoder, &create(&[0, 2, 0x80, 0, 0xFF, 0xFF, 0x85])).expect("a row");
    assert_eq!((first.after["d"].as_deref(), first.after["e"].as_deref(), first.after["f"].as_deref()), (Some("-1.28"), None, Some("-12.3")));
    let second = said(&mut decoder, &create(&[2, 2, 2, 0x80, 0, 0, 1])).expect("a row");
    assert_eq!((second.after["d"].as_deref(), second.after["e"].as_deref()), (None, Some("-1.28")));
    assert_eq!(said(&mut decoder, &create(&[4, 0, 0, 0, 1])).map_err(|r| r.code), Err(Code::AvroInvalid), "a branch that the union lacks");
}

#[test]
fn case_enc_05_ids_of_eight_bytes_are_read_where_they_are_said() {
    let field = r#"{"name":"v","type":"string"}"#;
    let mut decoder = decoder(field);
    let row = create(&[2, b'x']);
    let long = [&[0, 0, 0, 0, 0], &row[1..]].concat();
    let reject = said(&mut decoder, &long).expect_err("id 0");
    assert_eq!(reject.code, Code::FrameInvalid);
    assert!(reject.reason.contains("eight bytes"), "{reject}");
    let mut decoder = decoder_of(field, Options { registry: Some(IdBytes::Eight), ..Options::new("t") });
    let key = [&[0, 0, 0, 0], &framed(6, &[2])[..]].concat();
    let long = Record { key: Some(&key), value: Some(&long), ..Record::default() };
    assert_eq!(say(&mut decoder, long).expect("a row")[0].after["v"].as_deref(), Some("x"));
}

#[test]
fn case_reg_02_an_id_is_asked_for_once_and_again_when_it_is_forgotten() {
    let mut decoder = decoder(r#"{"name":"v","type":"string"}"#);
    let stray = framed(99, &[]);
    let record = Record { value: Some(&stray), ..Record::default() };
    assert_eq!(decoder.wanted(&record), Some(99));
    decoder.bring(99, &Registered::Unknown);
    assert_eq!((decoder.wanted(&record), decoder.decode(record).map(drop).map_err(|r| r.code)), (None, Err(Code::RegistryUnknown)));
    decoder.forget_unknown();
    assert_eq!(decoder.wanted(&record), Some(99));
    decoder.bring(99, &Registered::Other("PROTOBUF".to_owned()));
    assert_eq!(decoder.decode(record).map(drop).map_err(|r| r.code), Err(Code::RegistrySchema));
    let key = framed(8, &[2]);
    let record = Record { key: Some(&key), value: None, ..Record::default() };
    assert_eq!(decoder.wanted(&record), Some(8), "keys have schemas too");
}

#[test]
fn a_frame_without_a_registry_stops_the_table() {
    let mut decoder = Decoder::new(Options::new("t"));
    let reject = said(&mut decoder, &create(&[2, b'x'])).expect_err("no registry");
    assert_eq!((reject.code, reject.kind()), (Code::RegistryMissing, RejectKind::StopTable));
}

#[test]
fn enums_and_logical_types_of_avro_itself() {
    let fields = r#"{"name":"e","type":["null",{"type":"enum","name":"E","symbols":["red","green"]}]},
        {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
        {"name":"local","type":{"type":"long","logicalType":"local-timestamp-micros"}},
        {"name":"day","type":{"type":"int","logicalType":"date"}},
        {"name":"u","type":{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}},
        {"name":"b","type":{"type":"fixed","name":"B","size":2}}"#;
    let mut columns = vec![2, 2];
    put_long(&mut columns, 1_709_281_800_123);
    put_long(&mut columns, 1_709_281_800_123_456);
    put_long(&mut columns, 19_783);
    columns.extend([0xAB; 16]);
    columns.extend([1, 2]);
    let said = said(&mut decoder(fields), &create(&columns)).expect("a row");
    let text = |name: &str| said.after[name].as_deref().expect("not NULL");
    assert_eq!((text("e"), text("at"), text("local")), ("green", "2024-03-01T08:30:00.123Z", "2024-03-01T08:30:00.123456"));
    assert_eq!((text("day"), text("u"), text("b")), ("2024-03-01", "abababab-abab-abab-abab-abababababab", "0102"));
}

#[test]
fn arrays_of_arrays_and_other_unions_stop_the_table_by_name_and_may_be_left_out() {
    let fields = r#"{"name":"list","type":{"type":"array","items":["null","int"]}},{"name":"v","type":"string"}"#;
    let row = create(&[4, 0, 2, 14, 0, 2, b'x']);
    assert_eq!(said(&mut decoder(fields), &row).expect("an array").after["list"].as_deref(), Some("[null,7]"));
    let types = vec![("list".to_owned(), LogicalType::Json)];
    let reject = said(&mut decoder_of(fields, Options { types, ..Options::new("t") }), &row).expect_err("no text of it");
    assert_eq!((reject.code, reject.kind()), (Code::TypesConflict, RejectKind::StopTable));
    let fields = r#"{"name":"list","type":{"type":"array","items":{"type":"array","items":"int"}}},{"name":"v","type":"string"}"#;
    let row = create(&[2, 2, 14, 0, 0, 2, b'x']);
    let reject = said(&mut decoder(fields), &row).expect_err("arrays of arrays have no type");
    assert_eq!((reject.code, reject.kind()), (Code::TypeUnsupported, RejectKind::StopTable));
    // There is no reader for them, so a declared type does not help: nothing lands as NULL that was something.
    let types = vec![("list".to_owned(), LogicalType::Json)];
    let reject = said(&mut decoder_of(fields, Options { types, ..Options::new("t") }), &row).expect_err("no reader");
    assert_eq!((reject.code, reject.kind()), (Code::TypesConflict, RejectKind::StopTable));
    let mut without = decoder_of(fields, Options { exclude: vec!["list".to_owned()], ..Options::new("t") });
    assert_eq!(said(&mut without, &row).expect("a row").after["v"].as_deref(), Some("x"));
}

#[test]
fn damaged_bytes_are_refused_and_never_panic() {
    let mut decoder = decoder(r#"{"name":"v","type":["null","string"]},{"name":"n","type":"double"}"#);
    let good = create(&[2, 6, 0xC3, 0xA9, b'x', 0, 0, 0, 0, 0, 0, 0xF0, 0x3F]);
    let _ = said(&mut decoder, &good).expect("a row");
    for end in 5..good.len() {
        assert_eq!(said(&mut decoder, &good[..end]).map_err(|r| r.code).map(drop), Err(Code::AvroInvalid), "cut at {end}");
    }
    let long = [good.as_slice(), &[0]].concat();
    assert_eq!(said(&mut decoder, &long).map_err(|r| r.code).map(drop), Err(Code::AvroInvalid), "bytes are left over");
    for at in 0..good.len() {
        for bits in [0x01, 0x80, 0xFF] {
            let mut bad = good.clone();
            bad[at] ^= bits;
            drop(said(&mut decoder, &bad));
        }
    }
}
