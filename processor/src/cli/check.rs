//! `landfall check`: every problem of a topology at once, or what it resolves to.
//!
//! Nothing is changed anywhere. Without `--online` nothing but the files and the references in them is looked at.

use std::path::PathBuf;

use clap::Args;
use landfall_topology::{Checked, Issue, Row, Severity, environment};
use serde::Serialize;

use super::online::{self, Finding, Standing};
use super::paper::{Field, Mood, Output, Paper, counted};
use super::{Failure, paths};

const EXAMPLES: &str = "\
Exit codes: 0 no problems, 1 --online found one, 2 the topology has problems.

Examples:
  landfall check                        the file landfall.yaml
  landfall check shop.yaml --online     also ask Kafka and the stores
  landfall check topologies/ --output json";

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Topology files, or folders of them [default: landfall.yaml]
    #[arg(value_name = "FILE")]
    pub topology: Vec<PathBuf>,
    /// Also ask Kafka and the stores: are they there, do they let us in, do the topics fit
    #[arg(long)]
    pub online: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Serialize)]
struct Report<'a> {
    valid: bool,
    topology: Option<&'a str>,
    problems: &'a [Issue],
    tables: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    online: Option<&'a [Finding]>,
}

/// Checks a topology.
pub fn run(arguments: &Arguments, paper: &mut Paper<'_>) -> Result<(), Failure> {
    let documents = landfall_topology::load(&paths(&arguments.topology))?;
    let checked = landfall_topology::check(&documents, &environment);
    let findings = checked.plan.as_ref().filter(|_| arguments.online).map(online::ask);
    report(&checked, findings.as_deref(), arguments.output, paper)?;
    if checked.plan.is_none() {
        return Err(Failure::Topology);
    }
    match findings.is_some_and(|all| all.iter().any(|f| f.standing == Standing::Bad)) {
        true => Err(Failure::Told),
        false => Ok(()),
    }
}

fn report(checked: &Checked, findings: Option<&[Finding]>, output: Output, paper: &mut Paper<'_>) -> std::io::Result<()> {
    let rows = checked.plan.as_ref().map(|plan| plan.describe()).unwrap_or_default();
    if output == Output::Json {
        let topology = checked.plan.as_ref().map(|plan| plan.topology.as_str());
        return paper.json(&Report { valid: checked.plan.is_some(), topology, problems: &checked.issues, tables: rows, online: findings });
    }
    for issue in &checked.issues {
        paper.line(issue.to_string())?;
    }
    if let Some(plan) = &checked.plan {
        paper.title(&format!("topology {}", plan.topology))?;
        paper.line("")?;
        tables(&rows, paper)?;
        paper.line("")?;
    }
    if let Some(findings) = findings {
        online::print(findings, paper)?;
        paper.line("")?;
    }
    paper.line(closing(&checked.issues, findings.unwrap_or_default()))
}

/// What the topology resolves to: its tables, and their replicas.
fn tables(rows: &[Row], paper: &mut Paper<'_>) -> std::io::Result<()> {
    let mut firsts: Vec<&Row> = Vec::new();
    for row in rows {
        if firsts.iter().all(|first| first.table != row.table) {
            firsts.push(row);
        }
    }
    let cells = |row: &Row| [&row.table, &row.source, &row.topic, &row.key, &row.log].map(|text| Field::from(text.as_str()));
    paper.table(&["table", "source", "topic", "key", "change log"], firsts.iter().copied().map(cells))?;
    let ruled: Vec<&Row> = firsts.iter().copied().filter(|row| row.columns != "-").collect();
    if !ruled.is_empty() {
        paper.line("")?;
        paper.table(&["table", "columns"], ruled.into_iter().map(|row| [&row.table, &row.columns].map(|text| Field::from(text.as_str()))))?;
    }
    let replicas: Vec<&Row> = rows.iter().filter(|row| row.replica != "-").collect();
    paper.line("")?;
    if replicas.is_empty() {
        return paper.line(paper.word("no replicas: changes are normalised into the logs and land nowhere", Mood::Odd));
    }
    let cells = |row: &Row| [&row.replica, &row.table, &row.target, &row.shape, &row.landing].map(|text| Field::from(text.as_str()));
    paper.table(&["replica", "table", "target", "shape", "landing"], replicas.into_iter().map(cells))
}

fn closing(issues: &[Issue], findings: &[Finding]) -> String {
    let of = |severity| issues.iter().filter(|i| i.severity == severity).count();
    let on = |standing| findings.iter().filter(|f| f.standing == standing).count();
    let problems = of(Severity::Error) + on(Standing::Bad);
    let warnings = of(Severity::Warning) + on(Standing::Odd);
    let problems = if problems == 0 { "no problems".to_owned() } else { counted(problems as u64, "problem") };
    if warnings == 0 { problems } else { format!("{problems}, {}", counted(warnings as u64, "warning")) }
}

#[cfg(test)]
mod tests {
    use landfall_topology::{Document, LookupError, check};

    use super::super::paper::printed;
    use super::*;

    const SHOP: &str = "
topology: shop
kafka: { brokers: [localhost:9092] }
sources:
  - { id: shopdb, type: postgresql, change_signal: debezium, cdc: { topic_prefix: shop } }
stores:
  - { id: local, type: duckdb, path: replicas.duckdb }
tables:
  - { id: orders, source: shopdb, schema: public, name: orders, primary_key: [id] }
";

    fn checked(text: &str) -> Checked {
        check(&[Document::new("landfall.yaml", text)], &|_| Err(LookupError::new("is not set")))
    }

    #[test]
    fn a_topology_without_problems_is_shown_resolved() {
        let text = printed(None, |p| report(&checked(SHOP), None, Output::Text, p).unwrap());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "topology shop");
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["table", "source", "topic", "key", "change", "log"]);
        assert!(lines[3].starts_with("orders  shopdb (postgresql)  shop.public.orders  id "), "{text}");
        assert!(lines[6].starts_with("local.orders  orders "), "{text}");
        assert_eq!(lines.last(), Some(&"no problems"));
    }

    #[test]
    fn every_problem_is_shown_and_counted() {
        let broken = SHOP.replace("primary_key", "primary_kye").replace("duckdb,", "duckbd,");
        let text = printed(None, |p| report(&checked(&broken), None, Output::Text, p).unwrap());
        assert!(text.contains("error[topology.unknown_key]") && text.contains("did you mean primary_key?"), "{text}");
        assert!(text.contains("error[topology.unknown_value]") && text.contains("did you mean duckdb?"), "{text}");
        assert!(text.ends_with("\n2 problems\n"), "{text}");
    }

    #[test]
    fn machines_get_one_document() {
        let text = printed(None, |p| report(&checked(SHOP), None, Output::Json, p).unwrap());
        let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
        assert_eq!(document["valid"], true);
        assert_eq!(document["tables"][0]["replica"], "local.orders");
        assert_eq!(document.get("online"), None, "nobody was asked");
        let text = printed(None, |p| report(&checked("topolgy: x"), None, Output::Json, p).unwrap());
        let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
        let codes: Vec<&str> = document["problems"].as_array().expect("a list").iter().filter_map(|p| p["code"].as_str()).collect();
        assert!(document["valid"] == false && codes.contains(&"topology.unknown_key"), "{document}");
    }
}
