//! Captured events, decoded and folded naively, against the rows of the database they came from, column by column as text.
//!
//! The fold here shares no code with the product's: a map per key, ordered as the documents say. What the sources held is read by `source_rows`.

use super::source_rows::{Texts, decoded, expected};
use super::*;

/// The live rows after every change, by a map per key: sequence first, then snapshot reads below all else, then the place in the source.
fn fold(said: &[(i64, Vec<Said>)]) -> BTreeMap<Vec<String>, Texts> {
    type Rank = (Vec<u8>, bool, bool, i64, usize);
    let mut keys: BTreeMap<Vec<u8>, BTreeMap<Rank, &Said>> = BTreeMap::new();
    for (offset, changes) in said {
        for (ordinal, change) in changes.iter().enumerate().filter(|(_, c)| c.op != Op::Truncate) {
            let events = keys.entry(change.key.clone()).or_default();
            let rank = match &change.sequence {
                Some(sequence) => (sequence.clone(), false, change.op != Op::Read, *offset, ordinal),
                None => {
                    let Some(preceding) = events.keys().filter(|r| r.3 < *offset).max_by_key(|r| r.3).cloned() else { continue };
                    (preceding.0, true, true, *offset, 0)
                }
            };
            events.insert(rank, change);
        }
    }
    // A truncate stands behind everything at its place, in every key.
    for (offset, cut) in said.iter().flat_map(|(offset, changes)| changes.iter().filter(|c| c.op == Op::Truncate).map(move |c| (*offset, c))) {
        let rank = (cut.sequence.clone().expect("a mark has its place"), true, true, offset, usize::MAX);
        for events in keys.values_mut() {
            let _ = events.insert(rank.clone(), cut);
        }
    }
    let mut rows = BTreeMap::new();
    for events in keys.values() {
        let mut row: Option<(Vec<String>, Texts)> = None;
        for change in events.values() {
            if matches!(change.op, Op::Delete | Op::Truncate) {
                row = None;
                continue;
            }
            let previous = row.take().map(|(_, values)| values).unwrap_or_default();
            let mut values = change.after.clone();
            for name in &change.unauthored {
                // A key change without the old row leaves a hole here, which the comparison must then not ask for.
                if let Some(value) = previous.get(name) {
                    values.insert(name.clone(), value.clone());
                }
            }
            row = Some((change.key_values.clone(), values));
        }
        if let Some((_, values)) = row {
            let key = events.values().filter(|c| c.op != Op::Truncate).map(|c| c.key_values.clone()).next_back().expect("an event");
            rows.insert(key, values);
        }
    }
    rows
}

/// Columns of which the event itself no longer holds the truth, as (key, column); `*` is any of them. Each was looked up in the fixture.
type Damaged<'a> = &'a [(&'a str, &'a str)];

fn is_damaged(damaged: Damaged<'_>, key: &str, column: &str) -> bool {
    damaged.iter().any(|(k, c)| (*k == "*" || *k == key) && (*c == "*" || *c == column))
}

fn compare(file: &str, table: &str, want: &str, options: Options, out_of_scope: &[&str], damaged: Damaged<'_>) {
    compare_but(file, table, want, options, out_of_scope, damaged, &[]);
}

