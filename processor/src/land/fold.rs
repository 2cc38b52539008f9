//! The one fold: the events of a key, in the order of their sequences, become its rows (SEMANTICS.md A.3).
//!
//! All landing shapes come from here; `upsert` shows the last run where it is open. A column that an event does not author takes its
//! predecessor's value in sequence order; what a key change brought has its former key's row as predecessor. Where there is none, a dialect's
//! row is withheld rather than blanked (law 10): it stays out of the replica until an event brings the value, whatever the order of arrival.

use landfall_schemas::row;
use landfall_schemas::sequence::{Rank, RankClass};
use landfall_schemas::table::Column;
use landfall_schemas::wire::WireError;
use landfall_schemas::{ColumnSet, Sequence};

use super::index::{Arena, Group, Index, Kind, RowSpan, Span, Ties};

/// The shape of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One row per live key (SCD1).
    Upsert,
    /// One row per run (SCD2); a run goes on while the tracked columns are equal.
    History {
        /// Positions of the tracked columns; columns that appear later are tracked too where it is `None`.
        tracked: Option<ColumnSet>,
    },
}

/// What becomes of a column that nobody authored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// It reads NULL: the meaning of `ignore_null_updates` with the user's own sequence, and of `fallback: { missing: set_null }`.
    Null,
    /// The row is withheld and named: a dialect's "value not sent" is no NULL.
    Withheld,
}

/// Whether a key's last state lacks a value that nobody knows, and what was made of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// It lacks none.
    None,
    /// NULL stands there ([`Unresolved::Null`]).
    Null,
    /// The row is withheld ([`Unresolved::Withheld`]).
    Withheld,
}

impl Gap {
    fn of(last: Option<&Resolved>, config: &Config) -> Self {
        match (last.is_some_and(|row| !row.unresolved.is_empty()), config.unresolved) {
            (false, _) => Self::None,
            (true, Unresolved::Null) => Self::Null,
            (true, Unresolved::Withheld) => Self::Withheld,
        }
    }
}

/// How a replica folds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its shape.
    pub shape: Shape,
    /// How ties are decided.
    pub ties: Ties,
    /// What becomes of columns without a value.
    pub unresolved: Unresolved,
}

impl Config {
    /// The fold of a change log with a dialect's own sequence into one row per key.
    pub const fn upsert() -> Self {
        Self { shape: Shape::Upsert, ties: Ties::Dialect, unresolved: Unresolved::Withheld }
    }
}

/// Marks of a log partition: they concern every key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Places at which the table was truncated.
    pub truncates: Vec<Sequence>,
    /// Ends of full snapshots: position and id.
    pub sweeps: Vec<(Sequence, i64)>,
}

/// One row of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Rank of the event that began it; with the key, its identity in a history.
    pub start: Rank,
    /// Rank that closed it; `None` while it is open.
    pub end: Option<Rank>,
    /// Rank of the event whose values it shows.
    pub tail: Rank,
    /// The values.
    pub row: RowSpan,
}

/// Memory that folding needs again and again.
#[derive(Debug, Default)]
pub struct Scratch {
    steps: Vec<(Rank, Option<usize>)>,
    spans: Vec<(u32, u32)>,
    parts: Vec<Option<Span>>,
    /// For groups that rest on another key's row, that row. The caller fills it for the index that is folded next.
    pub(super) formers: Vec<(usize, Resolved)>,
}

/// The row so far, with the columns that have no value yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Resolved {
    row: RowSpan,
    unresolved: ColumnSet,
}

/// What a group takes its open columns from: the row before it, or the row of its former key.
fn predecessor<'a>(group: &Group, at: usize, own: Option<&'a Resolved>, formers: &'a [(usize, Resolved)]) -> Option<&'a Resolved> {
    if group.former.is_none() { own } else { formers.iter().find(|(of, _)| *of == at).map(|(_, row)| row) }
}

