//! An input as targets take it: a variant, and parts that may be absent; and its text in a regression file.

use std::fmt;
use std::path::PathBuf;

use crate::harness::stack;

/// An input. What variant and parts are is the target's matter: a record's key and value, a type and the bytes of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub variant: usize,
    pub parts: Vec<Option<Vec<u8>>>,
}

impl Case {
    pub(crate) fn one(variant: usize, bytes: impl Into<Vec<u8>>) -> Self {
        Self { variant, parts: vec![Some(bytes.into())] }
    }

    /// A part's bytes; none where it is absent.
    pub(crate) fn part(&self, part: usize) -> Option<&[u8]> {
        self.parts.get(part)?.as_deref()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().flatten().map(Vec::len).sum()
    }

    /// The case of a regression file: the variant, then a line of hex for each part, `-` for an absent one. `#` begins a comment.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let variant = lines.next()?.parse().ok()?;
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let part = |line: &str| if line == "-" { Some(None) } else { line.as_bytes().chunks(2).map(byte).collect::<Option<_>>().map(Some) };
        Some(Self { variant, parts: lines.map(part).collect::<Option<_>>()? })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.variant)?;
        for part in &self.parts {
            match part {
                None => f.write_str("-")?,
                Some(bytes) => bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))?,
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}

/// Where a target's regressions are.
pub(crate) fn folder(target: &str) -> PathBuf {
    stack::root().join("tests/fuzz-regressions").join(target)
}

/// Inputs that once failed, with their file's name.
pub(crate) fn regressions(target: &str) -> Vec<(String, Case)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder(target)).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let case = Case::parse(&text).unwrap_or_else(|| panic!("{} is no case", path.display()));
        found.push((path.display().to_string(), case));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[test]
fn a_case_goes_in_and_comes_out() {
    let case = Case { variant: 7, parts: vec![None, Some(vec![]), Some(vec![0, 0xAB, 0xFF])] };
    assert_eq!(Case::parse(&format!("# why\n{case}")), Some(case));
}
