//! What the operator asked for.
//!
//! Three steps: the file as written ([`model`]), every problem at once ([`Issue`], with place, code and hint), and an immutable
//! [`Plan`] that cannot be invalid. Everything is a function over text but [`load()`], the only I/O. Secrets are references in the
//! file, are looked up by a function that the caller passes, and cannot be printed.
//!
//! ```
//! use landfall_topology::{Document, LookupError, check};
//!
//! let file = "
//! topology: shop
//! kafka: { brokers: [localhost:9092] }
//! sources:
//!   - { id: shopdb, type: postgresql, change_signal: debezium, cdc: { topic_prefix: shop } }
//! stores:
//!   - { id: local, type: duckdb, path: replicas.duckdb }
//! tables:
//!   - { id: orders, source: shopdb, schema: public, name: orders }
//! ";
//! let documents = [Document::new("landfall.yaml", file)];
//! let checked = check(&documents, &|_| Err(LookupError::new("is not set")));
//! let plan = checked.plan.expect("the file is right");
//! assert_eq!(plan.tables[0].topic, "shop.public.orders");
//! assert_eq!(plan.tables[0].replicas[0].id, "local.orders");
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, clippy::unwrap_used)]

mod excerpt;
mod field;
mod issue;
mod issues;
pub mod load;
mod mask;
pub mod model;
mod names;
mod nearest;
pub mod plan;
mod quantity;
mod read;
mod secret;
mod tree;
mod validate;

#[cfg(test)]
mod tests;

pub use issue::{Code, Issue, Severity};
pub use load::{Document, LoadError, environment, load};
pub use plan::{Plan, describe::Row};
pub use secret::{Lookup, LookupError, Reference, Secret};
pub use validate::{Checked, check};

/// The JSON Schema of a topology file, for editors and other tools.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(model::File).into()
}
