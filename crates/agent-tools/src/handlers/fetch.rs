//! Fetching a page over http or https, bounded in size and time. Addresses on this machine or
//! in private networks are refused unless the user allowed them.
//!
//! Addresses are checked in the resolver that the connection uses, because a DNS answer could
//! change between a separate check and the connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::prompts::{refusals, tools};
use cursor_proto::agent::v1::{FetchArgs, FetchError, FetchResult, FetchSuccess, fetch_result};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect;
use tokio_util::sync::CancellationToken;
use url::{Host, Url};

const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_BYTES: usize = 5 * 1024 * 1024;
const HOPS: usize = 10;
/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Why a page could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchFailure {
    /// It is not a URL.
    #[error("Failed to parse URL from {0}")]
    Url(String),
    /// Neither http nor https.
    #[error("{}", tools::ONLY_HTTP)]
    Scheme,
    /// An address on this machine or in a private network.
    #[error("{}", refusals::private_address(.0))]
    Private(String),
    /// The request failed.
    #[error("fetch failed")]
    Http(#[source] reqwest::Error),
    /// It was cancelled.
    #[error("{}", tools::FETCH_CANCELLED)]
    Cancelled,
}

impl FetchFailure {
    /// Returns the failure of a request to a host; for a redirect, its first one.
    fn of(error: reqwest::Error, host: String) -> Self {
        let first: &(dyn std::error::Error + 'static) = &error;
        let mut causes = std::iter::successors(Some(first), |error| error.source());
        if causes.any(|cause| cause.is::<NoPublicAddress>()) {
            Self::Private(host)
        } else {
            Self::Http(error)
        }
    }
}

/// What a server returned, up to a size.
#[derive(Debug)]
pub struct Download {
    /// The HTTP status.
    pub status: u16,
    /// The type that the server names.
    pub content_type: String,
    /// The body, cut at the maximum size.
    pub body: Vec<u8>,
}

/// Executes one fetch request.
pub(super) async fn fetch(
    args: FetchArgs,
    allow_private: bool,
    abort: CancellationToken,
) -> FetchResult {
    let page = tokio::select! {
        page = page(&args.url, allow_private) => page,
        () = abort.cancelled() => Err(FetchFailure::Cancelled),
    };
    let result = match page {
        Ok(success) => fetch_result::Result::Success(success),
        Err(failure) => fetch_result::Result::Error(FetchError {
            error: failure.to_string(),
            url: args.url,
        }),
    };
    FetchResult {
        result: Some(result),
    }
}

async fn page(given: &str, allow_private: bool) -> Result<FetchSuccess, FetchFailure> {
    let page = download(given, allow_private, MAX_BYTES).await?;
    let body = page.body.strip_prefix(MARK).unwrap_or(&page.body);
    Ok(FetchSuccess {
        url: given.to_owned(),
        content: String::from_utf8_lossy(body).into_owned(),
        status_code: page.status.into(),
        content_type: page.content_type,
    })
}

/// Downloads at most `max_bytes` from a URL, within 30 s and from public addresses only unless
/// `allow_private`.
pub async fn download(
    given: &str,
    allow_private: bool,
    max_bytes: usize,
) -> Result<Download, FetchFailure> {
    let url = Url::parse(given).map_err(|_| FetchFailure::Url(given.into()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(FetchFailure::Scheme);
    }
    if !allow_private && is_private_host(&url) {
        tracing::warn!("refused to fetch from a private address");
        return Err(FetchFailure::Private(
            url.host_str().unwrap_or_default().into(),
        ));
    }
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("cursor-sidecar/", env!("CARGO_PKG_VERSION")))
        .timeout(TIMEOUT)
        // A URL may contain secrets that only its own server should see.
        .referer(false);
    if !allow_private {
        builder = builder
            // A proxy resolves names itself, and may reach networks that we cannot.
            .no_proxy()
            .dns_resolver(Arc::new(PublicOnly))
            .redirect(redirect::Policy::custom(|attempt| {
                if attempt.previous().len() > HOPS || is_private_host(attempt.url()) {
                    attempt.error("a redirect that is not followed")
                } else {
                    attempt.follow()
                }
            }));
    }
    let client = builder.build().map_err(FetchFailure::Http)?;
    let host = url.host_str().unwrap_or_default().to_owned();
    let sent = client.get(url).send().await;
    let mut answer = sent.map_err(|error| FetchFailure::of(error, host))?;
    let status = answer.status().as_u16();
    let content_type = answer
        .headers()
        .get(reqwest::header::CONTENT_TYPE)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .unwrap_or_else(|| "text/plain".into());
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(FetchFailure::Http)? {
        let room = max_bytes - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == max_bytes {
            break;
        }
    }
    Ok(Download {
        status,
        content_type,
        body,
    })
}

/// Returns whether a URL names a private address or this machine, without a DNS lookup.
fn is_private_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => is_private(address.into()),
        Some(Host::Ipv6(address)) => is_private(address.into()),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        None => true,
    }
}