/// Compares a table; records whose offset is in `rejected` must be rejected with that code, all others must decode.
fn compare_but(file: &str, table: &str, want: &str, options: Options, out_of_scope: &[&str], damaged: Damaged<'_>, rejected: &[(i64, &str)]) {
    let want = expected(want);
    let registry = registry(file);
    let mut decoder = Decoder::new(Options { registry: (!registry.is_empty()).then_some(IdBytes::Four), ..options });
    let mut said = Vec::new();
    for record in records_of(file, table) {
        bring(&mut decoder, &registry, &input(&record));
        match say(&mut decoder, input(&record)) {
            Ok(changes) => said.push((record.offset, changes)),
            Err(reject) => {
                let code = rejected.iter().find(|(offset, _)| *offset == record.offset).map(|(_, code)| *code);
                assert_eq!(Some(reject.code.as_str()), code, "{file} {table} {}: {reject}", record.offset);
            }
        }
    }
    let rows: BTreeMap<Vec<String>, _> = fold(&said);
    let type_of: BTreeMap<&str, &str> = want.columns.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
    let key_of = |key: &Vec<String>| -> Vec<String> { want.key.iter().zip(key).map(|(k, v)| decoded(type_of[k.as_str()], v)).collect() };
    let rows: BTreeMap<Vec<String>, _> = rows.iter().map(|(k, v)| (key_of(k), v)).collect();
    let is_rejected = |key: &[String]| is_damaged(damaged, &key[0], "*");
    let want_keys: Vec<_> = want.rows.keys().filter(|k| !is_rejected(k)).collect();
    assert_eq!(rows.keys().filter(|k| !is_rejected(k)).collect::<Vec<_>>(), want_keys, "{file} {table}");
    let mut compared = 0;
    let mut differences = Vec::new();
    for (key, row) in &rows {
        if is_rejected(key) {
            continue;
        }
        for (name, ty) in &want.columns {
            if out_of_scope.contains(&name.as_str()) || is_damaged(damaged, &key[0], name) {
                continue;
            }
            let got = row.get(name).unwrap_or_else(|| panic!("{file} {table} {key:?} has no {name}"));
            let got = got.as_deref().map(|text| decoded(ty, text));
            if got != want.rows[key][name] {
                differences.push(format!("{key:?} {name} ({ty}): {got:?}, not {:?}", want.rows[key][name]));
            }
            compared += 1;
        }
    }
    assert!(differences.is_empty(), "{file} {table}:\n{}", differences.join("\n"));
    assert!(compared >= want_keys.len(), "{file} {table} compared nothing");
}

pub(super) fn plain() -> Options {
    Options::new("t")
}

fn excluding(columns: &[&str]) -> Options {
    Options { exclude: columns.iter().map(|c| (*c).to_owned()).collect(), ..plain() }
}

pub(super) fn typed(types: &[(&str, &str)]) -> Options {
    let types = types.iter().map(|(name, ty)| ((*name).to_owned(), ty.parse().expect(ty))).collect();
    Options { types, decimal_strings: DecimalStrings::Base64, ..plain() }
}

/// The types of Postgres' `customers`, where no schema part says them.
pub(super) const CUSTOMERS: [(&str, &str); 6] = [
    ("id", "int32"),
    ("first_name", "text"),
    ("last_name", "text"),
    ("email", "text"),
    ("balance", "decimal(12,2)"),
    ("created_at", "timestamptz(6)"),
];
/// Columns of `t_time` whose source text the connector does not tell: a zone became UTC, a span of the calendar a number of micros.
const TIMES: [&str; 4] = ["c_timetz", "c_timetz3", "c_interval", "c_interval3"];
/// Snapshots of Postgres go through the Julian calendar: 1582-10-10 comes as ten days later.
const JULIAN: Damaged<'static> = &[("4", "c_date")];
/// Streamed values of type `name` come as NULL, XML loses its prolog.
const TEXTS: Damaged<'static> = &[("*", "c_name"), ("3", "c_xml"), ("103", "c_xml")];

#[test]
fn postgres_numbers() {
    compare("pg-types-schema", "t_num", "pg-types.t_num", plain(), &[], &[]);
}

#[test]
fn postgres_texts_documents_and_bytes() {
    compare("pg-types-schema", "t_str", "pg-types.t_str", plain(), &[], TEXTS);
}

#[test]
fn postgres_times() {
    compare("pg-types-schema", "t_time", "pg-types.t_time", excluding(&TIMES), &TIMES, JULIAN);
    // What does not fit nanos since 1970, which end in the years 1677 and 2262, comes as NULL.
    let mut damaged = JULIAN.to_vec();
    for key in ["2", "3", "4", "102", "103"] {
        damaged.extend(["c_ts", "c_ts0", "c_ts1", "c_ts3", "c_ts4", "c_ts6"].map(|column| (key, column)));
    }
    compare("pg-types-nanos-schema", "t_time", "pg-types.t_time", excluding(&TIMES), &TIMES, &damaged);
}

