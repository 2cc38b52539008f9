//! Kafka: the newest rows of a table in a compacted topic `<log topic>.latest`, a replica like any other.
//!
//! - **Claim**: the producer of a log partition has a name, and whoever takes the name fences the former owner (law 6): its open batch comes to
//!   nothing and the broker refuses what it still sends. Then the cursor is read to the end that its topic has after the fence, and a higher fence
//!   is written under it.
//! - **Landing**: rows, once all copies have them the cursor, in one transaction (`producer`). Whoever reads committed records sees whole batches
//!   and never an older state of a row after a newer one.
//! - **Lost answers**: a producer that failed is discarded. The next call takes the name again, which settles what was open, and reads the cursor.
//! - **Builds**: a higher build is written first, then every partition is fenced and its rows are deleted one by one, so that a consumer which
//!   follows the topic forgets them too. A claim does this for a partition that a crash has left out.
//! - **Ownership**: a topic is ours where its id is the one that its replica's record names (`records`). Any other is left alone.
//!
//! A lander has several sinks for a store, which share what the process has claimed ([`Process`]): a partition may be claimed by one and landed by
//! another.

#![allow(clippy::disallowed_methods, reason = "waiting for Kafka is bounded by the clock; nothing here decides order by it")]

mod error;
mod ownership;
mod producer;
mod records;
pub mod rows;
mod tail;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_schemas::TableSchema;
use landfall_schemas::contract::{self, Fingerprint};
use landfall_topology::plan::{KafkaPlan, cursors_topic};

use self::producer::{Fencing, Outgoing};
use self::records::{Meta, Placed, key};
use self::rows::Rows;
use self::tail::Tail;
use super::{Batch, Claim, Cursor, Error, Kind, Opened, Sink, Target};
use crate::fault;
use crate::log::producer::{Outgoing as Plain, Producer};
use crate::log::topics::{Identity, Purpose, TIMEOUT, Topics};

/// Producers that a process keeps open; those that were not used for longest are closed, and made again when they are needed.
const PRODUCERS_MAX: usize = 128;
/// Deletes of one batch where the rows of an earlier build go.
const CLEARED_AT_ONCE: usize = 10_000;
/// What no record may be larger than: what the log's own producer takes (`log::client`).
const RECORD_BYTES_MAX: usize = 100_000_000;

/// Where the topics are.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster.
    pub kafka: KafkaPlan,
    /// Topic of contracts.
    pub schemas: String,
    /// Partitions of the topics of rows; `None`: as many as the log has.
    pub partitions: Option<u32>,
}

/// What a process has claimed and knows, shared by its sinks.
#[derive(Debug, Default)]
pub struct Process {
    owners: Mutex<Owners>,
    known: Mutex<HashMap<String, Known>>,
    published: Mutex<HashSet<Fingerprint>>,
    /// Held while what is known of replicas changes, so that threads of one process do not fence each other.
    changing: Mutex<()>,
    uses: Mutex<u64>,
}

/// Claims by replica and partition.
type Owners = HashMap<(String, i32), Arc<Mutex<Owner>>>;

/// A claim.
#[derive(Debug)]
struct Owner {
    fence: u64,
    build: u16,
    /// `K` as this owner left it.
    next: Option<i64>,
    /// `None` after a failure, or after long disuse: the name is to be taken again.
    producer: Option<Fencing>,
    /// The end of the partition of cursors when its last record was this owner's.
    seen: Option<i64>,
    used: u64,
}

/// A replica whose topic may be landed into.
#[derive(Clone, Debug)]
struct Known {
    build: u16,
    schema: TableSchema,
    incarnation: String,
}

/// Where the rows of a table are, as the cluster says.
#[derive(Clone, Copy, Debug)]
struct Home {
    partitions: u32,
    copies: u16,
}

impl Home {
    /// The partition of what is known of replicas: behind those of the cursors.
    fn metas(self) -> i32 {
        i32::try_from(self.partitions).unwrap_or(i32::MAX)
    }
}

/// Clients that read and ask.
#[derive(Debug)]
struct Links {
    topics: Topics,
    tail: Tail,
}

