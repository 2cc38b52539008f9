//! What the metadata of a replica means: pure decisions over rows that were read, without a connection.
//!
//! Both metadata tables only ever gain rows, and what counts is chosen by a maximum, so that it does not matter who inserts last:
//!
//! - **Build in force**: the highest of the replica's rows. A late row of an earlier build changes nothing.
//! - **Fence in force**: the highest fence of the build that has a claim row. Fences end in random digits: of two claims made at one moment
//!   one is higher, and a fence that was given out before the store was put back is never given out again by chance. A landing whose claim
//!   the store does not know, because it was put back to an earlier moment, does not count either.
//! - **`K`**: `next` of the last landing under that fence. Landings are numbered; one that does not follow the one before it was under way
//!   while the store was put back, and is passed over. What a former owner still writes stands under its own fence and is never looked at.
//! - **Identity**: the UUID of the table that the build's rows are in. Another table under the name, none, or two that are claimed to be it
//!   mean that rows can be missing although `K` says they are there: the build is raised and everything lands again.

use clickhouse::Row;
use landfall_schemas::{Column, TableSchema, contract};
use serde::Deserialize;

use super::sql::{self, DELETED, NO_IDENTITY, VERSION, column_type_text};
use crate::sink::{Error, Kind};

/// Random digits at the end of a fence.
const FENCE_RANDOM_BITS: u32 = 16;

/// A row of `landfall_replica`.
#[derive(Clone, Debug, PartialEq, Eq, Row, Deserialize)]
pub(super) struct Remembered {
    pub(super) build: u16,
    pub(super) revision: u64,
    pub(super) table: String,
    pub(super) generation: u32,
    pub(super) identity: String,
    pub(super) contract: String,
}

/// Everything that is remembered of a replica.
#[derive(Debug)]
pub(super) struct History(pub(super) Vec<Remembered>);

impl History {
    /// The build in force; `None` for a replica that was never opened.
    pub(super) fn build(&self) -> Option<u16> {
        self.0.iter().map(|r| r.build).max()
    }

    /// The last row of a build.
    pub(super) fn last(&self, build: u16) -> Option<&Remembered> {
        self.0.iter().filter(|r| r.build == build).max_by(|a, b| (a.revision, &a.contract).cmp(&(b.revision, &b.contract)))
    }

    /// The tables that a build's rows were landed into: none before the first `prepare`, one in good order.
    pub(super) fn identities(&self, build: u16) -> Vec<&str> {
        let mut identities: Vec<&str> =
            self.0.iter().filter(|r| r.build == build && r.identity != NO_IDENTITY).map(|r| r.identity.as_str()).collect();
        identities.sort_unstable();
        identities.dedup();
        identities
    }

    /// Whether a table is named as the replica's.
    pub(super) fn names(&self, table: &str) -> bool {
        self.0.iter().any(|r| r.table == table)
    }

    /// Whether a table, by its UUID, was ever the replica's.
    pub(super) fn knows(&self, identity: &str) -> bool {
        self.0.iter().any(|r| r.identity == identity)
    }

    /// The next revision.
    pub(super) fn revision(&self) -> u64 {
        self.0.iter().map(|r| r.revision).max().unwrap_or(0) + 1
    }

    /// The schema that the table of a build was last prepared for.
    pub(super) fn schema(&self, build: u16) -> Result<Option<TableSchema>, Error> {
        match self.last(build) {
            Some(row) if !row.contract.is_empty() => contract::parse(&row.contract)
                .map(Some)
                .map_err(|e| Error::with(Kind::Internal, format!("the remembered schema of table {:?} cannot be read", row.table), e)),
            _ => Ok(None),
        }
    }
}

/// A table of the catalogue.
#[derive(Clone, Debug, Row, Deserialize)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) engine: String,
    pub(super) identity: String,
    pub(super) sorting_key: String,
    pub(super) engine_full: String,
    pub(super) comment: String,
}

/// A column of the catalogue.
#[derive(Clone, Debug, Row, Deserialize)]
pub(super) struct TableColumn {
    pub(super) table: String,
    pub(super) name: String,
    pub(super) r#type: String,
}