#[test]
fn postgres_columns_with_defaults() {
    // A NULL in a column with a default comes as the default, and generated columns are missing from the stream (STACK.md).
    compare("pg-types-schema", "t_notnull", "pg-types.t_notnull", plain(), &["n_gen"], &[("102", "n_opt")]);
}

#[test]
fn postgres_decimals_in_string_mode() {
    let numerics = ["c_num_10_2", "c_num_38_10", "c_num_2_4", "c_num_18_0", "c_num_5_neg2"];
    let types = [
        ("c_num_10_2", "decimal(10,2)"),
        ("c_num_38_10", "decimal(38,10)"),
        ("c_num_2_4", "decimal(4,4)"),
        ("c_num_18_0", "decimal(18,0)"),
        ("c_num_5_neg2", "decimal(7,0)"),
        ("c_num", "numeric"),
    ];
    let options = Options { decimal_strings: DecimalStrings::Numbers, ..typed(&types) };
    assert!(numerics.iter().all(|n| types.iter().any(|(name, _)| name == n)));
    compare("pg-types-string-schema", "t_num", "pg-types.t_num", options, &[], &[]);
    let options = Options { binary_strings: Some(BinaryStrings::Base64), ..typed(&[("c_bytea", "bytes")]) };
    compare("pg-types-string-schema", "t_str", "pg-types.t_str", options, &[], TEXTS);
}

#[test]
fn case_dec_04_special_decimals_keep_what_they_are() {
    let types = [("c_num_10_2", "decimal(10,2)"), ("c_num", "numeric")];
    let options = Options { decimal_strings: DecimalStrings::Numbers, ..typed(&types) };
    compare("pg-types-string-schema", "t_num_special", "pg-types.t_num_special", options, &[], &[]);
    // As the text that the connector writes, everything is there; floats have their infinities anyway.
    compare("pg-types-string-schema", "t_num_special", "pg-types.t_num_special", plain(), &["c_num_10_2", "c_num"], &[]);
}

#[test]
fn case_tmp_03_infinite_times_are_infinite_and_old_ones_exact() {
    let rejected: &[(i64, &str)] = &[
        (0, "value.out_of_range"),
        (1, "value.out_of_range"),
        (4, "value.out_of_range"),
        (6, "value.out_of_range"),
        (7, "value.out_of_range"),
        (10, "value.out_of_range"),
        (12, "value.out_of_range"),
    ];
    let lost = [("1", "*"), ("2", "*"), ("5", "*"), ("101", "*"), ("102", "*"), ("105", "*"), ("104", "c_date"), ("3", "c_date"), ("6", "c_date")];
    compare_but("pg-types-timespecial-schema", "t_time_special", "pg-types.t_time_special", plain(), &[], &lost, rejected);
    // An infinite date comes as the wreck of a number; without dates, infinity lands, and only the year 294276 does not fit micros.
    let rejected: &[(i64, &str)] = &[(4, "value.out_of_range"), (10, "value.out_of_range")];
    let lost = [("5", "*"), ("105", "*")];
    compare_but("pg-types-timespecial-schema", "t_time_special", "pg-types.t_time_special", excluding(&["c_date"]), &["c_date"], &lost, rejected);
}

#[test]
fn case_dec_08_strings_of_bits() {
    // How long a string of varying length was is not told: the number that it is comes at its greatest length.
    let varying = ["c_varbit", "c_varbit16"];
    for file in ["pg-types-schema", "pg-types-avro"] {
        compare(file, "t_net", "pg-types.t_net", excluding(&varying), &varying, &[]);
    }
    // Zeros that fill a number are no part of it; the maximum of BIGINT UNSIGNED is -1 in long mode (case DEC-03).
    let options = || typed(&[("c_bigu", "uint64")]);
    for file in ["my-types-schema", "my-types-avro"] {
        compare(file, "t_int", "my-types.t_int", options(), &["c_intz"], &[]);
    }
}

