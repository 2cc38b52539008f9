//! What every sink must do, whatever its store: each rule of the contract (`landfall::sink::Sink`) is a scenario with a name.
//!
//! A scenario speaks to a store through sinks only, and looks at it as a reader would: the live rows as text. Expected rows come from a map that
//! the scenario keeps itself. `make` gives a sink of a new process on the same store; `read` the live rows of a replica, each value as
//! `Value::write_text` writes it, NULL as `None`; `refuse` says which values the store refuses by name, so that they are left out. Every scenario
//! uses replicas and tables of its own name.

mod cursors;
mod landings;
mod replicas;
pub(crate) mod values;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use landfall::sink::{Sink, Target};
use landfall_schemas::store::Refusal;
use landfall_schemas::{LogicalType, Value};

pub(crate) use world::{Random, encode, encode_key, schema};

/// Live rows as text, in the order of the target's columns.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// Gives a sink of a new process.
pub(crate) type Make<'a> = &'a mut dyn FnMut() -> Box<dyn Sink>;
/// Reads the live rows of a replica.
pub(crate) type Read<'a> = &'a mut dyn FnMut(&Target) -> Rows;
/// Says what the store refuses by name.
pub(crate) type Refuse = fn(LogicalType, &Value<'_>) -> Option<Refusal>;

/// A store under test.
pub(crate) struct Store<'a> {
    make: Make<'a>,
    read: Read<'a>,
    refuse: Refuse,
}

type Scenario = fn(&mut Store<'_>, &str);

/// The rules, by name.
pub(crate) const SCENARIOS: &[(&str, Scenario)] = &[
    ("open_knows_nothing_of_a_new_replica", replicas::open_knows_nothing_of_a_new_replica),
    ("open_tells_build_and_schema_to_the_next_process", replicas::open_tells_build_and_schema_to_the_next_process),
    ("open_with_a_higher_build_puts_it_in_force", replicas::open_with_a_higher_build_puts_it_in_force),
    ("open_with_a_lower_build_is_refused", replicas::open_with_a_lower_build_is_refused),
    ("prepare_may_be_repeated", replicas::prepare_may_be_repeated),
    ("prepare_by_several_at_once_makes_one_table", replicas::prepare_by_several_at_once_makes_one_table),
    ("prepare_widens_by_nullable_columns", replicas::prepare_widens_by_nullable_columns),
    ("claim_raises_the_fence_and_reads_k", cursors::claim_raises_the_fence_and_reads_k),
    ("claim_of_a_superseded_build_is_refused", cursors::claim_of_a_superseded_build_is_refused),
    ("cursor_is_read_without_changing_anything", cursors::cursor_is_read_without_changing_anything),
    ("land_brings_rows_and_k_together", landings::land_brings_rows_and_k_together),
    ("an_empty_batch_moves_only_the_cursor", landings::an_empty_batch_moves_only_the_cursor),
    ("a_batch_without_rows_needs_no_table", landings::a_batch_without_rows_needs_no_table),
    ("a_stale_fence_changes_nothing", cursors::a_stale_fence_changes_nothing),
    ("an_unexpected_k_changes_nothing", cursors::an_unexpected_k_changes_nothing),
    ("a_superseded_build_changes_nothing", cursors::a_superseded_build_changes_nothing),
    ("a_landing_whose_reply_was_lost_is_told_by_the_cursor", landings::a_landing_whose_reply_was_lost_is_told_by_the_cursor),
    ("landing_again_under_a_new_fence_converges", landings::landing_again_under_a_new_fence_converges),
    ("tombstones_remove_and_rows_come_back", landings::tombstones_remove_and_rows_come_back),
    ("rebuild_counts_nothing_of_before", replicas::rebuild_counts_nothing_of_before),
    ("partitions_have_their_own_cursors", cursors::partitions_have_their_own_cursors),
    ("replicas_have_nothing_in_common", replicas::replicas_have_nothing_in_common),
    ("two_topologies_never_share_a_table", replicas::two_topologies_never_share_a_table),
    ("idle_gives_back_and_goes_on", landings::idle_gives_back_and_goes_on),
    ("every_type_arrives_exactly", values::every_type_arrives_exactly),
    ("every_type_that_can_be_a_key_is_one", values::every_type_that_can_be_a_key_is_one),
    ("a_key_of_several_columns_in_another_order", values::a_key_of_several_columns_in_another_order),
    ("a_table_that_is_all_key", values::a_table_that_is_all_key),
    ("changes_that_an_equals_sign_does_not_see", values::changes_that_an_equals_sign_does_not_see),
    ("hostile_names_are_only_names", replicas::hostile_names_are_only_names),
    ("large_batches_and_large_values", landings::large_batches_and_large_values),
    ("any_history_ends_as_its_changes_say", landings::any_history_ends_as_its_changes_say),
];

/// An array as `Value::write_text` writes it, from a JSON array of its elements' texts, each of which `canonical` reads.
pub(crate) fn list(element: LogicalType, json: &str, canonical: impl Fn(LogicalType, &str) -> String) -> String {
    let texts: Vec<Option<String>> = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}"));
    let text = |text: &Option<String>| {
        let Some(text) = text.as_ref().map(|text| canonical(element, text)) else { return "null".to_owned() };
        let is_finite = !matches!(text.as_str(), "NaN" | "Infinity" | "-Infinity");
        match element {
            LogicalType::Bytes => format!("\"\\\\x{text}\""),
            LogicalType::Float32 | LogicalType::Float64 if is_finite => text,
            LogicalType::Bool
            | LogicalType::Int8
            | LogicalType::Int16
            | LogicalType::Int32
            | LogicalType::Int64
            | LogicalType::UInt8
            | LogicalType::UInt16
            | LogicalType::UInt32
            | LogicalType::UInt64 => text,
            _ => serde_json::Value::from(text).to_string(),
        }
    };
    format!("[{}]", texts.iter().map(text).collect::<Vec<_>>().join(","))
}

