//! Rows without a schema part whose types were inferred: any of the table's members, in any order, and all of them in one schema.
//!
//! Such writers leave members out as they please. Were a row's schema made of the members that it has, a table would have as many contracts as its
//! rows have combinations of them; so it is made of what is settled. A member that stands nowhere was not sent; one that is settled nowhere
//! says nothing, or is to be asked for.

use super::datum::Datum;
use super::literal;
use super::plan::{Fit, KeyTokens, Plan, Row, Writer};
use super::reject::{Code, Reject};
use super::{Dialect, Options, flattened};
use crate::json::{JsonStr, Scanner, Token};

/// What of a row is no column.
#[derive(Clone, Debug)]
pub(super) struct Open {
    exclude: Vec<String>,
    prefix: &'static str,
}

impl Open {
    pub(super) fn new(options: &Options) -> Self {
        let prefix = if options.dialect == Dialect::Flattened { flattened::PREFIX } else { "" };
        Self { exclude: options.exclude.clone(), prefix }
    }

    /// Passes over a member that is none of the columns.
    fn pass(&self, name: &JsonStr<'_>, token: Token<'_>, plan: &Plan, writer: &Writer) -> Result<(), Reject> {
        // That is a header's, or the record key's in a row that was taken not to have it.
        if plan.fields()[plan.present().len()..].iter().any(|field| field.is_named(name)) {
            let reason = format!("rows of table {:?} have a member of the name of a column that stands beside them", plan.schema.table());
            return Err(Reject::new(Code::DuplicateColumn, reason));
        }
        let is_left_out = || self.exclude.iter().any(|excluded| name.is(excluded));
        let is_added = || !self.prefix.is_empty() && name.raw.starts_with(self.prefix);
        if literal::says_nothing(&Datum::Json(token), &writer.placeholder) || is_left_out() || is_added() {
            return Ok(());
        }
        let mut text = String::new();
        if !name.unescape(&mut text) {
            return Err(Reject::new(Code::JsonInvalid, "a row has a member whose name is no text"));
        }
        Err(Reject::untyped(plan.schema.table(), [text.as_str()]))
    }

    /// The tokens of a row by member, in whatever order they stand.
    pub(super) fn gather<'a>(&self, plan: &Plan, text: &'a str, writer: &Writer) -> Result<KeyTokens<'a>, Reject> {
        let json = |e| Reject::json("row", e);
        let fields = plan.present();
        let mut tokens = KeyTokens::new();
        tokens.resize(fields.len(), None);
        let mut scanner = Scanner::new(text);
        scanner.enter_object().map_err(json)?;
        let (mut first, mut next) = (true, 0);
        while let Some(name) = scanner.member(first).map_err(json)? {
            first = false;
            let token = scanner.value().map_err(json)?;
            let ahead = fields[next..].iter().position(|f| f.is_named(&name)).map(|at| next + at);
            let Some(at) = ahead.or_else(|| fields[..next].iter().position(|f| f.is_named(&name))) else {
                self.pass(&name, token, plan, writer)?;
                continue;
            };
            if tokens[at].replace(token).is_some() {
                return Err(Reject::new(Code::JsonDuplicateKey, format!("a row has member {:?} twice", fields[at].name)));
            }
            next = (at + 1) % fields.len();
        }
        Ok(tokens)
    }
}

/// Those of some names that no member of a row has; nothing for a row without members.
pub(super) fn lacking<'n>(text: &str, names: &'n [String]) -> Result<Option<Vec<&'n String>>, Reject> {
    let json = |e| Reject::json("row", e);
    let mut lacking: Vec<&String> = names.iter().collect();
    let mut scanner = Scanner::new(text);
    scanner.enter_object().map_err(json)?;
    let mut first = true;
    while let Some(name) = scanner.member(first).map_err(json)? {
        first = false;
        let _ = scanner.value().map_err(json)?;
        lacking.retain(|column| !name.is(column));
    }
    Ok((!first).then_some(lacking))
}

impl Row {
    /// Takes and writes a row whose members stand in the plan's order, some of which may be absent; no key column may.
    pub(super) fn write_open(&mut self, plan: &Plan, open: &Open, scanner: &mut Scanner<'_>, writer: &mut Writer) -> Result<Fit, Reject> {
        self.start(plan);
        let json = |e| Reject::json("row", e);
        scanner.enter_object().map_err(json)?;
        let (fields, mut at, mut first) = (plan.present(), 0, true);
        loop {
            let found = if fields.get(at).is_some_and(|field| scanner.named(first, &field.quoted)) {
                at
            } else {
                let Some(name) = scanner.member(first).map_err(json)? else { break };
                match fields[at..].iter().position(|field| field.is_named(&name)) {
                    Some(ahead) => at + ahead,
                    None if fields[..at].iter().any(|field| field.is_named(&name)) => return Ok(Fit::OtherMembers),
                    None => {
                        first = false;
                        let token = scanner.value().map_err(json)?;
                        open.pass(&name, token, plan, writer)?;
                        continue;
                    }
                }
            };
            first = false;
            if (at..found).any(|member| plan.is_key(member)) {
                return Ok(Fit::OtherMembers);
            }
            (at..found).try_for_each(|member| self.put_absent(plan, member, writer))?;
            self.put(plan, found, Some(Datum::Json(scanner.value().map_err(json)?)), writer)?;
            at = found + 1;
        }
        if first || (at..fields.len()).any(|member| plan.is_key(member)) {
            return Ok(Fit::OtherMembers);
        }
        (at..fields.len()).try_for_each(|member| self.put_absent(plan, member, writer))?;
        (fields.len()..plan.fields().len()).try_for_each(|member| self.put(plan, member, None, writer))?;
        Ok(Fit::Written)
    }

    /// Writes tokens that have been gathered.
    pub(super) fn write_tokens(&mut self, plan: &Plan, tokens: KeyTokens<'_>, writer: &mut Writer) -> Result<(), Reject> {
        self.start(plan);
        let present = tokens.len();
        for (member, token) in tokens.into_iter().enumerate() {
            match token {
                Some(token) => self.put(plan, member, Some(Datum::Json(token)), writer)?,
                None => self.put_absent(plan, member, writer)?,
            }
        }
        (present..plan.fields().len()).try_for_each(|member| self.put(plan, member, None, writer))
    }
}
