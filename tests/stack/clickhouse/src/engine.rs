//! The part of libchdb's C API that the server uses, loaded with dlopen.
//!
//! Results, streams and inserts borrow their connection, so the calls on one connection never overlap, which is what the API asks for.
//! All unsafe code of this program is here.
use std::ffi::{CStr, CString, c_char, c_int, c_void};

type Ptr = *mut c_void;
type Names = *const *const c_char;
type Lens = *const usize;

macro_rules! api {
    ($($name:ident : $sym:literal fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        #[derive(Clone, Copy)]
        struct Api { $($name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)* }
        impl Api {
            fn load(path: &str) -> Result<Api, String> {
                // SAFETY: libchdb has no load-time side effects that matter here; the library is leaked,
                // so the function pointers stay valid for the life of the process.
                unsafe {
                    let lib: &'static libloading::Library = Box::leak(Box::new(
                        libloading::Library::new(path).map_err(|e| format!("cannot load {path}: {e}"))?,
                    ));
                    Ok(Api { $($name: *lib.get(concat!($sym, "\0").as_bytes())
                        .map_err(|e| format!("{path}: {e}"))?,)* })
                }
            }
        }
    };
}

api! {
    connect: "chdb_connect" fn(c_int, *mut *mut c_char) -> *mut Ptr;
    close: "chdb_close_conn" fn(*mut Ptr);
    query: "chdb_query_with_params_n" fn(Ptr, *const u8, usize, *const u8, usize, Names, Lens, Names, Lens, usize) -> Ptr;
    stream: "chdb_stream_query_with_params_n" fn(Ptr, *const u8, usize, *const u8, usize, Names, Lens, Names, Lens, usize) -> Ptr;
    fetch: "chdb_stream_fetch_result" fn(Ptr, Ptr) -> Ptr;
    cancel: "chdb_stream_cancel_query" fn(Ptr, Ptr);
    destroy: "chdb_destroy_query_result" fn(Ptr);
    insert: "chdb_stream_insert_with_params_n" fn(Ptr, *const u8, usize, *const u8, usize, Names, Lens, Names, Lens, usize) -> Ptr;
    append: "chdb_stream_append" fn(Ptr, *const c_void, usize) -> c_int;
    done: "chdb_stream_done" fn(Ptr) -> Ptr;
    cancel_insert: "chdb_stream_cancel_insert" fn(Ptr);
    insert_error: "chdb_stream_insert_error" fn(Ptr) -> *const c_char;
    destroy_insert: "chdb_destroy_insert_stream" fn(Ptr);
    buffer: "chdb_result_buffer" fn(Ptr) -> *const u8;
    length: "chdb_result_length" fn(Ptr) -> usize;
    elapsed: "chdb_result_elapsed" fn(Ptr) -> f64;
    rows: "chdb_result_rows_read" fn(Ptr) -> u64;
    storage_rows: "chdb_result_storage_rows_read" fn(Ptr) -> u64;
    storage_bytes: "chdb_result_storage_bytes_read" fn(Ptr) -> u64;
    rows_written: "chdb_result_rows_written" fn(Ptr) -> u64;
    bytes_written: "chdb_result_bytes_written" fn(Ptr) -> u64;
    error: "chdb_result_error" fn(Ptr) -> *const c_char;
    classify: "chdb_classify_query_n" fn(Ptr, *const u8, usize, *const u8, usize, *mut Analysis) -> c_int;
    signals: "chdb_set_signal_handlers_enabled" fn(c_int);
    shutdown: "chdb_shutdown" fn() -> c_int;
}

#[repr(C)]
#[derive(Default)]
struct Analysis {
    struct_size: u32,
    statement_count: u32,
    flags: u32,
    query_class: u32,
}

/// Named `{x:Type}` parameters in the shape that the C API wants.
#[derive(Default, Clone)]
pub struct Params(pub Vec<(String, String)>);

impl Params {
    fn with<R>(&self, f: impl FnOnce(Names, Lens, Names, Lens, usize) -> R) -> R {
        let n: Vec<_> = self.0.iter().map(|p| p.0.as_ptr() as *const c_char).collect();
        let nl: Vec<_> = self.0.iter().map(|p| p.0.len()).collect();
        let v: Vec<_> = self.0.iter().map(|p| p.1.as_ptr() as *const c_char).collect();
        let vl: Vec<_> = self.0.iter().map(|p| p.1.len()).collect();
        f(n.as_ptr(), nl.as_ptr(), v.as_ptr(), vl.as_ptr(), n.len())
    }
}

