//! The frame in front of a registered record: a zero byte, and the id of its schema in the registry.

/// How many bytes an id has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdBytes {
    /// Four: Confluent's frame, and what nearly all others write.
    #[default]
    Four,
    /// Eight: the former default of Apicurio's own serializers (case ENC-05).
    Eight,
}

/// A framed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Id of the schema in the registry.
    pub id: u64,
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
    #[error("its frame is too short to hold a schema id")]
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
    if id == 0 { Err(FrameError::Zero) } else { Ok(Frame { id, body }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_enc_01_what_is_no_frame_says_why() {
        assert_eq!(frame(b"", IdBytes::Four), Err(FrameError::Empty));
        assert_eq!(frame(b"{\"id\":1}", IdBytes::Four), Err(FrameError::Magic(0x7B)));
        assert_eq!(frame(&[0, 0, 0], IdBytes::Four), Err(FrameError::Short));
        assert_eq!(frame(&[0, 0, 0, 0, 7, 2], IdBytes::Four), Ok(Frame { id: 7, body: &[2] }));
    }

    #[test]
    fn case_enc_05_ids_have_the_width_that_is_said() {
        let long = [0, 0, 0, 0, 0, 0, 0, 0, 7, 2];
        assert_eq!(frame(&long, IdBytes::Eight), Ok(Frame { id: 7, body: &[2] }));
        assert_eq!(frame(&long, IdBytes::Four), Err(FrameError::Zero));
        assert_eq!(frame(&long[..6], IdBytes::Eight), Err(FrameError::Short));
    }
}
