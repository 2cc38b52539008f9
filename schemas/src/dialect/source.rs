//! The source block of an envelope, and the place that it gives a change in the history of its source.
//!
//! Only what orders changes is strict; everything else is metadata, and a bad piece of it never rejects a row (case TXN-02). Wall time never
//! orders anything (law 3).
//!
//! Postgres: `source.sequence` is `[last commit, LSN]`, where the first is the commit that precedes the change in the stream. Streams are in
//! commit order and a transaction's own rows ascend, so the pair ascends along the stream (held by a test over every fixture); an LSN alone
//! does not, since rows of concurrent transactions interleave. Before the first commit the pair is `[null, L]`, which ranks as `(L, L)`: a
//! full snapshot at L stands above everything committed before it. A row of an incremental snapshot was read before the transaction that
//! follows the commit and is sent somewhere within or before it (its LSN is that of a signal), so it ranks as `(commit, 0)`, below all of
//! that transaction. Without `sequence` (Debezium before 1.5) the LSN alone serves, `(L, L)`: a row's lock serialises the writers of one key,
//! so it orders the changes of each key; with a key that is not the source's own that does not hold, and the record is refused.
//!
//! One thing the record does not say: rows that were written before L by a transaction which was open when the slot was made at L, and which
//! is the first to commit behind it. They come as `[null, l]` with `l < L`, so they rank below the snapshot's row although they are newer.
//!
//! MongoDB: (millis, ordinal) of the cluster's time, which orders all changes of a collection; those of one transaction share it, and keep the order of
//! their records.
//!
//! MySQL and MariaDB: (number of the binlog file, position of the event, row within it); a transaction id names, it does not order.

use super::avro::How;
use super::datum::Datum;
use super::layout::Layout;
use super::members::{self, Members};
use super::protobuf::Slot;
use super::reject::{Code, Reject};
use super::{Options, Order};
use crate::avro::Budget;
use crate::json::{JsonError, JsonStr, Scanner, Token};
use crate::sequence::Sequence;
use crate::wire::{Reader, WireError};

/// Bits of a binlog position within the id of a snapshot.
const BINLOG_POSITION_BITS: u32 = 40;

/// The source block, borrowed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Source<'a> {
    pub(super) connector: Option<JsonStr<'a>>,
    pub(super) database: Option<JsonStr<'a>>,
    pub(super) schema: Option<JsonStr<'a>>,
    pub(super) table: Option<JsonStr<'a>>,
    pub(super) transaction: Option<Number<'a>>,
    snapshot: Snapshot,
    sequence: Option<JsonStr<'a>>,
    file: Option<JsonStr<'a>>,
    // Read only when they are asked for.
    lsn: Option<Number<'a>>,
    position: Option<Number<'a>>,
    row: Option<Number<'a>>,
    nanos: Option<Number<'a>>,
    micros: Option<Number<'a>>,
    millis: Option<Number<'a>>,
}

/// A number as its encoding carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number<'a> {
    /// Digits of JSON, or a text that stands for a number.
    Digits(&'a str),
    Long(i64),
}

impl<'a> Number<'a> {
    /// Reads it; `None` where it does not fit.
    pub(super) fn read<T: std::str::FromStr + TryFrom<i64>>(self) -> Option<T> {
        match self {
            Self::Digits(text) => text.parse().ok(),
            Self::Long(value) => T::try_from(value).ok(),
        }
    }
}

/// The members of a source block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Connector,
    Database,
    Schema,
    Table,
    Transaction,
    Snapshot,
    Sequence,
    File,
    Lsn,
    Position,
    Row,
    Ordinal,
    Nanos,
    Micros,
    Millis,
    Other,
}

/// In the order of the Postgres connector, then what only MySQL's has.
const MEMBERS: &[(&str, Member)] = &[
    ("\"version\":", Member::Other),
    ("\"connector\":", Member::Connector),
    ("\"name\":", Member::Other),
    ("\"ts_ms\":", Member::Millis),
    ("\"snapshot\":", Member::Snapshot),
    ("\"db\":", Member::Database),
    ("\"sequence\":", Member::Sequence),
    ("\"ts_us\":", Member::Micros),
    ("\"ts_ns\":", Member::Nanos),
    ("\"schema\":", Member::Schema),
    ("\"table\":", Member::Table),
    ("\"txId\":", Member::Transaction),
    ("\"lsn\":", Member::Lsn),
    ("\"xmin\":", Member::Other),
    ("\"origin\":", Member::Other),
    ("\"origin_lsn\":", Member::Other),
    ("\"server_id\":", Member::Other),
    ("\"gtid\":", Member::Other),
    ("\"file\":", Member::File),
    ("\"pos\":", Member::Position),
    ("\"row\":", Member::Row),
    ("\"thread\":", Member::Other),
    ("\"query\":", Member::Other),
    ("\"ord\":", Member::Ordinal),
    ("\"collection\":", Member::Table),
];

