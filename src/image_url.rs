//! Images in `data:` URLs.

/// What an image must look like.
pub(crate) const EXPECTED: &str =
    "expected a picture as data:image/…;base64,…; others are not fetched";

/// Returns the type and the base64 data of an image that is embedded in a URL. Others are not
/// fetched, because the sidecar connects to Cursor only.
pub(crate) fn parse(url: &str) -> Option<(String, String)> {
    let (kind, data) = url.strip_prefix("data:")?.split_once(',')?;
    let kind = kind.strip_suffix(";base64")?;
    Some((kind.to_owned(), data.to_owned()))
}
