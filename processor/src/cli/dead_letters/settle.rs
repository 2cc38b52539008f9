//! `dead-letters replay` and `dead-letters drop`: notes behind letters, and what came of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use landfall_topology::Plan;
use rdkafka::message::Message as _;
use serde::Serialize;

use super::super::paper::{Mood, Output, Paper, counted, printable};
use super::super::{Failure, Problem, load};
use super::read::{Line, State, Tail, Topic, line};
use super::{Replay, Settle, Which};
use crate::dead_letter::{Act, Note, PARKED};
use crate::log::producer::{Outgoing, Producer};

/// How long writing notes may take.
const WRITE_WAIT: Duration = Duration::from_secs(30);

/// What came of a request.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    replayed: Vec<String>,
    failed: Vec<Failed>,
    /// Nobody has taken them in time.
    waiting: Vec<String>,
    /// Parked events that follow by themselves.
    parked: u64,
}

#[derive(Debug, Serialize)]
struct Failed {
    letter: String,
    code: String,
    reason: String,
}

/// The letters that are meant: key, offset and whether it is to be asked for.
struct Chosen {
    letters: BTreeMap<String, i64>,
    asked: BTreeMap<String, i64>,
    parked: u64,
}

/// Asks for letters to be replayed, and waits for what comes of it.
pub(super) fn replay(arguments: &Replay, paper: &mut Paper<'_>) -> Result<(), Failure> {
    let Replay { settle, wait } = arguments;
    let plan = load(&settle.topology)?;
    let topic = Topic::open(&plan)?;
    let chosen = choose(&topic, &settle.which, false)?;
    let mut pending = chosen.letters.clone();
    write(&plan, &topic, &chosen.letters, Act::Replay)?;
    pending.extend(chosen.asked);
    let mut outcome = Outcome { parked: chosen.parked, ..Outcome::default() };
    if pending.is_empty() {
        return Ok(print(&outcome, settle.output, *wait, paper)?);
    }
    await_outcome(&plan, &topic, pending, Duration::from_secs(*wait), &mut outcome)?;
    print(&outcome, settle.output, *wait, paper)?;
    if *wait == 0 || outcome.failed.is_empty() && outcome.waiting.is_empty() {
        return Ok(());
    }
    let hint = if outcome.failed.is_empty() {
        "the running process of the topology takes them; is there one, and does their source partition stand still (`landfall status`)?"
    } else {
        "they have a new verdict each and stay; `landfall dead-letters list` shows it"
    };
    let failed = (outcome.failed.len() + outcome.waiting.len()) as u64;
    Err(Problem::new(format!("{} not replayed", counted(failed, "letter")), hint).into())
}

/// Drops letters.
pub(super) fn drop(arguments: &Settle, paper: &mut Paper<'_>) -> Result<(), Failure> {
    let plan = load(&arguments.topology)?;
    let topic = Topic::open(&plan)?;
    let chosen = choose(&topic, &arguments.which, true)?;
    write(&plan, &topic, &chosen.letters, Act::Dropped)?;
    let count = chosen.letters.len() as u64;
    match arguments.output {
        Output::Json => paper.json(&serde_json::json!({ "dropped": chosen.letters.keys().collect::<Vec<_>>() }))?,
        Output::Text => paper.line(format!("{} dropped; the source topics keep the records", counted(count, "letter")))?,
    }
    Ok(())
}

fn choose(topic: &Topic, which: &Which, drops: bool) -> Result<Chosen, Failure> {
    let mut chosen = Chosen { letters: BTreeMap::new(), asked: BTreeMap::new(), parked: 0 };
    topic.entries(|entry| {
        if !entry.state.is_open() || !which.takes(&entry.letter, &entry.body) {
            return;
        }
        if entry.body.code == PARKED && !drops {
            chosen.parked += 1;
        } else if entry.state == State::Asked && !drops {
            let _ = chosen.asked.insert(entry.letter, entry.at);
        } else {
            let _ = chosen.letters.insert(entry.letter, entry.at);
        }
    })?;
    if chosen.letters.is_empty() && chosen.asked.is_empty() && chosen.parked == 0 {
        let hint = "`landfall dead-letters list` shows those that are open, `--all` the others too";
        return Err(Problem::new(format!("no open dead letter of topic {} fits", topic.name()), hint).into());
    }
    Ok(chosen)
}

