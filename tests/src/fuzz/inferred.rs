//! Looking at records for types that nobody says: bounded for any bytes, and what it comes to takes the record that it came from.

use landfall_schemas::dialect::{Code, Decoder, Dialect, Inferred, Members, Options, Order, Record};

use super::case::Case;
use super::measure::{RECORD_BYTES_MAX, within};
use super::records::{Topic, bare_topics};
use super::{Run, Seen, Target};

fn topics() -> Vec<Topic> {
    let mut topics = bare_topics();
    for topic in &mut topics {
        (topic.options.types, topic.options.infer) = (Vec::new(), true);
    }
    topics
}

fn record(case: &Case) -> Record<'_> {
    Record { offset: 7, key: case.part(0), value: case.part(1), headers: None, timestamp: None }
}

/// What a record alone comes to, and whether it lacks no type then; where it does, somebody has said why.
fn look(options: &Options, case: &Case) -> Result<Inferred, String> {
    let inferred = within(case.bytes(), || {
        let mut members = Members::new(options.clone());
        members.see(&record(case));
        members.types()
    })?;
    let mut decoder = Decoder::new(options.clone());
    decoder.settle(&inferred.columns);
    let lacks = decoder.decode(record(case)).err().filter(|reject| reject.code == Code::TypesMissing);
    match lacks {
        Some(reject) if inferred.refused.is_empty() && !inferred.has_more => Err(format!("{reject}, and nobody says why: {inferred:?}")),
        _ => Ok(inferred),
    }
}

fn run(topics: Vec<Topic>) -> Run {
    // They look at everything that comes, as one does at a topic.
    let mut all: Vec<Members> = topics.iter().map(|t| Members::new(t.options.clone())).collect();
    Box::new(move |case| {
        let variant = case.variant % topics.len();
        let members = &mut all[variant];
        within(case.bytes(), || members.see(&record(case)))?;
        let columns = look(&topics[variant].options, case)?.columns;
        let so_far = members.types();
        let has = |name: &String| so_far.columns.iter().any(|(known, _)| known == name) || so_far.refused.iter().any(|(known, _)| known == name);
        match columns.iter().find(|(name, _)| !so_far.has_more && so_far.columns.len() < 900 && !has(name)) {
            Some((name, _)) => Err(format!("{name:?} is a column of this record alone, and none of all")),
            None if columns.is_empty() => Ok(Seen::Refused),
            None => Ok(Seen::Taken),
        }
    })
}

pub(super) fn target() -> Target {
    let corpus = topics().iter().enumerate().flat_map(|(variant, topic)| topic.cases(variant)).collect();
    Target { name: "inferred", corpus, start: || run(topics()), both: true }
}

/// Records of up to 1 MiB that ask for as much as they can.
#[test]
fn members_without_end() {
    let options =
        Options { dialect: Dialect::Plain, order: Order::Offset, infer: true, primary_key: Some(vec!["id".to_owned()]), ..Options::new("t") };
    let fill = |piece: &dyn Fn(usize) -> String| {
        let mut text = r#"{"id":1"#.to_owned();
        for n in 0.. {
            let next = piece(n);
            if text.len() + next.len() + 1 > RECORD_BYTES_MAX {
                break;
            }
            text.push_str(&next);
        }
        text + "}"
    };
    let deep = |open: &str, shut: &str| format!(r#"{{"id":1,"v":{}1{}}}"#, open.repeat(100_000), shut.repeat(100_000));
    for (name, value) in [
        ("members", fill(&|n| format!(",\"{n}\":1"))),
        ("one member", fill(&|_| ",\"a\":1".to_owned())),
        ("escapes", fill(&|n| format!(",\"\\u00{:02x}{n}\":\"\\u00e9\"", 0x20 + n % 0x50))),
        ("a long name", format!("{{\"id\":1,\"{}\":1}}", "n".repeat(RECORD_BYTES_MAX - 20))),
        ("long names", fill(&|n| format!(",\"{n}{}\":1", "n".repeat(200_000)))),
        ("a long number", format!("{{\"id\":1,\"v\":{}}}", "9".repeat(RECORD_BYTES_MAX - 20))),
        ("arrays", deep("[", "]")),
        ("objects", deep("{\"a\":", "}")),
    ] {
        let case = Case { variant: 0, parts: vec![None, Some(value.into_bytes())] };
        let looked = look(&options, &case);
        assert!(looked.is_ok(), "{name}: {looked:?}");
        // A topic of them is no more than one.
        let mut members = Members::new(options.clone());
        let all = within(RECORD_BYTES_MAX, || (0..3).for_each(|_| members.see(&record(&case))));
        assert!(name == "objects" || all.is_ok(), "{name}: {all:?}");
    }
}