#[test]
fn case_tmp_08_intervals_of_the_calendar() {
    let zones = ["c_timetz", "c_timetz3"];
    // That file's connector sends millis, so that micros of times of day and timestamps are lost before.
    let fine = ["c_time", "c_time0", "c_time3", "c_time6", "c_ts", "c_ts0", "c_ts1", "c_ts3", "c_ts4", "c_ts6"];
    let out_of_scope: Vec<&str> = zones.iter().chain(&fine).copied().collect();
    compare("pg-types-string-schema", "t_time", "pg-types.t_time", plain(), &out_of_scope, JULIAN);
}

#[test]
fn case_dec_13_arrays() {
    // Arrays of enums come as NULL, and times of day within arrays without their fraction.
    let damaged = [("*", "a_enum"), ("2", "a_time"), ("102", "a_time")];
    for file in ["pg-types-schema", "pg-types-avro"] {
        compare(file, "t_arr", "pg-types.t_arr", plain(), &[], &damaged);
    }
    // An array that was not sent keeps what it was: its marker is an element of text, or the marker's bytes as numbers.
    compare("pg-ops-schema", "toasted", "pg-ops.toasted", plain(), &[], &[]);
    compare("pg-ops-avro", "toasted", "pg-ops.toasted", plain(), &[], &[]);
}

#[test]
fn case_dec_15_geometries() {
    for file in ["my-types-schema", "my-types-avro"] {
        compare(file, "t_geo", "my-types.t_geo", plain(), &[], &[]);
    }
}

#[test]
fn postgres_without_the_schema_part() {
    let numbers = [
        ("id", "int32"),
        ("c_smallint", "int16"),
        ("c_int", "int32"),
        ("c_bigint", "int64"),
        ("c_num_10_2", "decimal(10,2)"),
        ("c_num_38_10", "decimal(38,10)"),
        ("c_num_2_4", "decimal(4,4)"),
        ("c_num_18_0", "decimal(18,0)"),
        ("c_num", "numeric"),
        ("c_real", "float32"),
        ("c_double", "float64"),
        ("c_money", "decimal(19,2)"),
        ("c_bool", "bool"),
        ("c_oid", "int64"),
    ];
    // The scale of numeric(5,-2) is 2046 on the wire, which only a schema part can say.
    let options = Options { exclude: vec!["c_num_5_neg2".to_owned()], ..typed(&numbers) };
    compare("pg-types", "t_num", "pg-types.t_num", options, &["c_num_5_neg2"], &[]);
    let times = [
        ("id", "int32"),
        ("c_date", "date"),
        ("c_time", "time(6)"),
        ("c_time0", "time(0)"),
        ("c_time3", "time(3)"),
        ("c_time6", "time(6)"),
        ("c_timetz", "text"),
        ("c_timetz3", "text"),
        ("c_ts", "timestamp(6)"),
        ("c_ts0", "timestamp(0)"),
        ("c_ts1", "timestamp(1)"),
        ("c_ts3", "timestamp(3)"),
        ("c_ts4", "timestamp(4)"),
        ("c_ts6", "timestamp(6)"),
        ("c_tstz", "timestamptz(6)"),
        ("c_tstz0", "timestamptz(0)"),
        ("c_tstz3", "timestamptz(3)"),
        ("c_interval", "int64"),
        ("c_interval3", "int64"),
    ];
    compare("pg-types", "t_time", "pg-types.t_time", typed(&times), &TIMES, JULIAN);
    let texts = [
        ("id", "int32"),
        ("c_text", "text"),
        ("c_varchar20", "text"),
        ("c_varchar", "text"),
        ("c_char5", "text"),
        ("c_citext", "text"),
        ("c_name", "text"),
        ("c_bytea", "bytes"),
        ("c_uuid", "uuid"),
        ("c_json", "json"),
        ("c_jsonb", "json"),
        ("c_xml", "text"),
        ("c_enum", "text"),
        ("c_dom_int", "int32"),
        ("c_dom_txt", "text"),
        ("c_dom_num", "decimal(8,3)"),
    ];
    compare("pg-types", "t_str", "pg-types.t_str", typed(&texts), &[], TEXTS);
}

