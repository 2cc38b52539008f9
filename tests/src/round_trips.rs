//! What goes in comes out: any change through its encoding, any value of any type through the encoding of keys. Any value through every store is
//! with the stores (`any_value_is_kept_or_refused`).
//!
//! A sample in the suite; `make property COUNT=n` draws as many of each type, and prints a line of each type and store: `property`, the type, where
//! it went, how many values, how many were refused and how many came back equal. `LANDFALL_SEED` draws others.

use landfall_schemas::change::{SourceBlock, split_fingerprint};
use landfall_schemas::wire::Reader;
use landfall_schemas::{Change, Column, ColumnSet, LogicalType, Op, Sequence, TableSchema, Value, contract, key, row};

use crate::conformance::Random;
use crate::conformance::values::{TYPES, can_be_key, drawn, samples};
use crate::dice::Dice;
use crate::meaning::compare;

/// The seed, and how many values of each type are drawn, where nobody says.
pub(crate) fn asked(sample: usize) -> (u64, usize) {
    let number = |variable: &str| std::env::var(variable).ok().map(|n| n.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {n:?}")));
    (number("LANDFALL_SEED").unwrap_or(5), number("LANDFALL_COUNT").map_or(sample, |n: u64| n as usize))
}

fn types() -> Vec<LogicalType> {
    TYPES.iter().map(|ty| ty.parse().expect(ty)).collect()
}

/// A table of a few columns of any types, some of which are its key.
fn table(dice: &mut Dice, types: &[LogicalType]) -> TableSchema {
    let name = |n: usize, dice: &mut Dice| format!("{}{n}", dice.pick(&["c", "", " ", "é\"", "_x5f_", "日本"]));
    let columns: Vec<Column> =
        (0..1 + dice.below(9)).map(|n| Column { name: name(n, dice), ty: *dice.pick(types), nullable: dice.chance(1, 2) }).collect();
    let mut names: Vec<String> = columns.iter().filter(|c| can_be_key(c.ty)).map(|c| c.name.clone()).collect();
    dice.shuffle(&mut names);
    names.truncate(1 + dice.below(3));
    match TableSchema::new(*dice.pick(&["t", "every type", "日本"]), columns, &names) {
        Ok(schema) => schema,
        // None of the columns can be a key.
        Err(_) => table(dice, types),
    }
}

#[test]
fn any_change_goes_in_and_comes_out() {
    let (seed, count) = asked(4_000);
    let types = types();
    let pools: Vec<Vec<Vec<u8>>> = types
        .iter()
        .map(|ty| samples(|_, _| None, *ty, &mut Random(seed), 200))
        .map(|pool| pool.into_iter().filter(|v| v.len() < 500).collect())
        .collect();
    for run in 0..count as u64 {
        let mut dice = Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(run));
        let schema = table(&mut dice, &types);
        let value = |dice: &mut Dice, ty: LogicalType| dice.pick(&pools[types.iter().position(|t| *t == ty).expect("a type of the list")]).clone();
        let row = |dice: &mut Dice, unsent: &ColumnSet| -> Vec<u8> {
            let cell = |(at, column): (usize, &Column)| if unsent.contains(at) || dice.chance(1, 6) { vec![0] } else { value(dice, column.ty) };
            schema.columns().iter().enumerate().flat_map(cell).collect()
        };
        let key = |dice: &mut Dice| -> Vec<u8> { schema.key_columns().flat_map(|c| value(dice, c.ty)[1..].to_vec()).collect() };
        let number = |dice: &mut Dice| *dice.pick(&[0, 1, -1, i64::MIN, i64::MAX, 1 << 40]);
        let op = *dice.pick(&Op::ALL);
        let unauthored: ColumnSet = (0..schema.columns().len()).filter(|_| dice.chance(1, 8)).collect();
        let sequence =
            Sequence::of_dialect(dice.below(3) as u32, number(&mut dice).cast_unsigned(), dice.below(1 << 30) as u64, dice.below(9) as u32);
        let maybe = |dice: &mut Dice, bytes: Vec<u8>| dice.chance(1, 2).then_some(bytes);
        let key_bytes = key(&mut dice);
        let other_bytes = key(&mut dice);
        let other_key = maybe(&mut dice, other_bytes);
        let before_bytes = row(&mut dice, &ColumnSet::new());
        let before = maybe(&mut dice, before_bytes);
        let after_bytes = row(&mut dice, &unauthored);
        let after = maybe(&mut dice, after_bytes);
        let transaction = dice.pick(&["", "2597", "日本"]);
        let change = Change {
            op,
            sequence: dice.chance(4, 5).then_some(sequence.as_bytes()),
            event_time: dice.chance(4, 5).then(|| number(&mut dice)),
            source: SourceBlock {
                connector: dice.pick::<&str>(&["postgresql", "mysql", ""]),
                database: dice.pick::<&str>(&["shop", ""]),
                schema: dice.pick::<&str>(&["public", "", "日本"]),
                table: schema.table(),
                transaction: dice.chance(1, 2).then_some(*transaction),
                transaction_order: dice.chance(1, 2).then(|| number(&mut dice)),
            },
            snapshot: dice.chance(1, 4).then(|| number(&mut dice)),
            unauthored,
            key: (!op.is_mark()).then_some(&key_bytes),
            other_key: other_key.as_deref(),
            before: before.as_deref(),
            after: after.as_deref(),
        };
        let (contract, fingerprint) = contract::of(&schema);
        let mut bytes = Vec::new();
        change.encode(fingerprint, &mut bytes);
        let (found, body) = split_fingerprint(&bytes).expect("a single object");
        assert_eq!(found, fingerprint);
        assert_eq!(Change::decode(&schema, body).as_ref(), Ok(&change), "seed {seed}, change {run}");
        assert_eq!(contract::parse(&contract).expect("our own contract"), schema, "seed {seed}, change {run}");
        for row in [change.before, change.after].into_iter().flatten() {
            let again = row::values(schema.columns(), row).fold(Vec::new(), |mut out, found| {
                let (column, value) = found.expect("our own row");
                row::put(column.ty, value, &mut out).expect("as it was put");
                out
            });
            assert_eq!(again, row, "seed {seed}, change {run}");
        }
        // Every cut is noticed.
        let cut = dice.below(body.len());
        assert!(Change::decode(&schema, &body[..cut]).is_err(), "seed {seed}, change {run}, cut at {cut}");
    }
    println!("property change encoding {count} 0 {count}");
}

