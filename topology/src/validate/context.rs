//! What every part of the check shares: the collector, the lookup of references, and the phrases of common problems.
//!
//! One phrase per kind of problem, so two parts never describe the same mistake differently.

use std::collections::BTreeMap;

use crate::field::Field;
use crate::issue::{At, Code, Finding, shown};
use crate::issues::Issues;
use crate::nearest::nearest;
use crate::read::unresolved;
use crate::secret::{self, Lookup, Secret, SecretText};

/// Shared by all parts of one check.
pub(crate) struct Context<'a> {
    issues: &'a Issues<'a>,
    lookup: &'a Lookup<'a>,
}

impl<'a> Context<'a> {
    pub(crate) const fn new(issues: &'a Issues<'a>, lookup: &'a Lookup<'a>) -> Self {
        Self { issues, lookup }
    }

    /// The place of a file as a whole.
    pub(crate) fn top(&self) -> At {
        At { line: 1, column: 1, width: 1, ..At::default() }
    }

    /// A place in words.
    pub(crate) fn place(&self, at: &At) -> String {
        self.issues.place(at)
    }

    pub(crate) fn push(&self, at: &At, finding: Finding) {
        self.issues.push(at, finding);
    }

    pub(crate) fn error(&self, at: &At, code: Code, message: impl Into<String>, hint: &str) {
        self.issues.error(at, code, message, hint);
    }

    /// A key that must be there inside the value at `parent`.
    pub(crate) fn missing(&self, parent: &At, key: &str) {
        let finding = Finding::new(Code::Required, format!("{key} is missing"));
        self.push(&parent.child(key), finding);
    }

    /// The value of a field that must be there; a broken one is silent.
    pub(crate) fn required<'f, T>(&self, field: &'f Field<T>, parent: &At, key: &str) -> Option<(&'f T, &'f At)> {
        if field.is_absent() {
            self.missing(parent, key);
        }
        field.given()
    }

    pub(crate) fn bad_name(&self, at: &At, what: &str, name: &str, why: &str) {
        self.push(at, Finding::new(Code::BadName, format!("{what} {} {why}", shown(name))));
    }

    /// A field that has no meaning beside the others.
    pub(crate) fn unused<T>(&self, field: &Field<T>, why: &str) {
        if let Some(at) = field.at() {
            let key = last_key(&at.path);
            self.error(at, Code::FieldUnused, format!("{key} has no effect here: {why}"), "remove it");
        }
    }

    /// Looks up the value of a secret, which must be a reference.
    pub(crate) fn secret(&self, field: &Field<SecretText>) -> Option<Secret> {
        let (text, at) = field.given()?;
        if !secret::is_reference(&text.0) {
            self.literal_secret(at);
            return None;
        }
        match secret::resolve(&text.0, self.lookup) {
            Ok(value) if value.is_empty() => {
                self.push(at, Finding::new(Code::UnresolvedReference, "the secret is empty"));
                None
            }
            Ok(value) => Some(Secret::new(value)),
            Err(error) => {
                self.push(at, unresolved(&error));
                None
            }
        }
    }

    pub(crate) fn literal_secret(&self, at: &At) {
        self.error(
            at,
            Code::LiteralSecret,
            "a secret is written into the file",
            "write ${env:NAME} or ${file:PATH}, and consider the written one as known",
        );
    }

    /// A text with its references replaced.
    pub(crate) fn resolve(&self, text: &str, at: &At) -> Option<String> {
        secret::resolve(text, self.lookup).map_err(|error| self.push(at, unresolved(&error))).ok()
    }

    /// The value of a reference that the file does not have to name.
    pub(crate) fn look_up(&self, reference: &secret::Reference) -> Option<String> {
        (self.lookup)(reference).ok().filter(|value| !value.is_empty())
    }
}

/// The last key of a path.
pub(crate) fn last_key(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// The items of one list, over all files.
#[derive(Debug)]
pub(crate) struct Listed<T> {
    pub(crate) items: Vec<Field<T>>,
    /// Something of the list could not be read, so what seems missing may stand there.
    pub(crate) incomplete: bool,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { items: Vec::new(), incomplete: false }
    }
}

