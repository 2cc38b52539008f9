//! `landfall rebuild`: state and table of a replica discarded, its log folded again.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, load};

/// Arguments of `rebuild`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Id of the replica: store.table
    pub replica: String,
    /// Topology file, or a folder of them [default: landfall.yaml]
    pub topology: Vec<PathBuf>,
}

/// Puts a new build of the replica in force. Running processes notice it by the store's own refusal and fold again from the first record of
/// the log; nothing of the earlier build is shown meanwhile.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    super::run::log();
    let plan = load(&arguments.topology)?;
    let replicas = || plan.tables.iter().flat_map(|t| &t.replicas);
    let Some(replica) = replicas().find(|r| r.id == arguments.replica) else {
        let known: Vec<&str> = replicas().map(|r| r.id.as_str()).collect();
        return Err(Failure::Other(anyhow::anyhow!("no replica {:?} in the topology; there are {}", arguments.replica, known.join(", "))));
    };
    let stores = crate::run::stores(&plan)?;
    let mut sink = (stores[replica.store].connect)();
    let _ = sink.open(&replica.id, &replica.table, None)?;
    let build = sink.rebuild(&replica.id, &replica.table)?;
    println!("replica {} is rebuilt as build {build}: a running process folds its log again", replica.id);
    Ok(())
}