/// Values of each type: for people with `make property COUNT=n`, a sample in the suite.
pub(crate) fn any_value(called: &str, make: Make<'_>, read: Read<'_>, refuse: Refuse) {
    let (seed, count) = crate::round_trips::asked(300);
    values::any_value_is_kept_or_refused(&mut Store { make, read, refuse }, called, seed, count);
}

/// The values of every capture. `document`: the notation that documents are compared in, of a store that does not keep theirs.
pub(crate) fn captured(called: &str, document: Option<fn(&str) -> String>, make: Make<'_>, read: Read<'_>, refuse: Refuse) {
    values::captured_values_are_kept_or_refused(&mut Store { make, read, refuse }, called, document);
}

/// Runs every scenario; a failure names its scenario and the others still run.
pub(crate) fn run(make: Make<'_>, read: Read<'_>, refuse: Refuse) {
    run_but(&[], make, read, refuse);
}

/// The same but for scenarios that make no sense in a store, each with the reason.
pub(crate) fn run_but(left_out: &[(&str, &str)], make: Make<'_>, read: Read<'_>, refuse: Refuse) {
    let mut store = Store { make, read, refuse };
    let mut failed = Vec::new();
    let mut first = None;
    for (name, _) in left_out {
        assert!(SCENARIOS.iter().any(|(known, _)| known == name), "{name} is no scenario");
    }
    for (name, scenario) in SCENARIOS {
        if let Some((_, why)) = left_out.iter().find(|(left_out, _)| left_out == name) {
            println!("conformance: {name} is left out: {why}");
            continue;
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| scenario(&mut store, name))) {
            println!("conformance: {name} FAILED");
            failed.push(*name);
            first.get_or_insert(panic);
        }
    }
    if let Some(panic) = first {
        println!("conformance: {} of {} scenarios failed: {}", failed.len(), SCENARIOS.len(), failed.join(", "));
        resume_unwind(panic);
    }
}

/// The model in memory, in both styles, passes its own suite.
mod memory {
    use landfall::sink::memory::{MemorySink, Store as Memory, Style};
    use landfall_schemas::row;

    use super::world::text_of;
    use super::*;

    fn passes(style: Style) {
        let memory = Memory::new(style);
        let mut make = || Box::new(MemorySink::new(memory.clone())) as Box<dyn Sink>;
        let mut read = |target: &Target| {
            let replicas = memory.replicas();
            let live = replicas.get(&target.replica).map(|r| r.live().map(|(_, row)| row.to_vec()).collect::<Vec<_>>()).unwrap_or_default();
            // A row from before a widening ends early: what was added behind it is NULL.
            let width = target.schema.columns().len();
            let padded = |row: &Vec<u8>| {
                let mut texts: Vec<_> = row::values(target.schema.columns(), row).map_while(Result::ok).map(text_of).collect();
                texts.resize(width, None);
                texts
            };
            live.iter().map(padded).collect()
        };
        run(&mut make, &mut read, |_, _| None);
    }

    #[test]
    fn transactional_memory_conforms() {
        passes(Style::Transactional);
    }

    #[test]
    fn replacing_memory_conforms() {
        passes(Style::Replacing);
    }
}
