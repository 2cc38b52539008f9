//! Asking the schema registry, on a thread of its own, so that whoever waits for one schema keeps nobody else waiting.
//!
//! What fails is asked again, ever more seldom, for as long as it takes: no record is given up because a registry is down, slow or refuses us
//! (case REG-01); what is known goes on working. That an id does not exist is an answer, believed when it has been given [`UNKNOWN_TIMES`] times,
//! since a replica of the registry may lag, and kept for [`UNKNOWN_FOR`], so that a topic full of them costs hardly a request (case REG-02).

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
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

/// What the registry said, or why it did not.
#[derive(Debug)]
pub(super) enum Answer {
    /// What an id is.
    Registered(u64, Registered),
    /// It could not be asked, and is being asked again.
    Failed(u64, String),
}

/// What a session knows of the registry.
#[derive(Debug)]
pub(super) struct Registry {
    ask: Sender<u64>,
    thread: JoinHandle<()>,
    answers: Receiver<Answer>,
    known: HashMap<u64, Registered>,
    asked: HashSet<u64>,
    forgot: Instant,
}

impl Registry {
    /// Begins to ask a registry; its thread ends with this.
    pub(super) fn start(plan: &RegistryPlan, now: Instant) -> Result<Self, String> {
        let (client, url) = (Client::new(plan)?, plan.url.clone());
        let ((ask, asked), (answer, answers)) = (channel(), channel());
        let body = move || {
            tracing::debug!(url, "schema registry");
            serve(&asked, &answer, |id| client.get(id));
        };
        let thread = std::thread::Builder::new().name("registry".to_owned()).spawn(body).map_err(|e| e.to_string())?;
        Ok(Self { ask, thread, answers, known: HashMap::new(), asked: HashSet::new(), forgot: now })
    }

    /// What an id is, where that is known; else it is asked for, once.
    pub(super) fn known(&mut self, id: u64) -> Option<&Registered> {
        if !self.known.contains_key(&id) && self.asked.insert(id) {
            // The thread lives as long as this does.
            let _sent = self.ask.send(id).is_ok();
        }
        self.known.get(&id)
    }

    /// Whether nobody answers any more: its thread ended, which only a defect can bring about.
    pub(super) fn is_broken(&self) -> bool {
        self.thread.is_finished()
    }

    /// What has been answered since the last call.
    pub(super) fn take(&mut self) -> Vec<Answer> {
        let answers: Vec<Answer> = self.answers.try_iter().collect();
        for answer in &answers {
            if let Answer::Registered(id, registered) = answer {
                if self.known.len() >= KEPT_MAX {
                    self.known.clear();
                }
                let _ = self.asked.remove(id);
                let _ = self.known.insert(*id, registered.clone());
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
fn serve(asked: &Receiver<u64>, answers: &Sender<Answer>, get: impl Fn(u64) -> Result<Registered, String>) {
    let mut failing: Vec<(Instant, Duration, u64)> = Vec::new();
    let mut unknown: HashMap<u64, u32> = HashMap::new();
    loop {
        let due = failing.iter().map(|(at, ..)| *at).min();
        let next = match due {
            None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => asked.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        let (id, pause) = match next {
            Ok(id) => (id, PAUSES.0),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => match failing.iter().position(|(at, ..)| Some(*at) == due) {
                None => continue,
                Some(at) => {
                    let (_, pause, id) = failing.swap_remove(at);
                    (id, (pause * 2).min(PAUSES.1))
                }
            },
        };
        let answer = match get(id) {
            Ok(Registered::Unknown) => {
                let times = unknown.entry(id).or_default();
                *times += 1;
                if *times < UNKNOWN_TIMES {
                    failing.push((Instant::now() + pause, pause, id));
                    continue;
                }
                let _ = unknown.remove(&id);
                Answer::Registered(id, Registered::Unknown)
            }
            Ok(registered) => {
                let _ = unknown.remove(&id);
                Answer::Registered(id, registered)
            }
            Err(why) => {
                failing.push((Instant::now() + pause, pause, id));
                Answer::Failed(id, why)
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
        for id in [7, 8] {
            ask.send(id).expect("somebody listens");
        }
        let ask = RefCell::new(Some(ask));
        serve(&asked, &answer, |id| {
            let mut times = times.borrow_mut();
            let time = times.entry(id).or_default();
            *time += 1;
            match (id, *time) {
                (7, 1) => return Err("503".to_owned()),
                (7, _) => drop(ask.take()),
                _ => {}
            }
            Ok(Registered::Other("JSON".to_owned()))
        });
        let said: Vec<String> = answers
            .try_iter()
            .map(|a| match a {
                Answer::Registered(id, _) => format!("{id}"),
                Answer::Failed(id, why) => format!("{id}: {why}"),
            })
            .collect();
        assert_eq!(said, ["7: 503", "8", "7"]);
    }

    #[test]
    fn case_reg_02_an_id_is_unknown_once_that_was_said_several_times() {
        let ((ask, asked), (answer, answers)) = (channel(), channel());
        ask.send(9).expect("somebody listens");
        let (ask, times) = (RefCell::new(Some(ask)), RefCell::new(0));
        serve(&asked, &answer, |_| {
            *times.borrow_mut() += 1;
            if *times.borrow() == UNKNOWN_TIMES {
                drop(ask.take());
            }
            Ok(Registered::Unknown)
        });
        assert!(matches!(answers.try_iter().collect::<Vec<_>>()[..], [Answer::Registered(9, Registered::Unknown)]));
    }
}
