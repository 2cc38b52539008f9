//! From the model to a plan, every problem on the way reported.
//!
//! Each part is checked on its own and yields what it can; a part that fails is reported once and left out, so the rest is still
//! checked. The plan is handed out only if no error was found, and only from here: that is why a [`Plan`] cannot be invalid.
//! It must never fill in for a value that is written but wrong.

mod address;
mod client;
mod context;
mod kafka;
mod replica;
mod rules;
mod signal;
mod source;
mod store;
mod table;
mod topic;
mod unsupported;

use crate::field::Field;
use crate::issue::{At, Code, Finding, Issue};
use crate::issues::Issues;
use crate::load::Document;
use crate::model::{self, Defaults, File};
use crate::names;
use crate::plan::Plan;
use crate::read::Reader;
use crate::secret::Lookup;
use crate::tree;

use context::{Context, Listed};

/// What a check found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Checked {
    /// The plan; absent exactly if an issue is an error.
    pub plan: Option<Plan>,
    /// Every problem and every warning, in the order of files and lines.
    pub issues: Vec<Issue>,
}

impl Checked {
    /// The plan with its warnings, or all issues.
    ///
    /// # Errors
    /// The issues, if one of them is an error.
    pub fn into_plan(self) -> Result<(Plan, Vec<Issue>), Vec<Issue>> {
        match self.plan {
            Some(plan) => Ok((plan, self.issues)),
            None => Err(self.issues),
        }
    }
}

/// Checks documents, which together make one topology; `lookup` finds the values of references.
///
/// Pure but for `lookup`: the same documents and values give the same result.
pub fn check(documents: &[Document], lookup: &Lookup<'_>) -> Checked {
    let issues = Issues::new(documents);
    let plan = build(documents, lookup, &issues);
    if plan.is_none() && !issues.has_errors() {
        // Loud instead of a plan that silently is not there; the fuzz test shows that this does not happen.
        issues.push(&At::default(), Finding::new(Code::BadValue, "no plan can be made of this topology"));
    }
    let plan = if issues.has_errors() { None } else { plan };
    Checked { plan, issues: issues.finish() }
}

/// The files as one: lists joined, single blocks from the file that has them.
#[derive(Default)]
struct Whole {
    topology: Field<String>,
    kafka: Field<model::Kafka>,
    defaults: Field<Defaults>,
    sources: Listed<model::Source>,
    stores: Listed<model::Store>,
    tables: Listed<model::Table>,
    /// A file could not be read, so what seems missing may stand there.
    unread: bool,
}

fn build(documents: &[Document], lookup: &Lookup<'_>, issues: &Issues<'_>) -> Option<Plan> {
    let mut whole = Whole::default();
    for (file, document) in (0..).zip(documents) {
        let tree = match tree::parse(document.text()) {
            Ok(tree) => tree,
            Err((at, finding)) => {
                issues.push(&At { file, ..at }, finding);
                whole.unread = true;
                continue;
            }
        };
        let reader = Reader { issues, lookup, file };
        match reader.read::<File>(&tree) {
            Some(file) => whole.join(file, issues),
            None => whole.unread = true,
        }
    }
    let cx = Context::new(issues, lookup);
    for incomplete in [&mut whole.sources.incomplete, &mut whole.stores.incomplete, &mut whole.tables.incomplete] {
        *incomplete |= whole.unread;
    }
    whole.resolve(&cx)
}

impl Whole {
    fn join(&mut self, file: File, issues: &Issues<'_>) {
        once(&mut self.topology, file.topology, issues);
        once(&mut self.kafka, file.kafka, issues);
        once(&mut self.defaults, file.defaults, issues);
        self.sources.join(file.sources);
        self.stores.join(file.stores);
        self.tables.join(file.tables);
        unsupported::relationships(&file.relationships, issues);
    }

    fn resolve(&self, cx: &Context<'_>) -> Option<Plan> {
        let topology = self.topology(cx);
        let kafka = self.kafka.given().and_then(|(kafka, at)| kafka::resolve(cx, kafka, at));
        let none = Defaults::default();
        let defaults = self.defaults.get().unwrap_or(&none);
        unsupported::defaults(cx, defaults);

        for (what, absent) in [
            ("topology", self.topology.is_absent()),
            ("kafka", self.kafka.is_absent()),
            ("sources", self.sources.is_missing()),
            ("stores", self.stores.is_missing() && self.wants_store()),
            ("tables", self.tables.is_missing()),
        ] {
            // What is missing may stand in a file that could not be read.
            if absent && !self.unread {
                cx.missing(&cx.top(), what);
            }
        }
        let sources = source::resolve_all(cx, &self.sources);
        let stores = store::resolve_all(cx, &self.stores);
        let surroundings = table::Surroundings { topology: topology.as_deref(), defaults, sources: &sources, stores: &stores };
        let tables = table::resolve_all(cx, &self.tables, &surroundings);
        if tables.has_latest {
            store::refuse_latest(cx, &self.stores.items);
        }
        let plan = Plan {
            topology: topology.clone()?,
            kafka: kafka?,
            sources: sources.plans()?,
            stores: stores.plans(tables.has_latest)?,
            tables: tables.tables,
            patterns: tables.patterns,
        };
        table::refuse_clashes(cx, &plan, &tables.places);
        Some(plan)
    }

    fn topology(&self, cx: &Context<'_>) -> Option<String> {
        let (name, at) = self.topology.given()?;
        match names::topology(name) {
            Ok(()) => Some(name.clone()),
            Err(why) => {
                cx.bad_name(at, "topology name", name, why);
                None
            }
        }
    }

    /// True if a table has no list of replicas, or one that names a store.
    fn wants_store(&self) -> bool {
        self.tables.items.iter().filter_map(Field::get).any(|table| table.replicas.is_absent() || !table.replicas.items().is_empty())
    }
}

/// Takes a block that may stand in one file only.
fn once<T>(kept: &mut Field<T>, new: Field<T>, issues: &Issues<'_>) {
    match (kept.at(), new.at()) {
        (_, None) => {}
        (None, Some(_)) => *kept = new,
        (Some(_), Some(at)) => {
            let message = format!("{} stands in another file of this topology already", at.path);
            issues.error(at, Code::DuplicateSection, message, "keep it in one file");
        }
    }
}
