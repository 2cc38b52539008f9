//! Asking the schema registry what ids of source records are, and for ids of the log's own contracts, on a thread of its own, so that whoever waits for one schema keeps nobody else waiting.
//!
//! What fails is asked again, ever more seldom, for as long as it takes: no record is given up because a registry is down, slow or refuses us
//! (case REG-01); what is known goes on working. That an id does not exist is an answer, believed when it has been given [`UNKNOWN_TIMES`] times,
//! since a replica of the registry may lag, and kept for [`UNKNOWN_FOR`], so that a topic full of them costs hardly a request (case REG-02).

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use landfall_schemas::TableSchema;
use landfall_schemas::contract::{self, Fingerprint};
use landfall_schemas::dialect::Registered;
use landfall_topology::plan::RegistryPlan;

use crate::registry::Client;

/// How long it is believed that an id does not exist.
const UNKNOWN_FOR: Duration = Duration::from_secs(30);
/// How often an id must be unknown before that is believed, with pauses in between.
const UNKNOWN_TIMES: u32 = 3;
/// The pause after the first failure, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// The most ids that are remembered; beyond, all are asked for again.
const KEPT_MAX: usize = 16_384;

/// What the registry is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wanted {
    /// What an id of a source record is.
    Schema(u64),
    /// The id of a contract of the log, which is registered for it.
    Contract(Fingerprint),
}

/// A question with what is needed to ask it.
#[derive(Debug)]
enum Question {
    Schema(u64),
    Contract { fingerprint: Fingerprint, subject: String, text: String },
}

impl Question {
    const fn wanted(&self) -> Wanted {
        match self {
            Self::Schema(id) => Wanted::Schema(*id),
            Self::Contract { fingerprint, .. } => Wanted::Contract(*fingerprint),
        }
    }
}

/// What the registry said, or why it did not.
#[derive(Debug)]
pub(super) enum Answer {
    /// What an id is.
    Registered(u64, Registered),
    /// The id of a contract.
    Contract(Fingerprint, u64),
    /// It could not be asked, and is being asked again.
    Failed(Wanted, String),
}

/// What a session knows of the registry.
#[derive(Debug)]
pub(super) struct Registry {
    ask: Sender<Question>,
    thread: JoinHandle<()>,
    answers: Receiver<Answer>,
    known: HashMap<u64, Registered>,
    /// The ids of contracts that this session has registered.
    contracts: HashMap<Fingerprint, u64>,
    asked: HashSet<Wanted>,
    forgot: Instant,
}

impl Registry {
    /// Begins to ask a registry; its thread ends with this.
    pub(super) fn start(plan: &RegistryPlan, now: Instant) -> Result<Self, String> {
        let (client, url) = (Client::new(plan)?, plan.url.clone());
        let ((ask, asked), (answer, answers)) = (channel(), channel());
        let body = move || {
            tracing::debug!(url, "schema registry");
            serve(&asked, &answer, |question| {
                Ok(match question {
                    Question::Schema(id) => Answer::Registered(*id, client.get(*id)?),
                    Question::Contract { fingerprint, subject, text } => Answer::Contract(*fingerprint, client.register(subject, text)?),
                })
            });
        };
        let thread = std::thread::Builder::new().name("registry".to_owned()).spawn(body).map_err(|e| e.to_string())?;
        Ok(Self { ask, thread, answers, known: HashMap::new(), contracts: HashMap::new(), asked: HashSet::new(), forgot: now })
    }

    /// What an id is, where that is known; else it is asked for, once.
    pub(super) fn known(&mut self, id: u64) -> Option<&Registered> {
        if !self.known.contains_key(&id) && self.asked.insert(Wanted::Schema(id)) {
            // The thread lives as long as this does.
            let _sent = self.ask.send(Question::Schema(id)).is_ok();
        }
        self.known.get(&id)
    }

    /// The id of a contract, where this session has registered it for a log; else it is registered, once.
    ///
    /// The subject is `<log topic>-<full name of the record>`, one of the registry's own naming strategies: each contract has a name of its own, so that
    /// no rule of compatibility between names that differ stands in the way of a new one. What may follow what is decided by the log's own laws.
    pub(super) fn contract(&mut self, topic: &str, fingerprint: Fingerprint, schema: &TableSchema) -> Option<u64> {
        let known = self.contract_id(fingerprint);
        if known.is_none() && self.asked.insert(Wanted::Contract(fingerprint)) {
            let subject = format!("{topic}-{}", contract::name(schema));
            let question = Question::Contract { fingerprint, subject, text: contract::of(schema).0 };
            let _sent = self.ask.send(question).is_ok();
        }
        known
    }

    /// The id of a contract, where this session has registered it.
    pub(super) fn contract_id(&self, fingerprint: Fingerprint) -> Option<u64> {
        self.contracts.get(&fingerprint).copied()
    }

    /// Whether nobody answers any more: its thread ended, which only a defect can bring about.
    pub(super) fn is_broken(&self) -> bool {
        self.thread.is_finished()
    }

