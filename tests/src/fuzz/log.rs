//! The log of long runs: a line a run and target, with the sums over all runs of that target before it.

#![allow(clippy::disallowed_methods, reason = "runs of people have a seed of the clock's")]

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A seed that no run had before.
pub(super) fn new_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_secs())
}

/// Outside of the checkout, so that sums outlive it.
fn path() -> PathBuf {
    let folder = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let cache = || folder("LANDFALL_CACHE").or_else(|| Some(folder("HOME")?.join(".cache/landfall")));
    folder("LANDFALL_FUZZ_LOG").or_else(|| Some(cache()?.join("fuzz.log"))).expect("a home, or LANDFALL_FUZZ_LOG")
}

/// Executions and processor seconds of a target's lines.
fn sums(log: &str, target: &str) -> (u64, f64) {
    let own = log.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|words| words.get(1) == Some(&target));
    let number = |words: &[&str], name: &str| {
        let at = words.iter().position(|w| *w == name)?;
        words.get(at + 1)?.parse::<f64>().ok()
    };
    own.fold((0, 0.0), |(executions, seconds), words| {
        let of = |name| number(&words, name).unwrap_or_default();
        (executions + of("executions") as u64, seconds + of("cpu_seconds"))
    })
}

pub(super) fn append(target: &str, seed: u64, executions: u64, spent: Duration) {
    let path = path();
    let (all, seconds) = sums(&std::fs::read_to_string(&path).unwrap_or_default(), target);
    let spent = spent.as_secs_f64();
    let line = format!(
        "fuzz {target} seed {seed} executions {executions} cpu_seconds {spent:.1} all_executions {} all_cpu_seconds {:.1}\n",
        all + executions,
        seconds + spent
    );
    print!("{line}");
    let file =
        std::fs::create_dir_all(path.parent().unwrap_or(&path)).and_then(|()| std::fs::OpenOptions::new().create(true).append(true).open(&path));
    file.and_then(|mut f| f.write_all(line.as_bytes())).unwrap_or_else(|e| panic!("the result cannot be appended to {}: {e}", path.display()));
}

#[test]
fn sums_are_of_one_target() {
    let log = "fuzz a seed 1 executions 10 cpu_seconds 1.5 all_executions 10 all_cpu_seconds 1.5\n\
               fuzz b seed 1 executions 7 cpu_seconds 1.0 all_executions 7 all_cpu_seconds 1.0\n\
               fuzz a seed 2 executions 5 cpu_seconds 0.5 all_executions 15 all_cpu_seconds 2.0\n";
    assert_eq!((sums(log, "a"), sums(log, "b"), sums(log, "c")), ((15, 2.0), (7, 1.0), (0, 0.0)));
}
