//! Who may land: a former owner is refused by the broker itself, whatever it had under way.

use std::time::Duration;

use landfall::sink::{Kind, Sink as _};
use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::{Home, Owner, rows};
use crate::harness::{latest, stack};

/// A second owner claims; what the first lands is refused and leaves nothing behind that a consumer sees.
#[test]
fn a_former_owner_lands_nothing() {
    let home = Home::new("kafkazombie");
    let mut zombie = home.owner("orders");
    zombie.land(3, &[(1, Some("a")), (2, Some("b"))]);
    let mut owner = home.owner("orders");
    assert!(owner.claim.fence > zombie.claim.fence);
    assert_eq!(owner.claim.next, Some(3));
    for _ in 0..2 {
        let error = zombie.try_land(4, &[(1, Some("zombie")), (3, Some("zombie")), (2, None)]).expect_err("another owns it");
        assert_eq!(error.kind, Kind::Fenced, "{error}");
    }
    assert_eq!(home.read(&owner.target), rows(&[(1, "a"), (2, "b")]));
    // And not by the cursor either, whose word it asks for after a lost answer.
    let seen = zombie.sink.cursor(&zombie.target, 0).expect("reads").expect("a cursor");
    assert_eq!((seen.fence, seen.next), (owner.claim.fence, Some(3)));
    owner.land(5, &[(2, None), (4, Some("d"))]);
    assert_eq!(home.read(&owner.target), rows(&[(1, "a"), (4, "d")]));
}

/// The producer of a partition as the former owner has it, with its batch open.
fn open_landing(home: &Home, owner: &Owner) -> BaseProducer {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", stack::kafka())
        .set("broker.address.family", "v4")
        .set("transactional.id", format!("{}.0", owner.target.replica))
        .set("log_level", "2")
        .create()
        .expect("a producer");
    producer.init_transactions(Duration::from_secs(30)).expect("takes the name");
    producer.begin_transaction().expect("begins");
    for (topic, key, value) in [
        (home.topic("orders"), b"key".to_vec(), b"a row of a batch that never ends".to_vec()),
        (
            format!("{}.cursors", home.topic("orders")),
            format!("{}/0", owner.target.replica).into_bytes(),
            br#"{"fence":1,"build":0,"generation":0,"next":99}"#.to_vec(),
        ),
    ] {
        producer.send(BaseRecord::to(&topic).partition(0).key(&key).payload(&value)).map_err(|(e, _)| e).expect("queued");
    }
    producer.flush(Duration::from_secs(30)).expect("the broker has rows and cursor");
    producer
}

/// A former owner stopped between its rows and the end of its batch: nobody ever sees them, and it cannot end the batch any more.
#[test]
fn an_open_landing_of_a_former_owner_comes_to_nothing() {
    let home = Home::new("kafkaopen");
    let mut first = home.owner("orders");
    first.land(3, &[(1, Some("a"))]);
    let zombie = open_landing(&home, &first);
    let mut owner = home.owner("orders");
    assert_eq!(owner.claim.next, Some(3), "the cursor of the open batch does not count");
    let ended = zombie.commit_transaction(Duration::from_secs(30));
    assert!(matches!(&ended, Err(KafkaError::Transaction(e)) if e.is_fatal()), "{ended:?}");
    owner.land(4, &[(2, Some("b"))]);
    assert_eq!(home.read(&owner.target), rows(&[(1, "a"), (2, "b")]));
    assert_eq!(latest::cursors(&home.kafka.read(&format!("{}.cursors", home.topic("orders"))))[&0], 4);
}

/// The owner's own batch was left open, as by a lost answer: it is settled before its outcome is told, and the same is landed again.
#[test]
fn what_an_owner_left_open_is_settled_before_its_outcome_is_told() {
    let home = Home::new("kafkalost");
    let mut owner = home.owner("orders");
    owner.land(3, &[(1, Some("a"))]);
    // It takes the name from the owner's own producer, as nobody does who has not claimed: the fence in the cursor is still the owner's.
    let lost = open_landing(&home, &owner);
    let error = owner.try_land(5, &[(2, Some("b"))]).expect_err("the producer is gone");
    assert_eq!(error.kind, Kind::Fenced, "{error}");
    let seen = owner.sink.cursor(&owner.target, 0).expect("settles and reads").expect("a cursor");
    assert_eq!((seen.fence, seen.next), (owner.claim.fence, Some(3)));
    owner.land(5, &[(2, Some("b"))]);
    assert_eq!(home.read(&owner.target), rows(&[(1, "a"), (2, "b")]));
    assert!(lost.commit_transaction(Duration::from_secs(30)).is_err());
    // Nobody has written since: the cursor is told from memory, and still told right after another has claimed.
    assert_eq!(owner.sink.cursor(&owner.target, 0).expect("reads").map(|c| c.next), Some(Some(5)));
    assert_eq!(owner.sink.cursor(&owner.target, 0).expect("reads").map(|c| c.next), Some(Some(5)));
    let other = home.owner("orders");
    assert_eq!(owner.sink.cursor(&owner.target, 0).expect("reads").map(|c| c.fence), Some(other.claim.fence));
}

/// Many partitions are claimed; producers that were not used for long are closed, and made again when they are needed.
#[test]
fn producers_are_closed_and_made_again() {
    let mut home = Home::new("kafkamany");
    home.options.partitions = Some(140);
    let mut owner = home.owner("orders");
    owner.land(1, &[(1, Some("a"))]);
    for partition in 1..140 {
        let _ = owner.sink.claim(&owner.target, partition).expect("claims");
    }
    // The first of all was used least.
    owner.land(2, &[(1, Some("b"))]);
    assert_eq!(home.read(&owner.target), rows(&[(1, "b")]));
}
