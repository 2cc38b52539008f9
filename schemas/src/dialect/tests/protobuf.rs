//! Protobuf in a registry's frame: what Google's own encoder wrote, the hard cases of the encoding, and bytes that nobody would send.

use super::*;
use crate::avro::Reference;
use crate::wire::{put_long, put_varint};

/// A file of `tests/fixtures/protobuf`.
fn fixture(name: &str) -> String {
    let path = format!("{}/../tests/fixtures/protobuf/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn protobuf(text: &str) -> Registered {
    Registered::Protobuf { text: text.to_owned(), references: Vec::new() }
}

const SCHEMA: &str = r#"syntax = "proto3"; package shop;
    message Key { int32 id = 1; }
    message Source { string connector = 1; int64 lsn = 2; }
    message Value { int32 id = 1; FIELDS }
    message Envelope { Value before = 1; Value after = 2; Source source = 3; string op = 4; int64 ts_ms = 5; }
    message Zeroth {} "#;

/// The index of the envelope in [`SCHEMA`].
const ENVELOPE: i64 = 3;

/// A decoder that has a schema as 7 whose row has further fields.
fn decoder_of(fields: &str, options: Options) -> Decoder {
    let mut decoder = Decoder::new(Options { registry: options.registry.or(Some(IdBytes::Four)), ..options });
    decoder.bring(7, &protobuf(&SCHEMA.replace("FIELDS", fields)));
    decoder
}

fn decoder(fields: &str) -> Decoder {
    decoder_of(fields, Options::new("t"))
}

/// A message's bytes behind a frame and the index of the message.
fn framed(index: i64, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 0, 7];
    if index == 0 {
        out.push(0);
    } else {
        put_long(&mut out, 1);
        put_long(&mut out, index);
    }
    out.extend_from_slice(body);
    out
}

/// A field whose bytes are a run.
fn run(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, number << 3 | 2);
    put_varint(&mut out, bytes.len() as u64);
    out.extend_from_slice(bytes);
    out
}

fn varint(number: u64, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, number << 3);
    put_varint(&mut out, value);
    out
}

/// The create of row 1, with further fields.
fn create(fields: &[u8]) -> Vec<u8> {
    let source = [run(1, b"postgresql"), varint(2, 77)].concat();
    let row = [varint(1, 1), fields.to_vec()].concat();
    framed(ENVELOPE, &[run(2, &row), run(3, &source), run(4, b"c")].concat())
}

fn said(decoder: &mut Decoder, value: &[u8]) -> Result<Said, Reject> {
    let key = framed(0, &varint(1, 1));
    let mut said = say(decoder, Record { key: Some(&key), value: Some(value), ..Record::default() })?;
    assert_eq!(said.len(), 1);
    Ok(said.remove(0))
}

/// A decoder of records without keys, whose offsets order them.
fn keyless(schema: &str, key: &str) -> Decoder {
    let primary_key = Some(vec![key.to_owned()]);
    let mut decoder = Decoder::new(Options { registry: Some(IdBytes::Four), primary_key, order: Order::Offset, ..Options::new("t") });
    decoder.bring(7, &protobuf(schema));
    decoder
}

fn said_alone(decoder: &mut Decoder, value: &[u8]) -> Result<Said, Reject> {
    say(decoder, Record { value: Some(value), ..Record::default() }).map(|mut said| said.remove(0))
}

fn code(decoder: &mut Decoder, value: &[u8]) -> Option<Code> {
    said(decoder, value).err().map(|reject| reject.code)
}

