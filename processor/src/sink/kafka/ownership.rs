//! Whose a topic is, and which build is in force.
//!
//! What is known of replicas changes under a producer's name that one process at a time has: it takes the name, reads what is there, and writes.
//! Whoever loses the name meanwhile has changed nothing, and looks again.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::Duration;

use landfall_schemas::table::Evolution;
use landfall_schemas::value::push_hex;
use landfall_schemas::{TableSchema, contract};
use landfall_topology::plan::cursors_topic;
use rdkafka::message::{Header, OwnedHeaders};

use super::producer::{Fencing, Outgoing};
use super::records::{Meta, Placed};
use super::{CLEARED_AT_ONCE, Home, KafkaSink, Known, error, lock, rows, superseded};
use crate::log::topics::Purpose;
use crate::sink::{Error, Kind, Target};

/// How often a change is tried that others get in the way of.
const TRIES: u32 = 12;

/// What a look at the records of replicas comes to.
enum Found<T> {
    /// Nothing has to be written.
    Is(T),
    /// This has to be.
    Becomes(Meta, T),
}

/// What came of covering a schema.
enum Covered {
    /// The topic is there and ours, with these columns.
    Yes(Known),
    /// It is announced that the topic will be made; that comes next.
    Announced,
    /// The topic that was ours is gone.
    Lost,
}

impl KafkaSink {
    /// How many partitions a table's topic has or gets; makes the topic of its cursors where it is not there.
    pub(super) fn home(&mut self, table: &str) -> Result<Home, Error> {
        if let Some(home) = self.homes.get(table) {
            return Ok(*home);
        }
        let fixed = self.options.partitions;
        let topics = &self.links()?.topics;
        let home = match fixed {
            Some(partitions) => Home { partitions, copies: 1 },
            None => {
                let log = table.strip_suffix(".latest").unwrap_or(table);
                let layout = topics.layout(log).map_err(|e| error::of("the topics of the cluster cannot be listed", e))?;
                let (partitions, copies) = layout.ok_or_else(|| Error::new(Kind::Unavailable, format!("the log {log:?} is not there")))?;
                Home { partitions, copies }
            }
        };
        let cursors = cursors_topic(table);
        let described = topics.ensure(&cursors, Purpose::Cursors, home.partitions + 1, Some(home.copies)).map_err(error::of_topic)?;
        check_partitions(&cursors, described.partitions, home.partitions + 1)?;
        self.check_policy(&cursors)?;
        let _ = self.homes.insert(table.to_owned(), home);
        Ok(home)
    }

    fn check_policy(&mut self, topic: &str) -> Result<(), Error> {
        let setting = self.links()?.topics.setting(topic, "cleanup.policy");
        let policy = setting.map_err(|e| error::of(format!("the settings of topic {topic:?} cannot be read"), e))?;
        match policy.as_deref() {
            Some("compact") | None => Ok(()),
            Some(other) => Err(Error::new(
                Kind::TableChanged,
                format!("topic {topic:?} has cleanup.policy {other:?}, and only a compacted one keeps the newest row of every key"),
            )),
        }
    }

    /// Whether our own topic still is what it was made as.
    pub(super) fn check_settings(&mut self, table: &str) -> Result<(), Error> {
        let home = self.home(table)?;
        if let [Some(described)] = self.links()?.topics.describe(&[table]).map_err(|e| error::of_topic(e.into()))?[..] {
            check_partitions(table, described.partitions, home.partitions)?;
        }
        self.check_policy(table)
    }

    /// The id of a topic, where it is there.
    pub(super) fn incarnation(&mut self, topic: &str) -> Result<Option<String>, Error> {
        let found = self.links()?.topics.describe(&[topic]).map_err(|e| error::of_topic(e.into()))?;
        Ok(found.into_iter().next().flatten().map(|described| {
            let mut text = String::new();
            push_hex(&mut text, &described.incarnation);
            text
        }))
    }

    /// Whether a replica had a topic that is no longer there, or another one now.
    pub(super) fn is_lost(&mut self, meta: &Meta, table: &str) -> Result<bool, Error> {
        Ok(meta.incarnation.is_some() && self.incarnation(table)? != meta.incarnation)
    }

