//! The collector of a check: every step puts its findings here, and one place turns them into issues.
//!
//! It knows the documents, so it can add the file's name and the masked source line. It is the only way to make an [`Issue`]. Past
//! [`ISSUES_MAX`] it only counts, and says so: nobody mends ten thousand problems at once.

use std::cell::RefCell;

use crate::excerpt::Excerpt;
use crate::issue::{At, Code, Finding, Issue, Severity, visible};
use crate::load::Document;
use crate::mask::Mask;

/// More issues than this are not kept, only counted: a hostile file must not fill memory with messages.
const ISSUES_MAX: usize = 1_000;

/// Findings of one check. Steps share it by reference; it is never used across threads.
pub(crate) struct Issues<'a> {
    documents: &'a [Document],
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    found: Vec<(At, Finding)>,
    /// Also of findings that are not kept.
    errors: usize,
    dropped: usize,
    masks: Vec<Mask>,
}

impl<'a> Issues<'a> {
    pub(crate) fn new(documents: &'a [Document]) -> Self {
        Self { documents, inner: RefCell::default() }
    }

    /// Adds a finding at a place.
    pub(crate) fn push(&self, at: &At, finding: Finding) {
        let mut inner = self.inner.borrow_mut();
        inner.errors += usize::from(finding.severity == Severity::Error);
        if inner.found.len() < ISSUES_MAX {
            inner.found.push((at.clone(), finding));
        } else {
            inner.dropped += 1;
        }
    }

    /// Adds an error that needs nothing but code, message and hint.
    pub(crate) fn error(&self, at: &At, code: Code, message: impl Into<String>, hint: &str) {
        self.push(at, Finding::new(code, message).hint(hint));
    }

    /// Hides a stretch of a file in every excerpt.
    pub(crate) fn mask(&self, mask: Mask) {
        self.inner.borrow_mut().masks.push(mask);
    }

    /// True once an error forbids a plan.
    pub(crate) fn has_errors(&self) -> bool {
        self.inner.borrow().errors > 0
    }

    /// A place in words: file and line.
    pub(crate) fn place(&self, at: &At) -> String {
        let name = self.documents.get(at.file as usize).map_or("", Document::name);
        format!("{}:{}", visible(name), at.line)
    }

    /// The issues in the order of the files, top to bottom.
    pub(crate) fn finish(self) -> Vec<Issue> {
        let Inner { mut found, dropped, masks, .. } = self.inner.into_inner();
        if dropped > 0 {
            let message = format!("{dropped} further problems are not shown");
            let last = At { file: u32::MAX, line: 1, column: 1, width: 1, path: String::new() };
            found.push((last, Finding::new(Code::YamlLimit, message).hint("mend the ones above first")));
        }
        found.sort_by(|(a, x), (b, y)| {
            let place = (a.file, a.line, a.column, &a.path, x.code, &x.message);
            place.cmp(&(b.file, b.line, b.column, &b.path, y.code, &y.message))
        });
        found.dedup_by(|(a, x), (b, y)| a == b && x.code == y.code && x.message == y.message);
        found
            .into_iter()
            .map(|(at, finding)| {
                let document = self.documents.get(at.file as usize);
                Issue {
                    code: finding.code,
                    severity: finding.severity,
                    file: document.map(|d| d.name().to_owned()).unwrap_or_default(),
                    line: at.line,
                    column: at.column,
                    excerpt: document.and_then(|d| Excerpt::of(d.text(), &at, &masks)),
                    path: at.path,
                    message: finding.message,
                    nearest: finding.nearest,
                    hint: finding.hint,
                }
            })
            .collect()
    }
}
