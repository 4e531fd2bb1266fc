//! The key that stored logins are sealed with, kept in the keyring of the user's desktop.
//!
//! The files keep their atomic replacement and their locks, and a renewal needs no keyring,
//! because a process asks for the key once. The keyring is reached through `secret-tool`, which
//! comes with libsecret: a D-Bus client would add 1.4 MB to this program.

use std::io::{ErrorKind, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

const PROGRAM: &str = "secret-tool";
/// A keyring that takes longer is locked, or its service hangs.
const DEADLINE: Duration = Duration::from_secs(5);
/// After a failure the keyring is not asked again for this long, because each turn needs the key.
const FAILURE_PAUSE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);
const MAX_OUTPUT: u64 = 4096;
const KEY_BYTES: usize = 32;

/// Where the key for stored logins is. Clones share what was read.
#[derive(Debug, Clone, Default)]
pub struct Keyring {
    /// Whether new logins are sealed.
    pub seals_logins: bool,
    /// The environment of `secret-tool`.
    pub environment: Vec<(String, String)>,
    answered: Arc<Mutex<Option<KeyringAnswer>>>,
}

/// What the keyring answered last.
#[derive(Debug)]
enum KeyringAnswer {
    Key(SecretString),
    Failure(Instant, KeyringError),
}

/// Why the keyring cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// No service can be there.
    #[error("there is no keyring, because there is no D-Bus session here")]
    NoSession,
    /// `secret-tool` is not installed.
    #[error("the keyring needs the program `secret-tool`, which comes with libsecret")]
    NoProgram,
    /// It did not answer in time.
    #[error("the keyring did not answer within {} s; unlock it, then try again", DEADLINE.as_secs())]
    TimedOut,
    /// It answered with an error.
    #[error("the keyring cannot be used ({0})")]
    Failed(String),
    /// It has no key.
    #[error(
        "the keyring is locked, or has no key for this login; unlock it, or sign in again with `cursor-sidecar login`"
    )]
    NoKey,
    /// The key does not fit what was sealed.
    #[error(
        "the key in the keyring is not the one of this login; sign in again with `cursor-sidecar login`"
    )]
    WrongKey,
}

impl Keyring {
    /// Finds or creates the key of a state directory, so that a login is not begun in vain.
    pub(super) fn prepare(&self, state_dir: &Path) -> Result<(), KeyringError> {
        self.key_for_sealing(state_dir).map(drop)
    }

    /// Seals a text for `owner`, which has to be the same when it is opened.
    pub(super) fn seal(
        &self,
        state_dir: &Path,
        owner: &str,
        text: &SecretString,
    ) -> Result<String, KeyringError> {
        let key = aead_key(&self.key_for_sealing(state_dir)?)?;
        let mut sealed = text.expose_secret().as_bytes().to_vec();
        let nonce = key
            .seal_in_place_append_tag(Aad::from(owner), &mut sealed)
            .map_err(|_| KeyringError::WrongKey)?;
        let nonce: &[u8; NONCE_LEN] = nonce.as_ref();
        Ok(STANDARD.encode([&nonce[..], &sealed].concat()))
    }

    /// Opens what [`seal`](Self::seal) returned.
    pub(super) fn open(
        &self,
        state_dir: &Path,
        owner: &str,
        sealed: &str,
    ) -> Result<SecretString, KeyringError> {
        let secret = self.find_key(state_dir)?.ok_or(KeyringError::NoKey)?;
        let key = aead_key(&secret)?;
        let mut sealed = STANDARD
            .decode(sealed)
            .ok()
            .filter(|bytes| bytes.len() > NONCE_LEN)
            .ok_or(KeyringError::WrongKey)?;
        let (nonce, text) = sealed.split_at_mut(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| KeyringError::WrongKey)?;
        let text = key
            .open_in_place(nonce, Aad::from(owner), text)
            .map_err(|_| KeyringError::WrongKey)?;
        let text = std::str::from_utf8(text).map_err(|_| KeyringError::WrongKey)?;
        Ok(text.into())
    }

    /// Removes the key.
    pub(super) fn remove(&self, state_dir: &Path) -> Result<(), KeyringError> {
        *self.lock() = None;
        self.run(&["clear"], state_dir, None).map(drop)
    }