/// What `source.snapshot` says of a snapshot read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Snapshot {
    #[default]
    No,
    Full,
    Incremental,
}

impl<'a> Source<'a> {
    /// Reads the block, an object.
    pub(super) fn parse(scanner: &mut Scanner<'a>) -> Result<Self, JsonError> {
        let mut source = Self::default();
        scanner.enter_object()?;
        let mut members = Members::new(MEMBERS);
        while let Some(member) = members.take(scanner)? {
            let token = scanner.value()?;
            match member {
                Some(Member::Connector) => source.connector = string(&token),
                Some(Member::Database) => source.database = string(&token),
                Some(Member::Schema) => source.schema = string(&token),
                Some(Member::Table) => source.table = string(&token),
                Some(Member::Transaction) => {
                    source.transaction = match token {
                        Token::Number(id) => Some(Number::Digits(id)),
                        Token::String(JsonStr { raw, escaped: false }) => Some(Number::Digits(raw)),
                        _ => None,
                    }
                }
                Some(Member::Snapshot) => source.snapshot = snapshot(&token),
                Some(Member::Sequence) => source.sequence = string(&token),
                Some(Member::File) => source.file = string(&token),
                Some(Member::Lsn) => source.lsn = digits(&token),
                Some(Member::Position) => source.position = digits(&token),
                Some(Member::Row | Member::Ordinal) => source.row = digits(&token),
                Some(Member::Nanos) => source.nanos = digits(&token),
                Some(Member::Micros) => source.micros = digits(&token),
                Some(Member::Millis) => source.millis = digits(&token),
                Some(Member::Other) | None => {}
            }
        }
        Ok(source)
    }

    /// A block that says nothing but whose it is.
    pub(super) fn of_connector(connector: &'static str) -> Self {
        let connector = Some(JsonStr { raw: connector, escaped: false });
        Self { connector: connector.filter(|c| !c.raw.is_empty()), ..Self::default() }
    }

    /// What a member is to the block, by its name.
    pub(super) fn member(name: &str) -> Member {
        members::find(MEMBERS, name).unwrap_or(Member::Other)
    }

    /// Whether a member that is absent, where that may stand for NULL or zero, is zero: a place in the binlog may be, an id or a time never is.
    pub(super) fn is_zero(name: &str) -> bool {
        matches!(Self::member(name), Member::Position | Member::Row | Member::Ordinal)
    }

    /// Takes in a registered block, which stands next.
    pub(super) fn take(
        &mut self,
        layout: &Layout,
        members: &[Member],
        reader: &mut Reader<'a>,
        budget: &mut Budget,
        slots: &mut Vec<Slot>,
    ) -> Result<(), WireError> {
        let Layout::Avro(layout) = layout else {
            return layout.each(reader, budget, slots, |at, datum| {
                self.put(members[at], datum);
                Ok(())
            });
        };
        // Most of it is a text or a number that is there, or of no use: these need not be made a datum first.
        for (take, member) in layout.takes().iter().zip(members) {
            match take.how {
                _ if *member == Member::Other => layout.pass_member(take, reader, budget)?,
                How::Text if *member != Member::Snapshot => {
                    let text = if take.is_present(reader)? { Some(reader.text()?) } else { None };
                    if let Some(slot) = self.text_of(*member) {
                        *slot = text.map(|raw| JsonStr { raw, escaped: false });
                    } else if let Some(slot) = self.number_of(*member) {
                        *slot = text.map(Number::Digits);
                    }
                }
                How::Integer => {
                    let number = if take.is_present(reader)? { Some(Number::Long(reader.long()?)) } else { None };
                    if let Some(slot) = self.number_of(*member) {
                        *slot = number;
                    }
                }
                _ => self.put(*member, layout.next(take, reader, budget)?),
            }
        }
        Ok(())
    }

