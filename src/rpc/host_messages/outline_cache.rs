//! The outlines of the messages that were read, found by the text of the message.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};

use agent::message::MessageOutline;

/// When this many outlines are kept, those that were not used since the last time are dropped. One
/// takes about a hundred bytes.
const MOST: usize = 32 * 1024;

/// Outlines by the text of the message.
#[derive(Debug, Default)]
pub(super) struct OutlineCache {
    /// Keys are hashes, because texts would take as much memory as the histories. They are
    /// different in every process, so no text can be made for the key of another one.
    hasher: RandomState,
    kept: Mutex<Generations>,
}

/// Identifies a text in this process: its hash and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TextKey(u64, usize);

#[derive(Debug, Default)]
struct Generations {
    current: HashMap<TextKey, MessageOutline>,
    last: HashMap<TextKey, MessageOutline>,
}

impl OutlineCache {
    /// Returns the key of a text.
    pub(super) fn key(&self, text: &str) -> TextKey {
        TextKey(self.hasher.hash_one(text), text.len())
    }

    /// Returns the outlines that are known.
    pub(super) fn get(&self, keys: &[TextKey]) -> Vec<Option<MessageOutline>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        keys.iter().map(|key| kept.get(*key)).collect()
    }

    /// Keeps outlines.
    pub(super) fn keep(&self, outlines: Vec<(TextKey, MessageOutline)>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, outline) in outlines {
            kept.insert(key, outline);
        }
    }
}

impl Generations {
    fn get(&mut self, key: TextKey) -> Option<MessageOutline> {
        if let Some(known) = self.current.get(&key) {
            return Some(known.clone());
        }
        let known = self.last.remove(&key)?;
        self.insert(key, known.clone());
        Some(known)
    }

    fn insert(&mut self, key: TextKey, outline: MessageOutline) {
        if self.current.len() >= MOST {
            self.last = std::mem::take(&mut self.current);
        }
        self.current.insert(key, outline);
    }
}

#[cfg(test)]
mod tests {
    use agent::message::Message;

    use super::*;

    #[test]
    fn what_is_not_used_is_dropped_when_the_cache_is_full() {
        let cache = OutlineCache::default();
        let outline = MessageOutline::of(&Message::user("x").at(1), 0).unwrap();
        let keys: Vec<TextKey> = (0..3 * MOST).map(|n| cache.key(&n.to_string())).collect();
        let add = |range: std::ops::Range<usize>| {
            let new = keys[range].iter().map(|key| (*key, outline.clone()));
            cache.keep(new.collect());
        };
        let is_known = |at: usize| cache.get(&keys[at..=at])[0].is_some();
        add(0..MOST);
        assert!(is_known(0) && is_known(MOST - 1));
        add(MOST..MOST + 1);
        assert!(is_known(0), "it is used again");
        add(MOST + 1..2 * MOST);
        assert!(is_known(0) && !is_known(1));
        let kept = cache.kept.lock().unwrap();
        assert!(kept.current.len() + kept.last.len() <= 2 * MOST);
    }
}