#[test]
fn postgres_operations() {
    for table in ["customers", "orders", "pk_full", "idx_ident", "key_types", "T_bla__n_code", "trunc_me"] {
        compare("pg-ops-schema", table, &format!("pg-ops.{table}"), plain(), &[], &[]);
    }
}

#[test]
fn postgres_operations_without_the_schema_part() {
    compare("pg-ops", "customers", "pg-ops.customers", typed(&CUSTOMERS), &[], &[]);
    let keys = [
        ("k_num", "decimal(10,2)"),
        ("k_tstz", "timestamptz(6)"),
        ("k_uuid", "uuid"),
        ("k_bytea", "bytes"),
        ("k_date", "date"),
        ("k_big", "int64"),
        ("k_bool", "bool"),
        ("k_text", "text"),
        ("v", "int32"),
    ];
    compare("pg-ops", "key_types", "pg-ops.key_types", typed(&keys), &[], &[]);
}

#[test]
fn case_toa_01_unchanged_large_values_come_from_their_predecessor() {
    compare("pg-ops-schema", "toasted", "pg-ops.toasted", excluding(&["biga"]), &["biga"], &[]);
    compare("pg-ops-schema", "toasted_full", "pg-ops.toasted_full", plain(), &[], &[]);
    let toasted = [("id", "int32"), ("small", "int32"), ("big", "text"), ("bigj", "json"), ("bigb", "bytes"), ("biga", "json")];
    compare("pg-ops", "toasted", "pg-ops.toasted", typed(&toasted), &["biga"], &[]);
}

/// The converter leaves out what such columns are, so it is declared; what a text is needs no word.
const UNTOLD: [(&str, &str); 17] = [
    ("c_date", "date"),
    ("c_time", "time(6)"),
    ("c_time0", "time(0)"),
    ("c_time3", "time(3)"),
    ("c_time6", "time(6)"),
    ("c_ts", "timestamp(6)"),
    ("c_ts0", "timestamp(0)"),
    ("c_ts1", "timestamp(1)"),
    ("c_ts3", "timestamp(3)"),
    ("c_ts4", "timestamp(4)"),
    ("c_ts6", "timestamp(6)"),
    ("c_tstz", "timestamptz(6)"),
    ("c_tstz0", "timestamptz(0)"),
    ("c_tstz3", "timestamptz(3)"),
    ("c_uuid", "uuid"),
    ("c_json", "json"),
    ("c_jsonb", "json"),
];

/// What Confluent's converter makes of a connector's events, where it writes NULL as absent (`optional.for.nullables`): Debezium 3.6.1 on Postgres 15,
/// the converter 7.0.16 with Google's common types 2.22.1, its schemas in Apicurio 2.6.13. That converter fails at NULL within an array.
#[test]
fn protobuf_of_postgres() {
    let file = "pg-types-protobuf";
    let untold = |more: &[(&str, &str)], exclude: &[&str]| Options { exclude: excluding(exclude).exclude, ..typed(&[&UNTOLD, more].concat()) };
    compare(file, "t_num", "pg-types.t_num", plain(), &[], &[]);
    compare(file, "t_str", "pg-types.t_str", untold(&[], &[]), &[], TEXTS);
    compare(file, "t_time", "pg-types.t_time", untold(&[], &TIMES), &TIMES, JULIAN);
    let varying = ["c_varbit", "c_varbit16"];
    compare(file, "t_net", "pg-types.t_net", untold(&[("c_bit8", "bits(8)"), ("c_bit70", "bits(70)")], &varying), &varying, &[]);
    let declared = [("n_ts", "timestamp(6)"), ("n_tstz", "timestamptz(6)"), ("n_date", "date"), ("n_uuid", "uuid"), ("n_jsonb", "json")];
    compare(file, "t_notnull", "pg-types.t_notnull", typed(&declared), &["n_gen"], &[("102", "n_opt")]);
}

