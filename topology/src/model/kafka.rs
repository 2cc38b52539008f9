//! `kafka`: brokers, security, client options, registry.
//!
//! Client options are a short list of librdkafka keys: some of the others start programs or load code, and some would undo what
//! exactness rests on (RELIABILITY.md D 5, D 25). The list itself stands in `validate/client.rs`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Entries, Field, SecretText, UrlText};
use crate::quantity::ScalarText;

/// The Kafka cluster that holds input topics and change logs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["brokers"]))]
pub struct Kafka {
    /// Addresses to start from, each `host:port`. Required, at least one.
    #[schemars(length(min = 1))]
    pub brokers: Field<Vec<Field<String>>>,
    /// Encryption and login. Default: plaintext without login, allowed without a word only to this machine.
    pub security: Field<Security>,
    /// Options of the Kafka client, from a list of harmless ones. Default: none.
    pub client: Field<Entries<OptionText>>,
    /// Schema registry of topics in Avro or Protobuf. Default: none.
    pub registry: Field<Registry>,
}

/// Encryption and login.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["protocol"]))]
pub struct Security {
    /// `plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`. Required in this block.
    pub protocol: Field<Protocol>,
    /// Login mechanism: `plain` (only under TLS), `scram-sha-256` or `scram-sha-512`. Required with `sasl_…`.
    pub mechanism: Field<Mechanism>,
    /// Login name. Required with `sasl_…`.
    pub username: Field<String>,
    /// Login password, a reference. Required with `sasl_…`.
    pub password: Field<SecretText>,
    /// Path of the certificate authorities in PEM. Default: those of the system.
    pub ca: Field<String>,
    /// Path of the client certificate in PEM; with `key`. Default: none.
    pub certificate: Field<String>,
    /// Path of the client certificate's key in PEM; with `certificate`. Default: none.
    pub key: Field<String>,
    /// Password of the key file, a reference. Default: none.
    pub key_password: Field<SecretText>,
}

/// How the connection is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Neither encryption nor login.
    Plaintext,
    /// TLS without login, perhaps with a client certificate.
    Ssl,
    /// Login without encryption.
    SaslPlaintext,
    /// Login under TLS.
    SaslSsl,
}

/// How to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Mechanism {
    /// Name and password as they are; only under TLS.
    #[serde(rename = "plain")]
    Plain,
    /// SCRAM with SHA-256.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// SCRAM with SHA-512.
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

/// Schema registry.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["url"]))]
pub struct Registry {
    /// Address of the registry's API, `http://` or `https://`. Required in this block.
    pub url: Field<UrlText>,
    /// Login name. Default: none.
    pub username: Field<String>,
    /// Login password, a reference. Default: none.
    pub password: Field<SecretText>,
    /// Bytes of a schema id in front of a record: 4, or 8 as Apicurio's own serializers wrote it. Default: 4.
    pub id_bytes: Field<u32>,
}

/// The value of a client option: a text, a number, true or false.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "ScalarText")]
pub struct OptionText(pub(crate) String);

impl From<ScalarText> for OptionText {
    fn from(text: ScalarText) -> Self {
        Self(text.0)
    }
}

impl JsonSchema for OptionText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ClientOption".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": ["string", "number", "boolean"],
            "description": "Value of a client option.",
        })
    }
}
