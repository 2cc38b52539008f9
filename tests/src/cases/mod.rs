//! The hard cases: real traps of change data capture, each with what must come of it in every store.
//!
//! A case is a file of `tests/cases/`: records as they lie in Kafka, live rows as text, dead letters. All of them go through the real program
//! in one run, which every test here waits for. Cases that are no matter of records and rows name the test that shows them.

mod file;
mod run;

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::OnceLock;

pub(crate) use self::file::Table;
use self::file::{Case, STORES};
pub use self::run::status;
use self::run::{Verdict, Verdicts};
use crate::tidy::{root, sources};

/// Every case, by id, and its verdicts.
struct Outcome {
    cases: BTreeMap<String, Case>,
    verdicts: Verdicts,
}

fn outcome() -> &'static Outcome {
    static OUTCOME: OnceLock<Option<Outcome>> = OnceLock::new();
    let outcome = OUTCOME.get_or_init(|| {
        // A run that fails has said why; the other cases must not repeat it.
        catch_unwind(|| {
            let cases = read();
            let verdicts = run::run(&cases);
            Outcome { cases, verdicts }
        })
        .ok()
    });
    outcome.as_ref().expect("the run that all cases share has failed")
}

pub(crate) fn read() -> BTreeMap<String, Case> {
    let folder = root().join("tests/cases");
    let files = std::fs::read_dir(&folder).expect("the folder of cases");
    let case = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a case is text");
        let case: Case = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        (path.file_stem().and_then(|s| s.to_str()).expect("a name").to_owned(), case)
    };
    files.map(case).collect()
}

/// What a case came to in a store: `Ok(true)` where something was refused as asked, else why it is wrong.
fn verdict(outcome: &Outcome, id: &str, at: usize) -> Result<bool, String> {
    let case = &outcome.cases[id];
    if let Some(why) = &case.unmet {
        return Err(why.clone());
    }
    let store = STORES[at].0;
    let mut refused = false;
    for (table, verdicts) in case.tables.iter().zip(&outcome.verdicts[id]) {
        let found: &Verdict = &verdicts[at];
        match found {
            Some(why) => return Err(table.unmet.as_ref().unwrap_or(why).clone()),
            None => refused |= !table.letters(store).is_empty(),
        }
    }
    Ok(refused)
}

/// A case holds in every store, or says what is missing, truly.
fn check(id: &str) {
    let outcome = outcome();
    let case = outcome.cases.get(id).unwrap_or_else(|| panic!("there is no file for case {id}"));
    if let Some(test) = &case.shown_by {
        assert!(case.tables.is_empty() && case.unmet.is_none(), "a case is shown by one thing");
        assert!(exists(test), "{id} is shown by {test}, which is not there");
        return;
    }
    assert!(case.unmet.is_some() || !case.tables.is_empty(), "{id} says nothing");
    let mut wrong = String::new();
    for (n, (table, verdicts)) in case.tables.iter().zip(&outcome.verdicts[id]).enumerate() {
        if let Some(missing) = &table.unmet {
            assert!(verdicts.iter().any(Option::is_some), "{id}, table {n}: it is right in every store, though {missing:?} is said to be missing");
            continue;
        }
        for ((store, _), verdict) in STORES.iter().zip(verdicts) {
            if let Some(why) = verdict {
                wrong.push_str(&format!("\n  table {n} in {store}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{id}, {}:{wrong}", case.title);
}

/// Whether a test of that path is in the sources.
fn exists(test: &str) -> bool {
    let (module, name) = test.rsplit_once("::").unwrap_or(("", test));
    let wanted = format!("fn {name}(");
    let last = module.rsplit("::").find(|part| *part != "tests").unwrap_or_default();
    let is_there = |file: &Path| {
        file.components().any(|c| Path::new(c.as_os_str()).file_stem().is_some_and(|stem| stem == last))
            && std::fs::read_to_string(file).is_ok_and(|text| text.contains(&wanted))
    };
    ["schemas", "topology", "processor", "tests"].iter().flat_map(|room| sources(&root().join(room).join("src"))).any(|file| is_there(&file))
}

/// One line for every case and store, and what it comes to.
#[test]
fn every_case_and_store() {
    let outcome = outcome();
    let (mut right, mut wrong, mut refused) = (0, 0, 0);
    for (id, case) in &outcome.cases {
        let shown = case.shown_by.as_ref();
        for (at, (store, _)) in STORES.iter().enumerate() {
            let said = match shown.map_or_else(|| verdict(outcome, id, at), |_| Ok(false)) {
                Ok(false) => {
                    right += 1;
                    shown.map_or_else(|| "right".to_owned(), |test| format!("right, shown by {test}"))
                }
                Ok(true) => {
                    refused += 1;
                    "refused as asked".to_owned()
                }
                Err(why) => {
                    wrong += 1;
                    format!("wrong: {}", why.chars().take(200).collect::<String>())
                }
            };
            println!("{:<7} {store:<10} {said}", id.to_ascii_uppercase());
        }
    }
    println!("cases: {right} right, {wrong} wrong, {refused} refused as asked");
    assert_eq!(outcome.cases.len(), IDS.len());
}

macro_rules! cases {
    ($($name:ident)*) => {
        const IDS: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            check(&stringify!($name).replace('_', "-"));
        })*
    };
}

cases! {
    dec_01 dec_02 dec_03 dec_04 dec_05 dec_06 dec_07 dec_08 dec_09 dec_10 dec_11 dec_12 dec_13 dec_14 dec_15 dec_16 dec_17 dec_18
    tmp_01 tmp_02 tmp_03 tmp_04 tmp_05 tmp_06 tmp_07 tmp_08 tmp_09 tmp_10 tmp_11 tmp_12
    key_01 key_02 key_03 key_04
    del_01 del_02 del_03
    ord_01 ord_02 ord_03
    pkc_01 pkc_02
    toa_01 toa_02 toa_03 toa_04
    sch_01 sch_02 sch_03 sch_04
    env_01 env_02 env_03 env_04
    snp_01 snp_02 snp_03
    txn_01 txn_02
    ctl_01 ctl_02 ctl_03
    enc_01 enc_02 enc_03 enc_04 enc_05
    nam_01 nam_02
    big_01 big_02
    off_01 off_02
    snk_01 snk_02 snk_03 snk_04 snk_05
    reg_01 reg_02
    sec_01
}
