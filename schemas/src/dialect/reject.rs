//! Why a record does not become a change, and what that means for the table.
//!
//! Every code is here, once. A reason names tables, columns and types, never a value: reasons go to logs, metrics and dead letters. Whether a
//! rejected record is set aside or stops its table follows from the code alone, so that no caller decides it anew (law 10).

use crate::row::ValueError;
use crate::table::{COLUMNS_MAX, SchemaError};
use crate::types::LogicalType;
use crate::wire::WireError;

/// What becomes of a rejected record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectKind {
    /// The record goes to the dead letters, the table goes on.
    Poison,
    /// Every such record would be rejected: the table stops and says why.
    StopTable,
}

/// The reasons for which a record is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Key or value is not UTF-8 JSON, or nests too deeply.
    JsonInvalid,
    /// A row, a key or an envelope names a member twice.
    JsonDuplicateKey,
    /// Bytes that are no frame of a registry, where a frame is expected.
    FrameInvalid,
    /// A schema that the registry does not have.
    RegistryUnknown,
    /// A fingerprint of Avro's single-object encoding that no given schema has.
    FingerprintUnknown,
    /// A framed record, and no registry to ask.
    RegistryMissing,
    /// A registered schema that is none of its kind, or none that can be read here.
    RegistrySchema,
    /// Bytes that do not fit their registered schema.
    AvroInvalid,
    /// The same of a message of Protobuf.
    ProtobufInvalid,
    /// Neither a change event nor one of the connector's other records.
    EnvelopeInvalid,
    /// The schema part is not a Connect schema.
    EnvelopeSchema,
    /// An operation that is none of `c`, `u`, `d`, `r`, `t`, `m`.
    EnvelopeUnknownOp,
    /// A create, update or snapshot read without a row behind it.
    EnvelopeRowMissing,
    /// A row has a column that its own schema part does not.
    EnvelopeUnknownColumn,
    /// A column's type has no logical type yet.
    TypeUnsupported,
    /// No schema part, and a column whose type is not declared.
    TypesMissing,
    /// A declared type that the column's own type cannot be read as.
    TypesConflict,
    /// A value of another kind than its column's type.
    ValueKind,
    /// A value beyond its type's range or size.
    ValueOutOfRange,
    /// A value with more digits of a second than its type keeps.
    ValueTooPrecise,
    /// A decimal whose scale is not told.
    ValueScale,
    /// A value of another kind than those that its column's type was inferred from.
    ValueNotAsInferred,
    /// Infinity in a type that has none.
    ValueInfinite,
    /// A key column that one record lacks, or whose value was not sent.
    KeyMissing,
    /// A key column that the table lacks: no record of it can have a key.
    KeyColumnMissing,
    /// The key that the record carries is not the row's.
    KeyMismatch,
    /// A NULL in a key column, or no key at all (SEMANTICS.md A.1.1).
    NullKey,
    /// A key column of a type that cannot be a key.
    KeyType,
    /// A table without columns.
    NoColumns,
    /// A column or key column that is named twice.
    DuplicateColumn,
    /// More columns than a table may have.
    TooManyColumns,
    /// A column whose name replicas keep for themselves (SEMANTICS.md A.1.8).
    ReservedColumn,
    /// The source gives no order that may be relied on (ARCHITECTURE.md, Repeats, zombies and order).
    NoOrder,
    /// A truncate of a table that is ordered by offset.
    TruncateUnsupported,
}

impl Code {
    /// The stable code in metrics, dead letters and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JsonInvalid => "json.invalid",
            Self::JsonDuplicateKey => "json.duplicate_key",
            Self::FrameInvalid => "frame.invalid",
            Self::RegistryUnknown => "registry.schema_unknown",
            Self::FingerprintUnknown => "avro.schema_unknown",
            Self::RegistryMissing => "registry.not_configured",
            Self::RegistrySchema => "registry.schema_invalid",
            Self::AvroInvalid => "avro.invalid",
            Self::ProtobufInvalid => "protobuf.invalid",
            Self::EnvelopeInvalid => "envelope.invalid",
            Self::EnvelopeSchema => "envelope.schema_invalid",
            Self::EnvelopeUnknownOp => "envelope.unknown_op",
            Self::EnvelopeRowMissing => "envelope.row_missing",
            Self::EnvelopeUnknownColumn => "envelope.unknown_column",
            Self::TypeUnsupported => "type.unsupported",
            Self::TypesMissing => "types.missing",
            Self::TypesConflict => "types.conflict",
            Self::ValueKind => "value.kind",
            Self::ValueOutOfRange => "value.out_of_range",
            Self::ValueTooPrecise => "value.too_precise",
            Self::ValueScale => "value.no_scale",
            Self::ValueNotAsInferred => "value.not_as_inferred",
            Self::ValueInfinite => "value.infinite",
            Self::KeyMissing => "key.missing",
            Self::KeyColumnMissing => "schema.key_missing",
            Self::KeyMismatch => "key.mismatch",
            Self::NullKey => "scd.null_key",
            Self::KeyType => "schema.key_type",
            Self::NoColumns => "schema.no_columns",
            Self::DuplicateColumn => "schema.duplicate_column",
            Self::TooManyColumns => "schema.too_many_columns",
            Self::ReservedColumn => "scd.reserved_column",
            Self::NoOrder => "source.no_order",
            Self::TruncateUnsupported => "change.truncate_unsupported",
        }
    }

    /// What becomes of the record.
    pub const fn kind(self) -> RejectKind {
        match self {
            Self::TypeUnsupported
            | Self::TypesMissing
            | Self::TypesConflict
            | Self::RegistryMissing
            | Self::RegistrySchema
            | Self::KeyColumnMissing
            | Self::KeyType
            | Self::NoColumns
            | Self::DuplicateColumn
            | Self::TooManyColumns
            | Self::ReservedColumn
            | Self::NoOrder
            | Self::TruncateUnsupported => RejectKind::StopTable,
            _ => RejectKind::Poison,
        }
    }
}

