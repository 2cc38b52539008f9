//! Asking a running process over its HTTP interface: one request, one answer, and the connection is over.
//!
//! The interface is loopback and plain, so a client of its own would be a dependency for forty lines. Time and size are bounded; what does not
//! speak HTTP is an error and never a partial answer.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// How long connecting may take: the process is on this machine.
const CONNECT: Duration = Duration::from_secs(2);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Nothing listens there.
    #[error("nothing answers at {address}")]
    Nobody {
        /// The address asked.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Something listens, but no whole answer came.
    #[error("{address} gave no whole answer")]
    Broken {
        /// The address asked.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Asks for a path.
pub fn get(address: SocketAddr, path: &str, patience: Duration) -> Result<Answer, HttpError> {
    // HTTP/1.0: the answer ends with the connection and is never cut into chunks.
    ask(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"), patience)
}

/// Posts a JSON document.
pub fn post(address: SocketAddr, path: &str, document: &str, patience: Duration) -> Result<Answer, HttpError> {
    let length = document.len();
    let head = format!("POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
    ask(address, &(head + document), patience)
}

fn ask(address: SocketAddr, request: &str, patience: Duration) -> Result<Answer, HttpError> {
    let broken = |source| HttpError::Broken { address, source };
    let mut stream = TcpStream::connect_timeout(&address, CONNECT).map_err(|source| HttpError::Nobody { address, source })?;
    stream.set_read_timeout(Some(patience)).and_then(|()| stream.set_write_timeout(Some(patience))).map_err(broken)?;
    stream.write_all(request.as_bytes()).map_err(broken)?;
    let mut bytes = Vec::new();
    let _ = stream.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(broken)?;
    parse(&bytes).ok_or_else(|| broken(std::io::Error::new(std::io::ErrorKind::InvalidData, "what came is not HTTP, or not all of it")))
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let body = &bytes[end + 4..];
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") && value.trim().parse() != Ok(body.len()) {
            return None;
        }
    }
    (body.len() as u64 <= ANSWER_BYTES_MAX).then(|| Answer { status, body: body.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_or_none() {
        let whole = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno";
        assert_eq!(parse(whole), Some(Answer { status: 503, body: b"no".to_vec() }));
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None, "cut at {end}");
        }
        assert_eq!(parse(b"SSH-2.0-OpenSSH\r\n\r\n"), None);
    }

    #[test]
    fn nobody_there_is_told_from_somebody_else() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = std::thread::scope(|scope| {
            let _ = scope.spawn(|| drop(listener.accept()));
            get(address, "/", Duration::from_secs(5))
        });
        assert!(matches!(served, Err(HttpError::Broken { .. })), "{served:?}");
        drop(listener);
        assert!(matches!(get(address, "/", Duration::from_secs(5)), Err(HttpError::Nobody { .. })));
    }
}
