//! The ids of processes, and the state of the pipe.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::watch;

/// How often to check that the host is alive.
const HOST_CHECK: Duration = Duration::from_millis(250);

/// Resolves when the process that started us, or the one that `initialize` named as our host, is
/// gone. Its end closes our input too, unless a third process holds the pipe open.
pub(crate) async fn host_gone(host: watch::Receiver<Option<u32>>) {
    let parent = rustix::process::getppid();
    let mut check = tokio::time::interval(HOST_CHECK);
    loop {
        check.tick().await;
        if rustix::process::getppid() != parent {
            return;
        }
        let stated = *host.borrow();
        if stated.is_some_and(|id| !is_alive(id)) {
            return;
        }
    }
}

/// Returns whether a process with this id exists and is visible to us.
pub(crate) fn is_alive(id: u32) -> bool {
    let id = i32::try_from(id)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    id.is_some_and(|id| rustix::process::test_kill_process(id) != Err(rustix::io::Errno::SRCH))
}

/// Returns whether the writer of our input has closed it, even if not everything is read.
pub(crate) fn has_hung_up() -> bool {
    is_hung_up(io::stdin())
}

fn is_hung_up(input: impl AsFd) -> bool {
    #[cfg(target_os = "linux")]
    let gone = PollFlags::HUP | PollFlags::RDHUP;
    #[cfg(not(target_os = "linux"))]
    let gone = PollFlags::HUP;
    let mut polled = [PollFd::new(&input, gone)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().intersects(gone)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_hang_up_is_detected_before_the_input_is_read() {
        let (input, mut writer) = io::pipe().unwrap();
        writer.write_all(b"unread").unwrap();
        assert!(!is_hung_up(&input));
        drop(writer);
        assert!(is_hung_up(&input));
        // Node gives its children sockets.
        let (input, mut writer) = UnixStream::pair().unwrap();
        writer.write_all(b"unread").unwrap();
        assert!(!is_hung_up(&input));
        drop(writer);
        assert!(is_hung_up(&input));
    }
}