/// A replica's table and view, as they stand.
#[derive(Debug)]
pub(super) struct Catalogue {
    pub(super) tables: Vec<Table>,
    pub(super) columns: Vec<TableColumn>,
}

impl Catalogue {
    /// A table or view by its name.
    pub(super) fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|t| t.name == name)
    }

    /// Name and type of the columns of a table, in order.
    pub(super) fn columns<'a>(&'a self, table: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.columns.iter().filter(move |c| c.table == table).map(|c| (c.name.as_str(), c.r#type.as_str()))
    }

    /// The user's columns of a replica table.
    pub(super) fn user_columns<'a>(&'a self, table: &'a str) -> Vec<&'a str> {
        self.columns(table).map(|(name, _)| name).filter(|name| *name != VERSION && *name != DELETED).collect()
    }
}

/// The build at the end of a comment that begins with what `comment` gives, where it is such a comment.
pub(super) fn build_of_comment(text: &str, comment: impl Fn(u16) -> String) -> Option<u16> {
    let build = text.rsplit(' ').next()?.parse().ok()?;
    (comment(build) == text).then_some(build)
}

/// The replica, in quotes, that the comment of a table names.
pub(super) fn owner_of_comment(text: &str) -> Option<&str> {
    text.strip_prefix("landfall replica ")?.rsplit_once(", build ").map(|(owner, _)| owner)
}

/// What a replica table is to a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is none.
    Absent,
    /// It is not the replica's.
    Foreign,
    /// It is the replica's, of an earlier build: its rows do not count.
    Earlier,
    /// It is the replica's, of a later build.
    Later,
    /// It is where the build's rows are.
    Current,
    /// The build has landed rows into another table than this one, or into two.
    Lost,
}

/// Tells what the table of a replica is to a build.
pub(super) fn standing(history: &History, catalogue: &Catalogue, replica: &str, table: &str, build: u16) -> Standing {
    let identities = history.identities(build);
    let Some(found) = catalogue.table(table) else {
        return if identities.is_empty() { Standing::Absent } else { Standing::Lost };
    };
    let made_for = build_of_comment(&found.comment, |build| sql::table_comment(replica, build));
    if !history.names(table) || (made_for.is_none() && !history.knows(&found.identity)) {
        return Standing::Foreign;
    }
    match (identities.as_slice(), made_for) {
        ([only], _) if *only == found.identity => Standing::Current,
        ([_, ..], _) => Standing::Lost,
        ([], Some(made_for)) if made_for == build => Standing::Current,
        ([], Some(made_for)) if made_for > build => Standing::Later,
        ([], _) => Standing::Earlier,
    }
}

/// The columns of a schema that a replica's table lacks, after a look at what would destroy rows: another sort key, missing version or
/// tombstone columns, another type, a column that was there and is gone (SEMANTICS.md F, Adopting).
pub(super) fn missing_columns<'a>(
    catalogue: &Catalogue,
    table: &str,
    schema: &'a TableSchema,
    before: Option<&TableSchema>,
) -> Result<Vec<&'a Column>, Error> {
    let changed = |what: String| Error::new(Kind::TableChanged, format!("table {table:?} {what}"));
    let found = catalogue.table(table).expect("the table has just been seen");
    if !found.engine.ends_with("ReplacingMergeTree") || !found.engine_full.contains(&format!("{VERSION}, {DELETED})")) {
        return Err(changed(format!("has engine {}, not ReplacingMergeTree({VERSION}, {DELETED})", found.engine)));
    }
    let key: Vec<&str> = schema.key_columns().map(|c| c.name.as_str()).collect();
    if sort_key(&found.sorting_key).is_none_or(|sorted| sorted != key) {
        return Err(changed(format!("is sorted by {}, not by the key", found.sorting_key)));
    }
    let has = |name: &str| catalogue.columns(table).find(|(n, _)| *n == name).map(|(_, ty)| ty);
    for (name, ty) in [(VERSION, "UInt64"), (DELETED, "UInt8")] {
        if has(name) != Some(ty) {
            return Err(changed(format!("has no column {name} of type {ty}")));
        }
    }
    let mut missing = Vec::new();
    for (at, column) in schema.columns().iter().enumerate() {
        let expected = column_type_text(column, schema.key().contains(&at));
        match has(&column.name) {
            Some(ty) if ty == expected => {}
            Some(ty) => return Err(changed(format!("has column {:?} of type {ty}, not {expected}", column.name))),
            // To add it again would blank what it held.
            None if before.is_some_and(|before| before.position(&column.name).is_some()) => {
                return Err(changed(format!("has lost column {:?}", column.name)));
            }
            None => missing.push(column),
        }
    }
    Ok(missing)
}

