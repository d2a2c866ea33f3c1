//! Light queues: a record in many queues, with any end of the process, and without its files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::store_model::{KEPT, SEGMENT_BYTES, clock, open, options_with};
use rmqpy::clock::ManualClock;
use rmqpy::message::properties;
use rmqpy::message::record::{RecordFields, RecordView, records};
use rmqpy::message::tag;
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, Open};
use rmqpy::store::inspect::{FindingKind, Shape, StoppedStore};
use rmqpy::store::{
    Durability, Event, Get, GetResult, KeyHashes, LightError, Options, Put, PutError, Store, StorePaths,
};

const TOPIC: &str = "orders";
/// The light queues of each message of a workload; some messages have none.
const LISTS: [&[&str]; 8] = [
    &["%LMQ%a"],
    &["%LMQ%a", "%LMQ%b"],
    &[],
    &["%LMQ%c", "%LMQ%a", "%LMQ%b"],
    &["%LMQ%b"],
    &[],
    &["%LMQ%b", "%LMQ%a"],
    &["%LMQ%d"],
];

fn options(durability: Durability) -> Options {
    Options { multi_dispatch: true, ..options_with(durability, "/store") }
}

fn start(disk: &SimDisk, durability: Durability) -> Arc<Store> {
    open(disk.shared(), options(durability), clock()).expect("opens")
}

/// The number of a message is its body.
fn message(number: usize) -> (String, String) {
    let names = LISTS[number % LISTS.len()].join(",");
    let list = if names.is_empty() { String::new() } else { format!("INNER_MULTI_DISPATCH\x01{names}\x02") };
    (format!("TAGS\x01red\x02WAIT\x01true\x02{list}"), format!("{number}:{}", "x".repeat(number % 7 * 300)))
}

/// Returns what each queue of the first `count` messages of the workload has, in order.
fn expected(count: usize) -> BTreeMap<String, Vec<String>> {
    let mut queues: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for number in 0..count {
        for name in LISTS[number % LISTS.len()].iter().chain(&[TOPIC]) {
            queues.entry((*name).to_owned()).or_default().push(message(number).1);
        }
    }
    queues
}

fn put_all(store: &Store, numbers: std::ops::Range<usize>) -> Vec<Result<PhysicalOffset, PutError>> {
    let messages: Vec<_> = numbers.map(message).collect();
    let parts: Vec<_> = messages.iter().map(|(properties, body)| (TOPIC, &**properties, &**body)).collect();
    put(store, &parts)
}

/// Appends messages, given by topic, properties and body, in one call.
fn put(store: &Store, parts: &[(&str, &str, &str)]) -> Vec<Result<PhysicalOffset, PutError>> {
    let host = "127.0.0.1:10911".parse().expect("an address");
    let mut puts: Vec<Put<'_>> = parts
        .iter()
        .map(|(topic, properties, body)| {
            let record = RecordFields {
                queue_id: 0,
                flag: 0,
                sys_flag: 0,
                born_timestamp_ms: 1_700_000_000_000,
                born_host: host,
                store_host: host,
                reconsume_times: 0,
                prepared_transaction_offset: 0,
                body: body.as_bytes(),
                body_crc: RecordFields::body_crc(body.as_bytes()),
                topic: topic.as_bytes(),
                properties: properties.as_bytes(),
            };
            let queue = store.queue_or_create(topic, 0).expect("a valid name");
            let lights = store.light_put(topic.as_bytes(), properties.as_bytes());
            let tags_code = tag::tags_code(properties.as_bytes());
            Put { lights, ..Put::new(queue, record, tags_code, KeyHashes::default()) }
        })
        .collect();
    store.append(&mut puts);
    puts.iter().map(|put| put.outcome.map(|stored| stored.physical)).collect()
}

/// Returns the offset of a record in a queue.
fn offset_in(record: &RecordView<'_>, name: &str) -> Option<u64> {
    if record.topic() == name.as_bytes() {
        return Some(record.queue_offset().0);
    }
    let list =
        |name: &[u8]| properties::get(record.properties(), name).map(|list| list.split(|byte| *byte == b','));
    let index = list(b"INNER_MULTI_DISPATCH")?.position(|one| one == name.as_bytes())?;
    let offset = list(b"INNER_MULTI_QUEUE_OFFSET")?.nth(index)?;
    std::str::from_utf8(offset).ok()?.parse().ok()
}

