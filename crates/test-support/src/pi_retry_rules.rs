//! How pi handles an error, depending on its message.

use std::sync::LazyLock;

use regex::Regex;

static SIGNS: LazyLock<Regex> = LazyLock::new(|| {
    let signs = "overloaded|rate.?limit|too many requests|429|50[0234]|service.?unavailable\
        |server.?error|internal.?error|network.?error|connection.?(error|refused|lost)\
        |other side closed|fetch failed|socket hang up|timed? out|timeout|terminated|ended without";
    Regex::new(&format!("(?i){signs}")).unwrap()
});

/// How often pi retries without the user.
pub const MAX_RETRIES: usize = 3;

/// Returns whether pi retries without the user. The retry does not include the failed answer.
pub fn is_retryable(error: &str) -> bool {
    SIGNS.is_match(error)
}
