//! `landfall dead-letters`: what could not be taken, and why.
//!
//! Reads the topology's dead-letter topic to the end that it has now. Memory is bounded by the number of letters asked for: the newest that
//! match are kept while the topic goes by. Nothing is changed; the records themselves stay where they were written.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use landfall_topology::Plan;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use serde::Serialize;

use super::paper::{Field, Output, Paper, counted, printable};
use super::{Failure, Problem, load};
use crate::dead_letter::Letter;
use crate::log::client;
use crate::log::voice::Voice;

/// Reading goes on as long as something comes within this.
const PATIENCE: Duration = Duration::from_secs(15);

/// Arguments of `dead-letters`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the newest, newest last
    List(List),
    /// Show one whole
    Show(Show),
}

/// Arguments of `dead-letters list`.
#[derive(Debug, Args)]
pub struct List {
    /// Topology files, or folders of them [default: landfall.yaml]
    #[arg(value_name = "FILE")]
    pub topology: Vec<PathBuf>,
    /// Only of this table
    #[arg(long, value_name = "ID")]
    pub table: Option<String>,
    /// Only with this reason: a code such as json.invalid, or its first part
    #[arg(long, value_name = "CODE")]
    pub reason: Option<String>,
    /// Most letters to list
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `dead-letters show`.
#[derive(Debug, Args)]
pub struct Show {
    /// Key of the letter, as the list shows it: topic/partition/offset, with the replica behind it where one refused the row
    pub key: String,
    /// Topology files, or folders of them [default: landfall.yaml]
    #[arg(value_name = "FILE")]
    pub topology: Vec<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// A letter as it stands in the topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Entry {
    /// Its Kafka key.
    letter: String,
    /// When it was written, RFC 3339.
    time: Option<String>,
    #[serde(flatten)]
    body: Letter,
}

/// Lists or shows.
pub fn run(arguments: &Arguments, paper: &mut Paper<'_>) -> Result<(), Failure> {
    match &arguments.command {
        Command::List(list) => {
            let plan = load(&list.topology)?;
            let mut newest = Newest::new(list.limit);
            let wanted = |letter: &Letter| {
                list.table.as_ref().is_none_or(|t| *t == letter.table) && list.reason.as_deref().is_none_or(|reason| has_reason(&letter.code, reason))
            };
            // Without a filter the newest are the last ones, and the rest need not go by.
            let last = if list.table.is_none() && list.reason.is_none() { Some(list.limit) } else { None };
            let passed = read(&plan, last, |entry| newest.note(entry, wanted))?;
            newest.matched += passed;
            Ok(print_list(&newest, &plan.dead_letters_topic(), list.output, paper)?)
        }
        Command::Show(show) => {
            let plan = load(&show.topology)?;
            let mut newest = Newest::new(1);
            let _ = read(&plan, None, |entry| {
                let same = entry.letter == show.key;
                newest.note(entry, |_| same);
            })?;
            let Some(entry) = newest.kept.back() else {
                let hint = "`landfall dead-letters list` shows the keys";
                return Err(Problem::new(format!("no dead letter {:?} in topic {}", show.key, plan.dead_letters_topic()), hint).into());
            };
            Ok(print_one(entry, newest.matched, show.output, paper)?)
        }
    }
}

fn has_reason(code: &str, reason: &str) -> bool {
    code.strip_prefix(reason).is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || reason.ends_with('.'))
}

/// The newest entries that match, and how many there were.
struct Newest {
    kept: VecDeque<Entry>,
    limit: usize,
    matched: u64,
}

impl Newest {
    fn new(limit: usize) -> Self {
        Self { kept: VecDeque::new(), limit, matched: 0 }
    }

    fn note(&mut self, entry: Entry, wanted: impl Fn(&Letter) -> bool) {
        if !wanted(&entry.body) {
            return;
        }
        self.matched += 1;
        if self.kept.len() == self.limit {
            drop(self.kept.pop_front());
        }
        if self.limit > 0 {
            self.kept.push_back(entry);
        }
    }
}

