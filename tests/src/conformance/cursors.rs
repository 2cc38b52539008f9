//! Who may land, and from where: `claim`, fences, builds and `K`.
//!
//! A caller that is wrong about one of them is told so by kind and changes nothing, neither rows nor the cursor.

use landfall::sink::{Claim, Cursor, Kind, Remedy};

use super::Store;
use super::world::{World, assert_kind, plain};

pub(super) fn claim_raises_the_fence_and_reads_k(store: &mut Store<'_>, name: &str) {
    let mut one = World::new(store, name, plain());
    let mut two = one.elsewhere(store);
    let mut first = one.claim(0);
    assert_eq!(first.next, None);
    let second = two.claim(0);
    assert!(second.fence > first.fence, "{second:?} {first:?}");
    first = one.claim(0);
    assert!(first.fence > second.fence);
    one.land(0, &mut first, 42, &[(1, Some("a"))]);
    let third = two.claim(0);
    assert!(third.fence > first.fence);
    assert_eq!(third.next, Some(42));
}

pub(super) fn claim_of_a_superseded_build_is_refused(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut other = world.elsewhere(store);
    let build = other.sink.rebuild(&world.target.replica, &world.target.table).expect("rebuilds");
    assert_kind(world.sink.claim(&world.target, 0), Kind::Build);
    assert_eq!(Kind::Build.remedy(), Remedy::Reclaim);
    assert_eq!(world.sink.open(&world.target.replica, &world.target.table, None).expect("opens").build, build);
}

pub(super) fn cursor_is_read_without_changing_anything(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    assert_eq!(world.cursor(0), None, "never claimed");
    let mut claim = world.claim(0);
    let build = world.target.build;
    for _ in 0..2 {
        assert_eq!(world.cursor(0), Some(Cursor { fence: claim.fence, build, next: None }));
    }
    world.land(0, &mut claim, 9, &[(1, Some("a"))]);
    let mut other = world.elsewhere(store);
    assert_eq!(other.cursor(0), Some(Cursor { fence: claim.fence, build, next: Some(9) }));
    assert_eq!(other.cursor(1), None);
    world.land(0, &mut claim, 10, &[(1, Some("b"))]);
}

pub(super) fn a_stale_fence_changes_nothing(store: &mut Store<'_>, name: &str) {
    let mut zombie = World::new(store, name, plain());
    let mut old = zombie.claim(0);
    zombie.land(0, &mut old, 3, &[(1, Some("a")), (2, Some("b"))]);
    let mut owner = zombie.elsewhere(store);
    let mut new = owner.claim(0);
    for changes in [&[][..], &[(1, Some("zombie")), (2, None), (3, Some("zombie"))]] {
        let changes = zombie.plain(changes);
        assert_kind(zombie.try_land(0, old, 4, &changes), Kind::Fenced);
    }
    owner.check(store);
    assert_eq!(owner.cursor(0), Some(Cursor { fence: new.fence, build: owner.target.build, next: Some(3) }));
    owner.land(0, &mut new, 5, &[(2, None), (3, Some("c"))]);
    // At the very K that the zombie expects, too.
    let changes = zombie.plain(&[(1, Some("zombie"))]);
    assert_kind(zombie.try_land(0, Claim { next: Some(5), ..old }, 6, &changes), Kind::Fenced);
    owner.check(store);
}

pub(super) fn an_unexpected_k_changes_nothing(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    let changes = world.plain(&[(1, Some("wrong"))]);
    assert_kind(world.try_land(0, Claim { next: Some(0), ..claim }, 3, &changes), Kind::CursorMoved);
    world.land(0, &mut claim, 3, &[(1, Some("a"))]);
    for next in [None, Some(2), Some(4)] {
        assert_kind(world.try_land(0, Claim { next, ..claim }, 9, &changes), Kind::CursorMoved);
        assert_kind(world.try_land(0, Claim { next, ..claim }, 9, &[]), Kind::CursorMoved);
    }
    // A fence from nowhere is not an owner's, and a partition never claimed has none.
    let nobody = Claim { fence: claim.fence + 5, ..claim };
    assert_eq!(world.try_land(0, nobody, 9, &changes).expect_err("nobody's").kind.remedy(), Remedy::Reclaim);
    assert_eq!(world.try_land(1, Claim { next: None, ..claim }, 9, &changes).expect_err("unclaimed").kind.remedy(), Remedy::Reclaim);
    world.check(store);
    assert_eq!(world.cursor(0).and_then(|c| c.next), Some(3));
    world.land(0, &mut claim, 4, &[(1, Some("b"))]);
    world.check(store);
}

pub(super) fn a_superseded_build_changes_nothing(store: &mut Store<'_>, name: &str) {
    let mut zombie = World::new(store, name, plain());
    let mut claim = zombie.claim(0);
    zombie.land(0, &mut claim, 3, &[(1, Some("a"))]);
    let mut owner = zombie.elsewhere(store);
    let build = owner.sink.rebuild(&owner.target.replica, &owner.target.table).expect("rebuilds");
    owner.target.build = build;
    owner.model.clear();
    for changes in [&[][..], &[(1, Some("zombie")), (2, Some("zombie"))]] {
        let changes = zombie.plain(changes);
        assert_kind(zombie.try_land(0, claim, 4, &changes), Kind::Build);
    }
    owner.sink.prepare(&owner.target).expect("prepares");
    owner.check(store);
    let mut claim = owner.claim(0);
    assert_eq!(claim.next, None);
    owner.land(0, &mut claim, 2, &[(7, Some("new"))]);
    owner.check(store);
}

pub(super) fn partitions_have_their_own_cursors(store: &mut Store<'_>, name: &str) {
    let mut one = World::new(store, name, plain());
    let mut two = one.elsewhere(store);
    let (mut a, mut b) = (one.claim(0), two.claim(1));
    one.land(0, &mut a, 10, &[(10, Some("a"))]);
    two.land(1, &mut b, 7, &[(11, Some("b"))]);
    one.land(0, &mut a, 11, &[(10, Some("a2"))]);
    two.model.extend(one.model.clone());
    two.check(store);
    assert_eq!(two.cursor(0).and_then(|c| c.next), Some(11));
    assert_eq!(one.cursor(1).and_then(|c| c.next), Some(7));
    // Taking one of them over leaves the other's owner alone.
    let _ = two.claim(0);
    two.land(1, &mut b, 8, &[(11, None)]);
    assert_kind(one.try_land(0, a, 12, &[]), Kind::Fenced);
}
