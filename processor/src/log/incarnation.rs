//! Ids of topics: a topic that is deleted and created again has another one, whatever its name and offsets say (law 8).
//!
//! The Kafka client library knows them, its Rust wrapper does not hand them on; this file asks the library directly. It is the only place
//! with unsafe code. Every pointer here comes from the library and is freed on the same path on which it was made.
#![allow(unsafe_code, reason = "the wrapper has no call for topic descriptions")]

use std::ffi::{CStr, CString};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::admin::AdminClient;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka_sys as sys;

/// What the broker says of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its id; zero where the broker gives none.
    pub incarnation: [u8; 16],
    /// Number of partitions.
    pub partitions: u32,
}

/// Why topics could not be described.
#[derive(Clone, Debug, thiserror::Error)]
#[error("topics cannot be described: {reason}")]
pub struct DescribeError {
    /// The client's own words.
    pub reason: String,
    /// The client's code, where it gave one.
    pub code: Option<RDKafkaErrorCode>,
}

/// Describes topics by name, in the order of the names; `None` for one that does not exist.
pub fn describe<C: ClientContext>(client: &AdminClient<C>, names: &[&str], timeout: Duration) -> Result<Vec<Option<Described>>, DescribeError> {
    let failed = |reason: String, code: Option<RDKafkaErrorCode>| DescribeError { reason, code };
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let texts: Vec<CString> =
        names.iter().map(|n| CString::new(*n)).collect::<Result<_, _>>().map_err(|_| failed("a name holds NUL".to_owned(), None))?;
    let mut pointers: Vec<*const std::ffi::c_char> = texts.iter().map(|t| t.as_ptr()).collect();
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the client outlives the call, names and error buffer outlive their use, and the result is read before its event is destroyed.
    unsafe {
        let client = client.inner().native_ptr();
        let queue = sys::rd_kafka_queue_new(client);
        let collection = sys::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        let options = sys::rd_kafka_AdminOptions_new(client, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
        let mut text = [0 as std::ffi::c_char; 256];
        let _ = sys::rd_kafka_AdminOptions_set_request_timeout(options, millis, text.as_mut_ptr(), text.len());
        sys::rd_kafka_DescribeTopics(client, collection, options, queue);
        let event = sys::rd_kafka_queue_poll(queue, millis.saturating_add(1000));
        let result = if event.is_null() {
            Err(failed("no answer in time".to_owned(), Some(RDKafkaErrorCode::OperationTimedOut)))
        } else if sys::rd_kafka_event_error(event) != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            let reason = CStr::from_ptr(sys::rd_kafka_event_error_string(event)).to_string_lossy().into_owned();
            Err(failed(reason, Some(sys::rd_kafka_event_error(event).into())))
        } else {
            read(sys::rd_kafka_event_DescribeTopics_result(event), names)
        };
        if !event.is_null() {
            sys::rd_kafka_event_destroy(event);
        }
        sys::rd_kafka_AdminOptions_destroy(options);
        sys::rd_kafka_TopicCollection_destroy(collection);
        sys::rd_kafka_queue_destroy(queue);
        result
    }
}

/// # Safety
/// `result` must point to the result of a describe call whose event is alive.
unsafe fn read(result: *const sys::rd_kafka_DescribeTopics_result_t, names: &[&str]) -> Result<Vec<Option<Described>>, DescribeError> {
    let mut found = vec![None; names.len()];
    // SAFETY: the library gives `count` valid descriptions that live as long as the event.
    unsafe {
        let mut count = 0;
        let topics = sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        for i in 0..count {
            let topic = *topics.add(i);
            let name = CStr::from_ptr(sys::rd_kafka_TopicDescription_name(topic)).to_string_lossy();
            let code = sys::rd_kafka_error_code(sys::rd_kafka_TopicDescription_error(topic));
            match code {
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => {}
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART => continue,
                _ => {
                    let reason = CStr::from_ptr(sys::rd_kafka_err2str(code)).to_string_lossy().into_owned();
                    return Err(DescribeError { reason, code: Some(code.into()) });
                }
            }
            let mut partitions = 0;
            let _ = sys::rd_kafka_TopicDescription_partitions(topic, &raw mut partitions);
            let id = sys::rd_kafka_TopicDescription_topic_id(topic);
            let mut incarnation = [0; 16];
            if !id.is_null() {
                incarnation[..8].copy_from_slice(&sys::rd_kafka_Uuid_most_significant_bits(id).to_be_bytes());
                incarnation[8..].copy_from_slice(&sys::rd_kafka_Uuid_least_significant_bits(id).to_be_bytes());
            }
            if let Some(at) = names.iter().position(|n| *n == name) {
                found[at] = Some(Described { incarnation, partitions: u32::try_from(partitions).unwrap_or_default() });
            }
        }
    }
    Ok(found)
}
