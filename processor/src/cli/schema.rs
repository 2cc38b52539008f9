//! `landfall schema`: the JSON Schema of a topology file, with which editors complete and check it.

use std::io::Write as _;

use super::Failure;
use super::paper::Paper;

/// Prints the schema.
pub fn run(paper: &mut Paper<'_>) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *paper, &landfall_topology::schema()).map_err(std::io::Error::from)?;
    Ok(paper.write_all(b"\n")?)
}

#[cfg(test)]
mod tests {
    use super::super::paper::printed;
    use super::*;

    #[test]
    fn it_is_a_schema_of_the_file() {
        let text = printed(None, |p| assert!(run(p).is_ok()));
        let schema: serde_json::Value = serde_json::from_str(&text).expect("one document");
        for section in ["topology", "kafka", "sources", "stores", "tables"] {
            assert!(schema["properties"][section].is_object(), "{section}");
        }
    }
}
