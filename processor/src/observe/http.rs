//! The HTTP interface: health, metrics, status and queries, on loopback only (INTERFACES.md section 3).

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::Observer;
use super::query::{self, Readable};
use crate::run::Stopping;

/// Why the interface cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Anything but loopback needs TLS and a token, which come with a later version.
    #[error("address {address} is not loopback; the HTTP interface has no login yet")]
    NotLoopback {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The address is taken, or cannot be used.
    #[error("address {address} cannot be used")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Metrics cannot be recorded.
    #[error("metrics cannot be recorded")]
    Recorder(#[from] metrics_exporter_prometheus::BuildError),
}

/// Seconds of a landing, and rows of a batch, at which histograms are cut.
const LAND_SECONDS: [f64; 10] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
const BATCH_ROWS: [f64; 7] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0];

#[derive(Clone)]
pub(super) struct Served {
    observer: Observer,
    metrics: PrometheusHandle,
    pub(super) queries: query::Desk,
}

/// Serves until told to stop, on a thread of its own. `readable` says which files may be read through this process.
#[allow(clippy::disallowed_methods, reason = "the interface has its own thread, so that a busy core never delays an answer")]
pub fn serve(observer: &Observer, readable: Readable, address: SocketAddr, stopping: &Stopping) -> Result<SocketAddr, ServeError> {
    if !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback { address });
    }
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("landfall_land_seconds".to_owned()), &LAND_SECONDS)?
        .set_buckets_for_metric(Matcher::Full("landfall_batch_rows".to_owned()), &BATCH_ROWS)?
        .install_recorder()?;
    super::catalog::describe();
    let bind = |source| ServeError::Bind { address, source };
    let listener = std::net::TcpListener::bind(address).map_err(bind)?;
    listener.set_nonblocking(true).map_err(bind)?;
    let bound = listener.local_addr().map_err(bind)?;
    tracing::info!(address = %bound, "serving metrics and status");
    let served = Served { observer: observer.clone(), metrics, queries: query::Desk::new(readable) };
    let stopping = stopping.clone();
    let _ = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(answer(listener, served, stopping)),
            Err(error) => tracing::error!(%error, "the HTTP interface cannot run"),
        }
    });
    Ok(bound)
}

async fn answer(listener: std::net::TcpListener, served: Served, stopping: Stopping) {
    let upkeep = served.metrics.clone();
    let router = Router::new()
        .route("/metrics", get(async |State(s): State<Served>| s.metrics.render()))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/api/status", get(async |State(s): State<Served>| axum::Json(s.observer.status())))
        .route("/api/sql", post(query::answer))
        .with_state(served);
    let stopped = async move {
        // Histograms grow without this.
        while !stopping.is_set() {
            tokio::time::sleep(Duration::from_millis(500)).await;
            upkeep.run_upkeep();
        }
    };
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
        tracing::error!(%error, "the HTTP interface ended");
    }
}

async fn ready(State(s): State<Served>) -> impl IntoResponse {
    let status = s.observer.status();
    let stopped = status.replicas.values().flat_map(|r| r.partitions.values()).any(|p| p.stopped.is_some());
    if let Some((part, _)) = status.parts.iter().find(|(_, p)| p.stopped) {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{part} stands still: see /api/status\n"));
    }
    match (status.ready, stopped) {
        (true, false) => (StatusCode::OK, "ready\n".to_owned()),
        (true, true) => (StatusCode::SERVICE_UNAVAILABLE, "a partition stands still: see /api/status\n".to_owned()),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "starting\n".to_owned()),
    }
}