fn print_list(newest: &Newest, topic: &str, output: Output, paper: &mut Paper<'_>) -> std::io::Result<()> {
    if output == Output::Json {
        return newest.kept.iter().try_for_each(|entry| paper.json(entry));
    }
    if newest.matched == 0 {
        return paper.line(format!("no dead letters in {}", printable(topic)));
    }
    let rows = newest.kept.iter().map(|entry| {
        let Entry { letter, time, body } = entry;
        [
            time.as_deref().unwrap_or("-").into(),
            body.table.as_str().into(),
            body.code.as_str().into(),
            Field::from(letter.as_str()),
            body.reason.as_str().into(),
        ]
    });
    paper.table(&["written", "table", "code", "letter", "reason"], rows)?;
    let kept = newest.kept.len() as u64;
    paper.line("")?;
    paper.line(match newest.matched - kept {
        0 => format!("{}; `landfall dead-letters show LETTER` shows one whole", counted(kept, "letter")),
        more => format!("the newest {}; {} before them, --limit shows more", counted(kept, "letter"), counted(more, "letter")),
    })
}

fn print_one(entry: &Entry, times: u64, output: Output, paper: &mut Paper<'_>) -> std::io::Result<()> {
    if output == Output::Json {
        return paper.json(entry);
    }
    let Entry { letter, time, body } = entry;
    let position = format!("topic {}, partition {}, offset {}", body.topic, body.partition, body.offset);
    let fields = [
        ("letter", Some(letter.as_str())),
        ("written", time.as_deref()),
        ("code", Some(body.code.as_str())),
        ("reason", Some(body.reason.as_str())),
        ("table", Some(body.table.as_str())),
        ("replica", body.replica.as_deref()),
        ("record", Some(position.as_str())),
        ("key", body.key.as_deref()),
        ("value begins", body.excerpt.as_deref()),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            paper.line(format!("{name:<13} {}", printable(value)))?;
        }
    }
    if times > 1 {
        paper.line(format!("{:<13} {times} times; this is the newest", "seen"))?;
    }
    Ok(())
}

/// Hands over the letters of the topic, oldest first; only the last `last` records where that is said. Returns how many records were passed over.
fn read(plan: &Plan, last: Option<usize>, mut each: impl FnMut(Entry)) -> Result<u64, anyhow::Error> {
    let topic = plan.dead_letters_topic();
    let consumer: BaseConsumer<Voice> = client::reader(&plan.kafka).create_with_context(Voice)?;
    let (low, high) = match consumer.fetch_watermarks(&topic, 0, PATIENCE) {
        Ok(bounds) => bounds,
        // Nobody has run this topology yet.
        Err(error) if is_unknown(&error) => return Ok(0),
        Err(error) => return Err(anyhow::Error::new(error).context(format!("topic {topic} cannot be read"))),
    };
    let from = last.map_or(low, |n| high.saturating_sub(i64::try_from(n).unwrap_or(i64::MAX)).max(low));
    let passed = u64::try_from(from - low).unwrap_or_default();
    if from >= high {
        return Ok(passed);
    }
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_offset(&topic, 0, Offset::Offset(from))?;
    consumer.assign(&partitions)?;
    #[allow(clippy::disallowed_methods, reason = "a person waits for this; no decision of the core rests on it")]
    let now = Instant::now;
    let mut heard = now();
    loop {
        match consumer.poll(Duration::from_millis(100)) {
            Some(message) => {
                let message = message?;
                heard = now();
                if let Some(entry) = entry(message.key(), message.payload(), message.timestamp().to_millis()) {
                    each(entry);
                }
                if message.offset() + 1 >= high {
                    return Ok(passed);
                }
            }
            None => {
                let at = consumer.position()?.find_partition(&topic, 0).map(|p| p.offset());
                if matches!(at, Some(Offset::Offset(at)) if at >= high) {
                    return Ok(passed);
                }
                if heard.elapsed() > PATIENCE {
                    return Err(anyhow::Error::new(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut))
                        .context(format!("topic {topic} cannot be read to its end")));
                }
            }
        }
    }
}

