//! Rules for columns: what is left out, masked, made text or renamed. They go by the columns' names in the source.

use crate::field::Field;
use crate::issue::{At, Code, Finding, shown};
use crate::model::{Columns, Dialect, Table};
use crate::nearest::nearest;
use crate::plan::ColumnRulesPlan;

use super::context::Context;
use super::table::column_name;

/// The method of masks.
const METHODS: [&str; 1] = ["sha256"];

/// The rules of a table with that key, where it is declared; nothing if one of them cannot be used.
pub(crate) fn resolve(cx: &Context<'_>, table: &Table, key: Option<&[String]>, dialect: Option<Dialect>) -> Option<ColumnRulesPlan> {
    let mut rules = Rules { cx, key: key.unwrap_or_default(), plan: ColumnRulesPlan::default(), masked: Vec::new(), sound: true };
    match table.columns.get() {
        None => {}
        Some(Columns::Map(map)) => {
            for field in map.exclude.items() {
                rules.exclude(field);
            }
            for (name, method) in map.mask.get().map_or(&[][..], |entries| &entries.0) {
                rules.mask(name, method);
            }
            for field in map.as_text.items() {
                rules.as_text(field);
            }
            for (name, new) in map.rename.get().map_or(&[][..], |entries| &entries.0) {
                rules.rename(name, new);
            }
            if let (Some((column, at)), dialect) = (map.document.given(), dialect) {
                rules.document(column, at, dialect);
            }
            for (column, header) in map.headers.get().map_or(&[][..], |entries| &entries.0) {
                rules.header(column, header);
            }
            if let (Some(at), Some(dialect), false) = (map.headers.at(), dialect, rules.plan.headers.is_empty())
                && dialect != Dialect::Plain
            {
                let message = format!("headers are columns of plain records only, and these are {}", dialect.as_str());
                cx.error(at, Code::BadValue, message, "remove it, or write cdc: { dialect: plain } at the source");
                rules.sound = false;
            }
            let is_broken = matches!(map.headers, Field::Broken(_))
                || matches!(map.document, Field::Broken(_))
                || matches!(map.exclude, Field::Broken(_))
                || matches!(map.mask, Field::Broken(_))
                || matches!(map.as_text, Field::Broken(_))
                || matches!(map.rename, Field::Broken(_));
            rules.sound &= !is_broken;
        }
        Some(Columns::List(columns)) => {
            for (column, _) in columns.iter().filter_map(Field::given) {
                if !column.mask.is_absent() {
                    rules.mask(&column.name, &column.mask);
                }
                if !column.rename.is_absent() {
                    rules.rename(&column.name, &column.rename);
                }
            }
        }
    }
    rules.finish(table)
}

struct Rules<'a> {
    cx: &'a Context<'a>,
    key: &'a [String],
    plan: ColumnRulesPlan,
    masked: Vec<String>,
    sound: bool,
}

impl Rules<'_> {
    fn exclude(&mut self, field: &Field<String>) {
        let Some((name, at)) = self.given(field) else { return };
        if self.is_key(name, at, "left out") {
            return;
        }
        self.plan.exclude.push(name.to_owned());
    }

    fn as_text(&mut self, field: &Field<String>) {
        let Some((name, at)) = self.given(field) else { return };
        if self.masked.iter().any(|masked| masked == name) {
            let message = format!("column {} is masked, and a mask is a text already", shown(name));
            self.cx.error(at, Code::BadValue, message, "remove it from one of the two");
            self.sound = false;
        } else if !self.is_key(name, at, "made text") {
            self.plan.as_text.push(name.to_owned());
        }
    }

    fn mask(&mut self, name: &Field<String>, method: &Field<String>) {
        let (Some((name, at)), Some((method, at_method))) = (self.given(name), self.given(method)) else { return };
        if !METHODS.contains(&method) {
            let finding = Finding::new(Code::UnknownValue, format!("{} is no way to mask", shown(method)));
            self.cx.push(at_method, finding.nearest(nearest(method, METHODS)).hint("write sha256"));
            self.sound = false;
        } else if !self.is_key(name, at, "masked") {
            self.masked.push(name.to_owned());
        }
    }

    fn rename(&mut self, name: &Field<String>, new: &Field<String>) {
        let (Some((name, _)), Some((new, at))) = (self.given(name), self.given(new)) else { return };
        if !column_name(self.cx, new, at) {
            self.sound = false;
        } else if self.plan.rename.iter().any(|(_, taken)| taken == new) {
            self.cx.error(at, Code::DuplicateId, format!("two columns get the name {}", shown(new)), "choose another name for one of them");
            self.sound = false;
        } else if name != new {
            self.plan.rename.push((name.to_owned(), new.to_owned()));
        }
    }

    fn document(&mut self, column: &str, at: &At, dialect: Option<Dialect>) {
        if let Some(dialect) = dialect.filter(|dialect| *dialect != Dialect::Mongodb) {
            let message = format!("documents are MongoDB's rows, and these are {}", dialect.as_str());
            self.cx.error(at, Code::BadValue, message, "remove it, or write type: mongodb at the source");
            self.sound = false;
        } else if column_name(self.cx, column, at) {
            self.plan.document = Some(column.to_owned());
        } else {
            self.sound = false;
        }
    }

    fn header(&mut self, column: &Field<String>, header: &Field<String>) {
        let (Some((column, at)), Some((header, _))) = (self.given(column), self.given(header)) else { return };
        if column_name(self.cx, column, at) {
            self.plan.headers.push((column.to_owned(), header.to_owned()));
        } else {
            self.sound = false;
        }
    }

    /// The text of a field; a broken one has been reported.
    fn given<'f>(&mut self, field: &'f Field<String>) -> Option<(&'f str, &'f At)> {
        let given = field.given().map(|(text, at)| (text.as_str(), at));
        self.sound &= given.is_some();
        given
    }

    fn is_key(&mut self, name: &str, at: &At, what: &str) -> bool {
        let is_key = self.key.iter().any(|column| column == name);
        if is_key {
            let message = format!("column {} is part of the key, and cannot be {what}", shown(name));
            self.cx.error(at, Code::BadValue, message, "a row is known by its key; name another primary_key");
            self.sound = false;
        }
        is_key
    }

    fn finish(mut self, table: &Table) -> Option<ColumnRulesPlan> {
        match (self.masked.is_empty(), &table.mask_salt) {
            (true, salt) => self.cx.unused(salt, "no column is masked"),
            (false, Field::Absent) => {
                if let Some(at) = table.columns.at() {
                    let finding = Finding::new(Code::Required, "mask_salt is missing, and a mask without a salt is found out by trying");
                    self.cx.push(at, finding.hint("write mask_salt: ${env:MASK_SALT} beside columns"));
                }
                self.sound = false;
            }
            (false, salt) => {
                let salt = self.cx.secret(salt);
                self.sound &= salt.is_some();
                self.plan.mask = salt.map(|salt| (std::mem::take(&mut self.masked), salt));
            }
        }
        self.sound.then_some(self.plan)
    }
}
