//! A schema registry that does as a test says, and records in Avro for it.
//!
//! The real one is among the services (`stack::registry`); this one fails, forgets and counts on demand. The encoder here follows the
//! specification by itself: it shares nothing with the product's reader.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// What is registered, what fails, and how often each id was asked for.
#[derive(Debug, Default)]
struct State {
    schemas: BTreeMap<u32, Value>,
    failing: BTreeMap<u32, u16>,
    asked: BTreeMap<u32, u32>,
    /// Whether nothing may be registered.
    is_closed: bool,
}

/// A registry on a port of its own.
#[derive(Debug)]
pub struct Registry {
    url: String,
    state: Arc<Mutex<State>>,
}

impl Registry {
    /// A registry that has these schemas.
    pub fn start(schemas: BTreeMap<u32, Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let state = Arc::new(Mutex::new(State { schemas, ..State::default() }));
        let shared = Arc::clone(&state);
        // Ends with the test's process.
        drop(std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(answer(stream, &shared)))));
        Self { url, state }
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on an id is answered with this status; 200 ends that.
    pub fn fail(&self, id: u32, status: u16) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = if status == 200 { state.failing.remove(&id) } else { state.failing.insert(id, status) };
    }

    /// What is registered under an id.
    pub fn schema(&self, id: u32) -> Option<Value> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).schemas.get(&id).cloned()
    }

    /// Whether schemas may be registered from now on.
    pub fn close(&self, is_closed: bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_closed = is_closed;
    }

    /// How often an id was asked for.
    pub fn asked(&self, id: u32) -> u32 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).asked.get(&id).copied().unwrap_or(0)
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    let _ = reader.read_line(&mut request)?;
    let mut header = String::new();
    let mut length = 0;
    while reader.read_line(&mut header)? > 2 {
        if let Some(("content-length", bytes)) = header.to_ascii_lowercase().split_once(':') {
            length = bytes.trim().parse().unwrap_or(0);
        }
        header.clear();
    }
    if request.starts_with("POST /subjects/") {
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        return register(&mut stream, &body, state);
    }
    let id = request.split_whitespace().nth(1).and_then(|path| path.strip_prefix("/schemas/ids/")?.split('?').next()?.parse::<u32>().ok());
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let (status, body) = match id {
        None => (404, json!({ "error_code": 404, "message": "nothing is there" })),
        Some(id) => {
            *state.asked.entry(id).or_default() += 1;
            match (state.failing.get(&id), state.schemas.get(&id)) {
                (Some(status), _) => (*status, json!({ "error_code": i32::from(*status) * 100, "message": "as the test says" })),
                (None, Some(schema)) => match schema[PROTOBUF].as_str() {
                    Some(text) => (200, json!({ "schemaType": PROTOBUF, "schema": text })),
                    None => (200, json!({ "schema": schema.to_string() })),
                },
                (None, None) => (404, json!({ "error_code": 40403, "message": "Schema not found" })),
            }
        }
    };
    drop(state);
    respond(&mut stream, status, &body)
}

/// Registers a schema, under whatever subject: it gets the next id, or the one that it has.
fn register(stream: &mut TcpStream, body: &[u8], state: &Mutex<State>) -> std::io::Result<()> {
    let posted: Value = serde_json::from_slice(body).unwrap_or_default();
    let schema: Value = serde_json::from_str(posted["schema"].as_str().unwrap_or_default()).unwrap_or_default();
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    if state.is_closed {
        return respond(stream, 403, &json!({ "error_code": 40301, "message": "as the test says" }));
    }
    let known = state.schemas.iter().find(|(_, known)| **known == schema).map(|(id, _)| *id);
    let id = known.unwrap_or_else(|| state.schemas.keys().next_back().map_or(1, |last| last + 1));
    let _ = state.schemas.insert(id, schema);
    respond(stream, 200, &json!({ "id": id }))
}

