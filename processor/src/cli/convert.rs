//! `landfall convert`: captured Kafka records in, canonical changes out, one line of JSON each: what the normaliser would make of them.
//!
//! Streaming and in constant memory: a line is read, decoded and printed before the next is looked at; what is kept are the shapes of the tables
//! seen. Only where a record has members whose types nobody says, the rest of the input is looked at first, up to a bound (`ahead`). Nothing is connected to but a registry that is named. Rejected records go to standard error, as they would go to the dead letters.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use landfall_schemas::LogicalType;
use landfall_schemas::avro;
use landfall_schemas::capture;
use landfall_schemas::dialect::{Code, ColumnRule, Decoded, Decoder, Dialect, Explanation, IdBytes, Options, Order};
use landfall_schemas::wire::WireError;
use landfall_topology::Plan;

use super::paper::{counted, grouped, printable};
use super::{Failure, Problem, load};
use crate::registry::Client;
use ahead::Ahead;

mod ahead;

/// Longest line that is read: twice the largest record that Kafka takes here, since text grows when it is quoted.
const LINE_BYTES_MAX: usize = 256 << 20;

const EXAMPLES: &str = "\
A record is one line of JSON: topic, partition, offset, and key and value as text (key_b64, value_b64: as base64).

Examples:
  landfall convert < records.jsonl
  landfall convert --types 'id=int64,total=decimal(12,2)' --key id records.jsonl
  landfall convert --registry http://localhost:8081 registered.jsonl
  landfall convert --topology shop.yaml --explain records.jsonl
  zcat records.jsonl.gz | landfall convert | jq .after";

/// Arguments of `convert`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Files of records [default: standard input]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Id of the table [default: the last part of the topic]
    #[arg(long, value_name = "ID")]
    pub table: Option<String>,
    /// Types of columns, for records without a schema part: column=type,… [default: inferred from the input]
    #[arg(long, value_name = "COLUMN=TYPE,…", value_parser = types)]
    pub types: Option<Types>,
    /// Key columns, instead of those of the record key
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub key: Vec<String>,
    /// What records look like [default: debezium]
    #[arg(long, value_name = "NAME", value_parser = dialect)]
    pub dialect: Option<Dialect>,
    /// Schema registry of records in Avro or Protobuf
    #[arg(long, value_name = "URL")]
    pub registry: Option<String>,
    /// Schema of records in Avro's single-object encoding, which names it by its fingerprint
    #[arg(long, value_name = "FILE", value_parser = schema)]
    pub schema: Vec<String>,
    /// Topology whose tables the topics belong to: everything else is said there
    #[arg(long, value_name = "FILE", conflicts_with_all = ["table", "types", "key", "dialect", "registry", "schema"])]
    pub topology: Vec<PathBuf>,
    /// Say for each record, in words: which dialect, which schema, what orders it, and the rule that gave each value
    #[arg(long)]
    pub explain: bool,
}

/// Declared types, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Types(Vec<(String, LogicalType)>);

/// Reads the name of a dialect.
fn dialect(name: &str) -> Result<Dialect, String> {
    let names = Dialect::ALL.map(Dialect::name);
    Dialect::ALL.into_iter().find(|dialect| dialect.name() == name).ok_or_else(|| format!("it is one of {}", names.join(", ")))
}

/// Reads the file of a schema of Avro.
fn schema(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    avro::fingerprint(&text).map_err(|e| e.to_string())?;
    Ok(text)
}

/// Reads `column=type,…`; commas within the brackets of a type belong to it.
fn types(text: &str) -> Result<Types, String> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    let mut declared: Vec<(String, LogicalType)> = Vec::new();
    for part in parts {
        let (column, ty) = part.split_once('=').ok_or_else(|| format!("{part:?} is not column=type"))?;
        let column = column.trim().to_owned();
        if column.is_empty() || declared.iter().any(|(name, _)| *name == column) {
            return Err(format!("column {column:?} is empty or named twice"));
        }
        declared.push((column, ty.parse().map_err(|error: landfall_schemas::types::UnknownType| error.to_string())?));
    }
    Ok(Types(declared))
}

/// What became of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// Types of its members are missing, and may be inferred.
    Untyped,
}

/// What became of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    records: u64,
    changes: u64,
    ignored: u64,
    rejected: u64,
    unreadable: u64,
}

