//! One statement on the engine, run on a blocking thread.
//!
//! Each request gets an engine connection of its own (about 0.1 ms), so settings and temporary tables never leak from one to the
//! next. Inserts are fed while the body arrives and selects are sent while they are computed, both in constant memory.
use crate::Shared;
use crate::codec;
use crate::engine::{Conn, Params, Stats, Stream};
use crate::sql;
use bytes::Bytes;
use hyper::body::Frame;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

type Out = mpsc::Sender<Result<Frame<Bytes>, Infallible>>;
type Headers = Vec<(&'static str, String)>;

/// Status and headers, which go out before the first byte of the answer.
pub struct Head {
    pub status: u16,
    pub headers: Headers,
    pub streaming: bool,
}

/// A request that was read and whose user was checked.
pub struct Job {
    shared: Arc<Shared>,
    params: Vec<(String, String)>,
    /// A GET may not write.
    read_only: bool,
    /// The `query` parameter; None: the body is the query.
    query: Option<String>,
    default_format: String,
    query_id: String,
    head: Option<oneshot::Sender<Head>>,
    out: Out,
    body: mpsc::Receiver<io::Result<Bytes>>,
}

/// Parameters that the HTTP handler itself takes; all others are settings.
const RESERVED: &[&str] = &[
    "query",
    "database",
    "user",
    "password",
    "default_format",
    "query_id",
    "quota_key",
    "compress",
    "decompress",
    "buffer_size",
    "wait_end_of_query",
    "stacktrace",
    "client_protocol_version",
    "enable_http_compression",
    "http_zlib_compression_level",
];

/// Formats whose chunks can simply be put one after the other (the last one after cutting the repeated header).
const STREAMABLE: &[&str] = &["native", "rowbinary", "tabseparated", "tsv", "csv", "jsoneachrow", "jsoncompacteachrow", "rowbinarywithnamesandtypes"];

const RETURNS_ROWS: &[&str] = &["SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "EXISTS", "CHECK", "FROM", "VALUES"];

/// An answer up to this many bytes can still fail with a proper status, as on a server.
const HEAD_AFTER_BYTES: usize = 1 << 20;
/// How much of a refused insert is read so that the client gets to see the answer.
const DRAIN_BYTES_MAX: usize = 256 << 20;
/// An insert with inline data need not be UTF-8: only its beginning is looked at.
const STATEMENT_LOOK_BYTES: usize = 1 << 20;

impl Shared {
    /// The engine's error text in the form that a server sends.
    pub fn message(&self, e: &str) -> String {
        let e = e.trim_end();
        if e.contains("(version ") { format!("{e}\n") } else { format!("{e} (version {} (official build))\n", self.version) }
    }

    fn next_query_id(&self) -> String {
        let n = self.query_ids.fetch_add(1, Ordering::Relaxed);
        let h = (self.query_id_seed ^ n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let low = (self.query_id_seed.rotate_left(17) ^ n) & 0xffff_ffff_ffff;
        format!("{:08x}-{:04x}-4{:03x}-8{:03x}-{low:012x}", h >> 32, (h >> 16) & 0xffff, h & 0xfff, (n >> 48) & 0xfff)
    }
}

impl Job {
    pub fn new(
        shared: Arc<Shared>,
        params: Vec<(String, String)>,
        get: bool,
        head: oneshot::Sender<Head>,
        out: Out,
        body: mpsc::Receiver<io::Result<Bytes>>,
    ) -> Job {
        let take = |name: &str| params.iter().rev().find(|p| p.0 == name).map(|p| p.1.clone());
        Job {
            read_only: get && take("readonly").is_none(),
            query: take("query"),
            default_format: take("default_format").unwrap_or_else(|| "TabSeparated".into()),
            query_id: take("query_id").unwrap_or_else(|| shared.next_query_id()),
            shared,
            params,
            head: Some(head),
            out,
            body,
        }
    }

    /// Runs the statement and sends the answer or the error.
    pub fn run(mut self) {
        let start = Instant::now();
        if let Err(e) = self.answer() {
            self.fail(&e);
        }
        if self.shared.verbose {
            eprintln!("[{}] {:.1} ms", self.query_id, start.elapsed().as_secs_f64() * 1e3);
        }
    }

    fn answer(&mut self) -> Result<(), String> {
        let mut conn = self.shared.engine.connect(&self.shared.args)?;
        let params = self.prepare(&mut conn)?;
        self.statement(&mut conn, &params)
    }

    /// Sets database and settings; gives the statement's named parameters.
    fn prepare(&self, conn: &mut Conn) -> Result<Params, String> {
        if let Some(db) = self.param("database").filter(|d| !d.is_empty() && *d != "default") {
            let db = db.replace('\\', "\\\\").replace('`', "\\`");
            conn.query(format!("USE `{db}`").as_bytes(), "Null", &Params::default())?;
        }
        let mut settings = Vec::new();
        let mut params = Params::default();
        for (name, value) in &self.params {
            if let Some(name) = name.strip_prefix("param_") {
                params.0.push((name.to_string(), value.clone()));
            } else if !RESERVED.contains(&name.as_str()) {
                if name.is_empty() || !name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'.') {
                    return Err(format!("Code: 115. DB::Exception: Unknown setting '{name}'. (UNKNOWN_SETTING)"));
                }
                settings.push(format!("{name} = '{}'", value.replace('\\', "\\\\").replace('\'', "\\'")));
            }
        }
        if self.read_only {
            settings.push("readonly = 2".into());
        }
        if !settings.is_empty() {
            conn.query(format!("SET {}", settings.join(", ")).as_bytes(), "Null", &Params::default())?;
        }
        Ok(params)
    }

    fn statement(&mut self, conn: &mut Conn, params: &Params) -> Result<(), String> {
        let (text, body_follows) = match self.query.take() {
            Some(query) => (query.into_bytes(), true),
            None => (self.read_body()?, false),
        };
        let look = String::from_utf8_lossy(&text[..text.len().min(STATEMENT_LOOK_BYTES)]).into_owned();
        if look.trim().is_empty() {
            return Err("Code: 62. DB::Exception: Empty query. (SYNTAX_ERROR)".into());
        }
        if self.shared.verbose {
            eprintln!("[{}] {}", self.query_id, look.chars().take(300).collect::<String>());
        }
        if sql::words(&look).first().is_some_and(|w| w.text.eq_ignore_ascii_case("INSERT")) {
            self.insert(conn, params, text, &look, body_follows)
        } else {
            self.select(conn, params, text, body_follows)
        }
    }

    fn insert(&mut self, conn: &mut Conn, params: &Params, mut text: Vec<u8>, look: &str, body_follows: bool) -> Result<(), String> {
        let split = sql::split(look);
        if let (true, false, Some(format)) = (body_follows, split.has_select, split.format) {
            let mut insert = conn.insert(split.rest.trim().as_bytes(), format, params)?;
            self.each_chunk(|data| insert.append(data))?;
            let stats = insert.finish()?;
            self.send_head(200, vec![("X-ClickHouse-Summary", summary(&stats))], false);
            return Ok(());
        }
        if split.has_select && look.to_ascii_lowercase().contains("input(") {
            // The engine would take the statement and write nothing.
            return Err("Code: 48. DB::Exception: INSERT ... SELECT ... FROM input(...) is not supported by chdb-http. (NOT_IMPLEMENTED)".into());
        }
        if body_follows {
            self.append_body(&mut text)?;
        }
        let (answer, stats) = conn.query(&text, "Null", params)?;
        self.send_head(200, vec![("X-ClickHouse-Summary", summary(&stats))], false);
        self.send(answer);
        Ok(())
    }

    fn select(&mut self, conn: &mut Conn, params: &Params, mut text: Vec<u8>, body_follows: bool) -> Result<(), String> {
        if body_follows {
            self.append_body(&mut text)?;
        }
        let text = String::from_utf8(text).map_err(|_| "Code: 62. DB::Exception: Query is not UTF-8. (SYNTAX_ERROR)".to_string())?;
        if conn.statements(text.as_bytes()) > 1 {
            return Err("Code: 62. DB::Exception: Syntax error (Multi-statements are not allowed). (SYNTAX_ERROR)".into());
        }
        let split = sql::split(&text);
        let format = split.format.unwrap_or(&self.default_format).to_string();
        let returns_rows = RETURNS_ROWS.contains(&split.first.as_str());
        let mut headers = vec![("X-ClickHouse-Format", format.clone()), ("Content-Type", mime(&format).into())];
        let streamable = STREAMABLE.contains(&format.to_ascii_lowercase().as_str());
        if streamable && matches!(split.first.as_str(), "SELECT" | "WITH") {
            match conn.stream(split.rest.as_bytes(), &format, params) {
                Ok(mut stream) => return self.pump(&mut stream, &format, headers),
                Err(e) if code_of(&e) == 36 && e.contains("Streaming query is not supported") => {}
                Err(e) => return Err(e),
            }
        }
        let sql = if split.format.is_some() && returns_rows { split.rest.as_str() } else { text.as_str() };
        let (answer, stats) = conn.query(sql.as_bytes(), &format, params)?;
        if !returns_rows {
            headers.clear();
        }
        headers.push(("X-ClickHouse-Summary", summary(&stats)));
        self.send_head(200, headers, false);
        self.send(answer);
        Ok(())
    }

    /// Sends a select's chunks as they come.
    fn pump(&mut self, stream: &mut Stream<'_>, format: &str, mut headers: Headers) -> Result<(), String> {
        let header_repeats = format.eq_ignore_ascii_case("RowBinaryWithNamesAndTypes");
        let mut total = Stats::default();
        let mut buffer: Vec<u8> = Vec::new();
        let (mut chunks, mut head_sent) = (0usize, false);
        let start = Instant::now();
        loop {
            let next = stream.next()?;
            let end = next.is_none();
            if let Some((mut chunk, stats)) = next {
                if header_repeats && chunks > 0 {
                    let header = names_and_types_len(&chunk).ok_or("Code: 1002. DB::Exception: bad chunk header. (UNKNOWN_EXCEPTION)")?;
                    chunk.drain(..header);
                }
                chunks += 1;
                total.result_rows += stats.result_rows;
                total.result_bytes += chunk.len() as u64;
                total.read_rows = total.read_rows.max(stats.read_rows);
                total.read_bytes = total.read_bytes.max(stats.read_bytes);
                buffer.extend_from_slice(&chunk);
            }
            if !end && buffer.len() < HEAD_AFTER_BYTES {
                continue;
            }
            total.elapsed_ns = start.elapsed().as_nanos() as u64;
            if !head_sent {
                head_sent = true;
                headers.push(("X-ClickHouse-Summary", summary(&total)));
                if !end {
                    headers.push(("X-ClickHouse-Exception-Tag", exception_tag(&self.query_id)));
                }
                self.send_head(200, std::mem::take(&mut headers), !end);
            }
            if !buffer.is_empty() && !self.send(std::mem::take(&mut buffer)) {
                return Ok(()); // The client went away; dropping the stream cancels the query.
            }
            if end {
                return Ok(());
            }
        }
    }

    fn fail(&mut self, e: &str) {
        // Take in what the client still sends, so that it gets to read the answer.
        let mut left = DRAIN_BYTES_MAX;
        while let Some(Ok(data)) = self.body.blocking_recv() {
            left = left.saturating_sub(data.len());
            if left == 0 {
                break;
            }
        }
        let message = self.shared.message(e);
        let code = code_of(e);
        if self.shared.verbose {
            eprintln!("[{}] {}", self.query_id, message.trim_end());
        }
        if self.head.is_some() {
            let headers = vec![("X-ClickHouse-Exception-Code", code.to_string()), ("Content-Type", "text/plain; charset=UTF-8".into())];
            self.send_head(status_of(code), headers, false);
            self.send(message.into_bytes());
        } else {
            // The answer has begun: the tagged form that servers use since 25.11.
            let tag = exception_tag(&self.query_id);
            let size = message.len();
            let block = format!("\r\n__exception__\r\n{tag}\r\n{message}{size} {tag}\r\n__exception__\r\n");
            self.send(block.into_bytes());
        }
    }

    fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().rev().find(|p| p.0 == name).map(|p| p.1.as_str())
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.param(name), Some("1" | "true"))
    }

    fn send_head(&mut self, status: u16, extra: Headers, streaming: bool) {
        let mut headers = vec![
            ("X-ClickHouse-Query-Id", self.query_id.clone()),
            ("X-ClickHouse-Server-Display-Name", "chdb-http".into()),
            ("X-ClickHouse-Timezone", self.shared.timezone.clone()),
        ];
        headers.extend(extra);
        if let Some(head) = self.head.take() {
            let _ = head.send(Head { status, headers, streaming });
        }
    }

    fn send(&self, data: Vec<u8>) -> bool {
        let data = if self.flag("compress") { codec::write_blocks(&data) } else { data };
        self.out.blocking_send(Ok(Frame::data(Bytes::from(data)))).is_ok()
    }

    fn append_body(&mut self, text: &mut Vec<u8>) -> Result<(), String> {
        let more = self.read_body()?;
        if !more.is_empty() {
            text.push(b'\n');
            text.extend_from_slice(&more);
        }
        Ok(())
    }

    fn read_body(&mut self) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        self.each_chunk(|data| {
            all.extend_from_slice(data);
            Ok(())
        })?;
        Ok(all)
    }

    /// Hands the plain body to `f` piece by piece. Err where the client went away or sent a broken body.
    fn each_chunk(&mut self, mut f: impl FnMut(&[u8]) -> Result<(), String>) -> Result<(), String> {
        let broken = |e: io::Error| format!("Code: 33. DB::Exception: {e}. (CANNOT_READ_ALL_DATA)");
        if !self.flag("decompress") {
            while let Some(data) = self.body.blocking_recv() {
                f(&data.map_err(broken)?)?;
            }
            return Ok(());
        }
        let body = &mut self.body;
        let mut reader = codec::ChunkReader::new(|| body.blocking_recv().transpose());
        while let Some(block) = codec::read_block(&mut reader).map_err(broken)? {
            f(&block)?;
        }
        Ok(())
    }
}

