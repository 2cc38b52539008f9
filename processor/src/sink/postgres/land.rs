//! Landing a batch: rows through a stage, and the cursor, in one transaction and two round trips.
//!
//! First round trip: `BEGIN` and the start of the COPY. Second: the rows, then, without waiting, the cursor's compare-and-set, the upsert, the
//! deletes and `COMMIT`. The compare-and-set fails as an error, so nothing behind it runs, and `COMMIT` of a failed transaction is a rollback.
//! The cursor is locked only while statements run that are sent already: a process that freezes while it sends rows holds back nobody. A landing
//! without rows is the compare-and-set alone, one round trip.
//!
//! The stage is not emptied at commit: PostgreSQL 15 does that for *every* such stage of the connection at every commit that touched one, and
//! truncating files took 3.5 ms a stage when measured, a second with 300 tables. So rows bear the number of their batch, and the stage is
//! truncated once it is large enough to be worth it.

use std::pin::pin;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use landfall_schemas::{TableSchema, contract};
use tokio_postgres::Statement;
use tokio_postgres::types::{ToSql, Type};

use super::session::{Session, column_names};
use super::{encode, error, sql};
use crate::fault;
use crate::sink::{Batch, Error, Kind, Target};

/// Bytes handed to the connection at a time: large enough that a system call is little against it, small enough to overlap with encoding.
const CHUNK_BYTES: usize = 128 << 10;
/// A stage above this is truncated before its next use: reading over the rows of earlier batches stays below a millisecond.
const STAGE_BYTES_MAX: usize = 1 << 20;
/// Stages of a connection; beyond it all are dropped and made again as they are needed.
const STAGES_MAX: usize = 1024;

/// The stage of one target on one connection.
pub(super) struct Stage {
    schema: Arc<TableSchema>,
    table: String,
    schema_id: String,
    name: String,
    copy: Statement,
    upsert: Statement,
    delete: Statement,
    /// Number of the batch that filled it last.
    number: i32,
    /// Bytes copied into it since it was empty.
    bytes: usize,
}

impl Session {
    /// See `Sink::land`.
    pub(super) async fn land(&mut self, schema: &str, target: &Target, batch: &Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return self.land_cursor(schema, target, batch).await;
        }
        if let Err(error) = self.stage(schema, target).await {
            return Err(self.explained(schema, target, batch, error).await);
        }
        let stage = self.stages.get_mut(&target.replica).expect("the stage was made above");
        let begin = if stage.bytes > STAGE_BYTES_MAX { format!("BEGIN; TRUNCATE {}", stage.name) } else { "BEGIN".to_owned() };
        let emptied = stage.bytes > STAGE_BYTES_MAX;
        let staging = error::of("staging rows");
        let (begun, copy) = tokio::join!(self.client.batch_execute(&begin), self.client.copy_in::<_, Bytes>(&stage.copy));
        self.in_transaction.set(true);
        begun.map_err(error::of("beginning a transaction"))?;
        let mut copy = pin!(copy.map_err(&staging)?);

