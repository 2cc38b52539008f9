//! Replicas read through their stores' own protocols, as text by column.
//!
//! Every store renders its values in its own way, so this is the one table of renderings. A column's kind says what a value means; the
//! expression of its store and then [`Kind::canonical`] bring it to one text that is equal exactly where the values are:
//!
//! | kind | canonical text | Postgres (also as a source) | ClickHouse | DuckDB |
//! |---|---|---|---|---|
//! | bool | `true`, `false` | `::text` | `toString` | `::VARCHAR` |
//! | int | digits | `::text` | `toString` | `::VARCHAR` |
//! | float32, float64 | shortest digits that read back as the same bits | `::text` | `toString` | `::VARCHAR` |
//! | decimal(s) | `s` digits behind the point | `::text` | `toDecimalString(_, s)` | `::VARCHAR` |
//! | numeric | plain digits, no zeros at the end of the fraction | `::text` | the text | `::VARCHAR` |
//! | text | as it is | as it is | as it is | as it is |
//! | bytes | lower-case hex | `encode(_, 'hex')` | `lower(hex(_))` | `lower(hex(_))` |
//! | uuid, date | lower-case text; `YYYY-MM-DD` | `::text` | `toString` | `::VARCHAR` |
//! | time, also a span | `[-]HH:MM:SS.ffffff` | `::text` of the interval | micros | `::VARCHAR` |
//! | time(9) | the same with nine digits | the same | nanos | `::VARCHAR` |
//! | timestamp | `YYYY-MM-DDTHH:MM:SS.ffffff`, `infinity` | `to_char` | `formatDateTime` | `strftime` |
//! | timestamp(9) | the same with nine digits | `to_char` and zeros | `toString` | `strftime` |
//! | timestamptz | the same in UTC, with `Z` | `to_char` in UTC | `formatDateTime` in UTC | `strftime` in UTC |
//! | interval | months, days, micros | `::text` | the ISO text | `::VARCHAR` |
//! | json | members sorted, no blanks | `::text` | the text | `::VARCHAR` |
//! | array | JSON | `to_json` | `toJSONString` | `to_json` |
//!
//! NULL is `None` in all of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::kafka::Kafka;
use super::{latest, stack};

/// What the values of a column mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Bool,
    /// Integer of any size.
    Int,
    /// 32-bit float.
    Float32,
    /// 64-bit float.
    Float64,
    /// Decimal with that many digits behind the point.
    Decimal(u32),
    /// Decimal of any size.
    Numeric,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// Identifier.
    Uuid,
    /// Day.
    Date,
    /// Time of day, or a span of time.
    Time,
    /// The same to the nanosecond.
    TimeNanos,
    /// Date and time without a zone.
    Timestamp,
    /// The same to the nanosecond.
    TimestampNanos,
    /// Span of the calendar.
    Interval,
    /// Instant.
    TimestampTz,
    /// Document.
    Json,
    /// Elements in order.
    Array,
}

impl Kind {
    /// Brings a store's rendering to the one text.
    pub fn canonical(self, text: &str) -> String {
        match self {
            Self::Float32 => text.parse::<f32>().map_or_else(|_| text.to_owned(), |v| format!("{v:?}")),
            Self::Float64 => text.parse::<f64>().map_or_else(|_| text.to_owned(), |v| format!("{v:?}")),
            Self::Numeric if text.contains('.') => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            Self::Uuid => text.to_ascii_lowercase(),
            Self::Date => text.replace(" (BC)", " BC"),
            Self::Time => time(text, 6),
            Self::TimeNanos => time(text, 9),
            Self::TimestampNanos if text.contains('.') => format!("{text:0<29}"),
            Self::Interval => interval(text),
            Self::Json | Self::Array => serde_json::from_str::<serde_json::Value>(text).map_or_else(|_| text.to_owned(), |v| v.to_string()),
            _ => text.to_owned(),
        }
    }

    fn postgres(self, column: &str) -> String {
        match self {
            Self::Bytes => format!("encode({column}, 'hex')"),
            Self::Array => format!("to_json({column})::text"),
            Self::Time | Self::TimeNanos => format!("{column}::interval::text"),
            Self::Timestamp | Self::TimestampNanos => {
                format!("CASE WHEN isfinite({column}) THEN to_char({column}, 'YYYY-MM-DD\"T\"HH24:MI:SS.US') ELSE {column}::text END")
            }
            Self::TimestampTz => format!(
                "CASE WHEN isfinite({column}) THEN to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') ELSE {column}::text END"
            ),
            _ => format!("{column}::text"),
        }
    }

