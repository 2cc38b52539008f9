//! Bombs: small or large texts that ask for too much end as one issue, soon.

use std::time::{Duration, Instant};

use super::{BASE, check_text};
use crate::Code;

fn only_code(text: &str) -> Vec<Code> {
    let start = Instant::now();
    let checked = check_text(text);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(checked.plan.is_none());
    checked.issues.iter().map(|i| i.code).collect()
}

#[test]
fn a_billion_laughs() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let row = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{row}]\n"));
    }
    assert_eq!(only_code(&text), [Code::YamlLimit]);
}

#[test]
fn a_quadratic_of_merges() {
    let mut text = String::from("base: &m0 { a: 1 }\n");
    for level in 1..2_000 {
        text.push_str(&format!("m{level}: &m{level} {{ <<: *m{}, k{level}: 1 }}\n", level - 1));
    }
    assert_eq!(only_code(&text), [Code::YamlLimit]);
}

#[test]
fn deep_nesting() {
    for depth in [40, 1_000, 100_000] {
        let flow = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(only_code(&flow), [Code::YamlLimit], "flow of {depth}");
    }
    let mut block = String::new();
    for level in 0..200 {
        block.push_str(&format!("{}a:\n", " ".repeat(level)));
    }
    assert_eq!(only_code(&block), [Code::YamlLimit]);
}

#[test]
fn ten_megabytes() {
    let long_value = format!("topology: {}\n", "a".repeat(10 << 20));
    assert_eq!(only_code(&long_value), [Code::YamlLimit]);
    let long_list = "- x\n".repeat(10 << 18);
    assert_eq!(only_code(&long_list), [Code::YamlLimit]);
}

#[test]
fn a_full_megabyte_is_bounded_too() {
    let mut many_nodes = String::from("tables:\n");
    while many_nodes.len() < (1 << 20) - 8 {
        many_nodes.push_str("- x\n");
    }
    assert_eq!(only_code(&many_nodes), [Code::YamlLimit]);

    let mut many_keys = String::new();
    while many_keys.len() < (1 << 19) {
        many_keys.push_str(&format!("k{}: 1\n", many_keys.len()));
    }
    let codes = only_code(&many_keys);
    // Issues are bounded as well, and the last one says so.
    assert_eq!(codes.len(), 1_001);
    assert_eq!(codes.last(), Some(&Code::YamlLimit));
    assert!(codes.iter().take(1_000).all(|code| *code == Code::UnknownKey || *code == Code::Required));
}

#[test]
fn aliases_serve_people() {
    let text = BASE
        .replace("replicas:", "push_debounce_quiet: &quiet 2\n    replicas:")
        .replace("{ store: local }", "{ store: local, push_debounce_max_delay: *quiet }");
    let checked = check_text(&text);
    assert_eq!(checked.issues, vec![]);
    let replica = &checked.plan.expect("no issue").tables[0].replicas[0];
    assert_eq!((replica.quiet, replica.max_delay), (Duration::from_secs(2), Duration::from_secs(2)));
}

#[test]
fn a_mistake_behind_an_alias_is_shown_where_it_is_used() {
    let text = BASE.replace("    name: orders", "    name: &wrong orders").replace("{ store: local }", "{ store: *wrong }");
    let checked = check_text(&text);
    let issue = &checked.issues[0];
    let used = text.lines().position(|line| line.contains("*wrong")).expect("it is there") + 1;
    assert_eq!((issue.code, issue.line as usize), (Code::UnknownReference, used));
}

#[test]
fn the_stand_ins_of_braces_are_a_text_like_any_other() {
    let text = BASE.replace("    name: orders", "    name: \u{e000}x\u{e001}${env:NAME}");
    let plan = check_text(&text).plan.expect("the name is odd but right");
    assert_eq!(plan.tables[0].topic, "shop.public._x_orders");
}