/// Returns whether an address is outside the public internet.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_private_v4(v4),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped().or_else(|| nat64(v6)) {
            Some(v4) => is_private_v4(v4),
            None => is_private_v6(v6),
        },
    }
}

/// Covers all special ranges of IANA's registry, and Azure's metadata address for its machines.
fn is_private_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    v4.is_loopback()
        || v4.is_private()
        || v4.is_link_local()
        || v4.is_broadcast()
        || v4.is_multicast()
        || v4.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (b == 18 || b == 19))
        // Protocol assignments (metadata services of some clouds), and 6to4 relays.
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || v4 == Ipv4Addr::new(168, 63, 129, 16)
}

/// Only global unicast is public, except tunnels to an IPv4 address that the sender chooses
/// (6to4, Teredo), protocol assignments and documentation.
fn is_private_v6(v6: Ipv6Addr) -> bool {
    let [first, second, ..] = v6.segments();
    first & 0xe000 != 0x2000
        || first == 0x2002
        || (first == 0x2001 && second < 0x200)
        || (first == 0x2001 && second == 0xdb8)
        || (first == 0x3fff && second < 0x1000)
}

/// Returns the IPv4 address after the well-known NAT64 prefix.
fn nat64(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = v6.segments() else {
        return None;
    };
    Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
}

/// The error for a name that stands for private addresses only.
#[derive(Debug, thiserror::Error)]
#[error("the name has no public address")]
struct NoPublicAddress;

/// Resolves names to public addresses only.
#[derive(Debug)]
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> =
                found.filter(|address| !is_private(address.ip())).collect();
            if public.is_empty() {
                return Err(NoPublicAddress.into());
            }
            let addresses: Addrs = Box::new(public.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_known_in_every_disguise() {
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://localhost:80/",
            "http://a.localhost./",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://169.254.169.254/latest",
            "http://100.64.0.1/",
            "http://[fd00::1]/",
            "http://[fe80::1]/",
            "http://0.0.0.0/",
            "http://192.0.0.192/",
            "http://168.63.129.16/",
            "http://192.88.99.1/",
            "http://198.51.100.1/",
            "http://[2002:7f00:1::]/",
            "http://[2002:a9fe:a9fe::]/",
            "http://[2001:0:a9fe:a9fe::1]/",
            "http://[64:ff9b:1::a9fe:a9fe]/",
            "http://[64:ff9b:1::1]/",
            "http://[fec0::1]/",
            "http://[::127.0.0.1]/",
            "http://[::8.8.8.8]/",
            "http://[::ffff:0:127.0.0.1]/",
            "http://[::ffff:168.63.129.16]/",
            "http://[2001:db8::1]/",
            "http://[100::1]/",
        ] {
            assert!(is_private_host(&Url::parse(url).unwrap()), "{url}");
        }
        for url in [
            "http://example.org/",
            "http://1.1.1.1/",
            "http://[2606:4700::1]/",
            "http://[2001:4860:4860::8888]/",
            "http://[64:ff9b::101:101]/",
            "http://192.0.1.1/",
            "http://168.63.129.17/",
        ] {
            assert!(!is_private_host(&Url::parse(url).unwrap()), "{url}");
        }
    }

    #[tokio::test]
    async fn names_of_this_machine_do_not_resolve() {
        let name: Name = "localhost".parse().unwrap();
        assert!(PublicOnly.resolve(name).await.is_err());
        // As a request to any name does that stands for a private address.
        let client = reqwest::Client::builder().dns_resolver(Arc::new(PublicOnly));
        let client = client.no_proxy().build().unwrap();
        let error = client.get("http://localhost:9/").send().await.unwrap_err();
        let failure = FetchFailure::of(error, "localhost".into());
        assert!(matches!(failure, FetchFailure::Private(_)), "{failure:?}");
    }

    /// The address of a page may hold a secret that is for its own server.
    #[tokio::test]
    async fn a_redirect_is_followed_without_a_referer() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/page?secret=1", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut heads = Vec::new();
            for answer in [
                "HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
            ] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
                heads.push(String::from_utf8(head).unwrap().to_ascii_lowercase());
            }
            heads
        });
        let success = page(&url, true).await.unwrap();
        assert_eq!(success.content, "ok");
        let heads = server.await.unwrap();
        assert!(heads[1].starts_with("get /next "), "{heads:?}");
        assert!(!heads[1].contains("referer"), "{heads:?}");
    }

    #[tokio::test]
    async fn other_schemes_are_refused() {
        for url in ["ftp://x/", "file:///etc/passwd", "not a url", ""] {
            assert!(page(url, true).await.is_err(), "{url}");
        }
    }
}
