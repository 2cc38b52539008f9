//! What a query of a person brings back, whatever the store: each sink has a `query` of its own that returns this.

pub use super::duckdb::query::{Limits, Table};

/// Equal names of columns are told apart by a number, so that a row can become an object.
pub fn numbered(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for name in names {
        let free = (1..).map(|n| if n == 1 { name.clone() } else { format!("{name}_{n}") }).find(|candidate| !out.contains(candidate));
        out.extend(free);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_numbered() {
        let names = ["a", "b", "a", "a_2", "a"].map(str::to_owned);
        assert_eq!(numbered(names.into_iter()), ["a", "b", "a_2", "a_2_2", "a_3"]);
    }
}
