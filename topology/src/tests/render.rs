//! How issues and plans look to people and to machines.

use super::{check_text, patched};
use crate::Row;

fn rendered(edits: &[(&str, &str)]) -> String {
    let checked = check_text(&patched(edits));
    checked.issues.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_where_hint() {
    let text = rendered(&[("{ store: local }", "{ store: locla }"), ("type: postgresql\n", "type: postgres\n")]);
    let wanted = "\
error[topology.unknown_value]: \"postgres\" is not known here
  at landfall.yaml:7:11 (sources[0].type)
  7 |     type: postgres
    |           ^^^^^^^^
  did you mean postgresql?
  hint: one of kafka, postgresql, mysql, mongodb, cosmosdb, websocket, ingest, files, duckdb

error[topology.unknown_reference]: there is no store \"locla\"
  at landfall.yaml:20:18 (tables[0].replicas[0].store)
  20 |       - { store: locla }
     |                  ^^^^^
  did you mean local?
  hint: declared: local, serving, warehouse
";
    assert_eq!(text, wanted);
}

#[test]
fn carets_count_characters_not_bytes() {
    let text = rendered(&[("{ store: local }", "{ table: größe, colour: red }")]);
    assert!(text.contains("  20 |       - { table: größe, colour: *** }\n     |                         ^^^^^^\n"), "{text}");
}

#[test]
fn long_lines_are_cut_around_the_caret() {
    let long = format!("{{ store: local, table: {} , colour: red }}", "x".repeat(150));
    let text = rendered(&[("{ store: local }", &long)]);
    let lines: Vec<&str> = text.lines().collect();
    let (line, caret) = (lines[2], lines[3]);
    assert!(line.chars().count() < 140 && line.contains('…'), "{line}");
    let place = caret.chars().position(|c| c == '^').expect("there is a caret");
    assert_eq!(line.chars().skip(place).take(6).collect::<String>(), "colour");
}

#[test]
fn warnings_say_so() {
    let text = rendered(&[("    change_signal: debezium\n", ""), ("    replicas:", "    live: { strategy: debezium }\n    replicas:")]);
    assert!(text.starts_with("warning[signal.legacy_strategy]: "), "{text}");
}

#[test]
fn machines_get_the_same() {
    let checked = check_text(&patched(&[("{ store: local }", "{ store: locla }")]));
    let json = serde_json::to_value(&checked.issues).expect("issues serialise");
    let wanted = serde_json::json!([{
        "code": "topology.unknown_reference",
        "severity": "error",
        "file": "landfall.yaml",
        "line": 20,
        "column": 18,
        "path": "tables[0].replicas[0].store",
        "message": "there is no store \"locla\"",
        "nearest": "local",
        "hint": "declared: local, serving, warehouse",
    }]);
    assert_eq!(json, wanted);
}

#[test]
fn the_resolved_topology() {
    let plan = check_text(&patched(&[("tables:", "tables:\n  - { id: all, source: shopdb, schema: public, name: '*', replicas: [] }")]))
        .plan
        .expect("right");
    let rows: Vec<_> = plan.describe();
    let cells: Vec<_> = rows.iter().map(Row::cells).collect();
    assert_eq!(
        cells,
        [
            [
                "orders",
                "shopdb (postgresql)",
                "shop.public.orders",
                "from the record key",
                "-",
                "shop.orders: 4 partitions, 3 or fewer copies, forever",
                "local.orders",
                "duckdb main.orders",
                "upsert, build 0",
                "at once, at most 100000 rows or 16384 KiB",
            ],
            [
                "all",
                "shopdb (postgresql)",
                "all shop.public.*",
                "from the record key",
                "-",
                "shop.{table}: 4 partitions, 3 or fewer copies, forever",
                "-",
                "-",
                "-",
                "-",
            ],
        ]
    );
    assert_eq!(Row::HEADERS.len(), cells[0].len());
}

#[test]
fn what_is_said_of_columns_without_the_salt() {
    let plan = check_text(include_str!("../../samples/supported.yaml")).plan.expect("right");
    let columns: Vec<String> =
        plan.describe().into_iter().filter(|row| row.replica == "local.orders" || row.replica == "-").map(|r| r.columns).collect();
    let orders = "total decimal(12,2), placed_at timestamptz(6); without card_number; masked email; text of placed_at; cust as customer_id; NULL where missing; clamped where refused";
    assert_eq!(columns, [orders, "documents in product; no types inferred", "trace from header x-trace-id; no types inferred"]);
}
