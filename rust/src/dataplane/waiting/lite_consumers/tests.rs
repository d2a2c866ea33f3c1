//! Subscriptions, and the consumer that gets an event.

use proptest::prelude::*;

use super::*;

const NOW_MS: i64 = 1_000_000;

fn member<'a>(group: &'a str, client: &'a str) -> LiteMember<'a> {
    LiteMember { group, client, parent: "p", connection: 7, events_max: 2, is_exclusive: false }
}

fn queues(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn events(consumers: &LiteConsumers, client: &str) -> Vec<String> {
    std::iter::from_fn(|| consumers.take("g", client)).map(|queue| queue.to_string()).collect()
}

fn subscribed(clients: &[&str], names: &[&str]) -> LiteConsumers {
    let consumers = LiteConsumers::new(100);
    for client in clients {
        consumers.add(&member("g", client), &queues(names), NOW_MS).expect("room");
        events(&consumers, client);
    }
    consumers
}

#[test]
fn a_new_subscription_is_an_event_and_an_arrival_is_one_event_of_one_consumer() {
    let consumers = LiteConsumers::new(100);
    consumers.add(&member("g", "a"), &queues(&["x", "y"]), NOW_MS).expect("room");
    assert_eq!(events(&consumers, "a"), ["x", "y"]);
    for _ in 0..3 {
        assert_eq!(consumers.arrived("y", NOW_MS).len(), 1);
    }
    assert!(consumers.arrived("z", NOW_MS).is_empty());
    assert_eq!((events(&consumers, "a"), consumers.has_events("g", "a")), (vec!["y".to_owned()], false));
}

#[test]
fn each_group_gets_an_event_and_one_of_its_consumers() {
    let consumers = subscribed(&["a", "b"], &["x"]);
    consumers.add(&member("other", "c"), &queues(&["x"]), NOW_MS).expect("room");
    assert_eq!(consumers.take("other", "c").as_deref(), Some("x"));
    assert_eq!(consumers.arrived("x", NOW_MS).len(), 2);
    assert_eq!(consumers.take("other", "c").as_deref(), Some("x"));
    assert_eq!(events(&consumers, "a").len() + events(&consumers, "b").len(), 1);
}

#[test]
fn a_consumer_that_asks_for_messages_is_preferred() {
    let consumers = subscribed(&["a", "b", "c"], &["x"]);
    consumers.access(&member("g", "b"), NOW_MS);
    for _ in 0..5 {
        consumers.arrived("x", NOW_MS + 1);
        assert_eq!(events(&consumers, "b"), ["x"]);
    }
}

#[test]
fn a_full_consumer_is_passed_over_and_keeps_the_event_if_it_is_alone() {
    let consumers = subscribed(&["a", "b"], &["1", "2", "3", "4"]);
    for name in ["1", "2", "3", "4"] {
        consumers.arrived(name, NOW_MS);
    }
    assert_eq!((events(&consumers, "a").len(), events(&consumers, "b").len()), (2, 2));
    consumers.end("g", "b", NOW_MS);
    for name in ["1", "2", "3", "4"] {
        consumers.arrived(name, NOW_MS);
    }
    assert_eq!(events(&consumers, "a"), ["1", "2", "3", "4"]);
}

#[test]
fn the_last_subscriber_of_an_exclusive_group_takes_the_lite_topic_over() {
    let consumers = LiteConsumers::new(100);
    let exclusive = |client| LiteMember { is_exclusive: true, ..member("g", client) };
    let add =
        |client, name: &str| consumers.add(&exclusive(client), &queues(&[name]), NOW_MS).expect("room").0;
    assert_eq!((add("a", "x"), add("a", "x"), add("a", "y")), (vec![], vec![], vec![]));
    let notice = |client: &str| LiteNotice { client: client.into(), connection: 7, queue: "x".into() };
    assert_eq!(add("b", "x"), [notice("a")]);
    assert_eq!(consumers.subscribers("x"), [("b".into(), "g".into())]);
    // A client that missed the notice gets it again, and the other one keeps the lite topic.
    let (notices, _) = consumers.replace(&exclusive("a"), &queues(&["x", "y"]), NOW_MS).expect("room");
    assert_eq!(notices, [notice("a")]);
    assert_eq!(consumers.report("g", "a", 10).map(|report| report.queues), Some(queues(&["y"])));
}

#[test]
fn events_of_a_consumer_that_is_gone_or_idle_go_to_another_one() {
    let consumers = subscribed(&["a", "b"], &["x"]);
    for client in ["a", "b"] {
        consumers.give_back("g", client, &Arc::from("x"));
        consumers.access(&member("g", "b"), NOW_MS + ACTIVE_MS);
        if client == "a" {
            assert_eq!(consumers.spread(NOW_MS + ACTIVE_MS).len(), 1);
        } else {
            consumers.end("g", "a", NOW_MS);
        }
        assert_eq!((events(&consumers, "a"), events(&consumers, "b")), (vec![], vec!["x".to_owned()]));
    }
    let (gone, _) = consumers.expire(NOW_MS + 1, NOW_MS + 1);
    assert_eq!(gone, [("g".into(), "b".into())]);
    assert_eq!(consumers.counts(), LiteCounts::default());
}

#[test]
fn subscriptions_are_bounded_and_a_refused_request_adds_none() {
    let consumers = LiteConsumers::new(3);
    consumers.add(&member("g", "a"), &queues(&["1", "2"]), NOW_MS).expect("room");
    let refused = consumers.add(&member("g", "b"), &queues(&["1", "2"]), NOW_MS);
    assert_eq!(refused.map(drop), Err(TooManyLite { count: 4, max: 3 }));
    assert_eq!(consumers.counts().subscriptions, 2);
    consumers.replace(&member("g", "a"), &queues(&["2", "3", "4"]), NOW_MS).expect("room");
    assert_eq!(consumers.counts().subscriptions, 3);
}

proptest! {
    /// Whatever happens, the index has the subscriptions of the consumers, and events are among them.
    #[test]
    fn the_index_is_that_of_the_subscriptions(
        steps in prop::collection::vec((0_u8..8, 0_usize..3, prop::collection::vec(0_usize..5, 0..4)), 0..40),
    ) {
        let consumers = LiteConsumers::new(12);
        let (clients, names) = (["a", "b", "c"], ["1", "2", "3", "4", "5"]);
        for (step, client, which) in steps {
            let (client, named) = (clients[client], which.iter().map(|at| names[*at]).collect::<Vec<_>>());
            let member = LiteMember { is_exclusive: step == 7, ..member("g", client) };
            let named = queues(&named);
            match step {
                0 | 7 => drop(consumers.add(&member, &named, NOW_MS)),
                1 => drop(consumers.replace(&member, &named, NOW_MS)),
                2 => consumers.remove("g", client, &named, NOW_MS),
                3 => drop(consumers.end("g", client, NOW_MS)),
                4 => drop(consumers.spread(NOW_MS + 2 * ACTIVE_MS)),
                5 => consumers.remove_queues(&named.iter().map(ToString::to_string).collect::<Vec<_>>()),
                _ => named.iter().for_each(|queue| drop(consumers.arrived(queue, NOW_MS))),
            }
            let state = consumers.state.lock();
            let held: usize = state.consumers.values().map(|consumer| consumer.queues.len()).sum();
            let indexed: usize =
                state.by_queue.values().flatten().map(|of| of.consumers.len()).sum();
            prop_assert_eq!((held, indexed), (state.subscriptions, state.subscriptions));
            prop_assert!(held <= 12);
            for consumer in state.consumers.values() {
                prop_assert_eq!(consumer.events.len(), consumer.pending.len());
                prop_assert!(consumer.events.iter().all(|queue| consumer.queues.contains(queue)));
            }
        }
    }
}
