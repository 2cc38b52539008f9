//! From an HTTP request to a job and back.
//!
//! Reads the query parameters, headers and the multipart form that the Rust client sends, checks the user, hands the rest to a
//! blocking thread (`job`) and turns what comes back into a response. Never looks into SQL.
use crate::Shared;
use crate::job::Job;
use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::{Method, Request, Response, StatusCode};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

/// A whole answer, or one that is sent while the engine still computes it.
pub type Body = Either<Full<Bytes>, StreamBody<ReceiverStream<Result<Frame<Bytes>, Infallible>>>>;

const UNKNOWN_PATH: &str = "There is no such handle\n\nUse / or /ping for health checks.\nOr try /replicas_status for more details.\n";

/// Answers one request.
pub async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let mut params: Vec<(String, String)> = form_urlencoded::parse(parts.uri.query().unwrap_or("").as_bytes()).into_owned().collect();
    match parts.uri.path() {
        "/ping" | "/replicas_status" => return Ok(plain(200, "Ok.\n")),
        "/" => {}
        _ => return Ok(plain(404, UNKNOWN_PATH)),
    }
    if parts.method == Method::GET && !params.iter().any(|p| p.0 == "query") {
        return Ok(plain(200, "Ok.\n"));
    }
    if ![Method::GET, Method::HEAD, Method::POST, Method::PUT].contains(&parts.method) {
        return Ok(plain(501, "Code: 48. DB::Exception: Unsupported HTTP method. (NOT_IMPLEMENTED)\n"));
    }
    let (user, key) = credentials(&parts.headers, &params);
    if shared.users.get(&user) != Some(&key) {
        return Ok(refused(&shared, &user));
    }
    for (name, param) in [("x-clickhouse-database", "database"), ("x-clickhouse-format", "default_format")] {
        if let Some(value) = header(&parts.headers, name)
            && !params.iter().any(|p| p.0 == param)
        {
            params.push((param.into(), value.into()));
        }
    }
    let mut body = Some(body);
    if let Some(boundary) = form_boundary(&parts.headers) {
        match body.take().expect("the body is taken once").collect().await {
            Ok(all) => params.extend(form(&all.to_bytes(), &boundary)),
            Err(_) => return Ok(plain(400, "broken body\n")),
        }
    }
    let (body_tx, body_rx) = mpsc::channel::<io::Result<Bytes>>(16);
    let (head_tx, head_rx) = oneshot::channel();
    let (out_tx, out_rx) = mpsc::channel(4);
    let job = Job::new(shared, params, parts.method == Method::GET, head_tx, out_tx, body_rx);
    tokio::task::spawn_blocking(move || job.run());
    tokio::spawn(async move {
        let Some(mut body) = body else { return };
        while let Some(frame) = body.frame().await {
            let item = match frame.map(Frame::into_data) {
                Ok(Ok(data)) => Ok(data),
                Ok(Err(_)) => continue,
                Err(e) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, e.to_string())),
            };
            if body_tx.send(item).await.is_err() {
                break;
            }
        }
    });
    let Ok(head) = head_rx.await else {
        return Ok(plain(500, "Code: 1002. DB::Exception: worker panicked. (UNKNOWN_EXCEPTION)\n"));
    };
    let mut response = Response::builder().status(StatusCode::from_u16(head.status).expect("statuses are our own"));
    for (name, value) in head.headers {
        response = response.header(name, value.replace(['\r', '\n'], " "));
    }
    let body =
        if head.streaming { Either::Right(StreamBody::new(ReceiverStream::new(out_rx))) } else { Either::Left(Full::new(collect(out_rx).await)) };
    Ok(response.body(body).expect("headers are plain ASCII"))
}

async fn collect(mut out: mpsc::Receiver<Result<Frame<Bytes>, Infallible>>) -> Bytes {
    let mut all = Vec::new();
    while let Some(Ok(frame)) = out.recv().await {
        if let Ok(data) = frame.into_data() {
            all.extend_from_slice(&data);
        }
    }
    all.into()
}

fn plain(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("Content-Type", "text/plain; charset=UTF-8")
        .body(Either::Left(Full::new(body.into())))
        .expect("a fixed header is valid")
}

fn refused(shared: &Shared, user: &str) -> Response<Body> {
    let message = shared.message(&format!(
        "Code: 516. DB::Exception: {user}: Authentication failed: password is incorrect, or there is no user with such name. (AUTHENTICATION_FAILED)"
    ));
    let mut response = plain(403, message);
    response.headers_mut().insert("X-ClickHouse-Exception-Code", hyper::header::HeaderValue::from_static("516"));
    response
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

fn credentials(headers: &HeaderMap, params: &[(String, String)]) -> (String, String) {
    if let Some(user) = header(headers, "x-clickhouse-user") {
        return (user.into(), header(headers, "x-clickhouse-key").unwrap_or("").into());
    }
    let basic = header(headers, "authorization").and_then(|a| a.strip_prefix("Basic "));
    if let Some(text) = basic.and_then(|b| base64(b.trim())) {
        let text = String::from_utf8_lossy(&text).into_owned();
        let (user, key) = text.split_once(':').unwrap_or((&text, ""));
        return (user.into(), key.into());
    }
    let get = |name: &str| params.iter().rev().find(|p| p.0 == name).map(|p| p.1.clone());
    (get("user").unwrap_or_else(|| "default".into()), get("password").unwrap_or_default())
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        let six = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

fn form_boundary(headers: &HeaderMap) -> Option<String> {
    let kind = header(headers, "content-type").filter(|c| c.starts_with("multipart/form-data"))?;
    kind.split("boundary=").nth(1).map(|b| b.trim().trim_matches('"').to_string())
}

/// The named parts of a multipart form. The Rust client sends `query` and `param_*` so when a query has parameters.
fn form(body: &[u8], boundary: &str) -> Vec<(String, String)> {
    let separator = format!("--{boundary}");
    let find = |hay: &[u8], needle: &[u8]| hay.windows(needle.len()).position(|w| w == needle);
    let (mut out, mut rest) = (Vec::new(), body);
    while let Some(at) = find(rest, separator.as_bytes()) {
        rest = &rest[at + separator.len()..];
        let Some(head_end) = find(rest, b"\r\n\r\n").filter(|_| !rest.starts_with(b"--")) else { break };
        let head = String::from_utf8_lossy(&rest[..head_end]).into_owned();
        let data = &rest[head_end + 4..];
        let Some(end) = find(data, format!("\r\n{separator}").as_bytes()) else { break };
        if let Some(name) = head.split("name=\"").nth(1).and_then(|s| s.split('"').next()) {
            out.push((name.to_string(), String::from_utf8_lossy(&data[..end]).into_owned()));
        }
        rest = &data[end + 2..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_basic_credentials_and_forms() {
        assert_eq!(base64("Ym9iOnNlY3JldA==").as_deref(), Some(&b"bob:secret"[..]));
        let body = b"--B\r\nContent-Disposition: form-data; name=\"query\"\r\n\r\nSELECT {x:String}\r\n--B\r\nContent-Disposition: form-data; name=\"param_x\"\r\n\r\na\r\nb\r\n--B--\r\n";
        let want = [("query".to_string(), "SELECT {x:String}".to_string()), ("param_x".to_string(), "a\r\nb".to_string())];
        assert_eq!(form(body, "B"), want);
    }
}
