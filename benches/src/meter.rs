//! Time, processor time and memory, and the lines that people read.
//!
//! Processor time and memory of a process are read where Linux shows them, so that another process can be measured like one's own.

#![allow(clippy::disallowed_methods, reason = "the rules of the core about clocks and threads do not bind what measures it")]

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;

/// Clock ticks a second in `/proc`: fixed for programs on Linux.
const TICKS: f64 = 100.0;

/// Prints one measurement.
pub fn line(name: &str, value: f64, unit: &str) {
    let digits = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    println!("{name} {value:.digits$} {unit}");
}

/// Times something that handles so many items, twice, and prints the better rate: the first time warms what is cold. It is told the round.
pub fn best<T>(name: &str, items: usize, mut run: impl FnMut(usize) -> Result<T>) -> Result<f64> {
    let mut best = 0.0_f64;
    for round in 0..2 {
        let begun = Instant::now();
        let _ = run(round)?;
        best = best.max(items as f64 / begun.elapsed().as_secs_f64());
    }
    line(name, best, "changes/s");
    Ok(best)
}

/// Processor seconds that a process has used, its ended threads included.
pub fn cpu_seconds(process: u32) -> f64 {
    let [user, kernel] = times(process);
    user + kernel
}

/// The part of [`cpu_seconds`] that the kernel worked for it.
pub fn kernel_seconds(process: u32) -> f64 {
    times(process)[1]
}

fn times(process: u32) -> [f64; 2] {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, may hold spaces.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut ticks = rest.split_whitespace().skip(11).map(|n| n.parse::<f64>().unwrap_or_default());
    [ticks.next(), ticks.next()].map(|n| n.unwrap_or_default() / TICKS)
}

/// Greatest resident memory so far, in MiB.
pub fn resident_peak(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}

/// The processes whose command lines, with spaces between the words, are wanted; the broker and the stores are found so.
pub fn processes(is_wanted: impl Fn(&str) -> bool) -> Vec<u32> {
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    let number = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<u32>().ok();
    let line = |process: &u32| std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    all.filter_map(number).filter(|process| is_wanted(&String::from_utf8_lossy(&line(process)).replace('\0', " "))).collect()
}

/// Processor seconds of the threads of a process that live, by the name of the thread without its number.
pub fn cpu_by_thread(process: u32) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return sums };
    for task in tasks.flatten() {
        let text = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let nanos: f64 = text("schedstat").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_default();
        let name = text("comm").trim().trim_end_matches(|c: char| c.is_ascii_digit() || c == '-').replace([' ', ':'], "_");
        *sums.entry(name).or_default() += nanos / 1e9;
    }
    sums
}