    fn clickhouse(self, column: &str) -> String {
        match self {
            Self::Decimal(scale) => format!("toDecimalString({column}, {scale})"),
            Self::Bytes => format!("lower(hex({column}))"),
            Self::Array => format!("toJSONString({column})"),
            // The formatter knows six digits.
            Self::TimestampNanos => format!("replaceOne(toString({column}), ' ', 'T')"),
            Self::Timestamp => format!("formatDateTime({column}, '%Y-%m-%dT%H:%i:%S.%f', 'UTC')"),
            Self::TimestampTz => format!("formatDateTime({column}, '%Y-%m-%dT%H:%i:%S.%fZ', 'UTC')"),
            Self::Text | Self::Json | Self::Numeric | Self::Interval => column.to_owned(),
            _ => format!("toString({column})"),
        }
    }

    fn duckdb(self, column: &str) -> String {
        match self {
            Self::Bytes => format!("lower(hex({column}))"),
            Self::Array => format!("to_json({column})::VARCHAR"),
            Self::Timestamp => format!("strftime({column}, '%Y-%m-%dT%H:%M:%S.%f')"),
            Self::TimestampNanos => format!("strftime({column}, '%Y-%m-%dT%H:%M:%S.%n')"),
            Self::TimestampTz => format!("strftime({column} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')"),
            _ => format!("{column}::VARCHAR"),
        }
    }
}

/// `[-]HH:MM:SS.fff…` with so many digits, from the same with others, or from a count of the last one's units.
fn time(text: &str, digits: usize) -> String {
    if let Ok(units) = text.parse::<i64>() {
        let per = 10_u64.pow(digits as u32);
        let (sign, units) = (if units < 0 { "-" } else { "" }, units.unsigned_abs());
        let seconds = units / per;
        return format!("{sign}{:02}:{:02}:{:02}.{:0digits$}", seconds / 3600, seconds / 60 % 60, seconds % 60, units % per);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}.{fraction:0<digits$}")
}

/// Months, days and micros, from `1 year 2 mons 3 days 04:05:06.7` or `P1Y2M3DT4H5M6.7S`, each part with its sign.
fn interval(text: &str) -> String {
    let micros = |seconds: &str, sign: i64| {
        let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let fraction: i64 = format!("{fraction:0<6}").parse().expect("digits");
        sign * (whole.parse::<i64>().expect("digits") * 1_000_000 + fraction)
    };
    let signed = |text: &str| text.strip_prefix('-').map_or((1, text.to_owned()), |rest| (-1, rest.to_owned()));
    let (mut months, mut days, mut total) = (0, 0, 0);
    if let Some(iso) = text.strip_prefix('P') {
        let (mut is_time, mut amount) = (false, String::new());
        for c in iso.chars() {
            let number = |amount: &str| amount.parse::<i64>().unwrap_or_default();
            match c {
                'T' => is_time = true,
                'Y' => months += number(&amount) * 12,
                'M' if !is_time => months += number(&amount),
                'D' => days = number(&amount),
                'H' => total += number(&amount) * 3_600_000_000,
                'M' => total += number(&amount) * 60_000_000,
                'S' => {
                    let (sign, seconds) = signed(&amount);
                    total += micros(&seconds, sign);
                }
                c => {
                    amount.push(c);
                    continue;
                }
            }
            amount.clear();
        }
    } else {
        let mut words = text.split(' ');
        while let Some(word) = words.next() {
            if word.contains(':') {
                let (sign, clock) = signed(word);
                let parts: Vec<&str> = clock.splitn(3, ':').collect();
                let whole: i64 = parts[0].parse::<i64>().expect("hours") * 60 + parts[1].parse::<i64>().expect("minutes");
                total = sign * whole * 60_000_000 + micros(parts[2], sign);
                continue;
            }
            let amount: i64 = word.parse().expect("an amount");
            match words.next().expect("a unit").trim_end_matches('s') {
                "year" => months += amount * 12,
                "mon" | "month" => months += amount,
                _ => days = amount,
            }
        }
    }
    format!("{months} months {days} days {total} micros")
}

/// A column to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name.
    pub name: String,
    /// What its values mean.
    pub kind: Kind,
}

/// Columns by name and kind.
pub fn columns(list: &[(&str, Kind)]) -> Vec<Column> {
    list.iter().map(|(name, kind)| Column { name: (*name).to_owned(), kind: *kind }).collect()
}

/// A row as canonical text by column.
pub type Row = Vec<Option<String>>;

