//! What the store's workers answered: a replica is open, a partition claimed, a table prepared, a batch landed, a cursor read; or not.
//!
//! An answer belongs to the claim that asked for it; later ones void it. What is done about an error is the remedy of its kind (`sink::Kind`),
//! decided there and nowhere here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_schemas::TableSchema;
use rdkafka::consumer::Consumer as _;

use super::trouble::reason;
use super::{Again, Consumer, Session, SessionError, WAIT, Who, one};
use crate::land::partition::{LogBounds, Stop, Verdict};
use crate::run::workers::Answer;
use crate::sink::{self, Remedy};
use crate::state::State;

impl Session<'_> {
    /// Answers of the workers.
    pub(super) fn answers<S: State>(&mut self, consumer: &Consumer, state: &mut S) -> Result<(), SessionError> {
        for (who, answer) in self.desk.answers() {
            match who {
                Who::Replica(replica) => self.opened(consumer, replica, answer)?,
                Who::Partition(at, claim) => {
                    let current = self.owned.get(at).and_then(Option::as_ref).is_some_and(|o| o.claim == claim);
                    if current {
                        self.answered(consumer, state, at, answer)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn opened(&mut self, consumer: &Consumer, replica: usize, answer: Answer) -> Result<(), SessionError> {
        let Answer::Opened(outcome) = answer else { return Ok(()) };
        let r = &mut self.replicas[replica];
        r.opening = false;
        let partitions: Vec<usize> =
            self.owned.iter().enumerate().filter(|(_, o)| o.as_ref().is_some_and(|o| o.replica == replica)).map(|(i, _)| i).collect();
        match outcome {
            Ok(opened) => {
                (r.build, r.schema, r.retry_at) = (Some(opened.build), opened.schema, None);
                let (build, schema) = (opened.build, r.schema.clone());
                for at in partitions {
                    // A partition that lands under a claim of its own goes on: it finds out by itself when its build is over.
                    if let Some(owned) = self.owned[at].as_mut().filter(|o| o.claim == 0) {
                        owned.core.reclaim(build, schema.clone());
                        self.shared.observer.log_waiting(&self.replicas[replica].plan.id, owned.name.1, None);
                    }
                }
            }
            Err(error) => {
                self.shared.observer.sink_error(&r.plan.id, error.kind.code());
                let id = r.plan.id.clone();
                match error.kind.remedy() {
                    Remedy::Retry | Remedy::Reclaim => {
                        r.retry_at = Some(Instant::now() + Duration::from_secs(1));
                        for at in partitions {
                            if let Some(owned) = &self.owned[at] {
                                self.shared.observer.log_waiting(&id, owned.name.1, Some(reason(error.kind.code(), &error, error.kind.hint())));
                            }
                        }
                    }
                    Remedy::Halt => {
                        r.stopped = Some(reason(error.kind.code(), &error, error.kind.hint()));
                        let stop = Stop::Sink(error);
                        for at in partitions {
                            self.stop(consumer, at, &stop)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn answered<S: State>(&mut self, consumer: &Consumer, state: &mut S, at: usize, answer: Answer) -> Result<(), SessionError> {
        let now = self.now();
        let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
        owned.busy = false;
        let replica = owned.replica;
        let failure = match answer {
            Answer::Opened(_) | Answer::Rebuilt(_) => return Ok(()),
            Answer::Claimed(Ok(claim)) => {
                let (begin, end) = match consumer.fetch_watermarks(&owned.name.0, owned.name.1, WAIT) {
                    Ok(bounds) => bounds,
                    Err(error) => {
                        tracing::warn!(%error, topic = owned.name.0, "the log's bounds cannot be read, trying again");
                        owned.again = Some(Again::Claim);
                        owned.retry_at = Some(Instant::now() + owned.pause.grow());
                        return Ok(());
                    }
                };
                owned.end = end;
                match owned.core.claimed(claim, LogBounds { begin, end }, state, now) {
                    Ok(from) => {
                        owned.seek = Some(from);
                        owned.pause.reset();
                        // What an earlier owner landed and did not come to commit, or what a store that was put back no longer holds:
                        // without this an idle partition would show a lag in other tools for ever, or none where there is some.
                        if let Some(next) = claim.next {
                            let _ = self.commits.insert(owned.name.clone(), next);
                        }
                        tracing::info!(
                            replica = self.replicas[replica].plan.id,
                            partition = owned.name.1,
                            fence = claim.fence,
                            next = claim.next,
                            from,
                            "partition claimed"
                        );
                        None
                    }
                    Err(stop) => return self.stop(consumer, at, &stop),
                }
            }
            Answer::Claimed(Err(error)) => Some((error, Again::Claim)),
            Answer::Prepared(Ok(target)) => {
                owned.core.prepared(TableSchema::clone(&target.schema));
                owned.schema = Some(Arc::clone(&target.schema));
                self.replicas[replica].schema = Some(TableSchema::clone(&target.schema));
                self.shared.observer.migrated(&self.replicas[replica].plan.id, "prepare");
                None
            }
            Answer::Prepared(Err(error)) => Some((error, Again::Prepare)),
            Answer::Landed(batch, outcome, took) => {
                let rows = batch.len();
                owned.core.return_batch(batch);
                match outcome {
                    Ok(()) => {
                        if let Err(stop) = owned.core.landed(state, now) {
                            return self.stop(consumer, at, &stop);
                        }
                        self.landed(at, Some((rows, took)));
                        None
                    }
                    Err(error) => Some((error, Again::Check)),
                }
            }
            Answer::Cursor(Ok(cursor)) => match owned.core.checked(cursor, state, now) {
                Ok(Verdict::Done) => {
                    self.landed(at, None);
                    None
                }
                Ok(Verdict::Again) => {
                    self.land(at);
                    None
                }
                Ok(Verdict::Void) => {
                    self.reclaim(consumer, at)?;
                    None
                }
                Err(stop) => return self.stop(consumer, at, &stop),
            },
            Answer::Cursor(Err(error)) => Some((error, Again::Check)),
        };
        match failure {
            None => Ok(()),
            Some((error, again)) => self.failed(consumer, at, error, again),
        }
    }

    /// An error of the store: what to do is the remedy of its kind.
    fn failed(&mut self, consumer: &Consumer, at: usize, error: sink::Error, again: Again) -> Result<(), SessionError> {
        let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
        let id = self.replicas[owned.replica].plan.id.clone();
        self.shared.observer.sink_error(&id, error.kind.code());
        let remedy = if again == Again::Check { owned.core.failed(error.kind) } else { error.kind.remedy() };
        match remedy {
            Remedy::Retry => {
                owned.again = Some(again);
                owned.retry_at = Some(Instant::now() + owned.pause.grow());
                self.shared.observer.log_waiting(&id, owned.name.1, Some(reason(error.kind.code(), &error, error.kind.hint())));
                Ok(())
            }
            Remedy::Reclaim => {
                tracing::info!(replica = id, partition = owned.name.1, code = error.kind.code(), %error, "claiming anew");
                // A pause, so that two owners who both believe to be the one do not chase each other.
                owned.retry_at = Some(Instant::now() + owned.pause.grow());
                self.reclaim(consumer, at)
            }
            Remedy::Halt => self.stop(consumer, at, &Stop::Sink(error)),
        }
    }

    /// Forgets a claim; the replica is opened again first, since its build may have changed.
    pub(super) fn reclaim(&mut self, consumer: &Consumer, at: usize) -> Result<(), SessionError> {
        let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
        owned.core.reclaim(0, None);
        (owned.begun, owned.seek, owned.again, owned.busy) = (false, None, None, false);
        owned.claim = 0;
        if !owned.paused {
            owned.paused = true;
            consumer.pause(&one(&owned.name))?;
        }
        self.replicas[owned.replica].build = None;
        Ok(())
    }

    /// `landing`: rows and time of it, where its own answer came.
    fn landed(&mut self, at: usize, landing: Option<(usize, Duration)>) {
        let Some(owned) = self.owned[at].as_mut() else { return };
        owned.pause.reset();
        let counts = owned.core.take_counts();
        let r = &self.replicas[owned.replica];
        self.shared.observer.log_waiting(&r.plan.id, owned.name.1, None);
        if counts.batches > 0 {
            self.shared.observer.landed(&r.plan.id, &r.table.id, &counts, landing);
        }
        self.shared.observer.position(&r.plan.id, owned.name.1, owned.core.landed_next(), owned.end);
    }
}
