//! Size limits for what a server sends. A server that exceeds one is broken or hostile: the run
//! ends with an error that names the limit, so that memory stays bounded.

/// Text and thinking of a run, over all its attempts. Several copies are held during a turn (for
/// the host, for recovery, for usage), so the peak is a multiple of this.
pub(super) const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// The largest text event. Longer text is split, because each event is copied and encoded as a
/// whole on its way to the host.
pub(super) const MAX_PIECE: usize = 64 * 1024;
/// Blobs of a conversation that is kept in memory only.
pub(super) const MAX_MEMORY_BLOBS: usize = 64 * 1024 * 1024;

/// A size limit that the server exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Too much text and thinking.
    #[error(
        "Cursor sent more than {} MiB of text and thinking in one run; the run was ended. Ask again, or split the task",
        mib(*limit)
    )]
    Answer {
        /// The limit in bytes.
        limit: usize,
    },
    /// Too many or too large blobs.
    #[error(
        "Cursor stored more than {} MiB of blobs in this conversation; the run was ended. Ask again: the next turn starts a new conversation from the history",
        mib(*limit)
    )]
    Blobs {
        /// The limit in bytes.
        limit: usize,
    },
}

fn mib(bytes: usize) -> usize {
    bytes / (1024 * 1024)
}

/// Splits text into pieces of at most [`MAX_PIECE`] bytes, at character boundaries.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len().min(MAX_PIECE);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, remaining) = rest.split_at(end);
        rest = remaining;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_split_at_character_boundaries_without_loss() {
        let text = "ä€𝄞".repeat(MAX_PIECE / 4);
        let cut: Vec<&str> = pieces(&text).collect();
        assert!(cut.len() > 2);
        assert!(cut.iter().all(|piece| piece.len() <= MAX_PIECE));
        assert_eq!(cut.concat(), text);
        assert_eq!(pieces("short").collect::<Vec<_>>(), ["short"]);
        assert_eq!(pieces("").count(), 0);
    }
}
