//! State in RocksDB: one instance per process, keys prefixed by slot, memory capped as one budget.
//!
//! Layout 1: column family `default` holds `slot (4, big endian) ‖ key -> index`, column family `meta` holds `0 -> layout`,
//! `1 ‖ name -> slot`, `2 ‖ slot -> meta bytes`, `3 -> next slot`. A batch is one `WriteBatch` over both, so `S` never parts from the state
//! that it describes. The write-ahead log is not synced: after a power cut state is an older prefix of itself, which the protocol heals
//! (K > S folds the gap again); after a kill of the process nothing is lost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DataBlockIndexType, Direction, IteratorMode, Options,
    Range, ReadOptions, WriteBatch, WriteOptions,
};

use super::{Error, Found, Slot, SlotName, State, Writes};

/// Layout that this build writes and reads.
pub const LAYOUT: u32 = 1;

/// Memory of the block cache, and once more of the write buffers, however many replicas there are.
pub const MEMORY_BYTES: usize = 64 << 20;

/// One write buffer; there are four at most.
const WRITE_BUFFER_BYTES: usize = 16 << 20;

const META: &str = "meta";
const KEY_LAYOUT: &[u8] = &[0];
const KEY_NEXT: &[u8] = &[3];

/// What the state of a replica takes, as estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Bytes on disk and in write buffers.
    pub bytes: f64,
    /// Keys.
    pub keys: f64,
}

/// A handle on an open state directory; cheap to clone, one for each thread. Slots of different handles never meet, since every partition
/// belongs to one thread.
#[derive(Clone)]
pub struct RocksState {
    db: Arc<DB>,
    path: PathBuf,
    next: Arc<Mutex<u32>>,
    /// Bytes written of late, by slot: tells whose the write buffers are.
    written: Arc<Mutex<BTreeMap<u32, u64>>>,
    key: Vec<u8>,
}

impl std::fmt::Debug for RocksState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RocksState").field("path", &self.path).finish_non_exhaustive()
    }
}

fn engine(source: rocksdb::Error) -> Error {
    Error::Engine(Box::new(source))
}

impl RocksState {
    /// Opens a directory, or makes it. A second process is refused: the engine holds a lock file. State of an older layout is discarded: it is
    /// folded again from the logs. One of a newer layout is left alone, since a newer build may still want it.
    pub fn open_directory(path: &Path) -> Result<Self, Error> {
        let found = match Self::open_layout(path) {
            Err(Error::Layout { found, expected }) if found < expected => found,
            outcome => return outcome,
        };
        tracing::warn!(path = %path.display(), found, expected = LAYOUT, "state of an older layout is discarded and folded again from the change logs");
        DB::destroy(&Options::default(), path).map_err(|source| Error::Open { path: path.to_owned(), source: Box::new(source) })?;
        Self::open_layout(path)
    }

    fn open_layout(path: &Path) -> Result<Self, Error> {
        let open = |source: rocksdb::Error| Error::Open { path: path.to_owned(), source: Box::new(source) };
        std::fs::create_dir_all(path).map_err(|source| Error::Open { path: path.to_owned(), source: Box::new(source) })?;
        let cache = Cache::new_lru_cache(MEMORY_BYTES);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_max_open_files(256);
        options.set_keep_log_file_num(2);
        options.set_max_background_jobs(2);
        options.set_db_write_buffer_size(WRITE_BUFFER_BYTES * 4);
        let family = |options: &Options| {
            let mut options = options.clone();
            let mut blocks = BlockBasedOptions::default();
            blocks.set_block_cache(&cache);
            blocks.set_cache_index_and_filter_blocks(true);
            blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
            blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
            blocks.set_bloom_filter(10.0, false);
            options.set_block_based_table_factory(&blocks);
            options.set_write_buffer_size(WRITE_BUFFER_BYTES);
            // Most keys that are asked for are not in the write buffer: a filter says so without walking its skip list.
            options.set_memtable_whole_key_filtering(true);
            options.set_memtable_prefix_bloom_ratio(0.05);
            options.set_compression_type(DBCompressionType::Lz4);
            options
        };
        let families = ["default", META].map(|name| ColumnFamilyDescriptor::new(name, family(&options)));
        let db = DB::open_cf_descriptors(&options, path, families).map_err(open)?;
        let state = Self { db: Arc::new(db), path: path.to_owned(), next: Arc::default(), written: Arc::default(), key: Vec::new() };
        match state.meta(KEY_LAYOUT)? {
            None => state.db.put_cf(state.meta_family(), KEY_LAYOUT, LAYOUT.to_be_bytes()).map_err(engine)?,
            Some(found) if found == LAYOUT => {}
            Some(found) => return Err(Error::Layout { found, expected: LAYOUT }),
        }
        *state.next.lock().unwrap_or_else(PoisonError::into_inner) = state.meta(KEY_NEXT)?.unwrap_or(1);
        Ok(state)
    }

