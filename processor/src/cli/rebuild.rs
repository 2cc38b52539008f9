//! `landfall rebuild`: state and table of a replica discarded, its log folded again.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::paper::{Output, Paper};
use super::{Failure, Problem, load};

/// Arguments of `rebuild`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Id of the replica: store.table
    pub replica: String,
    /// Topology files, or folders of them [default: landfall.yaml]
    #[arg(value_name = "FILE")]
    pub topology: Vec<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// Puts a new build of the replica in force. Running processes notice it by the store's own refusal and fold again from the first record of
/// the log; nothing of the earlier build is shown meanwhile.
pub fn run(arguments: &Arguments, paper: &mut Paper<'_>) -> Result<(), Failure> {
    super::run::log();
    let plan = load(&arguments.topology)?;
    let replicas = || plan.tables.iter().flat_map(|t| &t.replicas);
    let Some(replica) = replicas().find(|r| r.id == arguments.replica) else {
        let known: Vec<&str> = replicas().map(|r| r.id.as_str()).collect();
        return Err(
            Problem::new(format!("no replica {:?} in the topology", arguments.replica), format!("its replicas are {}", known.join(", "))).into()
        );
    };
    let stores = crate::run::stores(&plan)?;
    let mut sink = (stores[replica.store].connect)();
    let name = plan.full_name(replica);
    let _ = sink.open(&name, &replica.table, None)?;
    let build = sink.rebuild(&name, &replica.table)?;
    match arguments.output {
        Output::Text => paper.line(format!("replica {} is rebuilt as build {build}: a running process folds its log again", replica.id))?,
        Output::Json => paper.json(&json!({ "replica": replica.id, "build": build }))?,
    }
    Ok(())
}
