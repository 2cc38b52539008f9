//! The threads that talk to one store: each owns one connection, takes the next job, and answers.
//!
//! A partition has at most one job at a time, so order needs no care; a job that hangs holds up one connection, not the store's other tables.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fault;
use crate::sink::{Batch, Claim, Cursor, Error, Kind, Opened, Sink, Target};

/// What a worker is asked to do.
#[derive(Debug)]
pub enum Job {
    /// Open a replica.
    Open {
        /// Full name of the replica.
        replica: String,
        /// Its table.
        table: String,
        /// Build asked for.
        build: Option<u16>,
    },
    /// Prepare a table.
    Prepare(Target),
    /// Claim a partition.
    Claim(Target, i32),
    /// Read a cursor.
    Cursor(Target, i32),
    /// Land a batch.
    Land(Target, Batch),
    /// Put a new build in force.
    Rebuild {
        /// Full name of the replica.
        replica: String,
        /// Its table.
        table: String,
    },
}

/// What came of it.
#[derive(Debug)]
pub enum Answer {
    /// Of `Open`.
    Opened(Result<Opened, Error>),
    /// Of `Prepare`.
    Prepared(Result<Target, Error>),
    /// Of `Claim`.
    Claimed(Result<Claim, Error>),
    /// Of `Cursor`.
    Cursor(Result<Option<Cursor>, Error>),
    /// Of `Land`: the batch comes back, with the time that it took.
    Landed(Batch, Result<(), Error>, Duration),
    /// Of `Rebuild`.
    Rebuilt(Result<u16, Error>),
}

#[derive(Debug)]
struct Queue<K> {
    jobs: VecDeque<(K, Job)>,
    answers: Vec<(K, Answer)>,
    closed: bool,
    busy: usize,
    /// What a worker panicked with. Its job will never be answered.
    broken: Option<String>,
}

/// The jobs and answers of one store. `K` names who asked.
#[derive(Debug)]
pub struct Desk<K> {
    queue: Mutex<Queue<K>>,
    changed: Condvar,
}

impl<K: Send> Desk<K> {
    /// An empty desk.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::new(Queue { jobs: VecDeque::new(), answers: Vec::new(), closed: false, busy: 0, broken: None }),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue<K>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for something.
    pub fn ask(&self, who: K, job: Job) {
        self.lock().jobs.push_back((who, job));
        self.changed.notify_one();
    }

    /// Takes the answers that are there.
    pub fn answers(&self) -> Vec<(K, Answer)> {
        std::mem::take(&mut self.lock().answers)
    }

    /// True while a job waits or is being done.
    pub fn is_busy(&self) -> bool {
        let queue = self.lock();
        queue.busy > 0 || !queue.jobs.is_empty()
    }

    /// Ends the workers once their present job is done.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// What a worker panicked with, where one did: nothing more is done for this store.
    pub fn broken(&self) -> Option<String> {
        self.lock().broken.clone()
    }

    /// Runs a worker, and takes note where it panics. Whether its job happened is not known then, and its sink is in no state to say so: the other
    /// workers end too, and whoever waits for an answer has to give up.
    pub fn guarded(&self, worker: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(worker)) {
            let mut queue = self.lock();
            (queue.broken, queue.closed) = (Some(super::message(&*panic)), true);
            drop(queue);
            self.changed.notify_all();
        }
    }

    /// The life of a worker: jobs until the desk closes. After `idle` without a job, what others may wait for is given back.
    pub fn work(&self, sink: &mut dyn Sink, idle: Duration) {
        loop {
            let Some((who, job)) = self.next(sink, idle) else { return };
            let answer = perform(sink, job);
            let mut queue = self.lock();
            queue.busy -= 1;
            queue.answers.push((who, answer));
        }
    }

    fn next(&self, sink: &mut dyn Sink, idle: Duration) -> Option<(K, Job)> {
        let mut queue = self.lock();
        let mut since = Some(Instant::now());
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.busy += 1;
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue = self.changed.wait_timeout(queue, idle).unwrap_or_else(PoisonError::into_inner).0;
            if queue.jobs.is_empty() && since.is_some_and(|s| s.elapsed() >= idle) {
                drop(queue);
                if let Err(error) = sink.idle() {
                    tracing::debug!(%error, "giving back an idle connection");
                }
                since = None;
                queue = self.lock();
            }
        }
    }
}