#[test]
fn any_key_stands_where_its_value_does() {
    let (seed, count) = asked(1_000);
    for (ty, name) in types().into_iter().zip(TYPES) {
        if !can_be_key(ty) {
            let mut out = Vec::new();
            let found = samples(|_, _| None, ty, &mut Random(seed), 10);
            let refused = found.iter().all(|v| key::encode(ty, row::read(ty, &mut Reader::new(v)).expect("our own"), &mut out).is_err());
            assert!(refused && out.is_empty(), "{name} cannot be a key");
            continue;
        }
        let mut dice = Dice::new(seed);
        let mut pool = drawn(ty, &mut Random(seed), count);
        // What is no number is no key, whatever its column.
        pool.retain(|bytes| !matches!(row::read(ty, &mut Reader::new(bytes)), Ok(Value::NotFinite(_))));
        let of = |bytes: &'_ [u8]| -> Vec<u8> {
            let mut out = Vec::new();
            key::encode(ty, row::read(ty, &mut Reader::new(bytes)).expect("our own value"), &mut out).expect("a key");
            out
        };
        let keys: Vec<Vec<u8>> = pool.iter().map(|bytes| of(bytes)).collect();
        let value = |at: usize| -> Value<'_> { row::read(ty, &mut Reader::new(&pool[at])).expect("our own value") };
        for run in 0..pool.len() {
            for other in [(run + 1) % pool.len(), dice.below(pool.len()), run] {
                let expected = compare(&value(run), &value(other)).expect("values of one type");
                assert_eq!(keys[run].cmp(&keys[other]), expected, "{name}: {:?} and {:?}, seed {seed}", value(run), value(other));
            }
        }
        println!("property {name} key {} 0 {}", pool.len(), pool.len());
    }
}
