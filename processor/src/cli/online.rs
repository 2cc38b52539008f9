//! `landfall check --online`: is everything there that the topology names, and does it let us in?
//!
//! Asks and changes nothing: topics are looked at, stores get one query that reads nothing of anybody's. What is not there yet but will be made
//! by `run` is no problem; what `run` would stop at is.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use landfall_topology::Plan;
use landfall_topology::plan::{RegistryPlan, StoreKind, TablePlan, cursors_topic};
use serde::Serialize;

use super::paper::{Field, Mood, Paper, counted, printable};
use super::status::inferred_text;
use crate::log::control;
use crate::log::topics::TIMEOUT;
use crate::log::voice;
use crate::registry::Client;
use crate::run::{clickhouse_options, postgres_options};
use crate::sink::query::Limits;
use crate::sink::{Error, Kind, clickhouse, duckdb, postgres};

/// Brokers from which on a change log has all its copies (ARCHITECTURE.md, The log).
const BROKERS: usize = 3;

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// As it should be.
    #[serde(rename = "ok")]
    Good,
    /// It works, and deserves a look.
    #[serde(rename = "warning")]
    Odd,
    /// `run` would fail or stop here.
    #[serde(rename = "error")]
    Bad,
}

/// What was found of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How it stands.
    pub standing: Standing,
    /// What was asked, such as `kafka localhost:9092` or `store warehouse`.
    pub subject: String,
    /// What was found.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Finding {
    fn new(standing: Standing, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { standing, subject: subject.into(), message: message.into(), hint: None }
    }

    fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }
}

/// Asks Kafka and every store of a plan.
pub fn ask(plan: &Plan) -> Vec<Finding> {
    let mut findings = match cluster(plan) {
        Ok(cluster) => {
            let mut findings = kafka(plan, &cluster);
            findings.extend(inferred(plan, &cluster));
            findings
        }
        Err(finding) => vec![finding],
    };
    findings.extend(plan.kafka.registry.as_ref().map(registry));
    // Topics of newest rows are in the cluster that was asked already.
    findings.extend(plan.stores.iter().filter(|s| s.kind != StoreKind::Kafka).map(|s| store(&s.id, &s.kind)));
    findings
}

/// Prints what was found.
pub fn print(findings: &[Finding], paper: &mut Paper<'_>) -> std::io::Result<()> {
    let row = |finding: &Finding| {
        let (word, mood) = match finding.standing {
            Standing::Good => ("ok", Mood::Good),
            Standing::Odd => ("warning", Mood::Odd),
            Standing::Bad => ("problem", Mood::Bad),
        };
        [Field::from(finding.subject.as_str()), Field::of(word, mood), Field::from(finding.message.as_str())]
    };
    paper.table(&["asked", "answer", "found"], findings.iter().map(row))?;
    for finding in findings {
        if let Some(hint) = &finding.hint {
            paper.line("")?;
            paper.line(printable(&finding.subject))?;
            paper.indented("  ", &format!("hint: {hint}"))?;
        }
    }
    Ok(())
}

/// What is wanted of a cluster's metadata.
#[derive(Clone, Debug, Default)]
struct Cluster {
    brokers: usize,
    /// Partitions by topic.
    topics: BTreeMap<String, usize>,
}

fn cluster(plan: &Plan) -> Result<Cluster, Finding> {
    let metadata = voice::reach(&plan.kafka, TIMEOUT).map_err(|unreachable| {
        Finding::new(Standing::Bad, broker_names(plan), format!("cannot be reached: {unreachable}")).hint(unreachable.hint())
    })?;
    let topics = metadata.topics().iter().filter(|t| t.error().is_none()).map(|t| (t.name().to_owned(), t.partitions().len()));
    Ok(Cluster { brokers: metadata.brokers().len(), topics: topics.collect() })
}

/// Whether the registry answers; whether it has this schema does not matter.
fn registry(plan: &RegistryPlan) -> Finding {
    let subject = format!("registry {}", plan.url);
    match Client::new(plan).and_then(|client| client.get(1)) {
        Ok(_) => Finding::new(Standing::Good, subject, "answers"),
        Err(why) => Finding::new(Standing::Bad, subject, why).hint("is it running there, and do `kafka.registry` and its login fit it?"),
    }
}

