//! Measurements of the journey and its stages; each names the budget that it defends.
