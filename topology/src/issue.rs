//! What is wrong with a topology file: where, what, and how to mend it.
//!
//! Every step collects issues instead of stopping at the first, so an operator mends a file once. Codes are stable names: people
//! search for them and programs branch on them, so a code is never renamed and never used for a second thing.
//! An issue must never carry a secret: a value that could be one is masked before a source line is kept (`mask.rs`).

use std::fmt;

use serde::{Serialize, Serializer};

use crate::excerpt::Excerpt;

/// A place in a file: the position of a value and its path in the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// Number of the document in the order given to [`crate::check`].
    pub(crate) file: u32,
    /// Line, from 1.
    pub(crate) line: u32,
    /// Column in characters, from 1.
    pub(crate) column: u32,
    /// Width in characters, at least 1.
    pub(crate) width: u32,
    /// Path such as `tables[0].replicas[1].store`; empty for the file itself.
    pub(crate) path: String,
}

impl At {
    /// The place of a key that should stand inside the value at this place but does not.
    pub(crate) fn child(&self, key: &str) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { path, ..self.clone() }
    }
}

/// Whether an issue forbids a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No plan is built.
    Error,
    /// The plan stands; something in the file deserves a look.
    Warning,
}

macro_rules! codes {
    ($($(#[$doc:meta])+ $name:ident = $text:literal,)+) => {
        /// The stable name of a kind of issue.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])+ $name,)+
        }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable text, such as `topology.unknown_key`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

codes! {
    /// The text is not YAML.
    YamlSyntax = "topology.yaml_syntax",
    /// The text is larger, deeper or more repetitive than a topology file may be.
    YamlLimit = "topology.yaml_limit",
    /// A plain value that YAML 1.1 and 1.2 readers, or text and number, take differently.
    YamlAmbiguous = "topology.yaml_ambiguous",
    /// One mapping has a key twice.
    DuplicateKey = "topology.duplicate_key",
    /// A key that no field has.
    UnknownKey = "topology.unknown_key",
    /// A list where a text belongs, and the like.
    WrongKind = "topology.wrong_kind",
    /// A value that its field cannot take.
    BadValue = "topology.bad_value",
    /// A word that is not one of the field's choices.
    UnknownValue = "topology.unknown_value",
    /// A key without a value.
    EmptyValue = "topology.empty_value",
    /// A field that must be there is not.
    Required = "topology.required",
    /// A secret written into the file.
    LiteralSecret = "topology.literal_secret",
    /// An `${env:…}` or `${file:…}` that leads nowhere.
    UnresolvedReference = "topology.unresolved_reference",
    /// A field or value whose effect this version does not have.
    NotSupportedYet = "topology.not_supported_yet",
    /// A field that only a query engine could honour.
    BelongsToQueryEngine = "topology.belongs_to_query_engine",
    /// A Kafka client option outside the allow-list.
    ClientOptionRefused = "topology.client_option_refused",
    /// Two things of one kind share an id.
    DuplicateId = "topology.duplicate_id",
    /// `kafka`, `defaults` or `topology` in several files.
    DuplicateSection = "topology.duplicate_section",
    /// A source or store that is not declared.
    UnknownReference = "topology.unknown_reference",
    /// Two replicas, or two stores, that would write to one place.
    SameTarget = "topology.same_target",
    /// A name with characters or a length that its place cannot hold.
    BadName = "topology.bad_name",
    /// A name that Landfall keeps for itself.
    ReservedName = "topology.reserved_name",
    /// A field that has no meaning beside the others given.
    FieldUnused = "topology.field_unused",
    /// A glob or regular expression that cannot be used.
    BadPattern = "topology.bad_pattern",
    /// Two tables that read one topic.
    SameTopic = "topology.same_topic",
    /// A topic name that Kafka would not take.
    TopicName = "topology.topic_name",
    /// No broker, or a broker that is no address.
    KafkaBrokers = "kafka.brokers",
    /// Security settings that do not fit together.
    KafkaSecurity = "kafka.security",
    /// SASL PLAIN without TLS.
    KafkaPlainWithoutTls = "kafka.plain_without_tls",
    /// An unencrypted connection to another machine that nobody asked for.
    KafkaPlaintextConsent = "kafka.plaintext_consent",
    /// A change signal outside the seven.
    SignalInvalid = "signal.invalid",
    /// `debezium` (or `kafka` on another database's source) without a `cdc` block.
    SignalDebeziumNeedsCdc = "signal.debezium_needs_cdc",
    /// `kafka` that names no topic.
    SignalKafkaNeedsTopic = "signal.kafka_needs_topic",
    /// `native` on a source type without a change feed of its own.
    SignalNativeUnsupported = "signal.native_unsupported",
    /// `live.strategy` decides because no `change_signal` is set.
    SignalLegacyStrategy = "signal.legacy_strategy",
    /// The longest delay is shorter than the quiet time, or one is negative.
    PushDebounceOrder = "push.debounce_order",
    /// A column name that Landfall keeps for itself.
    ScdReservedColumn = "scd.reserved_column",
    /// A float as key column.
    KeyFloat = "key.float",
    /// A log that forgets while a replica folds it.
    LogRetentionTooShort = "log.retention_too_short",
    /// Two tables that would write one change log.
    LogSameTopic = "log.same_topic",
    /// A source topic that Landfall itself writes.
    LogLoop = "log.loop",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One problem of a topology file.
///
/// `Display` gives the plain text rendering over several lines, `Serialize` the form for machines (without the source line).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Issue {
    /// Stable name of the kind of problem.
    pub code: Code,
    /// Whether it forbids a plan.
    pub severity: Severity,
    /// Name of the document, as given to it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Path in the model, such as `tables[0].replicas[1].store`; empty for the file itself.
    pub path: String,
    /// What is wrong: a lowercase fragment without a full stop.
    pub message: String,
    /// The nearest valid spelling, where one is near.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
    /// How to mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The line of the file, masked, for the text rendering.
    #[serde(skip)]
    pub(crate) excerpt: Option<Excerpt>,
}

impl fmt::Display for Issue {
    /// What, where, hint: `error[code]: message`, the place, the source line with a caret, and the hint. UTF-8 without colour.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(f, "{severity}[{}]: {}", self.code, self.message)?;
        write!(f, "  at {}:{}:{}", visible(&self.file), self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, " ({})", self.path)?;
        }
        writeln!(f)?;
        if let Some(excerpt) = &self.excerpt {
            excerpt.write(f, self.line)?;
        }
        if let Some(nearest) = &self.nearest {
            writeln!(f, "  did you mean {nearest}?")?;
        }
        if let Some(hint) = &self.hint {
            writeln!(f, "  hint: {hint}")?;
        }
        Ok(())
    }
}

/// A problem before it is bound to its file: what the steps hand to [`crate::issues::Issues`].
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) code: Code,
    pub(crate) severity: Severity,
    pub(crate) message: String,
    pub(crate) nearest: Option<String>,
    pub(crate) hint: Option<String>,
}

impl Finding {
    /// An error.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, severity: Severity::Error, message: message.into(), nearest: None, hint: None }
    }

    /// A warning.
    pub(crate) fn warning(code: Code, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::new(code, message) }
    }

    /// Adds how to mend it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the nearest valid spelling, if one is near.
    pub(crate) fn nearest(mut self, nearest: Option<&str>) -> Self {
        self.nearest = nearest.map(str::to_owned);
        self
    }
}

/// Text from a file as messages show it: cut to 64 characters, control and bidirectional characters escaped, in double quotes.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::from("\"");
    for (at, c) in text.chars().enumerate() {
        if at == 64 {
            out.push('…');
            break;
        }
        push_visible(&mut out, c);
    }
    out.push('"');
    out
}

/// Text as it may be shown without quotes: cut to 200 characters, control and bidirectional characters escaped.
pub(crate) fn visible(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(200) {
        push_visible(&mut out, c);
    }
    out
}

/// Appends a character so that one line in stays one line out and nothing steers a terminal.
pub(crate) fn push_visible(out: &mut String, c: char) {
    match c {
        '"' | '\'' | '\\' => out.push(c),
        _ => out.extend(c.escape_debug()),
    }
}