    /// Where a member that is a text is kept.
    #[inline]
    fn text_of(&mut self, member: Member) -> Option<&mut Option<JsonStr<'a>>> {
        Some(match member {
            Member::Connector => &mut self.connector,
            Member::Database => &mut self.database,
            Member::Schema => &mut self.schema,
            Member::Table => &mut self.table,
            Member::Sequence => &mut self.sequence,
            Member::File => &mut self.file,
            _ => return None,
        })
    }

    /// Where a member that is a number is kept.
    #[inline]
    fn number_of(&mut self, member: Member) -> Option<&mut Option<Number<'a>>> {
        Some(match member {
            Member::Transaction => &mut self.transaction,
            Member::Lsn => &mut self.lsn,
            Member::Position => &mut self.position,
            Member::Row | Member::Ordinal => &mut self.row,
            Member::Nanos => &mut self.nanos,
            Member::Micros => &mut self.micros,
            Member::Millis => &mut self.millis,
            _ => return None,
        })
    }

    /// Takes a member in.
    pub(super) fn put(&mut self, member: Member, datum: Datum<'a>) {
        let text = || match datum {
            Datum::Text(raw) => Some(JsonStr { raw, escaped: false }),
            Datum::Json(token) => string(&token),
            _ => None,
        };
        let number = || match datum {
            Datum::Json(token) => digits(&token),
            Datum::Integer(value) => Some(Number::Long(value)),
            Datum::Text(text) => Some(Number::Digits(text)),
            _ => None,
        };
        if member == Member::Snapshot {
            self.snapshot = match datum {
                Datum::Bool(flag) => snapshot(&Token::Bool(flag)),
                Datum::Text(raw) => snapshot(&Token::String(JsonStr { raw, escaped: false })),
                Datum::Json(token) => snapshot(&token),
                _ => Snapshot::No,
            }
        } else if let Some(slot) = self.text_of(member) {
            *slot = text();
        } else if let Some(slot) = self.number_of(member) {
            *slot = number();
        }
    }

    /// When it happened in the source, micros since 1970 UTC.
    pub(super) fn event_time(&self) -> Option<i64> {
        let nanos = || number::<i64>(self.nanos).map(|n| n.div_euclid(1_000));
        number(self.micros).or_else(nanos).or_else(|| number::<i64>(self.millis)?.checked_mul(1_000))
    }

    fn connector(&self) -> &'a str {
        self.connector.map_or("", |c| c.raw)
    }

    /// The commit position and the LSN within or behind it.
    fn postgres(&self, is_read: bool) -> Option<(u64, u64)> {
        let Some(text) = self.sequence else { return number(self.lsn).map(|lsn| (lsn, lsn)) };
        let (commit, lsn) = lsn_pair(text.raw)?;
        Some(match commit {
            None => (lsn, lsn),
            Some(commit) if is_read && self.snapshot == Snapshot::Incremental => (commit, 0),
            Some(commit) => (commit, lsn),
        })
    }

    fn binlog(&self) -> Option<(u64, u64)> {
        let (_, ordinal) = self.file?.raw.rsplit_once('.')?;
        Some((ordinal.parse().ok()?, number(self.position)?))
    }

    /// Whether the offset orders the changes of this source.
    pub(super) fn is_by_offset(&self, order: Order) -> bool {
        match order {
            Order::Dialect => false,
            Order::DialectElseOffset => !matches!(self.connector(), "postgresql" | "mysql" | "mariadb" | "mongodb"),
            Order::Offset => true,
        }
    }

    /// The place of the change in the history of its source, and the id of the full snapshot that read it.
    pub(super) fn sequence(&self, options: &Options, epoch: u32, offset: i64, is_read: bool) -> Result<(Sequence, Option<i64>), Reject> {
        if self.is_by_offset(options.order) {
            return Ok((Sequence::of_dialect(epoch, offset.max(0).cast_unsigned(), 0, 0), None));
        }
        let is_full = is_read && self.snapshot == Snapshot::Full;
        let refuse = |why: &str| {
            let reason = format!(
                "table {:?}: {why}; offsets order a table only where its source is `type: kafka` and it has no `primary_key` of its own",
                options.table
            );
            Reject::new(Code::NoOrder, reason)
        };
        match self.connector() {
            "postgresql" => {
                if self.sequence.is_none() && options.primary_key.is_some() {
                    return Err(refuse("without `source.sequence` an LSN orders only the changes of the source's own key"));
                }
                let (commit, lsn) = self.postgres(is_read).ok_or_else(|| refuse("the source block holds neither `sequence` nor `lsn`"))?;
                let id = if is_full { i64::try_from(lsn).ok() } else { None };
                Ok((Sequence::of_dialect(epoch, commit, lsn, 0), id))
            }
            "mysql" | "mariadb" => {
                let (file, position) = self.binlog().ok_or_else(|| refuse("the source block holds no binlog `file` and `pos`"))?;
                let fits = file < 1 << (63 - BINLOG_POSITION_BITS) && position < 1 << BINLOG_POSITION_BITS;
                let id = if is_full && fits { i64::try_from(file << BINLOG_POSITION_BITS | position).ok() } else { None };
                Ok((Sequence::of_dialect(epoch, file, position, number(self.row).unwrap_or(0)), id))
            }
            "mongodb" => {
                let place = number::<u64>(self.millis).zip(number::<u64>(self.row));
                let (millis, ordinal) = place.ok_or_else(|| refuse("the source block holds no `ts_ms` and `ord`"))?;
                Ok((Sequence::of_dialect(epoch, millis, ordinal, 0), None))
            }
            _ => Err(refuse("events of this connector carry no order that is known here")),
        }
    }
}