fn code_of(message: &str) -> u32 {
    let digits = message.find("Code: ").map(|i| message[i + 6..].chars().take_while(char::is_ascii_digit).collect::<String>());
    digits.and_then(|d| d.parse().ok()).unwrap_or(1002)
}

fn status_of(code: u32) -> u16 {
    match code {
        194 => 401,
        192 | 193 | 497 | 516 => 403,
        6 | 25..=27 | 34 | 36 | 38 | 41 | 43 | 53 | 62 | 69 | 70 | 72 | 117 | 130 | 131 | 167..=169 | 190 | 321 | 344 | 457 => 400,
        46 | 47 | 50 | 56 | 60 | 63 | 73 | 78 | 81 | 105 | 115 | 139 | 336 | 511 => 404,
        48 => 501,
        159 => 408,
        209 => 503,
        _ => 500,
    }
}

fn summary(s: &Stats) -> String {
    format!(
        "{{\"read_rows\":\"{}\",\"read_bytes\":\"{}\",\"written_rows\":\"{}\",\"written_bytes\":\"{}\",\"total_rows_to_read\":\"0\",\"result_rows\":\"{}\",\"result_bytes\":\"{}\",\"elapsed_ns\":\"{}\"}}",
        s.read_rows, s.read_bytes, s.written_rows, s.written_bytes, s.result_rows, s.result_bytes, s.elapsed_ns
    )
}

