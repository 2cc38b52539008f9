//! What the topic of cursors holds: where each log partition stands, and what is known of the replica.
//!
//! `<log topic>.latest.cursors` is compacted and has one partition more than the topic of rows. In partition `p` stand the cursors of log
//! partition `p`, which one producer at a time writes, so nobody else's open transaction is ever in the way of who reads its end. The last
//! partition holds what is known of replicas. Records are JSON; the key names the replica, and behind `/` the partition.

use std::collections::BTreeMap;

use landfall_schemas::{TableSchema, contract};
use serde::{Deserialize, Serialize};

use super::tail::Tail;
use crate::sink::{Error, Kind};

/// A cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Placed {
    /// Fence of the owner.
    pub(super) fence: u64,
    /// Build that it belongs to.
    pub(super) build: u16,
    /// Generation of the log.
    pub(super) generation: u32,
    /// `K`.
    pub(super) next: Option<i64>,
}

impl Placed {
    /// The newest cursor of a partition, as it is in force. Where `patient`, what is still open is waited for.
    pub(super) fn read(tail: &Tail, cursors: &str, replica: &str, partition: i32, patient: bool) -> Result<Option<Self>, Error> {
        let found = tail.newest(cursors, partition, key(replica, partition).as_bytes(), patient)?;
        found.map(|bytes| serde_json::from_slice(&bytes).map_err(|e| unreadable(cursors, e))).transpose()
    }

    /// The record.
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers always serialise")
    }
}

/// The key of a cursor.
pub(super) fn key(replica: &str, partition: i32) -> String {
    format!("{replica}/{partition}")
}

/// What is known of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    /// Full name of the replica.
    pub(super) replica: String,
    /// Build in force.
    pub(super) build: u16,
    /// Contract of the schema that it was last prepared for.
    pub(super) contract: Option<String>,
    /// Id of the topic that is its own, as hex: a topic of this name with another id is somebody else's.
    pub(super) incarnation: Option<String>,
    /// The topic is about to be made: none of its name was there.
    pub(super) creating: bool,
}

impl Meta {
    /// Whether the topic is, or is about to be, this replica's.
    pub(super) const fn owns(&self) -> bool {
        self.creating || self.incarnation.is_some()
    }

    /// The schema that it was last prepared for.
    pub(super) fn schema(&self) -> Result<Option<TableSchema>, Error> {
        self.contract.as_deref().map(contract::parse).transpose().map_err(|e| {
            let kind = if matches!(e, contract::ContractError::Version { .. }) { Kind::Unsupported } else { Kind::Internal };
            Error::with(kind, format!("the stored schema of replica {:?} does not read", self.replica), e)
        })
    }

    /// All that is known of replicas, by name.
    pub(super) fn read(tail: &Tail, cursors: &str, partition: i32) -> Result<BTreeMap<String, Self>, Error> {
        let (low, high) = tail.bounds(cursors, partition)?;
        let mut metas = BTreeMap::new();
        tail.read(cursors, partition, low, high, |record| {
            if let Some(value) = record.value {
                let meta: Self = serde_json::from_slice(value).map_err(|e| unreadable(cursors, e))?;
                let _ = metas.insert(meta.replica.clone(), meta);
            }
            Ok(())
        })?;
        Ok(metas)
    }

    /// The record.
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers always serialise")
    }
}

fn unreadable(cursors: &str, error: serde_json::Error) -> Error {
    Error::with(Kind::TableExists, format!("topic {cursors:?} holds a record that is not Landfall's"), error)
}