    /// Changes what is known of a replica, as the only one who does.
    fn change<T>(&mut self, table: &str, mut look: impl FnMut(&mut Self, &BTreeMap<String, Meta>) -> Result<Found<T>, Error>) -> Result<T, Error> {
        let process = std::sync::Arc::clone(&self.process);
        let _changing = lock(&process.changing);
        let (home, cursors) = (self.home(table)?, cursors_topic(table));
        for turn in 0..TRIES {
            let metas = self.metas(table)?;
            if let Found::Is(value) = look(self, &metas)? {
                return Ok(value);
            }
            let changed = Fencing::new(&self.options.kafka, &cursors).and_then(|producer| {
                let metas = self.metas(table)?;
                let (meta, value) = match look(self, &metas)? {
                    Found::Is(value) => return Ok(value),
                    Found::Becomes(meta, value) => (meta, value),
                };
                producer.begin()?;
                let (key, bytes) = (meta.replica.clone(), meta.encode());
                producer.send(Outgoing { topic: &cursors, partition: home.metas(), key: key.as_bytes(), value: Some(&bytes), headers: None })?;
                producer.commit()?;
                Ok(value)
            });
            match changed {
                // Others wait for another time than this one, or they would meet again and again.
                Err(error) if error.kind == Kind::Fenced => {
                    let chance = RandomState::new().hash_one(turn) % u64::from(100 * (turn + 1));
                    std::thread::park_timeout(Duration::from_millis(20 + chance));
                }
                outcome => return outcome,
            }
        }
        Err(Error::new(Kind::Unavailable, format!("others change what is known of topic {table:?} again and again")))
    }

    /// Makes the topic of a target where it is not there, and notes the columns that it lacks.
    pub(super) fn cover(&mut self, target: &Target) -> Result<Known, Error> {
        // At most: announced, made.
        for _ in 0..3 {
            match self.change(&target.table, |sink, metas| sink.cover_once(target, metas))? {
                Covered::Yes(known) => return Ok(known),
                Covered::Announced => {}
                Covered::Lost => {
                    let build = self.raise(&target.replica, &target.table, None)?;
                    let what = format!("topic {:?} was deleted; build {build} of replica {:?} is in force", target.table, target.replica);
                    return Err(Error::new(Kind::Build, what));
                }
            }
        }
        Err(Error::new(Kind::Unavailable, format!("topic {:?} cannot be made now", target.table)))
    }

    fn cover_once(&mut self, target: &Target, metas: &BTreeMap<String, Meta>) -> Result<Found<Covered>, Error> {
        let table = &target.table;
        if let Some(owner) = metas.values().find(|meta| meta.replica != target.replica && meta.owns()) {
            return Err(Error::new(Kind::TableExists, format!("topic {table:?} belongs to replica {:?}", owner.replica)));
        }
        let known = metas.get(&target.replica);
        let meta = known.cloned().unwrap_or_else(|| Meta { replica: target.replica.clone(), ..Meta::default() });
        if meta.build != target.build {
            return Err(superseded(&meta));
        }
        let stored = meta.schema()?;
        let schema = match stored.as_ref().map(|schema| (schema, schema.compare(&target.schema))) {
            None => TableSchema::clone(&target.schema),
            Some((schema, Evolution::Covers { added, .. })) => schema.with_columns(&added),
            Some((_, evolution)) => return Err(Error::new(Kind::TableChanged, evolution.refusal(table).1)),
        };
        let found = self.incarnation(table)?;
        let incarnation = match (&meta.incarnation, found) {
            (Some(ours), Some(found)) if *ours == found => {
                self.check_settings(table)?;
                found
            }
            (Some(_), _) => return Ok(Found::Is(Covered::Lost)),
            (None, None) if !meta.creating => return Ok(Found::Becomes(Meta { creating: true, ..meta }, Covered::Announced)),
            (None, None) => {
                let home = self.home(table)?;
                let _ = self.links()?.topics.ensure(table, Purpose::Compacted, home.partitions, Some(home.copies)).map_err(error::of_topic)?;
                self.incarnation(table)?.ok_or_else(|| Error::new(Kind::Unavailable, format!("topic {table:?} is not there yet")))?
            }
            // A crash came between making the topic and noting its id.
            (None, Some(found)) if meta.creating && self.is_empty(table)? => {
                self.check_settings(table)?;
                found
            }
            (None, Some(_)) => {
                return Err(Error::new(Kind::TableExists, format!("topic {table:?} exists and was not made for replica {:?}", target.replica)));
            }
        };
        let covered = Known { build: meta.build, schema: schema.clone(), incarnation: incarnation.clone() };
        if stored.as_ref() == Some(&schema) && meta.incarnation.as_ref() == Some(&incarnation) && !meta.creating {
            return Ok(Found::Is(Covered::Yes(covered)));
        }
        let contract = Some(contract::of(&schema).0);
        Ok(Found::Becomes(Meta { contract, incarnation: Some(incarnation), creating: false, ..meta }, Covered::Yes(covered)))
    }