/// What a replica shows at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// `K` of each log partition, read before the rows or together with them.
    pub cursors: BTreeMap<i32, i64>,
    /// All live rows; more than one of a key where the store shows more than one.
    pub rows: Vec<Row>,
}

/// A store of the topology under test.
#[derive(Clone, Debug)]
pub enum Store {
    /// A Postgres database of the test's own, and the schema of the replicas in it.
    Postgres {
        /// URL of the server, without a database.
        server: String,
        /// Database.
        database: String,
        /// Schema.
        schema: String,
    },
    /// A ClickHouse database of the test's own.
    ClickHouse {
        /// Database.
        database: String,
    },
    /// A DuckDB file, and the schema of the replicas in it.
    DuckDb {
        /// Path.
        path: PathBuf,
        /// Schema.
        schema: String,
    },
    /// The topics of newest rows of a topology.
    Latest {
        /// The cluster.
        kafka: Arc<Kafka>,
        /// Name of the topology.
        topology: String,
    },
}

fn double(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn back(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

impl Store {
    /// The id in the topology.
    pub const fn id(&self) -> &'static str {
        match self {
            Self::Postgres { .. } => "serving",
            Self::ClickHouse { .. } => "warehouse",
            Self::DuckDb { .. } => "local",
            Self::Latest { .. } => "latest",
        }
    }

    /// Whether cursors and rows are read as of one moment.
    pub const fn is_transactional(&self) -> bool {
        !matches!(self, Self::ClickHouse { .. } | Self::Latest { .. })
    }

    /// The statement that reads a replica's live rows.
    pub fn select(&self, table: &str, columns: &[Column]) -> String {
        let list = |quote: fn(&str) -> String, render: fn(Kind, &str) -> String| -> String {
            let rendered: Vec<String> = columns.iter().map(|c| render(c.kind, &quote(&c.name))).collect();
            rendered.join(", ")
        };
        match self {
            Self::Postgres { schema, .. } => format!("SELECT {} FROM {}.{}", list(double, Kind::postgres), double(schema), double(table)),
            Self::ClickHouse { database } => {
                format!("SELECT {} FROM {}.{}", list(back, Kind::clickhouse), back(database), back(&format!("{table}_live")))
            }
            Self::DuckDb { schema, .. } => format!("SELECT {} FROM {}.{}", list(double, Kind::duckdb), double(schema), double(table)),
            Self::Latest { .. } => panic!("topics answer no statements"),
        }
    }

    /// What the replica of a table shows now: `None` where it does not exist yet, or where the file is held by a process.
    pub fn view(&self, table: &str, columns: &[Column]) -> Option<View> {
        // A store of a test serves one topology, whose name comes before the rest.
        let replica = format!("LIKE '%.{}.{table}'", self.id());
        if let Self::Latest { kafka, topology } = self {
            return latest::view(kafka, topology, table, columns);
        }
        let select = self.select(table, columns);
        let (cursors, rows) = match self {
            Self::Postgres { server, database, .. } => {
                let mut postgres = Postgres::connect(server, database)?;
                // One snapshot for both.
                let _ = postgres.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").ok()?;
                let cursors =
                    postgres.query(&format!("SELECT partition::text, next_offset::text FROM landfall.cursor WHERE replica {replica}")).ok()?;
                (cursors, postgres.query(&select).ok()?)
            }
            Self::ClickHouse { database } => {
                let clickhouse = ClickHouse::new();
                let cursors = format!(
                    "SELECT toString(partition), toString(max(next)) FROM {db}.landfall_cursor WHERE replica {replica} \
                     AND build = (SELECT max(build) FROM {db}.landfall_replica WHERE replica {replica}) GROUP BY partition",
                    db = back(database)
                );
                (clickhouse.query(&cursors).ok()?, clickhouse.query(&select).ok()?)
            }
            Self::DuckDb { path, .. } => {
                let file = DuckDb::open(path)?;
                let cursors = format!("SELECT partition::VARCHAR, next_offset::VARCHAR FROM landfall.\"cursor\" WHERE replica {replica}");
                (file.query(&cursors).ok()?, file.query(&select).ok()?)
            }
            Self::Latest { .. } => return None,
        };
        let number = |cell: &Option<String>| cell.as_deref().and_then(|c| c.parse::<i64>().ok());
        let cursors = cursors.iter().filter_map(|row| Some((i32::try_from(number(&row[0])?).ok()?, number(&row[1])?))).collect();
        Some(View { cursors, rows: canonical(rows, columns) })
    }
}

fn canonical(rows: Vec<Row>, columns: &[Column]) -> Vec<Row> {
    let cell = |(cell, column): (Option<String>, &Column)| cell.map(|text| column.kind.canonical(&text));
    rows.into_iter().map(|row| row.into_iter().zip(columns).map(cell).collect()).collect()
}

/// A Postgres connection that blocks.
pub struct Postgres {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Postgres")
    }
}