/// A sink that writes compacted topics.
#[derive(Debug)]
pub struct KafkaSink {
    options: Options,
    process: Arc<Process>,
    links: Option<Links>,
    homes: BTreeMap<String, Home>,
    rows: HashMap<String, Rows>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    fn owner(&self, target: &Target, partition: i32) -> Option<Arc<Mutex<Owner>>> {
        lock(&self.owners).get(&(target.replica.clone(), partition)).map(Arc::clone)
    }

    fn disown(&self, target: &Target, partition: i32) {
        // Closed outside the lock: a producer that goes may take a moment.
        let gone = lock(&self.owners).remove(&(target.replica.clone(), partition));
        drop(gone);
    }

    fn tick(&self) -> u64 {
        let mut uses = lock(&self.uses);
        *uses += 1;
        *uses
    }

    /// Closes producers that nobody has used for long, where there are too many.
    fn close_surplus(&self) {
        let owners: Vec<_> = lock(&self.owners).values().map(Arc::clone).collect();
        // What is in use is not closed, and not counted either.
        let mut open: Vec<_> = owners.iter().filter_map(|o| o.try_lock().ok().filter(|o| o.producer.is_some())).collect();
        if open.len() <= PRODUCERS_MAX {
            return;
        }
        open.sort_by_key(|owner| owner.used);
        let surplus = open.len() - PRODUCERS_MAX;
        open.iter_mut().take(surplus).for_each(|owner| owner.producer = None);
    }
}

impl KafkaSink {
    /// A sink of a process; it connects with the first call that needs it.
    pub fn new(options: Options, process: Arc<Process>) -> Self {
        Self { options, process, links: None, homes: BTreeMap::new(), rows: HashMap::new() }
    }

    fn links(&mut self) -> Result<&Links, Error> {
        if self.links.is_none() {
            let topics =
                Topics::connect(&self.options.kafka, Identity::Ids).map_err(|e| Error::with(Kind::Unavailable, "kafka cannot be reached", e))?;
            self.links = Some(Links { topics, tail: Tail::new(&self.options.kafka)? });
        }
        self.links.as_ref().ok_or_else(|| Error::new(Kind::Unavailable, "kafka cannot be reached"))
    }

    /// Takes the name of a partition's producer.
    fn fence(&self, replica: &str, partition: i32) -> Result<Fencing, Error> {
        Fencing::new(&self.options.kafka, &format!("{replica}.{partition}"))
    }

    fn placed(&mut self, target: &Target, partition: i32, patient: bool) -> Result<Option<Placed>, Error> {
        let cursors = cursors_topic(&target.table);
        Placed::read(&self.links()?.tail, &cursors, &target.replica, partition, patient)
    }

    fn metas(&mut self, table: &str) -> Result<BTreeMap<String, Meta>, Error> {
        let home = self.home(table)?;
        Meta::read(&self.links()?.tail, &cursors_topic(table), home.metas())
    }

    /// What is known of a replica, and its build, which is 0 where nothing is.
    fn meta(&mut self, replica: &str, table: &str) -> Result<Meta, Error> {
        let found = self.metas(table)?.remove(replica);
        Ok(found.unwrap_or_else(|| Meta { replica: replica.to_owned(), ..Meta::default() }))
    }

    /// Writes a cursor as a batch of its own.
    fn place(producer: &Fencing, target: &Target, partition: i32, placed: &Placed) -> Result<(), Error> {
        producer.begin()?;
        Self::send_cursor(producer, target, partition, placed)?;
        producer.commit()
    }

    fn send_cursor(producer: &Fencing, target: &Target, partition: i32, placed: &Placed) -> Result<(), Error> {
        let (cursors, key, value) = (cursors_topic(&target.table), key(&target.replica, partition), placed.encode());
        producer.send(Outgoing { topic: &cursors, partition, key: key.as_bytes(), value: Some(&value), headers: None })
    }

    /// Why a partition cannot be landed by this process: another build, another owner, or nobody.
    fn not_mine(&mut self, target: &Target, partition: i32, fence: u64) -> Result<Error, Error> {
        let meta = self.meta(&target.replica, &target.table)?;
        if meta.build != target.build {
            return Ok(superseded(&meta));
        }
        // What is open is not waited for: who has claimed has ended what was open before.
        Ok(match self.placed(target, partition, false)? {
            Some(placed) if placed.fence > fence => fenced(target, partition),
            _ => moved(target, partition),
        })
    }

