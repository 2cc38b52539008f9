//! What the decoder of a source topic is told: the topology's words about table, source and registry in the decoder's terms.

use landfall_schemas::dialect::{self, BinaryStrings, DecimalStrings, Encoding, IdBytes, KeyFormat, Options, Order};
use landfall_schemas::mask::Mask;
use landfall_topology::Plan;
use landfall_topology::plan::{self as words, BinaryHandlingMode, DecimalHandlingMode, Dialect, Format, SourceType, TablePlan};

/// The options of a table whose changes come from a topic of so many partitions.
pub(crate) fn of(plan: &Plan, table: &TablePlan, topic: &str, partitions: u32) -> Options {
    let mut options = Options::new(table.id.clone());
    options.primary_key = table.primary_key.clone();
    options.types = table.types.clone();
    options.infer = table.infer_types;
    options.exclude = table.rules.exclude.clone();
    options.rename = table.rules.rename.clone();
    options.as_text = table.rules.as_text.clone();
    options.masked = table.rules.mask.as_ref().map(|(columns, salt)| (columns.clone(), Mask::new(salt.expose().as_bytes())));
    options.types_are_columns = !table.is_derived;
    let source = plan.sources.get(table.source);
    options.binary_strings = match source.and_then(|s| s.binary_handling_mode) {
        None | Some(BinaryHandlingMode::Bytes) => None,
        Some(BinaryHandlingMode::Base64) => Some(BinaryStrings::Base64),
        Some(BinaryHandlingMode::Base64UrlSafe) => Some(BinaryStrings::Base64UrlSafe),
        Some(BinaryHandlingMode::Hex) => Some(BinaryStrings::Hex),
    };
    options.decimal_strings = match source.and_then(|s| s.decimal_handling_mode) {
        Some(DecimalHandlingMode::Precise) => DecimalStrings::Base64,
        None | Some(DecimalHandlingMode::Double | DecimalHandlingMode::String) => DecimalStrings::Numbers,
    };
    options.encoding = match source.map(|s| s.format) {
        None | Some(Format::Auto) => Encoding::Detected,
        Some(Format::Json) => Encoding::Json,
        Some(Format::Avro) => Encoding::Avro,
        Some(Format::Protobuf) => Encoding::Protobuf,
    };
    options.key_format = match source.map(|s| s.key_format) {
        None | Some(words::KeyFormat::Auto) => KeyFormat::Detected,
        Some(words::KeyFormat::Json) => KeyFormat::Json,
        Some(words::KeyFormat::String) => KeyFormat::Text,
        Some(words::KeyFormat::Short) => KeyFormat::Int16,
        Some(words::KeyFormat::Integer) => KeyFormat::Int32,
        Some(words::KeyFormat::Long) => KeyFormat::Int64,
    };
    options.schemas = source.map(|s| s.schemas.clone()).unwrap_or_default();
    options.headers = table.rules.headers.clone();
    options.document = table.rules.document.clone();
    options.registry = plan.kafka.registry.as_ref().map(|r| if r.has_long_ids { IdBytes::Eight } else { IdBytes::Four });
    let kind = source.map(|s| s.kind);
    options.source_table = table.source_table.clone();
    options.source_schema = table.source_schema.clone();
    topic.clone_into(&mut options.topic);
    options.partitions = partitions;
    options.connector = match kind {
        Some(SourceType::Postgresql) => "postgresql",
        Some(SourceType::Mysql) => "mysql",
        Some(SourceType::Mongodb) => "mongodb",
        _ => "",
    };
    options.dialect = match source.map(|s| s.dialect) {
        None | Some(Dialect::Debezium) => dialect::Dialect::Debezium,
        Some(Dialect::Flattened) => dialect::Dialect::Flattened,
        Some(Dialect::Maxwell) => dialect::Dialect::Maxwell,
        Some(Dialect::Canal) => dialect::Dialect::Canal,
        Some(Dialect::Plain) => dialect::Dialect::Plain,
        Some(Dialect::Mongodb) => dialect::Dialect::Mongodb,
    };
    // Documents say the type of each of their values, and are kept whole where nothing is declared.
    options.infer &= options.dialect != dialect::Dialect::Mongodb;
    // Topics of Kafka itself may hold changes of connectors that give no order; there the offset serves, where the record key is the table's.
    let is_plain = kind == Some(SourceType::Kafka) && table.primary_key.is_none();
    // Maxwell's bootstrap tells no place in the binlog, and stands in the topic where it read; Canal's messages and plain records tell none at all.
    let has_no_place = match options.dialect {
        dialect::Dialect::Maxwell => table.primary_key.is_none(),
        dialect::Dialect::Canal | dialect::Dialect::Plain => true,
        dialect::Dialect::Debezium | dialect::Dialect::Flattened | dialect::Dialect::Mongodb => false,
    };
    options.order = match (has_no_place, is_plain) {
        (true, _) => Order::Offset,
        (_, true) => Order::DialectElseOffset,
        _ => Order::Dialect,
    };
    options
}
