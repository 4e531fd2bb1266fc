//! Real pi from npm, the real extension, the real sidecar, against the simulator.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    unreachable_pub,
    dead_code
)]

mod activity;
mod calls;
mod cards;
mod extension;
mod keys;
mod losses;
mod models;
mod printing;
mod processes;
mod resuming;
mod sessions;
mod settings;
mod switches;
mod terminal;
mod tools;
mod trouble;

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