    /// Takes the name again that this process has had: settles what it left open, and learns `K`. Refused where another has claimed since.
    fn resume(&mut self, target: &Target, partition: i32, owner: &mut Owner) -> Result<(), Error> {
        // Looked at first: taking the name from a rightful owner would only disturb it.
        if self.placed(target, partition, false)?.is_some_and(|placed| placed.fence > owner.fence) {
            return Err(fenced(target, partition));
        }
        let producer = self.fence(&target.replica, partition)?;
        match self.placed(target, partition, true)? {
            Some(placed) if placed.fence == owner.fence && placed.build == owner.build => {
                (owner.next, owner.producer, owner.seen) = (placed.next, Some(producer), None);
                Ok(())
            }
            Some(placed) if placed.fence > owner.fence => Err(fenced(target, partition)),
            _ => Err(moved(target, partition)),
        }
    }

    /// Lands as the owner; whatever fails ends the producer.
    fn land_as(&mut self, target: &Target, batch: &Batch, owner: &mut Owner) -> Result<(), Error> {
        if owner.build != target.build {
            let meta = self.meta(&target.replica, &target.table)?;
            return Err(if meta.build == target.build { moved(target, batch.partition) } else { superseded(&meta) });
        }
        if owner.fence > batch.fence {
            return Err(fenced(target, batch.partition));
        }
        if owner.fence < batch.fence {
            return Err(moved(target, batch.partition));
        }
        if !batch.is_empty() {
            self.rely(target)?;
        }
        if owner.producer.is_none() {
            self.resume(target, batch.partition, owner)?;
        }
        if owner.next != batch.expected {
            return Err(moved(target, batch.partition));
        }
        let rows = self.rows.remove(&target.replica).filter(|rows| rows.serves(target));
        let mut rows = rows.unwrap_or_else(|| Rows::new(&target.schema));
        let outcome = self.check_sizes(target, batch).and_then(|()| self.publish(&target.schema, rows.fingerprint()));
        let outcome = outcome.and_then(|()| {
            let producer = owner.producer.take().ok_or_else(|| moved(target, batch.partition))?;
            write(&producer, target, batch, &mut rows, owner.fence)?;
            (owner.next, owner.producer, owner.seen, owner.used) = (Some(batch.next), Some(producer), None, self.process.tick());
            Ok(())
        });
        let _ = self.rows.insert(target.replica.clone(), rows);
        outcome
    }

    /// A row that no broker would take is refused before anything is begun.
    fn check_sizes(&self, target: &Target, batch: &Batch) -> Result<(), Error> {
        let own = self.options.kafka.client.iter().find(|(name, _)| name == "message.max.bytes").and_then(|(_, most)| most.parse().ok());
        let most = own.unwrap_or(RECORD_BYTES_MAX);
        let Some(bytes) = batch.deltas().map(|d| Rows::bytes_most(&d)).find(|bytes| *bytes > most) else { return Ok(()) };
        let what = format!("a row of {bytes} bytes is more than topic {:?} takes, which is {most}", target.table);
        Err(Error::new(Kind::Unsupported, what))
    }

    /// Makes the contract of rows known before the first row that names it.
    fn publish(&mut self, schema: &TableSchema, fingerprint: Fingerprint) -> Result<(), Error> {
        if lock(&self.process.published).contains(&fingerprint) {
            return Ok(());
        }
        let topic = self.options.schemas.clone();
        let _ = self.links()?.topics.ensure(&topic, Purpose::Compacted, 1, None).map_err(error::of_topic)?;
        let (text, _) = contract::of_rows(schema);
        let failed = |e| error::of(format!("writing to topic {topic:?}"), e);
        let producer = Producer::new(&self.options.kafka).map_err(failed)?;
        let key = fingerprint.0.to_be_bytes();
        let record = Plain { topic: &topic, partition: 0, key: Some(&key), value: text.as_bytes(), headers: [None; 2] };
        producer.send_and_wait(record, 0, TIMEOUT).map_err(failed)?;
        let _ = lock(&self.process.published).insert(fingerprint);
        Ok(())
    }