    fn meta_family(&self) -> &ColumnFamily {
        self.db.cf_handle(META).expect("the family is opened or made with the directory")
    }

    fn meta(&self, key: &[u8]) -> Result<Option<u32>, Error> {
        let bytes = self.db.get_pinned_cf(self.meta_family(), key).map_err(engine)?;
        bytes
            .map(|b| <[u8; 4]>::try_from(&*b).map(u32::from_be_bytes).map_err(|_| Error::Corrupt { what: "a number of the meta family" }))
            .transpose()
    }

    /// Bytes on disk and in write buffers of all replicas, by the engine's own estimate.
    pub fn bytes(&self) -> u64 {
        let property = |name| self.db.property_int_value(name).ok().flatten().unwrap_or(0);
        property("rocksdb.total-sst-files-size") + property("rocksdb.cur-size-all-mem-tables")
    }

    /// What each replica's slots take, by the replica's full name. Bytes of files are the engine's own count for the slot's range of keys; its write
    /// buffers are shared out by what was written of late, and its estimate of all keys by bytes: it counts none of them by range.
    pub fn usage(&self) -> Result<BTreeMap<String, Usage>, Error> {
        let mut slots: Vec<(String, u32)> = Vec::new();
        for pair in self.db.iterator_cf(self.meta_family(), IteratorMode::From(&[1], Direction::Forward)) {
            let (key, value) = pair.map_err(engine)?;
            let Some(name) = key.strip_prefix(&[1]).and_then(|rest| rest.get(8..)) else { break };
            let number = <[u8; 4]>::try_from(&*value).map_err(|_| Error::Corrupt { what: "a number of the meta family" })?;
            slots.push((String::from_utf8_lossy(name).into_owned(), u32::from_be_bytes(number)));
        }
        let bounds: Vec<_> = slots.iter().map(|(_, slot)| (slot.to_be_bytes(), (slot + 1).to_be_bytes())).collect();
        let ranges: Vec<Range<'_>> = bounds.iter().map(|(low, high)| Range::new(low, high)).collect();
        let files = self.db.get_approximate_sizes_cf(self.data_family(), &ranges);
        let property = |name| self.db.property_int_value_cf(self.data_family(), name).map(|n| n.unwrap_or(0) as f64).map_err(engine);
        let (buffers, keys) = (property("rocksdb.cur-size-all-mem-tables")?, property("rocksdb.estimate-num-keys")?);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let all = written.values().sum::<u64>().max(1) as f64;
        let share = |slot: u32| buffers * written.get(&slot).copied().unwrap_or(0) as f64 / all;
        let sizes: Vec<f64> = slots.iter().zip(files).map(|((_, slot), files)| files as f64 + share(*slot)).collect();
        written.values_mut().for_each(|bytes| *bytes /= 2);
        let total = sizes.iter().sum::<f64>().max(1.0);
        let mut usage: BTreeMap<String, Usage> = BTreeMap::new();
        for ((replica, _), size) in slots.into_iter().zip(sizes) {
            let used = usage.entry(replica).or_default();
            used.bytes += size;
            used.keys += keys * size / total;
        }
        Ok(usage)
    }

    fn data_family(&self) -> &ColumnFamily {
        self.db.cf_handle("default").expect("the default family always exists")
    }

    fn name_key(name: &SlotName) -> Vec<u8> {
        let mut key = vec![1];
        key.extend_from_slice(&name.generation.to_be_bytes());
        key.extend_from_slice(&name.partition.to_be_bytes());
        key.extend_from_slice(name.replica.as_bytes());
        key
    }