/// Returns the bodies in a queue, whose records must have their offsets.
fn read(store: &Store, name: &str) -> Vec<String> {
    let Some(queue) = store.queue(name, 0) else { return Vec::new() };
    let (mut found, mut result, mut offset) = (Vec::new(), GetResult::default(), queue.min());
    while offset < queue.max() {
        let ask = Get { offset, messages_max: 3, bytes_max: 1 << 20 };
        store.get(&queue, &ask, &mut |_| true, &mut result).expect("a working disk");
        for record in result.slices.iter().flat_map(|slice| records(slice)) {
            let record = record.expect("a whole record");
            assert_eq!(offset_in(&record, name), Some(queue.min().0 + found.len() as u64), "{name}");
            found.push(String::from_utf8(record.body().to_vec()).expect("text"));
        }
        assert!(result.next_begin > offset, "{name}: a read makes progress");
        offset = result.next_begin;
    }
    assert_eq!(found.len() as u64, queue.max().0 - queue.min().0, "{name} is dense");
    found
}

fn assert_has(store: &Store, count: usize, context: &str) {
    for (name, bodies) in expected(count) {
        assert_eq!(read(store, &name), bodies, "{context}: {name}");
    }
}

#[test]
fn a_record_is_stored_once_and_read_from_a_thousand_queues_after_any_stop() {
    let names: Vec<String> = (0..1_000).map(|index| format!("%LMQ%room{index}")).collect();
    let list = format!("INNER_MULTI_DISPATCH\x01{}\x02", names.join(","));
    for durability in Durability::ALL {
        for is_clean in [true, false] {
            let disk = SimDisk::new();
            let store = start(&disk, durability);
            for body in ["one", "two"] {
                assert!(put(&store, &[(TOPIC, &list, body)])[0].is_ok());
            }
            store.flush().expect("a working disk");
            assert!(store.range().1.0 < 60_000, "two records, each with its list");
            assert_eq!(store.light_queues(), 1_000);
            if is_clean {
                store.close().expect("closes")
            } else {
                store.abandon()
            }
            let store = start(&disk, durability);
            for name in [&names[0], &names[999], &TOPIC.to_owned()] {
                assert_eq!(read(&store, name), ["one", "two"], "{durability:?}, clean {is_clean}");
            }
            assert!(
                names
                    .iter()
                    .all(|name| store.queue(name, 0).is_some_and(|queue| queue.max() == QueueOffset(2)))
            );
            assert_eq!(store.light_queues(), 1_000);
        }
    }
}

#[test]
fn the_stored_record_has_the_offsets_and_no_wait() {
    let store = start(&SimDisk::new(), Durability::PageCache);
    put_all(&store, 0..2);
    let at = put_all(&store, 3..4)[0].expect("stored");
    let record = store.lookup(at).expect("a record");
    let record = RecordView::parse(&record).expect("a whole record");
    let stored = "TAGS\x01red\x02INNER_MULTI_DISPATCH\x01%LMQ%c,%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x010,2,1\x02";
    assert_eq!(record.properties(), stored.as_bytes());
}

/// Runs messages, maintenance and checkpoints until the end, or until the disk stops.
fn run(disk: &SimDisk, durability: Durability) {
    let Ok(store) = open(disk.shared(), options(durability), clock()) else { return };
    for first in (0..24).step_by(3) {
        put_all(&store, first..first + 3);
        let _ = match first % 4 {
            0 => store.maintain(),
            1 => store.flush().map(drop),
            2 => store.checkpoint(),
            _ => Ok(()),
        };
        if disk.is_frozen() {
            return;
        }
    }
}

