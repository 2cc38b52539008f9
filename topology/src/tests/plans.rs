//! What a right file means: names, defaults, inheritance.

use std::time::Duration;

use super::{BASE, check_text, patched};
use crate::plan::{Dialect, KeyFormat, Plan, Retention, Shape, SourceType, StoreKind};

fn plan(text: &str) -> Plan {
    let checked = check_text(text);
    assert_eq!(checked.issues, vec![]);
    checked.plan.expect("no issue, so a plan")
}

#[test]
fn the_small_file() {
    let text = include_str!("../../samples/shop.yaml");
    assert!(text.lines().count() < 12, "INTERFACES.md: a small file must do");
    let plan = plan(text);
    assert_eq!(plan.topology, "shop");
    assert_eq!(plan.kafka.brokers, ["localhost:9092"]);
    assert_eq!(plan.kafka.security, None);
    assert_eq!(plan.kafka.client, []);
    assert_eq!(plan.control_topic(), "shop.control");
    assert_eq!(plan.schemas_topic(), "shop.schemas");
    assert_eq!(plan.dead_letters_topic(), "shop.dead-letters");
    let source = &plan.sources[0];
    assert_eq!((source.id.as_str(), source.kind, source.epoch), ("shopdb", SourceType::Postgresql, None));
    assert_eq!(source.topic_prefix.as_deref(), Some("shop"));
    let [table] = plan.tables.as_slice() else {
        panic!("one table");
    };
    assert_eq!((table.id.as_str(), table.source, table.topic.as_str()), ("orders", 0, "shop.public.orders"));
    assert_eq!((table.primary_key.as_ref(), table.types.len()), (None, 0));
    assert_eq!(table.log.topic, "shop.orders");
    assert_eq!((table.log.partitions, table.log.replication, table.log.retention), (4, None, Retention::Forever));
    let [replica] = table.replicas.as_slice() else {
        panic!("one replica");
    };
    assert_eq!((replica.id.as_str(), replica.store, replica.table.as_str()), ("local.orders", 0, "orders"));
    assert_eq!((replica.shape, replica.build), (Shape::Upsert, 0));
    assert_eq!((replica.quiet, replica.max_delay), (Duration::ZERO, Duration::from_secs(5)));
    assert_eq!((replica.batch_rows_max, replica.batch_bytes_max), (100_000, 16 << 20), "what DuckDB takes at once, below the default");
}

/// A topic of newest rows is a replica like any other, in a store that no file declares.
#[test]
fn newest_rows_are_a_replica() {
    let of = |edits: &[(&str, &str)]| plan(&patched(edits));
    let plan = of(&[("push_debounce_quiet: 0", "push_debounce_quiet: 1, log: { latest: true }")]);
    let latest = plan.stores.last().expect("a store");
    assert_eq!((latest.id.as_str(), &latest.kind, plan.stores.len()), ("latest", &StoreKind::Kafka, 4));
    let [first, second] = plan.tables[0].replicas.as_slice() else { panic!("two replicas") };
    assert_eq!((first.id.as_str(), second.id.as_str(), second.store), ("local.orders", "latest.orders", 3));
    assert_eq!((second.table.as_str(), plan.full_name(second).as_str()), ("shop.orders.latest", "shop.latest.orders"));
    assert_eq!((second.shape, second.quiet), (Shape::Upsert, Duration::from_secs(1)));
    assert_eq!(plan.latest(&plan.tables[0]), Some(second));
    let row = plan.describe().into_iter().nth(1).expect("a row of its own");
    assert_eq!((row.replica.as_str(), row.target.as_str()), ("latest.orders", "kafka shop.orders.latest"));
    // A table of its own word, and one without any other replica.
    let plan = of(&[
        ("push_debounce_quiet: 0", "log: { latest: true }"),
        ("      - { store: local }", ""),
        ("    replicas:", "    log: { topic: \"x.{table}\" }\n    replicas: []"),
        ("tables:", "tables:\n  - { id: o2, source: shopdb, topic: o2, log: { latest: false } }"),
    ]);
    assert_eq!(plan.latest(&plan.tables[0]), None);
    assert_eq!(plan.latest(&plan.tables[1]).map(|r| r.table.as_str()), Some("x.orders.latest"));
    assert_eq!(plan.tables[1].replicas.len(), 1);
}

