//! `landfall schema`: the JSON Schema of a topology file, with which editors complete and check it; with `--types` what becomes of each type.

use std::io::Write as _;

use clap::Args;
use landfall_schemas::decimal::Decimal;
use landfall_schemas::store::{Refusal, clickhouse, duckdb, postgres};
use landfall_schemas::value::{INFINITY, Interval, NotFinite};
use landfall_schemas::{LogicalType, Value};

use super::Failure;
use super::paper::{Field, Paper};

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print the column type of every logical type in every store, and what of it a store refuses
    #[arg(long)]
    pub types: bool,
}

/// Prints the schema, or the types.
pub fn run(arguments: &Arguments, paper: &mut Paper<'_>) -> Result<(), Failure> {
    if arguments.types {
        return Ok(types(paper)?);
    }
    serde_json::to_writer_pretty(&mut *paper, &landfall_topology::schema()).map_err(std::io::Error::from)?;
    Ok(paper.write_all(b"\n")?)
}

/// The types of the table; those with a size in the sizes at which something changes.
const TYPES: &[&str] = &[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "decimal(12,2)",
    "decimal(50,10)",
    "decimal(100,2)",
    "numeric",
    "text",
    "bytes",
    "uuid",
    "date",
    "time(6)",
    "time(9)",
    "timestamp(6)",
    "timestamp(9)",
    "timestamptz(6)",
    "timestamptz(9)",
    "duration(6)",
    "interval",
    "bits(12)",
    "json",
    "array(int32)",
];

/// A store's word on a value.
type Refuse = fn(LogicalType, &Value<'_>) -> Option<Refusal>;

fn types(paper: &mut Paper<'_>) -> std::io::Result<()> {
    let rows = TYPES.iter().filter_map(|text| Some((*text, text.parse::<LogicalType>().ok()?))).map(|(text, ty)| {
        let cell = |column: String, refuse: Refuse| match refusals(ty, refuse).as_slice() {
            [] => Field::from(column.as_str()),
            codes => Field::from(format!("{column} ({})", codes.join(", ")).as_str()),
        };
        [
            Field::from(text),
            cell(postgres::column_type(ty).into_owned(), postgres::refuse),
            cell(clickhouse::column_type(ty).to_string(), clickhouse::refuse),
            cell(duckdb::column_type(ty).into_owned(), duckdb::refuse),
        ]
    });
    paper.table(&["type", "postgresql", "clickhouse", "duckdb"], rows)?;
    paper.line("")?;
    paper.line("Every value lands exactly, or is refused by name: the code in brackets is that of the dead letter for what a store cannot hold.")?;
    paper.line("A fraction of a second that is finer than a store's micros is cut, never rounded, and counted (landfall_values_cut_total); in a key it is refused.")?;
    paper.line("An array that is NULL lands as an empty one in ClickHouse, which has no such NULL; that is counted, too.")?;
    paper.line("Times and durations of ClickHouse count micros, beyond six digits nanos.")
}

/// Why a store refuses values of a type, found by asking it about those at its ends.
fn refusals(ty: LogicalType, refuse: Refuse) -> Vec<&'static str> {
    // More digits than any store holds: 2^(8 * 60 000).
    let mut huge = vec![0; 60_001];
    huge[0] = 1;
    let text = "a\0b";
    let values: Vec<Value<'_>> = match ty {
        LogicalType::Text => vec![Value::Text(text)],
        LogicalType::Json => vec![Value::Json(r#""\u0000""#), Value::Json("[1e999999]"), Value::Json(r#""\ud800""#)],
        LogicalType::Decimal { .. } => vec![Value::NotFinite(NotFinite::Nan)],
        LogicalType::Numeric => {
            vec![
                Value::NotFinite(NotFinite::Nan),
                Value::NotFinite(NotFinite::Infinity),
                Value::Decimal(Decimal { unscaled: &huge, scale: 0 }),
                Value::Decimal(Decimal { unscaled: &[1], scale: 20_000 }),
            ]
        }
        LogicalType::Date => vec![Value::Date(i32::MIN), Value::Date(i32::MAX)],
        LogicalType::Time { .. } => vec![Value::Time(1), Value::Time(86_400 * landfall_schemas::value::per_second(ty))],
        LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. } => {
            vec![Value::Timestamp(i64::MIN + 1), Value::Timestamp(1), Value::Timestamp(INFINITY), Value::Timestamp(i64::MAX - 1)]
        }
        LogicalType::Array(_) => vec![Value::Null],
        LogicalType::Interval => vec![Value::Interval(Interval { months: i32::MIN, days: i32::MAX, micros: i64::MIN })],
        _ => Vec::new(),
    };
    let mut codes: Vec<&'static str> = values.iter().filter_map(|value| refuse(ty, value)).map(Refusal::code).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

#[cfg(test)]
mod tests {
    use super::super::paper::printed;
    use super::*;

    #[test]
    fn it_is_a_schema_of_the_file() {
        let text = printed(None, |p| assert!(run(&Arguments { types: false }, p).is_ok()));
        let schema: serde_json::Value = serde_json::from_str(&text).expect("one document");
        for section in ["topology", "kafka", "sources", "stores", "tables"] {
            assert!(schema["properties"][section].is_object(), "{section}");
        }
    }

    #[test]
    fn the_types_and_what_is_refused_of_them() {
        let text = printed(None, |p| assert!(run(&Arguments { types: true }, p).is_ok()));
        let row = |name: &str| text.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(LogicalType::NAMES.iter().all(|name| row_begins(&text, name)), "{text}");
        assert_eq!(row("uint64").split_whitespace().collect::<Vec<_>>(), ["uint64", "numeric(20,0)", "UInt64", "UBIGINT"]);
        assert!(row("text").contains("text (value.nul)") && row("text").contains(" String ") && row("text").contains("VARCHAR"));
        assert!(row("timestamp(9)").contains("value.infinite") && row("decimal(12,2)").contains("value.not_a_number"));
        assert_eq!(row("interval").split_whitespace().take(3).collect::<Vec<_>>(), ["interval", "interval", "String"]);
        assert!(row("date").matches("value.out_of_range").count() >= 2);
    }

    /// Whether a type is in the table, whatever size it is shown in.
    fn row_begins(text: &str, name: &str) -> bool {
        let stem = name.split('(').next().unwrap_or(name);
        text.lines().any(|line| line.split([' ', '(']).next() == Some(stem))
    }
}