/// The names in a sort key as the catalogue prints it: `id`, `(a)` or ``a, `b c` ``. `None` where it is more than names.
fn sort_key(text: &str) -> Option<Vec<String>> {
    let text = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(text);
    let mut names = Vec::new();
    let mut rest = text.chars().peekable();
    loop {
        let mut name = String::new();
        if rest.next_if_eq(&'`').is_some() {
            loop {
                match rest.next()? {
                    '`' => break,
                    '\\' => name.push(match rest.next()? {
                        '0' => '\0',
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        'b' => '\u{8}',
                        'f' => '\u{c}',
                        'a' => '\u{7}',
                        'v' => '\u{b}',
                        'e' => '\u{1b}',
                        c => c,
                    }),
                    c => name.push(c),
                }
            }
        } else {
            while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                name.push(c);
            }
        }
        names.push(name);
        match (rest.next(), rest.next()) {
            (None, _) => return Some(names),
            (Some(','), Some(' ')) => {}
            _ => return None,
        }
    }
}

/// A row of `landfall_cursor`: generation, build, fence, slot, claim, landing, next.
pub(super) type CursorEntry = (u32, u16, u64, u8, u64, u64, Option<i64>);

/// What a claim or a landing goes by, as one statement reads it.
#[derive(Clone, Debug, Row, Deserialize)]
pub(super) struct State {
    /// Builds of the replica with the tables that their rows were landed into.
    pub(super) builds: Vec<(u16, String)>,
    /// The table that is there.
    pub(super) identity: Option<String>,
    /// Of the highest fences of the partition: the claims and the last two landings.
    pub(super) entries: Vec<CursorEntry>,
}

/// Where the rows of a build are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landed {
    /// No table was prepared.
    Nothing,
    /// In the table that is there.
    Here,
    /// In one that is gone, or in two.
    Elsewhere,
}

/// Where a partition stands in a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The build.
    pub(super) build: u16,
    /// The fence in force.
    pub(super) fence: u64,
    /// Marks of the claims with that fence.
    pub(super) claims: Vec<u64>,
    /// Number of the landing that counts; 0 for the claim.
    pub(super) landing: u64,
    /// `K`.
    pub(super) next: Option<i64>,
}

impl State {
    /// The build in force; `None` for a replica that was never opened.
    pub(super) fn build(&self) -> Option<u16> {
        self.builds.iter().map(|(build, _)| *build).max()
    }

    /// Whether the table is the one that the build in force has landed into. A build that has not landed any rows needs none.
    pub(super) fn table(&self) -> Landed {
        let build = self.build();
        let mut identities = self.builds.iter().filter(|(b, identity)| Some(*b) == build && identity != NO_IDENTITY).map(|(_, identity)| identity);
        match (identities.next(), identities.next(), &self.identity) {
            (None, ..) => Landed::Nothing,
            (Some(only), None, Some(found)) if only == found => Landed::Here,
            _ => Landed::Elsewhere,
        }
    }

    /// Where the partition stands in a build, or in the newest one that was claimed.
    pub(super) fn head(&self, generation: u32, build: Option<u16>) -> Option<Head> {
        let claims = || self.entries.iter().filter(|(g, b, _, slot, ..)| *g == generation && build.is_none_or(|build| *b == build) && *slot == 0);
        let (_, build, fence, ..) = *claims().max_by_key(|(_, build, fence, ..)| (*build, *fence))?;
        let claims = claims().filter(|(_, b, f, ..)| *b == build && *f == fence).map(|(_, _, _, _, claim, ..)| *claim).collect();
        // Several rows of one landing differ in what was landed again after an answer was lost: the highest `next` is true as well.
        let mut landings: Vec<(u64, Option<i64>)> = Vec::new();
        for &(g, b, f, _, _, landing, next) in &self.entries {
            if (g, b, f) != (generation, build, fence) {
                continue;
            }
            match landings.iter_mut().find(|(number, _)| *number == landing) {
                Some((_, known)) => *known = next.max(*known),
                None => landings.push((landing, next)),
            }
        }
        landings.sort_unstable();
        let (landing, next) = match *landings.as_slice() {
            [.., before, last] if before.0 + 1 == last.0 => last,
            [.., before, _] => before,
            [only] => only,
            [] => (0, None),
        };
        Some(Head { build, fence, claims, landing, next })
    }

