//! ClickHouse's own block framing of bodies (`compress=1`, `decompress=1`), with LZ4 or no compression in a block.
//!
//! A block is refused, never passed on, when its checksum or size is wrong.
use std::io::{self, Read};

/// A reader over the request body's chunks.
pub struct ChunkReader<I: FnMut() -> io::Result<Option<bytes::Bytes>>> {
    next: I,
    cur: bytes::Bytes,
}
impl<I: FnMut() -> io::Result<Option<bytes::Bytes>>> ChunkReader<I> {
    pub fn new(next: I) -> Self {
        ChunkReader { next, cur: bytes::Bytes::new() }
    }
}
impl<I: FnMut() -> io::Result<Option<bytes::Bytes>>> Read for ChunkReader<I> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.cur.is_empty() {
            match (self.next)()? {
                Some(b) => self.cur = b,
                None => return Ok(0),
            }
        }
        let n = buf.len().min(self.cur.len());
        buf[..n].copy_from_slice(&self.cur[..n]);
        let _ = self.cur.split_to(n);
        Ok(n)
    }
}

const MAX_BLOCK: usize = 1 << 30;

fn bad(s: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, s.into())
}

/// Reads one block: 16 bytes CityHash128, 1 byte method, u32 compressed size (with the 9 bytes header), u32 raw size.
pub fn read_block(r: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0u8; 25];
    let mut got = 0;
    while got < 25 {
        let n = r.read(&mut head[got..])?;
        if n == 0 {
            return if got == 0 { Ok(None) } else { Err(bad("truncated compressed block header")) };
        }
        got += n;
    }
    let size = u32::from_le_bytes(head[17..21].try_into().expect("the slice has this length")) as usize;
    let raw_size = u32::from_le_bytes(head[21..25].try_into().expect("the slice has this length")) as usize;
    if !(9..=MAX_BLOCK).contains(&size) || raw_size > MAX_BLOCK {
        return Err(bad("compressed block size out of range"));
    }
    let mut data = vec![0u8; size];
    data[..9].copy_from_slice(&head[16..]);
    r.read_exact(&mut data[9..])?;
    let hash = cityhash_rs::cityhash_102_128(&data);
    let want = u128::from_le_bytes(head[..16].try_into().expect("the slice has this length"));
    if hash.rotate_left(64) != want {
        return Err(bad("Checksum doesn't match: corrupted data"));
    }
    let raw = match head[16] {
        0x82 => lz4_flex::block::decompress(&data[9..], raw_size).map_err(|e| bad(e.to_string()))?,
        0x02 => data[9..].to_vec(),
        m => return Err(bad(format!("unknown compression method {m:#x}"))),
    };
    if raw.len() != raw_size {
        return Err(bad("decompressed size mismatch"));
    }
    Ok(Some(raw))
}

/// Frames data as LZ4 blocks of at most 1 MiB.
pub fn write_blocks(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() / 2 + 64);
    for part in data.chunks(1 << 20) {
        let c = lz4_flex::block::compress(part);
        let mut b = Vec::with_capacity(c.len() + 9);
        b.push(0x82);
        b.extend_from_slice(&((c.len() + 9) as u32).to_le_bytes());
        b.extend_from_slice(&(part.len() as u32).to_le_bytes());
        b.extend_from_slice(&c);
        out.extend_from_slice(&cityhash_rs::cityhash_102_128(&b).rotate_left(64).to_le_bytes());
        out.extend_from_slice(&b);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn round_trip() {
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
        let enc = write_blocks(&data);
        let mut r = &enc[..];
        let mut got = Vec::new();
        while let Some(b) = read_block(&mut r).unwrap() {
            got.extend(b);
        }
        assert!(got == data);
    }
}