#[test]
fn every_supported_field_has_its_effect() {
    let plan = plan(include_str!("../../samples/supported.yaml"));
    assert_eq!(
        plan.kafka.client,
        [("client.id", "landfall-1"), ("fetch.min.bytes", "65536"), ("socket.keepalive.enable", "true")].map(|(k, v)| (k.to_owned(), v.to_owned()))
    );
    let security = plan.kafka.security.as_ref().expect("written");
    assert_eq!(security.ca.as_deref(), Some("/etc/landfall/ca.pem"));
    assert_eq!(security.sasl.as_ref().map(|s| s.username.as_str()), Some("landfall"));
    let certificate = security.certificate.as_ref().expect("written");
    assert_eq!((certificate.certificate.as_str(), certificate.key.as_str()), ("/etc/landfall/client.pem", "/etc/landfall/client.key"));
    assert!(certificate.key_password.is_some());

    assert_eq!(plan.sources.iter().map(|s| s.epoch).collect::<Vec<_>>(), [Some(2), None, None, None]);
    match &plan.stores[0].kind {
        StoreKind::ClickHouse { url, database, user, password } => {
            assert_eq!((url.as_str(), database.as_str(), user.as_deref()), ("https://clickhouse:8443", "shop", Some("landfall")));
            assert!(password.is_some());
        }
        other => panic!("{other:?}"),
    }
    match &plan.stores[1].kind {
        StoreKind::Postgres { schema, database, user, .. } => {
            assert_eq!((schema.as_str(), database.as_deref(), user.as_deref()), ("shop", Some("serving"), Some("landfall")));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(plan.stores[2].kind, StoreKind::DuckDb { path: "replicas.duckdb".into(), schema: "shop".into() });

    let ids: Vec<_> = plan.tables.iter().map(|t| (t.id.as_str(), t.topic.as_str(), t.replicas.len())).collect();
    assert_eq!(
        ids,
        [
            ("orders", "shop.public.orders", 4),
            ("invoices", "billing.billing.invoices", 3),
            ("products", "catalog.shop.products", 0),
            ("deltas", "bus.deltas", 0),
            ("audit", "shop.audit.log", 1),
        ]
    );
    let orders = &plan.tables[0];
    assert_eq!(orders.primary_key.as_deref(), Some(&["id".to_owned()][..]));
    let types: Vec<_> = orders.types.iter().map(|(c, t)| format!("{c} {t}")).collect();
    assert_eq!(types, ["total decimal(12,2)", "placed_at timestamptz(6)"]);
    assert_eq!((orders.log.partitions, orders.log.replication), (12, Some(2)));
    let landing: Vec<_> = orders
        .replicas
        .iter()
        .map(|r| (r.id.as_str(), r.build, r.quiet.as_millis(), r.max_delay.as_millis(), r.batch_rows_max, r.batch_bytes_max >> 20))
        .collect();
    assert_eq!(
        landing,
        [
            ("warehouse.orders", 1, 200, 10_000, 10_000, 16),
            ("serving.orders_copy", 0, 1_000, 2_000, 500, 1),
            ("local.orders", 0, 200, 10_000, 10_000, 16),
            ("latest.orders", 0, 200, 10_000, 10_000, 16),
        ]
    );
    let invoices = &plan.tables[1];
    assert_eq!(invoices.primary_key.as_deref(), Some(&["id".to_owned()][..]));
    // What the table leaves open comes from `defaults`.
    assert_eq!((invoices.log.partitions, invoices.log.replication), (6, Some(3)));
    assert_eq!((invoices.replicas[0].batch_rows_max, invoices.replicas[0].batch_bytes_max), (50_000, 32 << 20));
    assert_eq!((plan.sources[2].dialect, plan.tables[2].rules.document.as_deref()), (Dialect::Mongodb, Some("product")));
    assert_eq!((plan.sources[3].dialect, plan.sources[3].key_format), (Dialect::Plain, KeyFormat::String));
    assert_eq!(plan.patterns.len(), 2);
}

#[test]
fn without_replicas_a_table_goes_to_every_store() {
    let plan = plan(&patched(&[("    replicas:\n      - { store: local }\n", "")]));
    let ids: Vec<_> = plan.tables[0].replicas.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(ids, ["local.orders", "serving.orders", "warehouse.orders"]);
}

#[test]
fn values_from_the_environment() {
    let plan = plan(&patched(&[
        ("- id: orders", "- id: ${env:NAME}_copy"),
        (
            "    replicas:",
            "    log: { partitions: \"${env:NUMBER}\" }\n    batch_rows_max: ${env:NUMBER}\n    push_debounce_quiet: ${env:NUMBER}ms\n    replicas:",
        ),
    ]));
    let table = &plan.tables[0];
    assert_eq!((table.id.as_str(), table.log.partitions), ("orders_copy", 7));
    let replica = &table.replicas[0];
    assert_eq!((replica.batch_rows_max, replica.quiet), (7, Duration::from_millis(7)));
}

#[test]
fn connectors_write_odd_names_with_underscores() {
    let plan = plan(&patched(&[("    name: orders", "    name: order items$")]));
    assert_eq!(plan.tables[0].topic, "shop.public.order_items_");
}

#[test]
fn a_legacy_strategy_warns_and_works() {
    let checked =
        check_text(&patched(&[("    change_signal: debezium\n", ""), ("    replicas:", "    live: { strategy: debezium }\n    replicas:")]));
    assert_eq!(checked.issues.len(), 1);
    let (plan, warnings) = checked.into_plan().expect("a warning forbids nothing");
    assert_eq!((plan.tables.len(), warnings.len()), (1, 1));
}

#[test]
fn files_of_a_folder_are_one_topology() {
    let (head, tables) = BASE.split_at(BASE.find("tables:").expect("it is there"));
    let more = "stores:\n  - { id: second, type: duckdb, path: second.duckdb }\n";
    let documents = [crate::Document::new("a.yaml", tables), crate::Document::new("b.yaml", more), crate::Document::new("c.yaml", head)];
    let checked = crate::check(&documents, &super::lookup);
    assert_eq!(checked.issues, vec![]);
    let plan = checked.plan.expect("no issue");
    let stores: Vec<_> = plan.stores.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(stores, ["second", "local", "serving", "warehouse"]);
    assert_eq!(plan.tables[0].replicas[0].store, 1);
}

#[test]
fn the_signal_that_counts() {
    // table ?? legacy ?? source ?? defaults ?? ttl (SEMANTICS.md D.1); only debezium gives a plan here.
    let levels = ["table", "legacy", "source", "defaults"];
    for (rank, counts) in levels.iter().enumerate() {
        for signal in ["debezium", "native"] {
            let other = if signal == "debezium" { "native" } else { "debezium" };
            // What ranks below says the opposite.
            let at = |level: &str| match levels.iter().position(|l| *l == level) {
                Some(r) if r == rank => Some(signal),
                Some(r) if r > rank => Some(other),
                _ => None,
            };
            let line = |key: &str, value: Option<&str>, indent: &str| value.map(|v| format!("{indent}{key}: {v}\n")).unwrap_or_default();
            let defaults = at("defaults").map_or("{}".to_owned(), |v| format!("{{ change_signal: {v} }}"));
            let text = patched(&[
                ("{ push_debounce_quiet: 0 }", &defaults),
                ("    change_signal: debezium\n", &line("change_signal", at("source"), "    ")),
                (
                    "    replicas:",
                    &format!(
                        "{}{}    replicas:",
                        line("change_signal", at("table"), "    "),
                        at("legacy").map(|v| format!("    live: {{ strategy: {v} }}\n")).unwrap_or_default()
                    ),
                ),
            ]);
            let checked = check_text(&text);
            let at_table: Vec<_> =
                checked.issues.iter().filter(|i| i.code == crate::Code::NotSupportedYet && !i.path.starts_with("sources")).collect();
            let tables_plan =
                checked.plan.is_some() || checked.issues.iter().all(|i| i.path.starts_with("sources") || i.severity == crate::Severity::Warning);
            match (*counts, signal) {
                (_, "debezium") => assert!(tables_plan && at_table.is_empty(), "{counts} {signal}: {:?}", checked.issues),
                ("source", _) => assert!(checked.issues.iter().any(|i| i.path == "sources[0].change_signal")),
                _ => assert_eq!(at_table.len(), 1, "{counts} {signal}: {:?}", checked.issues),
            }
        }
    }
}