/// Folds an index into its runs, in order. `columns` are those of the replica; rows that are put together go to the arena. Returns whether
/// the key's last state lacks a value that nobody knows.
pub fn fold(
    index: &Index,
    marks: &Marks,
    config: &Config,
    columns: &[Column],
    arena: &mut Arena,
    scratch: &mut Scratch,
    out: &mut Vec<Run>,
) -> Result<Gap, WireError> {
    out.clear();
    if config.shape == Shape::Upsert && !index.is_buried() && marks.truncates.is_empty() && marks.sweeps.is_empty() {
        return fold_last(index, config, columns, arena, scratch, out);
    }
    list_steps(index, marks, &mut scratch.steps);
    let steps = std::mem::take(&mut scratch.steps);
    let formers = std::mem::take(&mut scratch.formers);
    let mut open: Option<Run> = None;
    let mut previous: Option<Resolved> = None;
    for (rank, group) in &steps {
        let winner = group.map(|g| (g, &index.groups[g]));
        let Some((at, group)) = winner.filter(|(_, g)| g.events[0].kind != Kind::Delete) else {
            if let Some(run) = open.take() {
                out.push(Run { end: Some(rank.clone()), ..run });
            }
            previous = None;
            continue;
        };
        let resolved = resolve(group, predecessor(group, at, previous.as_ref(), &formers), columns, arena, scratch)?;
        let withheld = Gap::of(Some(&resolved), config) == Gap::Withheld;
        match &mut open {
            Some(run) if !withheld && continues(run.row, resolved.row, &config.shape, columns, arena)? => {
                run.tail = rank.clone();
                run.row = resolved.row;
            }
            _ => {
                if let Some(run) = open.take() {
                    out.push(Run { end: Some(rank.clone()), ..run });
                }
                open = (!withheld).then(|| Run { start: rank.clone(), end: None, tail: rank.clone(), row: resolved.row });
            }
        }
        previous = Some(resolved);
    }
    scratch.steps = steps;
    scratch.formers = formers;
    if config.shape == Shape::Upsert {
        out.clear();
    }
    out.extend(open);
    Ok(Gap::of(previous.as_ref(), config))
}

/// The row of a key just before a sequence, which is what a key change at that sequence took along. `former` is the row that the last base
/// below it rests on, where that is another key's.
pub(super) fn before(
    index: &Index,
    marks: &Marks,
    columns: &[Column],
    arena: &mut Arena,
    scratch: &mut Scratch,
    bound: &Sequence,
    former: Option<Resolved>,
) -> Result<Option<Resolved>, WireError> {
    // A row that a full snapshot read at the very place of the key change is the one that was taken along; the delete there has outranked it.
    if index.group(bound).is_some_and(|g| !g.snapshots.is_empty()) {
        return Ok(None);
    }
    let base = index.base_below(bound);
    list_steps(index, marks, &mut scratch.steps);
    let steps = std::mem::take(&mut scratch.steps);
    let end = Rank { sequence: bound.clone(), class: RankClass::Event };
    let mut previous: Option<Resolved> = None;
    for (_, at) in steps.iter().take_while(|(rank, _)| *rank < end) {
        previous = match at.map(|at| (at, &index.groups[at])).filter(|(_, g)| g.events[0].kind != Kind::Delete) {
            None => None,
            Some((at, group)) if group.former.is_none() || Some(at) == base => {
                let from = if group.former.is_some() { former.as_ref() } else { previous.as_ref() };
                Some(resolve(group, from, columns, arena, scratch)?)
            }
            // A later base makes up for it.
            Some(_) => None,
        };
    }
    scratch.steps = steps;
    Ok(previous)
}

/// The fold of one row per key without marks: only the last event and what it leaves to its predecessors count.
fn fold_last(
    index: &Index,
    config: &Config,
    columns: &[Column],
    arena: &mut Arena,
    scratch: &mut Scratch,
    out: &mut Vec<Run>,
) -> Result<Gap, WireError> {
    let mut base = index.groups.iter().rposition(Group::is_base).unwrap_or(0);
    let formers = std::mem::take(&mut scratch.formers);
    let mut previous: Option<Resolved> = None;
    while let Some(group) = index.groups.get(base) {
        previous = match group.events[0].kind {
            Kind::Delete => None,
            _ => Some(resolve(group, predecessor(group, base, previous.as_ref(), &formers), columns, arena, scratch)?),
        };
        base += 1;
    }
    scratch.formers = formers;
    let gap = Gap::of(previous.as_ref(), config);
    if let (Some(resolved), Some(group), false) = (previous, index.groups.last(), gap == Gap::Withheld) {
        let rank = Rank { sequence: group.sequence.clone(), class: RankClass::Event };
        out.push(Run { start: rank.clone(), end: None, tail: rank, row: resolved.row });
    }
    Ok(gap)
}

