//! ClickHouse: versioned rows in a `ReplacingMergeTree`, and the cursor after them.
//!
//! The store has no transactions and no conditional insert, so nothing here is a compare-and-set in the strict sense: fence and `K` are
//! checked before the rows and again before the cursor, and what slips through between a check and an insert converges. That it may is
//! because a row's content is a function of (identity, version) and the highest version wins, whoever inserts it and in whatever order
//! (INV-2, laws 6 and 13); the engine's deduplication of inserts is turned off, nothing rests on it or on merges (law 9).
//!
//! - **A crash or a lost answer anywhere in a landing** leaves rows whose versions are at or above `K`. They are landed again, equal.
//! - **A zombie** that passed its check before another owner claimed inserts rows of a log prefix: they lose to higher versions or are equal
//!   to what the new owner lands. Its cursor row stands under its own, lower fence, which nobody reads any more (`metadata`). A zombie of an
//!   earlier build writes versions below the view's bound and a cursor of that build.
//! - **A store put back** shows its cursor as it was: the owner's next check finds another fence or another `K` and the partition is claimed
//!   anew from there. Fences given out since are unknown to the store, so what is still under way with them does not count; a landing under
//!   way with a fence that the store does know is out of step with the landing numbers and is passed over. What remains is a landing whose
//!   rows came before the store was put back, to exactly the moment before them, and whose cursor came after: that is why a restore under
//!   live landers raises the build (RELIABILITY.md B 23). Tables that come back under another UUID do so by themselves.
//! - **Durable before success**: rows and cursor are inserted synchronously into tables that sync each part and its folder, each acknowledged
//!   before the next step. On a replicated engine both wait for a quorum (`insert_quorum` is set, plain engines ignore it); readers of `K` on
//!   another replica may be behind, which reads a lower `K` and lands again.
//!
//! A current-thread runtime drives the crate's client, so a sink must be called from a plain thread (`connection`).

mod connection;
mod encode;
mod error;
mod metadata;
pub mod query;
mod sql;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use bytes::BytesMut;
use landfall_schemas::{contract, store};

pub use self::connection::Options;
use self::connection::{Connection, DEFINITION, FINISH, SEND, STATEMENT};
use self::encode::{BLOCK_BYTES, Block, Buffers};
use self::error::Carries;
use self::metadata::{Catalogue, Head, History, Landed, Remembered, Standing, State, missing_columns, standing};
use self::sql::{CursorRow, NO_IDENTITY, Statements};
use super::{Batch, Claim, Cursor, Error, Kind, Opened, Sink, Target};
use crate::fault;

/// Attempts to see a table at rest, or to make the view agree with it, while others change it.
const ATTEMPTS: usize = 5;

/// A ClickHouse server as a sink.
pub struct ClickHouseSink {
    connection: Connection,
    targets: HashMap<String, Landing>,
    buffers: Buffers,
    chunk: BytesMut,
}

impl fmt::Debug for ClickHouseSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClickHouseSink").field("database", &self.connection.database()).finish_non_exhaustive()
    }
}

/// What is kept of a target from landing to landing.
struct Landing {
    target: Target,
    statements: Statements,
    block: Block,
    schema: String,
}

impl Landing {
    fn new(database: &str, target: &Target) -> Self {
        Self {
            statements: Statements::new(database, target),
            block: Block::new(&target.schema),
            schema: contract::of(&target.schema).1.to_string(),
            target: target.clone(),
        }
    }

    fn is_for(&self, target: &Target) -> bool {
        let mine = &self.target;
        mine.build == target.build
            && mine.generation == target.generation
            && mine.table == target.table
            && (Arc::ptr_eq(&mine.schema, &target.schema) || mine.schema == target.schema)
    }
}

impl ClickHouseSink {
    /// A sink that connects at its first call. Rows are sent compressed unless the host is this one, where that only costs: measured with
    /// batches of 100 k rows, 2.7–4.6 M rows/s plain and 2.8–3.0 M with LZ4.
    pub fn new(options: Options) -> Self {
        Self { connection: Connection::new(options), targets: HashMap::new(), buffers: Buffers::default(), chunk: BytesMut::new() }
    }

