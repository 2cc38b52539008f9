//! The rules of every sink, over compacted topics. Rows are read as a consumer does: committed records, the newest of each key.

use landfall::sink::{Sink, Target};

use super::{Apart, Home};
use crate::conformance::{any_value, run_but};

/// One scenario has no place here.
const LEFT_OUT: [(&str, &str); 1] =
    [("hostile_names_are_only_names", "a topic's name has letters, digits, dots, _ and -; names of columns are looked at in `topics`")];

#[test]
fn kafka_conforms() {
    let home = Home::new("kafkaconforms");
    let mut make = || Box::new(Apart { inner: home.sink(), prefix: home.name.clone() }) as Box<dyn Sink>;
    let mut read = |target: &Target| home.read(&Target { table: format!("{}.{}", home.name, target.table), ..target.clone() });
    run_but(&LEFT_OUT, &mut make, &mut read, |_, _| None);
}

#[test]
fn any_value_is_kept_or_refused() {
    let home = Home::new("kafkavalues");
    let mut make = || Box::new(Apart { inner: home.sink(), prefix: home.name.clone() }) as Box<dyn Sink>;
    let mut read = |target: &Target| home.read(&Target { table: format!("{}.{}", home.name, target.table), ..target.clone() });
    any_value("kafka", &mut make, &mut read, |_, _| None);
}
