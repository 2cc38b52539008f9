//! `landfall status`: what a running process does, as its HTTP interface tells it.
//!
//! One process is asked, so the picture is of the partitions that this process owns; a topology on several processes is asked one by one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use landfall_schemas::LogicalType;

use super::http::{self, HttpError};
use super::paper::{Field, Mood, Output, Paper, counted, grouped, printable};
use super::{Failure, Problem};
use crate::observe::{Reason, Replica, SourcePartition, Status};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often `--watch` asks.
const EVERY: Duration = Duration::from_secs(1);
/// Partitions that are named one by one; of more only the ends are shown.
const NAMED_MAX: usize = 4;

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// HTTP address of the running process
    #[arg(long, value_name = "ADDRESS", env = "LANDFALL_HTTP", default_value = "127.0.0.1:9090")]
    pub http: SocketAddr,
    /// Ask again every second, until interrupted
    #[arg(long)]
    pub watch: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// Shows the status.
pub fn run(arguments: &Arguments, paper: &mut Paper<'_>) -> Result<(), Failure> {
    if !arguments.watch {
        return show(&ask(arguments.http)?, arguments.output, paper).map_err(Failure::from);
    }
    loop {
        let asked = ask(arguments.http);
        if paper.is_terminal() && arguments.output == Output::Text {
            paper.clear()?;
        }
        match asked {
            Ok(status) => show(&status, arguments.output, paper)?,
            // A process that is being restarted is worth waiting for.
            Err(problem) if arguments.output == Output::Text => paper.line(format!("{problem}; asking again"))?,
            Err(_) => {}
        }
        paper.flush()?;
        // Nothing unparks this thread but the time.
        std::thread::park_timeout(EVERY);
    }
}

fn ask(address: SocketAddr) -> Result<Status, Problem> {
    let hint = "start one with `landfall run`, or name another address with --http";
    let answer = http::get(address, "/api/status", PATIENCE).map_err(|error| match error {
        HttpError::Nobody { .. } => Problem::new(format!("no landfall is running at {address}"), hint),
        HttpError::Broken { .. } => Problem::new(format!("what runs at {address} does not answer as a landfall does"), hint),
    })?;
    let status = (answer.status == 200).then(|| serde_json::from_slice::<Status>(&answer.body).ok()).flatten();
    status.filter(|s| !s.topology.is_empty()).ok_or_else(|| Problem::new(format!("what runs at {address} is not a landfall"), hint))
}

fn show(status: &Status, output: Output, paper: &mut Paper<'_>) -> std::io::Result<()> {
    if output == Output::Json {
        return paper.json(status);
    }
    let ready = if status.ready { paper.word("running", Mood::Good) } else { paper.word("starting", Mood::Odd) };
    paper.line(format!("topology {}: {ready}, {} normalised by this process", printable(&status.topology), counted(status.changes, "change")))?;
    if !status.replicas.is_empty() {
        paper.line("")?;
        let headers = ["table", "store", "rows landed", "deleted", "lag", "freshness", "state"];
        paper.table(&headers, status.replicas.values().map(replica))?;
    }
    if !status.sources.is_empty() {
        paper.line("")?;
        paper.table(
            &["source topic", "format", "partitions", "committed", "state"],
            status.sources.iter().map(|(topic, parts)| source(topic, parts)),
        )?;
    }
    let standstills = standstills(status);
    for (heading, stopped) in [("stopped, somebody must act", true), ("waiting, goes on by itself", false)] {
        let mut of = standstills.iter().filter(|s| s.stopped == stopped).peekable();
        if of.peek().is_some() {
            paper.line("")?;
            paper.title(heading)?;
        }
        for standstill in of {
            let Standstill { place, partitions, reason, .. } = standstill;
            let mood = if stopped { Mood::Bad } else { Mood::Odd };
            let which = if partitions.is_empty() { String::new() } else { format!(" {}", numbers(partitions)) };
            paper.line(format!("  {}{which}: {}", printable(place), paper.word(&printable(&reason.code), mood)))?;
            paper.indented("    ", &printable(&reason.what))?;
            if !reason.hint.is_empty() {
                paper.indented("    ", &format!("hint: {}", printable(&reason.hint)))?;
            }
        }
    }
    if !status.inferred.is_empty() {
        paper.line("")?;
        paper.title("types inferred from records, as `columns: { types: … }` would declare them")?;
        for (table, types) in &status.inferred {
            paper.indented("  ", &printable(&format!("{table}: {}", inferred_text(types))))?;
        }
    }
    if !status.open_letters.is_empty() {
        paper.line("")?;
        let rows = status.open_letters.iter().flat_map(|(table, codes)| {
            codes.iter().map(move |(code, n)| [Field::from(table.as_str()), Field::from(code.as_str()), Field::number(grouped(*n))])
        });
        paper.table(&["dead letters of table", "code", "open"], rows)?;
        for (table, keys) in &status.parked_keys {
            paper.line(format!("{} of table {} parked: later events wait among them", counted(*keys, "key"), printable(table)))?;
        }
        paper.line("`landfall dead-letters list` shows them, `replay` and `drop` settle them")?;
    }
    Ok(())
}