    /// Makes sure that the topic of a target is its own and has the columns.
    fn rely(&mut self, target: &Target) -> Result<(), Error> {
        let covers = |known: &Known| known.build == target.build && known.schema.columns().starts_with(target.schema.columns());
        if lock(&self.process.known).get(&target.replica).is_some_and(covers) {
            return Ok(());
        }
        let meta = self.meta(&target.replica, &target.table)?;
        if meta.build != target.build {
            return Err(superseded(&meta));
        }
        let unprepared = || Error::new(Kind::Build, format!("topic {:?} of replica {:?} is not prepared", target.table, target.replica));
        let known = Known {
            build: meta.build,
            schema: meta.schema()?.ok_or_else(unprepared)?,
            incarnation: meta.incarnation.clone().ok_or_else(unprepared)?,
        };
        if !covers(&known) {
            return Err(Error::new(Kind::CursorMoved, format!("the schema of replica {:?} was put back", target.replica)));
        }
        let _ = lock(&self.process.known).insert(target.replica.clone(), known);
        Ok(())
    }

    /// The cursor from memory, where nobody has written since and the topic is the same.
    fn unmoved(&mut self, target: &Target, partition: i32, owner: &Owner) -> Result<Option<Cursor>, Error> {
        if owner.producer.is_none() || owner.build != target.build || owner.seen.is_none() {
            return Ok(None);
        }
        let end = self.links()?.tail.bounds(&cursors_topic(&target.table), partition)?.1;
        if owner.seen != Some(end) {
            return Ok(None);
        }
        let known = lock(&self.process.known).get(&target.replica).map(|known| known.incarnation.clone());
        if let Some(incarnation) = known
            && self.incarnation(&target.table)?.as_ref() != Some(&incarnation)
        {
            return Ok(None);
        }
        Ok(Some(Cursor { fence: owner.fence, build: owner.build, next: owner.next }))
    }
}

/// Rows, and the cursor once all copies have them.
fn write(producer: &Fencing, target: &Target, batch: &Batch, rows: &mut Rows, fence: u64) -> Result<(), Error> {
    producer.begin()?;
    for delta in batch.deltas() {
        let (key, value, headers) = rows.encode(&delta, batch.partition)?;
        producer.send(Outgoing { topic: &target.table, partition: batch.partition, key, value, headers: Some(headers) })?;
    }
    producer.settle()?;
    fault::point("mid_land");
    let placed = Placed { fence, build: target.build, generation: target.generation, next: Some(batch.next) };
    KafkaSink::send_cursor(producer, target, batch.partition, &placed)?;
    producer.commit()?;
    fault::point("reply_lost");
    Ok(())
}

impl Sink for KafkaSink {
    fn open(&mut self, replica: &str, table: &str, build: Option<u16>) -> Result<Opened, Error> {
        let meta = self.meta(replica, table)?;
        let asked = build.unwrap_or(meta.build);
        if asked < meta.build {
            return Err(superseded(&meta));
        }
        if asked > meta.build || self.is_lost(&meta, table)? {
            let _ = self.raise(replica, table, build)?;
            let meta = self.meta(replica, table)?;
            return Ok(Opened { build: meta.build, schema: meta.schema()? });
        }
        if meta.incarnation.is_some() {
            self.check_settings(table)?;
        }
        Ok(Opened { build: meta.build, schema: meta.schema()? })
    }

    fn prepare(&mut self, target: &Target) -> Result<(), Error> {
        let known = self.cover(target)?;
        let (schema, fingerprint) = (known.schema.clone(), contract::of_rows(&known.schema).1);
        let _ = lock(&self.process.known).insert(target.replica.clone(), known);
        self.publish(&schema, fingerprint)
    }