fn list_steps(index: &Index, marks: &Marks, steps: &mut Vec<(Rank, Option<usize>)>) {
    let rank = |sequence: &Sequence, class| Rank { sequence: sequence.clone(), class };
    steps.clear();
    for (i, group) in index.groups.iter().enumerate() {
        // A truncate outranks what stands at its own place.
        if !marks.truncates.contains(&group.sequence) {
            steps.push((rank(&group.sequence, RankClass::Event), Some(i)));
        }
    }
    steps.extend(index.tombstones.iter().filter(|t| !t.idle).map(|t| (rank(&t.behind, RankClass::Tombstone), None)));
    steps.extend(marks.truncates.iter().map(|s| (rank(s, RankClass::Truncate), None)));
    for (sequence, snapshot) in &marks.sweeps {
        if !index.spared.contains(snapshot) && !index.groups.iter().any(|g| g.snapshots.contains(snapshot)) {
            steps.push((rank(sequence, RankClass::Sweep), None));
        }
    }
    steps.sort_by(|a, b| a.0.cmp(&b.0));
}

/// Whether a run goes on with another row: equal in every tracked column. In `upsert` there is one run, whatever its values.
fn continues(old: RowSpan, new: RowSpan, shape: &Shape, columns: &[Column], arena: &Arena) -> Result<bool, WireError> {
    let Shape::History { tracked } = shape else { return Ok(true) };
    let mut old = row::values(columns_of(old, columns)?, arena.get(old.span));
    let mut new = row::values(columns_of(new, columns)?, arena.get(new.span));
    for column in 0..columns.len() {
        let null = landfall_schemas::Value::Null;
        let a = old.next().transpose()?.map_or(null, |(_, v)| v);
        let b = new.next().transpose()?.map_or(null, |(_, v)| v);
        if tracked.as_ref().is_none_or(|t| t.contains(column)) && !row::canonically_equal(&a, &b) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The columns that a row has: the first ones. A row that has more than the replica was stored under another schema or is damaged.
fn columns_of(row: RowSpan, columns: &[Column]) -> Result<&[Column], WireError> {
    columns.get(..usize::from(row.columns)).ok_or(WireError::Index)
}

/// The row of a group: the winner's, completed by its tie and by the predecessor.
fn resolve(group: &Group, previous: Option<&Resolved>, columns: &[Column], arena: &mut Arena, scratch: &mut Scratch) -> Result<Resolved, WireError> {
    let winner = &group.events[0];
    if winner.unauthored.is_empty() {
        return Ok(Resolved { row: winner.row, unresolved: ColumnSet::new() });
    }
    // Where each column's bytes are taken from; `None` is NULL.
    let parts = &mut scratch.parts;
    parts.clear();
    row::spans(columns_of(winner.row, columns)?, arena.get(winner.row.span), &mut scratch.spans)?;
    parts.extend(scratch.spans.iter().map(|(start, end)| Some(winner.row.span.part(*start, *end))));
    let mut open = winner.unauthored.clone();
    for event in group.events[1..].iter().filter(|e| group.fills(e)) {
        let taken: ColumnSet = open.iter().filter(|c| event.kind == Kind::Delete || !event.unauthored.contains(*c)).collect();
        fill(parts, &taken, (event.kind != Kind::Delete).then_some(event.row), columns, arena, &mut scratch.spans)?;
        open = open.iter().filter(|c| !taken.contains(*c)).collect();
    }
    let unresolved = match previous {
        Some(previous) => {
            fill(parts, &open, Some(previous.row), columns, arena, &mut scratch.spans)?;
            open.iter().filter(|c| previous.unresolved.contains(*c)).collect()
        }
        None => {
            fill(parts, &open, None, columns, arena, &mut scratch.spans)?;
            open
        }
    };
    let mark = arena.mark();
    for part in parts.iter() {
        match part {
            Some(span) => arena.append_within(*span),
            None => arena.append(&[0]),
        }
    }
    Ok(Resolved { row: RowSpan { span: arena.since(mark), columns: winner.row.columns }, unresolved })
}

/// Takes the wanted columns from a row, or as NULL where there is none or the row is shorter.
fn fill(
    parts: &mut [Option<Span>],
    wanted: &ColumnSet,
    row: Option<RowSpan>,
    columns: &[Column],
    arena: &Arena,
    spans: &mut Vec<(u32, u32)>,
) -> Result<(), WireError> {
    spans.clear();
    if let Some(row) = row {
        row::spans(columns_of(row, columns)?, arena.get(row.span), spans)?;
    }
    for column in wanted.iter() {
        if let Some(part) = parts.get_mut(column) {
            *part = row.and_then(|row| spans.get(column).map(|(start, end)| row.span.part(*start, *end)));
        }
    }
    Ok(())
}