/// The same with a message around each value that may be NULL, and with Connect's own types of time.
#[test]
fn protobuf_of_postgres_in_wrappers_and_with_the_types_of_connect() {
    let wrappers = "pg-types-wrapper-protobuf";
    compare(wrappers, "t_num", "pg-types.t_num", plain(), &[], &[]);
    compare(wrappers, "t_str", "pg-types.t_str", typed(&UNTOLD), &[], TEXTS);
    // Millis are all that it sends then, and NULL cannot be told from what is absent where neither was asked for.
    let fine = ["c_time", "c_time6", "c_ts", "c_ts4", "c_ts6", "c_timetz", "c_timetz3", "c_interval", "c_interval3", "c_tstz", "c_tstz0", "c_tstz3"];
    let zones = ["c_timetz", "c_timetz3", "c_interval", "c_interval3", "c_tstz", "c_tstz0", "c_tstz3"];
    // On their way through Java's calendar old days become others, and the end of a day its beginning.
    let damaged = [("3", "c_date"), ("103", "c_date"), ("4", "c_date"), ("4", "c_time0"), ("4", "c_time3")];
    compare("pg-types-connect-protobuf", "t_time", "pg-types.t_time", excluding(&zones), &fine, &damaged);
}

#[test]
fn avro_of_postgres() {
    compare("pg-types-avro", "t_num", "pg-types.t_num", plain(), &[], &[]);
    compare("pg-types-avro", "t_str", "pg-types.t_str", plain(), &[], TEXTS);
    compare("pg-types-avro", "t_time", "pg-types.t_time", excluding(&TIMES), &TIMES, JULIAN);
    compare("pg-types-avro", "t_notnull", "pg-types.t_notnull", plain(), &["n_gen"], &[("102", "n_opt")]);
    for table in ["customers", "orders", "pk_full", "idx_ident", "key_types", "trunc_me"] {
        compare("pg-ops-avro", table, &format!("pg-ops.{table}"), plain(), &[], &[]);
    }
    compare("pg-ops-avro", "toasted", "pg-ops.toasted", excluding(&["biga"]), &["biga"], &[]);
    compare("pg-ops-avro", "toasted_full", "pg-ops.toasted_full", plain(), &[], &[]);
}

#[test]
fn avro_of_mariadb() {
    for table in ["customers", "orders", "uniq"] {
        compare("my-ops-avro", table, &format!("my-ops.{table}"), plain(), &[], &[]);
    }
    compare("my-ops-avro", "key_types", "my-ops.key_types", typed(&[("k_bigu", "uint64")]), &[], &[]);
    compare("my-types-avro", "t_dec", "my-types.t_dec", plain(), &[], &[]);
    compare("my-types-avro", "t_str", "my-types.t_str", plain(), &[], &[("102", "c_enum"), ("102", "c_uuid")]);
    compare("my-types-avro", "t_notnull", "my-types.t_notnull", typed(&[("n_bigu", "uint64")]), &[], &[("102", "n_opt")]);
}

#[test]
fn flattened_rows_of_postgres() {
    let flat = || Options { dialect: Dialect::Flattened, connector: "postgresql", ..plain() };
    for table in ["customers", "orders", "pk_full", "key_types"] {
        compare("pg-ops-flat-rewrite-json-schema", table, &format!("pg-ops.{table}"), flat(), &[], &[]);
    }
    // An update that leaves a large value alone keeps it.
    compare("pg-ops-flat-rewrite-json-schema", "toasted_full", "pg-ops.toasted_full", flat(), &[], &[]);
    let flat = || Options { dialect: Dialect::Flattened, connector: "postgresql", ..typed(&CUSTOMERS) };
    // Deletes as rewritten rows with tombstones, and as tombstones alone.
    for file in ["pg-ops-flat-json", "pg-ops-flat-tombstone-json"] {
        compare(file, "customers", "pg-ops.customers", flat(), &[], &[]);
    }
}

