//! The fields of a message: each a tag, the number and the kind of its bytes, and those bytes.

use crate::wire::{Reader, WireError};

/// What the bytes of a field are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireType {
    Varint,
    Fixed64,
    /// A length and so many bytes.
    Run,
    Fixed32,
}

/// What stands in front of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) number: u32,
    pub(crate) wire: WireType,
}

impl Tag {
    /// Takes the next tag. Groups are older than nested messages, have no length to pass over them by, and are refused.
    #[inline]
    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let tag = reader.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|n| (1..1 << 29).contains(n)).ok_or(WireError::Number)?;
        let wire = match tag & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Run,
            5 => WireType::Fixed32,
            3 | 4 => return Err(WireError::Group),
            _ => return Err(WireError::Index),
        };
        Ok(Self { number, wire })
    }

    /// Passes over the bytes behind it.
    #[inline]
    pub(crate) fn pass(self, reader: &mut Reader<'_>) -> Result<(), WireError> {
        match self.wire {
            WireType::Varint => drop(reader.varint()?),
            WireType::Fixed64 => drop(reader.take(8)?),
            WireType::Run => drop(run(reader)?),
            WireType::Fixed32 => drop(reader.take(4)?),
        }
        Ok(())
    }
}

/// Takes a length, as Protobuf writes it, and so many bytes.
#[inline]
pub(crate) fn run<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    let length = usize::try_from(reader.varint()?).map_err(|_| WireError::Truncated)?;
    reader.take(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(bytes: &[u8]) -> Result<usize, WireError> {
        let mut reader = Reader::new(bytes);
        Tag::take(&mut reader)?.pass(&mut reader)?;
        Ok(reader.rest().len())
    }

    #[test]
    fn fields_are_passed_over_whole() {
        assert_eq!(passed(&[0x08, 0x96, 0x01, 9]), Ok(1));
        assert_eq!(passed(&[0x12, 2, b'a', b'b']), Ok(0));
        assert_eq!(passed(&[0x0D, 1, 2, 3, 4, 9]), Ok(1));
        assert_eq!(passed(&[0x09, 1, 2, 3, 4, 5, 6, 7, 8]), Ok(0));
    }

    #[test]
    fn what_no_writer_means_is_refused() {
        assert_eq!(passed(&[0x0B]), Err(WireError::Group));
        assert_eq!(passed(&[0x0C]), Err(WireError::Group));
        assert_eq!(passed(&[0x0E]), Err(WireError::Index));
        assert_eq!(passed(&[0x02, 0]), Err(WireError::Number), "field 0");
        assert_eq!(passed(&[0x12, 5, 1]), Err(WireError::Truncated), "a length beyond the bytes that are left");
        assert_eq!(passed(&[0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1]), Err(WireError::Truncated));
    }
}
