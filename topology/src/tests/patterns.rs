//! Entries that stand for many tables.

use super::{check_text, patched};
use crate::plan::{ExpandError, Plan};

fn plan(name: &str, more: &[(&str, &str)]) -> Plan {
    let mut edits = vec![("    name: orders", name)];
    edits.extend(more);
    let checked = check_text(&patched(&edits));
    assert_eq!(checked.issues, vec![]);
    checked.plan.expect("no issue, so a plan")
}

fn ids(plan: &Plan, topics: &[&str]) -> Vec<(String, String)> {
    let expansion = plan.expand(topics.iter().copied());
    assert_eq!(expansion.refused, vec![]);
    expansion.tables.into_iter().map(|t| (t.topic, t.id)).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

const TOPICS: &[&str] = &[
    "shop.public.orders",
    "shop.public.order_lines",
    "shop.public.customers",
    "shop.public.a.b",
    "shop.archive.orders",
    "shopping.public.orders",
    "shopXpublic.orders",
    "shop.transaction",
    "shop",
    "other",
];

#[test]
fn a_glob_matches_the_tables_of_its_schema() {
    let found = ids(&plan("    name: '*'", &[]), TOPICS);
    let wanted = [("shop.public.customers", "customers"), ("shop.public.order_lines", "order_lines"), ("shop.public.orders", "orders")];
    assert_eq!(found, pairs(&wanted));
    let found = ids(&plan("    name: order?*", &[]), TOPICS);
    assert_eq!(found, pairs(&wanted[1..]));
}

#[test]
fn a_regular_expression_matches_whole_names() {
    let found = ids(&plan("    name: /order|customers/", &[]), TOPICS);
    assert_eq!(found, pairs(&[("shop.public.customers", "customers")]));
    let found = ids(&plan("    name: '/order(_lines|s)/'", &[]), TOPICS);
    assert_eq!(found.len(), 2);
}

#[test]
fn a_pattern_on_schemas_puts_the_schema_into_the_id() {
    let found = ids(&plan("    name: orders", &[("    schema: public", "    schema: '*'")]), TOPICS);
    assert_eq!(found, pairs(&[("shop.archive.orders", "archive_orders"), ("shop.public.orders", "public_orders")]));
}

#[test]
fn a_pattern_on_topics_makes_the_whole_topic_the_id() {
    let found = ids(&plan("    topic: '/shop\\..+\\.orders/'", &[("    schema: public\n", "")]), TOPICS);
    assert_eq!(found, pairs(&[("shop.archive.orders", "shop_archive_orders"), ("shop.public.orders", "shop_public_orders")]));
}

#[test]
fn a_derived_table_is_complete() {
    let plan = plan(
        "    name: '*'",
        &[
            ("{ store: local }", "{ store: warehouse, build: 3 }"),
            ("    replicas:", "    primary_key: [id]\n    log: { partitions: 9, topic: 'log-{table}' }\n    replicas:"),
        ],
    );
    assert_eq!(plan.tables, vec![]);
    let expansion = plan.expand(["shop.public.customers"]);
    let table = &expansion.tables[0];
    assert_eq!((table.id.as_str(), table.log.topic.as_str(), table.log.partitions), ("customers", "log-customers", 9));
    assert_eq!(table.primary_key.as_deref(), Some(&["id".to_owned()][..]));
    let replica = &table.replicas[0];
    assert_eq!((replica.id.as_str(), replica.table.as_str(), replica.store, replica.build), ("warehouse.customers", "customers", 2, 3));
}

#[test]
fn a_named_table_wins_over_a_pattern_and_the_first_pattern_over_the_second() {
    let plan = plan(
        "    name: '*'",
        &[(
            "tables:",
            "tables:\n  - { id: vip, source: shopdb, schema: public, name: orders }\n  - { id: lines, source: shopdb, schema: public, name: '*_lines', primary_key: [a] }",
        )],
    );
    let expansion = plan.expand(TOPICS.iter().copied());
    assert_eq!(expansion.refused, vec![]);
    let found: Vec<_> = expansion.tables.iter().map(|t| (t.id.as_str(), t.primary_key.is_some())).collect();
    assert_eq!(found, [("customers", false), ("order_lines", true)]);
}

#[test]
fn own_topics_are_never_read() {
    let plan =
        plan("    name: '*'", &[("    schema: public", "    schema: '*'"), ("tables:", "tables:\n  - { id: orders2, source: shopdb, topic: x }")]);
    assert!(plan.is_own_topic("shop.orders2") && plan.is_own_topic("shop.orders2.latest") && plan.is_own_topic("shop.control"));
    let expansion = plan.expand(["shop.orders2", "shop.orders2.latest", "shop.a.b", "shop.a_b.latest"]);
    // `shop.a.b` becomes the log `shop.a_b`, whose newest rows are Landfall's too.
    let found: Vec<_> = expansion.tables.iter().map(|t| t.topic.as_str()).collect();
    assert_eq!(found, ["shop.a.b"]);
}

#[test]
fn newest_rows_of_derived_tables() {
    let plan = plan("    name: '*'", &[("    replicas:", "    log: { latest: true }\n    replicas:")]);
    let row = plan.describe().pop().expect("a row");
    assert_eq!((row.replica.as_str(), row.target.as_str()), ("latest.{table}", "kafka shop.{table}.latest"));
    let expansion = plan.expand(["shop.public.customers", "shop.customers.latest", "shop.customers.latest.cursors"]);
    let [table] = expansion.tables.as_slice() else { panic!("{expansion:?}") };
    let latest = plan.latest(table).expect("a topic of newest rows");
    assert_eq!((latest.id.as_str(), latest.table.as_str(), latest.store), ("latest.customers", "shop.customers.latest", 3));
    let long = format!("shop.public.{}", "t".repeat(95));
    let named = self::plan(
        "    name: '*'",
        &[("    replicas:", &format!("    log: {{ latest: true, topic: \"{}.{{table}}\" }}\n    replicas:", "l".repeat(140)))],
    );
    let refused = named.expand([long.as_str()]).refused;
    assert!(refused.len() == 1 && refused[0].reason.contains("no room"), "{refused:?}");
}

#[test]
fn a_clash_refuses_all_of_its_topics_in_any_order() {
    let plan = plan("    name: '*'", &[("    schema: public", "    schema: '*'")]);
    let topics = ["shop.a.b_c", "shop.a_b.c", "shop.x.y"];
    let expansion = plan.expand(topics);
    assert_eq!(expansion, plan.expand(topics.iter().rev().copied()));
    let found: Vec<_> = expansion.tables.iter().map(|t| t.id.as_str()).collect();
    assert_eq!(found, ["x_y"]);
    let refused: Vec<_> = expansion.refused.iter().map(|r| (r.topic.as_str(), r.pattern.as_str())).collect();
    assert_eq!(refused, [("shop.a.b_c", "orders"), ("shop.a_b.c", "orders")]);
}

#[test]
fn a_clash_with_a_named_table_refuses_the_derived_one() {
    let plan = plan("    name: '*'", &[("tables:", "tables:\n  - { id: Customers, source: shopdb, topic: elsewhere }")]);
    let expansion = plan.expand(["shop.public.customers"]);
    assert_eq!((expansion.tables.len(), expansion.refused.len()), (0, 1));
    assert!(expansion.refused[0].reason.contains("table id customers"), "{:?}", expansion.refused);
}

#[test]
fn names_that_cannot_be_used_are_refused_by_name() {
    let plan = plan("    name: '*'", &[("{ store: local }", "{ store: serving }")]);
    let pattern = &plan.patterns[0];
    assert_eq!(pattern.expand("other"), None);
    let long = format!("shop.public.{}", "x".repeat(101));
    assert!(matches!(pattern.expand(&long), Some(Err(ExpandError::Id { .. }))));
    assert!(matches!(pattern.expand("shop.public.schemas"), Some(Err(ExpandError::Id { .. }))));
    let long_for_postgres = format!("shop.public.{}", "x".repeat(64));
    assert!(matches!(pattern.expand(&long_for_postgres), Some(Err(ExpandError::Target { .. }))));
    assert_eq!(plan.expand([long_for_postgres.as_str()]).refused.len(), 1);
}