/// Converts files, or standard input.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Failure> {
    let mut errors = io::stderr().lock();
    let plan = if arguments.topology.is_empty() { None } else { Some(load(&arguments.topology)?) };
    let mut converter = Converter::new(arguments, plan)?;
    if arguments.files.is_empty() {
        if io::stdin().is_terminal() {
            writeln!(errors, "reading records from the terminal, one line of JSON each; Ctrl-D ends")?;
        }
        converter.read("standard input", &mut io::stdin().lock(), out, &mut errors)?;
    }
    for (n, path) in arguments.files.iter().enumerate() {
        converter.ahead.behind(&arguments.files[n + 1..]);
        let file = open(path)?;
        converter.read(&path.display().to_string(), &mut BufReader::with_capacity(1 << 16, file), out, &mut errors)?;
    }
    out.flush()?;
    let counts = converter.counts;
    writeln!(errors, "{}", closing(&counts))?;
    if counts.records == 0 && counts.unreadable > 0 {
        let hint = "a record is one line of JSON with topic, partition, offset, key and value; `landfall convert --help` shows more";
        return Err(Problem::new("nothing could be read", hint).into());
    }
    Ok(())
}

fn open(path: &Path) -> Result<File, anyhow::Error> {
    File::open(path).map_err(|error| anyhow::Error::new(error).context(format!("records of {} cannot be read", path.display())))
}

fn closing(counts: &Counts) -> String {
    let mut text = format!(
        "{}: {}, {} ignored, {} rejected",
        counted(counts.records, "record"),
        counted(counts.changes, "change"),
        grouped(counts.ignored),
        grouped(counts.rejected)
    );
    if counts.unreadable > 0 {
        text.push_str(&format!("; {} not readable", counted(counts.unreadable, "line")));
    }
    text
}

struct Converter<'a> {
    arguments: &'a Arguments,
    plan: Option<Plan>,
    /// One decoder for each topic: what it keeps are the shapes of that topic, and the types that were inferred.
    decoders: BTreeMap<String, Decoder>,
    registry: Option<Client>,
    counts: Counts,
    ahead: Ahead,
    line: Vec<u8>,
    text: String,
}

impl<'a> Converter<'a> {
    fn new(arguments: &'a Arguments, plan: Option<Plan>) -> Result<Self, Problem> {
        let unusable = |why: String| Problem::new(format!("the registry cannot be used: {why}"), "its address begins with http:// or https://");
        let registry = match plan.as_ref().and_then(|plan| plan.kafka.registry.as_ref()) {
            Some(registry) => Some(Client::new(registry)),
            None => arguments.registry.as_ref().map(|url| Client::without_login(url)),
        };
        let registry = registry.transpose().map_err(unusable)?;
        Ok(Self {
            arguments,
            plan,
            decoders: BTreeMap::new(),
            registry,
            counts: Counts::default(),
            ahead: Ahead::default(),
            line: Vec::new(),
            text: String::new(),
        })
    }

    fn read(&mut self, name: &str, from: &mut dyn BufRead, out: &mut dyn Write, errors: &mut dyn Write) -> io::Result<()> {
        for number in 1_u64.. {
            let mut line = std::mem::take(&mut self.line);
            let more = self.ahead.next(from, &mut line)?;
            let outcome = match more {
                Line::End => return Ok(()),
                Line::TooLong => Err(format!("the line is longer than {} MiB", LINE_BYTES_MAX >> 20)),
                Line::Whole if line.trim_ascii().is_empty() => Ok(()),
                Line::Whole => {
                    match std::str::from_utf8(&line).map_err(|e| e.to_string()).and_then(|text| capture::Record::parse(text).map_err(|e| chain(&e))) {
                        Ok(record) => self.converted(&record, from, out, errors).map(Ok)?,
                        Err(why) => Err(why),
                    }
                }
            };
            if let Err(why) = outcome {
                self.counts.unreadable += 1;
                writeln!(errors, "{name}:{number}: {}", printable(&why))?;
            }
            self.line = line;
        }
        Ok(())
    }

    /// Converts a record; where types are missing, once the rest of the input has been looked at.
    fn converted(&mut self, record: &capture::Record, from: &mut dyn BufRead, out: &mut dyn Write, errors: &mut dyn Write) -> io::Result<()> {
        self.counts.records += 1;
        if self.record(record, None, out, errors)? == Outcome::Untyped {
            let Some(decoder) = self.decoders.get_mut(&record.topic) else { return Ok(()) };
            let refused = self.ahead.look(decoder, record, from)?;
            let _ = self.record(record, Some(&refused), out, errors)?;
        }
        Ok(())
    }