fn write(plan: &Plan, topic: &Topic, letters: &BTreeMap<String, i64>, act: Act) -> Result<(), Failure> {
    if letters.is_empty() {
        return Ok(());
    }
    let producer = Producer::new(&plan.kafka)?;
    let encoded: Vec<(&String, Vec<u8>)> =
        letters.iter().map(|(key, letter)| (key, serde_json::to_vec(&Note { act, letter: *letter }).unwrap_or_default())).collect();
    let records =
        encoded.iter().map(|(key, value)| Outgoing { topic: topic.name(), partition: 0, key: Some(key.as_bytes()), value, headers: [None; 2] });
    let _ = producer.send_all(records, WRITE_WAIT)?;
    Ok(())
}

/// Reads on behind what was there, until something is said of each letter or the time is over.
fn await_outcome(plan: &Plan, topic: &Topic, mut pending: BTreeMap<String, i64>, patience: Duration, outcome: &mut Outcome) -> Result<(), Failure> {
    #[allow(clippy::disallowed_methods, reason = "a person waits for this; no decision of the core rests on it")]
    let begun = Instant::now();
    let mut tail = Tail::new(&plan.kafka, topic.name(), topic.end())?;
    while !pending.is_empty() {
        let Some(left) = patience.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else { break };
        let _ = tail.next(left, |message| {
            let key = message.key().and_then(|key| std::str::from_utf8(key).ok()).unwrap_or_default();
            let Some(letter) = pending.get(key).copied() else { return };
            match line(message.payload()) {
                Some(Line::Note(note)) if note.act != Act::Replay && note.letter >= letter => outcome.replayed.push(key.to_owned()),
                Some(Line::Letter(new)) => outcome.failed.push(Failed { letter: key.to_owned(), code: new.code, reason: new.reason }),
                _ => return,
            }
            let _ = pending.remove(key);
        })?;
    }
    outcome.waiting.extend(pending.into_keys());
    Ok(())
}

fn print(outcome: &Outcome, output: Output, wait: u64, paper: &mut Paper<'_>) -> std::io::Result<()> {
    if output == Output::Json {
        return paper.json(outcome);
    }
    let Outcome { replayed, failed, waiting, parked } = outcome;
    let count = |letters: usize| counted(letters as u64, "letter");
    if !replayed.is_empty() {
        let text = paper.word(&format!("{} replayed", count(replayed.len())), Mood::Good);
        paper.line(text)?;
    }
    if !failed.is_empty() {
        let text = paper.word(&format!("{} failed again", count(failed.len())), Mood::Bad);
        paper.line(text)?;
        for Failed { letter, code, reason } in failed.iter().take(SHOWN) {
            paper.indented("  ", &format!("{}: {}: {}", printable(letter), printable(code), printable(reason)))?;
        }
    }
    match (waiting.len(), wait) {
        (0, _) => {}
        (n, 0) => {
            paper.line(format!("{} asked for; a running process takes them, `landfall dead-letters list --all` shows what comes of it", count(n)))?
        }
        (n, seconds) => {
            let text = paper.word(&format!("{} not taken within {seconds} s", count(n)), Mood::Odd);
            paper.line(format!("{text}; they stay asked for"))?;
        }
    }
    if *parked > 0 {
        paper.line(format!(
            "{} parked: they follow by themselves once the letters of their keys before them are settled",
            counted(*parked, "event")
        ))?;
    }
    Ok(())
}

/// Letters that are shown one by one.
const SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use super::super::super::paper::printed;
    use super::*;

    #[test]
    fn people_are_told_what_came_of_it() {
        let failed = vec![Failed { letter: "t/0/2".to_owned(), code: "value.kind".to_owned(), reason: "a value is wrong".to_owned() }];
        let outcome = Outcome { replayed: vec!["t/0/1".to_owned()], failed, waiting: vec!["t/0/3".to_owned()], parked: 2 };
        let expected = "\
1 letter replayed
1 letter failed again
  t/0/2: value.kind: a value is wrong
1 letter not taken within 30 s; they stay asked for
2 events parked: they follow by themselves once the letters of their keys before them are settled
";
        assert_eq!(printed(None, |p| print(&outcome, Output::Text, 30, p).unwrap()), expected);
    }
}