#[test]
fn what_googles_encoder_writes_is_read() {
    let mut decoder = Decoder::new(Options { registry: Some(IdBytes::Four), ..Options::new("every") });
    let references = vec![Reference { name: "colour.proto".to_owned(), text: fixture("colour.proto") }];
    decoder.bring(7, &Registered::Protobuf { text: fixture("every.proto"), references });
    let mut types = BTreeMap::new();
    for line in fixture("every.jsonl").lines() {
        let record = capture::Record::parse(line).expect("a record");
        let wanted: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let wanted: BTreeMap<String, Option<String>> = serde_json::from_value(wanted["after"].clone()).expect("texts");
        let said = say(&mut decoder, input(&record)).unwrap_or_else(|e| panic!("{}: {e}", record.offset)).remove(0);
        assert_eq!((said.op, &said.key_values[0]), (Op::Create, said.after["id"].as_ref().expect("a key")));
        assert_eq!(said.sequence_text(), format!("0/{0}/{0}/0", 1_000 + record.offset));
        let name = |(name, text): (&String, &Option<String>)| (name.clone(), text.clone());
        assert_eq!(said.after, wanted.iter().map(name).collect(), "{}", record.offset);
        types.extend(said.schema.columns().iter().map(|c| (c.name.clone(), (c.ty.to_string(), c.nullable))));
    }
    let typed = |name: &str| (types[name].0.as_str(), types[name].1);
    assert_eq!((typed("f_uint32"), typed("f_uint64"), typed("f_int16")), (("uint32", false), ("uint64", false), ("int16", false)));
    assert_eq!((typed("o_enum"), typed("w_uint64"), typed("c_text")), (("text", true), ("uint64", true), ("text", true)));
    assert_eq!((typed("amount"), typed("number")), (("decimal(10,2)", true), ("numeric", true)));
    assert_eq!((typed("at"), typed("day"), typed("time")), (("timestamp(6)", true), ("date", true), ("time(6)", true)));
    assert_eq!((typed("r_apart"), typed("r_enum")), (("array(int64)", false), ("array(text)", false)));
}

#[test]
fn case_enc_04_the_indexes_name_the_message() {
    let schema = r#"syntax = "proto3";
        message Event { Row after = 1; string op = 2; Source source = 3; }
        message Row { int32 id = 1; string v = 2; }
        message Source { string connector = 1; int64 lsn = 2; }
        message A {} message B {}
        message Other { Row after = 3; string op = 4; Source source = 5; message Within { Row after = 6; string op = 7; Source source = 8; } }"#;
    let mut decoder = keyless(schema, "id");
    let body = |first: u64, v: &str| {
        let source = [run(1, b"postgresql"), varint(2, 7)].concat();
        [run(first, &[varint(1, 5), run(2, v.as_bytes())].concat()), run(first + 1, b"c"), run(first + 2, &source)].concat()
    };
    let mut read = |indexes: &[u8], body: &[u8]| {
        let value = [&[0, 0, 0, 0, 7], indexes, body].concat();
        said_alone(&mut decoder, &value).map(|said| said.after["v"].clone().unwrap_or_default())
    };
    // Both forms of the first message, another message, and one within it, in one topic; each has fields of its own.
    for _ in 0..2 {
        assert_eq!(read(&[0], &body(1, "short")).as_deref(), Ok("short"));
        assert_eq!(read(&[2, 0], &body(1, "long")).as_deref(), Ok("long"));
        assert_eq!(read(&[2, 10], &body(3, "fifth")).as_deref(), Ok("fifth"));
        assert_eq!(read(&[4, 10, 0], &body(6, "within")).as_deref(), Ok("within"));
    }
    for indexes in [&[][..], &[2], &[2, 12], &[2, 1], &[1], &[4, 10, 2], &[6, 10, 0, 0], &[0xFE, 0xFF, 0xFF, 0xFF, 0x0F], &[0xFF; 11]] {
        assert_eq!(read(indexes, &[]).map_err(|r| r.code), Err(Code::ProtobufInvalid), "{indexes:?}");
    }
    assert_eq!(read(&[2, 6], &[]).map_err(|r| r.code), Err(Code::EnvelopeInvalid), "a message that is no change event");
}

