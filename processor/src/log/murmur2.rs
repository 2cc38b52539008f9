//! Kafka's own partitioning of keys: the hash of its Java clients, so that every tool agrees where a key lives (RELIABILITY.md C, hash
//! partitioner mismatch: librdkafka's default is another one and would split a key over two partitions).

/// The partition of a key in a topic of `partitions` partitions.
pub fn partition(key: &[u8], partitions: u32) -> i32 {
    let positive = murmur2(key) & 0x7FFF_FFFF;
    (positive % partitions.max(1)).cast_signed()
}

/// The 32-bit MurmurHash2 with Kafka's seed.
pub fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5BD1_E995;
    const SEED: u32 = 0x9747_B28C;
    let mut h = SEED ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let k = u32::from_le_bytes(*word).wrapping_mul(M);
        let k = (k ^ (k >> 24)).wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        for (i, b) in rest.iter().enumerate() {
            h ^= u32::from(*b) << (8 * i);
        }
        h = h.wrapping_mul(M);
    }
    h = (h ^ (h >> 13)).wrapping_mul(M);
    h ^ (h >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_kafkas_own_tests() {
        // The values of Kafka's UtilsTest.testMurmur2.
        for (text, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()).cast_signed(), hash, "{text}");
        }
    }
}