    /// Converts a record as far as its types are known; `refused` is what was found of those that are not, once that was looked for.
    fn record(&mut self, record: &capture::Record, refused: Option<&str>, out: &mut dyn Write, errors: &mut dyn Write) -> io::Result<Outcome> {
        if !self.decoders.contains_key(&record.topic) {
            let options = match &self.plan {
                None => options(self.arguments, &record.topic),
                Some(plan) => match of_topology(plan, &record.topic) {
                    Some(options) => options,
                    None => {
                        self.counts.ignored += 1;
                        return writeln!(errors, "{}: the topology has no table of that topic", printable(&record.topic)).map(|()| Outcome::Done);
                    }
                },
            };
            let _ = self.decoders.insert(record.topic.clone(), Decoder::new(options));
        }
        let Some(decoder) = self.decoders.get_mut(&record.topic) else { return Ok(Outcome::Done) };
        let input = ahead::input(record);
        let mut unasked = None;
        while let (Some(registry), Some(id)) = (&self.registry, decoder.wanted(&input)) {
            match registry.get(id) {
                Ok(registered) => decoder.bring(id, &registered),
                Err(why) => {
                    unasked = Some(format!("registry.unreachable: schema {id} could not be asked for: {why}"));
                    break;
                }
            }
        }
        if let Some(why) = unasked {
            self.counts.rejected += 1;
            let place = (printable(&record.topic), record.partition, record.offset);
            return writeln!(errors, "{}/{}@{}: {}", place.0, place.1, place.2, printable(&why)).map(|()| Outcome::Done);
        }
        let infers = decoder.options().infer;
        let decoded = decoder.decode(input);
        let rejected = match decoded {
            Ok(Decoded::Ignored(ignored)) => {
                self.counts.ignored += 1;
                if self.arguments.explain {
                    writeln!(out, "{}@{}: ignored, {}", printable(&record.topic), record.offset, ignored.name())?;
                }
                return Ok(Outcome::Done);
            }
            Ok(Decoded::Changes(changes)) => {
                self.text.clear();
                let mut count = 0;
                let connector = changes.change.change.source.connector.to_owned();
                let written = changes.each(|_, keyed| {
                    count += 1;
                    keyed.change.write_json(changes.schema, &mut self.text)?;
                    self.text.push('\n');
                    Ok::<_, WireError>(())
                });
                match written {
                    Ok(()) => {
                        self.counts.changes += count;
                        out.write_all(self.text.as_bytes())?;
                        if self.arguments.explain {
                            explain(&decoder.explain(&input, &connector), out)?;
                        }
                        return Ok(Outcome::Done);
                    }
                    Err(error) => format!("internal: {error}"),
                }
            }
            Err(reject) if infers && reject.code == Code::TypesMissing => match refused {
                None => return Ok(Outcome::Untyped),
                Some(refused) => format!("{reject}{refused}"),
            },
            Err(reject) => reject.to_string(),
        };
        self.counts.rejected += 1;
        writeln!(errors, "{}/{}@{}: {}", printable(&record.topic), record.partition, record.offset, printable(&rejected))?;
        Ok(Outcome::Done)
    }
}

/// The options of a topic's table; `None` where no table has it. Its partitions are not known here, so offsets are taken to order them.
fn of_topology(plan: &Plan, topic: &str) -> Option<Options> {
    let expanded = || plan.patterns.iter().find_map(|pattern| pattern.expand(topic)?.ok());
    let table = plan.tables.iter().find(|table| table.topic == topic).cloned().or_else(expanded)?;
    Some(crate::run::normalise::options::of(plan, &table, topic, 1))
}

/// Prints why a record came to its change: a line for the record, one for each column.
fn explain(explanation: &Explanation, out: &mut dyn Write) -> io::Result<()> {
    let Explanation { dialect, encoding, schema, order, columns } = explanation;
    let written = if *encoding == "none" { ", a null value".to_owned() } else { format!(" in {encoding}") };
    writeln!(out, "  read as {}{written}; types: {schema}; ordered by {order}", dialect.name())?;
    let name = |column: &ColumnRule| {
        let renamed = column.renamed.as_ref().map(|name| format!(" as {name}")).unwrap_or_default();
        printable(&format!("{}{renamed}", column.member)).to_string()
    };
    let ty = |column: &ColumnRule| column.ty.map_or_else(|| "-".to_owned(), |ty| ty.to_string());
    let widest = |text: &dyn Fn(&ColumnRule) -> String| columns.iter().map(|c| text(c).chars().count()).max().unwrap_or(0);
    let (names, types) = (widest(&name), widest(&ty));
    for column in columns {
        let key = if column.is_key { "key, " } else { "" };
        writeln!(out, "  {:<names$}  {:<types$}  {key}{}", name(column), ty(column), printable(&column.rule))?;
    }
    Ok(())
}