impl Postgres {
    /// Connects to a database; `None` where it or the server is not there.
    pub fn connect(server: &str, database: &str) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime of one thread");
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&format!("{server}/{database}"), NoTls)).ok()?;
        drop(runtime.spawn(async move { connection.await.ok() }));
        Some(Self { client, runtime })
    }

    /// Creates a database and connects to it.
    pub fn create(server: &str, database: &str) -> Self {
        let mut maintenance = Self::connect(server, "postgres").expect("Postgres is up");
        maintenance.run(&format!("CREATE DATABASE {}", double(database)));
        Self::connect(server, database).expect("the database was just created")
    }

    /// Runs statements; panics on an error.
    pub fn run(&mut self, sql: &str) {
        if let Err(e) = self.runtime.block_on(self.client.batch_execute(sql)) {
            panic!("Postgres: {e:?}: {}", &sql[..sql.len().min(400)]);
        }
    }

    /// Rows of one statement as the server's own text.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>, String> {
        let messages = self.runtime.block_on(self.client.simple_query(sql)).map_err(|e| format!("{e:?}"))?;
        let row = |message: SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect()),
            _ => None,
        };
        Ok(messages.into_iter().filter_map(row).collect())
    }

    /// The rows of a source table as canonical text.
    pub fn rows(&mut self, table: &str, columns: &[Column]) -> Vec<Row> {
        let list: Vec<String> = columns.iter().map(|c| c.kind.postgres(&double(&c.name))).collect();
        let rows = self.query(&format!("SELECT {} FROM {table}", list.join(", "))).unwrap_or_else(|e| panic!("{table}: {e}"));
        canonical(rows, columns)
    }
}

/// ClickHouse over HTTP.
#[derive(Debug)]
pub struct ClickHouse {
    agent: ureq::Agent,
    url: String,
    user: String,
    password: String,
}

impl Default for ClickHouse {
    fn default() -> Self {
        Self::new()
    }
}

impl ClickHouse {
    /// The test server.
    pub fn new() -> Self {
        let (url, user, password) = stack::clickhouse();
        let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(60))).http_status_as_error(false).build();
        Self { agent: config.into(), url, user, password }
    }

    /// Runs a statement and returns its rows, a row an array of texts.
    pub fn query(&self, sql: &str) -> Result<Vec<Row>, String> {
        let body = self.text(&format!("{sql} FORMAT JSONCompactEachRow"))?;
        body.lines().map(|line| serde_json::from_str::<Row>(line).map_err(|e| format!("{e}: {line}"))).collect()
    }

    /// Runs a statement that gives no rows; panics on an error.
    pub fn run(&self, sql: &str) {
        let _ = self.text(sql).unwrap_or_else(|e| panic!("ClickHouse: {e}: {sql}"));
    }

    fn text(&self, sql: &str) -> Result<String, String> {
        let request = self.agent.post(&self.url).header("X-ClickHouse-User", &self.user).header("X-ClickHouse-Key", &self.password);
        let mut response = request.send(sql).map_err(|e| e.to_string())?;
        let status = response.status();
        let body = response.body_mut().with_config().limit(1 << 30).read_to_string().map_err(|e| e.to_string())?;
        if status.is_success() && !body.contains("DB::Exception") { Ok(body) } else { Err(body) }
    }
}

/// A DuckDB file opened for reading, while no process holds it.
#[derive(Debug)]
pub struct DuckDb {
    connection: duckdb::Connection,
}

impl DuckDb {
    /// Opens it; `None` where it is not there or held by a process.
    pub fn open(path: &std::path::Path) -> Option<Self> {
        if !path.exists() {
            return None;
        }
        let config = duckdb::Config::default().access_mode(duckdb::AccessMode::ReadOnly).ok()?;
        Some(Self { connection: duckdb::Connection::open_with_flags(path, config).ok()? })
    }