    fn key_for_sealing(&self, state_dir: &Path) -> Result<SecretString, KeyringError> {
        if let Some(key) = self.find_key(state_dir)? {
            return Ok(key);
        }
        let mut random = [0; KEY_BYTES];
        getrandom::fill(&mut random)
            .map_err(|_| KeyringError::Failed("no secure random numbers".into()))?;
        let key = SecretString::from(STANDARD.encode(random));
        foundation::secrets().learn(&key);
        let label = ["store", "--label=cursor-sidecar login"];
        let stored = self.run(&label, state_dir, Some(&key));
        let stored = stored.and_then(|answer| match answer {
            Some(_) => Ok(()),
            None => Err(KeyringError::NoKey),
        });
        *self.lock() = Some(match &stored {
            Ok(()) => KeyringAnswer::Key(key.clone()),
            Err(error) => KeyringAnswer::Failure(Instant::now(), error.clone()),
        });
        stored.map(|()| key)
    }

    /// Returns the key; `None` if the keyring has none.
    fn find_key(&self, state_dir: &Path) -> Result<Option<SecretString>, KeyringError> {
        let mut answered = self.lock();
        match &*answered {
            Some(KeyringAnswer::Key(key)) => return Ok(Some(key.clone())),
            Some(KeyringAnswer::Failure(at, error)) if at.elapsed() < FAILURE_PAUSE => {
                return Err(error.clone());
            }
            _ => {}
        }
        match self.run(&["lookup"], state_dir, None) {
            Ok(Some(key)) => {
                foundation::secrets().learn(&key);
                *answered = Some(KeyringAnswer::Key(key.clone()));
                Ok(Some(key))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                *answered = Some(KeyringAnswer::Failure(Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<KeyringAnswer>> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `secret-tool` and returns what it printed, or `None` if it found nothing. The secret goes
    /// through pipes, never through arguments.
    fn run(
        &self,
        action: &[&str],
        state_dir: &Path,
        secret: Option<&SecretString>,
    ) -> Result<Option<SecretString>, KeyringError> {
        // Without a session the program would start a D-Bus daemon of its own.
        if !self.has_session() {
            return Err(KeyringError::NoSession);
        }
        // Each state directory has a key of its own.
        let folder = Sha256::digest(state_dir.as_os_str().as_encoded_bytes());
        let folder: String = folder
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let started = Command::new(PROGRAM)
            .args(action)
            .args(["application", "cursor-sidecar", "folder", &folder])
            .env_clear()
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = started.map_err(|error| match error.kind() {
            ErrorKind::NotFound => KeyringError::NoProgram,
            _ => KeyringError::Failed(error.to_string()),
        })?;
        if let (Some(mut stdin), Some(secret)) = (child.stdin.take(), secret) {
            // A failure shows in the status.
            let _ = stdin.write_all(secret.expose_secret().as_bytes());
        }
        let deadline = Instant::now() + DEADLINE;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
                Ok(None) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(KeyringError::TimedOut);
                }
                Err(error) => return Err(KeyringError::Failed(error.to_string())),
            }
        };
        if status.success() {
            let output = read(child.stdout.take());
            return Ok(Some(output.trim().into()));
        }
        let problem = read(child.stderr.take());
        match problem.trim() {
            "" => Ok(None),
            problem => Err(KeyringError::Failed(problem.into())),
        }
    }

    fn has_session(&self) -> bool {
        let find = |name: &str| {
            let found = self.environment.iter().find(|(other, _)| other == name);
            found.map(|(_, value)| value)
        };
        find("DBUS_SESSION_BUS_ADDRESS").is_some()
            || find("XDG_RUNTIME_DIR").is_some_and(|folder| Path::new(folder).join("bus").exists())
    }
}

fn aead_key(secret: &SecretString) -> Result<RandomizedNonceKey, KeyringError> {
    let digest = Sha256::digest(secret.expose_secret().as_bytes());
    RandomizedNonceKey::new(&AES_256_GCM, &digest).map_err(|_| KeyringError::WrongKey)
}

/// Returns what a program that has ended printed.
fn read(pipe: Option<impl std::io::Read>) -> String {
    let mut text = String::new();
    if let Some(pipe) = pipe {
        // Text that is not UTF-8 is as good as none.
        let _ = pipe.take(MAX_OUTPUT).read_to_string(&mut text);
    }
    text
}