#[test]
fn maxwell_of_mariadb() {
    let maxwell = |table: &str, types: &[(&str, &str)]| Options {
        dialect: Dialect::Maxwell,
        order: Order::Offset,
        source_table: Some(table.to_owned()),
        types_are_columns: true,
        decimal_strings: DecimalStrings::Numbers,
        ..typed(types)
    };
    let orders = [("region", "text"), ("id", "int32"), ("customer_id", "int32"), ("total", "decimal(10,2)")];
    compare("maxwell-my-ops", "orders", "maxwell-my-ops.orders", maxwell("orders", &orders), &[], &[]);
    let integers = [
        ("id", "int32"),
        ("c_tiny", "int8"),
        ("c_tinyu", "uint8"),
        ("c_bool", "int8"),
        ("c_boolean", "int8"),
        ("c_small", "int16"),
        ("c_smallu", "uint16"),
        ("c_med", "int32"),
        ("c_medu", "uint32"),
        ("c_int", "int32"),
        ("c_intu", "uint32"),
        ("c_intz", "uint32"),
        ("c_big", "int64"),
        ("c_bigu", "uint64"),
        ("c_year", "int32"),
        ("c_bit1", "uint64"),
        ("c_bit8", "uint64"),
        ("c_bit12", "uint64"),
        ("c_bit64", "uint64"),
    ];
    // Rows from before it listened, which nothing altered since.
    // The source's own text of these is in binary, or filled with zeros.
    let other_text = ["c_intz", "c_bit8", "c_bit12", "c_bit64"];
    let earlier = ["1", "3", "5"].map(|key| (key, "*"));
    compare("maxwell-my-types", "t_int", "maxwell-my-types.t_int", maxwell("t_int", &integers), &other_text, &earlier);
}

#[test]
fn canal_of_mariadb() {
    let canal = |table: &str| Options { dialect: Dialect::Canal, order: Order::Offset, source_table: Some(table.to_owned()), ..plain() };
    for table in ["orders", "customers"] {
        compare("canal-my-ops", table, &format!("canal-my-ops.{table}"), canal(table), &[], &[]);
    }
    // Rows from before it listened, and columns whose text in the source is in binary or filled with zeros.
    let earlier = ["1", "3", "5"].map(|key| (key, "*"));
    compare("canal-my-types", "t_int", "canal-my-types.t_int", canal("t_int"), &["c_intz", "c_bit8", "c_bit12", "c_bit64"], &earlier);
}

#[test]
fn mariadb_operations() {
    for table in ["customers", "orders", "uniq"] {
        compare("my-ops-schema", table, &format!("my-ops.{table}"), plain(), &[], &[]);
    }
    // The maximum of BIGINT UNSIGNED is -1 in long mode; declared, it is itself again (case DEC-03).
    compare("my-ops-schema", "key_types", "my-ops.key_types", typed(&[("k_bigu", "uint64")]), &[], &[]);
}

#[test]
fn mariadb_types() {
    compare("my-types-schema", "t_dec", "my-types.t_dec", plain(), &[], &[]);
    // The stream escapes commas in the values of an enum, and shifts the bytes of a uuid.
    compare("my-types-schema", "t_str", "my-types.t_str", plain(), &[], &[("102", "c_enum"), ("102", "c_uuid")]);
    compare("my-types-schema", "t_notnull", "my-types.t_notnull", typed(&[("n_bigu", "uint64")]), &[], &[("102", "n_opt")]);
}

#[test]
fn case_tmp_07_times_beyond_a_day() {
    // Snapshots go through the Julian calendar.
    for file in ["my-types-schema", "my-types-avro"] {
        compare(file, "t_time", "my-types.t_time", plain(), &[], &[("3", "c_dt")]);
    }
}