    fn meta_key(slot: Slot) -> [u8; 5] {
        let [a, b, c, d] = slot.0.to_be_bytes();
        [2, a, b, c, d]
    }
}

/// The numbers of keys in the order of the keys. Keys of one table begin alike, so what follows that is compared as a number first.
fn sorted(keys: &[&[u8]]) -> impl Iterator<Item = usize> {
    let first = keys.first().copied().unwrap_or_default();
    let alike = keys.iter().fold(first.len(), |alike, key| first[..alike].iter().zip(*key).take_while(|(a, b)| a == b).count());
    let head = |key: &[u8]| {
        let mut bytes = [0; 8];
        let rest = &key[alike..];
        let count = rest.len().min(8);
        bytes[..count].copy_from_slice(&rest[..count]);
        u64::from_be_bytes(bytes)
    };
    let mut order: Vec<(u64, u32)> = (0..).zip(keys).map(|(i, key)| (head(key), i)).collect();
    order.sort_unstable_by(|(a, i), (b, j)| a.cmp(b).then_with(|| keys[*i as usize].cmp(keys[*j as usize])));
    order.into_iter().map(|(_, i)| i as usize)
}

impl State for RocksState {
    fn open(&mut self, name: &SlotName) -> Result<(Slot, Option<Vec<u8>>), Error> {
        match self.meta(&Self::name_key(name))? {
            None => Ok((self.discard(name)?, None)),
            Some(number) => {
                let slot = Slot(number);
                Ok((slot, self.db.get_cf(self.meta_family(), Self::meta_key(slot)).map_err(engine)?))
            }
        }
    }

