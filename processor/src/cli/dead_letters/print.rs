//! How letters are printed.

use super::super::paper::{Field, Mood, Output, Paper, counted, printable};
use super::Newest;
use super::read::{Entry, State};

pub(super) fn list(newest: &Newest, topic: &str, all: bool, output: Output, paper: &mut Paper<'_>) -> std::io::Result<()> {
    if output == Output::Json {
        return newest.kept.iter().try_for_each(|entry| paper.json(entry));
    }
    if newest.matched == 0 {
        return paper.line(format!("no {}dead letters in {}", if all { "" } else { "open " }, printable(topic)));
    }
    let rows = newest.kept.iter().map(|entry| {
        let Entry { letter, written, state, body, .. } = entry;
        let mut row = vec![
            written.as_deref().unwrap_or("-").into(),
            body.table.as_str().into(),
            body.code.as_str().into(),
            Field::from(letter.as_str()),
            body.reason.as_str().into(),
        ];
        if all {
            row.insert(1, Field::of(state.name(), mood(*state)));
        }
        row
    });
    let headers: &[&str] =
        if all { &["written", "state", "table", "code", "letter", "reason"] } else { &["written", "table", "code", "letter", "reason"] };
    paper.table(headers, rows)?;
    let kept = newest.kept.len() as u64;
    paper.line("")?;
    paper.line(match newest.matched - kept {
        0 => format!("{}; `landfall dead-letters show LETTER` shows one whole", counted(kept, "letter")),
        more => format!("the newest {}; {} before them, --limit shows more", counted(kept, "letter"), counted(more, "letter")),
    })
}

const fn mood(state: State) -> Mood {
    match state {
        State::Open | State::Asked => Mood::Odd,
        State::Dropped | State::Superseded => Mood::Plain,
        State::Replayed => Mood::Good,
    }
}

pub(super) fn one(entry: &Entry, times: u64, output: Output, paper: &mut Paper<'_>) -> std::io::Result<()> {
    if output == Output::Json {
        return paper.json(entry);
    }
    let Entry { letter, written, state, body, .. } = entry;
    let position = format!("topic {}, partition {}, offset {}", body.topic, body.partition, body.offset);
    let fields = [
        ("letter", Some(letter.as_str())),
        ("state", Some(state.name())),
        ("written", written.as_deref()),
        ("code", Some(body.code.as_str())),
        ("reason", Some(body.reason.as_str())),
        ("hint", Some(body.hint.as_str()).filter(|hint| !hint.is_empty())),
        ("table", Some(body.table.as_str())),
        ("replica", body.replica.as_deref()),
        ("record", Some(position.as_str())),
        ("record time", body.time.as_deref()),
        ("key", body.key.as_deref()),
        ("value begins", body.excerpt.as_deref()),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            paper.line(format!("{name:<13} {}", printable(value)))?;
        }
    }
    if !body.parks.is_empty() {
        paper.line(format!("{:<13} later events of its key wait behind it", "parks"))?;
    }
    if times > 1 {
        paper.line(format!("{:<13} {times} times; this is the newest", "seen"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::paper::printed;
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn a_list_says_what_is_where() {
        let mut newest = Newest::new(2);
        [1, 3, 4].into_iter().for_each(|offset| newest.note(sample(offset, "a", "json.invalid")));
        let text = printed(None, |p| list(&newest, "t", false, Output::Text, p).unwrap());
        let expected = "\
written               table  code          letter    reason
2026-11-30T10:06:50Z  a      json.invalid  db.t/0/3  the value is not JSON
2026-11-30T10:06:50Z  a      json.invalid  db.t/0/4  the value is not JSON

the newest 2 letters; 1 letter before them, --limit shows more
";
        assert_eq!(text, expected);
        newest.kept[1].state = State::Replayed;
        let text = printed(None, |p| list(&newest, "t", true, Output::Text, p).unwrap());
        assert!(text.contains("2026-11-30T10:06:50Z  replayed  a      json.invalid  db.t/0/4"), "{text}");
        assert_eq!(printed(None, |p| list(&Newest::new(1), "t", false, Output::Text, p).unwrap()), "no open dead letters in t\n");
        assert_eq!(printed(None, |p| list(&Newest::new(1), "t", true, Output::Text, p).unwrap()), "no dead letters in t\n");
    }

    #[test]
    fn one_is_shown_whole() {
        let text = printed(None, |p| one(&sample(3, "a", "json.invalid"), 2, Output::Text, p).unwrap());
        let expected = "\
letter        db.t/0/3
state         open
written       2026-11-30T10:06:50Z
code          json.invalid
reason        the value is not JSON
hint          send it again
table         a
record        topic db.t, partition 0, offset 3
record time   2026-11-30T10:06:49Z
key           {\"id\":1}
value begins  x
seen          2 times; this is the newest
";
        assert_eq!(text, expected);
    }

    #[test]
    fn machines_get_a_line_each() {
        let mut newest = Newest::new(9);
        newest.note(sample(1, "a", "x.y"));
        let text = printed(None, |p| list(&newest, "t", false, Output::Json, p).unwrap());
        let line: serde_json::Value = serde_json::from_str(&text).expect("one line");
        assert_eq!((&line["letter"], &line["code"], &line["offset"], &line["state"]), (&"db.t/0/1".into(), &"x.y".into(), &1.into(), &"open".into()));
    }
}
