//! Images by URL: fetched with limits, from public addresses only, and replaced by their data.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

use super::api_error::ApiError;
use agent_tools::handlers::fetch::download;

/// Cursor takes no larger images.
const MAX_BYTES: usize = 5 * 1024 * 1024;
/// How many images of a request are fetched.
const MAX_IMAGES: usize = 20;
/// How much is remembered, because a client sends the same URL with every request.
const MAX_REMEMBERED: usize = 32 * 1024 * 1024;

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

    /// Replaces the images by URL in the contents of messages.
    pub(super) async fn inline<'a>(
        &self,
        contents: impl IntoIterator<Item = &'a mut Json>,
    ) -> Result<(), ApiError> {
        let mut count = 0;
        let mut open: Vec<&mut Json> = contents.into_iter().collect();
        while let Some(content) = open.pop() {
            let Json::Array(parts) = content else {
                continue;
            };
            for part in parts {
                if let Some(url) = remote_url(part) {
                    count += 1;
                    if count > MAX_IMAGES {
                        let problem = format!("at most {MAX_IMAGES} images by URL are fetched");
                        return Err(ApiError::field("", &problem));
                    }
                    let image = self.fetch(&url).await?;
                    replace(part, &image);
                } else if let Some(nested) = part.get_mut("content") {
                    // Results of tools have parts of their own.
                    open.push(nested);
                }
            }
        }
        Ok(())
    }

    async fn fetch(&self, url: &str) -> Result<Arc<FetchedImage>, ApiError> {
        if let Some(image) = self.find(url) {
            return Ok(image);
        }
        let wrong = |problem: &str| {
            // The query of a URL may be a secret.
            let name = url.split('?').next().unwrap_or_default();
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
        while total > MAX_REMEMBERED
            && let Some((_, oldest)) = remembered.pop_front()
        {
            total -= oldest.data.len();
        }
    }
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
    let is_remote = |url: &&str| url.starts_with("http://") || url.starts_with("https://");
    url.filter(is_remote).map(str::to_owned)
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
    use super::*;

    #[tokio::test]
    async fn private_addresses_are_not_fetched() {
        let images = ImageFetcher::default();
        let url = "http://127.0.0.1:9/a.png?token=secret";
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