/// Writers do not agree on whether an entry of a map counts among the messages within a message.
#[test]
fn indexes_that_two_writers_mean_differently_are_refused() {
    let schema = r#"syntax = "proto3"; message Outer { message First {} map<string, int32> m = 1; message Second {} }"#;
    let parsed = crate::protobuf::Schema::parse(schema, &[]).expect("a schema");
    let named = |indexes: &[u8]| parsed.named(&mut wire::Reader::new(indexes)).map(|id| parsed.message(id).name.clone());
    assert_eq!(named(&[4, 0, 0]).as_deref(), Ok("Outer.First"));
    assert_eq!(named(&[4, 0, 2]), Err(wire::WireError::Index));
    assert_eq!(named(&[4, 0, 4]), Err(wire::WireError::Index));
}

#[test]
fn the_last_value_counts_and_unknown_fields_do_not() {
    let mut decoder = decoder("string v = 2; optional int32 n = 3; repeated int32 list = 4;");
    // A field of another schema between, numbers out of order, packed elements and single ones.
    let fields = [
        run(4, &[1, 2]),
        run(2, b"first"),
        run(900, b"unknown"),
        varint(3, 5),
        varint(4, 3),
        run(2, b"last"),
        vec![0xC5, 0x3E, 1, 2, 3, 4],
        varint(3, (-1_i64).cast_unsigned()),
    ];
    let said = said(&mut decoder, &create(&fields.concat())).expect("a row");
    assert_eq!((said.after["v"].as_deref(), said.after["n"].as_deref(), said.after["list"].as_deref()), (Some("last"), Some("-1"), Some("[1,2,3]")));
}

#[test]
fn what_no_column_holds_is_refused_by_name_and_may_be_left_out() {
    for (field, value) in [
        ("map<string, int32> v = 2;", run(2, &[run(1, b"a"), varint(2, 1)].concat())),
        ("message Inner { int32 a = 1; } Inner v = 2;", run(2, &varint(1, 1))),
        ("message Inner { int32 a = 1; } repeated Inner v = 2;", run(2, &varint(1, 1))),
        ("google.protobuf.Struct v = 2;", run(2, &[])),
        ("google.protobuf.Any v = 2;", run(2, &[])),
        ("repeated google.protobuf.Timestamp v = 2;", run(2, &[])),
    ] {
        let fields = format!("{field} string w = 3;");
        let schema = SCHEMA.replace("FIELDS", &fields).replace(
            "package shop;",
            r#"package shop; import "google/protobuf/struct.proto"; import "google/protobuf/any.proto"; import "google/protobuf/timestamp.proto";"#,
        );
        let row = create(&[value, run(3, b"x")].concat());
        let with = |options: Options| {
            let mut decoder = Decoder::new(Options { registry: Some(IdBytes::Four), ..options });
            decoder.bring(7, &protobuf(&schema));
            decoder
        };
        let reject = said(&mut with(Options::new("t")), &row).expect_err(field);
        assert_eq!((reject.code, reject.kind()), (Code::TypeUnsupported, RejectKind::StopTable), "{field}");
        assert!(reject.reason.contains("\"v\""), "{reject}");
        // There is no reader for them, so a declared type does not help.
        let types = vec![("v".to_owned(), LogicalType::Json)];
        assert_eq!(code(&mut with(Options { types, ..Options::new("t") }), &row), Some(Code::TypesConflict), "{field}");
        let without = said(&mut with(Options { exclude: vec!["v".to_owned()], ..Options::new("t") }), &row).expect("a row");
        assert_eq!(without.after["w"].as_deref(), Some("x"));
    }
    let group = "syntax = \"proto2\"; message E { optional V after = 1; optional string op = 2; message V { optional group G = 3 { optional int32 a = 1; } } }";
    for (row, code) in [(&[][..], Code::TypeUnsupported), (&[0x1B, 0x1C], Code::ProtobufInvalid)] {
        let value = framed(0, &[run(1, row), run(2, b"c")].concat());
        assert_eq!(said_alone(&mut keyless(group, "G"), &value).map(drop).map_err(|r| r.code), Err(code));
    }
}

