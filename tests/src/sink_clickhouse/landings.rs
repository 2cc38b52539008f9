//! Rows and cursors without transactions: what is landed again, late, by a former owner or by several at once.
//!
//! The server takes every row that anybody inserts. Versions and fences decide which of them count.

use landfall::sink::{Claim, Kind, Sink as _, version};

use super::{Store, begin, kind, late_cursor, live, rows, simple};

#[test]
fn rows_are_updated_deleted_and_stay_deleted() {
    let store = Store::new("deletes");
    let mut sink = store.sink();
    let (target, mut claim) = begin(&mut sink, simple());
    let mut land = |next, deltas: &[_]| {
        let batch = rows(&target, claim, next, deltas);
        sink.land(&target, &batch).expect("landed");
        claim.next = Some(next);
    };
    land(3, &[(1, Some("a"), 0), (2, Some("b"), 1), (3, Some("c"), 2)]);
    land(6, &[(1, Some("a2"), 3), (2, None, 4), (9, None, 5)]);
    assert_eq!(live(&store), "1\ta2\n3\tc");
    land(7, &[(2, Some("b2"), 6)]);
    assert_eq!(live(&store), "1\ta2\n2\tb2\n3\tc");
    land(8, &[(3, None, 7)]);
    store.ask("OPTIMIZE TABLE {db}.t FINAL");
    // What a zombie inserts late has an older version: it loses, merged tombstone or not.
    store.ask(&format!("INSERT INTO {{db}}.t VALUES (3, 'zombie', {}, 0)", version(target.build, 2)));
    assert_eq!(live(&store), "1\ta2\n2\tb2");
    store.ask("OPTIMIZE TABLE {db}.t FINAL");
    assert_eq!(live(&store), "1\ta2\n2\tb2");
}

#[test]
fn landing_again_after_a_lost_cursor_changes_nothing() {
    let store = Store::new("again");
    let mut sink = store.sink();
    let (target, claim) = begin(&mut sink, simple());
    // With deduplication on, as an operator may have it, a repeated block would be dropped without a word.
    store.ask("ALTER TABLE {db}.t MODIFY SETTING non_replicated_deduplication_window = 1000");
    let deltas = [(1, Some("a"), 0), (2, None, 1), (3, Some("c"), 2)];
    sink.land(&target, &rows(&target, claim, 3, &deltas)).expect("landed");
    store.ask("DELETE FROM {db}.t WHERE 1");
    assert_eq!(live(&store), "");
    store.ask("TRUNCATE TABLE {db}.landfall_cursor");
    let mut other = store.sink();
    let again = other.claim(&target, 0).expect("claim");
    assert_eq!(again.next, None);
    other.land(&target, &rows(&target, again, 3, &deltas)).expect("landed");
    assert_eq!(live(&store), "1\ta\n3\tc");
    let third = sink.claim(&target, 0).expect("claim");
    assert_eq!(third.next, Some(3));
    assert!(third.fence > again.fence);
    // The same content once more under a new fence, re-batched with what follows.
    store.ask("TRUNCATE TABLE {db}.landfall_cursor");
    let fourth = sink.claim(&target, 0).expect("claim");
    sink.land(&target, &rows(&target, fourth, 4, &[(1, Some("a"), 0), (2, None, 1), (3, None, 3)])).expect("landed");
    assert_eq!(live(&store), "1\ta");
}

#[test]
fn a_former_owner_changes_nothing() {
    let store = Store::new("fence");
    let (mut one, mut two) = (store.sink(), store.sink());
    let (target, first) = begin(&mut one, simple());
    one.land(&target, &rows(&target, first, 2, &[(1, Some("a"), 0)])).expect("landed");
    let second = two.claim(&target, 0).expect("claim");
    assert!(second.fence > first.fence);
    assert_eq!(second.next, Some(2));
    let late = Claim { next: Some(2), ..first };
    assert_eq!(kind(one.land(&target, &rows(&target, late, 9, &[(1, Some("stale"), 8)]))), Kind::Fenced);
    assert_eq!(live(&store), "1\ta");
    // Another partition is another matter.
    let other = one.claim(&target, 1).expect("claim");
    assert_eq!(other.next, None);
    two.land(&target, &rows(&target, second, 5, &[(1, Some("b"), 4)])).expect("landed");
    // `K` is compared too, also by the owner.
    assert_eq!(kind(two.land(&target, &rows(&target, second, 9, &[(1, Some("old K"), 8)]))), Kind::CursorMoved);
    let unknown = Claim { fence: second.fence + 1, next: Some(5) };
    assert_eq!(kind(two.land(&target, &rows(&target, unknown, 9, &[(1, Some("no claim"), 8)]))), Kind::CursorMoved);
    assert_eq!(live(&store), "1\tb");
    let cursor = two.cursor(&target, 0).expect("read").expect("a cursor");
    assert_eq!((cursor.fence, cursor.build, cursor.next), (second.fence, target.build, Some(5)));
    assert_eq!(two.cursor(&target, 7).expect("read"), None);
}