    /// A fence above every earlier one.
    pub(super) fn next_fence(&self, random: u64) -> u64 {
        let highest = self.entries.iter().map(|(_, _, fence, ..)| *fence).max().unwrap_or(0);
        (((highest >> FENCE_RANDOM_BITS) + 1) << FENCE_RANDOM_BITS) | (random & ((1 << FENCE_RANDOM_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(entries: &[CursorEntry]) -> State {
        State { builds: vec![(1, "a".to_owned()), (1, NO_IDENTITY.to_owned())], identity: Some("a".to_owned()), entries: entries.to_vec() }
    }

    /// A claim and landings of generation 1 and build 1 under a fence.
    fn owned(fence: u64, claimed: Option<i64>, landings: &[(u64, i64)]) -> Vec<CursorEntry> {
        let claim = (1, 1, fence, 0, fence + 7, 0, claimed);
        std::iter::once(claim).chain(landings.iter().map(|(number, next)| (1, 1, fence, 1, 0, *number, Some(*next)))).collect()
    }

    fn k(entries: &[CursorEntry]) -> Option<(u64, u64, Option<i64>)> {
        state(entries).head(1, Some(1)).map(|h| (h.fence, h.landing, h.next))
    }

    #[test]
    fn the_last_landing_counts_where_it_follows_the_one_before() {
        assert_eq!(k(&[]), None);
        assert_eq!(k(&owned(5, None, &[])), Some((5, 0, None)));
        assert_eq!(k(&owned(5, Some(40), &[])), Some((5, 0, Some(40))));
        assert_eq!(k(&owned(5, Some(40), &[(1, 50)])), Some((5, 1, Some(50))));
        for two in [[(7, 70), (6, 60)], [(6, 60), (7, 70)]] {
            assert_eq!(k(&owned(5, None, &two)), Some((5, 7, Some(70))));
        }
        assert_eq!(k(&owned(5, None, &[(1, 60), (1, 55)])), Some((5, 1, Some(60))));
    }

    #[test]
    fn a_landing_from_before_the_store_was_put_back_is_passed_over() {
        assert_eq!(k(&owned(5, None, &[(101, 110), (50, 50)])), Some((5, 50, Some(50))));
        assert_eq!(k(&owned(5, Some(3), &[(9, 90)])), Some((5, 0, Some(3))));
    }

    #[test]
    fn a_fence_without_a_claim_does_not_count() {
        let mut entries = owned(5, None, &[(1, 10)]);
        entries.push((1, 1, 9, 1, 0, 1, Some(99)));
        assert_eq!(k(&entries), Some((5, 1, Some(10))));
        assert!(state(&entries).next_fence(0) > 9);
    }

    #[test]
    fn the_highest_fence_of_the_build_and_generation_counts() {
        let mut entries = owned(5, None, &[(1, 10)]);
        entries.extend(owned(8, Some(10), &[]));
        entries.push((1, 1, 5, 2, 0, 2, Some(20)));
        assert_eq!(k(&entries), Some((8, 0, Some(10))));
        // Other builds and generations have fences and cursors of their own.
        entries.extend([(1, 0, 90, 0, 1, 0, Some(70)), (2, 1, 91, 0, 1, 0, Some(71)), (1, 2, 92, 0, 1, 0, None)]);
        assert_eq!(k(&entries), Some((8, 0, Some(10))));
        let newest = state(&entries).head(1, None).expect("claimed");
        assert_eq!((newest.build, newest.fence, newest.next), (2, 92, None));
    }

    #[test]
    fn claims_with_one_fence_are_seen() {
        let mut entries = owned(5, None, &[]);
        entries.push((1, 1, 5, 0, 99, 0, None));
        assert_eq!(state(&entries).head(1, Some(1)).expect("claimed").claims, [12, 99]);
    }

    #[test]
    fn fences_rise_whatever_their_random_digits() {
        let mut highest = 0;
        for random in [u64::MAX, 0, 12_345, u64::MAX, 1] {
            let fence = state(&owned(highest, None, &[])).next_fence(random);
            assert!(fence > highest);
            highest = fence;
        }
        assert_eq!(highest >> FENCE_RANDOM_BITS, 5);
    }

    #[test]
    fn a_build_has_one_table() {
        let mut s = state(&[]);
        assert_eq!(s.table(), Landed::Here);
        for other in [Some("b".to_owned()), None] {
            s.identity = other;
            assert_eq!(s.table(), Landed::Elsewhere);
        }
        s.identity = Some("a".to_owned());
        s.builds.push((0, "b".to_owned()));
        assert_eq!(s.table(), Landed::Here);
        s.builds.push((1, "b".to_owned()));
        assert_eq!(s.table(), Landed::Elsewhere);
        s.builds.push((2, NO_IDENTITY.to_owned()));
        assert_eq!(s.table(), Landed::Nothing);
    }

    #[test]
    fn sort_keys_are_read_as_the_server_prints_them() {
        let names = |text| sort_key(text);
        let list = |names: &[&str]| Some(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(names("id"), list(&["id"]));
        assert_eq!(names("(id)"), list(&["id"]));
        assert_eq!(names("a, `b c`, `d\\`e\\\\`"), list(&["a", "b c", "d`e\\"]));
        assert_eq!(names("toDate(id)"), None);
        assert_eq!(names("a,b"), None);
    }

    fn row(build: u16, identity: &str, table: &str) -> Remembered {
        Remembered { build, revision: 1, table: table.to_owned(), generation: 1, identity: identity.to_owned(), contract: String::new() }
    }

    fn catalogue(identity: &str, comment: &str) -> Catalogue {
        let table = Table {
            name: "t".to_owned(),
            engine: "ReplacingMergeTree".to_owned(),
            identity: identity.to_owned(),
            sorting_key: "id".to_owned(),
            engine_full: format!("ReplacingMergeTree({VERSION}, {DELETED}) ORDER BY id"),
            comment: comment.to_owned(),
        };
        Catalogue { tables: vec![table], columns: Vec::new() }
    }

    #[test]
    fn standing_of_a_table() {
        let ours = |build| sql::table_comment("s.t", build);
        let none = Catalogue { tables: vec![], columns: vec![] };
        let fresh = History(vec![row(1, NO_IDENTITY, "t")]);
        let landed = History(vec![row(1, NO_IDENTITY, "t"), row(1, "a", "t")]);
        let raised = History(vec![row(1, "a", "t"), row(2, NO_IDENTITY, "t")]);
        let torn = History(vec![row(1, "a", "t"), row(1, "b", "t")]);
        let unnamed = History(vec![row(1, NO_IDENTITY, "")]);
        let of = |history: &History, catalogue: &Catalogue, build| standing(history, catalogue, "s.t", "t", build);
        assert_eq!(of(&fresh, &none, 1), Standing::Absent);
        assert_eq!(of(&landed, &none, 1), Standing::Lost);
        assert_eq!(of(&fresh, &catalogue("x", ""), 1), Standing::Foreign);
        assert_eq!(of(&fresh, &catalogue("x", &sql::table_comment("s.other", 1)), 1), Standing::Foreign);
        assert_eq!(of(&unnamed, &catalogue("x", &ours(1)), 1), Standing::Foreign);
        assert_eq!(of(&fresh, &catalogue("a", &ours(1)), 1), Standing::Current);
        assert_eq!(of(&landed, &catalogue("a", "an operator's words"), 1), Standing::Current);
        assert_eq!(of(&landed, &catalogue("b", &ours(1)), 1), Standing::Lost);
        assert_eq!(of(&torn, &catalogue("b", &ours(1)), 1), Standing::Lost);
        assert_eq!(of(&raised, &catalogue("a", &ours(1)), 2), Standing::Earlier);
        assert_eq!(of(&fresh, &catalogue("a", &ours(2)), 1), Standing::Later);
    }
}