    /// Sends rows LZ4-compressed or plain, whatever the host.
    #[must_use]
    pub fn with_compression(mut self, compress: bool) -> Self {
        self.connection.compress(compress);
        self
    }

    fn history(&self, replica: &str) -> Result<History, Error> {
        Ok(History(self.connection.fetch(&sql::history(self.connection.database(), replica), "reading what is known of the replica")?))
    }

    fn catalogue(&self, table: &str) -> Result<Catalogue, Error> {
        let catalogue = Catalogue {
            tables: self.connection.fetch(&sql::tables(self.connection.database(), table), "looking the table up")?,
            columns: self.connection.fetch(&sql::columns(self.connection.database(), table), "looking the columns up")?,
        };
        if catalogue.table(table).is_some_and(|t| t.identity == NO_IDENTITY) {
            return Err(Error::new(
                Kind::Unsupported,
                format!("tables of database {:?} have no uuid; an Atomic one gives them one", self.connection.database()),
            ));
        }
        Ok(catalogue)
    }

    /// What is remembered of a replica and what is there, both of one moment: between the steps of somebody who is making the table, a look at
    /// one after the other would show it as nobody's or as lost.
    fn seen(&self, replica: &str, table: &str) -> Result<(History, Catalogue), Error> {
        let mut history = self.history(replica)?;
        for _ in 0..ATTEMPTS {
            let catalogue = self.catalogue(table)?;
            // Rows are only ever added, so as many are the same ones.
            let count = history.0.len();
            history = self.history(replica)?;
            if history.0.len() == count {
                return Ok((history, catalogue));
            }
        }
        Err(changing(table))
    }

    fn remember(&self, replica: &str, row: &Remembered) -> Result<(), Error> {
        self.connection.execute(&sql::remember(self.connection.database(), replica, row), "remembering the replica", STATEMENT)
    }

    /// Puts a higher build in force, with no schema and no table of its own yet. From this insert on no row and no cursor of earlier builds
    /// counts; the view follows, and the next `prepare` takes the table over or puts another in its place. Nothing is emptied here: a table
    /// that is emptied while another process lands into it would lose rows behind that one's cursor.
    fn raise(&self, replica: &str, table: &str, history: &History, build: u16) -> Result<(), Error> {
        let exists = self.catalogue(table)?.table(table).is_some();
        let named = if exists && !history.names(table) { String::new() } else { table.to_owned() };
        let generation = history.build().and_then(|b| history.last(b)).map_or(0, |r| r.generation);
        let row =
            Remembered { build, revision: history.revision(), table: named, generation, identity: NO_IDENTITY.to_owned(), contract: String::new() };
        self.remember(replica, &row)?;
        self.show(replica, table, build)
    }

    /// Makes the view agree with the table and the build, where the replica has a table. Others may change both meanwhile: what is there
    /// afterwards decides, not what was asked for.
    fn show(&self, replica: &str, table: &str, build: u16) -> Result<(), Error> {
        let mut build = build;
        for _ in 0..ATTEMPTS {
            let (history, catalogue) = self.seen(replica, table)?;
            build = history.build().unwrap_or(build).max(build);
            if matches!(standing(&history, &catalogue, replica, table, build), Standing::Absent | Standing::Foreign)
                || catalogue.table(table).is_none()
            {
                return Ok(());
            }
            let live = sql::live(table);
            let columns = catalogue.user_columns(table);
            if let Some(view) = catalogue.table(&live) {
                let shows = metadata::build_of_comment(&view.comment, |build| sql::view_comment(replica, build));
                if view.engine != "View" || shows.is_none() {
                    return Err(Error::new(Kind::TableExists, format!("{live:?}, the name of the view of table {table:?}, is taken")));
                }
                if shows == Some(build) && catalogue.columns(&live).map(|(name, _)| name).eq(columns.iter().copied()) {
                    return Ok(());
                }
            }
            self.connection.execute(&sql::create_view(self.connection.database(), table, replica, build, &columns), "making the view", DEFINITION)?;
        }
        Err(changing(table))
    }