/// The types that were inferred for the tables so far.
fn inferred(plan: &Plan, cluster: &Cluster) -> Vec<Finding> {
    let topic = plan.control_topic();
    if !cluster.topics.contains_key(&topic) {
        return Vec::new();
    }
    match control::load(&plan.kafka, &topic) {
        Err(error) => vec![Finding::new(Standing::Odd, format!("topic {topic}"), format!("cannot be read: {error}"))],
        Ok(control) => {
            let expansion = plan.expand(cluster.topics.keys().map(String::as_str));
            let tables = plan.tables.iter().chain(&expansion.tables);
            tables.filter_map(|table| Some(types(table, control.types.get(&table.id)?))).collect()
        }
    }
}

/// What is settled of a table, as a topology would declare it; a declared type that is another says so.
fn types(table: &TablePlan, settled: &control::Types) -> Finding {
    let subject = format!("types of {}", table.id);
    let declared = |column: &String| table.types.iter().find(|(name, _)| name == column).map(|(_, ty)| *ty);
    let others: Vec<String> = settled
        .iter()
        .filter_map(|(column, ty)| Some((column, ty, declared(column).filter(|other| other != ty)?)))
        .map(|(column, ty, other)| format!("{column} was {ty} and is declared {other}"))
        .collect();
    if others.is_empty() {
        return Finding::new(Standing::Good, subject, format!("inferred: {}", inferred_text(settled)));
    }
    Finding::new(Standing::Odd, subject, format!("inferred: {}; {}", inferred_text(settled), others.join(", ")))
        .hint("what is declared wins; where rows of the inferred type have been written, the table stops by the name of schema.type_changed")
}

fn broker_names(plan: &Plan) -> String {
    format!("kafka {}", plan.kafka.brokers.join(", "))
}

fn kafka(plan: &Plan, cluster: &Cluster) -> Vec<Finding> {
    let brokers = counted(cluster.brokers as u64, "broker");
    let mut findings = vec![if cluster.brokers < BROKERS {
        let message = format!("reached, {brokers}: change logs get {}", counted(cluster.brokers as u64, "copy").replace("copys", "copies"));
        Finding::new(Standing::Odd, broker_names(plan), message)
            .hint("three brokers or more survive the loss of one; with fewer, a lost disk is a lost log")
    } else {
        Finding::new(Standing::Good, broker_names(plan), format!("reached, {brokers}"))
    }];
    for table in &plan.tables {
        findings.push(input(table, cluster));
        findings.push(log(table, cluster));
        findings.extend(latest(plan, table, cluster));
    }
    if !plan.patterns.is_empty() {
        let expansion = plan.expand(cluster.topics.keys().map(String::as_str));
        let ids: Vec<&str> = expansion.tables.iter().map(|t| t.id.as_str()).collect();
        let subject = format!("patterns {}", plan.patterns.iter().map(|p| p.id.as_str()).collect::<Vec<_>>().join(", "));
        findings.push(if ids.is_empty() {
            Finding::new(Standing::Odd, subject, "match no topic now").hint("tables appear as soon as their topics do; see that the pattern is right")
        } else {
            Finding::new(Standing::Good, subject, format!("match {}: {}", counted(ids.len() as u64, "topic"), ids.join(", ")))
        });
        for refused in expansion.refused {
            findings.push(Finding::new(Standing::Odd, format!("topic {}", refused.topic), refused.reason));
        }
        for table in &expansion.tables {
            findings.push(log(table, cluster));
            findings.extend(latest(plan, table, cluster));
        }
    }
    findings
}

fn input(table: &TablePlan, cluster: &Cluster) -> Finding {
    let subject = format!("topic {}", table.topic);
    match cluster.topics.get(&table.topic) {
        Some(partitions) => Finding::new(Standing::Good, subject, counted(*partitions as u64, "partition")),
        None => Finding::new(Standing::Bad, subject, format!("is not there; table {} reads it", table.id)).hint(
            "see that source, schema and name of the table are right, and that its connector runs; a connector makes the topic with its first record",
        ),
    }
}

