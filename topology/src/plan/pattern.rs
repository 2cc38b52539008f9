//! Entries that stand for many tables, and how topics become tables.
//!
//! The rule for the id of a derived table: the last part of its topic where the entry fixes the schema, `<schema>_<table>` where it
//! does not, and the whole topic where the entry is a pattern on topics; every character outside `[A-Za-z0-9_-]` becomes `_`. The
//! rule is not injective, so [`Plan::expand`] refuses every topic of a clash, not all but the first: which table an id means must
//! not depend on the order in which topics appear.

use std::collections::{BTreeMap, BTreeSet};

use landfall_schemas::LogicalType;
use regex::Regex;

use super::{ColumnRulesPlan, FallbackPlan, LogFormat, LogPlan, Plan, ReplicaPlan, Retention, StoreKind, TablePlan, cursors_topic, latest_topic};
use crate::names;

/// An entry with a glob or a regular expression.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TablePattern {
    /// Id of the entry; its tables derive their own.
    pub id: String,
    /// Place of its source in [`Plan::sources`].
    pub source: usize,
    /// Key columns of every table; none means those of the record key.
    pub primary_key: Option<Vec<String>>,
    /// Declared types of every table.
    pub types: Vec<(String, LogicalType)>,
    /// Rules for the columns of every table.
    pub rules: ColumnRulesPlan,
    /// Whether later events of a key wait behind one that is a dead letter.
    pub park_key: bool,
    /// Whether types that nobody says are inferred from records.
    pub infer_types: bool,
    /// What stands for values that cannot land.
    pub fallback: FallbackPlan,
    pub(crate) matcher: Matcher,
    pub(crate) topology: String,
    pub(crate) log_template: String,
    pub(crate) log_partitions: u32,
    pub(crate) log_replication: Option<u16>,
    pub(crate) log_format: LogFormat,
    /// Replicas without a table name.
    pub(crate) replicas: Vec<ReplicaPlan>,
    /// The store id and kind of each replica.
    pub(crate) stores: Vec<(String, StoreKind)>,
}

impl PartialEq for TablePattern {
    fn eq(&self, other: &Self) -> bool {
        // Every part but the compiled form of `matcher`, whose source decides.
        let Self {
            id,
            source,
            primary_key,
            types,
            rules,
            park_key,
            infer_types,
            fallback,
            matcher,
            topology,
            log_template,
            log_partitions,
            log_replication,
            log_format,
            replicas,
            stores,
        } = self;
        *id == other.id
            && *source == other.source
            && *primary_key == other.primary_key
            && *types == other.types
            && *rules == other.rules
            && *park_key == other.park_key
            && *infer_types == other.infer_types
            && *fallback == other.fallback
            && matcher.regex.as_str() == other.matcher.regex.as_str()
            && matcher.id == other.matcher.id
            && matcher.text == other.matcher.text
            && *topology == other.topology
            && *log_template == other.log_template
            && *log_partitions == other.log_partitions
            && *log_replication == other.log_replication
            && *log_format == other.log_format
            && *replicas == other.replicas
            && *stores == other.stores
    }
}

/// Which topics, and which of their parts make the id.
#[derive(Clone, Debug)]
pub(crate) struct Matcher {
    /// Matches whole topics. Groups `lf_schema` and `lf_table` where the entry is a pattern on tables.
    pub(crate) regex: Regex,
    pub(crate) id: IdFrom,
    /// As written, for people.
    pub(crate) text: String,
}

/// Which parts of a topic make the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdFrom {
    Table,
    SchemaAndTable,
    Topic,
}