    fn try_open(&mut self, replica: &str, table: &str, build: Option<u16>) -> Result<Opened, Error> {
        self.connection.connect()?;
        let history = self.history(replica)?;
        let claimed: Option<u16> = self.connection.fetch(&sql::claimed(self.connection.database(), replica), "reading the builds")?.pop().flatten();
        let Some(stored) = history.build() else {
            let unclaimed = claimed.map_or(Ok(0), |claimed| following(replica, claimed))?;
            let build = build.unwrap_or(0).max(unclaimed);
            self.raise(replica, table, &history, build)?;
            return Ok(Opened { build, schema: None });
        };
        let moved = history.last(stored).is_some_and(|r| !r.table.is_empty() && r.table != table);
        let lost = moved || standing(&history, &self.catalogue(table)?, replica, table, stored) == Standing::Lost;
        let wanted = build.unwrap_or(stored);
        if wanted < stored {
            return Err(superseded(replica, stored));
        }
        let mut next = if lost { wanted.max(following(replica, stored)?) } else { wanted };
        if let Some(claimed) = claimed.filter(|claimed| *claimed > stored) {
            // What was remembered of the replica went back or is gone, and its cursors stayed: they tell of rows that may not be there.
            next = next.max(following(replica, claimed)?);
        }
        if next > stored {
            self.raise(replica, table, &history, next)?;
            return Ok(Opened { build: next, schema: None });
        }
        self.show(replica, table, stored)?;
        Ok(Opened { build: stored, schema: history.schema(stored)? })
    }

    fn try_prepare(&mut self, target: &Target) -> Result<(), Error> {
        self.connection.connect()?;
        for column in target.schema.columns() {
            store::clickhouse::column_name(&column.name).map_err(|e| Error::new(Kind::Unsupported, format!("table {:?}: {e}", target.table)))?;
        }
        let Target { replica, table, build, .. } = target;
        let (mut history, mut catalogue) = self.seen(replica, table)?;
        self.in_force(target, history.build())?;
        if history.0.iter().any(|r| r.build == *build && r.identity != NO_IDENTITY && r.generation != target.generation) {
            return Err(self.raised(target, &history, "another generation has been landed")?);
        }
        if catalogue.table(table).is_none() && !history.names(table) {
            // Named before it is made: a crash in between leaves a table that is known as ours by its comment and this row.
            let row = Remembered { table: table.clone(), ..self.next_row(&history, target, NO_IDENTITY, String::new()) };
            self.remember(replica, &row)?;
            (history, catalogue) = self.seen(replica, table)?;
        }
        let mut earlier = false;
        match standing(&history, &catalogue, replica, table, *build) {
            Standing::Current => {}
            Standing::Foreign => {
                let whose = match catalogue.table(table).and_then(|t| metadata::owner_of_comment(&t.comment)) {
                    Some(owner) => format!("belongs to replica {owner}"),
                    None => format!("is there and is not a replica of {replica:?}"),
                };
                return Err(Error::new(Kind::TableExists, format!("table {table:?} {whose}")));
            }
            Standing::Later => return Err(Error::new(Kind::Build, format!("table {table:?} is of a later build"))),
            Standing::Lost => return Err(self.raised(target, &history, "the table that rows were landed into is gone")?),
            Standing::Earlier if takes_over(&catalogue, target) => earlier = true,
            found @ (Standing::Absent | Standing::Earlier) => {
                let statement = sql::create_table(self.connection.database(), target, found == Standing::Earlier);
                let request = self.connection.client().query_raw(&statement).with_setting("max_table_size_to_drop", "0").execute();
                self.connection.wait("making the table", DEFINITION, request)?;
                catalogue = self.catalogue(table)?;
                if standing(&history, &catalogue, replica, table, *build) != Standing::Current {
                    return Err(changing(table));
                }
            }
        }
        let before = history.schema(*build)?;
        let missing = missing_columns(&catalogue, table, &target.schema, before.as_ref())?;
        if !missing.is_empty() {
            self.connection.execute(&sql::add_columns(self.connection.database(), table, &missing), "widening the table", DEFINITION)?;
        }
        let identity = catalogue.table(table).map_or(NO_IDENTITY, |t| t.identity.as_str());
        let row = self.next_row(&history, target, identity, contract::of(&target.schema).0);
        let known = history.last(*build).is_some_and(|last| Remembered { revision: row.revision, ..last.clone() } == row);
        if !known {
            self.remember(replica, &row)?;
            history = self.history(replica)?;
            self.in_force(target, history.build())?;
            if history.identities(*build).len() > 1 {
                return Err(self.raised(target, &history, "two tables have been made for it")?);
            }
        }
        self.show(replica, table, *build)?;
        if earlier {
            // They are hidden and take space, no more: a right that is missing for this holds nothing up.
            drop(self.connection.execute(&sql::purge(self.connection.database(), table, *build), "removing rows of earlier builds", STATEMENT));
        }
        Ok(())
    }