        stage.number += 1;
        let mut sent = 0;
        let mut tombstones = 0;
        let mut chunk = BytesMut::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 8);
        chunk.put_slice(encode::HEADER);
        for delta in batch.deltas() {
            encode::put_delta(&target.schema, stage.number, &delta, &mut chunk).map_err(|f| f.into_error(&target.schema))?;
            tombstones += usize::from(delta.row.is_none());
            if chunk.len() >= CHUNK_BYTES {
                sent += chunk.len();
                stage.bytes += chunk.len();
                copy.feed(chunk.split().freeze()).await.map_err(&staging)?;
                chunk.reserve(CHUNK_BYTES + CHUNK_BYTES / 8);
            }
        }
        chunk.put_i16(encode::TRAILER);
        sent += chunk.len();
        stage.bytes += chunk.len();
        copy.feed(chunk.freeze()).await.map_err(&staging)?;
        fault::point("mid_land");

        let table = sql::qualified(schema, &target.table);
        let fields = CursorFields::of(target, batch);
        let (number, cursor) = ([&stage.number as &(dyn ToSql + Sync)], fields.parameters(target, batch, &stage.schema_id, &table));
        let client = &self.client;
        let (staged, moved, upserted, deleted, committed) = tokio::join!(
            copy.as_mut().finish(),
            client.query(&self.move_cursor, &cursor),
            async { if tombstones < batch.len() { client.execute(&stage.upsert, &number).await } else { Ok(0) } },
            async { if tombstones > 0 { client.execute(&stage.delete, &number).await } else { Ok(0) } },
            client.batch_execute("COMMIT"),
        );
        // A commit of a failed transaction ends it too.
        self.in_transaction.set(committed.is_err());
        // The first that failed is the cause; those behind it only say that the transaction had failed.
        let outcome = match staged {
            Err(error) => Err(staging(error)),
            Ok(_) => match moved {
                Err(error) if error::state(&error) == Some(error::NOT_A_NUMBER) => {
                    return Err(self.refusal(schema, target, batch.partition, Some(batch.fence)).await);
                }
                Err(error) => Err(error::of("moving a cursor")(error)),
                Ok(_) => upserted
                    .map_err(error::of("upserting rows"))
                    .and(deleted.map_err(error::of("deleting rows")))
                    .and(committed.map_err(error::of("committing"))),
            },
        };
        match outcome {
            Ok(()) => {
                fault::point("reply_lost");
                if emptied {
                    stage.bytes = sent;
                }
                Ok(())
            }
            Err(error) => Err(self.explained(schema, target, batch, error).await),
        }
    }

    async fn land_cursor(&mut self, schema: &str, target: &Target, batch: &Batch) -> Result<(), Error> {
        let schema_id = contract::of(&target.schema).1.to_string();
        let table = sql::qualified(schema, &target.table);
        let fields = CursorFields::of(target, batch);
        let moved = self.client.query(&self.move_cursor, &fields.parameters(target, batch, &schema_id, &table)).await;
        match moved {
            Ok(_) => {
                fault::point("reply_lost");
                Ok(())
            }
            Err(error) if error::state(&error) == Some(error::NOT_A_NUMBER) => {
                Err(self.refusal(schema, target, batch.partition, Some(batch.fence)).await)
            }
            Err(error) => Err(error::of("moving a cursor")(error)),
        }
    }

    /// Looks behind an error: a table that is gone is a rebuild, and a value that the server refused has a column.
    async fn explained(&mut self, schema: &str, target: &Target, batch: &Batch, error: Error) -> Error {
        match error.kind {
            Kind::Unsupported => encode::find_refused(&target.schema, batch).unwrap_or(error),
            Kind::TableChanged => {
                if let Err(error) = self.rollback().await {
                    return error;
                }
                match self.refusal(schema, target, batch.partition, Some(batch.fence)).await {
                    found if found.kind == Kind::Build => found,
                    _ => error,
                }
            }
            _ => error,
        }
    }

    /// Makes the stage of a target, unless it is there and for the same columns.
    async fn stage(&mut self, schema: &str, target: &Target) -> Result<(), Error> {
        let fits =
            |s: &Stage| s.number < i32::MAX && s.table == target.table && (Arc::ptr_eq(&s.schema, &target.schema) || s.schema == target.schema);
        if self.stages.get(&target.replica).is_some_and(fits) {
            return Ok(());
        }
        let making = error::of("making a stage");
        if self.stages.len() >= STAGES_MAX {
            self.stages.clear();
            self.client.batch_execute("DISCARD TEMP").await.map_err(&making)?;
        }
        let former = self.stages.remove(&target.replica);
        let names = column_names(&target.schema)?;
        self.stages_made += 1;
        let texts = sql::stage(self.stages_made, &sql::qualified(schema, &target.table), &target.schema, &names);
        let drop_former = former.map(|f| format!("DROP TABLE {}; ", f.name)).unwrap_or_default();
        self.client.batch_execute(&format!("{drop_former}{}", texts.create)).await.map_err(&making)?;
        let (copy, upsert, delete) = tokio::try_join!(
            self.client.prepare_typed(&texts.copy, &[]),
            self.client.prepare_typed(&texts.upsert, &[Type::INT4]),
            self.client.prepare_typed(&texts.delete, &[Type::INT4]),
        )
        .map_err(making)?;
        let stage = Stage {
            schema: Arc::clone(&target.schema),
            table: target.table.clone(),
            schema_id: contract::of(&target.schema).1.to_string(),
            name: texts.name,
            copy,
            upsert,
            delete,
            number: 0,
            bytes: 0,
        };
        let _ = self.stages.insert(target.replica.clone(), stage);
        Ok(())
    }
}

/// The numbers of a landing in the types of their columns.
struct CursorFields {
    fence: i64,
    build: i32,
    generation: i64,
    rows: bool,
}

impl CursorFields {
    fn of(target: &Target, batch: &Batch) -> Self {
        let (build, generation) = (i32::from(target.build), i64::from(target.generation));
        Self { fence: batch.fence.cast_signed(), build, generation, rows: !batch.is_empty() }
    }

    fn parameters<'a>(&'a self, target: &'a Target, batch: &'a Batch, schema_id: &'a String, table: &'a String) -> [&'a (dyn ToSql + Sync); 10] {
        [&target.replica, &batch.partition, &self.fence, &self.build, &self.generation, &batch.expected, &batch.next, schema_id, table, &self.rows]
    }
}