    fn read(&mut self, slot: Slot, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<(), Error> {
        let family = self.data_family();
        let prefix = slot.0.to_be_bytes();
        let order: Vec<usize> = sorted(keys).collect();
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        // Sorted look-ups in groups share index and filter blocks; a group bounds what is pinned at once.
        for group in order.chunks(1024) {
            bytes.clear();
            ends.clear();
            for i in group {
                bytes.extend_from_slice(&prefix);
                bytes.extend_from_slice(keys[*i]);
                ends.push(bytes.len());
            }
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let prefixed: Vec<&[u8]> = starts.zip(&ends).map(|(start, end)| &bytes[start..*end]).collect();
            let values = self.db.batched_multi_get_cf(family, &prefixed, true);
            for (i, value) in group.iter().zip(values) {
                if let Some(value) = value.map_err(engine)? {
                    found(*i, &value);
                }
            }
        }
        Ok(())
    }

    fn scan(&mut self, slot: Slot, behind: Option<&[u8]>, found: Found<'_>) -> Result<(), Error> {
        let mut low = slot.0.to_be_bytes().to_vec();
        if let Some(behind) = behind {
            // The least key above it.
            low.extend_from_slice(behind);
            low.push(0);
        }
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound((slot.0 + 1).to_be_bytes());
        for pair in self.db.iterator_opt(IteratorMode::From(&low, Direction::Forward), options) {
            let (key, value) = pair.map_err(engine)?;
            if found(key.get(4..).ok_or(Error::Corrupt { what: "a key without its slot" })?, &value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, slot: Slot, writes: &Writes, meta: &[u8]) -> Result<(), Error> {
        let mut batch = WriteBatch::default();
        let mut key = std::mem::take(&mut self.key);
        let (names, values): (Vec<&[u8]>, Vec<&[u8]>) = writes.iter().unzip();
        for i in sorted(&names) {
            key.clear();
            key.extend_from_slice(&slot.0.to_be_bytes());
            key.extend_from_slice(names[i]);
            batch.put(&key, values[i]);
        }
        self.key = key;
        batch.put_cf(self.meta_family(), Self::meta_key(slot), meta);
        *self.written.lock().unwrap_or_else(PoisonError::into_inner).entry(slot.0).or_default() += batch.size_in_bytes() as u64;
        // Keys in order, each looked for behind the one before it: half the work of a write.
        let mut options = WriteOptions::default();
        options.set_memtable_insert_hint_per_batch(true);
        self.db.write_opt(batch, &options).map_err(engine)
    }

    fn discard(&mut self, name: &SlotName) -> Result<Slot, Error> {
        let key = Self::name_key(name);
        let old = self.meta(&key)?;
        let next = Arc::clone(&self.next);
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = Slot(*next);
        *next += 1;
        let mut batch = WriteBatch::default();
        let meta = self.meta_family();
        batch.put_cf(meta, &key, slot.0.to_be_bytes());
        batch.put_cf(meta, KEY_NEXT, next.to_be_bytes());
        if let Some(old) = old {
            batch.delete_cf(meta, Self::meta_key(Slot(old)));
            batch.delete_range(old.to_be_bytes(), (old + 1).to_be_bytes());
        }
        self.db.write(batch).map_err(engine)?;
        Ok(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot_name(replica: &str) -> SlotName {
        SlotName { replica: replica.to_owned(), generation: 0, partition: 0 }
    }

    fn fill(state: &mut RocksState, replica: &str, keys: u32) {
        let (slot, _) = state.open(&slot_name(replica)).expect("opens");
        let mut writes = Writes::default();
        for key in 0..keys {
            writes.put(&key.to_be_bytes(), |out| out.extend_from_slice(&[7; 100]));
        }
        state.write(slot, &writes, b"meta").expect("writes");
    }

    #[test]
    fn state_of_an_older_layout_is_discarded_and_one_of_a_newer_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |layout: u32| {
            let mut state = RocksState::open_directory(folder.path()).expect("opens");
            fill(&mut state, "shop.local.t", 10);
            state.db.put_cf(state.meta_family(), KEY_LAYOUT, layout.to_be_bytes()).expect("writes");
        };
        put(LAYOUT - 1);
        let mut state = RocksState::open_directory(folder.path()).expect("begins anew");
        let (slot, meta) = state.open(&slot_name("shop.local.t")).expect("opens");
        assert_eq!(meta, None, "nothing of it is trusted");
        state.scan(slot, None, &mut |_, _| panic!("nothing of it is left")).expect("reads");
        drop(state);
        put(LAYOUT + 1);
        let refused = RocksState::open_directory(folder.path()).expect_err("a newer build's");
        assert!(matches!(refused, Error::Layout { found, expected } if (found, expected) == (LAYOUT + 1, LAYOUT)), "{refused}");
    }

    #[test]
    fn keys_are_put_in_order_whatever_they_begin_with() {
        let mut bytes = 0x2545_F491_4F6C_DD1D_u64;
        let mut keys: Vec<Vec<u8>> = vec![Vec::new(); 2];
        for length in [0, 1, 7, 8, 9, 20] {
            for _ in 0..50 {
                bytes ^= bytes << 13;
                bytes ^= bytes >> 7;
                bytes ^= bytes << 17;
                let tail = bytes.to_be_bytes().into_iter().cycle().map(|b| b & 1);
                keys.push([3, 4].into_iter().take(length).chain(tail).take(length).collect());
            }
        }
        for from in [0, 2, 60, 200] {
            let keys: Vec<&[u8]> = keys[from..].iter().map(Vec::as_slice).collect();
            let found: Vec<&[u8]> = sorted(&keys).map(|i| keys[i]).collect();
            let mut expected = keys.clone();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
        assert_eq!(sorted(&[]).count(), 0);
    }

    #[test]
    fn each_replica_is_told_what_it_takes() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut state = RocksState::open_directory(folder.path()).expect("opens");
        fill(&mut state, "shop.local.large", 30_000);
        fill(&mut state, "shop.local.small", 10_000);
        let _ = state.open(&slot_name("shop.local.none")).expect("opens");
        let check = |when: &str, state: &RocksState| {
            let usage = state.usage().expect("measures");
            let keys = |name: &str| usage[name].keys;
            assert!((20_000.0..=40_000.0).contains(&keys("shop.local.large")), "{when}: {usage:?}");
            assert!((5_000.0..=15_000.0).contains(&keys("shop.local.small")), "{when}: {usage:?}");
            assert!(keys("shop.local.none") < 100.0, "{when}: {usage:?}");
            assert!(usage["shop.local.large"].bytes > usage["shop.local.small"].bytes * 2.0, "{when}: {usage:?}");
        };
        check("in write buffers", &state);
        state.db.flush_cf(state.data_family()).expect("flushes");
        check("in files", &state);
    }
}
