//! Images by URL: fetched with limits, from public addresses only, and replaced by their data.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value as Json, json};

use super::api_error::ApiError;
use agent_tools::handlers::fetch::download;

/// Cursor takes no larger images.
const MAX_BYTES: usize = 5 * 1024 * 1024;
/// How many images of a request are fetched, and how many of them at once.
const MAX_IMAGES: usize = 20;
const AT_ONCE: usize = 4;
/// How much base64 the images of a request may be together, as in a body, and how much is remembered,
/// because a client sends the same URL with every request.
const MAX_TOTAL: usize = super::MAX_BODY_BYTES;

/// Fetches images and remembers the last ones.
#[derive(Debug, Default)]
pub(super) struct ImageFetcher {
    allow_private: bool,
    remembered: Mutex<VecDeque<(String, Arc<FetchedImage>)>>,
}

#[derive(Debug)]
struct FetchedImage {
    mime_type: String,
    data: String,
}

impl ImageFetcher {
    pub(super) fn new(allow_private: bool) -> Self {
        Self {
            allow_private,
            ..Self::default()
        }
    }

    /// Replaces the images by URL in the contents of messages. Each is fetched once.
    pub(super) async fn inline<'a>(
        &self,
        contents: impl IntoIterator<Item = &'a mut Json>,
    ) -> Result<(), ApiError> {
        let mut parts = remote_parts(contents);
        let mut urls: Vec<String> = parts.iter().map(|(_, url)| url.clone()).collect();
        urls.sort_unstable();
        urls.dedup();
        if urls.len() > MAX_IMAGES {
            let problem = format!("at most {MAX_IMAGES} images by URL are fetched");
            return Err(ApiError::field("", &problem));
        }
        let fetches: Vec<_> = urls.into_iter().map(|url| self.fetch_named(url)).collect();
        let mut fetching = stream::iter(fetches).buffer_unordered(AT_ONCE);
        let (mut fetched, mut total) = (HashMap::new(), 0);
        while let Some(image) = fetching.next().await {
            let (url, image) = image?;
            total += image.data.len();
            if total > MAX_TOTAL {
                let problem =
                    "the images by URL are too large together; at most 24 MiB are fetched";
                return Err(ApiError::field("", problem));
            }
            fetched.insert(url, image);
        }
        for (part, url) in &mut parts {
            if let Some(image) = fetched.get(url.as_str()) {
                replace(part, image);
            }
        }
        Ok(())
    }

    async fn fetch_named(&self, url: String) -> Result<(String, Arc<FetchedImage>), ApiError> {
        let image = self.fetch(&url).await?;
        Ok((url, image))
    }

    async fn fetch(&self, url: &str) -> Result<Arc<FetchedImage>, ApiError> {
        if let Some(image) = self.find(url) {
            return Ok(image);
        }
        let wrong = |problem: &str| {
            let name = without_secrets(url);
            ApiError::field(
                "",
                &format!("the image {name:?} was not fetched: {problem}"),
            )
        };
        let fetched = download(url, self.allow_private, MAX_BYTES + 1).await;
        let fetched = fetched.map_err(|error| wrong(&error.to_string()))?;
        if fetched.status != 200 {
            return Err(wrong(&format!("its server answered {}", fetched.status)));
        }
        if fetched.body.len() > MAX_BYTES {
            return Err(wrong("it has more than 5 MiB"));
        }
        let kind = fetched
            .content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        if !kind.starts_with("image/") {
            return Err(wrong("it is not an image"));
        }
        let image = Arc::new(FetchedImage {
            mime_type: kind.to_owned(),
            data: STANDARD.encode(&fetched.body),
        });
        self.remember(url, &image);
        Ok(image)
    }

    fn find(&self, url: &str) -> Option<Arc<FetchedImage>> {
        let remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let found = remembered.iter().find(|(known, _)| known == url);
        found.map(|(_, image)| Arc::clone(image))
    }

    fn remember(&self, url: &str, image: &Arc<FetchedImage>) {
        let mut remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        remembered.push_back((url.to_owned(), Arc::clone(image)));
        let mut total: usize = remembered.iter().map(|(_, image)| image.data.len()).sum();
        while total > MAX_TOTAL
            && let Some((_, oldest)) = remembered.pop_front()
        {
            total -= oldest.data.len();
        }
    }
}