/// Method: stop the disk before each operation, keep unsynced sectors in different ways, and compare the light queues with
/// the queue of the topic, which crash.rs tests.
#[test]
fn after_a_kill_at_any_operation_light_queues_agree_with_the_log() {
    let survivals = [Survival::Everything, Survival::Nothing, Survival::Prefix, Survival::Percent(50)];
    for durability in Durability::ALL {
        let disk = SimDisk::new();
        run(&disk, durability);
        let mut survivals = survivals.iter().cycle();
        let mut counts = Vec::new();
        for at in 0..disk.operations() {
            let survival = *survivals.next().expect("they go round");
            let context = format!("{durability:?}, operation {at}, {survival:?}");
            let disk = SimDisk::new();
            disk.freeze_at(at);
            run(&disk, durability);
            let disk = disk.crash(survival, at);
            let store = start(&disk, durability);
            let count = read(&store, TOPIC).len();
            counts.push(count);
            assert_has(&store, count, &context);
            let more = count + 8;
            assert!(put_all(&store, count..more).iter().all(Result::is_ok), "{context}");
            store.close().expect("a working disk");
            let store = start(&disk, durability);
            assert_has(&store, more, &format!("{context}, opened again"));
        }
        assert!(counts.iter().any(|count| (1..24).contains(count)), "{durability:?}: {counts:?}");
    }
}

#[test]
fn light_queues_are_rebuilt_from_the_log() {
    for broken in ["/store/consumequeue", "/store/consumequeue/%LMQ%a", "/store/consumequeue/%LMQ%b/0"] {
        for is_clean in [true, false] {
            let disk = SimDisk::new();
            let store = start(&disk, Durability::PageCache);
            put_all(&store, 0..30);
            store.checkpoint().expect("a working disk");
            if is_clean {
                store.close().expect("closes")
            } else {
                store.abandon()
            }
            disk.remove_dir(Path::new(broken)).expect("removes");
            let store = start(&disk, Durability::PageCache);
            assert_has(&store, 30, &format!("{broken}, clean {is_clean}"));
        }
    }
}

#[test]
fn an_entry_that_points_elsewhere_lets_its_light_queue_be_rebuilt() {
    let disk = SimDisk::new();
    let store = start(&disk, Durability::PageCache);
    put_all(&store, 0..8);
    store.close().expect("closes");
    let path = Path::new("/store/consumequeue/%LMQ%d/0/00000000000000000000");
    let file = disk.open(path, Open::Write).expect("the file");
    file.write_at(&[0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0], 0).expect("a working disk");
    assert_has(&start(&disk, Durability::PageCache), 8, "rebuilt");
}

#[test]
fn a_start_after_a_clean_stop_or_a_crash_trusts_the_checkpoint() {
    for is_clean in [true, false] {
        let disk = SimDisk::new();
        let store = start(&disk, Durability::PageCacheMapped);
        put_all(&store, 0..20);
        store.checkpoint().expect("a working disk");
        if is_clean {
            store.close().expect("closes")
        } else {
            store.abandon()
        }
        // What the checkpoint covers is not read again, so a lost record there is not noticed.
        let log =
            disk.open(Path::new("/store/commitlog/00000000000000000000"), Open::Write).expect("the file");
        log.write_at(&[0; 4], 4).expect("a working disk");
        let store = start(&disk, Durability::PageCacheMapped);
        assert_eq!(store.queue("%LMQ%a", 0).expect("a queue").max(), QueueOffset(11), "clean {is_clean}");
        let is_damaged = |event: &Event| matches!(event, Event::Damaged { .. });
        assert!(!store.events().iter().any(is_damaged), "clean {is_clean}");
    }
}

#[test]
fn a_deleted_light_queue_begins_at_zero_again_and_the_topic_stays() {
    for is_clean in [true, false] {
        let disk = SimDisk::new();
        let store = start(&disk, Durability::PageCache);
        put_all(&store, 0..8);
        store.checkpoint().expect("a working disk");
        store.delete_topic("%LMQ%a").expect("a working disk");
        assert_eq!((store.light_queues(), read(&store, TOPIC).len()), (3, 8));
        put_all(&store, 8..9);
        if is_clean {
            store.close().expect("closes")
        } else {
            store.abandon()
        }
        let store = start(&disk, Durability::PageCache);
        assert_eq!(read(&store, "%LMQ%a"), [message(8).1], "clean {is_clean}");
        assert_eq!(read(&store, "%LMQ%b"), expected(8)["%LMQ%b"], "clean {is_clean}");
        store.delete_topic(TOPIC).expect("a working disk");
        store.abandon();
        let store = start(&disk, Durability::PageCache);
        assert_eq!(read(&store, "%LMQ%a"), [message(8).1], "its messages are in the log");
        assert!(store.queue(TOPIC, 0).is_none());
    }
}