    /// Rows of a statement whose columns are all text.
    pub fn query(&self, sql: &str) -> Result<Vec<Row>, String> {
        let text = |e: duckdb::Error| e.to_string();
        let mut statement = self.connection.prepare(sql).map_err(text)?;
        let mut rows = statement.query([]).map_err(text)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(text)? {
            let width = row.as_ref().column_count();
            found.push((0..width).map(|i| row.get::<_, Option<String>>(i).map_err(text)).collect::<Result<Row, String>>()?);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renderings_meet_in_one_text() {
        for (kind, texts) in [
            (Kind::Float64, &["1e+20", "100000000000000000000", "1e20"][..]),
            (Kind::Float32, &["1.1754944e-38", "0.000000000000000000000000000000000000011754944"]),
            (Kind::Numeric, &["1.50", "1.5", "1.5000"]),
            (Kind::Time, &["12:34:56.7", "12:34:56.700000", "45296700000"]),
            (Kind::Time, &["-838:59:59", "-838:59:59.000000", "-3020399000000"]),
            (Kind::TimeNanos, &["13:00:01.7029051", "46801702905100"]),
            (Kind::Interval, &["2 years 5 mons 7 days 06:08:09.25", "2 years 5 months 7 days 06:08:09.25", "P2Y5M7DT6H8M9.25S"]),
            (Kind::Interval, &["-1 mons +3 days -00:00:00.5", "-1 months 3 days -00:00:00.5", "P0Y-1M3DT0H0M-0.5S"]),
            (Kind::Json, &[r#"{"b": 1, "a": [1, 2]}"#, r#"{"a":[1,2],"b":1}"#]),
        ] {
            let canonical: std::collections::BTreeSet<String> = texts.iter().map(|t| kind.canonical(t)).collect();
            assert_eq!(canonical.len(), 1, "{kind:?}: {canonical:?}");
        }
        assert_ne!(Kind::Float64.canonical("-0"), Kind::Float64.canonical("0"));
        assert_ne!(Kind::Numeric.canonical("100"), Kind::Numeric.canonical("1"));
    }

    #[test]
    fn the_three_stores_render_alike() {
        let values = columns(&[
            ("b", Kind::Bool),
            ("i", Kind::Int),
            ("d", Kind::Decimal(2)),
            ("t", Kind::Text),
            ("y", Kind::Bytes),
            ("a", Kind::Date),
            ("z", Kind::TimestampTz),
        ]);
        let expected: Row = ["true", "-7", "12.30", "é'\"", "00ff", "2024-02-29", "2024-01-01T01:00:00.123456Z"].map(|t| Some(t.to_owned())).into();
        let database = stack::unique("render");
        let mut postgres = Postgres::create(&stack::postgres(), &database);
        postgres.run(
            "CREATE TABLE t (b bool, i int, d numeric(12,2), t text, y bytea, a date, z timestamptz); \
             INSERT INTO t VALUES (true, -7, 12.3, 'é''\"', '\\x00ff', '2024-02-29', '2024-01-01 01:00:00.123456+00')",
        );
        let store = Store::Postgres { server: stack::postgres(), database, schema: "public".into() };
        assert_eq!(canonical(postgres.query(&store.select("t", &values)).expect("a table"), &values), std::slice::from_ref(&expected));

        let database = stack::unique("render");
        let clickhouse = ClickHouse::new();
        clickhouse.run(&format!("CREATE DATABASE {database}"));
        clickhouse.run(&format!(
            "CREATE TABLE {database}.t_live (b Bool, i Int32, d Decimal(12,2), t String, y String, a Date32, z DateTime64(6,'UTC')) ENGINE = Memory"
        ));
        clickhouse.run(&format!(
            "INSERT INTO {database}.t_live VALUES (true, -7, 12.3, 'é\\'\"', unhex('00FF'), '2024-02-29', '2024-01-01 01:00:00.123456')"
        ));
        let store = Store::ClickHouse { database };
        assert_eq!(canonical(clickhouse.query(&store.select("t", &values)).expect("a table"), &values), std::slice::from_ref(&expected));

        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r.duckdb");
        let writer = duckdb::Connection::open(&path).expect("a new file");
        writer
            .execute_batch(
                "CREATE TABLE t (b BOOLEAN, i INTEGER, d DECIMAL(12,2), t VARCHAR, y BLOB, a DATE, z TIMESTAMPTZ); \
                 INSERT INTO t VALUES (true, -7, 12.3, 'é''\"', '\\x00\\xFF'::BLOB, '2024-02-29', '2024-01-01 01:00:00.123456+00')",
            )
            .expect("a table");
        drop(writer);
        let store = Store::DuckDb { path: path.clone(), schema: "main".into() };
        let file = DuckDb::open(&path).expect("nobody holds it");
        assert_eq!(canonical(file.query(&store.select("t", &values)).expect("a table"), &values), [expected]);
    }
}
