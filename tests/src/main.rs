//! The one test binary.

mod dice;
mod lander;
mod oracle;
mod property;
mod small;
mod vectors;