impl<T> Listed<T> {
    /// True if no file has an item, as far as can be told.
    pub(crate) const fn is_missing(&self) -> bool {
        self.items.is_empty() && !self.incomplete
    }

    /// Adds the list of one file.
    pub(crate) fn join(&mut self, new: Field<Vec<Field<T>>>) {
        match new {
            Field::Absent => {}
            Field::Broken(_) => self.incomplete = true,
            Field::Given(items, _) => {
                self.incomplete |= items.iter().any(|item| matches!(item, Field::Broken(_)));
                self.items.extend(items);
            }
        }
    }
}

/// Resolved things of one kind, by id; a place is kept for those that failed, so positions stay those of the file.
pub(crate) struct Resolved<T> {
    what: &'static str,
    /// Some could not be read or have no usable id, so an unknown name may be theirs.
    incomplete: bool,
    items: Vec<(Option<String>, Option<T>)>,
}

impl<T> Resolved<T> {
    /// Resolves each, and refuses ids that are taken.
    pub(crate) fn collect<'f, M: 'f>(
        cx: &Context<'_>,
        what: &'static str,
        list: &'f Listed<M>,
        id: impl Fn(&'f M) -> &'f Field<String>,
        mut resolve: impl FnMut(&'f M, &'f At, Option<String>) -> Option<T>,
    ) -> Self {
        let mut taken = Taken::default();
        let items: Vec<_> = list
            .items
            .iter()
            .map(|field| {
                let Some((item, at)) = field.given() else {
                    return (None, None);
                };
                let id = cx
                    .required(id(item), at, "id")
                    .filter(|(id, at)| checked_id(cx, what, id, at))
                    .filter(|(id, at)| taken.take(cx, what, id, at))
                    .map(|(id, _)| id.clone());
                let resolved = resolve(item, at, id.clone());
                (id, resolved)
            })
            .collect();
        let incomplete = list.incomplete || items.iter().any(|(id, _)| id.is_none());
        Self { what, incomplete, items }
    }

    /// The place of an id, as written; an unknown one is reported, with the nearest.
    pub(crate) fn find(&self, cx: &Context<'_>, id: &str, at: &At) -> Option<usize> {
        let position = self.items.iter().position(|(known, _)| known.as_deref() == Some(id));
        if position.is_none() && !self.incomplete {
            let known: Vec<&str> = self.items.iter().filter_map(|(id, _)| id.as_deref()).collect();
            let finding =
                Finding::new(Code::UnknownReference, format!("there is no {} {}", self.what, shown(id))).nearest(nearest(id, known.iter().copied()));
            let declared = known.iter().take(20).copied().collect::<Vec<_>>().join(", ");
            cx.push(at, if known.is_empty() { finding } else { finding.hint(format!("declared: {declared}")) });
        }
        position
    }

    /// The resolved thing at a place.
    pub(crate) fn get(&self, position: usize) -> Option<&T> {
        self.items.get(position)?.1.as_ref()
    }

    /// How many were written.
    pub(crate) const fn len(&self) -> usize {
        self.items.len()
    }
}

fn checked_id(cx: &Context<'_>, what: &str, id: &str, at: &At) -> bool {
    match crate::names::id(id) {
        Ok(()) => true,
        Err(why) => {
            cx.bad_name(at, &format!("{what} id"), id, why);
            false
        }
    }
}

/// Ids of one kind, compared without case.
#[derive(Default)]
pub(crate) struct Taken {
    first: BTreeMap<String, At>,
}

impl Taken {
    /// Takes an id; false, and an issue, if it is taken already.
    pub(crate) fn take(&mut self, cx: &Context<'_>, what: &str, id: &str, at: &At) -> bool {
        let lower = id.to_lowercase();
        if let Some(first) = self.first.get(&lower) {
            let message = format!("{what} id {} is taken by {} ({})", shown(id), first.path, cx.place(first));
            cx.error(at, Code::DuplicateId, message, "ids are unique without regard to case, over all files");
            return false;
        }
        self.first.insert(lower, at.clone());
        true
    }
}