    fn claim(&mut self, target: &Target, partition: i32) -> Result<Claim, Error> {
        let home = self.home(&target.table)?;
        if !(0..home.metas()).contains(&partition) {
            let what = format!("topic {:?} has {} partitions, and the log has a partition {partition}", target.table, home.partitions);
            return Err(Error::new(Kind::TableChanged, what));
        }
        self.process.disown(target, partition);
        let _ = lock(&self.process.known).remove(&target.replica);
        let producer = self.fence(&target.replica, partition)?;
        // Read behind the fence: whoever raises the build writes it before it fences.
        let meta = self.meta(&target.replica, &target.table)?;
        if meta.build != target.build {
            return Err(superseded(&meta));
        }
        if self.is_lost(&meta, &target.table)? {
            let build = self.raise(&target.replica, &target.table, None)?;
            return Err(Error::new(
                Kind::Build,
                format!("topic {:?} was deleted; build {build} of replica {:?} is in force", target.table, target.replica),
            ));
        }
        let former = self.placed(target, partition, true)?;
        if let Some(former) = former.filter(|f| f.generation > target.generation) {
            return Err(Error::new(Kind::Build, format!("generation {} of replica {:?} is in force", former.generation, target.replica)));
        }
        let is_current = |f: &Placed| f.build == target.build && f.generation == target.generation;
        if former.is_some_and(|f| !is_current(&f)) && meta.incarnation.is_some() {
            self.clear(&producer, target, partition)?;
        }
        let next = former.filter(is_current).and_then(|f| f.next);
        let placed = Placed { fence: former.map_or(0, |f| f.fence) + 1, build: target.build, generation: target.generation, next };
        Self::place(&producer, target, partition, &placed)?;
        let owner = Owner { fence: placed.fence, build: target.build, next, producer: Some(producer), seen: None, used: self.process.tick() };
        let former = lock(&self.process.owners).insert((target.replica.clone(), partition), Arc::new(Mutex::new(owner)));
        drop(former);
        self.process.close_surplus();
        Ok(Claim { fence: placed.fence, next })
    }

    fn cursor(&mut self, target: &Target, partition: i32) -> Result<Option<Cursor>, Error> {
        let owner = self.process.owner(target, partition);
        let mut owner = owner.as_ref().map(|owner| lock(owner));
        if let Some(owner) = &owner
            && let Some(cursor) = self.unmoved(target, partition, owner)?
        {
            return Ok(Some(cursor));
        }
        let meta = self.meta(&target.replica, &target.table)?;
        if meta.build != target.build {
            return Ok(None);
        }
        if self.is_lost(&meta, &target.table)? {
            let _ = self.raise(&target.replica, &target.table, None)?;
            return Ok(None);
        }
        // What this process left open is settled before its outcome is told; where another has taken over, that one's word counts.
        if let Some(owner) = owner.as_mut().filter(|o| o.producer.is_none()) {
            match self.resume(target, partition, owner) {
                Err(e) if !matches!(e.kind, Kind::Fenced | Kind::CursorMoved) => return Err(e),
                _ => {}
            }
        }
        let end = self.links()?.tail.bounds(&cursors_topic(&target.table), partition)?.1;
        let placed = self.placed(target, partition, true)?;
        if let (Some(owner), Some(placed)) = (&mut owner, placed) {
            owner.seen = (owner.fence == placed.fence && owner.next == placed.next).then_some(end);
        }
        Ok(placed.map(|placed| Cursor { fence: placed.fence, build: placed.build, next: placed.next }))
    }

    fn land(&mut self, target: &Target, batch: &Batch) -> Result<(), Error> {
        let Some(owner) = self.process.owner(target, batch.partition) else {
            let error = self.not_mine(target, batch.partition, batch.fence)?;
            return Err(error);
        };
        let mut owner = lock(&owner);
        match self.land_as(target, batch, &mut owner) {
            Err(error) if error.kind == Kind::Fenced => {
                // Also what raises a build fences; whose word it was is in the records.
                let fence = owner.fence;
                Err(match self.not_mine(target, batch.partition, fence)? {
                    other if other.kind == Kind::CursorMoved => error,
                    other => other,
                })
            }
            outcome => outcome,
        }
    }

    fn rebuild(&mut self, replica: &str, table: &str) -> Result<u16, Error> {
        self.raise(replica, table, None)
    }
}

fn superseded(meta: &Meta) -> Error {
    Error::new(Kind::Build, format!("build {} of replica {:?} is in force", meta.build, meta.replica))
}

fn fenced(target: &Target, partition: i32) -> Error {
    Error::new(Kind::Fenced, format!("partition {partition} of replica {:?} has another owner", target.replica))
}

fn moved(target: &Target, partition: i32) -> Error {
    Error::new(Kind::CursorMoved, format!("cursor of partition {partition} of replica {:?} moved", target.replica))
}
