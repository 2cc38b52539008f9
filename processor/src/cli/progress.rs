//! Progress of `landfall run` for somebody who looks: one line for each store, below the log, only where standard error is a terminal.
//!
//! The lines are drawn from the observer's picture twice a second and decide nothing. Logs go through [`Stderr`], which takes the lines away,
//! writes, and draws them again, so neither tears the other.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::paper::{counted, grouped};
use super::status::duration;
use crate::observe::{Observer, Status};
use crate::run::Stopping;

/// How often the lines are drawn.
const EVERY: Duration = Duration::from_millis(500);
/// Weight of the newest half second in a rate: a few seconds of the past are smoothed over, since positions are looked at once a second.
const NEWEST: f64 = 0.2;

static LINES: OnceLock<MultiProgress> = OnceLock::new();

/// Standard error as logs should use it: together with the progress lines where there are any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let write = || io::stderr().lock().write_all(buf).map(|()| buf.len());
        match LINES.get() {
            Some(lines) => lines.suspend(write),
            None => write(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Draws until told to stop; does nothing where nobody looks.
#[allow(clippy::disallowed_methods, reason = "drawing has its own thread and clock, so that no landing waits for a terminal")]
pub fn start(observer: &Observer, stopping: &Stopping) {
    if !io::stderr().is_terminal() || std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return;
    }
    let lines = LINES.get_or_init(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(4))).clone();
    let (observer, stopping) = (observer.clone(), stopping.clone());
    let _ = std::thread::spawn(move || {
        let style = if super::paper::wants_colour() { "{prefix:.bold} {bar:20.cyan/dim} {msg}" } else { "{prefix} {bar:20} {msg}" };
        let style = ProgressStyle::with_template(style).expect("the template is a constant that parses").progress_chars("━╸─");
        let mut bars: BTreeMap<String, ProgressBar> = BTreeMap::new();
        let mut meter = Meter::default();
        let begun = Instant::now();
        while !stopping.wait(EVERY) {
            for line in meter.look(&observer.status(), begun.elapsed()) {
                let bar = bars.entry(line.store.clone()).or_insert_with(|| {
                    let bar = lines.add(ProgressBar::new(0).with_style(style.clone()));
                    bar.set_prefix(format!("{:<12}", line.store));
                    bar
                });
                bar.set_length(line.end);
                bar.set_position(line.landed);
                bar.set_message(line.text);
            }
        }
        // What is left is for the log alone.
        drop(lines.clear());
        lines.set_draw_target(ProgressDrawTarget::hidden());
    });
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    store: String,
    landed: u64,
    end: u64,
    text: String,
}

/// Makes rates out of pictures.
#[derive(Debug, Default)]
struct Meter {
    before: Option<(Duration, Status)>,
    rates: BTreeMap<String, f64>,
}

#[derive(Debug, Default)]
struct Sum {
    landed: i64,
    end: i64,
    moved: i64,
    rows: u64,
    freshness: Option<f64>,
    stopped: usize,
    waiting: usize,
}

impl Meter {
    /// The lines of a picture taken `at` so long after the start.
    fn look(&mut self, status: &Status, at: Duration) -> Vec<Line> {
        let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
        for (id, replica) in &status.replicas {
            let sum = sums.entry(&replica.store).or_default();
            sum.rows += replica.rows_landed + replica.rows_deleted;
            sum.freshness = [sum.freshness, replica.freshness_seconds].into_iter().flatten().reduce(f64::max);
            let before = self.before.as_ref().and_then(|(_, status)| status.replicas.get(id));
            for (number, partition) in &replica.partitions {
                let next = partition.next.unwrap_or(0);
                sum.landed += next;
                sum.end += partition.end.max(next);
                sum.stopped += usize::from(partition.stopped.is_some());
                sum.waiting += usize::from(partition.waiting.is_some());
                // A partition that came or went since has moved nothing here.
                if let Some(then) = before.and_then(|r| r.partitions.get(number)).and_then(|p| p.next) {
                    sum.moved += (next - then).max(0);
                }
            }
        }
        let seconds = self.before.as_ref().map_or(0.0, |(then, _)| at.saturating_sub(*then).as_secs_f64());
        let mut lines = Vec::new();
        for (store, sum) in sums {
            let newest = if seconds > 0.0 { sum.moved as f64 / seconds } else { 0.0 };
            let rate = self.rates.entry(store.to_owned()).or_insert(newest);
            // Nothing is left and nothing comes: what was is over, and no line fades out for a minute.
            let idle = sum.moved == 0 && sum.landed >= sum.end;
            *rate = if idle { 0.0 } else { NEWEST * newest + (1.0 - NEWEST) * *rate };
            let unsigned = |n: i64| u64::try_from(n).unwrap_or_default();
            lines.push(Line { store: store.to_owned(), landed: unsigned(sum.landed), end: unsigned(sum.end), text: text(&sum, *rate) });
        }
        self.before = Some((at, status.clone()));
        lines
    }
}