#[test]
fn entries_expire_with_the_log() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = open(disk.shared(), options(Durability::PageCache), clock.clone()).expect("opens");
    let files = || disk.list(Path::new("/store/consumequeue/%LMQ%a/0")).expect("a directory").len();
    let fill = |clock: &ManualClock, from: usize| {
        for number in from..from + 200 {
            assert!(put_all(&store, number..number + 1)[0].is_ok());
            clock.advance(Duration::from_millis(1));
            store.maintain().expect("a working disk");
        }
    };
    fill(&clock, 0);
    let before = files();
    clock.advance(KEPT + Duration::from_secs(3600));
    fill(&clock, 200);
    assert!(store.delete_expired().expect("a working disk") > 0);
    let queue = store.queue("%LMQ%a", 0).expect("a queue");
    assert!(queue.min() > QueueOffset(0) && queue.min() < queue.max());
    assert!(store.range().0.0 >= SEGMENT_BYTES && files() < before + files(), "files are removed");
    let all = &expected(400)["%LMQ%a"];
    assert_eq!(read(&store, "%LMQ%a"), all[queue.min().0 as usize..]);
    let begin = queue.min();
    store.abandon();
    let store = open(disk.shared(), options(Durability::PageCache), clock).expect("opens");
    assert_eq!(store.queue("%LMQ%a", 0).expect("a queue").min(), begin);
    assert_eq!(read(&store, "%LMQ%a"), all[begin.0 as usize..]);
}

#[test]
fn a_list_is_checked_before_anything_is_created() {
    let limited = |has_light_quota, light_queues_max| {
        let options = Options { has_light_quota, light_queues_max, ..options(Durability::PageCache) };
        open(SimDisk::new().shared(), options, clock()).expect("opens")
    };
    let of = |list: &str| format!("INNER_MULTI_DISPATCH\x01{list}\x02");
    let admit = |store: &Store, list: &str| store.admit_lights(TOPIC, of(list).as_bytes(), false);
    let store = limited(true, 2);
    assert!(admit(&store, "%LMQ%a").is_ok());
    assert!(matches!(admit(&store, "%LMQ%b,%LMQ%c"), Err(LightError::Quota)));
    assert_eq!(store.light_queues(), 1, "none of them was created");
    assert!(admit(&store, "%LMQ%a,%LMQ%b").is_ok());
    assert!(matches!(admit(&store, "%LMQ%c"), Err(LightError::Quota)));
    assert!(admit(&store, "%LMQ%b").is_ok(), "existing queues are not counted again");
    assert!(admit(&limited(false, 0), "%LMQ%a").is_ok());
    for list in ["orders", "%LMQ%x,orders", "%LMQ%x,%LMQ%x", "%LMQ%x/y"] {
        assert!(matches!(admit(&store, list), Err(LightError::List(_))), "{list}");
    }
    for topic in ["%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "%LMQ%a"] {
        assert!(store.admit_lights(topic, of("%LMQ%z").as_bytes(), false).is_ok());
        assert!(store.light_put(topic.as_bytes(), of("%LMQ%z").as_bytes()).is_none(), "{topic}");
    }
    let off = crate::store_model::start(&SimDisk::new());
    assert!(off.light_put(TOPIC.as_bytes(), of("%LMQ%z").as_bytes()).is_none());
}

#[test]
fn a_message_for_later_has_room_for_any_offsets() {
    let store = start(&SimDisk::new(), Durability::PageCache);
    let names: Vec<String> = (0..1_200).map(|index| format!("%LMQ%{index}")).collect();
    let list = format!("INNER_MULTI_DISPATCH\x01{}\x02", names.join(","));
    assert!(store.admit_lights(TOPIC, list.as_bytes(), false).is_ok());
    let refused = store.admit_lights(TOPIC, list.as_bytes(), true);
    assert!(matches!(refused, Err(LightError::Put(PutError::TooManyLights))));
}