fn perform(sink: &mut dyn Sink, job: Job) -> Answer {
    match job {
        Job::Open { replica, table, build } => Answer::Opened(sink.open(&replica, &table, build)),
        Job::Prepare(target) => Answer::Prepared(prepare(sink, target)),
        Job::Claim(target, partition) => Answer::Claimed(sink.claim(&target, partition)),
        Job::Cursor(target, partition) => Answer::Cursor(sink.cursor(&target, partition)),
        Job::Land(target, batch) => {
            fault::point("pre_land");
            let begun = Instant::now();
            let outcome = sink.land(&target, &batch);
            Answer::Landed(batch, outcome, begun.elapsed())
        }
        Job::Rebuild { replica, table } => Answer::Rebuilt(sink.rebuild(&replica, &table)),
    }
}

/// Prepares a table and reads back what the store has now: another process may have added columns of its own, and their order is the
/// store's.
fn prepare(sink: &mut dyn Sink, target: Target) -> Result<Target, Error> {
    sink.prepare(&target)?;
    let opened = sink.open(&target.replica, &target.table, None)?;
    if opened.build != target.build {
        return Err(Error::new(Kind::Build, format!("build {} of replica {:?} is in force", opened.build, target.replica)));
    }
    let schema = opened.schema.map_or_else(|| Arc::clone(&target.schema), Arc::new);
    Ok(Target { schema, ..target })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sink that panics at its second claim.
    #[derive(Default)]
    struct Fragile {
        claims: u32,
    }

    impl Sink for Fragile {
        fn open(&mut self, _: &str, _: &str, _: Option<u16>) -> Result<Opened, Error> {
            Ok(Opened { build: 0, schema: None })
        }

        fn prepare(&mut self, _: &Target) -> Result<(), Error> {
            Ok(())
        }

        fn claim(&mut self, _: &Target, _: i32) -> Result<Claim, Error> {
            self.claims += 1;
            assert!(self.claims < 2, "the second claim");
            Ok(Claim { fence: 1, next: None })
        }

        fn cursor(&mut self, _: &Target, _: i32) -> Result<Option<Cursor>, Error> {
            Ok(None)
        }

        fn land(&mut self, _: &Target, _: &Batch) -> Result<(), Error> {
            Ok(())
        }

        fn rebuild(&mut self, _: &str, _: &str) -> Result<u16, Error> {
            Ok(1)
        }
    }

    #[test]
    fn a_worker_that_panics_is_noticed_and_ends_the_others() {
        let column = landfall_schemas::Column { name: "id".to_owned(), ty: landfall_schemas::LogicalType::Int64, nullable: false };
        let schema = Arc::new(landfall_schemas::TableSchema::new("t", vec![column], &["id"]).expect("valid"));
        let target = Target { replica: "shop.store.t".to_owned(), table: "t".to_owned(), generation: 0, build: 0, schema };
        let desk: Arc<Desk<u32>> = Desk::new();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let desk = Arc::clone(&desk);
                    scope.spawn(move || {
                        let mut sink = Fragile::default();
                        desk.guarded(|| desk.work(&mut sink, Duration::from_secs(60)));
                    })
                })
                .collect();
            // Whoever takes them: of three claims one worker gets two.
            for who in 0..3 {
                desk.ask(who, Job::Claim(target.clone(), 0));
            }
            for worker in workers {
                worker.join().expect("the panic stays within");
            }
        });
        assert_eq!(desk.broken().as_deref(), Some("the second claim"));
        assert!(desk.answers().len() <= 2, "the job of the panic has no answer");
    }
}