#[test]
fn what_a_connector_does_not_tell_is_declared() {
    let fields = "int64 at = 2; int64 millis = 3; int32 day = 4; int64 time = 5; bytes bits = 6; string doc = 7;";
    let row = create(
        &[
            varint(2, 1_709_281_800_123_456),
            varint(3, 1_709_281_800_123),
            varint(4, 19_783),
            varint(5, 86_399_999_999),
            run(6, &[5]),
            run(7, b"{\"a\": 1}"),
        ]
        .concat(),
    );
    let plain = said(&mut decoder(fields), &row).expect("a row");
    assert_eq!(plain.after["at"].as_deref(), Some("1709281800123456"), "as it is told");
    let types = [("at", "timestamp(6)"), ("millis", "timestamptz(3)"), ("day", "date"), ("time", "time(6)"), ("bits", "bits(4)"), ("doc", "json")];
    let types = types.iter().map(|(name, ty)| ((*name).to_owned(), ty.parse().expect(ty))).collect();
    let said = said(&mut decoder_of(fields, Options { types, ..Options::new("t") }), &row).expect("a row");
    let text = |name: &str| said.after[name].as_deref().expect("not NULL");
    assert_eq!((text("at"), text("millis"), text("day")), ("2024-03-01T08:30:00.123456", "2024-03-01T08:30:00.123Z", "2024-03-01"));
    assert_eq!((text("time"), text("bits"), text("doc")), ("23:59:59.999999", "0101", "{\"a\": 1}"));
}

#[test]
fn values_that_nobody_means_are_refused() {
    let enumerated = "enum E { NONE = 0; ONE = 1; } E v = 2;";
    assert_eq!(code(&mut decoder(enumerated), &create(&varint(2, 2))), Some(Code::ProtobufInvalid), "a number without a name");
    assert_eq!(code(&mut decoder("int32 v = 2;"), &create(&varint(2, 1 << 32))), Some(Code::ProtobufInvalid));
    assert_eq!(code(&mut decoder("string v = 2;"), &create(&run(2, &[0xFF]))), Some(Code::ProtobufInvalid));
    assert_eq!(code(&mut decoder("string v = 2;"), &create(&varint(2, 1))), Some(Code::ProtobufInvalid), "of another kind");
    assert_eq!(code(&mut decoder("repeated int32 v = 2;"), &create(&[0x15, 0, 0, 0, 0])), Some(Code::ProtobufInvalid));
    let imports = |file: &str, fields: &str| {
        let mut decoder = Decoder::new(Options { registry: Some(IdBytes::Four), ..Options::new("t") });
        decoder.bring(7, &protobuf(&SCHEMA.replace("FIELDS", fields).replace("package shop;", &format!("package shop; import \"{file}\";"))));
        decoder
    };
    let date = |year: i64, month: u64, day: u64| run(2, &[varint(1, year.cast_unsigned()), varint(2, month), varint(3, day)].concat());
    for bad in [date(2024, 2, 30), date(2024, 0, 0), date(0, 1, 1), date(-5, 1, 1), date(2024, 300, 1)] {
        assert_eq!(code(&mut imports("google/type/date.proto", "google.type.Date v = 2;"), &create(&bad)), Some(Code::ProtobufInvalid));
    }
    let time = |hours: u64, minutes: u64| run(2, &[varint(1, hours), varint(2, minutes)].concat());
    for bad in [time(24, 1), time(25, 0), time(1, 60)] {
        assert_eq!(code(&mut imports("google/type/timeofday.proto", "google.type.TimeOfDay v = 2;"), &create(&bad)), Some(Code::ProtobufInvalid));
    }
    let mut instants = imports("google/protobuf/timestamp.proto", "google.protobuf.Timestamp v = 2;");
    for (seconds, nanos) in [(253_402_300_800, 0), (0, 1_000_000_000)] {
        assert_eq!(code(&mut instants, &create(&run(2, &[varint(1, seconds), varint(2, nanos)].concat()))), Some(Code::ValueOutOfRange));
    }
    // Finer than what keeps it: cut, and counted.
    let fine = said(&mut instants, &create(&run(2, &[varint(1, 1), varint(2, 999_999_999)].concat()))).expect("a row");
    assert_eq!((fine.after["v"].as_deref(), instants.take_cut()), (Some("1970-01-01T00:00:01.999999"), 1));
    // Two halves of a message.
    let wrapper = run(2, &varint(1, 5));
    let twice = create(&[wrapper.clone(), wrapper].concat());
    assert_eq!(code(&mut imports("google/protobuf/wrappers.proto", "google.protobuf.Int32Value v = 2;"), &twice), Some(Code::ProtobufInvalid));
}

