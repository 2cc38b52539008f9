//! Every decoder against bytes that nobody would send (RELIABILITY.md C, D 13).
//!
//! A target takes damaged inputs of its corpus (the captures of `tests/fixtures`, the events of `tests/cases`, golden files, samples) and says what
//! they violate: nothing panics, memory and time are bounded by the record (`measure`), what came before a record does not show, what is
//! taken goes in and comes out. First come the inputs that once failed (`tests/fuzz-regressions`), then the corpus as it is, then damage from a
//! seed. An input that fails is made smaller and written beside the regressions; remove what is mended elsewhere, commit the rest.
//!
//! The damage is ours, since the engines of `bolero` and `cargo fuzz` need instrumented code, and with it a nightly compiler, to learn from what
//! they see; on the stable compiler theirs is random bytes, which seldom get past the first check of a format.
//!
//! `LANDFALL_FUZZ_SECONDS` is the processor time of each target. Asked for like that (`make fuzz`), results are appended to a log with their sums
//! over all runs: `LANDFALL_FUZZ_LOG`, or `fuzz.log` in the cache.

mod bombs;
mod case;
pub(crate) mod corpus;
mod encodings;
mod inferred;
mod log;
mod measure;
mod mutate;
pub(crate) mod records;
mod texts;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use case::Case;
use measure::cpu;

use crate::dice::Dice;

/// Processor time of a target within the suite.
const SECONDS: u64 = 6;
/// Processor time in which a failing input is made smaller.
const SMALLER_SECONDS: u64 = 10;

/// Whether an input was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Taken,
    Refused,
}

/// What an input does; an error says what it violates.
pub(crate) type Run = Box<dyn FnMut(&Case) -> Result<Seen, String>>;

/// A decoder under test.
pub(crate) struct Target {
    pub name: &'static str,
    pub corpus: Vec<Case>,
    /// Makes what runs inputs, anew: it may keep what decoders keep.
    pub start: fn() -> Run,
    /// Whether inputs of both kinds must have been seen.
    pub both: bool,
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}

/// Runs one input; a panic is a violation.
fn attempt(run: &mut Run, case: &Case) -> Result<Seen, String> {
    catch_unwind(AssertUnwindSafe(|| run(case))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("?")))
    })
}

/// A failing input with as much left out as can be, failing by itself.
fn smaller(target: &Target, case: Case, why: String) -> (Case, String) {
    let fails = |case: &Case| attempt(&mut (target.start)(), case).err();
    // What needed the records before it stays as it is.
    let Some(mut why) = fails(&case) else { return (case, format!("{why} (with what came before)")) };
    let (mut case, began) = (case, cpu());
    for part in 0..case.parts.len() {
        let mut piece = case.part(part).map_or(0, <[u8]>::len).div_ceil(2);
        while piece > 0 {
            let mut at = 0;
            while at < case.part(part).map_or(0, <[u8]>::len) && cpu() - began < Duration::from_secs(SMALLER_SECONDS) {
                let mut less = case.clone();
                if let Some(bytes) = &mut less.parts[part] {
                    drop(bytes.drain(at..(at + piece).min(bytes.len())));
                }
                match fails(&less) {
                    Some(still) => (case, why) = (less, still),
                    None => at += piece,
                }
            }
            piece /= 2;
        }
    }
    (case, why)
}

fn fail(target: &Target, origin: &str, case: &Case, why: String) -> ! {
    let (case, why) = smaller(target, case.clone(), why);
    let text = format!("# {}\n{case}", why.lines().next().unwrap_or_default().chars().take(300).collect::<String>());
    let folder = case::folder(target.name);
    let path = folder.join(format!("{:016x}", landfall_schemas::avro::crc64(case.to_string().as_bytes())));
    let kept = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, &text));
    panic!("{}, {origin}: {why}\n{text}kept as {}: {kept:?}", target.name, path.display());
}

/// Runs a target for its time.
fn fuzz(target: Target) {
    let asked = number("LANDFALL_FUZZ_SECONDS");
    let seconds = Duration::from_secs(asked.unwrap_or(SECONDS));
    let seed = number("LANDFALL_SEED").unwrap_or(if asked.is_some() { log::new_seed() } else { 1 });
    let began = cpu();
    let mut run = (target.start)();
    for (file, case) in case::regressions(target.name) {
        if let Err(why) = attempt(&mut run, &case) {
            panic!("{}: {file} fails again: {why}", target.name);
        }
    }
    let mut whole = 0;
    for (number, case) in target.corpus.iter().enumerate() {
        match attempt(&mut run, case) {
            Ok(seen) => whole += usize::from(seen == Seen::Taken),
            Err(why) => fail(&target, &format!("corpus {number}"), case, why),
        }
    }
    // What is refused before it is damaged finds nothing.
    assert!(3 * whole >= target.corpus.len(), "{}: {whole} of {} inputs are taken", target.name, target.corpus.len());
    let (mut executions, mut taken) = (0_u64, 0_u64);
    while !executions.is_multiple_of(32) || cpu() - began < seconds {
        let mut dice = Dice::new(seed.wrapping_mul(0x1_0000_0001).wrapping_add(executions));
        let mut case = dice.pick(&target.corpus).clone();
        mutate::damage(&mut case, &target.corpus, &mut dice);
        executions += 1;
        match attempt(&mut run, &case) {
            Ok(seen) => taken += u64::from(seen == Seen::Taken),
            Err(why) => fail(&target, &format!("seed {seed}, execution {executions}"), &case, why),
        }
    }
    let spent = cpu() - began;
    println!("fuzz {} seed {seed} executions {executions} taken {taken} cpu_seconds {:.1}", target.name, spent.as_secs_f64());
    if asked.is_some() {
        log::append(target.name, seed, executions, spent);
    }
    let refused = executions - taken;
    assert!(executions < 1_000 || taken > 0 && (!target.both || refused > 0), "{}: {taken} taken, {refused} refused", target.name);
}

macro_rules! targets {
    ($($test:ident: $target:expr,)*) => {
        $(#[test] fn $test() { fuzz($target); })*
    };
}

targets! {
    debezium_json: records::json(),
    debezium_json_with_schema: records::json_with_schema(),
    debezium_avro: records::avro(),
    debezium_protobuf: records::protobuf(),
    flattened: records::flattened(),
    maxwell: records::maxwell(),
    canal: records::canal(),
    plain: records::plain(),
    mongodb: records::mongodb(),
    record_keys: records::keys(),
    inferred: inferred::target(),
    capture_lines: texts::capture_lines(),
    json_scanner: texts::json_scanner(),
    avro_schemas: texts::avro_schemas(),
    protobuf_schemas: texts::protobuf_schemas(),
    decimal_texts: texts::decimals(),
    temporal_texts: texts::temporals(),
    type_expressions: texts::types(),
    topologies: texts::topologies(),
    canonical_keys: encodings::keys(),
    canonical_rows: encodings::rows(),
    canonical_changes: encodings::changes(),
    contracts: encodings::contracts(),
    provenances: encodings::provenances(),
    sequences: encodings::sequences(),
    states: encodings::states(),
}
