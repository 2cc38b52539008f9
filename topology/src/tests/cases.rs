//! One change, its issues: every code at least once, most of them in every place where they can arise.
//!
//! An expectation is a code, a path, and the text that stands at the reported line and column, so positions are checked without
//! counting. The order is that of the file.

use std::collections::BTreeSet;

use super::{BASE, check_text, lookup, patched, summary};
use crate::{Code, Document, check};

/// Name, edits of the base, and the issues.
struct Case {
    name: &'static str,
    edits: &'static [(&'static str, &'static str)],
    issues: &'static [(&'static str, &'static str, &'static str)],
}

macro_rules! cases {
    ($($name:literal: $($old:literal => $new:literal),+ ; $(($code:literal, $path:literal, $there:literal)),* $(,)?;)+) => {
        &[$(Case { name: $name, edits: &[$(($old, $new)),+], issues: &[$(($code, $path, $there)),*] }),+]
    };
}

const CASES: &[Case] = cases! {
    // Keys, kinds and words.
    "misspelt key": "    name: orders" => "    nmae: orders";
        ("topology.required", "tables[0].name", "id: orders"),
        ("topology.unknown_key", "tables[0].nmae", "nmae");
    "unknown key in a flow": "{ store: local }" => "{ store: local, colour: red }";
        ("topology.unknown_key", "tables[0].replicas[0].colour", "colour");
    "unknown top key": "topology: shop" => "topology: shop\nsinks: []";
        ("topology.unknown_key", "sinks", "sinks");
    "a text for a list": "brokers: [localhost:9092]" => "brokers: localhost:9092";
        ("topology.wrong_kind", "kafka.brokers", "localhost:9092");
    "a list for a mapping": "kafka:\n  brokers: [localhost:9092]" => "kafka: [localhost:9092]";
        ("topology.wrong_kind", "kafka", "[localhost");
    "a mapping for a text": "name: orders" => "name: { a: b }";
        ("topology.wrong_kind", "tables[0].name", "{ a: b }");
    "a text for a number": "{ topic_prefix: shop }" => "{ topic_prefix: shop }\n    epoch: first";
        ("topology.wrong_kind", "sources[0].epoch", "first");
    "a number out of range": "{ topic_prefix: shop }" => "{ topic_prefix: shop }\n    epoch: 4294967296";
        ("topology.bad_value", "sources[0].epoch", "4294967296");
    "a negative count": "{ push_debounce_quiet: 0 }" => "{ batch_rows_max: -1 }";
        ("topology.bad_value", "defaults.batch_rows_max", "-1");
    "no duration": "{ push_debounce_quiet: 0 }" => "{ push_debounce_quiet: soon }";
        ("topology.bad_value", "defaults.push_debounce_quiet", "soon");
    "no size": "{ push_debounce_quiet: 0 }" => "{ batch_bytes_max: 16Mib }";
        ("topology.bad_value", "defaults.batch_bytes_max", "16Mib");
    "unknown word": "type: postgresql\n" => "type: postgres\n";
        ("topology.unknown_value", "sources[0].type", "postgres");
    "unknown column type": "    replicas:" => "    columns: { types: { total: decimal } }\n    replicas:";
        ("topology.unknown_value", "tables[0].columns.types.total", "decimal");
    "key without a value": "    schema: public" => "    schema:";
        ("topology.empty_value", "tables[0].schema", "");
    "null": "    schema: public" => "    schema: ~";
        ("topology.empty_value", "tables[0].schema", "~");
    // YAML itself.
    "not yaml": "brokers: [localhost:9092]" => "brokers: [localhost:9092";
        ("topology.yaml_syntax", "", "");
    "a tab": "  brokers" => "\tbrokers";
        ("topology.yaml_syntax", "", "");
    "two documents": "stores:" => "---\nstores:";
        ("topology.yaml_syntax", "", "stores");
    "too deep": "brokers: [localhost:9092]" => "brokers: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]";
        ("topology.yaml_limit", "", "");
    "the norway problem": "    schema: public" => "    schema: no";
        ("topology.yaml_ambiguous", "tables[0].schema", "no");
    "on as a name": "    name: orders" => "    name: ON";
        ("topology.yaml_ambiguous", "tables[0].name", "ON");
    "on as a key of one's own": "    replicas:" => "    columns: { types: { on: int32 } }\n    replicas:";
        ("topology.yaml_ambiguous", "tables[0].columns.types.on", "on");
    "yes for true": "    replicas:" => "    subscribe_deletes: yes\n    replicas:";
        ("topology.yaml_ambiguous", "tables[0].subscribe_deletes", "yes");
    "a number for a name": "    name: orders" => "    name: 007";
        ("topology.yaml_ambiguous", "tables[0].name", "007");
    "true for a name": "    name: orders" => "    name: true";
        ("topology.yaml_ambiguous", "tables[0].name", "true");
    "a leading zero": "{ topic_prefix: shop }" => "{ topic_prefix: shop }\n    epoch: 010";
        ("topology.yaml_ambiguous", "sources[0].epoch", "010");
    "a leading zero in a duration": "{ push_debounce_quiet: 0 }" => "{ push_debounce_quiet: 05 }";
        ("topology.yaml_ambiguous", "defaults.push_debounce_quiet", "05");
    "a key twice": "    schema: public" => "    schema: public\n    schema: archive";
        ("topology.duplicate_key", "tables[0].schema", "schema: archive");
    "a column twice": "    replicas:" => "    columns: { types: { a: int32, a: text } }\n    replicas:";
        ("topology.duplicate_key", "tables[0].columns.types.a", "a: text");

    // What must be there.
    "no topology": "topology: shop\n" => "";
        ("topology.required", "topology", "kafka:");
    "no kafka": "kafka:\n  brokers: [localhost:9092]\n" => "";
        ("topology.required", "kafka", "topology");
    "no brokers": "  brokers: [localhost:9092]" => "  client: {}";
        ("topology.required", "kafka.brokers", "client");
    "no id": "- id: orders\n    source" => "- source";
        ("topology.required", "tables[0].id", "source");
    "no source type": "    type: postgresql\n" => "";
        ("topology.required", "sources[0].type", "id: shopdb");
    "no store of a replica": "{ store: local }" => "{ shape: upsert }";
        ("topology.required", "tables[0].replicas[0].store", "{ shape");
    "no schema": "    schema: public\n" => "";
        ("topology.required", "tables[0].schema", "id: orders");
    "no path": "type: duckdb, path: replicas.duckdb" => "type: duckdb";
        ("topology.required", "stores[0].path", "{ id: local");
    "no url and no variable": ", url: \"http://localhost:8123\"" => "";
        ("topology.required", "stores[2].url", "{ id: warehouse");
    "no topic prefix": "cdc: { topic_prefix: shop }" => "cdc: {}";
        ("topology.required", "sources[0].cdc.topic_prefix", "{}");
    "no topic to derive": "    type: postgresql\n" => "    type: kafka\n", "    cdc: { topic_prefix: shop }\n" => "";
        ("topology.required", "tables[0].topic", "id: orders");
    "security without a protocol": "brokers: [localhost:9092]" => "brokers: [localhost:9092]\n  security: { ca: ca.pem }";
        ("topology.required", "kafka.security.protocol", "{ ca");
    "a registry without an address": "brokers: [localhost:9092]" => "brokers: [localhost:9092]\n  registry: {}";
        ("topology.required", "kafka.registry.url", "{}");
    "half a login of a registry": "brokers: [localhost:9092]" => "brokers: [localhost:9092]\n  registry: { url: \"https://r:1\", username: u }";
        ("topology.required", "kafka.registry.password", "{ url");
    "a registry's password in its address": "brokers: [localhost:9092]" => "brokers: [localhost:9092]\n  registry: { url: \"https://u:hunter2@r:1\" }";
        ("topology.literal_secret", "kafka.registry.url", "\"https");
    "a registry's password in the open": "brokers: [localhost:9092]" =>
        "brokers: [localhost:9092]\n  registry: { url: \"http://r:1\", username: u, password: \"${env:PASSWORD}\" }";
        ("kafka.plain_without_tls", "kafka.registry.url", "\"http");
    "a registry that is no HTTP address": "brokers: [localhost:9092]" => "brokers: [localhost:9092]\n  registry: { url: \"r:8081\" }";
        ("topology.bad_value", "kafka.registry.url", "\"r:8081");
    "a registry's address with a query": "brokers: [localhost:9092]" => "brokers: [localhost:9092]\n  registry: { url: \"https://r:1/?token=x\" }";
        ("topology.bad_value", "kafka.registry.url", "\"https");
    "Avro of a dialect of JSON": "cdc: { topic_prefix: shop }" => "cdc: { topic_prefix: shop, dialect: maxwell, format: avro }";
        ("topology.not_supported_yet", "sources[0].cdc.format", "avro");
    "Protobuf of a dialect of JSON": "cdc: { topic_prefix: shop }" => "cdc: { topic_prefix: shop, dialect: canal, format: protobuf }";
        ("topology.not_supported_yet", "sources[0].cdc.format", "protobuf");
    "documents of rows": "    replicas:" => "    columns: { document: doc }\n    replicas:";
        ("topology.bad_value", "tables[0].columns.document", "doc");
    "headers beside an envelope": "    replicas:" => "    columns: { headers: { trace: x-trace, __LF_X: x-lf } }\n    replicas:";
        ("topology.bad_value", "tables[0].columns.headers", "{ trace"),
        ("scd.reserved_column", "tables[0].columns.headers.__LF_X", "__LF_X");
    "ids of an odd width": "brokers: [localhost:9092]" => "brokers: [localhost:9092]\n  registry: { url: \"https://r:1\", id_bytes: 5 }";
        ("topology.bad_value", "kafka.registry.id_bytes", "5");
    "a column without a name": "    replicas:" => "    columns: [{ type: int32 }]\n    replicas:";
        ("topology.required", "tables[0].columns[0].name", "{ type");

    // Names.
    "a topology in capitals": "topology: shop" => "topology: Shop";
        ("topology.bad_name", "topology", "Shop");
    "a topology too long": "topology: shop" => "topology: a2345678901234567890123456789012345678901";
        ("topology.bad_name", "topology", "a23456");
    "a dot in an id": "- id: orders" => "- id: shop.orders";
        ("topology.bad_name", "tables[0].id", "shop.orders");
    "a blank in a store id": "id: serving" => "id: the serving";
        ("topology.bad_name", "stores[1].id", "the serving");
    "a schema-qualified target": "{ store: local }" => "{ store: local, table: shop.orders }";
        ("topology.bad_name", "tables[0].replicas[0].table", "shop.orders");
    "a target too long for postgres": "{ store: local }" => "{ store: serving, table: o234567890123456789012345678901234567890123456789012345678901234 }";
        ("topology.bad_name", "tables[0].replicas[0].table", "o23456");
    "an empty column": "    replicas:" => "    primary_key: ['']\n    replicas:";
        ("topology.bad_name", "tables[0].primary_key[0]", "''");
    "the log of the topology": "- id: orders" => "- id: dead-letters";
        ("topology.reserved_name", "tables[0].id", "dead-letters");
    "the schema of the cursor": "path: replicas.duckdb" => "path: replicas.duckdb, schema: Landfall";
        ("topology.reserved_name", "stores[0].schema", "Landfall");
    "the cursor of clickhouse": "{ store: local }" => "{ store: warehouse, table: landfall_cursor }";
        ("topology.reserved_name", "tables[0].replicas[0].table", "landfall_cursor");
    "ids without case": "- id: orders" => "- { id: Orders, source: shopdb, schema: public, name: o2 }\n  - id: orders";
        ("topology.duplicate_id", "tables[1].id", "orders");
    "a store twice": "id: serving" => "id: LOCAL";
        ("topology.duplicate_id", "stores[1].id", "LOCAL");
    "a key column twice": "    replicas:" => "    primary_key: [id, id]\n    replicas:";
        ("topology.duplicate_id", "tables[0].primary_key[1]", "id");
    "a declared column twice": "    replicas:" => "    columns: [{ name: a, type: text }, { name: a, type: text }]\n    replicas:";
        ("topology.duplicate_id", "tables[0].columns[1].name", "a");
    "an unknown source": "source: shopdb" => "source: shobdb";
        ("topology.unknown_reference", "tables[0].source", "shobdb");
    "an unknown store": "{ store: local }" => "{ store: lokal }";
        ("topology.unknown_reference", "tables[0].replicas[0].store", "lokal");
    "names of another case are others": "{ store: local }" => "{ store: Local }";
        ("topology.unknown_reference", "tables[0].replicas[0].store", "Local");

    // Targets, topics and logs that are shared.
    "one target twice": "- { store: local }" => "- { store: local }\n      - { store: local, table: ORDERS }";
        ("topology.same_target", "tables[0].replicas[1].table", "ORDERS");
    "two stores, one place": "{ id: warehouse, type: clickhouse, url: \"http://localhost:8123\" }" => "{ id: a, type: clickhouse, url: \"http://h:1\" }\n  - { id: b, type: clickhouse, url: \"http://h:1\" }",
        "- { store: local }" => "- { store: a }\n      - { store: b }";
        ("topology.same_target", "tables[0].replicas[1]", "{ store: b");
    "a table in the place of a view": "- { store: local }" => "- { store: warehouse }\n      - { store: warehouse, table: orders_live }";
        ("topology.same_target", "tables[0].replicas[1].table", "orders_live");
    "one file, two stores": "id: serving, type: postgresql, url: \"postgresql://landfall@localhost/shop\"" => "id: other, type: duckdb, path: replicas.duckdb";
        ("topology.same_target", "stores[1].path", "replicas.duckdb");
    "one topic, two tables": "- id: orders" => "- { id: o2, source: shopdb, topic: shop.public.orders }\n  - id: orders";
        ("topology.same_topic", "tables[1].name", "orders");
    "one log, two tables": "- id: orders" => "- { id: o2, source: shopdb, topic: x, log: { topic: shop_orders } }\n  - id: orders";
        ("log.same_topic", "tables[1]", "id: orders");
    "the log of the control topic": "    replicas:" => "    log: { topic: shop.control }\n    replicas:";
        ("log.same_topic", "tables[0].log", "{ topic: shop.control");
    "a log that is its source": "    name: orders" => "    topic: shop.orders";
        ("log.loop", "tables[0].topic", "shop.orders");
    "another table's newest rows": "- id: orders" => "- { id: o2, source: shopdb, topic: shop.orders.latest }\n  - id: orders";
        ("log.loop", "tables[0].topic", "shop.orders.latest");
    "a store of the name that the newest rows have": "id: local, type" => "id: Latest, type", "{ store: local }" => "{ store: Latest }\n    log: { latest: true }";
        ("topology.reserved_name", "stores[0].id", "Latest");
    "that name without newest rows": "id: local, type" => "id: latest, type", "{ store: local }" => "{ store: latest }"; ;
    "newest rows where another log is": "- id: orders" => "- { id: o2, source: shopdb, topic: x, log: { topic: shop_orders_latest } }\n  - id: orders", "    replicas:" => "    log: { latest: true }\n    replicas:";
        ("log.same_topic", "tables[1].log", "{ latest");
    "cursors where another log is": "- id: orders" => "- { id: o2, source: shopdb, topic: x, log: { topic: shop.orders.latest.cursors } }\n  - id: orders", "    replicas:" => "    log: { latest: true }\n    replicas:";
        ("log.same_topic", "tables[1].log", "{ latest");
    "cursors of newest rows as a source": "- id: orders" => "- { id: o2, source: shopdb, topic: shop.orders.latest.cursors }\n  - id: orders";
        ("log.loop", "tables[0].topic", "shop.orders.latest.cursors");
    "no room behind a log": "    replicas:" => "    log: { topic: oooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooooo, latest: true }\n    replicas:";
        ("topology.topic_name", "tables[0].log.latest", "true");
    "a topic with a slash": "    name: orders" => "    topic: shop/orders";
        ("topology.topic_name", "tables[0].topic", "shop/orders");
    "a topic prefix with a blank": "topic_prefix: shop" => "topic_prefix: my shop";
        ("topology.topic_name", "sources[0].cdc.topic_prefix", "my shop"),
        ("topology.topic_name", "tables[0].name", "orders");
    "a log with a colon": "    replicas:" => "    log: { topic: 'shop:orders' }\n    replicas:";
        ("topology.topic_name", "tables[0].log.topic", "'shop:orders'");
    "a log template without the table": "{ push_debounce_quiet: 0 }" => "{ log: { topic: all } }";
        ("topology.bad_value", "defaults.log.topic", "all");
    "a log template with an unknown placeholder": "    replicas:" => "    log: { topic: '{schema}.x' }\n    replicas:";
        ("topology.bad_value", "tables[0].log.topic", "'{schema}.x'");
    "no partitions": "    replicas:" => "    log: { partitions: 0 }\n    replicas:";
        ("topology.bad_value", "tables[0].log.partitions", "0");
    "too many copies": "    replicas:" => "    log: { replication: 16 }\n    replicas:";
        ("topology.bad_value", "tables[0].log.replication", "16");
    "a log that forgets": "    replicas:" => "    log: { retention: 30d }\n    replicas:";
        ("log.retention_too_short", "tables[0].log.retention", "30d");
    "every log forgets": "{ push_debounce_quiet: 0 }" => "{ log: { retention: 1w } }";
        ("log.retention_too_short", "defaults.log.retention", "1w");

    // Patterns.
    "an unbalanced expression": "    name: orders" => "    name: /orders(/";
        ("topology.bad_pattern", "tables[0].name", "/orders(/");
    "an expression without slashes": "    name: orders" => "    name: order_.*";
        ("topology.bad_pattern", "tables[0].name", "order_.*");
    "an expression that breaks out": "    name: orders" => "    name: '/a)|(b/'";
        ("topology.bad_pattern", "tables[0].name", "'/a)|(b/'");
    "an expression too large": "    name: orders" => "    name: '/(a{1000}){1000}/'";
        ("topology.bad_pattern", "tables[0].name", "'/(a{1000}");
    "one name for many": "    name: orders" => "    name: '*'", "{ store: local }" => "{ store: local, table: x }";
        ("topology.field_unused", "tables[0].replicas[0].table", "x");
    "two replicas of many in one store": "    name: orders" => "    name: '*'", "- { store: local }" => "- { store: local }\n      - { store: local }";
        ("topology.same_target", "tables[0].replicas[1]", "{ store: local");

    "a glob beside a topic": "    name: orders" => "    name: '*'\n    topic: x";
        ("topology.field_unused", "tables[0].name", "'*'");

    // Keys and columns.
    "a reserved key column": "    replicas:" => "    primary_key: [__start_at]\n    replicas:";
        ("scd.reserved_column", "tables[0].primary_key[0]", "__start_at");
    "a reserved typed column": "    replicas:" => "    columns: { types: { __End_At: int64 } }\n    replicas:";
        ("scd.reserved_column", "tables[0].columns.types.__End_At", "__End_At");
    "a reserved declared column": "    replicas:" => "    columns: [{ name: __lf_x }]\n    replicas:";
        ("scd.reserved_column", "tables[0].columns[0].name", "__lf_x");
    "a float key": "    replicas:" => "    primary_key: [price]\n    columns: { types: { price: float64 } }\n    replicas:";
        ("key.float", "tables[0].primary_key", "[price]");
    "a marked float key": "    replicas:" => "    columns: [{ name: price, type: float32, is_primary_key: true }]\n    replicas:";
        ("key.float", "tables[0].columns[0].name", "price");
    "a key without columns": "    replicas:" => "    primary_key: []\n    replicas:";
        ("topology.bad_value", "tables[0].primary_key", "[]");
    "two keys": "    replicas:" => "    primary_key: [a]\n    columns: [{ name: b, is_primary_key: true }]\n    replicas:";
        ("topology.bad_value", "tables[0].primary_key", "[a]");

    // Signals.
    "a signal that is none": "change_signal: debezium" => "change_signal: push";
        ("signal.invalid", "sources[0].change_signal", "push");
    "debezium without a connector": "    cdc: { topic_prefix: shop }\n" => "";
        ("signal.debezium_needs_cdc", "sources[0].cdc", "id: shopdb");
    "kafka on a database without a connector": "change_signal: debezium\n    cdc: { topic_prefix: shop }" => "change_signal: kafka";
        ("signal.debezium_needs_cdc", "sources[0].cdc", "id: shopdb");
    "debezium by default without a connector": "{ push_debounce_quiet: 0 }" => "{ change_signal: debezium }",
        "    change_signal: debezium\n    cdc: { topic_prefix: shop }\n" => "";
        ("signal.debezium_needs_cdc", "sources[0].cdc", "id: shopdb");
    "kafka without a topic": "    name: orders" => "    change_signal: kafka";
        ("signal.kafka_needs_topic", "tables[0].live.kafka.topic", "id: orders");
    "a topic that does not count": "{ topic_prefix: shop }" => "{ topic_prefix: shop }\n    live: { kafka: { topic: x } }";
        ("topology.field_unused", "sources[0].live.kafka.topic", "x }");
    "native where there is no feed": "type: postgresql\n    change_signal: debezium" => "type: mysql\n    change_signal: native";
        ("signal.native_unsupported", "sources[0].change_signal", "native");
    "native where there is one": "change_signal: debezium" => "change_signal: native";
        ("topology.not_supported_yet", "sources[0].change_signal", "native");
    "the default signal": "    change_signal: debezium\n" => "";
        ("topology.not_supported_yet", "tables[0].change_signal", "id: orders");
    "a poll": "    replicas:" => "    change_signal: probe\n    replicas:";
        ("topology.not_supported_yet", "tables[0].change_signal", "probe");
    "a legacy strategy": "    change_signal: debezium\n" => "", "    replicas:" => "    live: { strategy: debezium }\n    replicas:";
        ("signal.legacy_strategy", "tables[0].live.strategy", "debezium");
    "a legacy poll": "    replicas:" => "    live: { strategy: poll }\n    replicas:";
        ("topology.not_supported_yet", "tables[0].live.strategy", "poll"),
        ("signal.legacy_strategy", "tables[0].live.strategy", "poll");
    "change_signal beats a legacy strategy": "    replicas:" => "    change_signal: debezium\n    live: { strategy: poll }\n    replicas:"; ;
    "delay below quiet": "{ push_debounce_quiet: 0 }" => "{ push_debounce_quiet: 2, push_debounce_max_delay: 500ms }";
        ("push.debounce_order", "defaults.push_debounce_max_delay", "500ms");
    "the default delay below quiet": "    replicas:" => "    push_debounce_quiet: 10\n    replicas:";
        ("push.debounce_order", "tables[0].push_debounce_quiet", "10");
    "a negative quiet time": "{ store: local }" => "{ store: local, push_debounce_quiet: -1 }";
        ("push.debounce_order", "tables[0].replicas[0].push_debounce_quiet", "-1");
    "no rows in a batch": "{ store: local }" => "{ store: local, batch_rows_max: 0 }";
        ("topology.bad_value", "tables[0].replicas[0].batch_rows_max", "0");
    "a batch that is too large": "{ store: local }" => "{ store: serving, batch_bytes_max: 2GiB }";
        ("topology.bad_value", "tables[0].replicas[0].batch_bytes_max", "2GiB");
    "a batch that is too large for its store": "{ store: local }" => "{ store: local, batch_bytes_max: 17MiB }";
        ("topology.bad_value", "tables[0].replicas[0].batch_bytes_max", "17MiB");
    "a tiny batch": "{ store: local }" => "{ store: local, batch_bytes_max: 1KiB }";
        ("topology.bad_value", "tables[0].replicas[0].batch_bytes_max", "1KiB");

    // Parked keys.
    "parking by the word": "    replicas:" => "    park_key: on\n    replicas:";
        ("topology.yaml_ambiguous", "tables[0].park_key", "on");
    "parking what has no key of its own": "{ topic_prefix: shop }" => "{ topic_prefix: shop, dialect: canal }", "    replicas:" => "    park_key: true\n    replicas:";
        ("topology.not_supported_yet", "tables[0].park_key", "true");
    "parking by default what has no key of its own": "{ push_debounce_quiet: 0 }" => "{ park_key: true }",
        "{ topic_prefix: shop }" => "{ topic_prefix: shop, dialect: maxwell }";
        ("topology.not_supported_yet", "defaults.park_key", "true");
    "a table that does not park": "{ push_debounce_quiet: 0 }" => "{ park_key: true }", "{ topic_prefix: shop }" => "{ topic_prefix: shop, dialect: maxwell }",
        "    replicas:" => "    park_key: false\n    replicas:"; ;

    // Inferred types.
    "inferring by the word": "    replicas:" => "    infer_types: yes\n    replicas:";
        ("topology.yaml_ambiguous", "tables[0].infer_types", "yes");
    "types that nobody infers": "{ push_debounce_quiet: 0 }" => "{ infer_types: false }"; ;

    // Kafka.
    "an empty list of brokers": "[localhost:9092]" => "[]";
        ("kafka.brokers", "kafka.brokers", "[]");
    "a broker without a port": "[localhost:9092]" => "[localhost]";
        ("kafka.brokers", "kafka.brokers[0]", "localhost");
    "a broker with a scheme": "[localhost:9092]" => "['PLAINTEXT://localhost:9092']";
        ("kafka.brokers", "kafka.brokers[0]", "'PLAINTEXT");
    "plaintext to another machine": "[localhost:9092]" => "[localhost:9092, kafka:9092]";
        ("kafka.plaintext_consent", "kafka.brokers", "[localhost");
    "plaintext to another machine, as meant": "[localhost:9092]" => "[kafka:9092]\n  security: { protocol: plaintext }"; ;
    "plain without tls": "[localhost:9092]" => "[localhost:9092]\n  security: { protocol: sasl_plaintext, mechanism: plain, username: u, password: '${env:PASSWORD}' }";
        ("kafka.plain_without_tls", "kafka.security.mechanism", "plain");
    "scram without tls": "[localhost:9092]" => "[localhost:9092]\n  security: { protocol: sasl_plaintext, mechanism: scram-sha-256, username: u, password: '${env:PASSWORD}' }"; ;
    "a login without a password": "[localhost:9092]" => "[localhost:9092]\n  security: { protocol: sasl_ssl, mechanism: plain, username: u }";
        ("kafka.security", "kafka.security.password", "{ protocol");
    "a login that nothing uses": "[localhost:9092]" => "[localhost:9092]\n  security: { protocol: ssl, username: u }";
        ("topology.field_unused", "kafka.security.username", "u }");
    "a certificate without a key": "[localhost:9092]" => "[localhost:9092]\n  security: { protocol: ssl, certificate: c.pem }";
        ("kafka.security", "kafka.security.certificate", "c.pem");
    "an authority without tls": "[localhost:9092]" => "[localhost:9092]\n  security: { protocol: plaintext, ca: ca.pem }";
        ("topology.field_unused", "kafka.security.ca", "ca.pem");
    "an option that loads code": "[localhost:9092]" => "[localhost:9092]\n  client: { plugin.library.paths: evil.so }";
        ("topology.client_option_refused", "kafka.client.plugin.library.paths", "plugin");
    "an option that starts a program": "[localhost:9092]" => "[localhost:9092]\n  client: { sasl.kerberos.kinit.cmd: sh }";
        ("topology.client_option_refused", "kafka.client.sasl.kerberos.kinit.cmd", "sasl");
    "an unknown option": "[localhost:9092]" => "[localhost:9092]\n  client: { fetch.min.byte: 1 }";
        ("topology.client_option_refused", "kafka.client.fetch.min.byte", "fetch");
    "an option out of range": "[localhost:9092]" => "[localhost:9092]\n  client: { fetch.min.bytes: 0 }";
        ("topology.bad_value", "kafka.client.fetch.min.bytes", "0");

    // Secrets and references.
    "a literal password": "[localhost:9092]" => "[localhost:9092]\n  security: { protocol: sasl_ssl, mechanism: plain, username: u, password: hunter2 }";
        ("topology.literal_secret", "kafka.security.password", "hunter2");
    "a half literal password": "url: \"http://localhost:8123\"" => "url: \"http://localhost:8123\", password: 'x${env:PASSWORD}'";
        ("topology.literal_secret", "stores[2].password", "'x${env");
    "a password in an address": "landfall@localhost" => "landfall:hunter2@localhost";
        ("topology.literal_secret", "stores[1].url", "\"postgresql");
    "references in a flow": "[localhost:9092]" => "[localhost:9092]\n  security: { protocol: sasl_ssl, mechanism: scram-sha-512, username: u, password: ${env:KAFKA_PASSWORD}, ca: ca.pem }"; ;
    "a mistake behind a reference in a flow": "[localhost:9092]" => "[localhost:9092]\n  security: { protocol: sasl_ssl, mechanism: plain, username: ${env:NAME}, password: ${file:/run/secrets/a}, cert: x }";
        ("topology.unknown_key", "kafka.security.cert", "cert");
    "a variable that is not set in a flow": "- { store: local }" => "- { store: local, table: ${env:UNSET} }";
        ("topology.unresolved_reference", "tables[0].replicas[0].table", "${env:UNSET} }");
    "a variable that is not set": "    name: orders" => "    name: ${env:UNSET}";
        ("topology.unresolved_reference", "tables[0].name", "${env:UNSET}");
    "a secret that is empty": "url: \"http://localhost:8123\"" => "url: \"http://localhost:8123\", password: '${env:EMPTY}'";
        ("topology.unresolved_reference", "stores[2].password", "'${env");
    "a file that is not there": "url: \"http://localhost:8123\"" => "url: '${file:/nowhere}'";
        ("topology.unresolved_reference", "stores[2].url", "'${file");
    "a reference of another kind": "    name: orders" => "    name: ${NAME}";
        ("topology.unresolved_reference", "tables[0].name", "${NAME}");

    // Stores.
    "a path on clickhouse": "url: \"http://localhost:8123\"" => "url: \"http://localhost:8123\", path: x";
        ("topology.field_unused", "stores[2].path", "x }");
    "a schema on clickhouse": "url: \"http://localhost:8123\"" => "url: \"http://localhost:8123\", schema: x";
        ("topology.field_unused", "stores[2].schema", "x }");
    "a url on duckdb": "path: replicas.duckdb" => "path: replicas.duckdb, url: x";
        ("topology.field_unused", "stores[0].url", "x }");
    "an address without a scheme": "http://localhost:8123" => "localhost:8123";
        ("topology.bad_value", "stores[2].url", "\"localhost");
    "a login in clickhouse's address": "http://localhost:8123" => "http://u@localhost:8123";
        ("topology.bad_value", "stores[2].url", "\"http");
    "no postgres address": "postgresql://landfall@localhost/shop" => "mysql://localhost";
        ("topology.bad_value", "stores[1].url", "\"mysql");
    "a database in memory": "path: replicas.duckdb" => "path: ':memory:'";
        ("topology.bad_value", "stores[0].path", "':memory:'");

    // Fields to come.
    "a query engine's field": "    replicas:" => "    hot: true\n    materialize: { a: [b] }\n    replicas:";
        ("topology.belongs_to_query_engine", "tables[0].hot", "true"),
        ("topology.belongs_to_query_engine", "tables[0].materialize", "{ a");
    "reads to count": "    replicas:" => "    replicate: 3\n    replicas:";
        ("topology.belongs_to_query_engine", "tables[0].replicate", "3");
    "shapes to come": "{ store: local }" => "{ store: local, shape: history, track: [a] }";
        ("topology.not_supported_yet", "tables[0].replicas[0].shape", "history"),
        ("topology.not_supported_yet", "tables[0].replicas[0].track", "[a]");
    "column rules that cannot be": "    replicas:" => "    primary_key: [id]\n    columns: { exclude: [id], mask: { id: sha256, b: md5 }, rename: { c: d, e: d, f: __LF_X }, as_text: [id] }\n    replicas:";
        ("topology.bad_value", "tables[0].columns.exclude[0]", "id]"),
        ("topology.bad_value", "tables[0].columns.mask.id", "id: sha"),
        ("topology.unknown_value", "tables[0].columns.mask.b", "md5"),
        ("topology.duplicate_id", "tables[0].columns.rename.e", "d, f"),
        ("scd.reserved_column", "tables[0].columns.rename.f", "__LF_X"),
        ("topology.bad_value", "tables[0].columns.as_text[0]", "id] }");
    "a schema that is none": "cdc: { topic_prefix: shop }" => "cdc: { topic_prefix: shop, schemas: ['\"int\"', '{'] }";
        ("topology.bad_value", "sources[0].cdc.schemas[1]", "'{'");
    "a fallback that is none": "    replicas:" => "    fallback: { missing: clamp }\n    replicas:";
        ("topology.unknown_value", "tables[0].fallback.missing", "clamp");
    "a mask without salt": "    replicas:" => "    columns: { mask: { b: sha256 } }\n    replicas:";
        ("topology.required", "tables[0].columns", "{ mask");
    "a salt for nothing": "    replicas:" => "    mask_salt: '${env:SALT}'\n    replicas:";
        ("topology.field_unused", "tables[0].mask_salt", "'$");
    "a source to come": "type: postgresql\n" => "type: cosmosdb\n";
        ("topology.not_supported_yet", "sources[0].type", "cosmosdb");
    "a store to come": "type: duckdb, path: replicas.duckdb" => "type: kafka";
        ("topology.not_supported_yet", "stores[0].type", "kafka");
    "defaults written out are harmless": "    replicas:" => "    replicate: 0\n    load_protected: false\n    off_peak_tz: UTC\n    first_build: topic\n    subscribe_deletes: false\n    native_apply: rows\n    on_key_change: abort\n    sequence_by: []\n    columns: { exclude: [], mask: {}, rename: {} }\n    log: { format: avro, latest: false, retention: forever }\n    replicas:",
        "{ store: local }" => "{ store: local, shape: upsert, soft_delete: false, ignore_null_updates: false, track: [] }"; ;

    // Several at once; what is broken hides nothing but what it may itself contain.
    "a broken table hides no missing block": "kafka:\n  brokers: [localhost:9092]\n" => "", "tables:" => "tables:\n  - nonsense";
        ("topology.required", "kafka", "topology"),
        ("topology.wrong_kind", "tables[0]", "nonsense");
    "a broken store hides unknown stores only": "id: local, type" => "id: 'lo cal', type", "source: shopdb" => "source: nowhere";
        ("topology.bad_name", "stores[0].id", "'lo cal'"),
        ("topology.unknown_reference", "tables[0].source", "nowhere");
    "broken tables are not missing": "tables:\n  - id" => "tables: nonsense\nrelationships:\n  - id";
        ("topology.wrong_kind", "tables", "nonsense"),
        ("topology.not_supported_yet", "relationships", "- id"),
        ("topology.unknown_key", "relationships[0].source", "source"),
        ("topology.unknown_key", "relationships[0].schema", "schema"),
        ("topology.unknown_key", "relationships[0].name", "name"),
        ("topology.unknown_key", "relationships[0].replicas", "replicas");
    "all at once": "topology: shop" => "topology: SHOP", "type: postgresql\n" => "typ: postgresql\n",
        "store: local" => "store: locl", "http://localhost:8123" => "tcp://x";
        ("topology.bad_name", "topology", "SHOP"),
        ("topology.required", "sources[0].type", "id: shopdb"),
        ("topology.unknown_key", "sources[0].typ", "typ"),
        ("topology.bad_value", "stores[2].url", "\"tcp"),
        ("topology.unknown_reference", "tables[0].replicas[0].store", "locl");
};

