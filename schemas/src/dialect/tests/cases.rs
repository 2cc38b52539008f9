//! The hard cases by their numbers, and what the captured events do not show.

use super::*;

/// An envelope with a schema part of one column `v` beside `id`, as Debezium's converter writes it.
fn typed_event(column: &str, value: &str) -> String {
    let row = format!(
        r#"{{"type":"struct","fields":[{{"type":"int32","optional":false,"field":"id"}},{{{column},"optional":true,"field":"v"}}],"optional":true,"field":"after"}}"#
    );
    let op = r#"{"type":"string","optional":false,"field":"op"}"#;
    format!(
        r#"{{"schema":{{"type":"struct","fields":[{row},{op}],"optional":false,"name":"t.Envelope"}},"payload":{{"before":null,"after":{{"id":1,"v":{value}}},"op":"c"}}}}"#
    )
}

const KEY: &str =
    r#"{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false,"name":"t.Key"},"payload":{"id":1}}"#;

fn by_offset() -> Decoder {
    Decoder::new(Options { order: Order::Offset, ..Options::new("t") })
}

/// The type and the text of the value of a column with a schema part, or the code of its rejection.
fn value(column: &str, value: &str) -> Result<(String, String), &'static str> {
    let said = one(&mut by_offset(), KEY, &typed_event(column, value)).map_err(|r| r.code.as_str())?;
    let ty = said.schema.columns()[1].ty.to_string();
    Ok((ty, said.after["v"].clone().unwrap_or("NULL".to_owned())))
}

/// The same for a column without a schema part.
fn bare(ty: &str, value: &str) -> Result<String, &'static str> {
    let mut decoder = declared(&[("id", "int32"), ("v", ty)]);
    let said = one(&mut decoder, "{\"id\":1}", &format!("{{\"op\":\"c\",\"after\":{{\"id\":1,\"v\":{value}}}}}")).map_err(|r| r.code.as_str())?;
    Ok(said.after["v"].clone().unwrap_or("NULL".to_owned()))
}

fn named(primitive: &str, name: &str) -> String {
    format!(r#""type":"{primitive}","name":"{name}","version":1"#)
}

fn ok(ty: &str, text: &str) -> Result<(String, String), &'static str> {
    Ok((ty.to_owned(), text.to_owned()))
}

#[test]
fn case_dec_01_precise_decimals() {
    let column = r#""type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2","connect.decimal.precision":"10"}"#;
    for (base64, text) in [("gA==", "-1.28"), ("AIA=", "1.28"), ("AA==", "0.00"), ("", "0.00"), ("AlQL4/8=", "99999999.99")] {
        assert_eq!(value(column, &format!("{base64:?}")), ok("decimal(10,2)", text));
    }
    // One digit more than the column declares.
    assert_eq!(value(column, "\"F0h26AA=\""), Err("value.out_of_range"));
    assert_eq!(value(column, "\"not base64\""), Err("value.kind"));
    assert_eq!(value(column, "1.28"), Err("value.kind"));
    assert_eq!(value(column, "null"), ok("decimal(10,2)", "NULL"));
    let money = r#""type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}"#;
    assert_eq!(value(money, "\"gAAAAAAAAAA=\""), ok("numeric", "-92233720368547758.08"));
}