    fn next_row(&self, history: &History, target: &Target, identity: &str, contract: String) -> Remembered {
        Remembered {
            build: target.build,
            revision: history.revision(),
            table: target.table.clone(),
            generation: target.generation,
            identity: identity.to_owned(),
            contract,
        }
    }

    fn in_force(&self, target: &Target, build: Option<u16>) -> Result<(), Error> {
        match build {
            Some(build) if build == target.build => Ok(()),
            Some(build) => Err(superseded(&target.replica, build)),
            None => Err(Error::new(Kind::Internal, format!("replica {:?} was never opened", target.replica))),
        }
    }

    /// Raises the build because rows of the one in force can be missing, and gives the error that sends the caller back to `open`.
    fn raised(&self, target: &Target, history: &History, why: &str) -> Result<Error, Error> {
        let next = following(&target.replica, target.build)?;
        self.raise(&target.replica, &target.table, history, next)?;
        Ok(Error::new(Kind::Build, format!("build {next} of replica {:?} is in force: {why}", target.replica)))
    }

    /// The statements of a target, out of the cache.
    fn landing(&mut self, target: &Target) -> Landing {
        match self.targets.remove(&target.replica) {
            Some(landing) if landing.is_for(target) => landing,
            _ => Landing::new(self.connection.database(), target),
        }
    }

    /// What a claim or a landing of a partition goes by, and where the partition stands in a build, or in the newest.
    fn state(&self, landing: &Landing, partition: i32, build: Option<u16>) -> Result<(State, Option<Head>), Error> {
        let read = |all| {
            let read = self.connection.fetch::<State>(&landing.statements.state(partition, all), "reading the cursor")?.pop();
            let state = read.ok_or_else(|| Error::new(Kind::Internal, "reading the cursor: no answer"))?;
            let head = state.head(landing.target.generation, build);
            Ok((state, head))
        };
        let (state, head) = read(false)?;
        // The rows of the lowest fence may be cut off; with so many fences above the one in force all are read.
        let lowest = state.entries.iter().map(|(_, _, fence, ..)| *fence).min();
        let cut = state.entries.len() == sql::STATE_ROWS && head.as_ref().is_none_or(|h| Some(h.fence) == lowest);
        if cut { read(true) } else { Ok((state, head)) }
    }

