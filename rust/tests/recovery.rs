//! Opening a store on whatever is on the disk: clean, crashed, foreign, damaged.

mod store_model;

use rmqpy::store::simdisk::SimDisk;
use store_model::{clock, open, options, put, read_all, sample};

#[test]
fn what_was_put_is_read_back_after_a_clean_stop() {
    let disk = SimDisk::new();
    let store = open(disk.shared(), options("/store", false), clock()).expect("an empty disk");
    let outcomes =
        put(&store, &[sample("orders", 0, 100), sample("orders", 1, 50), sample("orders", 0, 7)], false);
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    store.close().expect("closes");
    drop(store);
    let store = open(disk.shared(), options("/store", false), clock()).expect("opens again");
    assert_eq!(read_all(&store, "orders", 0).len(), 2);
    assert_eq!(read_all(&store, "orders", 1).len(), 1);
    assert_eq!(put(&store, &[sample("orders", 1, 5)], false)[0].expect("appended").0.0, 1);
}