fn string<'a>(token: &Token<'a>) -> Option<JsonStr<'a>> {
    if let Token::String(s) = token { Some(*s) } else { None }
}

fn digits<'a>(token: &Token<'a>) -> Option<Number<'a>> {
    match token {
        Token::Number(digits) => Some(Number::Digits(digits)),
        Token::String(s) => Some(Number::Digits(s.raw)),
        _ => None,
    }
}

fn number<T: std::str::FromStr + TryFrom<i64>>(number: Option<Number<'_>>) -> Option<T> {
    number?.read()
}

fn snapshot(token: &Token<'_>) -> Snapshot {
    match token {
        Token::Bool(true) => Snapshot::Full,
        Token::String(s) => match s.raw {
            "true" | "first" | "first_in_data_collection" | "last_in_data_collection" | "last" => Snapshot::Full,
            "incremental" => Snapshot::Incremental,
            _ => Snapshot::No,
        },
        _ => Snapshot::No,
    }
}

/// Takes `["1","2"]` or `[null,"2"]` apart, as it is or in the spelling that it has inside a JSON string.
fn lsn_pair(raw: &str) -> Option<(Option<u64>, u64)> {
    let inner = raw.as_bytes().strip_prefix(b"[")?.trim_ascii_start();
    let (commit, rest) = match inner.strip_prefix(b"null") {
        Some(rest) => (None, rest),
        None => quoted(inner).map(|(commit, rest)| (Some(commit), rest))?,
    };
    let (lsn, rest) = quoted(rest.trim_ascii_start().strip_prefix(b",")?.trim_ascii_start())?;
    (rest.trim_ascii_start() == b"]").then_some((commit, lsn))
}