fn options(arguments: &Arguments, topic: &str) -> Options {
    let table = arguments.table.clone().unwrap_or_else(|| topic.rsplit('.').next().unwrap_or(topic).to_owned());
    let mut options = Options::new(table);
    options.types = arguments.types.as_ref().map(|Types(types)| types.clone()).unwrap_or_default();
    options.primary_key = (!arguments.key.is_empty()).then(|| arguments.key.clone());
    options.infer = arguments.dialect != Some(Dialect::Mongodb);
    if let Some(dialect) = arguments.dialect {
        options.dialect = dialect;
        options.types_are_columns = true;
        options.connector = match dialect {
            Dialect::Mongodb => "mongodb",
            _ => "",
        };
        options.order = match dialect {
            Dialect::Plain | Dialect::Canal | Dialect::Maxwell => Order::Offset,
            Dialect::Flattened => Order::DialectElseOffset,
            Dialect::Debezium | Dialect::Mongodb => Order::Dialect,
        };
    }
    options.registry = arguments.registry.is_some().then_some(IdBytes::Four);
    options.schemas.clone_from(&arguments.schema);
    options
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads a line; one that is too long is passed over without being kept.
fn next_line(from: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    line.clear();
    let mut any = false;
    let mut too_long = false;
    loop {
        let buffer = from.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        any = true;
        let end = buffer.iter().position(|b| *b == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        too_long |= line.len() + part.len() > LINE_BYTES_MAX;
        if !too_long {
            line.extend_from_slice(part);
        }
        let taken = end.map_or(part.len(), |at| at + 1);
        from.consume(taken);
        if end.is_some() {
            break;
        }
    }
    // Memory of a huge line is not kept for the small ones behind it.
    if too_long {
        *line = Vec::new();
    }
    Ok(if too_long {
        Line::TooLong
    } else if any {
        Line::Whole
    } else {
        Line::End
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(arguments: &Arguments, input: &str) -> (String, String, Counts) {
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let mut converter = Converter::new(arguments, None).expect("no registry");
        converter.read("in", &mut input.as_bytes(), &mut out, &mut errors).expect("memory takes everything");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (text(out), text(errors), converter.counts)
    }

    fn arguments(declared: &str) -> Arguments {
        Arguments {
            files: Vec::new(),
            table: None,
            types: Some(types(declared).expect("types")),
            key: vec!["id".to_owned()],
            dialect: None,
            registry: None,
            schema: Vec::new(),
            topology: Vec::new(),
            explain: false,
        }
    }

    fn line(offset: i64, value: &str) -> String {
        let mut out = String::new();
        let value = Some(value.as_bytes().to_vec());
        capture::Record { topic: "db.public.t".into(), partition: 1, offset, key: Some(br#"{"id":7}"#.to_vec()), value, ..Default::default() }
            .write(&mut out);
        out + "\n"
    }

    const ROW: &str = r#"{"before":null,"after":{"id":7,"note":"a b"},"source":{"connector":"postgresql","db":"d","schema":"public","table":"t","sequence":"[null,\"5\"]","lsn":5,"ts_ms":0},"op":"c","ts_ms":0}"#;

    #[test]
    fn records_become_changes_and_the_rest_is_said() {
        let heartbeat = r#"{"topic":"__debezium-heartbeat.db","partition":0,"offset":0,"key":"{\"serverName\":\"db\"}","value":"{\"ts_ms\":1}"}"#;
        let input = format!("{}{heartbeat}\n\nno json\n{}", line(3, ROW), line(4, "not json"));
        let (out, errors, counts) = convert(&arguments("id=int64,note=text"), &input);
        assert_eq!(out.lines().count(), 1, "{out}{errors}");
        assert!(out.starts_with(r#"{"table":"t","op":"c","sequence":"#), "{out}");
        let change: serde_json::Value = serde_json::from_str(&out).expect("a line of JSON");
        assert_eq!((&change["key"]["id"], &change["after"]["note"]), (&7.into(), &"a b".into()), "{out}");
        let errors: Vec<&str> = errors.lines().collect();
        assert!(errors[0].starts_with("in:4: a line is not a captured record: "), "{errors:?}");
        assert!(errors[1].starts_with("db.public.t/1@4: json.invalid: "), "{errors:?}");
        assert_eq!(counts, Counts { records: 3, changes: 1, ignored: 1, rejected: 1, unreadable: 1 });
        assert_eq!(closing(&counts), "3 records: 1 change, 1 ignored, 1 rejected; 1 line not readable");
    }

    #[test]
    fn a_change_is_explained_value_by_value() {
        let mut a = arguments("id=int64,note=text,gone=date");
        a.explain = true;
        let (out, errors, _) = convert(&a, &line(3, ROW));
        let said: Vec<&str> = out.lines().skip(1).collect();
        assert_eq!(
            said,
            [
                "  read as debezium in json; types: declared types; ordered by the commit and the LSN of its source block",
                "  id    int64  key, declared, as its type is written in JSON",
                "  note  text   declared, as its type is written in JSON",
            ],
            "{errors}"
        );
        a.dialect = Some(Dialect::Plain);
        let (out, errors, _) = convert(&a, &line(3, r#"{"id":7,"note":"a"}"#));
        let said: Vec<&str> = out.lines().skip(1).collect();
        assert_eq!(said[0], "  read as plain in json; types: declared types; ordered by its offset, within the epoch of its source", "{errors}");
        assert_eq!(said[3], "  gone  date   declared, and not in the row: NULL in a new row, kept in an update");
        assert!(dialect("plane").is_err_and(|why| why.contains("plain, mongodb")));
    }

    #[test]
    fn types_that_nobody_says_are_inferred_from_the_whole_input() {
        let mut a = arguments("x=text");
        (a.dialect, a.types, a.explain) = (Some(Dialect::Plain), None, true);
        let input = [r#"{"id":7,"n":1,"v":null}"#, r#"{"id":7,"n":2}"#, r#"{"id":7,"n":2.5,"v":"a"}"#];
        let lines: String = (0..).zip(input).map(|(offset, value)| line(offset, value)).collect();
        let (out, errors, counts) = convert(&a, &lines);
        assert_eq!((counts.changes, errors.as_str()), (3, ""), "{out}");
        assert!(out.starts_with(r#"{"table":"t","op":"u","#) && out.contains(r#""after":{"id":7,"n":"1","v":null}"#), "{out}");
        let said: Vec<&str> = out.lines().skip(1).take(4).collect();
        assert_eq!(
            said,
            [
                "  read as plain in json; types: inferred types; ordered by its offset, within the epoch of its source",
                "  id  int64    key, inferred, as its kind is written in JSON",
                "  n   numeric  inferred, as its kind is written in JSON",
                "  v   text     inferred, as its kind is written in JSON",
            ]
        );
        // A key that may be a float has no type, and that is said.
        let (_, errors, counts) = convert(&a, &line(1, r#"{"id":7.5,"n":1}"#).replace(r#"{\"id\":7}"#, r#"{\"id\":7.5}"#));
        assert_eq!(counts.rejected, 1);
        assert!(errors.contains("types.missing") && errors.contains("key column \"id\" has numbers with a fraction"), "{errors}");
    }

    #[test]
    fn a_comma_within_a_type_belongs_to_it() {
        let Types(declared) = types("a=decimal(12,2), b = text").expect("two columns");
        assert_eq!(declared.iter().map(|(c, t)| format!("{c}:{t}")).collect::<Vec<_>>(), ["a:decimal(12,2)", "b:text"]);
        for wrong in ["", "a", "a=decimall(1,2)", "=text", "a=text,a=text"] {
            assert!(types(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_table_takes_the_last_part_of_its_topic_unless_named() {
        let mut a = arguments("id=int64");
        assert_eq!(options(&a, "db.public.orders").table, "orders");
        assert_eq!(options(&a, "orders").table, "orders");
        a.table = Some("o".to_owned());
        assert_eq!(options(&a, "db.public.orders").table, "o");
    }

    #[test]
    fn a_last_line_needs_no_end_and_a_long_one_is_passed_over() {
        struct Long(u64, &'static [u8]);
        impl io::Read for Long {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Ok(0)
            }
        }
        impl BufRead for Long {
            fn fill_buf(&mut self) -> io::Result<&[u8]> {
                static BLANK: [u8; 1 << 16] = [b' '; 1 << 16];
                Ok(if self.0 > 0 { &BLANK } else { self.1 })
            }
            fn consume(&mut self, n: usize) {
                if self.0 > 0 { self.0 -= 1 } else { self.1 = &self.1[n..] }
            }
        }
        let mut from = Long((LINE_BYTES_MAX as u64 >> 16) + 1, b"\nab");
        let mut line = Vec::new();
        assert!(matches!(next_line(&mut from, &mut line), Ok(Line::TooLong)));
        assert!(line.capacity() == 0, "nothing of it is kept");
        assert!(matches!(next_line(&mut from, &mut line), Ok(Line::Whole)) && line == b"ab");
        assert!(matches!(next_line(&mut from, &mut line), Ok(Line::End)));
    }
}