fn respond(stream: &mut TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    write!(
        stream,
        "HTTP/1.1 {status} -\r\nContent-Type: application/vnd.schemaregistry.v1+json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// What a registry calls schemas of Protobuf.
const PROTOBUF: &str = "PROTOBUF";

/// A schema of Protobuf among those of a registry.
pub fn protobuf_schema(text: &str) -> Value {
    json!({ PROTOBUF: text })
}

/// The schema of a record key with these fields.
pub fn key_schema(fields: &[Value]) -> Value {
    json!({ "type": "record", "name": "Key", "namespace": "test", "fields": fields })
}

/// The schema of a change event whose rows have these fields.
pub fn envelope_schema(fields: &[Value]) -> Value {
    let optional = |name: &str, ty: &str| json!({ "name": name, "type": ["null", ty], "default": null });
    let texts = ["version", "connector", "name", "snapshot", "db", "sequence", "schema", "table", "file", "scn"];
    let numbers = ["ts_ms", "txId", "lsn", "server_id", "pos", "row"];
    let source: Vec<Value> = texts.iter().map(|n| optional(n, "string")).chain(numbers.iter().map(|n| optional(n, "long"))).collect();
    json!({ "type": "record", "name": "Envelope", "namespace": "test", "fields": [
        { "name": "before", "type": ["null", { "type": "record", "name": "Value", "fields": fields }], "default": null },
        { "name": "after", "type": ["null", "Value"], "default": null },
        { "name": "source", "type": { "type": "record", "name": "Source", "fields": source } },
        { "name": "op", "type": "string" },
        optional("ts_ms", "long"),
    ] })
}

/// A datum in the frame of its schema's id. Bytes and fixed are base64 in the datum; members that it lacks are null.
pub fn framed(id: u32, schema: &Value, datum: &Value) -> Vec<u8> {
    let mut out = vec![0];
    out.extend(id.to_be_bytes());
    let mut names = BTreeMap::new();
    collect(schema, &mut names);
    encode(schema, datum, &names, &mut out);
    out
}

/// The named types of a schema, by their short names.
fn collect<'s>(schema: &'s Value, names: &mut BTreeMap<&'s str, &'s Value>) {
    match schema {
        Value::Array(branches) => branches.iter().for_each(|b| collect(b, names)),
        Value::Object(object) => {
            if let Some(name) = schema["name"].as_str().filter(|_| matches!(schema["type"].as_str(), Some("record" | "fixed" | "enum"))) {
                let _ = names.insert(name, schema);
            }
            object.values().filter(|v| v.is_object()).for_each(|v| collect(v, names));
            schema["fields"].as_array().into_iter().flatten().for_each(|f| collect(&f["type"], names));
        }
        _ => {}
    }
}

fn encode(schema: &Value, datum: &Value, names: &BTreeMap<&str, &Value>, out: &mut Vec<u8>) {
    let bytes = |datum: &Value| STANDARD.decode(datum.as_str().expect("base64")).expect("base64");
    let word = schema.as_str().or_else(|| schema["type"].as_str());
    match (schema, word) {
        (Value::Array(branches), _) => {
            let is_null = |b: &Value| b == "null";
            let branch = branches.iter().position(|b| is_null(b) == datum.is_null()).unwrap_or_else(|| panic!("no branch for {datum}"));
            long(branch as i64, out);
            encode(&branches[branch], datum, names, out);
        }
        (_, Some("null")) => {}
        (_, Some("boolean")) => out.push(u8::from(datum.as_bool().expect("true or false"))),
        (_, Some("int" | "long")) => long(datum.as_i64().unwrap_or_else(|| panic!("{datum} is no integer")), out),
        (_, Some("float")) => out.extend((datum.as_f64().expect("a number") as f32).to_le_bytes()),
        (_, Some("double")) => out.extend(datum.as_f64().expect("a number").to_le_bytes()),
        (_, Some("string")) => sized(datum.as_str().unwrap_or_else(|| panic!("{datum} is no text")).as_bytes(), out),
        (_, Some("bytes")) => sized(&bytes(datum), out),
        (_, Some("fixed")) => out.extend(bytes(datum)),
        (_, Some("enum")) => {
            let at = schema["symbols"].as_array().and_then(|symbols| symbols.iter().position(|s| s == datum));
            long(at.expect("a symbol") as i64, out);
        }
        (_, Some("record")) => {
            for field in schema["fields"].as_array().expect("fields") {
                encode(&field["type"], &datum[field["name"].as_str().expect("a name")], names, out);
            }
        }
        (Value::Object(object), None) => encode(&object["type"], datum, names, out),
        (_, Some(name)) => encode(names.get(name).unwrap_or_else(|| panic!("there is no type {name}")), datum, names, out),
        _ => panic!("{schema} is no schema"),
    }
}

fn sized(bytes: &[u8], out: &mut Vec<u8>) {
    long(bytes.len() as i64, out);
    out.extend(bytes);
}

fn long(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
