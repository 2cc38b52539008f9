//! Looking ahead in the input for types that nobody says: what follows the record that lacks them, in its file and in the files behind it.
//!
//! Lines that come from a pipe are kept until they are converted, so looking is bounded; a file behind is opened once more.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

use landfall_schemas::capture;
use landfall_schemas::dialect::{Decoder, Inferred, Members, Record};

use super::{Line, next_line, open};

/// Lines that are looked at.
const LINES_MAX: usize = 100_000;
/// What they may come to.
const BYTES_MAX: usize = 64 << 20;
/// How often that is done for new members; those that come after it stay without types.
const LOOKS_MAX: usize = 100;

/// What has been read and not yet converted.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    lines: VecDeque<(Line, Vec<u8>)>,
    behind: Vec<PathBuf>,
    looks: usize,
}

impl Ahead {
    /// The files that come behind the one that is read from now on.
    pub(super) fn behind(&mut self, files: &[PathBuf]) {
        self.behind = files.to_vec();
    }

    /// The next line.
    pub(super) fn next(&mut self, from: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
        let Some((kind, read)) = self.lines.pop_front() else { return next_line(from, line) };
        *line = read;
        Ok(kind)
    }

    /// Finds the types of the members that a record lacks, and tells them to its decoder; gives what is to be said of those that have none.
    pub(super) fn look(&mut self, decoder: &mut Decoder, record: &capture::Record, from: &mut dyn BufRead) -> io::Result<String> {
        self.looks += 1;
        if self.looks > LOOKS_MAX {
            return Ok(format!("; types were looked for {LOOKS_MAX} times"));
        }
        let mut members = Members::new(decoder.options().clone());
        members.see(&input(record));
        let (mut lines, mut bytes) = (self.lines.len(), 0);
        for (_, line) in &self.lines {
            bytes += line.len();
            see(&mut members, &record.topic, line);
        }
        while lines < LINES_MAX && bytes < BYTES_MAX && !matches!(self.lines.back(), Some((Line::End, _))) {
            let mut line = Vec::new();
            let kind = next_line(from, &mut line)?;
            (lines, bytes) = (lines + 1, bytes + line.len());
            see(&mut members, &record.topic, &line);
            self.lines.push_back((kind, line));
        }
        for path in &self.behind {
            // One that is not there is told of when its turn comes.
            let Ok(file) = open(path) else { continue };
            let (mut file, mut line) = (BufReader::new(file), Vec::new());
            while lines < LINES_MAX && bytes < BYTES_MAX && !matches!(next_line(&mut file, &mut line)?, Line::End) {
                (lines, bytes) = (lines + 1, bytes + line.len());
                see(&mut members, &record.topic, &line);
            }
        }
        let Inferred { columns, refused, .. } = members.types();
        let mut types = decoder.options().inferred.clone();
        types.extend(columns);
        decoder.settle(&types);
        Ok(refused.iter().map(|(column, seen)| format!("; key column {column:?} has {seen}")).collect())
    }
}

/// A captured record as a decoder takes it.
pub(super) fn input(record: &capture::Record) -> Record<'_> {
    let timestamp = record.timestamp.and_then(|millis| millis.checked_mul(1_000));
    Record { offset: record.offset, key: record.key.as_deref(), value: record.value.as_deref(), headers: Some(record), timestamp }
}

fn see(members: &mut Members, topic: &str, line: &[u8]) {
    if let Ok(text) = std::str::from_utf8(line)
        && let Ok(record) = capture::Record::parse(text)
        && record.topic == topic
    {
        members.see(&input(&record));
    }
}
