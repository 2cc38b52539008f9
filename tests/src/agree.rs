//! What the README says is what the product does: its topology, its commands, its metrics and its environment variables.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use landfall::observe::catalog::METRICS;
use landfall_topology::{Document, LookupError, check};

use crate::harness::process::{Options, Output};
use crate::tidy::{root, sources};

/// Section 4 of the interface document, as it stands there.
const SECTION_4: &str = "\
`landfall_records_read_total{source,table}` · `landfall_changes_total{table,op}` · `landfall_changes_ignored_total{table,reason}` · \
`landfall_dead_letters_total{table,reason}` · `landfall_rows_landed_total{replica,op}` · `landfall_batches_landed_total{replica}` · \
`landfall_land_seconds{replica}` histogram · `landfall_batch_rows{replica}` histogram · `landfall_lag_records{replica,partition}` · \
`landfall_freshness_seconds{replica}` (event time to landed) · `landfall_state_bytes{replica}` · `landfall_state_keys{replica}` · \
`landfall_rebalances_total` · `landfall_sink_errors_total{replica,kind}` · `landfall_index_state{replica,index,state}` · \
`landfall_schema_migrations_total{replica,kind}` · `landfall_queue_bytes{stage}`";

/// Metrics of the document whose subject does not exist yet.
const TO_COME: [&str; 1] = ["landfall_index_state{replica,index,state}"];

/// Metrics beside those of the document.
const BESIDE: [&str; 5] = [
    "landfall_changes_nulled_total{replica,reason}",
    "landfall_changes_clamped_total{replica}",
    "landfall_values_cut_total{table}",
    "landfall_dead_letters_open{table,reason}",
    "landfall_parked_keys{table}",
];

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).expect("the README")
}

/// The texts in backticks that begin with a prefix.
fn quoted<'a>(text: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    text.split('`').skip(1).step_by(2).filter(|code| code.starts_with(prefix)).collect()
}

fn landfall(arguments: &[&str]) -> Output {
    Options::command(arguments).output(Duration::from_secs(45))
}

/// A metric as the document writes it.
pub(crate) fn spelt(name: &str, labels: &[&str]) -> String {
    if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) }
}

#[test]
fn metrics_of_the_document_the_list_and_the_readme_are_the_same() {
    let listed: BTreeSet<String> = METRICS.iter().map(|m| spelt(m.name, m.labels)).collect();
    let document: BTreeSet<String> =
        quoted(SECTION_4, "landfall_").into_iter().filter(|m| !TO_COME.contains(m)).chain(BESIDE).map(str::to_owned).collect();
    assert_eq!(listed, document);
    let readme = readme();
    let named: BTreeSet<String> = quoted(&readme, "landfall_").into_iter().map(str::to_owned).collect();
    assert_eq!(listed, named, "the README lists other metrics");
}

#[test]
fn commands_of_the_readme_are_those_of_the_binary() {
    let help = landfall(&["--help"]);
    let commands = help.stdout.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    // A line that goes on stands further in.
    let commands: BTreeSet<&str> = commands.filter(|l| !l.starts_with("   ")).filter_map(|l| l.split_whitespace().next()).collect();
    assert!(commands.len() > 8, "{}", help.text());
    let readme = readme();
    let named: BTreeSet<&str> = readme.lines().filter_map(|l| l.strip_prefix("| `landfall ")).filter_map(|l| l.split([' ', '`']).next()).collect();
    let but_help: BTreeSet<&str> = commands.into_iter().filter(|c| *c != "help").collect();
    assert_eq!(named, but_help, "the README's table of commands");
}

#[test]
fn the_topology_of_the_readme_has_no_problem() {
    let readme = readme();
    let text = readme.split_once("```yaml\n").and_then(|(_, rest)| rest.split_once("```")).expect("a topology").0;
    assert!(text.lines().count() <= 12, "a small file must do");
    let checked = check(&[Document::new("README.md", text.to_owned())], &|_| Err(LookupError::new("is not set")));
    assert_eq!(checked.issues, vec![]);
    assert!(checked.plan.is_some());
}

#[test]
fn the_schema_that_is_printed_is_that_of_the_model() {
    let printed = landfall(&["schema"]);
    let schema: serde_json::Value = serde_json::from_str(&printed.stdout).expect("JSON");
    assert_eq!(schema, landfall_topology::schema());
}

/// The table of types is what the stores' own code says of each; `UPDATE_GOLDEN=1` writes it anew.
#[test]
fn the_types_of_the_readme_are_those_of_the_stores() {
    let printed = landfall(&["schema", "--types"]).stdout;
    let table: Vec<&str> = printed.lines().map(str::trim_end).collect();
    let readme = readme();
    let (before, rest) = readme.split_once("## Types\n").expect("a section");
    let (head, rest) = rest.split_once("```\n").expect("a block");
    let (block, after) = rest.split_once("```").expect("an end");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let text = format!("{before}## Types\n{head}```\n{}\n```{after}", table.join("\n"));
        std::fs::write(root().join("README.md"), text).expect("the README can be written");
        return;
    }
    assert_eq!(block.trim_end().lines().collect::<Vec<_>>(), table, "the README's table of types");
}

/// Every variable that the product reads is in the README; those of the test builds are not the user's.
#[test]
fn environment_variables_are_documented() {
    let readme = readme();
    let mut read = BTreeSet::new();
    for folder in ["processor/src", "topology/src"] {
        for file in sources(&root().join(folder)) {
            if file.ends_with(Path::new("fault.rs")) || file.components().any(|c| c.as_os_str() == "tests") {
                continue;
            }
            let text = std::fs::read_to_string(&file).expect("a source");
            for (at, prefix) in text.match_indices("LANDFALL_") {
                let name: String = text[at + prefix.len()..].chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
                if !name.is_empty() && !name.starts_with("TEST_") {
                    let _ = read.insert(format!("{prefix}{name}"));
                }
            }
        }
    }
    assert!(read.len() >= 6, "{read:?}");
    let missing: Vec<&String> = read.iter().filter(|name| !readme.contains(name.as_str())).collect();
    assert_eq!(missing, Vec::<&String>::new(), "the README does not say what these do");
}