fn exception_tag(query_id: &str) -> String {
    let letters = query_id.bytes().filter(u8::is_ascii_hexdigit).map(|c| (b'a' + c % 26) as char);
    letters.chain(std::iter::repeat('q')).take(16).collect()
}

/// Length of the header of a RowBinaryWithNamesAndTypes chunk.
fn names_and_types_len(chunk: &[u8]) -> Option<usize> {
    fn varint(chunk: &[u8], at: &mut usize) -> Option<usize> {
        let (mut value, mut shift) = (0usize, 0);
        loop {
            let byte = *chunk.get(*at)?;
            *at += 1;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }
    let mut at = 0;
    let columns = varint(chunk, &mut at)?;
    for _ in 0..2 * columns {
        at += varint(chunk, &mut at)?;
    }
    (at <= chunk.len()).then_some(at)
}

fn mime(format: &str) -> &'static str {
    match format.to_ascii_lowercase().as_str() {
        "json" | "jsoncompact" | "jsonstrings" => "application/json; charset=UTF-8",
        "jsoneachrow" | "jsoncompacteachrow" => "application/x-ndjson; charset=UTF-8",
        "native" | "rowbinary" | "rowbinarywithnamesandtypes" => "application/octet-stream",
        f if f.starts_with("csv") => "text/csv; charset=UTF-8; header=absent",
        f if f.starts_with("tab") || f.starts_with("tsv") => "text/tab-separated-values; charset=UTF-8",
        _ => "text/plain; charset=UTF-8",
    }
}