#[test]
fn issues_as_data() {
    let mut wrong = Vec::new();
    for case in CASES {
        let text = patched(case.edits);
        let checked = check_text(&text);
        let found: Vec<_> = checked.issues.iter().map(|issue| summary(&text, issue, 1_000)).collect();
        let found: Vec<_> = found.iter().map(|(code, path, there)| (code.as_str(), path.as_str(), there.as_str())).collect();
        let same = found.len() == case.issues.len()
            && found.iter().zip(case.issues).all(|(found, wanted)| found.0 == wanted.0 && found.1 == wanted.1 && found.2.starts_with(wanted.2));
        if !same {
            wrong.push(format!("{}\n  wanted {:?}\n  found  {found:?}", case.name, case.issues));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_code_has_a_case() {
    let mut covered: BTreeSet<&str> = CASES.iter().flat_map(|case| case.issues).map(|(code, _, _)| *code).collect();
    // It takes two files.
    covered.insert("topology.duplicate_section");
    let missing: Vec<_> = Code::ALL.iter().filter(|code| !covered.contains(code.as_str())).collect();
    assert_eq!(missing, Vec::<&Code>::new());
}

#[test]
fn blocks_that_stand_in_one_file_only() {
    let second = "topology: shop\nkafka: { brokers: [localhost:9093] }\nrelationships: []\n";
    let documents = [Document::new("a.yaml", BASE), Document::new("b.yaml", second)];
    let checked = check(&documents, &lookup);
    let found: Vec<_> = checked.issues.iter().map(|i| (i.code.as_str(), i.file.as_str(), i.line, i.path.as_str())).collect();
    assert_eq!(found, [("topology.duplicate_section", "b.yaml", 1, "topology"), ("topology.duplicate_section", "b.yaml", 2, "kafka"),]);
}

#[test]
fn ids_are_unique_over_all_files() {
    let second = "tables:\n  - { id: ORDERS, source: shopdb, schema: public, name: o2 }\n";
    let documents = [Document::new("a.yaml", BASE), Document::new("b.yaml", second)];
    let checked = check(&documents, &lookup);
    let found: Vec<_> = checked.issues.iter().map(|i| (i.code.as_str(), i.file.as_str(), i.line)).collect();
    assert_eq!(found, [("topology.duplicate_id", "b.yaml", 2)]);
}

#[test]
fn nothing_at_all_is_an_issue() {
    let checked = check(&[], &lookup);
    assert!(checked.plan.is_none());
    let missing: Vec<_> = checked.issues.iter().map(|i| (i.code.as_str(), i.path.as_str())).collect();
    assert_eq!(missing, ["kafka", "sources", "tables", "topology"].map(|key| ("topology.required", key)));
}