#[derive(Default, Clone, Copy, Debug)]
pub struct Stats {
    pub result_rows: u64,
    pub result_bytes: u64,
    pub read_rows: u64,
    pub read_bytes: u64,
    pub written_rows: u64,
    pub written_bytes: u64,
    pub elapsed_ns: u64,
}

#[derive(Clone, Copy)]
pub struct Engine {
    api: Api,
}

/// One engine connection: its own settings, current database and temporary tables. Runs one statement at a time.
pub struct Conn {
    api: Api,
    outer: *mut Ptr,
    inner: Ptr,
}
// SAFETY: the C API allows a connection to be used from any thread, one call at a time; `&mut self` ensures that.
unsafe impl Send for Conn {}

impl Engine {
    pub fn load(path: &str) -> Result<Engine, String> {
        let api = Api::load(path)?;
        // SAFETY: called before the first connection, as the API asks.
        unsafe { (api.signals)(0) };
        Ok(Engine { api })
    }

    pub fn connect(&self, args: &[String]) -> Result<Conn, String> {
        let args: Vec<CString> =
            std::iter::once("clickhouse").chain(args.iter().map(String::as_str)).map(|a| CString::new(a).expect("no NUL in an argument")).collect();
        let mut argv: Vec<*mut c_char> = args.iter().map(|a| a.as_ptr() as *mut c_char).collect();
        // SAFETY: argv outlives the call.
        let outer = unsafe { (self.api.connect)(argv.len() as c_int, argv.as_mut_ptr()) };
        if outer.is_null() {
            return Err("Code: 1002. DB::Exception: chdb_connect failed. (UNKNOWN_EXCEPTION)".into());
        }
        // SAFETY: a non-null result points to the connection handle.
        let inner = unsafe { *outer };
        Ok(Conn { api: self.api, outer, inner })
    }

    /// Stops the engine's threads. All connections must be closed.
    pub fn shutdown(&self) -> bool {
        // SAFETY: no argument, safe from any thread.
        unsafe { (self.api.shutdown)() == 0 }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        // SAFETY: closed once; no result of this connection outlives it (see the borrows below).
        unsafe { (self.api.close)(self.outer) }
    }
}

struct Res(Api, Ptr);
impl Drop for Res {
    fn drop(&mut self) {
        // SAFETY: the result is owned and destroyed once.
        unsafe { (self.0.destroy)(self.1) }
    }
}
impl Res {
    fn check(self) -> Result<Res, String> {
        if self.1.is_null() {
            return Err("Code: 1002. DB::Exception: chDB gave no result. (UNKNOWN_EXCEPTION)".into());
        }
        // SAFETY: non-null result; the string lives as long as the result.
        let e = unsafe { (self.0.error)(self.1) };
        if e.is_null() { Ok(self) } else { Err(unsafe { CStr::from_ptr(e) }.to_string_lossy().into_owned()) }
    }
    fn bytes(&self) -> Vec<u8> {
        // SAFETY: buffer and length belong together and live as long as the result.
        unsafe {
            let (p, n) = ((self.0.buffer)(self.1), (self.0.length)(self.1));
            if p.is_null() || n == 0 { Vec::new() } else { std::slice::from_raw_parts(p, n).to_vec() }
        }
    }
    fn stats(&self) -> Stats {
        // SAFETY: plain getters on a live result.
        unsafe {
            Stats {
                result_rows: (self.0.rows)(self.1),
                result_bytes: (self.0.length)(self.1) as u64,
                read_rows: (self.0.storage_rows)(self.1),
                read_bytes: (self.0.storage_bytes)(self.1),
                written_rows: (self.0.rows_written)(self.1),
                written_bytes: (self.0.bytes_written)(self.1),
                elapsed_ns: ((self.0.elapsed)(self.1) * 1e9) as u64,
            }
        }
    }
}

impl Conn {
    pub fn query(&mut self, sql: &[u8], format: &str, params: &Params) -> Result<(Vec<u8>, Stats), String> {
        // SAFETY: all buffers outlive the call.
        let p = params
            .with(|n, nl, v, vl, c| unsafe { (self.api.query)(self.inner, sql.as_ptr(), sql.len(), format.as_ptr(), format.len(), n, nl, v, vl, c) });
        let r = Res(self.api, p).check()?;
        Ok((r.bytes(), r.stats()))
    }