#[test]
fn case_dec_02_variable_scales() {
    let column = named("struct", "io.debezium.data.VariableScaleDecimal");
    for (scale, base64, text) in [(3, "AS4L", "77.323"), (0, "BQ==", "5"), (-3, "AQ==", "1000"), (12, "BNI=", "0.000000001234")] {
        assert_eq!(value(&column, &format!(r#"{{"scale":{scale},"value":"{base64}"}}"#)), ok("numeric", text));
    }
    for bad in ["{}", r#"{"scale":0}"#, r#"{"scale":1,"scale":2,"value":"AQ=="}"#, r#"{"scale":1.5,"value":"AQ=="}"#, "\"AQ==\"", "[]"] {
        assert_eq!(value(&column, bad), Err("value.kind"), "{bad}");
    }
    assert_eq!(value(&column, r#"{"scale":2147483647,"value":"AQ=="}"#), Err("value.out_of_range"));
}

#[test]
fn case_dec_03_unsigned_numbers() {
    let unsigned = |primitive: &str, source: &str| format!(r#""type":"{primitive}","parameters":{{"__debezium.source.column.type":"{source}"}}"#);
    let big = unsigned("int64", "BIGINT UNSIGNED");
    for (wire, text) in
        [("-1", "18446744073709551615"), ("-9223372036854775808", "9223372036854775808"), ("9223372036854775807", "9223372036854775807")]
    {
        assert_eq!(value(&big, wire), ok("uint64", text));
        assert_eq!(bare("uint64", wire), Ok(text.to_owned()));
    }
    assert_eq!(value(r#""type":"int64""#, "-1"), ok("int64", "-1"));
    assert_eq!(value(&unsigned("int64", "INT UNSIGNED ZEROFILL"), "4294967295"), ok("uint32", "4294967295"));
    assert_eq!(value(&unsigned("int32", "MEDIUMINT UNSIGNED"), "16777215"), ok("uint32", "16777215"));
    assert_eq!(value(&unsigned("int32", "SMALLINT UNSIGNED"), "65535"), ok("uint16", "65535"));
    assert_eq!(value(&unsigned("int16", "TINYINT UNSIGNED"), "256"), Err("value.out_of_range"));
    assert_eq!(value(&unsigned("string", "NUMERIC"), "\"12.50\""), ok("numeric", "12.50"));
    assert_eq!(bare("uint64", "18446744073709551615"), Ok("18446744073709551615".to_owned()));
}

#[test]
fn case_dec_05_floats_that_json_has_no_number_for() {
    for word in ["NaN", "Infinity", "-Infinity"] {
        assert_eq!(value(r#""type":"float""#, &format!("{word:?}")), ok("float32", word));
        assert_eq!(value(r#""type":"double""#, &format!("{word:?}")), ok("float64", word));
    }
    assert_eq!(value(r#""type":"float""#, "-0.0"), ok("float32", "-0"));
    assert_eq!(value(r#""type":"float""#, "3.3"), ok("float32", "3.3"));
    assert_eq!(value(r#""type":"double""#, "5e-324").map(|(_, text)| text.parse::<f64>()), Ok(Ok(5e-324)));
    assert_eq!(value(r#""type":"float""#, "3.5e38"), Err("value.out_of_range"));
    assert_eq!(value(r#""type":"double""#, "1e400"), Err("value.out_of_range"));
    assert_eq!(value(r#""type":"double""#, "\"nan\""), Err("value.kind"));
}

#[test]
fn case_dec_06_digits_beyond_every_integer() {
    let column = r#""type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"0","connect.decimal.precision":"128"}"#;
    let text = format!("1{}", "0".repeat(60));
    assert_eq!(value(column, "\"AJ9PJyYXmiJFAddiQiyUZZDZEAAAAAAAAAA=\""), ok("decimal(128,0)", &text));
    assert_eq!(bare("decimal(128,0)", &text), Ok(text));
}

#[test]
fn case_dec_07_integers_never_pass_through_floats() {
    let mut decoder = declared(&[("id", "int64"), ("w", "decimal(38,0)")]);
    let mut keys = Vec::new();
    for id in ["9007199254740993", "9007199254740992"] {
        let event = format!("{{\"op\":\"c\",\"after\":{{\"id\":{id},\"w\":481516234299999900001}}}}");
        let said = one(&mut decoder, &format!("{{\"id\":{id}}}"), &event).expect("decodes");
        assert_eq!(said.after["id"].as_deref(), Some(id));
        assert_eq!(said.after["w"].as_deref(), Some("481516234299999900001"));
        keys.push(said.key);
    }
    assert_ne!(keys[0], keys[1]);
    assert_eq!(value(r#""type":"int64""#, "1.0"), Err("value.kind"));
    assert_eq!(value(r#""type":"int64""#, "9223372036854775808"), Err("value.out_of_range"));
    assert_eq!(value(r#""type":"int16""#, "32768"), Err("value.out_of_range"));
}

#[test]
fn primitives_at_their_ends() {
    for (primitive, ty, low, high) in [
        ("int8", "int8", "-128", "127"),
        ("int16", "int16", "-32768", "32767"),
        ("int32", "int32", "-2147483648", "2147483647"),
        ("int64", "int64", "-9223372036854775808", "9223372036854775807"),
        ("boolean", "bool", "false", "true"),
    ] {
        let column = format!(r#""type":"{primitive}""#);
        assert_eq!(value(&column, low), ok(ty, low));
        assert_eq!(value(&column, high), ok(ty, high));
        assert_eq!(value(&column, "null"), ok(ty, "NULL"));
        assert_eq!(value(&column, "\"1\""), Err("value.kind"));
        assert_eq!(value(&column, "{}"), Err("value.kind"));
    }
    assert_eq!(value(r#""type":"string""#, r#""""#), ok("text", ""));
    assert_eq!(value(r#""type":"bytes""#, r#""""#), ok("bytes", ""));
    assert_eq!(value(r#""type":"bytes""#, "\"AP8=\""), ok("bytes", "00ff"));
    assert_eq!(
        value(&named("string", "io.debezium.data.Uuid"), "\"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11\""),
        ok("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
    );
    assert_eq!(value(&named("string", "io.debezium.data.Uuid"), "\"x\""), Err("value.kind"));
    assert_eq!(value(&named("int32", "io.debezium.time.Year"), "2155"), ok("int32", "2155"));
}

#[test]
fn case_dec_11_and_12_text_and_documents_stay_as_they_are() {
    assert_eq!(value(r#""type":"string""#, r#""a\u0000b""#), ok("text", "a\0b"));
    assert_eq!(value(r#""type":"string""#, r#""\ud800""#), Err("json.invalid"));
    let json = named("string", "io.debezium.data.Json");
    for (wire, text) in
        [(r#""{\"a\": 1.10, \"b\": [null, true]}""#, r#"{"a": 1.10, "b": [null, true]}"#), (r#""\"scalar\"""#, "\"scalar\""), ("\"null\"", "null")]
    {
        assert_eq!(value(&json, wire), ok("json", text));
    }
    assert_eq!(value(&json, "null"), ok("json", "NULL"));
    assert_eq!(value(&json, r#""{\"k\":\"x\\u0000y\"}""#), ok("json", r#"{"k":"x\u0000y"}"#));
    assert_eq!(value(&json, "\"{\""), Err("value.kind"));
    assert_eq!(bare("json", "{\"a\": [1.10]}"), Ok("{\"a\": [1.10]}".to_owned()));
}

#[test]
fn case_tmp_01_02_09_11_units_come_from_the_name() {
    let date = |name: &str, days: &str| value(&named("int32", name), days);
    for name in ["io.debezium.time.Date", "org.apache.kafka.connect.data.Date"] {
        for (days, text) in [("-7140", "1950-06-15"), ("84006", "2200-01-01"), ("-1", "1969-12-31"), ("0", "1970-01-01"), ("-2440588", "-4713-11-24")]
        {
            assert_eq!(date(name, days), ok("date", text));
        }
    }
    assert_eq!(date("io.debezium.time.Date", "-2440589"), Err("value.out_of_range"));
    for (primitive, name, count, ty, text) in [
        ("int32", "io.debezium.time.Time", "49890123", "time(3)", "13:51:30.123"),
        ("int32", "org.apache.kafka.connect.data.Time", "86400000", "time(3)", "24:00:00.000"),
        ("int64", "io.debezium.time.MicroTime", "86399999999", "time(6)", "23:59:59.999999"),
        ("int64", "io.debezium.time.NanoTime", "46801702905100", "time(9)", "13:00:01.702905100"),
        ("int64", "io.debezium.time.Timestamp", "-2208988800000", "timestamp(3)", "1900-01-01T00:00:00.000"),
        ("int64", "org.apache.kafka.connect.data.Timestamp", "1709281800123", "timestamp(3)", "2024-03-01T08:30:00.123"),
        ("int64", "io.debezium.time.MicroTimestamp", "100", "timestamp(6)", "1970-01-01T00:00:00.000100"),
        ("int64", "io.debezium.time.NanoTimestamp", "1694178001702905100", "timestamp(9)", "2023-09-08T13:00:01.702905100"),
    ] {
        assert_eq!(value(&named(primitive, name), count), ok(ty, text), "{name}");
    }
    assert_eq!(value(&named("int64", "io.debezium.time.MicroTime"), "86400000001"), Err("value.out_of_range"));
    assert_eq!(value(&named("int64", "io.debezium.time.MicroTime"), "-1"), Err("value.out_of_range"));
    // A name on another primitive than its own is not that type.
    assert_eq!(value(&named("int64", "io.debezium.time.Date"), "0"), Err("type.unsupported"));
}

#[test]
fn case_tmp_03_04_05_zoned_timestamps() {
    let zoned = |text: &str| value(&named("string", "io.debezium.time.ZonedTimestamp"), &format!("{text:?}"));
    assert_eq!(zoned("2023-09-08T16:00:01.702905+03:00"), ok("timestamptz(6)", "2023-09-08T13:00:01.702905Z"));
    assert_eq!(zoned("+18250-07-09T05:04:03.020100Z"), ok("timestamptz(6)", "+18250-07-09T05:04:03.020100Z"));
    assert_eq!(zoned("2023-09-08T13:00:01.9999999Z"), ok("timestamptz(6)", "2023-09-08T13:00:01.999999Z"));
    assert_eq!(zoned("infinity"), ok("timestamptz(6)", "infinity"));
    assert_eq!(zoned("-infinity"), ok("timestamptz(6)", "-infinity"));
    assert_eq!(zoned("yesterday"), Err("value.kind"));
}

#[test]
fn declared_types_read_what_a_connector_may_write() {
    for (ty, wire, text) in [
        ("bool", "true", "true"),
        ("bool", "0", "false"),
        ("int64", "\"-5\"", "-5"),
        ("float32", "1.5", "1.5"),
        ("float64", "\"NaN\"", "NaN"),
        ("decimal(10,2)", "1.5", "1.50"),
        ("decimal(10,2)", "\"-1.50\"", "-1.50"),
        ("numeric", "1.50", "1.50"),
        ("numeric", "\"1E+3\"", "1000"),
        ("numeric", "{\"scale\":3,\"value\":\"AS4L\"}", "77.323"),
        ("date", "19782", "2024-02-29"),
        ("date", "\"2024-02-29\"", "2024-02-29"),
        ("time(3)", "49890123", "13:51:30.123"),
        ("time(6)", "\"13:51:30.123\"", "13:51:30.123000"),
        ("timestamp(3)", "100", "1970-01-01T00:00:00.100"),
        ("timestamp(6)", "100", "1970-01-01T00:00:00.000100"),
        ("timestamp(9)", "100", "1970-01-01T00:00:00.000000100"),
        ("timestamp(6)", "\"2024-02-29 12:00:00.5\"", "2024-02-29T12:00:00.500000"),
        ("timestamptz(6)", "\"2024-02-29T12:00:00+01:00\"", "2024-02-29T11:00:00.000000Z"),
        ("timestamptz(6)", "-1", "1969-12-31T23:59:59.999999Z"),
        ("bytes", "\"3q2+7w==\"", "deadbeef"),
        ("uuid", "\"ffffffff-ffff-ffff-ffff-ffffffffffff\"", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
        ("text", "null", "NULL"),
    ] {
        assert_eq!(bare(ty, wire).as_deref(), Ok(text), "{ty} {wire}");
    }
    for (ty, wire, code) in [
        ("bool", "2", "value.kind"),
        ("int8", "128", "value.out_of_range"),
        ("int32", "\"1.5\"", "value.kind"),
        ("int32", "\"+5\"", "value.kind"),
        ("decimal(10,2)", "\"bg==\"", "value.kind"),
        ("decimal(4,2)", "123.45", "value.out_of_range"),
        ("decimal(4,2)", "1.234", "value.out_of_range"),
        ("decimal(9,2)", "\"NEGATIVE_INFINITY\"", "value.infinite"),
        ("numeric", "\"nan\"", "value.kind"),
        ("bits(3)", "\"CA==\"", "value.out_of_range"),
        ("duration(6)", "9223372036854775807", "value.out_of_range"),
        ("interval", "\"1 day\"", "value.kind"),
        ("date", "\"2024-02-30\"", "value.kind"),
        ("timestamp(3)", "\"2024-02-29T12:00:00.0001\"", "value.too_precise"),
        ("text", "34", "value.kind"),
        ("uuid", "1", "value.kind"),
    ] {
        assert_eq!(bare(ty, wire), Err(code), "{ty} {wire}");
    }
}

#[test]
fn without_a_schema_part_every_column_must_be_declared() {
    let mut decoder = declared(&[("id", "int32")]);
    let reject = one(&mut decoder, "{\"id\":1}", r#"{"op":"c","after":{"id":1,"a":2,"b":"x"}}"#).expect_err("undeclared");
    assert_eq!((reject.code, reject.kind()), (Code::TypesMissing, RejectKind::StopTable));
    assert!(reject.reason.contains("\"a\", \"b\"") && !reject.reason.contains("\"id\""), "{reject}");
    // The store's own table can say it instead.
    let column = |name: &str, ty: &str| crate::Column { name: name.to_owned(), ty: ty.parse().expect(ty), nullable: true };
    let known = TableSchema::new("t", vec![column("id", "int32"), column("a", "int32"), column("b", "text")], &["id"]).expect("valid");
    let mut options = Options { order: Order::Offset, ..Options::new("t") };
    options.declare(&known);
    assert!(one(&mut Decoder::new(options), "{\"id\":1}", r#"{"op":"c","after":{"id":1,"a":2,"b":"x"}}"#).is_ok());
}

#[test]
fn case_dec_16_bytes_in_strings_are_read_as_the_connector_writes_them() {
    let read = |strings: BinaryStrings, wire: &str| {
        let types = vec![("v".to_owned(), LogicalType::Bytes)];
        let mut decoder = Decoder::new(Options { types, binary_strings: Some(strings), order: Order::Offset, ..Options::new("t") });
        let state = one(&mut decoder, KEY, &typed_event(r#""type":"string""#, &format!("\"{wire}\"")));
        state.map(|s| s.after.get("v").cloned().flatten()).map_err(|r| r.code.as_str())
    };
    let bytes = |text: &str| Ok(Some(text.to_owned()));
    assert_eq!(read(BinaryStrings::Base64, "+//+"), bytes("fbfffe"));
    assert_eq!(read(BinaryStrings::Base64UrlSafe, "-__-"), bytes("fbfffe"));
    assert_eq!(read(BinaryStrings::Hex, "deadBEEF"), bytes("deadbeef"));
    assert_eq!(read(BinaryStrings::Hex, ""), bytes(""));
    for (strings, bad) in
        [(BinaryStrings::Base64, "-__-"), (BinaryStrings::Base64UrlSafe, "+//+"), (BinaryStrings::Hex, "abc"), (BinaryStrings::Hex, "zz")]
    {
        assert_eq!(read(strings, bad), Err("value.kind"), "{strings:?} {bad}");
    }
}

#[test]
fn declared_types_override_a_schema_part_where_nothing_is_lost() {
    let over = |declared: &str, column: &str, wire: &str| {
        let types = vec![("v".to_owned(), declared.parse().expect(declared))];
        let mut decoder = Decoder::new(Options { types, order: Order::Offset, ..Options::new("t") });
        one(&mut decoder, KEY, &typed_event(column, wire)).map(|s| s.after["v"].clone().unwrap_or_default()).map_err(|r| r.code.as_str())
    };
    let ok = |text: &str| Ok(text.to_owned());
    assert_eq!(over("uint64", r#""type":"int64""#, "-1"), ok("18446744073709551615"));
    assert_eq!(over("decimal(12,2)", r#""type":"string""#, "\"1.5\""), ok("1.50"));
    assert_eq!(over("bytes", r#""type":"string""#, "\"AP8=\""), Err("types.conflict"), "case DEC-16: hex would be base64 as well");
    assert_eq!(over("bool", r#""type":"int16""#, "1"), ok("true"));
    assert_eq!(over("text", &named("string", "io.debezium.time.ZonedTime"), "\"12:34:56+05:30\""), ok("12:34:56+05:30"));
    assert_eq!(over("timestamp(3)", &named("int64", "io.debezium.time.MicroTimestamp"), "1000"), ok("1970-01-01T00:00:00.001"));
    assert_eq!(over("timestamp(3)", &named("int64", "io.debezium.time.MicroTimestamp"), "1001"), Err("value.too_precise"));
    assert_eq!(over("date", &named("string", "io.debezium.time.IsoDate"), "\"2020-01-02Z\""), ok("2020-01-02"));
    assert_eq!(over("time(3)", &named("string", "io.debezium.time.IsoTime"), "\"13:51:30.5Z\""), ok("13:51:30.500"));
    assert_eq!(
        over("timestamp(6)", &named("string", "io.debezium.time.IsoTimestamp"), "\"2020-01-02T03:04:05.678901Z\""),
        ok("2020-01-02T03:04:05.678901")
    );
    assert_eq!(over("numeric", r#""type":"double""#, "\"NaN\""), ok("NaN"), "case DEC-04");
    assert_eq!(over("decimal(5,2)", r#""type":"double""#, "1.5E2"), ok("150.00"));
    assert_eq!(over("duration(6)", &named("int64", "io.debezium.time.MicroTime"), "-3020399000000"), ok("-838:59:59.000000"));
    assert_eq!(over("json", r#""type":"array","items":{"type":"int32","optional":true}"#, "[1,null]"), ok("[1,null]"));
    for (declared, column) in
        [("int32", r#""type":"string""#), ("decimal(9,2)", r#""type":"boolean""#), ("date", r#""type":"int32""#), ("text", r#""type":"int32""#)]
    {
        assert_eq!(over(declared, column, "null"), Err("types.conflict"), "{declared}");
    }
}

#[test]
fn case_key_02_and_04_null_keys() {
    let mut decoder = declared(&[("a", "int32"), ("b", "int32"), ("v", "text")]);
    let key = r#"{"a":1,"b":2}"#;
    let created = one(&mut decoder, key, r#"{"op":"c","after":{"a":1,"b":2,"v":"x"}}"#).expect("created");
    let updated = one(&mut decoder, key, r#"{"op":"u","before":null,"after":{"a":1,"b":2,"v":"y"}}"#).expect("updated");
    let deleted = one(&mut decoder, key, r#"{"op":"d","before":null,"after":null}"#).expect("deleted");
    assert!(created.key == updated.key && updated.key == deleted.key);
    assert_eq!((deleted.op, deleted.key_values), (Op::Delete, vec!["1".to_owned(), "2".to_owned()]));
    let code = |decoder: &mut Decoder, key: &str, value: &str| one(decoder, key, value).map_err(|r| (r.code, r.kind())).map(drop);
    assert_eq!(code(&mut decoder, r#"{"a":1,"b":null}"#, r#"{"op":"c","after":{"a":1,"b":2}}"#), Err((Code::NullKey, RejectKind::Poison)));
    assert_eq!(code(&mut decoder, "null", r#"{"op":"c","after":{"a":1,"b":2}}"#), Err((Code::NullKey, RejectKind::Poison)));
    assert_eq!(code(&mut decoder, key, r#"{"op":"c","after":{"a":1,"v":"x"}}"#), Err((Code::KeyMissing, RejectKind::Poison)));
    assert_eq!(code(&mut decoder, key, r#"{"op":"c","after":{"a":1,"b":3}}"#), Err((Code::KeyMismatch, RejectKind::Poison)));
    assert_eq!(code(&mut decoder, key, r#"{"op":"c","after":{"a":1,"b":null}}"#), Err((Code::NullKey, RejectKind::Poison)));
    assert_eq!(code(&mut decoder, key, r#"{"op":"c","after":null}"#), Err((Code::EnvelopeRowMissing, RejectKind::Poison)));
}

#[test]
fn case_key_03_keys_are_unambiguous_and_their_members_have_no_order() {
    let mut decoder = declared(&[("p", "text"), ("q", "text"), ("v", "int32")]);
    let mut key = |key: &str, row: &str| one(&mut decoder, key, &format!("{{\"op\":\"c\",\"after\":{row}}}")).expect("decodes").key;
    let ab = key(r#"{"p":"a|b","q":"c"}"#, r#"{"p":"a|b","q":"c","v":1}"#);
    let bc = key(r#"{"p":"a","q":"b|c"}"#, r#"{"p":"a","q":"b|c","v":2}"#);
    let abc = key(r#"{"p":"","q":"a|b|c"}"#, r#"{"p":"","q":"a|b|c","v":3}"#);
    assert!(ab != bc && bc != abc && ab != abc);
    assert_eq!(key(r#"{"q":"c","p":"a|b"}"#, r#"{"p":"a|b","q":"c","v":1}"#), ab);
    assert_eq!(key(r#"{"p":"a|b","q":"c"}"#, r#"{"v":1,"q":"c","p":"a|b"}"#), ab);
    // A decoder that meets the other order first gives the same key.
    let mut fresh = declared(&[("p", "text"), ("q", "text"), ("v", "int32")]);
    assert_eq!(one(&mut fresh, r#"{"q":"c","p":"a|b"}"#, r#"{"op":"d"}"#).expect("decodes").key, ab);
}

#[test]
fn case_dec_17_equal_numbers_are_one_key() {
    let mut decoder = declared(&[("id", "numeric"), ("v", "text")]);
    let three = one(&mut decoder, r#"{"id":{"scale":0,"value":"Aw=="}}"#, r#"{"op":"c","after":{"id":{"scale":0,"value":"Aw=="},"v":"a"}}"#)
        .expect("decodes");
    let again = one(&mut decoder, r#"{"id":{"scale":1,"value":"Hg=="}}"#, r#"{"op":"u","after":{"id":{"scale":0,"value":"Aw=="},"v":"b"}}"#)
        .expect("decodes");
    assert_eq!(three.key, again.key);
}

#[test]
fn case_del_01_02_03_deletes_and_tombstones() {
    let mut decoder = declared(&[("id", "int32"), ("org", "int32"), ("name", "text")]);
    let deleted = one(&mut decoder, "{\"id\":7}", r#"{"op":"d","before":{"id":7,"org":0,"name":""},"after":null}"#).expect("deleted");
    assert_eq!((deleted.op, deleted.before.as_ref(), deleted.sequence.is_some()), (Op::Delete, None, true));
    for value in [None, Some("null"), Some(r#"{"schema":null,"payload":null}"#)] {
        let record = Record { offset: 3, key: Some(b"{\"id\":7}"), value: value.map(str::as_bytes), headers: None, timestamp: None };
        let said = say(&mut decoder, record).expect("a tombstone");
        assert_eq!((said[0].op, &said[0].sequence, &said[0].key), (Op::Delete, &None, &deleted.key), "{value:?}");
    }
    assert!(matches!(decoder.decode(Record::default()), Ok(Decoded::Ignored(Ignored::Empty))));
}

#[test]
fn case_pkc_02_an_unsplit_key_change_is_two_changes() {
    let mut decoder = declared(&[("id", "int32"), ("v", "text")]);
    let record = Record {
        offset: 5,
        key: Some(b"{\"id\":2}"),
        value: Some(br#"{"op":"u","before":{"id":1,"v":"a"},"after":{"id":2,"v":"a"}}"#),
        headers: None,
        timestamp: None,
    };
    let said = say(&mut decoder, record).expect("decodes");
    assert_eq!(said.iter().map(|s| (s.op, s.key_values[0].as_str())).collect::<Vec<_>>(), [(Op::Delete, "1"), (Op::Update, "2")]);
    assert_eq!(said[0].sequence, said[1].sequence);
    let same = one(&mut decoder, "{\"id\":2}", r#"{"op":"u","before":{"id":2,"v":"a"},"after":{"id":2,"v":"b"}}"#).expect("decodes");
    assert_eq!(same.before.expect("an image")["v"].as_deref(), Some("a"));
}

/// Headers of one name.
#[derive(Debug)]
struct One(&'static str, &'static str);

impl Headers for One {
    fn get(&self, name: &str) -> Option<&[u8]> {
        (name == self.0).then_some(self.1.as_bytes())
    }
}

/// The other key of the one change of a record, plain; the order is the dialect's.
fn other_key(types: &[(&str, &str)], key: &str, op: &str, header: &One) -> Option<Vec<u8>> {
    let types = types.iter().map(|(name, ty)| ((*name).to_owned(), ty.parse().expect(ty))).collect();
    let mut decoder = Decoder::new(Options { types, ..Options::new("t") });
    let row = key.replace('}', ",\"v\":\"a\"}");
    let (before, after) = if op == "d" { (row.as_str(), "null") } else { ("null", row.as_str()) };
    let value = format!(r#"{{"op":"{op}","before":{before},"after":{after},"source":{{"connector":"postgresql","lsn":5}}}}"#);
    let record = Record { offset: 0, key: Some(key.as_bytes()), value: Some(value.as_bytes()), headers: Some(header), timestamp: None };
    match decoder.decode(record) {
        Ok(Decoded::Changes(changes)) => changes.change.change.other_key.map(<[u8]>::to_vec),
        other => panic!("{other:?}"),
    }
}

#[test]
fn case_pkc_01_the_halves_of_a_key_change_name_each_other() {
    let types = [("id", "int32"), ("v", "text")];
    let mut one = Vec::new();
    row::put_plain(LogicalType::Int32, crate::Value::Int(1), &mut one).expect("fits");
    let say = |op, header: One| other_key(&types, "{\"id\":2}", op, &header);
    assert_eq!(say("c", One(OLD_KEY, "{\"id\":1}")), Some(one.clone()));
    assert_eq!(say("d", One(NEW_KEY, "{\"id\":1}")), Some(one.clone()));
    assert_eq!(say("c", One(OLD_KEY, r#"{"schema":{"type":"struct"},"payload":{"id":1}}"#)), Some(one), "a converter with schemas");
    for nothing in ["", "null", "{", "{\"id\":null}", "{\"id\":\"x\"}", "{\"other\":1}", "{}", "\u{1}"] {
        assert_eq!(say("c", One(OLD_KEY, nothing)), None, "{nothing}");
    }
    for (op, name) in [("c", NEW_KEY), ("d", OLD_KEY), ("u", OLD_KEY), ("r", OLD_KEY)] {
        assert_eq!(say(op, One(name, "{\"id\":1}")), None, "{op} with {name}");
    }
}

#[test]
fn case_pkc_02_both_halves_of_an_unsplit_key_change_name_each_other() {
    let types = [("id", "int32"), ("v", "text")].map(|(n, t)| (n.to_owned(), t.parse().expect(t))).to_vec();
    let mut decoder = Decoder::new(Options { types, ..Options::new("t") });
    let value = br#"{"op":"u","before":{"id":1,"v":"a"},"after":{"id":2,"v":"a"},"source":{"connector":"postgresql","lsn":5}}"#;
    let record = Record { offset: 5, key: Some(b"{\"id\":2}"), value: Some(value), headers: None, timestamp: None };
    let Ok(Decoded::Changes(changes)) = decoder.decode(record) else { panic!("an update") };
    let (left, came) = (changes.moved().expect("the key changed").change, &changes.change.change);
    assert_eq!((left.op, left.key, left.other_key), (Op::Delete, came.other_key, came.key));
    assert!(came.other_key.is_some());
}

#[test]
fn captured_key_changes_name_each_other() {
    // Connect's default header converter writes decimals of a key as numbers, where the key itself has base64.
    let mut changes = 0;
    for (file, table) in [
        ("pg-ops-schema", "customers"),
        ("pg-ops-schema", "orders"),
        ("pg-ops-schema", "key_types"),
        ("pg-ops-schema", "toasted"),
        ("my-ops-schema", "customers"),
        ("my-ops-schema", "key_types"),
    ] {
        let exclude = vec!["biga".to_owned()];
        let mut decoder = Decoder::new(Options { exclude, ..Options::new(table) });
        let mut deleted: Option<(Vec<u8>, Vec<u8>)> = None;
        for record in records_of(file, table) {
            let is_half = record.header(OLD_KEY).or_else(|| record.header(NEW_KEY)).is_some();
            let Ok(Decoded::Changes(said)) = decoder.decode(input(&record)) else { panic!("{file} {table} {}", record.offset) };
            let change = said.change.change;
            let key = change.key.expect("a row").to_vec();
            match (change.op, change.other_key) {
                (_, None) => assert!(!is_half || record.value.is_none(), "{file} {table} {}", record.offset),
                (Op::Delete, Some(new)) => deleted = Some((key, new.to_vec())),
                (_, Some(old)) => {
                    assert_eq!(deleted.take(), Some((old.to_vec(), key)), "{file} {table} {}", record.offset);
                    changes += 1;
                }
            }
        }
        assert!(deleted.is_none());
    }
    assert_eq!(changes, 12, "counted in the captures by their headers");
}

#[test]
fn a_key_of_the_options_own_choosing() {
    let types = [("id", "int32"), ("email", "text"), ("v", "int32")].map(|(n, t)| (n.to_owned(), t.parse().expect(t))).to_vec();
    let options = Options { types, primary_key: Some(vec!["email".to_owned()]), order: Order::Offset, ..Options::new("t") };
    let mut decoder = Decoder::new(options);
    let created = one(&mut decoder, "{\"id\":1}", r#"{"op":"c","after":{"id":1,"email":"a","v":1}}"#).expect("created");
    assert_eq!(created.key_values, ["a"]);
    let record = Record {
        offset: 1,
        key: Some(b"{\"id\":1}"),
        value: Some(br#"{"op":"u","before":{"id":1,"email":"a","v":1},"after":{"id":1,"email":"b","v":1}}"#),
        headers: None,
        timestamp: None,
    };
    let moved = say(&mut decoder, record).expect("moved");
    assert_eq!(moved.iter().map(|s| (s.op, s.key_values[0].as_str())).collect::<Vec<_>>(), [(Op::Delete, "a"), (Op::Update, "b")]);
    let deleted = one(&mut decoder, "{\"id\":1}", r#"{"op":"d","before":{"id":1,"email":"b","v":1},"after":null}"#).expect("deleted");
    assert_eq!(deleted.key_values, ["b"]);
    let mut code = |value: Option<&str>| {
        say(&mut decoder, Record { offset: 0, key: Some(b"{\"id\":1}"), value: value.map(str::as_bytes), headers: None, timestamp: None })
            .map_err(|r| r.code)
            .map(drop)
    };
    assert_eq!(code(Some(r#"{"op":"d","before":null,"after":null}"#)), Err(Code::KeyMissing));
    assert_eq!(code(Some(r#"{"op":"d","before":{"id":1,"email":null,"v":null}}"#)), Err(Code::NullKey));
    assert_eq!(code(Some(r#"{"op":"c","after":{"id":1,"email":"__debezium_unavailable_value","v":1}}"#)), Err(Code::KeyMissing));
    // Its tombstone cannot be told which row it means, so it may not be passed over.
    assert_eq!(code(None), Err(Code::KeyMissing));
}

#[test]
fn case_toa_01_the_placeholder_is_no_value() {
    let mut decoder = declared(&[("id", "int32"), ("t", "text"), ("j", "json"), ("b", "bytes"), ("a", "json"), ("n", "int32")]);
    let row = r#"{"id":1,"t":"__debezium_unavailable_value","j":"__debezium_unavailable_value","b":"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==","a":["__debezium_unavailable_value"],"n":2}"#;
    let said = one(&mut decoder, "{\"id\":1}", &format!("{{\"op\":\"u\",\"after\":{row}}}")).expect("decodes");
    assert_eq!(said.unauthored, ["t", "j", "b", "a"]);
    assert_eq!(said.after["n"].as_deref(), Some("2"));
    let before = one(&mut decoder, "{\"id\":1}", &format!("{{\"op\":\"u\",\"before\":{row},\"after\":{row}}}")).expect("decodes").before;
    assert_eq!(before, None, "an image with holes is no image");
    let options = Options { placeholder: "<gone>".to_owned(), ..decoder.options().clone() };
    let said = one(&mut Decoder::new(options), "{\"id\":1}", r#"{"op":"u","after":{"id":1,"t":"<gone>","n":1}}"#).expect("decodes");
    assert_eq!(said.unauthored, ["t"]);
    let kept = one(&mut decoder, "{\"id\":1}", r#"{"op":"u","after":{"id":1,"a":["__debezium_unavailable_value","x"]}}"#).expect("decodes");
    assert!(kept.unauthored.is_empty());
}

#[test]
fn case_toa_04_absent_is_not_null() {
    let event = typed_event(r#""type":"string""#, "\"x\"").replace(",\"v\":\"x\"", "");
    let said = one(&mut by_offset(), KEY, &event).expect("decodes");
    assert_eq!((said.unauthored, said.after.len()), (vec!["v".to_owned()], 1));
}

#[test]
fn case_env_01_with_and_without_the_wrapper() {
    let mut decoder = declared(&[("id", "int32"), ("v", "text"), ("schema", "text"), ("payload", "text")]);
    let wrapped = typed_event(r#""type":"string""#, "\"a\"");
    let first = one(&mut decoder, KEY, &wrapped).expect("wrapped");
    let bare = one(&mut decoder, "{\"id\":1}", r#"{"before":null,"after":{"id":1,"v":"a"},"op":"c"}"#).expect("bare");
    assert_eq!((first.key, &first.after), (bare.key, &bare.after));
    let odd = one(&mut decoder, "{\"id\":3}", r#"{"op":"c","after":{"id":3,"schema":"x","payload":"y"}}"#).expect("odd names");
    assert_eq!(odd.after["schema"].as_deref(), Some("x"));
    let (schema, payload) = wrapped.split_at(wrapped.find(",\"payload\"").expect("a payload"));
    let swapped = format!("{{{},{}}}", &payload[1..payload.len() - 1], &schema[1..]);
    assert_eq!(one(&mut decoder, KEY, &swapped).expect("payload first").after, first.after);
    let spaced = wrapped.replacen("\"payload\":", " \"payload\" : ", 1) + "\n";
    assert_eq!(one(&mut decoder, KEY, &spaced).expect("spaces").after, first.after);
    let more = wrapped.replacen("\"schema\":", "\"x\":1,\"schema\":", 1);
    assert_eq!(one(&mut decoder, KEY, &more).map_err(|r| r.code).map(drop), Err(Code::EnvelopeInvalid));
    let trailing = format!("{}{}", &wrapped[..wrapped.len() - 1], ",\"x\":1}");
    assert_eq!(one(&mut decoder, KEY, &trailing).map_err(|r| r.code).map(drop), Err(Code::EnvelopeInvalid));
}

#[test]
fn members_may_come_once_and_only_if_known() {
    let mut decoder = declared(&[("id", "int32"), ("v", "text")]);
    let mut code = |key: &str, value: &str| one(&mut decoder, key, value).map_err(|r| r.code).map(drop);
    assert_eq!(code("{\"id\":1}", r#"{"op":"c","after":{"id":1,"v":"a","v":"b"}}"#), Err(Code::JsonDuplicateKey));
    assert_eq!(code("{\"id\":1,\"id\":1}", r#"{"op":"c","after":{"id":1,"v":"a"}}"#), Err(Code::JsonDuplicateKey));
    assert_eq!(code("{\"id\":1}", r#"{"op":"c","after":{"id":1},"after":{"id":1}}"#), Err(Code::JsonDuplicateKey));
    let event = typed_event(r#""type":"string""#, "\"x\"");
    let code = |value: &str| one(&mut by_offset(), KEY, value).map_err(|r| r.code).map(drop);
    assert_eq!(code(&event.replace("\"v\":\"x\"", "\"v\":\"x\",\"w\":1")), Err(Code::EnvelopeUnknownColumn));
    assert_eq!(code(&event.replace("\"v\":\"x\"", "\"v\":\"x\",\"v\":\"x\"")), Err(Code::JsonDuplicateKey));
    assert_eq!(code(&event.replace("\"id\":1,\"v\":\"x\"", "\"v\":\"x\",\"id\":1")), Ok(()));
}

#[test]
fn schemas_that_make_no_table_stop_it_by_name() {
    let code = |column: &str, key: &str| one(&mut by_offset(), key, &typed_event(column, "null")).map_err(|r| (r.code.as_str(), r.kind())).map(drop);
    assert_eq!(code(r#""type":"string""#, &KEY.replace("\"id\"", "\"other\"")), Err(("schema.key_missing", RejectKind::StopTable)));
    assert_eq!(
        code(r#""type":"string","field":"__END_AT""#, KEY),
        Err(("envelope.schema_invalid", RejectKind::Poison)),
        "serde refuses a second field"
    );
    let reserved = typed_event(r#""type":"string""#, "null").replace("\"v\"", "\"__end_at\"");
    assert_eq!(one(&mut by_offset(), KEY, &reserved).map_err(|r| r.code.as_str()).map(drop), Err("scd.reserved_column"));
    let float_key = typed_event(r#""type":"double""#, "1.5");
    let key = KEY.replace("int32", "double").replace("\"id\"", "\"v\"");
    assert_eq!(one(&mut by_offset(), &key, &float_key).map_err(|r| r.code.as_str()).map(drop), Err("schema.key_type"));
}

#[test]
fn what_is_no_event_at_all() {
    let mut decoder = declared(&[("id", "int32")]);
    let mut code = |key: &[u8], value: &[u8]| {
        say(&mut decoder, Record { offset: 0, key: Some(key), value: Some(value), headers: None, timestamp: None }).map_err(|r| r.code).map(drop)
    };
    assert_eq!(code(b"{\"id\":1}", b"hello"), Err(Code::JsonInvalid));
    assert_eq!(code(b"{\"id\":1}", b""), Err(Code::JsonInvalid));
    assert_eq!(code(b"{\"id\":1}", b"\xFF\xFE"), Err(Code::JsonInvalid));
    assert_eq!(code(b"{\"id\":1}", br#"{"id":1,"v":"a"}"#), Err(Code::EnvelopeInvalid));
    assert_eq!(code(b"{\"id\":1}", br#"{"op":"c","after":{}}"#), Err(Code::EnvelopeRowMissing));
    assert_eq!(code(b"not json", br#"{"op":"c","after":{"id":1}}"#), Err(Code::JsonInvalid));
    assert_eq!(code(b"1", br#"{"op":"c","after":{"id":1}}"#), Err(Code::KeyMissing));
    // The key of a heartbeat is its own affair.
    assert_eq!(code(b"not json", br#"{"ts_ms":1}"#), Ok(()));
}

#[test]
fn reasons_hold_no_values() {
    let secret = "s3cr3t";
    let mut decoder = declared(&[("id", "int32"), ("v", "uuid")]);
    for (key, value) in [
        ("{\"id\":1}".to_owned(), format!(r#"{{"op":"c","after":{{"id":1,"v":"{secret}"}}}}"#)),
        (format!("{{\"id\":\"{secret}\"}}"), r#"{"op":"c","after":{"id":1}}"#.to_owned()),
        ("{\"id\":1}".to_owned(), format!(r#"{{"op":"{secret}"}}"#)),
        ("{\"id\":1}".to_owned(), secret.to_owned()),
        ("{\"id\":1}".to_owned(), format!(r#"{{"schema":{{"type":"{secret}","fields":"{secret}"}},"payload":{{}}}}"#)),
    ] {
        let reject = one(&mut decoder, &key, &value).expect_err("rejected");
        assert!(!reject.to_string().contains(secret), "{reject}");
    }
}
