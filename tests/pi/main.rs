//! Real pi from npm, the real extension, the real sidecar, against the simulator.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    unreachable_pub,
    dead_code
)]

mod activity;
mod cards;
mod errors;
mod extension;
mod faults;
mod keys;
mod login;
mod models;
mod once;
mod packages;
mod print_mode;
mod processes;
mod resuming;
mod sessions;
mod settings;
mod terminal;
mod tool_calls;
mod tool_permissions;
mod tools;

/// Creates one test per pi version from functions that take a version.
macro_rules! on_every_pi {
    ($($test:ident),+ $(,)?) => {
        crate::on_every_pi!(@version v074 V074 $($test)+);
        crate::on_every_pi!(@version v079 V079 $($test)+);
        crate::on_every_pi!(@version v087 V087 $($test)+);
        crate::on_every_pi!(@version v150 V150 $($test)+);
    };
    (@version $module:ident $version:ident $($test:ident)+) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::$test(test_support::pi_env::PiVersion::$version);
                }
            )+
        }
    };
}
use on_every_pi;