/// A number between quotes, escaped or not, and what follows it.
fn quoted(raw: &[u8]) -> Option<(u64, &[u8])> {
    let quote = if raw.starts_with(b"\\") { b"\\\"".as_slice() } else { b"\"" };
    let mut rest = raw.strip_prefix(quote)?;
    let mut number = None;
    while let [digit @ b'0'..=b'9', tail @ ..] = rest {
        number = Some(number.unwrap_or(0_u64).checked_mul(10)?.checked_add(u64::from(digit - b'0'))?);
        rest = tail;
    }
    Some((number?, rest.strip_prefix(quote)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(block: &str) -> Result<Source<'_>, JsonError> {
        Source::parse(&mut Scanner::new(block))
    }

    fn sequence(block: &str, is_read: bool) -> Result<(String, Option<i64>), Code> {
        let source = parse(block).expect("an object");
        let options = Options::new("t");
        source.sequence(&options, 3, 77, is_read).map(|(s, id)| (s.to_string(), id)).map_err(|r| r.code)
    }

    fn postgres(rest: &str, is_read: bool) -> Result<(String, Option<i64>), Code> {
        sequence(&format!(r#"{{"connector":"postgresql",{rest}}}"#), is_read)
    }

    #[test]
    fn postgres_ranks_by_commit_and_lsn() {
        assert_eq!(postgres(r#""sequence":"[\"110\",\"120\"]","lsn":120"#, false), Ok(("3/110/120/0".to_owned(), None)));
        assert_eq!(postgres(r#""sequence":"[null,\"120\"]","lsn":120"#, false), Ok(("3/120/120/0".to_owned(), None)));
        assert_eq!(postgres(r#""sequence":"[ \"110\", \"120\" ]""#, false), Ok(("3/110/120/0".to_owned(), None)));
        assert_eq!(postgres(r#""snapshot":"first","sequence":"[null,\"120\"]","lsn":120"#, true), Ok(("3/120/120/0".to_owned(), Some(120))));
        assert_eq!(postgres(r#""snapshot":"incremental","sequence":"[\"110\",\"90\"]","lsn":null"#, true), Ok(("3/110/0/0".to_owned(), None)));
        assert_eq!(postgres(r#""lsn":100"#, false), Ok(("3/100/100/0".to_owned(), None)));
        assert_eq!(postgres(r#""snapshot":"last","lsn":1000"#, true), Ok(("3/1000/1000/0".to_owned(), Some(1000))));
        for bad in [r#""lsn":null"#, r#""lsn":-1"#, r#""sequence":"[]","lsn":1"#, r#""sequence":"[null,null]""#, r#""sequence":"[\"x\",\"1\"]""#] {
            assert_eq!(postgres(bad, false), Err(Code::NoOrder), "{bad}");
        }
    }

    #[test]
    fn an_lsn_alone_does_not_order_a_key_that_is_not_the_sources() {
        let source = parse(r#"{"connector":"postgresql","lsn":5}"#).expect("an object");
        let options = Options { primary_key: Some(vec!["email".to_owned()]), ..Options::new("t") };
        assert_eq!(source.sequence(&options, 0, 0, false).map_err(|r| r.code), Err(Code::NoOrder));
    }

    #[test]
    fn binlogs_rank_by_file_position_and_row() {
        for connector in ["mysql", "mariadb"] {
            let block =
                |snapshot: &str| format!(r#"{{"connector":"{connector}","snapshot":"{snapshot}","file":"mysql-bin.000012","pos":4567,"row":2}}"#);
            assert_eq!(sequence(&block("false"), false), Ok(("3/12/4567/2".to_owned(), None)));
            assert_eq!(sequence(&block("true"), true), Ok(("3/12/4567/2".to_owned(), Some((12 << 40) + 4567))));
        }
        assert_eq!(sequence(r#"{"connector":"mysql","file":"bin","pos":1}"#, false), Err(Code::NoOrder));
    }

    #[test]
    fn other_connectors_need_to_be_told() {
        assert_eq!(sequence(r#"{"connector":"oracle","scn":"5"}"#, false), Err(Code::NoOrder));
        assert_eq!(sequence("{}", false), Err(Code::NoOrder));
        let options = Options { order: Order::Offset, ..Options::new("t") };
        let (by_offset, _) = Source::default().sequence(&options, 3, 77, false).expect("offsets are allowed");
        assert_eq!(by_offset.to_string(), "3/77/0/0");
        let options = Options { order: Order::DialectElseOffset, ..Options::new("t") };
        let ordered = |block: &str| parse(block).expect("an object").sequence(&options, 3, 77, false).map(|(s, _)| s.to_string()).map_err(|r| r.code);
        assert_eq!(ordered(r#"{"connector":"oracle","scn":"5"}"#), Ok("3/77/0/0".to_owned()));
        assert_eq!(ordered(r#"{"connector":"postgresql","lsn":5}"#), Ok("3/5/5/0".to_owned()));
        assert_eq!(ordered(r#"{"connector":"postgresql","lsn":null}"#), Err(Code::NoOrder), "a known connector's order is never mixed with offsets");
    }

    #[test]
    fn bad_metadata_rejects_nothing() {
        let source = parse(r#"{"connector":5,"ts_us":"x","ts_ms":7,"txId":{},"snapshot":[],"row":-1}"#).expect("an object");
        assert_eq!((source.event_time(), source.transaction, source.snapshot), (Some(7_000), None, Snapshot::No));
    }
}