/// Columns and types as a topology file has them.
pub(super) fn inferred_text(types: &[(String, LogicalType)]) -> String {
    let plain =
        |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    // Words that YAML takes for something else, and everything that is no plain word, stand between quotes.
    let is_word =
        |name: &str| plain(name) && !["y", "n", "yes", "no", "on", "off", "true", "false", "null"].contains(&name.to_ascii_lowercase().as_str());
    let name = |name: &str| if is_word(name) { name.to_owned() } else { serde_json::Value::from(name).to_string() };
    let entries: Vec<String> = types.iter().map(|(column, ty)| format!("{}: {ty}", name(column))).collect();
    format!("{{ {} }}", entries.join(", "))
}

fn replica(replica: &Replica) -> [Field; 7] {
    let any = |f: fn(&crate::observe::LogPartition) -> bool| replica.partitions.values().any(f);
    let lag = u64::try_from(replica.lag()).unwrap_or_default();
    let state = if any(|p| p.stopped.is_some()) {
        Field::of("stopped", Mood::Bad)
    } else if any(|p| p.waiting.is_some()) {
        Field::of("waiting for the store", Mood::Odd)
    } else if replica.partitions.is_empty() {
        "no partition here".into()
    } else if any(|p| p.next.is_none()) {
        Field::of("starting", Mood::Odd)
    } else if lag > 0 {
        "catching up".into()
    } else {
        Field::of("up to date", Mood::Good)
    };
    let freshness = replica.freshness_seconds.map_or_else(|| "-".to_owned(), duration);
    [
        replica.table.as_str().into(),
        replica.store.as_str().into(),
        Field::number(grouped(replica.rows_landed)),
        Field::number(grouped(replica.rows_deleted)),
        Field::number(grouped(lag)),
        Field::number(freshness),
        state,
    ]
}