#[test]
fn late_cursor_rows_never_count() {
    let store = Store::new("late");
    let mut sink = store.sink();
    let (target, first) = begin(&mut sink, simple());
    let mut claim = first;
    for offset in 0..40 {
        sink.land(&target, &rows(&target, claim, offset + 1, &[(offset, Some("x"), offset)])).expect("landed");
        claim.next = Some(offset + 1);
    }
    // Under a fence that nobody claimed here: it was given out before the store was put back.
    late_cursor(&store, &target, first.fence + 70_000, 1, 900);
    // Under the fence in force, but out of step with its landings.
    late_cursor(&store, &target, first.fence, 97, 901);
    for round in 0..2 {
        let cursor = sink.cursor(&target, 0).expect("read").expect("a cursor");
        assert_eq!((cursor.fence, cursor.next), (first.fence, Some(40)), "round {round}");
        store.ask("OPTIMIZE TABLE {db}.landfall_cursor FINAL");
    }
    let count: u32 = store.ask("SELECT count() FROM {db}.landfall_cursor").parse().expect("a number");
    assert!(count <= 17, "{count} rows are left after merging");
    let second = sink.claim(&target, 0).expect("claim");
    assert_eq!(second.next, Some(40));
    assert!(second.fence > first.fence + 70_000);
    // Under the former owner's fence.
    late_cursor(&store, &target, first.fence, 41, 902);
    // However many there are.
    for strange in 1..80 {
        late_cursor(&store, &target, second.fence + strange, 1, 903);
    }
    assert_eq!(sink.cursor(&target, 0).expect("read").expect("a cursor").next, Some(40));
    sink.land(&target, &rows(&target, second, 41, &[])).expect("landed");
}

#[test]
fn one_of_many_that_claim_at_once_is_the_owner() {
    let store = Store::new("claims");
    let mut sink = store.sink();
    let (target, _) = begin(&mut sink, simple());
    for round in 0..5_i64 {
        let expected = (round > 0).then_some(round);
        let claims: Vec<Claim> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|_| {
                    let (store, target) = (&store, &target);
                    scope.spawn(move || store.sink().claim(target, 0))
                })
                .collect();
            threads
                .into_iter()
                .map(|t| t.join().expect("no panic"))
                .filter_map(|claim| match claim {
                    Ok(claim) => Some(claim),
                    Err(e) => {
                        assert_eq!(e.kind, Kind::Fenced, "{e}");
                        None
                    }
                })
                .collect()
        });
        assert!(!claims.is_empty());
        assert!(claims.iter().all(|c| c.next == expected), "{claims:?}");
        let owner = claims.iter().max_by_key(|c| c.fence).expect("somebody");
        for claim in claims.iter().filter(|c| c.fence != owner.fence) {
            assert_eq!(kind(sink.land(&target, &rows(&target, *claim, 100, &[]))), Kind::Fenced);
        }
        sink.land(&target, &rows(&target, *owner, round + 1, &[])).expect("the owner lands");
    }
}

#[test]
fn an_empty_batch_moves_the_cursor_alone() {
    let store = Store::new("empty");
    let mut sink = store.sink();
    let (target, claim) = begin(&mut sink, simple());
    sink.land(&target, &rows(&target, claim, 17, &[])).expect("landed");
    assert_eq!(store.ask("SELECT count() FROM {db}.t"), "0");
    assert_eq!(sink.claim(&target, 0).expect("claim").next, Some(17));
}