    /// How many statements the text holds; 0 where it does not parse.
    pub fn statements(&mut self, sql: &[u8]) -> u32 {
        let mut a = Analysis { struct_size: size_of::<Analysis>() as u32, ..Default::default() };
        // SAFETY: buffers outlive the call; a null target database is allowed.
        let rc = unsafe { (self.api.classify)(self.inner, sql.as_ptr(), sql.len(), std::ptr::null(), 0, &mut a) };
        if rc == 0 { a.statement_count } else { 0 }
    }

    pub fn stream<'a>(&'a mut self, sql: &[u8], format: &str, params: &Params) -> Result<Stream<'a>, String> {
        // SAFETY: all buffers outlive the call.
        let p = params.with(|n, nl, v, vl, c| unsafe {
            (self.api.stream)(self.inner, sql.as_ptr(), sql.len(), format.as_ptr(), format.len(), n, nl, v, vl, c)
        });
        let res = Res(self.api, p).check()?;
        Ok(Stream { conn: self, res, ended: false })
    }

    pub fn insert<'a>(&'a mut self, sql: &[u8], format: &str, params: &Params) -> Result<Insert<'a>, String> {
        // SAFETY: all buffers outlive the call; the handle is never null.
        let handle = params.with(|n, nl, v, vl, c| unsafe {
            (self.api.insert)(self.inner, sql.as_ptr(), sql.len(), format.as_ptr(), format.len(), n, nl, v, vl, c)
        });
        let ins = Insert { conn: self, handle, done: false };
        match ins.error() {
            Some(e) => Err(e),
            None => Ok(ins),
        }
    }
}

pub struct Stream<'a> {
    conn: &'a mut Conn,
    res: Res,
    ended: bool,
}
impl Stream<'_> {
    /// The next formatted chunk. `None` at the end.
    pub fn next(&mut self) -> Result<Option<(Vec<u8>, Stats)>, String> {
        if self.ended {
            return Ok(None);
        }
        // SAFETY: the connection is borrowed by this stream, so calls are serialized.
        let p = unsafe { (self.conn.api.fetch)(self.conn.inner, self.res.1) };
        let r = match Res(self.conn.api, p).check() {
            Ok(r) => r,
            Err(e) => {
                self.ended = true;
                return Err(e);
            }
        };
        let (b, s) = (r.bytes(), r.stats());
        if b.is_empty() {
            self.ended = true;
            return Ok(None);
        }
        Ok(Some((b, s)))
    }
}
impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // SAFETY: cancels this connection's own running stream.
            unsafe { (self.conn.api.cancel)(self.conn.inner, self.res.1) }
        }
    }
}

pub struct Insert<'a> {
    conn: &'a mut Conn,
    handle: Ptr,
    done: bool,
}
impl Insert<'_> {
    fn error(&self) -> Option<String> {
        // SAFETY: the handle is live; the string belongs to it.
        let e = unsafe { (self.conn.api.insert_error)(self.handle) };
        if e.is_null() { None } else { Some(unsafe { CStr::from_ptr(e) }.to_string_lossy().into_owned()) }
    }
    /// Hands over the next piece of data, cut anywhere.
    pub fn append(&mut self, data: &[u8]) -> Result<(), String> {
        // SAFETY: data outlives the call (the engine copies it).
        let rc = unsafe { (self.conn.api.append)(self.handle, data.as_ptr() as *const c_void, data.len()) };
        if rc == 0 {
            Ok(())
        } else {
            Err(self.error().unwrap_or_else(|| "Code: 1002. DB::Exception: insert stream failed. (UNKNOWN_EXCEPTION)".into()))
        }
    }
    /// Ends the insert; its rows are then stored.
    pub fn finish(mut self) -> Result<Stats, String> {
        self.done = true;
        // SAFETY: called once; the handle is freed in Drop.
        let r = Res(self.conn.api, unsafe { (self.conn.api.done)(self.handle) }).check()?;
        Ok(r.stats())
    }
}
impl Drop for Insert<'_> {
    fn drop(&mut self) {
        // SAFETY: cancel before destroy, each once.
        unsafe {
            if !self.done {
                (self.conn.api.cancel_insert)(self.handle);
            }
            (self.conn.api.destroy_insert)(self.handle);
        }
    }
}
