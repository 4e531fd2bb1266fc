//! Which settings are in force.

pub mod in_force;