#[test]
fn a_required_field_must_be_there() {
    let text = r#"syntax = "proto2"; message E { optional V after = 1; required string op = 2; optional S source = 3; }
        message V { required int32 id = 1; optional int32 n = 2 [default = 5]; } message S { optional string connector = 1; optional int64 lsn = 2; }"#;
    let mut decoder = keyless(text, "id");
    let mut read = |fields: &[Vec<u8>]| said_alone(&mut decoder, &framed(0, &fields.concat())).map_err(|r| r.code);
    let source = run(3, &[run(1, b"postgresql"), varint(2, 7)].concat());
    let good = read(&[run(1, &varint(1, 1)), run(2, b"c"), source.clone()]).expect("a row");
    assert_eq!(good.after["n"], None, "not set, whatever readers may put there");
    assert_eq!(read(&[run(1, &[]), run(2, b"c"), source.clone()]).map(drop), Err(Code::ProtobufInvalid));
    assert_eq!(read(&[run(1, &varint(1, 1)), source]).map(drop), Err(Code::ProtobufInvalid));
}

#[test]
fn a_schema_of_another_kind_than_was_said_is_refused() {
    let row = create(&run(2, b"x"));
    let mut avro = decoder_of("string v = 2;", Options { encoding: Encoding::Avro, ..Options::new("t") });
    assert_eq!(code(&mut avro, &row), Some(Code::FrameInvalid));
    let mut protobuf = decoder_of("string v = 2;", Options { encoding: Encoding::Protobuf, ..Options::new("t") });
    assert_eq!(said(&mut protobuf, &row).expect("a row").after["v"].as_deref(), Some("x"));
    protobuf.bring(8, &Registered::Avro { text: "\"string\"".to_owned(), references: Vec::new() });
    assert_eq!(code(&mut protobuf, &[0, 0, 0, 0, 8, 0]), Some(Code::FrameInvalid));
    let named = |decoder: &Decoder, value: &[u8]| decoder.format(&Record { value: Some(value), ..Record::default() });
    assert_eq!((named(&protobuf, &row), named(&decoder("string v = 2;"), &row)), (Some("protobuf"), Some("protobuf")));
    let said = code(&mut Decoder::new(Options { encoding: Encoding::Protobuf, registry: Some(IdBytes::Four), ..Options::new("t") }), b"{}");
    assert_eq!(said, Some(Code::FrameInvalid), "JSON is none");
}

#[test]
fn schemas_that_cannot_be_read_stop_the_table_and_say_why() {
    for (text, why) in [
        ("message {", "not the text of a schema"),
        ("syntax = \"proto3\"; message M { Unknown u = 1; }", "\"Unknown\" is named and nowhere described"),
        (&"message M { ".repeat(40), "nested deeper than 32"),
        (&"message M {} ".repeat(90_000), "longer than 1048576 bytes"),
        (&"enum E { A = 0; } ".repeat(30_000), "more than 40000 parts"),
        ("edition = \"2023\";", "not the text of a schema"),
    ] {
        let mut decoder = Decoder::new(Options { registry: Some(IdBytes::Four), ..Options::new("t") });
        decoder.bring(7, &protobuf(text));
        let reject = said(&mut decoder, &framed(0, &[])).expect_err("no schema");
        assert_eq!((reject.code, reject.kind()), (Code::RegistrySchema, RejectKind::StopTable));
        assert!(reject.reason.contains(why), "{reject}");
    }
}

