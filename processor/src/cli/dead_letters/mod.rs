//! `landfall dead-letters`: what could not be taken, why, and what is to become of it.
//!
//! Reads the topology's dead-letter topic to the end that it has now, twice: what became of each letter stands behind it. Memory is bounded by
//! the number of letters asked for and some bytes for each letter of the topic. `replay` and `drop` write a note behind a letter and alter
//! nothing else: the running process that owns the letter's source partition does the rest, in order (`run::normalise::letters`).

mod print;
mod read;
mod settle;

use std::collections::VecDeque;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::paper::{Output, Paper};
use super::{Failure, Problem, load};
use crate::dead_letter::Letter;
use read::{Entry, Topic};

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
    /// List the newest that are open, newest last
    List(List),
    /// Show one whole
    Show(Show),
    /// Have letters replayed by the running process, each in its place; what is parked behind them follows
    Replay(Replay),
    /// Drop letters for good; what is parked behind them follows
    Drop(Settle),
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
    /// Only of records with this key, as a letter shows it
    #[arg(long, value_name = "TEXT")]
    pub key: Option<String>,
    /// Also those that were replayed or dropped, with what became of them
    #[arg(long)]
    pub all: bool,
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

/// Arguments of `dead-letters drop`, and what `dead-letters replay` has in common with it.
#[derive(Debug, Args)]
pub struct Settle {
    /// Topology files, or folders of them [default: landfall.yaml]
    #[arg(value_name = "FILE")]
    pub topology: Vec<PathBuf>,
    /// Which letters.
    #[command(flatten)]
    pub which: Which,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `dead-letters replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// Which letters, and how to print.
    #[command(flatten)]
    pub settle: Settle,
    /// Seconds to wait for what comes of it; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub wait: u64,
}

/// Which letters: those that fit all that is said.
#[derive(Debug, Default, Args)]
#[group(required = true, multiple = true)]
pub struct Which {
    /// Those of this table
    #[arg(long, value_name = "ID")]
    pub table: Option<String>,
    /// Those with this reason: a code such as json.invalid, or its first part
    #[arg(long, value_name = "CODE")]
    pub reason: Option<String>,
    /// Those of records with this key, as a letter shows it
    #[arg(long, value_name = "TEXT")]
    pub key: Option<String>,
    /// This letter, as the list shows it; may be given several times
    #[arg(long, value_name = "LETTER")]
    pub letter: Vec<String>,
    /// Every open letter
    #[arg(long, conflicts_with_all = ["table", "reason", "key", "letter"])]
    pub all: bool,
}

impl Which {
    fn takes(&self, key: &str, letter: &Letter) -> bool {
        (self.letter.is_empty() || self.letter.iter().any(|l| l == key))
            && fits(letter, self.table.as_deref(), self.reason.as_deref(), self.key.as_deref())
    }
}

/// Does what was said.
pub fn run(arguments: &Arguments, paper: &mut Paper<'_>) -> Result<(), Failure> {
    match &arguments.command {
        Command::List(list) => {
            let topic = Topic::open(&load(&list.topology)?)?;
            let mut newest = Newest::new(list.limit);
            topic.entries(|entry| {
                let is_shown = list.all || entry.state.is_open();
                if is_shown && fits(&entry.body, list.table.as_deref(), list.reason.as_deref(), list.key.as_deref()) {
                    newest.note(entry);
                }
            })?;
            Ok(print::list(&newest, topic.name(), list.all, list.output, paper)?)
        }
        Command::Show(show) => {
            let topic = Topic::open(&load(&show.topology)?)?;
            let mut found = None;
            topic.entries(|entry| {
                if entry.letter == show.key {
                    found = Some(entry);
                }
            })?;
            let Some(entry) = found else {
                let hint = "`landfall dead-letters list` shows the keys";
                return Err(Problem::new(format!("no dead letter {:?} in topic {}", show.key, topic.name()), hint).into());
            };
            Ok(print::one(&entry, topic.times(&show.key), show.output, paper)?)
        }
        Command::Replay(arguments) => settle::replay(arguments, paper),
        Command::Drop(arguments) => settle::drop(arguments, paper),
    }
}

fn fits(letter: &Letter, table: Option<&str>, reason: Option<&str>, key: Option<&str>) -> bool {
    table.is_none_or(|table| table == letter.table)
        && reason.is_none_or(|reason| has_reason(&letter.code, reason))
        && key.is_none_or(|key| letter.key.as_deref() == Some(key))
}

fn has_reason(code: &str, reason: &str) -> bool {
    code.strip_prefix(reason).is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || reason.ends_with('.'))
}

/// The newest entries, and how many there were.
struct Newest {
    kept: VecDeque<Entry>,
    limit: usize,
    matched: u64,
}

impl Newest {
    fn new(limit: usize) -> Self {
        Self { kept: VecDeque::new(), limit, matched: 0 }
    }

    fn note(&mut self, entry: Entry) {
        self.matched += 1;
        if self.kept.len() == self.limit {
            drop(self.kept.pop_front());
        }
        if self.limit > 0 {
            self.kept.push_back(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::Cli;
    use super::read::State;
    use super::*;

    pub(super) fn sample(offset: i64, table: &str, code: &str) -> Entry {
        let body = Letter {
            code: code.to_owned(),
            reason: "the value is not JSON".to_owned(),
            hint: "send it again".to_owned(),
            table: table.to_owned(),
            topic: "db.t".to_owned(),
            offset,
            time: Some("2026-11-30T10:06:49Z".to_owned()),
            key: Some("{\"id\":1}".to_owned()),
            excerpt: Some("x".to_owned()),
            ..Letter::default()
        };
        Entry { letter: body.record_key(), written: Some("2026-11-30T10:06:50Z".to_owned()), state: State::Open, at: offset, body }
    }

    #[test]
    fn the_newest_are_kept_and_the_others_counted() {
        let mut newest = Newest::new(2);
        [1, 3, 4].into_iter().for_each(|offset| newest.note(sample(offset, "a", "json.invalid")));
        assert_eq!((newest.kept.iter().map(|e| e.body.offset).collect::<Vec<_>>(), newest.matched), (vec![3, 4], 3));
    }

    #[test]
    fn reasons_match_whole_or_by_their_first_part() {
        assert!(has_reason("json.invalid", "json.invalid") && has_reason("json.invalid", "json") && has_reason("json.invalid", "json."));
        assert!(!has_reason("json.invalid", "jso") && !has_reason("json.invalid", "json.inv"));
    }

    #[test]
    fn letters_are_chosen_by_all_that_is_said() {
        let entry = sample(1, "a", "json.invalid");
        let takes = |which: Which| which.takes(&entry.letter, &entry.body);
        let text = |text: &str| Some(text.to_owned());
        assert!(takes(Which { all: true, ..Which::default() }) && takes(Which { table: text("a"), reason: text("json"), ..Which::default() }));
        assert!(takes(Which { letter: vec!["x".to_owned(), "db.t/0/1".to_owned()], key: text("{\"id\":1}"), ..Which::default() }));
        assert!(!takes(Which { table: text("b"), reason: text("json"), ..Which::default() }) && !takes(Which { key: text("1"), ..Which::default() }));
        assert!(!takes(Which { letter: vec!["db.t/0/2".to_owned()], table: text("a"), ..Which::default() }));
    }

    #[test]
    fn nothing_is_settled_unless_it_is_said_what() {
        for words in [&["replay"][..], &["drop", "x.yaml"], &["drop", "--all", "--table", "t"]] {
            assert!(Cli::try_parse_from(["landfall", "dead-letters"].iter().chain(words)).is_err(), "{words:?}");
        }
        for words in
            [&["replay", "--all"][..], &["drop", "--letter", "a/0/1", "--letter", "a/0/2", "x.yaml"], &["replay", "--table", "t", "--reason", "json"]]
        {
            assert!(Cli::try_parse_from(["landfall", "dead-letters"].iter().chain(words)).is_ok(), "{words:?}");
        }
    }
}
