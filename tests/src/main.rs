//! The one test binary.

mod dice;
mod lander;
mod landing;
mod oracle;
mod property;
mod simulate;
mod small;
mod vectors;
