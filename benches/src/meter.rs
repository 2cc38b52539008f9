//! Time, processor time and memory, and the lines that people read.
//!
//! Processor time and memory of a process are read where Linux shows them, so that another process can be measured like one's own.

use std::time::Instant;

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

/// Times something that handles so many items, and prints its rate.
pub fn rate<T>(name: &str, items: usize, run: impl FnOnce() -> T) -> (f64, T) {
    let begun = Instant::now();
    let out = run();
    let rate = items as f64 / begun.elapsed().as_secs_f64();
    line(name, rate, "changes/s");
    (rate, out)
}

/// Processor seconds that a process has used, its ended threads included.
pub fn cpu_seconds(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, may hold spaces.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// Greatest resident memory so far, in MiB.
pub fn resident_peak(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}

/// The processes whose command lines hold this text; the broker and the stores are found so.
pub fn processes_with(text: &str) -> Vec<u32> {
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    let number = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<u32>().ok();
    let holds = |process: &u32| std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(text));
    all.filter_map(number).filter(holds).collect()
}
