//! The frame in front of a record that says which schema it is written by: a zero byte and the schema's id in a registry, or the two bytes of Avro's
//! single-object encoding and the schema's fingerprint.

use std::fmt;

/// How many bytes an id has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdBytes {
    /// Four: Confluent's frame, and what nearly all others write.
    #[default]
    Four,
    /// Eight: the former default of Apicurio's own serializers (case ENC-05).
    Eight,
}

/// Which schema a record is written by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SchemaId {
    /// One of a registry, by its id.
    Registered(u64),
    /// One of the single-object encoding, by its fingerprint ([`super::fingerprint`]).
    Fingerprint(u64),
}

impl fmt::Display for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered(id) => write!(f, "schema {id} of the registry"),
            Self::Fingerprint(fingerprint) => write!(f, "the schema of fingerprint {fingerprint:016x}"),
        }
    }
}

/// A framed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The schema.
    pub id: SchemaId,
    /// What stands behind the frame.
    pub body: &'a [u8],
}

/// Bytes that are no frame (case ENC-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Nothing at all, which is not Kafka's null.
    #[error("it is empty, which is not null and no frame")]
    Empty,
    /// Another first byte.
    #[error("its first byte is 0x{0:02x}, not the zero byte of a registry's frame")]
    Magic(u8),
    /// It ends within the id.
    #[error("its frame is too short to name a schema")]
    Short,
    /// The id 0, which no registry gives.
    #[error("its frame names schema 0, which no registry has; ids of eight bytes look like this (`id_bytes: 8` reads them)")]
    Zero,
}

/// Takes the frame off a record.
#[inline]
pub fn frame(bytes: &[u8], width: IdBytes) -> Result<Frame<'_>, FrameError> {
    let rest = match bytes {
        [] => return Err(FrameError::Empty),
        [0, rest @ ..] => rest,
        [other, ..] => return Err(FrameError::Magic(*other)),
    };
    let (id, body) = match width {
        IdBytes::Four => rest.split_first_chunk().map(|(id, body)| (u64::from(u32::from_be_bytes(*id)), body)),
        IdBytes::Eight => rest.split_first_chunk().map(|(id, body)| (u64::from_be_bytes(*id), body)),
    }
    .ok_or(FrameError::Short)?;
    if id == 0 { Err(FrameError::Zero) } else { Ok(Frame { id: SchemaId::Registered(id), body }) }
}

/// The first bytes of the single-object encoding, which no text begins with.
const SINGLE_OBJECT: [u8; 2] = [0xC3, 0x01];

/// Takes the frame off a record of Avro's single-object encoding; `None` for bytes that do not begin as it does.
#[inline]
pub fn single_object(bytes: &[u8]) -> Option<Result<Frame<'_>, FrameError>> {
    let rest = bytes.strip_prefix(&SINGLE_OBJECT)?;
    let framed = rest.split_first_chunk().map(|(id, body)| Frame { id: SchemaId::Fingerprint(u64::from_le_bytes(*id)), body });
    Some(framed.ok_or(FrameError::Short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_enc_01_what_is_no_frame_says_why() {
        assert_eq!(frame(b"", IdBytes::Four), Err(FrameError::Empty));
        assert_eq!(frame(b"{\"id\":1}", IdBytes::Four), Err(FrameError::Magic(0x7B)));
        assert_eq!(frame(&[0, 0, 0], IdBytes::Four), Err(FrameError::Short));
        assert_eq!(frame(&[0, 0, 0, 0, 7, 2], IdBytes::Four), Ok(Frame { id: SchemaId::Registered(7), body: &[2] }));
        assert_eq!(single_object(&[0, 0, 0, 0, 7, 2]), None);
        assert_eq!(single_object(&[0xC3, 1, 7, 0, 0, 0, 0, 0, 0]), Some(Err(FrameError::Short)));
        let framed = single_object(&[0xC3, 1, 7, 0, 0, 0, 0, 0, 0, 0x80, 2]);
        assert_eq!(framed, Some(Ok(Frame { id: SchemaId::Fingerprint(0x8000_0000_0000_0007), body: &[2] })));
    }

    #[test]
    fn case_enc_05_ids_have_the_width_that_is_said() {
        let long = [0, 0, 0, 0, 0, 0, 0, 0, 7, 2];
        assert_eq!(frame(&long, IdBytes::Eight), Ok(Frame { id: SchemaId::Registered(7), body: &[2] }));
        assert_eq!(frame(&long, IdBytes::Four), Err(FrameError::Zero));
        assert_eq!(frame(&long[..6], IdBytes::Eight), Err(FrameError::Short));
    }
}
