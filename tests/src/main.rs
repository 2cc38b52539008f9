fn main() {}

#[cfg(test)]
mod sink_clickhouse;
