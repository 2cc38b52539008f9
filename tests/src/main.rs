fn main() {}

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod sink_clickhouse;
