//! MongoDB's events, whose rows are documents of extended JSON in a string.

use super::*;

fn options(types: &[(&str, &str)]) -> Options {
    Options {
        dialect: Dialect::Mongodb,
        connector: "mongodb",
        types: types.iter().map(|(name, ty)| ((*name).to_owned(), ty.parse().expect(ty))).collect(),
        types_are_columns: true,
        ..Options::new("t")
    }
}

/// A string of JSON that holds a text.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn event(op: char, document: Option<&str>, beside: &str) -> String {
    let after = document.map_or("null".to_owned(), quoted);
    format!(
        r#"{{"op":"{op}","before":null,"after":{after},{beside}"source":{{"connector":"mongodb","db":"shop","collection":"t","ts_ms":1709281800000,"ord":3}}}}"#
    )
}

fn key(id: &str) -> String {
    format!(r#"{{"id":{}}}"#, quoted(id))
}

/// What a record says in a word.
fn brief(options: &Options, key: Option<&str>, value: Option<&str>) -> Result<String, Code> {
    let record = Record { offset: 7, key: key.map(str::as_bytes), value: value.map(str::as_bytes), ..Record::default() };
    let said = say(&mut Decoder::new(options.clone()), record).map_err(|r| r.code)?;
    let [said] = &said[..] else { return Ok("nothing".to_owned()) };
    if value.is_some() {
        assert_eq!(said.sequence_text(), "0/1709281800000/3/0");
    }
    let column = |(name, value): (&String, &Option<String>)| format!("{name}={}", value.as_deref().unwrap_or("NULL"));
    let columns: Vec<String> = said.after.iter().map(column).chain(said.unauthored.iter().map(|name| format!("{name} kept"))).collect();
    Ok(format!("{} [{}] {}", said.op.letter(), said.key_values.join(","), columns.join(" ")))
}

const ID: &str = r#"{"$oid":"65e1a2b3c4d5e6f708192a3b"}"#;

fn value_of(ty: &str, value: &str) -> Result<String, Code> {
    let said = brief(&options(&[("v", ty)]), Some(&key(ID)), Some(&event('c', Some(&format!(r#"{{"_id":{ID},"v":{value}}}"#)), "")))?;
    Ok(said.split_once("v=").expect("a column").1.to_owned())
}

#[test]
fn case_env_04_values_say_their_types() {
    for (ty, value, expected) in [
        ("int64", r#"{"$numberLong":"9007199254740993"}"#, "9007199254740993"),
        ("int32", r#"{"$numberInt":"-5"}"#, "-5"),
        ("int32", "5", "5"),
        ("numeric", r#"{"$numberDecimal":"1.10"}"#, "1.10"),
        ("numeric", r#"{"$numberDecimal":"NaN"}"#, "NaN"),
        ("numeric", r#"{"$numberDecimal":"1E+3"}"#, "1000"),
        ("numeric", r#"{"$numberDouble":"0.1"}"#, "0.1"),
        ("numeric", "7", "7"),
        ("decimal(10,2)", r#"{"$numberLong":"7"}"#, "7.00"),
        ("float64", r#"{"$numberDouble":"-Infinity"}"#, "-Infinity"),
        ("float64", "1.5", "1.5"),
        ("float64", r#"{"$numberLong":"9007199254740992"}"#, "9007199254740992"),
        ("timestamptz(3)", r#"{"$date":1709281800123}"#, "2024-03-01T08:30:00.123Z"),
        ("timestamptz(6)", r#"{"$date":{"$numberLong":"1709281800123"}}"#, "2024-03-01T08:30:00.123000Z"),
        ("timestamptz(3)", r#"{"$date":"2024-03-01T08:30:00.123Z"}"#, "2024-03-01T08:30:00.123Z"),
        ("timestamptz(3)", r#"{"$date":{"$numberLong":"-1"}}"#, "1969-12-31T23:59:59.999Z"),
        ("text", r#"{"$oid":"65e1a2b3c4d5e6f708192a3b"}"#, "65e1a2b3c4d5e6f708192a3b"),
        ("text", r#""65e1a2b3c4d5e6f708192a3b""#, "65e1a2b3c4d5e6f708192a3b"),
        ("text", r#""a \"b\" \u00fc""#, "a \"b\" ü"),
        ("bytes", r#"{"$binary":{"base64":"AP8=","subType":"00"}}"#, "00ff"),
        ("bytes", r#"{"$binary":"AP8=","$type":"00"}"#, "00ff"),
        ("uuid", r#"{"$binary":{"base64":"fUhEQJ3AEdGyRV/9znT60g==","subType":"04"}}"#, "7d484440-9dc0-11d1-b245-5ffdce74fad2"),
        ("uuid", r#"{"$uuid":"7d444840-9dc0-11d1-b245-5ffdce74fad2"}"#, "7d444840-9dc0-11d1-b245-5ffdce74fad2"),
        ("boolean", "true", "true"),
        ("array(int32)", r#"[1,{"$numberInt":"2"},null]"#, "[1,2,null]"),
        ("json", r#"{"a":{"$numberLong":"1"}}"#, r#"{"a":{"$numberLong":"1"}}"#),
        ("json", r#""[1]""#, r#""[1]""#),
        ("json", "[]", "[]"),
        ("text", "null", "NULL"),
        ("text", r#"{"$undefined":true}"#, "NULL"),
    ] {
        assert_eq!(value_of(ty, value).as_deref(), Ok(expected), "{value} as {ty}");
    }
}

#[test]
fn what_a_column_does_not_hold_is_refused() {
    for (ty, value, expected) in [
        ("timestamptz(3)", "1709281800123", Code::ValueKind),
        ("float64", r#"{"$numberLong":"9007199254740993"}"#, Code::ValueOutOfRange),
        ("float32", "16777217", Code::ValueOutOfRange),
        ("int64", r#"{"$numberDouble":"1.5"}"#, Code::ValueKind),
        ("int64", r#"{"$numberDecimal":"1"}"#, Code::ValueKind),
        ("int32", r#"{"$numberLong":"3000000000"}"#, Code::ValueOutOfRange),
        ("text", "5", Code::ValueKind),
        ("text", r#"{"a":1}"#, Code::ValueKind),
        ("text", r#"{"$oid":"a","b":1}"#, Code::ValueKind),
        ("boolean", r#"{"$numberInt":"1"}"#, Code::ValueKind),
        ("bytes", r#"{"$oid":"65e1a2b3c4d5e6f708192a3b"}"#, Code::ValueKind),
        ("timestamptz(3)", r#"{"$timestamp":{"t":1,"i":1}}"#, Code::ValueKind),
        ("json", "[1,]", Code::JsonInvalid),
    ] {
        assert_eq!(value_of(ty, value), Err(expected), "{value} as {ty}");
    }
}

#[test]
fn a_document_is_known_by_its_id_however_that_is_written() {
    let options = options(&[("v", "text")]);
    let created = event('c', Some(&format!(r#"{{"_id":{ID},"v":"a"}}"#)), "");
    let deleted = event('d', None, "");
    let spaced = key("{ \"$oid\" : \"65e1a2b3c4d5e6f708192a3b\" }");
    let row = Ok("c [65e1a2b3c4d5e6f708192a3b] _id=65e1a2b3c4d5e6f708192a3b v=a".to_owned());
    assert_eq!(brief(&options, Some(&spaced), Some(&created)), row);
    assert_eq!(brief(&options, None, Some(&created)), row, "the document has its own");
    assert_eq!(brief(&options, Some(&spaced), Some(&deleted)).as_deref(), Ok("d [65e1a2b3c4d5e6f708192a3b] "));
    assert_eq!(brief(&options, Some(&spaced), None).as_deref(), Ok("d [65e1a2b3c4d5e6f708192a3b] "));
    assert_eq!(brief(&options, None, None).as_deref(), Ok("nothing"));
    assert_eq!(brief(&options, None, Some(&deleted)), Err(Code::NullKey));
    assert_eq!(brief(&options, Some(&key("5")), Some(&created)), Err(Code::ValueKind), "a number is no text");
    assert_eq!(brief(&options, Some(&key(r#"{"$oid":"65e1a2b3c4d5e6f708192a3c"}"#)), Some(&created)), Err(Code::KeyMismatch));
    assert_eq!(brief(&options, Some(r#"{"id":5}"#), Some(&created)), Err(Code::KeyMissing));
    assert_eq!(brief(&options, Some("{}"), Some(&created)), Err(Code::KeyMissing));
    // A string that looks like an object id would be the same row as that.
    let like = event('c', Some(r#"{"_id":"65e1a2b3c4d5e6f708192a3b","v":"a"}"#), "");
    assert_eq!(brief(&options, Some(&key("\"65e1a2b3c4d5e6f708192a3b\"")), Some(&like)), Err(Code::ValueKind));
    assert_eq!(brief(&options, None, Some(&like)), Err(Code::ValueKind));
    let wrapped = format!(
        r#"{{"schema":{{"type":"struct","fields":[{{"type":"string","optional":false,"field":"id"}}],"optional":false}},"payload":{spaced}}}"#
    );
    assert_eq!(brief(&options, Some(&wrapped), Some(&deleted)).as_deref(), Ok("d [65e1a2b3c4d5e6f708192a3b] "));
    let numbered = Options { primary_key: Some(vec!["_id".to_owned()]), ..self::options(&[("_id", "int64"), ("v", "text")]) };
    for id in ["1004", r#"{"$numberLong":"1004"}"#] {
        let created = event('r', Some(r#"{"_id":{"$numberLong":"1004"},"v":"a"}"#), "");
        assert_eq!(brief(&numbered, Some(&key(id)), Some(&created)).as_deref(), Ok("r [1004] _id=1004 v=a"));
    }
}

#[test]
fn members_are_declared_or_stay_in_the_document() {
    let document = format!(r#"{{"_id":{ID},"v":"a","w":[1]}}"#);
    let value = event('c', Some(&document), "");
    let said = |options: &Options| brief(options, Some(&key(ID)), Some(&value));
    let id = "65e1a2b3c4d5e6f708192a3b";
    assert_eq!(said(&options(&[])), Ok(format!("c [{id}] _id={id} document={document}")));
    assert_eq!(said(&options(&[("v", "text")])), Err(Code::TypesMissing));
    let named = Options { document: Some("doc".to_owned()), ..options(&[("v", "text"), ("x", "int32")]) };
    assert_eq!(said(&named), Ok(format!("c [{id}] _id={id} doc={document} v=a x=NULL")));
    let left = Options { exclude: vec!["w".to_owned()], ..options(&[("v", "text")]) };
    assert_eq!(said(&left), Ok(format!("c [{id}] _id={id} v=a")));
    assert_eq!(said(&Options { document: Some("v".to_owned()), ..options(&[("v", "text")]) }), Err(Code::DuplicateColumn));
    assert_eq!(said(&Options { primary_key: Some(vec!["v".to_owned()]), ..options(&[("v", "text")]) }), Err(Code::KeyColumnMissing));
    let twice = event('c', Some(&format!(r#"{{"_id":{ID},"v":"a","v":"b"}}"#)), "");
    assert_eq!(brief(&options(&[("v", "text")]), Some(&key(ID)), Some(&twice)), Err(Code::JsonDuplicateKey));
}

/// Case TOA-04's kin: an update that says only what it altered.
#[test]
fn an_update_without_its_document_keeps_the_rest() {
    let types = [("v", "text"), ("n", "int32"), ("d", "json")];
    let said = |options: &Options, updated: &str, rest: &str| {
        let beside = format!(r#""updateDescription":{{"updatedFields":{},{rest}}},"#, quoted(updated));
        brief(options, Some(&key(ID)), Some(&event('u', None, &beside)))
    };
    let options = options(&types);
    let id = "65e1a2b3c4d5e6f708192a3b";
    let none = r#""removedFields":null,"truncatedArrays":[]"#;
    assert_eq!(said(&options, r#"{"v":"b"}"#, none), Ok(format!("u [{id}] _id={id} v=b n kept d kept")));
    assert_eq!(said(&options, "{}", r#""removedFields":["n"]"#), Ok(format!("u [{id}] _id={id} n=NULL v kept d kept")));
    assert_eq!(said(&options, r#"{"d.a":1}"#, none), Err(Code::EnvelopeRowMissing), "a part of a document is no value");
    assert_eq!(said(&options, "{}", r#""truncatedArrays":[{"field":"d","size":1}]"#), Err(Code::EnvelopeRowMissing));
    assert_eq!(said(&options, r#"{"x":1}"#, none), Err(Code::TypesMissing));
    let left = Options { exclude: vec!["x".to_owned()], ..options.clone() };
    assert_eq!(said(&left, r#"{"x.a":1,"n":2}"#, none), Ok(format!("u [{id}] _id={id} n=2 v kept d kept")));
    assert_eq!(said(&self::options(&[]), r#"{"v":"b"}"#, none), Err(Code::EnvelopeRowMissing), "nobody has the document");
    assert_eq!(brief(&options, Some(&key(ID)), Some(&event('u', None, ""))), Err(Code::EnvelopeRowMissing));
}

#[test]
fn what_is_beside_documents_is_told_apart() {
    let options = options(&[("v", "text")]);
    assert_eq!(brief(&options, None, Some(r#"{"ts_ms":1700000000000}"#)).as_deref(), Ok("nothing"));
    let mut plain = Decoder::new(Options::new("t"));
    let value = event('c', Some("{}"), "");
    let record = Record { key: Some(br#"{"id":"1"}"#), value: Some(value.as_bytes()), ..Record::default() };
    let reject = say(&mut plain, record).expect_err("no row of a table");
    assert!(reject.code == Code::EnvelopeInvalid && reject.reason.contains("MongoDB"), "{reject}");
    let unordered = value.replace("\"ord\":3", "\"ordinal\":3");
    let record = Record { value: Some(unordered.as_bytes()), ..Record::default() };
    assert_eq!(say(&mut Decoder::new(self::options(&[])), record).expect_err("no key").code, Code::NullKey);
    assert_eq!(brief(&options, Some(&key(ID)), Some(&event('d', None, "").replace("\"ord\":3", "\"x\":3"))), Err(Code::NoOrder));
}