/// The longest reason.
const REASON_BYTES_MAX: usize = 4_000;

/// A rejected record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", code.as_str())]
pub struct Reject {
    /// Why, for machines.
    pub code: Code,
    /// Why, for people; holds no value of any row.
    pub reason: String,
}

impl Reject {
    /// A reason names what a record names, which may be as long as the record; people read the beginning.
    pub(super) fn new(code: Code, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        if reason.len() > REASON_BYTES_MAX {
            reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
            reason.push('…');
        }
        Self { code, reason }
    }

    /// More members than a row may have.
    pub(super) fn too_many(part: &str, members: usize) -> Self {
        Self::new(Code::TooManyColumns, format!("a {part} has {members} columns or more, and {COLUMNS_MAX} are the most"))
    }

    /// Members whose types are to be inferred, and are not known yet.
    pub(super) fn untyped<'n>(table: &str, names: impl IntoIterator<Item = &'n str>) -> Self {
        let names: Vec<String> = names.into_iter().map(|name| format!("{name:?}")).collect();
        let reason = format!("records of table {table:?} have no schema part, and no type is known yet for {}", super::list(&names));
        Self::new(Code::TypesMissing, reason)
    }

    /// What becomes of the record.
    pub const fn kind(&self) -> RejectKind {
        self.code.kind()
    }

    /// The same said of a table's schema rather than of one row: what one record lacks, all of them lack.
    pub(super) fn of_the_table(self) -> Self {
        let code = if self.code == Code::KeyMissing { Code::KeyColumnMissing } else { self.code };
        Self { code, ..self }
    }

    /// A part of a record that does not fit its registered schema.
    #[cold]
    pub(super) fn unregistered(code: Code, part: &str, error: WireError) -> Self {
        Self::new(code, format!("the {part} does not fit its registered schema: {error}"))
    }

    pub(super) fn json(part: &str, error: impl std::fmt::Display) -> Self {
        Self::new(Code::JsonInvalid, format!("the {part} is not JSON: {error}"))
    }
}

impl From<SchemaError> for Reject {
    fn from(error: SchemaError) -> Self {
        let code = match error {
            SchemaError::Empty { .. } => Code::NoColumns,
            SchemaError::TooMany { .. } => Code::TooManyColumns,
            SchemaError::Duplicate { .. } => Code::DuplicateColumn,
            SchemaError::KeyMissing { .. } => Code::KeyMissing,
            SchemaError::KeyType { .. } => Code::KeyType,
            SchemaError::Reserved { .. } => Code::ReservedColumn,
        };
        Self::new(code, error.to_string())
    }
}

/// Why one value cannot be taken; becomes a [`Reject`] once column and table are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Kind,
    Range,
    Precision,
    Infinite,
    Scale,
    /// A surrogate without its partner.
    Surrogate,
}

impl Fault {
    pub(super) fn reject(self, table: &str, column: &str, ty: LogicalType) -> Reject {
        let (code, what) = match self {
            Self::Kind => (Code::ValueKind, "is of another kind than its type"),
            Self::Range => (Code::ValueOutOfRange, "is out of range for its type"),
            Self::Precision => (Code::ValueTooPrecise, "has more digits than its type keeps"),
            Self::Infinite => (Code::ValueInfinite, "is infinite, which its type cannot be"),
            Self::Scale => (Code::ValueScale, "has no scale: the one that is declared stands for none"),
            Self::Surrogate => (Code::JsonInvalid, "holds half of a surrogate pair, which is no text"),
        };
        Reject::new(code, format!("a value of column {column:?} of table {table:?}, type {ty}, {what}"))
    }
}

impl From<ValueError> for Fault {
    fn from(error: ValueError) -> Self {
        match error {
            ValueError::Kind { .. } => Self::Kind,
            ValueError::Range { .. } => Self::Range,
        }
    }
}