fn source(topic: &str, partitions: &BTreeMap<i32, SourcePartition>) -> [Field; 5] {
    let stopped = partitions.values().filter(|p| p.stopped.is_some()).count();
    let waiting = partitions.values().filter(|p| p.stopped.is_none()).find_map(|p| p.waiting.as_ref());
    let mut formats: Vec<&str> = partitions.values().filter_map(|p| p.format.as_deref()).collect();
    formats.sort_unstable();
    formats.dedup();
    let format = if formats.is_empty() { "-".to_owned() } else { formats.join(", ") };
    let committed = |p: &SourcePartition| p.committed.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let text = if partitions.len() <= NAMED_MAX {
        partitions.iter().map(|(n, p)| format!("{n}: {}", committed(p))).collect::<Vec<_>>().join(", ")
    } else {
        let all = partitions.values().filter_map(|p| p.committed);
        match (all.clone().min(), all.max()) {
            (Some(low), Some(high)) => format!("{low} to {high}"),
            _ => "-".to_owned(),
        }
    };
    let state = match (stopped, waiting) {
        (0, None) if partitions.is_empty() => "no partition here".into(),
        (0, None) => Field::of("reading", Mood::Good),
        (0, Some(reason)) if reason.code.starts_with("registry.") => Field::of("waiting for the registry", Mood::Odd),
        (0, Some(reason)) if reason.code.starts_with("types.") => Field::of("inferring types", Mood::Odd),
        (0, Some(_)) => Field::of("waiting", Mood::Odd),
        (n, _) => Field::of(format!("{n} stopped"), Mood::Bad),
    };
    [topic.into(), format.into(), Field::number(partitions.len()), text.into(), state]
}

/// Partitions of one place that stand still for one reason.
#[derive(Debug, PartialEq, Eq)]
struct Standstill<'a> {
    place: String,
    partitions: Vec<i32>,
    reason: &'a Reason,
    stopped: bool,
}

fn standstills(status: &Status) -> Vec<Standstill<'_>> {
    let mut found: Vec<Standstill<'_>> = Vec::new();
    for (part, standstill) in &status.parts {
        let crate::observe::Standstill { stopped, reason } = standstill;
        found.push(Standstill { place: part.clone(), partitions: Vec::new(), reason, stopped: *stopped });
    }
    // What is stopped waits for nobody.
    let sources = status.sources.iter().flat_map(|(topic, parts)| {
        let parts = parts.iter();
        parts.filter_map(move |(n, p)| Some((format!("source {topic}"), *n, p.stopped.as_ref().or(p.waiting.as_ref())?, p.stopped.is_some())))
    });
    let replicas = status.replicas.iter().flat_map(|(id, r)| {
        let parts = r.partitions.iter();
        parts.filter_map(move |(n, p)| Some((format!("replica {id}"), *n, p.stopped.as_ref().or(p.waiting.as_ref())?, p.stopped.is_some())))
    });
    for (place, partition, reason, stopped) in sources.chain(replicas) {
        match found.iter_mut().find(|s| s.place == place && s.stopped == stopped && s.reason == reason) {
            Some(same) => same.partitions.push(partition),
            None => found.push(Standstill { place, partitions: vec![partition], reason, stopped }),
        }
    }
    found
}