    fn is_empty(&mut self, table: &str) -> Result<bool, Error> {
        let home = self.home(table)?;
        let tail = &self.links()?.tail;
        (0..home.metas()).try_fold(true, |empty, partition| Ok(empty && tail.bounds(table, partition)?.1 == 0))
    }

    /// Puts a higher build in force: the one asked for, or the next. Nobody lands under the former any more, and its rows go.
    pub(super) fn raise(&mut self, replica: &str, table: &str, asked: Option<u16>) -> Result<u16, Error> {
        let mut before = None;
        let meta = self.change(table, |sink, metas| {
            let meta = metas.get(replica).cloned().unwrap_or_else(|| Meta { replica: replica.to_owned(), ..Meta::default() });
            // Another may have been quicker; its build does as well.
            let first = *before.get_or_insert(meta.build);
            if meta.build != first && asked.is_none_or(|asked| asked <= meta.build) {
                return Ok(Found::Is(meta));
            }
            let used_up = || Error::new(Kind::Unsupported, format!("replica {replica:?} has used up its builds"));
            let next = meta.build.checked_add(1).ok_or_else(used_up)?;
            let incarnation = if sink.is_lost(&meta, table)? { None } else { meta.incarnation.clone() };
            let raised = Meta { build: asked.map_or(next, |asked| asked.max(next)), contract: None, incarnation, ..meta };
            Ok(Found::Becomes(raised.clone(), raised))
        })?;
        let _ = lock(&self.process.known).remove(replica);
        let home = self.home(table)?;
        for partition in 0..home.metas() {
            match self.give_up(&meta, table, partition) {
                // Whoever has claimed it under the new build sees to it.
                Err(error) if error.kind == Kind::Fenced => {}
                outcome => outcome?,
            }
        }
        Ok(meta.build)
    }

    /// Takes a partition from whoever lands it under an earlier build, and deletes its rows.
    fn give_up(&mut self, meta: &Meta, table: &str, partition: i32) -> Result<(), Error> {
        let producer = self.fence(&meta.replica, partition)?;
        let Some(former) = Placed::read(&self.links()?.tail, &cursors_topic(table), &meta.replica, partition, true)? else { return Ok(()) };
        if former.build >= meta.build {
            return Ok(());
        }
        let schema = std::sync::Arc::new(TableSchema::of_marks(table));
        let target = Target { replica: meta.replica.clone(), table: table.to_owned(), generation: former.generation, build: meta.build, schema };
        if meta.incarnation.is_some() {
            self.clear(&producer, &target, partition)?;
        }
        let placed = Placed { fence: former.fence + 1, build: meta.build, next: None, ..former };
        Self::place(&producer, &target, partition, &placed)
    }

    /// Deletes every row of a partition: those of an earlier build do not count, and a consumer that follows the topic has to learn it.
    pub(super) fn clear(&mut self, producer: &Fencing, target: &Target, partition: i32) -> Result<(), Error> {
        let (table, tail) = (&target.table, &self.links()?.tail);
        let (low, high) = tail.bounds(table, partition)?;
        let build = target.build.to_string();
        let mut open = 0;
        tail.read(table, partition, low, high, |record| {
            let (Some(key), Some(_)) = (record.key, record.value) else { return Ok(()) };
            if open == 0 {
                producer.begin()?;
            }
            let headers = OwnedHeaders::new_with_capacity(1).insert(Header { key: rows::BUILD, value: Some(build.as_str()) });
            producer.send(Outgoing { topic: table, partition, key, value: None, headers: Some(headers) })?;
            open += 1;
            if open == CLEARED_AT_ONCE {
                open = 0;
                producer.commit()?;
            }
            Ok(())
        })?;
        if open > 0 { producer.commit() } else { Ok(()) }
    }
}

fn check_partitions(topic: &str, found: u32, wanted: u32) -> Result<(), Error> {
    if found == wanted {
        return Ok(());
    }
    Err(Error::new(Kind::TableChanged, format!("topic {topic:?} has {found} partitions instead of {wanted}")))
}