/// Why a topic that an entry matches makes no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpandError {
    /// The derived id is too long, or one that Landfall keeps for itself.
    #[error("topic {topic:?} gives table id {id}, which {why}; name the table in an entry of its own")]
    Id {
        /// The topic.
        topic: String,
        /// The derived id.
        id: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A store cannot hold a table of that name.
    #[error("topic {topic:?} gives table {table}, which store {store} cannot hold: it {why}; name the table in an entry of its own")]
    Target {
        /// The topic.
        topic: String,
        /// Name of the table in the store.
        table: String,
        /// Id of the store.
        store: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The log would have no legal topic name.
    #[error("topic {topic:?} gives log topic {log}, which {why}; name the table in an entry of its own")]
    Log {
        /// The topic.
        topic: String,
        /// The derived log topic.
        log: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl TablePattern {
    /// The table of a topic; nothing if the entry does not match it.
    ///
    /// # Errors
    /// [`ExpandError`] if the topic matches but its names cannot be used. Clashes between tables show only in [`Plan::expand`].
    pub fn expand(&self, topic: &str) -> Option<Result<TablePlan, ExpandError>> {
        let captures = self.matcher.regex.captures(topic)?;
        let part = |name| captures.name(name).map_or("", |m| m.as_str());
        let id = match self.matcher.id {
            IdFrom::Table => names::plain(part("lf_table")),
            IdFrom::SchemaAndTable => names::plain(&format!("{}_{}", part("lf_schema"), part("lf_table"))),
            IdFrom::Topic => names::plain(topic),
        };
        Some(self.table(topic, id))
    }

    fn table(&self, topic: &str, id: String) -> Result<TablePlan, ExpandError> {
        if let Err(why) = names::table_id(&id) {
            return Err(ExpandError::Id { topic: topic.to_owned(), id, why });
        }
        let log = self.log_template.replace("{topology}", &self.topology).replace("{table}", &id);
        if let Err(why) = names::topic(&log) {
            return Err(ExpandError::Log { topic: topic.to_owned(), log, why });
        }
        let mut replicas = self.replicas.clone();
        for (replica, (store, kind)) in replicas.iter_mut().zip(&self.stores) {
            replica.id = format!("{store}.{id}");
            if *kind == StoreKind::Kafka {
                if let Err(why) = names::log_with_latest(&log) {
                    return Err(ExpandError::Log { topic: topic.to_owned(), log, why });
                }
                replica.table = latest_topic(&log);
                continue;
            }
            if let Err(why) = names::target(kind, &id) {
                return Err(ExpandError::Target { topic: topic.to_owned(), table: id, store: store.clone(), why });
            }
            replica.table.clone_from(&id);
        }
        Ok(TablePlan {
            id,
            source: self.source,
            topic: topic.to_owned(),
            source_schema: None,
            source_table: None,
            primary_key: self.primary_key.clone(),
            types: self.types.clone(),
            rules: self.rules.clone(),
            park_key: self.park_key,
            infer_types: self.infer_types,
            fallback: self.fallback,
            is_derived: true,
            log: LogPlan {
                topic: log,
                partitions: self.log_partitions,
                replication: self.log_replication,
                retention: Retention::Forever,
                format: self.log_format,
            },
            replicas,
        })
    }
}

/// The log that a topic belongs to by its name: itself, or what stands before `.latest` or `.latest.cursors`.
fn log_of(topic: &str) -> &str {
    let latest = topic.strip_suffix(".cursors").filter(|t| t.ends_with(".latest")).unwrap_or(topic);
    latest.strip_suffix(".latest").unwrap_or(topic)
}

/// What the patterns of a plan make of the topics that exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expansion {
    /// The derived tables, in the order of their topics.
    pub tables: Vec<TablePlan>,
    /// Topics that a pattern matches but that make no table, with the reason.
    pub refused: Vec<Refused>,
}

/// A topic that makes no table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The topic.
    pub topic: String,
    /// Id of the pattern that matches it.
    pub pattern: String,
    /// Why, and the way out.
    pub reason: String,
}

impl Plan {
    /// The tables that the patterns make of `topics`: a function of the set of topics alone.
    ///
    /// Topics of named tables and Landfall's own are left out; of several patterns the first that matches counts. Two topics whose
    /// tables would share an id, a log or a target are both refused.
    pub fn expand<'t, I>(&self, topics: I) -> Expansion
    where
        I: IntoIterator<Item = &'t str>,
    {
        let topics: BTreeSet<&str> = topics.into_iter().collect();
        let mut expansion = Expansion::default();
        let mut candidates: Vec<(&TablePattern, TablePlan)> = Vec::new();
        for topic in topics {
            if self.tables.iter().any(|t| t.topic == topic) || self.is_own_topic(topic) {
                continue;
            }
            let matched = self.patterns.iter().find_map(|p| Some((p, p.expand(topic)?)));
            match matched {
                None => {}
                Some((pattern, Ok(table))) => candidates.push((pattern, table)),
                Some((pattern, Err(error))) => {
                    expansion.refused.push(Refused { topic: topic.to_owned(), pattern: pattern.id.clone(), reason: error.to_string() })
                }
            }
        }
        // A log of a derived table may itself look like a source topic.
        let logs: BTreeSet<String> = candidates.iter().map(|(_, t)| t.log.topic.clone()).collect();
        candidates.retain(|(_, t)| !logs.contains(&t.topic) && !logs.contains(log_of(&t.topic)));

        let mut claims: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for table in self.tables.iter().chain(candidates.iter().map(|(_, t)| t)) {
            for claim in self.claims(table) {
                claims.entry(claim).or_default().push(&table.topic);
            }
        }
        let mut refused = Vec::new();
        for (pattern, table) in &candidates {
            let clash = self.claims(table).into_iter().find_map(|claim| {
                let others = claims.get(&claim)?;
                let other = others.iter().find(|other| **other != table.topic)?;
                Some(format!("its {claim} is also that of topic {other}; name the table in an entry of its own"))
            });
            refused.push(clash.map(|reason| Refused { topic: table.topic.clone(), pattern: pattern.id.clone(), reason }));
        }
        for ((_, table), refused) in candidates.into_iter().zip(refused) {
            match refused {
                None => expansion.tables.push(table),
                Some(refused) => expansion.refused.push(refused),
            }
        }
        expansion.refused.sort_by(|a, b| a.topic.cmp(&b.topic));
        expansion
    }

    /// True for a topic that Landfall writes: a log, its `.latest` and the cursors of that, or one of the three of the topology.
    pub fn is_own_topic(&self, topic: &str) -> bool {
        self.tables.iter().any(|t| t.log.topic == topic || t.log.topic == log_of(topic))
            || [self.control_topic(), self.schemas_topic(), self.dead_letters_topic()].iter().any(|own| own == topic)
    }

    /// What no two tables may share, in words for a message.
    pub(crate) fn claims(&self, table: &TablePlan) -> Vec<String> {
        let mut claims = vec![
            format!("table id {}", table.id.to_lowercase()),
            // Kafka refuses a topic that differs from another only in dots and underscores.
            format!("log topic {}", table.log.topic.replace('.', "_")),
        ];
        if let Some(latest) = self.latest(table) {
            claims.extend([latest.table.clone(), cursors_topic(&latest.table)].map(|topic| format!("log topic {}", topic.replace('.', "_"))));
        }
        for replica in &table.replicas {
            let Some(store) = self.stores.get(replica.store) else {
                continue;
            };
            // Stores that are one place count as the first of them.
            let place = self.stores.iter().find(|s| s.kind.same_place(&store.kind)).unwrap_or(store);
            for name in names::occupied(&store.kind, &replica.table) {
                claims.push(format!("target {name} in store {}", place.id));
            }
        }
        claims
    }
}
