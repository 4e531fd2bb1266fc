//! Logins that are sealed with a key of the desktop's keyring. `secret-tool` is replaced by a
//! script with a file, except in the last test.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tempfile::TempDir;

use test_support::binary;
use test_support::simulator::{Simulator, Transport};

/// Keeps one key in the file `key` beside the script, and its arguments and environment in `asked`.
const SECRET_TOOL: &str = r#"#!/bin/sh
folder=$(dirname "$0")
{ echo "$@"; env; } >> "$folder/asked"
case $1 in
store) cat > "$folder/key" ;;
lookup) test -e "$folder/key" && cat "$folder/key" ;;
clear) rm -f "$folder/key" ;;
esac
"#;

struct Desktop {
    folder: TempDir,
    simulator: Simulator,
}

impl Desktop {
    /// A desktop whose `secret-tool` is this script.
    fn with(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        let program = folder.path().join("bin/secret-tool");
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let simulator = Simulator::start(Transport::Http1);
        Self { folder, simulator }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        let path = format!("{}:/usr/bin:/bin", self.folder.path().join("bin").display());
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PATH", path)
            .env("PI_CURSOR_STATE_DIR", self.state())
            .env("CURSOR_BACKEND_URL", &self.simulator.url)
            .env("CURSOR_WEBSITE_URL", &self.simulator.url)
            .env("PI_CURSOR_KEYRING", "on")
            .env("CURSOR_SIDECAR_GATEWAY_TOKEN", "a-token-of-the-gateway")
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn succeeds(&self, arguments: &[&str]) {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
    }

    fn stored(&self) -> Json {
        stored(&self.state())
    }

    fn polls(&self) -> usize {
        self.simulator.recorded().requests("/auth/poll").len()
    }
}

fn stored(state: &Path) -> Json {
    serde_json::from_slice(&std::fs::read(state.join("login.json")).unwrap()).unwrap()
}

fn problem(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "one message: {text}");
    text
}

#[test]
fn a_login_is_sealed_with_the_key_of_the_keyring() {
    let desktop = Desktop::with(SECRET_TOOL);
    desktop.succeeds(&["login"]);
    let sealed = desktop.stored();
    assert_eq!(sealed["email"], "person@example.invalid");
    for name in ["accessToken", "refreshToken", "apiKey"] {
        assert_eq!(sealed[name], Json::Null, "{name} is sealed: {sealed}");
    }
    desktop.succeeds(&["usage"]);
    let asked = std::fs::read_to_string(desktop.folder.path().join("bin/asked")).unwrap();
    let key = std::fs::read_to_string(desktop.folder.path().join("bin/key")).unwrap();
    assert!(key.len() > 40, "{key}");
    for secret in [key.as_str(), "a-token-of-the-gateway"] {
        assert!(!asked.contains(secret), "{secret} in {asked}");
    }
    assert!(asked.contains("DBUS_SESSION_BUS_ADDRESS"), "{asked}");
    // Another key opens nothing.
    std::fs::write(desktop.folder.path().join("bin/key"), "another").unwrap();
    let text = problem(&desktop.run(&["usage"]));
    assert!(text.contains("not the one of this login"), "{text}");
    desktop.succeeds(&["logout"]);
    assert!(!desktop.folder.path().join("bin/key").exists());
    assert!(!desktop.state().join("login.json").exists());
}

#[test]
fn the_setting_counts_for_new_logins_only() {
    let desktop = Desktop::with(SECRET_TOOL);
    desktop.succeeds(&["login"]);
    let mut without = desktop.command(&["usage"]);
    let output = without.env("PI_CURSOR_KEYRING", "off").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut without = desktop.command(&["login"]);
    let output = without.env("PI_CURSOR_KEYRING", "off").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(desktop.stored()["accessToken"].is_string());
    desktop.succeeds(&["usage"]);
    assert!(desktop.stored()["accessToken"].is_string());
}

#[test]
fn a_keyring_that_cannot_be_used_is_one_message_before_the_login() {
    let cases = [
        (
            "#!/bin/sh\necho 'Cannot create an item in a locked collection' >&2; exit 1\n",
            "locked collection",
        ),
        (
            "#!/bin/sh\nexec sleep 600\n",
            "did not answer within 5 s; unlock it",
        ),
        ("#!/bin/sh\nexit 1\n", "is locked, or has no key"),
    ];
    for (script, wanted) in cases {
        let desktop = Desktop::with(script);
        let started = Instant::now();
        let text = problem(&desktop.run(&["login"]));
        assert!(text.contains(wanted), "{wanted}: {text}");
        assert!(text.contains("PI_CURSOR_KEYRING"), "a way out: {text}");
        assert!(started.elapsed() < Duration::from_secs(30), "{wanted}");
        assert_eq!(desktop.polls(), 0, "nothing was begun: {wanted}");
        assert!(!desktop.state().join("login.json").exists());
    }
}

#[test]
fn a_machine_without_a_keyring_is_recognized() {
    let desktop = Desktop::with(SECRET_TOOL);
    let mut command = desktop.command(&["login"]);
    let output = command
        .env_remove("DBUS_SESSION_BUS_ADDRESS")
        .output()
        .unwrap();
    let text = problem(&output);
    assert!(text.contains("no D-Bus session"), "{text}");
    let mut command = desktop.command(&["login"]);
    let text = problem(&command.env("PATH", "/nowhere").output().unwrap());
    assert!(text.contains("`secret-tool`"), "{text}");
    assert_eq!(desktop.polls(), 0);
}

/// Runs `gnome-keyring-daemon` and `secret-tool` in a D-Bus session of its own.
#[test]
#[ignore = "needs dbus-run-session, gnome-keyring-daemon, gdbus and secret-tool on the PATH"]
fn the_keyring_of_gnome_seals_a_login_and_can_be_locked() {
    let desktop = Desktop::with(SECRET_TOOL);
    std::fs::remove_dir_all(desktop.folder.path().join("bin")).unwrap();
    let runtime = desktop.folder.path().join("run");
    std::fs::create_dir(&runtime).unwrap();
    std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(0o700)).unwrap();
    let program = binary();
    let script = r#"
service() { gdbus call --session --dest org.freedesktop.secrets --object-path /org/freedesktop/secrets "$@"; }
printf password | gnome-keyring-daemon --unlock --components=secrets --foreground > /dev/null &
daemon=$!
gdbus wait --session --timeout 20 org.freedesktop.secrets || exit 1
"$0" login || exit 2
"$0" usage || exit 3
service --method org.freedesktop.Secret.Service.Lock '["/org/freedesktop/secrets/collection/login"]' > /dev/null
"$0" usage && exit 4
kill $daemon
wait $daemon
# On this bus, an installed service would be started again.
DBUS_SESSION_BUS_ADDRESS="unix:path=$HOME/no-bus" "$0" usage && exit 5
exit 0
"#;
    let mut command = Command::new("dbus-run-session");
    let path = std::env::var("PATH").unwrap();
    let output = command
        .args(["--", "sh", "-c", script])
        .arg(program)
        .env_clear()
        .env("PATH", path)
        .env("HOME", desktop.folder.path())
        .env("XDG_RUNTIME_DIR", &runtime)
        .env("PI_CURSOR_STATE_DIR", desktop.state())
        .env("CURSOR_BACKEND_URL", &desktop.simulator.url)
        .env("CURSOR_WEBSITE_URL", &desktop.simulator.url)
        .env("PI_CURSOR_KEYRING", "on")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(desktop.stored()["sealed"].is_string());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("the keyring is locked"), "{text}");
    assert!(text.contains("the keyring cannot be used ("), "{text}");
}
