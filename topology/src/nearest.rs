//! The nearest valid spelling of a word that is none.
//!
//! Edit distance with transpositions (`strsim`), compared without case and with `-` and `_` alike, since those are the slips people
//! make. A suggestion that is not near is worse than none, so there is a limit that grows with the word.

/// The candidate nearest to `word`, if one is within a third of its length (at least one edit).
pub(crate) fn nearest<'c, I>(word: &str, candidates: I) -> Option<&'c str>
where
    I: IntoIterator<Item = &'c str>,
{
    // A word from a hostile file may be long, and the distance is quadratic.
    if word.len() > 100 {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let word = plain(word);
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= 100)
        .map(|candidate| (strsim::osa_distance(&word, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let words = ["change_signal", "cache_ttl", "replicas"];
        assert_eq!(nearest("chnage_signal", words), Some("change_signal"));
        assert_eq!(nearest("change-signal", words), Some("change_signal"));
        assert_eq!(nearest("Cache_TTL", words), Some("cache_ttl"));
        assert_eq!(nearest("replica", words), Some("replicas"));
        assert_eq!(nearest("orders", words), None);
        assert_eq!(nearest(&"x".repeat(10_000), words), None);
    }
}