    fn try_claim(&mut self, landing: &Landing, target: &Target, partition: i32) -> Result<Claim, Error> {
        self.connection.connect()?;
        let (state, head) = self.state(landing, partition, Some(target.build))?;
        self.in_force(target, state.build())?;
        let fence = state.next_fence(random());
        let claim = random() | 1;
        let next = head.and_then(|h| h.next);
        // `K` goes over into the claim: what a former owner still writes under its fence is not read any more.
        let row = CursorRow { partition, fence, claim, landing: 0, next, schema: &landing.schema };
        self.connection.execute(&landing.statements.insert_cursor(&row), "claiming the partition", STATEMENT)?;
        // Read again after the insert: of two that claim at once, at least one sees the other.
        let (state, head) = self.state(landing, partition, Some(target.build))?;
        self.in_force(target, state.build())?;
        if head.is_none_or(|h| h.fence != fence || h.claims != [claim]) {
            return Err(fenced(target, partition));
        }
        Ok(Claim { fence, next })
    }

    fn try_cursor(&mut self, landing: &Landing, target: &Target, partition: i32) -> Result<Option<Cursor>, Error> {
        self.connection.connect()?;
        let (state, head) = self.state(landing, partition, None)?;
        // In another build a position says nothing: an idle owner must notice that its own is over.
        if state.build() != Some(target.build) {
            return Ok(None);
        }
        Ok(head.map(|h| Cursor { fence: h.fence, build: h.build, next: h.next }))
    }

    /// Checks that the batch may land, and gives the number of the last landing under its fence.
    fn check(&self, landing: &Landing, target: &Target, batch: &Batch) -> Result<u64, Error> {
        let (state, head) = self.state(landing, batch.partition, Some(target.build))?;
        self.in_force(target, state.build())?;
        match state.table() {
            Landed::Here => {}
            Landed::Nothing if batch.is_empty() => {}
            Landed::Nothing => return Err(Error::new(Kind::Internal, format!("replica {:?} was never prepared", target.replica))),
            Landed::Elsewhere => {
                let history = self.history(&target.replica)?;
                return Err(self.raised(target, &history, "the table that rows were landed into is gone")?);
            }
        }
        match head {
            Some(head) if head.fence > batch.fence => Err(fenced(target, batch.partition)),
            Some(head) if head.fence == batch.fence && head.next == batch.expected => Ok(head.landing),
            _ => Err(Error::new(Kind::CursorMoved, format!("cursor of partition {} of replica {:?} moved", batch.partition, target.replica))),
        }
    }

    fn try_land(&mut self, landing: &mut Landing, target: &Target, batch: &Batch) -> Result<(), Error> {
        self.connection.connect()?;
        let mut last = self.check(landing, target, batch)?;
        if !batch.is_empty() {
            if let Err(error) = self.insert_rows(landing, target, batch) {
                if error.kind == Kind::TableChanged {
                    // A table that was dropped since the check is a case for another build, not for an operator.
                    let _ = self.check(landing, target, batch)?;
                }
                return Err(error);
            }
            // The rows are in, the cursor is not.
            fault::point("mid_land");
            last = self.check(landing, target, batch)?;
        }
        let row = CursorRow {
            partition: batch.partition,
            fence: batch.fence,
            claim: 0,
            landing: last + 1,
            next: Some(batch.next),
            schema: &landing.schema,
        };
        self.connection.execute(&landing.statements.insert_cursor(&row), "moving the cursor", FINISH)?;
        fault::point("reply_lost");
        Ok(())
    }

    /// Inserts the rows of a batch in blocks, each sent as soon as it is complete.
    fn insert_rows(&mut self, landing: &mut Landing, target: &Target, batch: &Batch) -> Result<(), Error> {
        let Landing { block, statements, .. } = landing;
        let connection = &self.connection;
        let chunk = &mut self.chunk;
        chunk.clear();
        block.take(&mut self.buffers);
        let what = format!("landing rows into table {:?}", target.table);
        let answered = |e: clickhouse::error::Error| error::of(&e, &what, Carries::Values);
        let inserted = connection.run(async {
            let insert = connection.client().insert_formatted_with(statements.insert_rows.as_str());
            let mut insert = insert.with_timeouts(Some(SEND), Some(FINISH));
            for delta in batch.deltas() {
                block.push(delta)?;
                if block.is_full() {
                    block.write(chunk);
                    insert.send(chunk.split().freeze()).await.map_err(answered)?;
                    // The connection works while the next block is made.
                    tokio::task::yield_now().await;
                }
            }
            if !block.is_empty() {
                block.write(chunk);
                insert.send(chunk.split().freeze()).await.map_err(answered)?;
            }
            fault::point("mid_land");
            insert.end().await.map_err(answered)
        });
        block.give_back(&mut self.buffers);
        if chunk.capacity() > 4 * BLOCK_BYTES {
            *chunk = BytesMut::new();
        }
        inserted
    }
}

