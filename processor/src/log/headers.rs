//! Headers of a fetched record, looked up by name.
//!
//! Decoding asks for a header only where one can matter, so most records never have theirs parsed. A name may stand several times; the first
//! one counts. Nothing is copied.

use std::fmt;

use landfall_schemas::dialect::Headers;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};

/// The headers of a record that is borrowed from the client.
pub struct MessageHeaders<'a>(pub &'a BorrowedMessage<'a>);

impl fmt::Debug for MessageHeaders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MessageHeaders").field(&self.0.offset()).finish()
    }
}

impl Headers for MessageHeaders<'_> {
    fn get(&self, name: &str) -> Option<&[u8]> {
        let headers = self.0.headers()?;
        (0..headers.count()).find_map(|at| headers.try_get(at).filter(|h| h.key == name)?.value)
    }
}