fn is_unknown(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{UnknownPartition, UnknownTopic, UnknownTopicOrPartition};
    matches!(error.rdkafka_error_code(), Some(UnknownTopic | UnknownPartition | UnknownTopicOrPartition))
}

/// A record of the topic as an entry; none for one that holds no letter.
fn entry(key: Option<&[u8]>, value: Option<&[u8]>, millis: Option<i64>) -> Option<Entry> {
    let body: Letter = serde_json::from_slice(value?).ok()?;
    let letter = key.map_or_else(|| body.record_key(), |key| String::from_utf8_lossy(key).into_owned());
    let time = millis.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()).map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    Some(Entry { letter, time, body })
}

#[cfg(test)]
mod tests {
    use super::super::paper::printed;
    use super::*;

    fn sample(offset: i64, table: &str, code: &str) -> Entry {
        let body = Letter {
            code: code.to_owned(),
            reason: "the value is not JSON".to_owned(),
            table: table.to_owned(),
            replica: None,
            topic: "db.t".to_owned(),
            partition: 0,
            offset,
            key: Some("{\"id\":1}".to_owned()),
            excerpt: Some("x".to_owned()),
        };
        let value = serde_json::to_vec(&body).unwrap();
        entry(Some(body.record_key().as_bytes()), Some(&value), Some(1_796_033_210_159)).expect("a letter")
    }

    #[test]
    fn the_newest_are_kept_and_the_others_counted() {
        let mut newest = Newest::new(2);
        for (offset, table) in [(1, "a"), (2, "b"), (3, "a"), (4, "a")] {
            newest.note(sample(offset, table, "json.invalid"), |l| l.table == "a");
        }
        assert_eq!((newest.kept.iter().map(|e| e.body.offset).collect::<Vec<_>>(), newest.matched), (vec![3, 4], 3));
        let text = printed(None, |p| print_list(&newest, "t", Output::Text, p).unwrap());
        let expected = "\
written               table  code          letter    reason
2026-11-30T10:06:50Z  a      json.invalid  db.t/0/3  the value is not JSON
2026-11-30T10:06:50Z  a      json.invalid  db.t/0/4  the value is not JSON

the newest 2 letters; 1 letter before them, --limit shows more
";
        assert_eq!(text, expected);
    }

    #[test]
    fn one_is_shown_whole() {
        let text = printed(None, |p| print_one(&sample(3, "a", "json.invalid"), 2, Output::Text, p).unwrap());
        let expected = "\
letter        db.t/0/3
written       2026-11-30T10:06:50Z
code          json.invalid
reason        the value is not JSON
table         a
record        topic db.t, partition 0, offset 3
key           {\"id\":1}
value begins  x
seen          2 times; this is the newest
";
        assert_eq!(text, expected);
    }

    #[test]
    fn machines_get_a_line_each() {
        let mut newest = Newest::new(9);
        newest.note(sample(1, "a", "x.y"), |_| true);
        let text = printed(None, |p| print_list(&newest, "t", Output::Json, p).unwrap());
        let line: serde_json::Value = serde_json::from_str(&text).expect("one line");
        assert_eq!((&line["letter"], &line["code"], &line["offset"]), (&"db.t/0/1".into(), &"x.y".into(), &1.into()));
    }

    #[test]
    fn reasons_match_whole_or_by_their_first_part() {
        assert!(has_reason("json.invalid", "json.invalid") && has_reason("json.invalid", "json") && has_reason("json.invalid", "json."));
        assert!(!has_reason("json.invalid", "jso") && !has_reason("json.invalid", "json.inv"));
    }

    #[test]
    fn what_is_no_letter_is_passed_over() {
        assert_eq!(entry(None, Some(b"{}"), None), None);
        assert_eq!(entry(None, None, None), None);
    }
}