    /// What has been answered since the last call.
    pub(super) fn take(&mut self) -> Vec<Answer> {
        let answers: Vec<Answer> = self.answers.try_iter().collect();
        for answer in &answers {
            match answer {
                Answer::Registered(id, registered) => {
                    if self.known.len() >= KEPT_MAX {
                        self.known.clear();
                    }
                    let _ = self.asked.remove(&Wanted::Schema(*id));
                    let _ = self.known.insert(*id, registered.clone());
                }
                Answer::Contract(fingerprint, id) => {
                    let _ = self.asked.remove(&Wanted::Contract(*fingerprint));
                    let _ = self.contracts.insert(*fingerprint, *id);
                }
                Answer::Failed(..) => {}
            }
        }
        answers
    }

    /// Whether it is time to forget which ids do not exist; they are forgotten then.
    pub(super) fn forget_unknown(&mut self, now: Instant) -> bool {
        let is_due = now.duration_since(self.forgot) >= UNKNOWN_FOR;
        if is_due {
            self.forgot = now;
            self.known.retain(|_, registered| !matches!(registered, Registered::Unknown));
        }
        is_due
    }
}

/// Answers until nobody asks any more. What fails waits for its turn beside the others.
fn serve(asked: &Receiver<Question>, answers: &Sender<Answer>, ask: impl Fn(&Question) -> Result<Answer, String>) {
    let mut failing: Vec<(Instant, Duration, Question)> = Vec::new();
    let mut unknown: HashMap<u64, u32> = HashMap::new();
    loop {
        let due = failing.iter().map(|(at, ..)| *at).min();
        let next = match due {
            None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => asked.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        let (question, pause) = match next {
            Ok(question) => (question, PAUSES.0),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => match failing.iter().position(|(at, ..)| Some(*at) == due) {
                None => continue,
                Some(at) => {
                    let (_, pause, question) = failing.swap_remove(at);
                    (question, (pause * 2).min(PAUSES.1))
                }
            },
        };
        let answer = match ask(&question) {
            Ok(Answer::Registered(id, registered)) => {
                let times = unknown.entry(id).or_default();
                *times += 1;
                if matches!(registered, Registered::Unknown) && *times < UNKNOWN_TIMES {
                    failing.push((Instant::now() + pause, pause, question));
                    continue;
                }
                let _ = unknown.remove(&id);
                Answer::Registered(id, registered)
            }
            Ok(answer) => answer,
            Err(why) => {
                let wanted = question.wanted();
                failing.push((Instant::now() + pause, pause, question));
                Answer::Failed(wanted, why)
            }
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn case_reg_01_what_fails_is_asked_again_and_keeps_no_other_id_waiting() {
        let ((ask, asked), (answer, answers)) = (channel(), channel());
        let times = RefCell::new(BTreeMap::<u64, u32>::new());
        let contract = || Question::Contract { fingerprint: Fingerprint(9), subject: "s".to_owned(), text: "t".to_owned() };
        for question in [Question::Schema(7), contract(), Question::Schema(8)] {
            ask.send(question).expect("somebody listens");
        }
        let ask = RefCell::new(Some(ask));
        serve(&asked, &answer, |question| {
            let (Wanted::Schema(id) | Wanted::Contract(Fingerprint(id))) = question.wanted();
            let mut times = times.borrow_mut();
            let time = times.entry(id).or_default();
            *time += 1;
            match (id, *time) {
                (7 | 9, 1) => return Err("503".to_owned()),
                // The last one that is waited for.
                (9, _) => drop(ask.take()),
                _ => {}
            }
            Ok(if id == 9 { Answer::Contract(Fingerprint(9), 70) } else { Answer::Registered(id, Registered::Other("JSON".to_owned())) })
        });
        let said: Vec<String> = answers
            .try_iter()
            .map(|a| match a {
                Answer::Registered(id, _) => format!("{id}"),
                Answer::Contract(_, id) => format!("contract {id}"),
                Answer::Failed(Wanted::Schema(id), why) => format!("{id}: {why}"),
                Answer::Failed(Wanted::Contract(_), why) => format!("contract: {why}"),
            })
            .collect();
        assert_eq!(said, ["7: 503", "contract: 503", "8", "7", "contract 70"]);
    }

    #[test]
    fn case_reg_02_an_id_is_unknown_once_that_was_said_several_times() {
        let ((ask, asked), (answer, answers)) = (channel(), channel());
        ask.send(Question::Schema(9)).expect("somebody listens");
        let (ask, times) = (RefCell::new(Some(ask)), RefCell::new(0));
        serve(&asked, &answer, |_| {
            *times.borrow_mut() += 1;
            if *times.borrow() == UNKNOWN_TIMES {
                drop(ask.take());
            }
            Ok(Answer::Registered(9, Registered::Unknown))
        });
        assert!(matches!(answers.try_iter().collect::<Vec<_>>()[..], [Answer::Registered(9, Registered::Unknown)]));
    }
}