/// Returns the parts of contents that are images by URL, and their URLs.
fn remote_parts<'a>(
    contents: impl IntoIterator<Item = &'a mut Json>,
) -> Vec<(&'a mut Json, String)> {
    let mut found = Vec::new();
    let mut open: Vec<&mut Json> = contents.into_iter().collect();
    while let Some(content) = open.pop() {
        let Json::Array(parts) = content else {
            continue;
        };
        for part in parts {
            if let Some(url) = remote_url(part) {
                found.push((part, url));
            } else if let Some(nested) = part.get_mut("content") {
                // Results of tools have parts of their own.
                open.push(nested);
            }
        }
    }
    found
}

/// Returns the URL of an image that is not in the request, in any API's form.
fn remote_url(part: &Json) -> Option<String> {
    let url = match part["type"].as_str()? {
        "image_url" => part["image_url"]["url"]
            .as_str()
            .or(part["image_url"].as_str()),
        "input_image" => part["image_url"].as_str(),
        "image" if part["source"]["type"] == "url" => part["source"]["url"].as_str(),
        _ => None,
    };
    let is_remote = |url: &&str| {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|s| s.eq_ignore_ascii_case("http") || s.eq_ignore_ascii_case("https"))
    };
    url.filter(is_remote).map(str::to_owned)
}

/// Returns a URL without its query and its user, which may be secret.
fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

fn replace(part: &mut Json, image: &FetchedImage) {
    let FetchedImage { mime_type, data } = image;
    let url = || format!("data:{mime_type};base64,{data}");
    match part["type"].as_str() {
        Some("image_url") => part["image_url"] = json!({ "url": url() }),
        Some("input_image") => part["image_url"] = url().into(),
        _ => {
            part["source"] = json!({"type": "base64", "media_type": mime_type, "data": data});
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::routing::get;

    use super::*;

    /// Serves images of this size on this machine; returns the address and how often it was asked.
    async fn server(size: usize) -> (String, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let image = async move || {
            count.fetch_add(1, Ordering::SeqCst);
            ([("content-type", "image/png")], vec![0; size])
        };
        let app = axum::Router::new().route("/{name}", get(image));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        (format!("http://{address}"), asked)
    }

    fn images(root: &str, names: impl Iterator<Item = usize>) -> Json {
        let parts = names.map(
            |name| json!({"type": "image_url", "image_url": {"url": format!("{root}/{name}")}}),
        );
        parts.collect()
    }

    #[tokio::test]
    async fn each_image_is_fetched_once() {
        let (root, asked) = server(9).await;
        let fetcher = ImageFetcher::new(true);
        for _ in 0..2 {
            let mut content = images(&root, (0..30).map(|at| at % 10));
            fetcher.inline([&mut content]).await.unwrap();
            for part in content.as_array().unwrap() {
                let url = part["image_url"]["url"].as_str().unwrap();
                assert!(url.starts_with("data:image/png;base64,AAAA"), "{url}");
            }
        }
        assert_eq!(asked.load(Ordering::SeqCst), 10);
        let mut content = images(&root, 0..=MAX_IMAGES);
        assert!(fetcher.inline([&mut content]).await.is_err());
    }

    #[tokio::test]
    async fn images_are_limited_together() {
        let (root, _) = server(MAX_BYTES).await;
        let fetcher = ImageFetcher::new(true);
        let mut content = images(&root, 0..4);
        fetcher.inline([&mut content]).await.unwrap();
        let mut content = images(&root, 0..5);
        let error = fetcher.inline([&mut content]).await.unwrap_err();
        assert!(error.message().contains("too large together"), "{error:?}");
    }

    #[tokio::test]
    async fn private_addresses_are_not_fetched() {
        let images = ImageFetcher::default();
        let url = "HTTP://me:secret@127.0.0.1:9/a.png?token=secret";
        for part in [
            json!({"type": "image_url", "image_url": {"url": url}}),
            json!({"type": "input_image", "image_url": url}),
            json!({"type": "image", "source": {"type": "url", "url": url}}),
            json!({"type": "tool_result", "content":
                [{"type": "image", "source": {"type": "url", "url": url}}]}),
        ] {
            let mut content = json!([part]);
            let error = images.inline([&mut content]).await.unwrap_err();
            assert!(error.message().contains("127.0.0.1"), "{}", error.message());
            assert!(!error.message().contains("secret"), "{}", error.message());
        }
        let mut other = json!([{"type": "text", "text": url}]);
        images.inline([&mut other]).await.unwrap();
    }
}
