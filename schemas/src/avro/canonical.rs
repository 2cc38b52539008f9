//! The parsing canonical form of a schema and its fingerprint, by which Avro's single-object encoding names the schema of a record.
//!
//! Avro specification, "Parsing Canonical Form for Schemas" and "Schema Fingerprints". Everything that does not change how bytes are read is left
//! out: attributes, white space, the order of an object's members.

use serde_json::{Map, Value as Json};

use super::SchemaError;

/// The parsing canonical form of a schema that has been read before, in the namespace around it.
pub(crate) fn canonical_form(schema: &Json, namespace: &str) -> String {
    match schema {
        Json::String(name) => format!("\"{}\"", full_name(name, namespace)),
        Json::Array(branches) => {
            let branches: Vec<String> = branches.iter().map(|b| canonical_form(b, namespace)).collect();
            format!("[{}]", branches.join(","))
        }
        Json::Object(map) => canonical_object(map, namespace),
        _ => String::new(),
    }
}

/// The fingerprint of a schema's text.
pub fn fingerprint(text: &str) -> Result<u64, SchemaError> {
    // Reading it bounds its depth, and finds what is none.
    let _ = super::Schema::parse(text, &[])?;
    let json = serde_json::from_str(text).map_err(|_| SchemaError::Json)?;
    Ok(crc64(canonical_form(&json, "").as_bytes()))
}

/// A name with its namespace; those of primitives have none.
fn full_name(name: &str, namespace: &str) -> String {
    const PRIMITIVES: [&str; 8] = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];
    if name.contains('.') || namespace.is_empty() || PRIMITIVES.contains(&name) { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn canonical_object(map: &Map<String, Json>, namespace: &str) -> String {
    let Some(Json::String(word)) = map.get("type") else { return map.get("type").map_or_else(String::new, |ty| canonical_form(ty, namespace)) };
    let member = |name: &str| map.get(name).unwrap_or(&Json::Null);
    let text = |name: &str| member(name).as_str();
    let name = full_name(text("name").unwrap_or_default(), text("namespace").unwrap_or(namespace));
    match word.as_str() {
        "record" | "error" => {
            let namespace = name.rsplit_once('.').map_or("", |(namespace, _)| namespace);
            let field = |f: &Json| format!("{{\"name\":{},\"type\":{}}}", f["name"], canonical_form(&f["type"], namespace));
            let fields: Vec<String> = member("fields").as_array().into_iter().flatten().map(field).collect();
            format!("{{\"name\":\"{name}\",\"type\":\"{word}\",\"fields\":[{}]}}", fields.join(","))
        }
        "enum" => format!("{{\"name\":\"{name}\",\"type\":\"enum\",\"symbols\":{}}}", member("symbols")),
        "fixed" => format!("{{\"name\":\"{name}\",\"type\":\"fixed\",\"size\":{}}}", member("size")),
        "array" => format!("{{\"type\":\"array\",\"items\":{}}}", canonical_form(member("items"), namespace)),
        "map" => format!("{{\"type\":\"map\",\"values\":{}}}", canonical_form(member("values"), namespace)),
        named => format!("\"{}\"", full_name(named, namespace)),
    }
}

/// CRC-64-AVRO, the Rabin fingerprint of the Avro specification.
pub fn crc64(bytes: &[u8]) -> u64 {
    const EMPTY: u64 = 0xC15D_213A_A4D7_A795;
    const TABLE: [u64; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut fp = i as u64;
            let mut bit = 0;
            while bit < 8 {
                fp = (fp >> 1) ^ (EMPTY & (fp & 1).wrapping_neg());
                bit += 1;
            }
            table[i] = fp;
            i += 1;
        }
        table
    };
    bytes.iter().fold(EMPTY, |fp, b| (fp >> 8) ^ TABLE[((fp ^ u64::from(*b)) & 0xFF) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc64_of_the_specification() {
        // From the Avro specification's own test vectors: the fingerprints of "int" and "null".
        assert_eq!(crc64(b"\"int\""), 0x7275_D51A_3F39_5C8F);
        assert_eq!(crc64(b"\"null\""), 0x63DD_24E7_CC25_8F8A);
    }

    #[test]
    fn what_says_nothing_of_bytes_is_left_out() {
        let forms = [
            (r#"{"type":"int","doc":"x"}"#, r#""int""#),
            (r#"{"type":{"type":"string","avro.java.string":"String"}}"#, r#""string""#),
            (
                r#"{"fields":[{"type":{"type":"bytes","logicalType":"decimal","precision":4},"default":"","name":"f"}],"name":"R","type":"record","namespace":"a.b"}"#,
                r#"{"name":"a.b.R","type":"record","fields":[{"name":"f","type":"bytes"}]}"#,
            ),
            // A name with a namespace of its own gives it to what is within.
            (
                r#"{"type":"record","name":"x.R","namespace":"a","fields":[{"name":"e","type":{"type":"enum","name":"E","symbols":["A"],"aliases":["b"]}},{"name":"g","type":["null","E"]},
              {"name":"m","type":{"type":"map","values":"R"}},{"name":"h","type":{"type":"fixed","name":"y.F","size":4}}]}"#,
                r#"{"name":"x.R","type":"record","fields":[{"name":"e","type":{"name":"x.E","type":"enum","symbols":["A"]}},{"name":"g","type":["null","x.E"]},{"name":"m","type":{"type":"map","values":"x.R"}},{"name":"h","type":{"name":"y.F","type":"fixed","size":4}}]}"#,
            ),
        ];
        for (schema, form) in forms {
            assert_eq!(canonical_form(&serde_json::from_str(schema).expect("JSON"), ""), form);
            assert_eq!(fingerprint(schema).expect("a schema"), crc64(form.as_bytes()));
        }
        assert!(fingerprint("{").is_err());
    }
}
