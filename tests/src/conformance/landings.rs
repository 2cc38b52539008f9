//! What a landing leaves behind: rows and `K` together, once or again, in batches of none, few or many rows.
//!
//! The last scenario mixes them at random, with crashes and takeovers between.

use std::collections::{BTreeMap, BTreeSet};

use landfall::sink::{Batch, Claim, Delta, Kind, Target, version};

use super::Store;
use super::world::{Plain, Random, World, assert_kind, assert_rows, plain};

pub(super) fn land_brings_rows_and_k_together(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 3, &[(1, Some("a")), (2, Some("b")), (3, Some("c"))]);
    world.check(store);
    world.land(0, &mut claim, 7, &[(2, Some("b2")), (3, None), (4, Some("d"))]);
    world.check(store);
    assert_eq!(world.cursor(0).and_then(|c| c.next), Some(7));
}

pub(super) fn an_empty_batch_moves_only_the_cursor(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 3, &[(1, Some("a"))]);
    world.land(0, &mut claim, 50, &[]);
    world.check(store);
    assert_eq!(world.cursor(0).and_then(|c| c.next), Some(50));
    assert_kind(world.try_land(0, Claim { next: Some(3), ..claim }, 51, &[]), Kind::CursorMoved);
    assert_eq!(world.claim(0).next, Some(50));
}

pub(super) fn a_batch_without_rows_needs_no_table(store: &mut Store<'_>, name: &str) {
    let mut sink = (store.make)();
    let (replica, table) = (format!("store.{name}"), format!("t_{name}"));
    let opened = sink.open(&replica, &table, None).expect("opens");
    let target = Target { replica, table, generation: 1, build: opened.build, schema: plain() };
    let mut world = World { sink, target, model: BTreeMap::new() };
    let mut claim = world.claim(3);
    world.land(3, &mut claim, 17, &[]);
    assert_eq!(world.cursor(3).and_then(|c| c.next), Some(17));
    world.sink.prepare(&world.target).expect("prepares after the first landing");
    world.land(3, &mut claim, 18, &[(1, Some("a"))]);
    world.check(store);
}

pub(super) fn a_landing_whose_reply_was_lost_is_told_by_the_cursor(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 3, &[(1, Some("a"))]);
    let before = claim;
    world.land(0, &mut claim, 5, &[(1, None), (2, Some("b"))]);
    // The reply never came: the same is sent again, and the store says that it stands elsewhere.
    let again = world.plain(&[(1, None), (2, Some("b"))]);
    assert_kind(world.try_land(0, before, 5, &again), Kind::CursorMoved);
    world.check(store);
    let claim = world.claim(0);
    assert_eq!(claim.next, Some(5), "it did land");
}

pub(super) fn landing_again_under_a_new_fence_converges(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 4, &[(1, Some("a")), (2, Some("b")), (3, Some("c")), (4, None)]);
    // The store is put back to before the landing and lands it anew: the same rows at the same versions, then others above them.
    let mut other = world.elsewhere(store);
    let build = other.target.build;
    let mut claim = other.claim(0);
    let changes = other.plain(&[(1, Some("a")), (2, Some("b")), (3, Some("c")), (4, None)]);
    let mut batch = Batch::default();
    batch.reset(0, claim.fence, claim.next, 5);
    for (at, (key, row)) in changes.iter().enumerate() {
        batch.push(Delta { key, row: row.as_deref(), version: version(build, at as i64) });
    }
    other.sink.land(&other.target, &batch).expect("lands again");
    claim.next = Some(5);
    other.check(store);
    other.land(0, &mut claim, 9, &[(1, None), (4, Some("d")), (2, Some("b2"))]);
    other.check(store);
}

pub(super) fn tombstones_remove_and_rows_come_back(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 3, &[(1, None), (2, None)]);
    world.check(store);
    world.land(0, &mut claim, 6, &[(1, Some("a")), (2, Some("b")), (3, Some("c"))]);
    world.land(0, &mut claim, 8, &[(1, None), (3, None)]);
    world.check(store);
    world.land(0, &mut claim, 9, &[(1, None)]);
    world.check(store);
    world.land(0, &mut claim, 11, &[(1, Some("again")), (2, None)]);
    world.check(store);
}

pub(super) fn idle_gives_back_and_goes_on(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 3, &[(1, Some("a"))]);
    for next in 4..7 {
        world.sink.idle().expect("idles");
        world.sink.idle().expect("idles twice");
        world.check(store);
        world.land(0, &mut claim, next, &[(next, Some("b"))]);
    }
    world.check(store);
}

pub(super) fn large_batches_and_large_values(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    let names: Vec<String> = (0..20_000).map(|i| format!("name {i} {}", "x".repeat(i % 50))).collect();
    let all: Vec<Plain<'_>> = names.iter().enumerate().map(|(i, n)| (i as i64, Some(n.as_str()))).collect();
    world.land(0, &mut claim, 20_000, &all);
    let some: Vec<Plain<'_>> = (0..20_000).step_by(2).map(|i| (i, (i % 3 > 0).then_some("changed"))).collect();
    world.land(0, &mut claim, 40_000, &some);
    world.check(store);
    let huge = "é".repeat(3_000_000);
    world.land(0, &mut claim, 40_001, &[(1, Some(&huge))]);
    world.land(0, &mut claim, 40_002, &[(3, Some("small after large"))]);
    world.check(store);
}

/// A seeded workload of two owners of two partitions: crashes, takeovers, late zombies, repeated calls; the table must be what the changes say.
pub(super) fn any_history_ends_as_its_changes_say(store: &mut Store<'_>, name: &str) {
    let mut random = Random(2026);
    let mut model = BTreeMap::new();
    let mut world = World::new(store, name, plain());
    let mut claims = [world.claim(0), world.claim(1)];
    for step in 0..150_u64 {
        let partition = random.below(2);
        let claim = &mut claims[partition as usize];
        match random.below(12) {
            // A crash: the next process takes both over.
            0 => {
                world = world.elsewhere(store);
                claims = [world.claim(0), world.claim(1)];
            }
            // A rebalance, and the former owner's late landing.
            1 => {
                let mut zombie = std::mem::replace(&mut world, world_of(store, name));
                let old = claims;
                claims = [world.claim(0), world.claim(1)];
                let changes = zombie.plain(&[(partition as i64, Some("zombie")), (partition as i64 + 2, None)]);
                assert_kind(zombie.try_land(partition as i32, old[partition as usize], i64::MAX, &changes), Kind::Fenced);
            }
            2 => world.sink.prepare(&world.target).expect("prepares again"),
            _ => {
                let from = claim.next.unwrap_or(0);
                let count = random.below(6);
                // Keys of a partition are its own; each once a batch.
                let ids: BTreeSet<i64> = (0..count).map(|_| (random.below(15) * 2 + partition) as i64).collect();
                let text = format!("step {step}");
                let changes: Vec<Plain<'_>> = ids.iter().map(|id| (*id, (random.below(4) > 0).then_some(text.as_str()))).collect();
                world.model = std::mem::take(&mut model);
                world.land(partition as i32, claim, from + 1 + count as i64, &changes);
                model = std::mem::take(&mut world.model);
            }
        }
        if step % 25 == 24 {
            assert_rows(store, &world.target, &model);
        }
    }
    assert_rows(store, &world.target, &model);
}

fn world_of(store: &mut Store<'_>, name: &str) -> World {
    World::new(store, name, plain())
}