impl Sink for ClickHouseSink {
    fn open(&mut self, replica: &str, table: &str, build: Option<u16>) -> Result<Opened, Error> {
        let opened = self.try_open(replica, table, build);
        self.connection.after(opened)
    }

    fn prepare(&mut self, target: &Target) -> Result<(), Error> {
        let prepared = self.try_prepare(target);
        self.connection.after(prepared)
    }

    fn claim(&mut self, target: &Target, partition: i32) -> Result<Claim, Error> {
        let landing = self.landing(target);
        let claim = self.try_claim(&landing, target, partition);
        let _ = self.targets.insert(target.replica.clone(), landing);
        self.connection.after(claim)
    }

    fn cursor(&mut self, target: &Target, partition: i32) -> Result<Option<Cursor>, Error> {
        let landing = self.landing(target);
        let cursor = self.try_cursor(&landing, target, partition);
        let _ = self.targets.insert(target.replica.clone(), landing);
        self.connection.after(cursor)
    }

    fn land(&mut self, target: &Target, batch: &Batch) -> Result<(), Error> {
        let mut landing = self.landing(target);
        let landed = self.try_land(&mut landing, target, batch);
        let _ = self.targets.insert(target.replica.clone(), landing);
        self.connection.after(landed)
    }

    fn rebuild(&mut self, replica: &str, table: &str) -> Result<u16, Error> {
        let rebuilt = self.connection.connect().and_then(|()| {
            let history = self.history(replica)?;
            let build = following(replica, history.build().unwrap_or(0))?;
            self.raise(replica, table, &history, build)?;
            Ok(build)
        });
        self.connection.after(rebuilt)
    }
}

fn changing(table: &str) -> Error {
    Error::new(Kind::Unavailable, format!("table {table:?} or its view is being changed by others"))
}

/// A number that differs between calls and between processes: the standard library seeds its hashers from the system's randomness.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Whether a table of an earlier build can be the build's too: it has no column that the schema lacks, and none of another type. Taking it
/// over leaves its identity as it is, so processes that prepare at once never put two tables in its place.
fn takes_over(catalogue: &Catalogue, target: &Target) -> bool {
    let extra = catalogue.user_columns(&target.table).into_iter().any(|name| target.schema.position(name).is_none());
    !extra && missing_columns(catalogue, &target.table, &target.schema, None).is_ok()
}

fn superseded(replica: &str, build: u16) -> Error {
    Error::new(Kind::Build, format!("build {build} of replica {replica:?} is in force"))
}

fn fenced(target: &Target, partition: i32) -> Error {
    Error::new(Kind::Fenced, format!("partition {partition} of replica {:?} has another owner", target.replica))
}

fn following(replica: &str, build: u16) -> Result<u16, Error> {
    build.checked_add(1).ok_or_else(|| Error::new(Kind::Unsupported, format!("replica {replica:?} has no builds left")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_show_no_secret() {
        let options = Options {
            url: "http://u:hunter2@h".to_owned(),
            database: "d".to_owned(),
            user: Some("u".to_owned()),
            password: Some("hunter2".to_owned()),
        };
        let shown = format!("{options:?} {:?}", ClickHouseSink::new(options.clone()));
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn a_server_that_is_not_there_is_unavailable() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        drop(listener);
        let mut sink = ClickHouseSink::new(Options { url, database: "d".to_owned(), user: None, password: None });
        let error = sink.open("s.t", "t", None).expect_err("nobody is there");
        assert_eq!(error.kind, Kind::Unavailable, "{error}");
    }
}
