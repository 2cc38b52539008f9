//! No input panics, costs more than a moment, or yields a plan beside an error.
//!
//! Seeded, so a failure names its seed. Mutations work on right files, since random bytes alone rarely get past the parser.

use std::time::{Duration, Instant};

use super::{BASE, check_text};
use crate::Severity;

const SAMPLES: [&str; 4] =
    [BASE, include_str!("../../samples/shop.yaml"), include_str!("../../samples/supported.yaml"), include_str!("../../samples/everything.yaml")];

/// Pieces that meet the reader where it is weak.
const PIECES: &[&str] = &[
    "\t",
    "\n",
    "  ",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "|\n",
    ">-\n",
    "&a ",
    "*a",
    "<<: *a",
    "!!str ",
    "!!int ",
    "? ",
    "#",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "~",
    "null",
    "no",
    "0x10",
    "007",
    "1e309",
    ".nan",
    "${env:",
    "${env:URL}",
    "\u{e000}",
    "\u{e001}",
    "${file:/x}",
    "$${",
    "}",
    "\u{202e}",
    "\u{feff}",
    "\u{0}",
    "é",
    "𝄞",
    "/(/",
    "/.*/",
    "*",
    "__LF_x",
    "-1",
    "99999999999999999999999999",
    "forever",
    "://u:p@h",
    "a.b.c",
];

/// Xorshift: enough for test data, the same on every machine.
struct Random(u64);

impl Random {
    fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).expect("below a usize")
    }
}

fn assert_sound(text: &str, seed: u64) {
    let start = Instant::now();
    let checked = check_text(text);
    assert!(start.elapsed() < Duration::from_secs(5), "seed {seed} took {:?}", start.elapsed());
    let errors = checked.issues.iter().filter(|i| i.severity == Severity::Error).count();
    assert_eq!(checked.plan.is_none(), errors > 0, "seed {seed}:\n{text}");
    let lines = crate::excerpt::lines(text).count();
    for issue in &checked.issues {
        assert!(issue.line >= 1 && issue.column >= 1, "seed {seed}: {issue}");
        assert!(issue.line as usize <= lines, "seed {seed}: {issue}");
        assert_ne!(issue.message, "no plan can be made of this topology", "seed {seed}:\n{text}");
        // Every rendering is free of what could steer a terminal.
        assert!(!issue.to_string().contains(['\u{1b}', '\u{202e}', '\r', '\0']), "seed {seed}: {issue:?}");
    }
    if let Some(plan) = checked.plan {
        plan.describe();
        plan.expand(["shop.public.orders", "shop.public.x", "", "…"]);
    }
}

#[test]
fn arbitrary_bytes() {
    for seed in 1..=2_000 {
        let mut random = Random::seeded(seed);
        let length = random.below(400);
        let bytes: Vec<u8> = (0..length).map(|_| random.next().to_le_bytes()[0]).collect();
        assert_sound(&String::from_utf8_lossy(&bytes), seed);
    }
}

#[test]
fn mutated_files() {
    for seed in 1..=6_000 {
        let mut random = Random::seeded(seed);
        let mut chars: Vec<char> = SAMPLES[random.below(SAMPLES.len())].chars().collect();
        for _ in 0..=random.below(4) {
            let at = random.below(chars.len());
            match random.below(4) {
                0 => {
                    chars.remove(at);
                }
                1 => {
                    let piece = PIECES[random.below(PIECES.len())];
                    chars.splice(at..at, piece.chars());
                }
                2 => {
                    let to = (at + random.below(40)).min(chars.len());
                    chars.drain(at..to);
                }
                _ => {
                    let to = (at + random.below(40)).min(chars.len());
                    let copy: Vec<char> = chars[at..to].to_vec();
                    let target = random.below(chars.len());
                    chars.splice(target..target, copy);
                }
            }
            if chars.is_empty() {
                break;
            }
        }
        assert_sound(&chars.into_iter().collect::<String>(), seed);
    }
}

#[test]
fn names_with_control_characters() {
    let name = "\"\\e[31m\\u202e\\r\"";
    for edit in [
        BASE.replace("id: orders", &format!("id: {name}")),
        BASE.replace("name: orders", &format!("{name}: orders")),
        BASE.replace("    replicas:", &format!("    columns: {{ types: {{ {name}: nonsense, {name}: x }} }}\n    replicas:")),
        BASE.replace("store: local", &format!("store: {name}")),
        BASE.replace("  brokers:", &format!("  client: {{ {name}: 1 }}\n  brokers:")),
    ] {
        assert_sound(&edit, 0);
    }
}

#[test]
fn values_in_strange_places() {
    // Every scalar of the full sample, replaced by each of a few values.
    let sample = SAMPLES[3];
    for (number, line) in sample.lines().enumerate() {
        let Some((key, _)) = line.split_once(": ") else {
            continue;
        };
        for value in ["~", "[]", "{}", "[[]]", "-1", "x", "''", "[{}]", "{ a: 1 }", "${env:UNSET}"] {
            let mut lines: Vec<String> = sample.lines().map(str::to_owned).collect();
            lines[number] = format!("{key}: {value}");
            assert_sound(&lines.join("\n"), number as u64);
        }
    }
}