#[test]
fn types_are_found_from_the_innermost_scope_outwards() {
    let text = r#"syntax = "proto3"; package a.b;
        message T { int32 outer = 1; }
        message M { message T { int32 inner = 1; } T near = 1; .a.b.T far = 2; b.T half = 3; a.b.M.T full = 4; M own = 5; }"#;
    let schema = crate::protobuf::Schema::parse(text, &[]).expect("a schema");
    let message = schema.message(schema.named(&mut wire::Reader::new(&[2, 2])).expect("the second"));
    let names: Vec<&str> =
        message.fields.iter().map(|f| if let crate::protobuf::Kind::Message(id) = f.kind { &schema.message(id).name } else { "" }).collect();
    assert_eq!(names, ["a.b.M.T", "a.b.T", "a.b.T", "a.b.M.T", "a.b.M"]);
}

#[test]
fn damaged_bytes_are_refused_and_never_panic() {
    let mut decoder = decoder("optional string v = 2; double n = 3; repeated int32 list = 4;");
    let good = create(&[run(2, "éx".as_bytes()), vec![0x19, 0, 0, 0, 0, 0, 0, 0xF0, 0x3F], run(4, &[1, 0x80, 1])].concat());
    assert_eq!(said(&mut decoder, &good).expect("a row").after["list"].as_deref(), Some("[1,128]"));
    // A message may end after any field, so that a cut is seen unless it is between two.
    let whole: Vec<usize> = (7..good.len()).filter(|end| !matches!(code(&mut decoder, &good[..*end]), Some(Code::ProtobufInvalid))).collect();
    assert!(whole.len() <= 4, "{whole:?}");
    for at in 0..good.len() {
        for bits in [0x01, 0x80, 0xFF] {
            let mut bad = good.clone();
            bad[at] ^= bits;
            drop(said(&mut decoder, &bad));
        }
    }
}

#[test]
fn rows_without_an_envelope() {
    let text = r#"syntax = "proto3"; message Key { int32 id = 1; }
        message Row { int32 id = 1; string v = 2; string __op = 3; string __deleted = 4; string __connector = 5; int64 __source_lsn = 6; }"#;
    let mut decoder = Decoder::new(Options { registry: Some(IdBytes::Four), dialect: Dialect::Flattened, ..Options::new("t") });
    decoder.bring(7, &protobuf(text));
    let avro = r#"{"type":"record","name":"Row","fields":[{"name":"id","type":"int"},{"name":"v","type":["null","string"]},
        {"name":"__op","type":["null","string"]},{"name":"__deleted","type":["null","string"]},{"name":"__connector","type":["null","string"]},
        {"name":"__source_lsn","type":["null","long"]}]}"#;
    decoder.bring(8, &Registered::Avro { text: avro.to_owned(), references: Vec::new() });
    let mut read = |value: &[u8]| {
        let key = framed(0, &varint(1, 5));
        say(&mut decoder, Record { key: Some(&key), value: Some(value), ..Record::default() }).map(|mut said| said.remove(0))
    };
    let row = |op: &str, deleted: &str| {
        let fields = [varint(1, 5), run(2, b"x"), run(3, op.as_bytes()), run(4, deleted.as_bytes()), run(5, b"postgresql"), varint(6, 9)];
        framed(1, &fields.concat())
    };
    let created = read(&row("c", "false")).expect("a row");
    assert_eq!((created.op, created.after["v"].as_deref(), created.after.len()), (Op::Create, Some("x"), 2));
    assert_eq!((created.sequence_text().as_str(), read(&row("u", "true")).expect("a row").op), ("0/9/9/0", Op::Delete));
    assert_eq!(read(&row("x", "")).map(drop).map_err(|r| r.code), Err(Code::EnvelopeUnknownOp));
    let text = |text: &str| [&[2, (2 * text.len()) as u8], text.as_bytes()].concat();
    let value = [vec![0, 0, 0, 0, 8, 10], text("y"), text("c"), vec![0], text("postgresql"), vec![2, 20]].concat();
    let created = read(&value).expect("a row");
    assert_eq!((created.op, created.after["v"].as_deref(), created.sequence_text().as_str()), (Op::Create, Some("y"), "0/10/10/0"));
    assert_eq!(read(&[value.as_slice(), &[0]].concat()).map(drop).map_err(|r| r.code), Err(Code::AvroInvalid));
}
