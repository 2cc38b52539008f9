//! What happens: from the input topic through the change log into the replicas.

pub mod sink;
