//! The members of an object whose writer is known: their names, in the order in which it writes them.
//!
//! Debezium writes its envelope and its source block always in the same order, so the next name is guessed and compared as bytes. Whatever
//! stands there instead is read as any JSON and looked up, so a guess decides nothing.

use crate::json::{JsonError, Scanner};

/// Goes into the object that stands next; false where something else does, which has been passed over.
pub(super) fn enter(scanner: &mut Scanner<'_>) -> Result<bool, JsonError> {
    let mut ahead = *scanner;
    if ahead.enter_object().is_err() {
        scanner.value()?;
        return Ok(false);
    }
    *scanner = ahead;
    Ok(true)
}

/// What a name is to the caller, by a table as [`Members`] has it.
pub(super) fn find<M: Copy>(table: &[(&str, M)], name: &str) -> Option<M> {
    table.iter().find(|(quoted, _)| quoted[1..quoted.len() - 2] == *name).map(|(_, member)| *member)
}

/// Walks the members of an object.
pub(super) struct Members<M: 'static> {
    /// Names as JSON writes them, with quotes and colon, and what they are to the caller.
    table: &'static [(&'static str, M)],
    next: usize,
    is_first: bool,
}

impl<M: Copy> Members<M> {
    pub(super) const fn new(table: &'static [(&'static str, M)]) -> Self {
        Self { table, next: 0, is_first: true }
    }

    /// Takes the next name: `Some(None)` for one that is not in the table, `None` at the end of the object.
    #[inline]
    pub(super) fn take(&mut self, scanner: &mut Scanner<'_>) -> Result<Option<Option<M>>, JsonError> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        if let Some((quoted, member)) = self.table.get(self.next)
            && scanner.named(is_first, quoted)
        {
            self.next += 1;
            return Ok(Some(Some(*member)));
        }
        let Some(name) = scanner.member(is_first)? else { return Ok(None) };
        let found = self.table.iter().position(|(quoted, _)| quoted[1..quoted.len() - 2] == *name.raw);
        Ok(Some(found.map(|at| {
            self.next = at + 1;
            self.table[at].1
        })))
    }
}