fn log(table: &TablePlan, cluster: &Cluster) -> Finding {
    let subject = format!("log {}", table.log.topic);
    let wanted = table.log.partitions;
    match cluster.topics.get(&table.log.topic) {
        None => Finding::new(Standing::Good, subject, format!("is not there yet: run makes it with {}", counted(u64::from(wanted), "partition"))),
        Some(found) if *found == wanted as usize => Finding::new(Standing::Good, subject, counted(*found as u64, "partition")),
        Some(found) => Finding::new(Standing::Bad, subject, format!("has {}, the topology says {wanted}", counted(*found as u64, "partition")))
            .hint("the number is pinned while a generation lives: put `log.partitions` back"),
    }
}

/// The topic of newest rows has the partitions of the log that is there, or that will be made.
fn latest(plan: &Plan, table: &TablePlan, cluster: &Cluster) -> Option<Finding> {
    let topic = &plan.latest(table)?.table;
    let subject = format!("newest rows {topic}");
    let wanted = cluster.topics.get(&table.log.topic).copied().unwrap_or(table.log.partitions as usize);
    let partitions = |n: usize| counted(n as u64, "partition");
    Some(match (cluster.topics.get(topic), cluster.topics.get(&cursors_topic(topic))) {
        (None, _) => Finding::new(Standing::Good, subject, format!("is not there yet: run makes it with {}", partitions(wanted))),
        (Some(_), None) => Finding::new(Standing::Bad, subject, "is there and was not made by Landfall")
            .hint("rename or delete that topic, or give the log another one with `log.topic`"),
        (Some(found), _) if *found != wanted => Finding::new(Standing::Bad, subject, format!("has {}, the log has {wanted}", partitions(*found)))
            .hint("delete the topic and the one of its cursors: run makes both anew and lands every row"),
        (Some(found), _) => Finding::new(Standing::Good, subject, partitions(*found)),
    })
}

fn store(id: &str, kind: &StoreKind) -> Finding {
    let subject = format!("store {id} ({})", kind.as_str());
    let limits = Limits { rows: 1, time: Duration::from_secs(10), ..Limits::default() };
    let version = |table: crate::sink::query::Table| table.rows.into_iter().flatten().flatten().next().unwrap_or_default();
    let answer = match kind {
        StoreKind::Postgres { url, database, schema, user, password } => {
            let options = postgres_options(url, database.as_deref(), schema, user.as_deref(), password.as_ref());
            postgres::query::run(&options, "SHOW server_version", &limits).map(|t| format!("reached and logged in, version {}", version(t)))
        }
        StoreKind::ClickHouse { url, database, user, password } => {
            let options = clickhouse_options(url, database, user.as_deref(), password.as_ref());
            clickhouse::query::run(&options, None, "SELECT version()", &limits).map(|t| format!("reached and logged in, version {}", version(t)))
        }
        StoreKind::DuckDb { path, .. } => file(Path::new(path), &limits),
        StoreKind::Kafka => Ok("in the cluster of the logs".to_owned()),
    };
    match answer {
        Ok(message) => Finding::new(Standing::Good, subject, message),
        // A question that the store refuses is a store that is there and let us in so far.
        Err(error) => Finding::new(Standing::Bad, subject, error.detail.trim_start_matches("the query failed: ")).hint(match error.kind {
            Kind::Unavailable => "is it running there? `run` would wait for it, and land into the other stores meanwhile",
            kind => kind.hint(),
        }),
    }
}

