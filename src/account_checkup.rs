//! The checks of the account: where the credential comes from, and which others are not used.

use std::time::{Duration, SystemTime};

use crate::checkup::Finding;
use crate::config::Config;
use crate::usage_report;
use agent::run::Backend;
use cursor_client::account::{
    Credential, CredentialSource, KeyError, StoredLogin, credential_of, find_credential,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the credential in use and the sources that it takes precedence over. `host` is set if
/// the host has sent the credential in use, and `no_key` is what a user without one can do.
pub(crate) fn check(config: &Config, host: Option<CredentialSource>, no_key: &str) -> Vec<Finding> {
    let options = &config.client;
    let source = match (host, find_credential(None, options)) {
        (Some(source), _) => source,
        (None, Ok((_, source))) => source,
        (None, Err(KeyError::Missing)) => {
            let mut findings = vec![Finding::problem(no_key)];
            findings.extend(cli_login_missing(config));
            return findings;
        }
        (None, Err(error)) => return vec![Finding::problem(error.to_string())],
    };
    let mut findings = vec![in_use(source, config)];
    findings.extend(cli_login_missing(config));
    let unused = CredentialSource::OWN.into_iter();
    let unused = unused.skip_while(|other| {
        // The sources before the one in use have no credential.
        source != CredentialSource::Host && *other != source
    });
    let unused =
        unused.filter(|other| *other != source && credential_of(*other, options).is_some());
    findings.extend(unused.map(|other| {
        let text = format!("also there, not used: {}", name(other));
        Finding::ok(text)
    }));
    findings
}

/// Verifies the credential with Cursor and returns the plan and its usage.
pub(crate) async fn online(backend: &Backend) -> Vec<Finding> {
    if let Err(error) = backend.account.token().await {
        return vec![Finding::problem(error.to_string())];
    }
    let taken = format!("{} takes the key", backend.endpoints.backend);
    let mut findings = vec![Finding::ok(taken)];
    let dashboard = backend.dashboard();
    let (profile, plan) = tokio::join!(
        dashboard.user(&backend.account),
        dashboard.plan(&backend.account)
    );
    match plan {
        Ok(plan) => {
            let profile = profile.unwrap_or_default();
            let lines = usage_report::lines(&profile, &plan, SystemTime::now());
            findings.extend(lines.into_iter().map(Finding::ok));
        }
        Err(error) => {
            let text = format!("the plan and its usage are not known: {error}");
            findings.push(Finding::warning(text));
        }
    }
    findings
}

/// Returns a warning if the login of the Cursor CLI may be used, but there is none.
fn cli_login_missing(config: &Config) -> Option<Finding> {
    let options = &config.client;
    let is_missing = !options.cli_logins.is_empty()
        && credential_of(CredentialSource::CursorCli, options).is_none();
    is_missing.then(|| {
        Finding::warning("PI_CURSOR_USE_CLI_LOGIN is on, but there is no login of the Cursor CLI")
    })
}

fn in_use(source: CredentialSource, config: &Config) -> Finding {
    if source == CredentialSource::Login
        && let Ok(Some(login)) = StoredLogin::load(&config.client)
    {
        return login_finding(&login, SystemTime::now());
    }
    let expiry = match credential_of(source, &config.client) {
        Some(Ok(Credential::Login(tokens))) => tokens.expires(),
        _ => None,
    };
    match expiry {
        Some(expiry) if expiry <= SystemTime::now() => {
            Finding::problem(format!("key: {} has expired", name(source)))
        }
        _ => Finding::ok(format!("key: from {}", name(source))),
    }
}

/// Returns the name of a source for the user.
pub(crate) fn name(source: CredentialSource) -> &'static str {
    match source {
        CredentialSource::Host => "the host (its option, or what its user stored there)",
        CredentialSource::Environment => "CURSOR_API_KEY",
        CredentialSource::AccessToken => "CURSOR_ACCESS_TOKEN",
        CredentialSource::Login => "the login of `cursor-sidecar login`",
        CredentialSource::CursorCli => "the login of the Cursor CLI (PI_CURSOR_USE_CLI_LOGIN)",
    }
}

/// Describes a login that has not ended.
fn login_finding(login: &StoredLogin, now: SystemTime) -> Finding {
    let owner = login.email.as_deref().unwrap_or("an unknown account");
    let left = |expiry: SystemTime| expiry.duration_since(now).unwrap_or_default();
    let days = login
        .expires()
        .map(|expiry| left(expiry).as_secs() / DAY.as_secs());
    let validity = match (&login.credential, days) {
        (Credential::Key(_), Some(days)) => format!("valid for {days} more days"),
        (Credential::Login(tokens), _) if tokens.refresh.is_some() => {
            "renewed when it is used".to_owned()
        }
        (_, Some(days)) => format!("valid for {days} more days, cannot be renewed"),
        (_, None) => "of unknown validity".to_owned(),
    };
    Finding::ok(format!("key: of the login as {owner}, {validity}"))
}