/// `partition 3`, `partitions 0, 1, 2`, `12 partitions`.
fn numbers(partitions: &[i32]) -> String {
    match partitions {
        [one] => format!("partition {one}"),
        many if many.len() <= 2 * NAMED_MAX => format!("partitions {}", many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        many => format!("{} partitions", many.len()),
    }
}

/// Seconds as a person says them.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::paper::printed;
    use super::*;
    use crate::observe::LogPartition;

    fn status() -> Status {
        let reason = |code: &str, what: &str, hint: &str| Some(Reason { code: code.to_owned(), what: what.to_owned(), hint: hint.to_owned() });
        let part = |next, end| LogPartition { next, end, ..LogPartition::default() };
        let mut serving = Replica { table: "orders".into(), store: "serving".into(), rows_landed: 12_345, rows_deleted: 7, ..Replica::default() };
        serving.freshness_seconds = Some(0.52);
        serving.partitions = BTreeMap::from([(0, part(Some(90), 100)), (1, part(Some(50), 50))]);
        let mut warehouse = Replica { table: "orders".into(), store: "warehouse".into(), ..Replica::default() };
        for n in 0..2 {
            let stopped = reason("binding.table_exists", "table \"orders\" exists and is not ours", "rename it");
            drop(warehouse.partitions.insert(n, LogPartition { stopped, ..part(None, 100) }));
        }
        let source = BTreeMap::from([
            (0, SourcePartition { committed: Some(120), format: Some("avro".into()), ..SourcePartition::default() }),
            (1, SourcePartition::default()),
        ]);
        Status {
            topology: "shop".into(),
            sources: BTreeMap::from([("shop.public.orders".to_owned(), source)]),
            replicas: BTreeMap::from([("serving.orders".to_owned(), serving), ("warehouse.orders".to_owned(), warehouse)]),
            parts: BTreeMap::new(),
            inferred: BTreeMap::from([("events".to_owned(), vec![("id".to_owned(), LogicalType::Int64), ("on".to_owned(), LogicalType::Text)])]),
            dead_letters: BTreeMap::from([("json.invalid".to_owned(), 3)]),
            open_letters: BTreeMap::from([("orders".to_owned(), BTreeMap::from([("json.invalid".to_owned(), 2), ("parked".to_owned(), 12)]))]),
            parked_keys: BTreeMap::from([("orders".to_owned(), 1)]),
            changes: 12_400,
            ready: true,
        }
    }

    #[test]
    fn the_whole_picture() {
        let text = printed(None, |p| show(&status(), Output::Text, p).unwrap());
        let expected = "\
topology shop: running, 12 400 changes normalised by this process

table   store      rows landed  deleted  lag  freshness  state
orders  serving         12 345        7   10      0.5 s  catching up
orders  warehouse            0        0  200          -  stopped

source topic        format  partitions  committed     state
shop.public.orders  avro             2  0: 120, 1: -  reading

stopped, somebody must act
  replica warehouse.orders partitions 0, 1: binding.table_exists
    table \"orders\" exists and is not ours
    hint: rename it

types inferred from records, as `columns: { types: … }` would declare them
  events: { id: int64, \"on\": text }

dead letters of table  code          open
orders                 json.invalid     2
orders                 parked          12
1 key of table orders parked: later events wait among them
`landfall dead-letters list` shows them, `replay` and `drop` settle them
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_part_that_stands_still_as_a_whole_is_named() {
        let reason = Reason { code: "sink.file_held".into(), what: "topology \"bank\" lands into r.duckdb".into(), hint: "give it its own".into() };
        let part = |stopped| crate::observe::Standstill { stopped, reason: reason.clone() };
        let mut status = status();
        status.parts = BTreeMap::from([("store local".to_owned(), part(false)), ("normaliser".to_owned(), part(true))]);
        let text = printed(None, |p| show(&status, Output::Text, p).unwrap());
        let (stopped, waiting) = text.split_once("waiting, goes on by itself\n").expect("both");
        assert!(stopped.contains("  normaliser: sink.file_held\n    topology \"bank\" lands into r.duckdb\n    hint: "), "{text}");
        assert!(waiting.starts_with("  store local: sink.file_held\n"), "{text}");
    }

    #[test]
    fn machines_get_what_the_process_says() {
        let text = printed(None, |p| show(&status(), Output::Json, p).unwrap());
        let back: Status = serde_json::from_str(&text).expect("the same shape");
        assert_eq!(printed(None, |p| show(&back, Output::Text, p).unwrap()), printed(None, |p| show(&status(), Output::Text, p).unwrap()));
    }

    #[test]
    fn nothing_there_is_an_error_with_a_way_out() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let problem = ask(address).map(|_| ()).expect_err("nobody is there");
        assert_eq!(problem.what, format!("no landfall is running at {address}"));
        assert!(problem.hint.is_some_and(|hint| hint.contains("--http")));
    }

    #[test]
    fn durations_are_said_shortly() {
        for (seconds, text) in [(0.04, "0.0 s"), (9.94, "9.9 s"), (61.0, "61 s"), (600.0, "10 min"), (7200.0, "2 h"), (864_000.0, "10 d")] {
            assert_eq!(duration(seconds), text);
        }
    }
}