fn file(path: &Path, limits: &Limits) -> Result<String, Error> {
    if !path.exists() {
        return Ok(format!("{} is not there yet: run makes it", path.display()));
    }
    match duckdb::query::run(path, None, "SELECT version()", limits) {
        Ok(_) => Ok(format!("{} can be opened", path.display())),
        Err(error) if error.kind == Kind::Unavailable && error.detail.starts_with("another process") => {
            Ok(format!("{} is held by another process, such as a running landfall", path.display()))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use landfall_schemas::LogicalType;
    use landfall_topology::{Document, LookupError, check};

    use super::super::paper::printed;
    use super::*;

    fn plan(tables: &str) -> Plan {
        let text = format!(
            "topology: shop\nkafka: {{ brokers: [localhost:9092] }}\nsources:\n  - {{ id: db, type: postgresql, change_signal: debezium, cdc: {{ topic_prefix: shop }} }}\n\
             stores:\n  - {{ id: local, type: duckdb, path: /nowhere/r.duckdb }}\ntables:\n{tables}"
        );
        let checked = check(&[Document::new("x", text)], &|_| Err(LookupError::new("is not set")));
        checked.plan.unwrap_or_else(|| panic!("{:?}", checked.issues))
    }

    fn cluster(brokers: usize, topics: &[(&str, usize)]) -> Cluster {
        Cluster { brokers, topics: topics.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect() }
    }

    #[test]
    fn what_run_would_stop_at_is_a_problem_and_what_it_makes_is_none() {
        let plan = plan("  - { id: orders, source: db, schema: public, name: orders, log: { partitions: 6 } }\n");
        let found = kafka(&plan, &cluster(3, &[("shop.public.orders", 2)]));
        assert!(found.iter().all(|f| f.standing == Standing::Good), "{found:?}");
        assert_eq!(found[2].message, "is not there yet: run makes it with 6 partitions");
        let found = kafka(&plan, &cluster(1, &[("shop.orders", 4)]));
        let standing: Vec<Standing> = found.iter().map(|f| f.standing).collect();
        assert_eq!(standing, [Standing::Odd, Standing::Bad, Standing::Bad], "{found:?}");
        assert_eq!(found[0].message, "reached, 1 broker: change logs get 1 copy");
        assert_eq!(found[2].message, "has 4 partitions, the topology says 6");
    }

    #[test]
    fn patterns_say_what_they_match() {
        let plan = plan("  - { id: all, source: db, schema: public, name: \"*\" }\n");
        let found = kafka(&plan, &cluster(3, &[("shop.public.orders", 2), ("other", 1)]));
        assert_eq!((found[1].subject.as_str(), found[1].message.as_str()), ("patterns all", "match 1 topic: orders"));
        let found = kafka(&plan, &cluster(3, &[]));
        assert_eq!(found[1].standing, Standing::Odd);
    }

    #[test]
    fn newest_rows_have_the_partitions_of_their_log_and_are_landfalls() {
        let plan = plan("  - { id: orders, source: db, schema: public, name: orders, log: { latest: true, partitions: 6 } }\n");
        let found = |topics: &[(&str, usize)]| {
            let finding = kafka(&plan, &cluster(3, topics)).pop().expect("the last one");
            assert_eq!(finding.subject, "newest rows shop.orders.latest");
            (finding.standing, finding.message)
        };
        assert_eq!(found(&[]), (Standing::Good, "is not there yet: run makes it with 6 partitions".to_owned()));
        let ours = [("shop.orders", 6), ("shop.orders.latest", 6), ("shop.orders.latest.cursors", 7)];
        assert_eq!(found(&ours), (Standing::Good, "6 partitions".to_owned()));
        assert_eq!(found(&ours[..2]).0, Standing::Bad);
        assert_eq!(found(&[("shop.orders", 6), ("shop.orders.latest", 5), ours[2]]), (Standing::Bad, "has 5 partitions, the log has 6".to_owned()));
    }

    #[test]
    fn inferred_types_are_told_and_so_is_a_declared_one_that_is_another() {
        let plan = plan("  - { id: o, source: db, schema: public, name: o, columns: { types: { num: numeric } } }\n");
        let settled = |ty| vec![("id".to_owned(), LogicalType::Int64), ("num".to_owned(), ty)];
        let found = types(&plan.tables[0], &settled(LogicalType::Numeric));
        assert_eq!((found.standing, found.message.as_str()), (Standing::Good, "inferred: { id: int64, num: numeric }"));
        let found = types(&plan.tables[0], &settled(LogicalType::Int64));
        assert_eq!(found.standing, Standing::Odd);
        assert!(found.message.ends_with("; num was int64 and is declared numeric"), "{found:?}");
    }

    #[test]
    fn hints_stand_below_the_table() {
        let findings = [Finding::new(Standing::Good, "a", "b"), Finding::new(Standing::Bad, "topic t", "is not there").hint("make it")];
        let text = printed(None, |p| print(&findings, p).unwrap());
        assert!(text.ends_with("\ntopic t\n  hint: make it\n"), "{text}");
    }

    #[test]
    fn a_file_that_will_be_made_is_no_problem() {
        let found = store("local", &plan("  - { id: o, source: db, schema: public, name: o }\n").stores[0].kind);
        assert_eq!((found.standing, found.message.as_str()), (Standing::Good, "/nowhere/r.duckdb is not there yet: run makes it"));
    }
}
