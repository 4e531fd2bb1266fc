//! What pi does with an error, by its words.

use std::sync::LazyLock;

use regex::Regex;

static SIGNS: LazyLock<Regex> = LazyLock::new(|| {
    let signs = "overloaded|rate.?limit|too many requests|429|50[0234]|service.?unavailable\
        |server.?error|internal.?error|network.?error|connection.?(error|refused|lost)\
        |other side closed|fetch failed|socket hang up|timed? out|timeout|terminated|ended without";
    Regex::new(&format!("(?i){signs}")).unwrap()
});

/// How often pi asks again by itself.
pub const MOST_RETRIES: usize = 3;

/// Whether pi asks again by itself. It leaves the failed answer out of what it tells then.
pub fn is_retryable(error: &str) -> bool {
    SIGNS.is_match(error)
}