fn text(sum: &Sum, rate: f64) -> String {
    let lag = u64::try_from(sum.end - sum.landed).unwrap_or_default();
    let mut text = counted(sum.rows, "row");
    if lag > 0 || rate > 0.0 {
        text.push_str(&format!(", {}/s", grouped(rate.round() as u64)));
    }
    if lag > 0 {
        text.push_str(&format!(", {} behind", grouped(lag)));
        if rate >= 1.0 {
            text.push_str(&format!(", {} left", duration(lag as f64 / rate)));
        }
    } else if sum.stopped + sum.waiting == 0 {
        text.push_str(", up to date");
        if let Some(seconds) = sum.freshness {
            text.push_str(&format!(", landed after {}", duration(seconds)));
        }
    }
    for (n, what) in [(sum.stopped, "stopped"), (sum.waiting, "waiting")] {
        if n > 0 {
            text.push_str(&format!(", {} {what}", counted(n as u64, "partition")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{LogPartition, Reason, Replica};

    fn status(partitions: &[(i32, Option<i64>, i64)], rows: u64) -> Status {
        let part = |next, end| LogPartition { next, end, ..LogPartition::default() };
        let replica = Replica {
            table: "orders".into(),
            store: "serving".into(),
            rows_landed: rows,
            freshness_seconds: Some(0.31),
            partitions: partitions.iter().map(|(n, next, end)| (*n, part(*next, *end))).collect(),
            ..Replica::default()
        };
        Status { replicas: BTreeMap::from([("serving.orders".to_owned(), replica)]), ..Status::default() }
    }

    #[test]
    fn a_line_tells_rate_and_what_is_left() {
        let mut meter = Meter::default();
        let first = meter.look(&status(&[(0, Some(0), 10_000)], 0), Duration::ZERO);
        assert_eq!(first, [Line { store: "serving".into(), landed: 0, end: 10_000, text: "0 rows, 0/s, 10 000 behind".into() }]);
        let second = meter.look(&status(&[(0, Some(5_000), 10_000)], 4_000), Duration::from_secs(1));
        assert_eq!(second[0].text, "4 000 rows, 1 000/s, 5 000 behind, 5.0 s left");
        let done = meter.look(&status(&[(0, Some(10_000), 10_000)], 9_000), Duration::from_secs(2));
        assert_eq!(done[0].text, "9 000 rows, 1 800/s, up to date, landed after 0.3 s");
    }

    #[test]
    fn a_partition_that_comes_moves_nothing() {
        let mut meter = Meter::default();
        drop(meter.look(&status(&[(0, Some(10), 10)], 10), Duration::ZERO));
        let lines = meter.look(&status(&[(0, Some(10), 10), (1, Some(1_000_000), 1_000_000)], 10), Duration::from_secs(1));
        assert_eq!(lines[0].text, "10 rows, up to date, landed after 0.3 s");
        let lines = meter.look(&status(&[(0, Some(10), 10)], 10), Duration::from_secs(2));
        assert_eq!((lines[0].landed, lines[0].end), (10, 10));
    }

    #[test]
    fn standing_still_is_said() {
        let mut status = status(&[(0, None, 5), (1, Some(1), 5)], 0);
        let reason = || Some(Reason { code: "c".into(), what: "w".into(), hint: "h".into() });
        for (number, partition) in &mut status.replicas.get_mut("serving.orders").unwrap().partitions {
            if *number == 0 { partition.stopped = reason() } else { partition.waiting = reason() }
        }
        let lines = Meter::default().look(&status, Duration::ZERO);
        assert_eq!(lines[0].text, "0 rows, 0/s, 9 behind, 1 partition stopped, 1 partition waiting");
        // What stands still from the start knows no end that it could have reached.
        let sum = Sum { stopped: 4, ..Sum::default() };
        assert_eq!(text(&sum, 0.0), "0 rows, 4 partitions stopped");
    }
}