/// A light queue that clients send to directly, as to any topic, gets such messages in log order, too.
#[test]
fn messages_to_a_light_queue_itself_stay_in_order() {
    let disk = SimDisk::new();
    let store = start(&disk, Durability::PageCache);
    let list = "INNER_MULTI_DISPATCH\x01%LMQ%a\x02";
    let parts = [
        (TOPIC, list, "0"),
        ("%LMQ%a", "", "1"),
        ("%LMQ%a", list, "2"),
        (TOPIC, list, "3"),
        (TOPIC, "", "none"),
        ("%LMQ%a", "", "4"),
        (TOPIC, list, "5"),
    ];
    assert!(put(&store, &parts).iter().all(Result::is_ok));
    assert_eq!(read(&store, "%LMQ%a"), ["0", "1", "2", "3", "4", "5"]);
    store.abandon();
    disk.remove_dir(Path::new("/store/consumequeue")).expect("removes");
    assert_eq!(read(&start(&disk, Durability::PageCache), "%LMQ%a"), ["0", "1", "2", "3", "4", "5"]);
}

#[test]
fn a_copy_has_the_light_queues_of_its_master() {
    for durability in Durability::ALL {
        let master = start(&SimDisk::new(), durability);
        let disk = SimDisk::new();
        // The copy follows the log, whatever its own settings are.
        let copying = Options { is_replica: true, ..options_with(durability, "/store") };
        let copy = open(disk.shared(), copying.clone(), clock()).expect("opens");
        let mut replica = copy.replica().expect("a copy");
        let mut follow = || {
            master.flush().expect("a working disk");
            let mut at = replica.end();
            while let Some(bytes) = master.log_bytes(at, 900) {
                replica.append(at, &bytes).expect("the copy takes it");
                at.0 += bytes.len() as u64;
            }
            copy.flush().expect("a working disk");
        };
        put_all(&master, 0..20);
        follow();
        assert_has(&copy, 20, "copied");
        master.delete_topic("%LMQ%a").expect("a working disk");
        put_all(&master, 20..28);
        follow();
        let bodies = read(&master, "%LMQ%a");
        assert_eq!(bodies.len(), 4);
        assert_eq!(read(&copy, "%LMQ%a"), bodies, "{durability:?}: it was deleted at the master");
        assert_eq!(read(&copy, "%LMQ%b"), expected(28)["%LMQ%b"]);
        drop(replica);
        copy.close().expect("closes");
        let copy = open(disk.shared(), copying, clock()).expect("opens");
        assert_eq!(read(&copy, "%LMQ%a"), bodies, "{durability:?}, opened again");
    }
}

#[test]
fn verification_compares_light_queues_with_the_log() {
    let verify = |disk: &SimDisk| {
        let store = StoppedStore::hold(StorePaths::below("/store"), disk.shared()).expect("a stopped store");
        let topics = [TOPIC.to_owned()].into_iter().collect();
        store.verify(Some(&topics), Shape { slots: 16, entries: 64 }).expect("a working disk")
    };
    let disk = SimDisk::new();
    let store = start(&disk, Durability::PageCache);
    put_all(&store, 0..600);
    store.close().expect("closes");
    let report = verify(&disk);
    assert_eq!((report.findings.len(), report.records, report.queues), (0, 600, 5), "{report:?}");

    let file = |name: &str| {
        let path = format!("/store/consumequeue/{name}/0/00000000000000000000");
        disk.open(Path::new(&path), Open::Write).expect("the file")
    };
    file("%LMQ%a").write_at(&[0; 20], 40).expect("a working disk");
    file("%LMQ%b").write_at(&[1], 27).expect("a working disk");
    let report = verify(&disk);
    let found: Vec<_> = report.findings.iter().map(|finding| (finding.kind, finding.text.as_str())).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|(kind, _)| *kind == FindingKind::Unit));
    assert!(
        found.iter().any(|(_, text)| text.contains("1 entries are missing, the first at offset 2")),
        "{found:?}"
    );
    assert!(
        found.iter().any(|(_, text)| text.contains("1 entries are wrong, the first at offset 1")),
        "{found:?}"
    );
}
