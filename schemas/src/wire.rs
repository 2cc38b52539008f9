//! The bytes of Avro's binary encoding that rows and changes are made of: zigzag varints and length-prefixed runs, read with strict ends.
//!
//! A reader never trusts a length: it is checked against the bytes that are left before anything is taken, so no input makes it allocate.

/// Bytes that end too early, or that say something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The input ended in the middle of a value.
    #[error("the bytes end in the middle of a value")]
    Truncated,
    /// A varint has more than 64 bits, or a length is negative.
    #[error("a number is out of range")]
    Number,
    /// A union index, enum symbol or tag that does not exist.
    #[error("an index names nothing")]
    Index,
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    Text,
    /// Bytes left over behind the last value.
    #[error("bytes are left over behind the last value")]
    Trailing,
    /// A group of Protobuf, which has no length.
    #[error("it has a group, which is not read")]
    Group,
    /// A field of Protobuf whose bytes are of another kind than its type.
    #[error("a field is not of the kind that its type is written as")]
    Kind,
    /// A message within a message that stands there twice.
    #[error("a message is there twice")]
    Twice,
    /// A required field of Protobuf that is absent.
    #[error("a required field is absent")]
    Missing,
}

/// Appends a zigzag varint, as Avro writes `int` and `long`.
#[inline]
pub fn put_long(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// The most bytes of a varint of 64 bits.
const VARINT_BYTES_MAX: usize = 10;

/// Appends an unsigned varint, least significant group first.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    // Nearly every index and length is one byte; what is longer is written at once.
    if value < 0x80 {
        out.push(value as u8);
        return;
    }
    let mut bytes = [0; VARINT_BYTES_MAX];
    let mut len = 0;
    for byte in &mut bytes {
        len += 1;
        *byte = value as u8 | 0x80;
        value >>= 7;
        if value == 0 {
            *byte &= 0x7F;
            break;
        }
    }
    out.extend_from_slice(&bytes[..len]);
}

/// Appends a length as a zigzag varint and then the bytes, as Avro writes `bytes` and `string`.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_long(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
}

/// A cursor over borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes not yet read.
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(WireError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Takes the next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    /// Takes one byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    /// Takes an unsigned varint.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, WireError> {
        // Nearly every index and length is one byte.
        if let [byte @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        // Up to eight bytes are one word: its groups of seven bits are pushed together by pairs, pairs of pairs, and their halves.
        if let Some((word, _)) = self.rest.split_first_chunk::<8>() {
            let word = u64::from_le_bytes(*word);
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                let len = ends.trailing_zeros() as usize / 8 + 1;
                let groups = word & (u64::MAX >> (64 - 8 * len)) & 0x7F7F_7F7F_7F7F_7F7F;
                let pairs = groups & 0x007F_007F_007F_007F | (groups & 0x7F00_7F00_7F00_7F00) >> 1;
                let fours = pairs & 0x0000_3FFF_0000_3FFF | (pairs & 0x3FFF_0000_3FFF_0000) >> 2;
                self.rest = &self.rest[len..];
                return Ok(fours & 0x0FFF_FFFF | (fours & 0x0FFF_FFFF_0000_0000) >> 4);
            }
        }
        let mut value = 0_u64;
        for (at, byte) in self.rest.iter().take(VARINT_BYTES_MAX).enumerate() {
            if at == VARINT_BYTES_MAX - 1 && *byte > 1 {
                return Err(WireError::Number);
            }
            value |= u64::from(byte & 0x7F) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(WireError::Truncated)
    }

    /// Passes over a varint.
    #[inline]
    pub fn pass_varint(&mut self) -> Result<(), WireError> {
        if let [0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(());
        }
        self.long_varint().map(drop)
    }

    /// Takes a zigzag varint.
    #[inline]
    pub fn long(&mut self) -> Result<i64, WireError> {
        let v = self.varint()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    /// Takes a length-prefixed run of bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let n = usize::try_from(self.long()?).map_err(|_| WireError::Number)?;
        self.take(n)
    }

    /// Takes a length-prefixed text.
    #[inline]
    pub fn text(&mut self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::Text)
    }

    /// Takes the index of a `[null, T]` union: true where a value follows.
    #[inline]
    pub fn present(&mut self) -> Result<bool, WireError> {
        match self.byte()? {
            0 => Ok(false),
            2 => Ok(true),
            _ => Err(WireError::Index),
        }
    }

    /// Ends the reading: an error where bytes are left.
    #[inline]
    pub const fn finish(&self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Trailing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longs_as_avro_writes_them() {
        for (value, bytes) in [(0, &[0_u8][..]), (-1, &[1]), (1, &[2]), (-64, &[0x7F]), (64, &[0x80, 1])] {
            let mut out = Vec::new();
            put_long(&mut out, value);
            assert_eq!(out, bytes);
        }
        for value in [i64::MIN, i64::MAX, 0, 1 << 40] {
            let mut out = Vec::new();
            put_long(&mut out, value);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.long(), Ok(value));
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn varints_of_every_length_wherever_they_end() {
        for bits in 0..64 {
            for value in [1_u64 << bits, (1 << bits) - 1, u64::MAX >> (63 - bits)] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                for behind in [0, 1, 9] {
                    let bytes = [out.as_slice(), &vec![0xFF; behind]].concat();
                    let mut reader = Reader::new(&bytes);
                    assert_eq!((reader.varint(), reader.rest().len()), (Ok(value), behind), "{value} before {behind} bytes");
                }
                assert!(Reader::new(&out[..out.len() - 1]).varint().is_err());
            }
        }
        assert_eq!(Reader::new(&[0x80, 0x80, 0, 1, 2, 3, 4, 5]).varint(), Ok(0), "more groups than it needs");
    }

    #[test]
    fn hostile_lengths_are_refused() {
        assert_eq!(Reader::new(&[0xFF; 11]).varint(), Err(WireError::Number));
        assert_eq!(Reader::new(&[0x80]).varint(), Err(WireError::Truncated));
        assert_eq!(Reader::new(&[1]).bytes(), Err(WireError::Number));
        let mut huge = Vec::new();
        put_long(&mut huge, i64::MAX);
        assert_eq!(Reader::new(&huge).bytes(), Err(WireError::Truncated));
        assert_eq!(Reader::new(&[2, 0xFF]).text(), Err(WireError::Text));
    }
}
