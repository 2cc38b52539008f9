//! The files that schemas import without a registry knowing them: those of Google and Confluent, with what matters of them here.

/// The text of a file, by the name under which it is imported.
pub(super) fn file(name: &str) -> Option<&'static str> {
    Some(match name {
        "google/protobuf/timestamp.proto" => {
            "syntax = \"proto3\"; package google.protobuf; message Timestamp { int64 seconds = 1; int32 nanos = 2; }"
        }
        "google/protobuf/duration.proto" => "syntax = \"proto3\"; package google.protobuf; message Duration { int64 seconds = 1; int32 nanos = 2; }",
        "google/protobuf/any.proto" => "syntax = \"proto3\"; package google.protobuf; message Any { string type_url = 1; bytes value = 2; }",
        "google/protobuf/empty.proto" => "syntax = \"proto3\"; package google.protobuf; message Empty {}",
        "google/protobuf/field_mask.proto" => "syntax = \"proto3\"; package google.protobuf; message FieldMask { repeated string paths = 1; }",
        "google/protobuf/wrappers.proto" => {
            "syntax = \"proto3\"; package google.protobuf;
            message DoubleValue { double value = 1; } message FloatValue { float value = 1; } message Int64Value { int64 value = 1; }
            message UInt64Value { uint64 value = 1; } message Int32Value { int32 value = 1; } message UInt32Value { uint32 value = 1; }
            message BoolValue { bool value = 1; } message StringValue { string value = 1; } message BytesValue { bytes value = 1; }"
        }
        "google/protobuf/struct.proto" => {
            "syntax = \"proto3\"; package google.protobuf; enum NullValue { NULL_VALUE = 0; }
            message Struct { map<string, Value> fields = 1; } message ListValue { repeated Value values = 1; }
            message Value { oneof kind { NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
                Struct struct_value = 5; ListValue list_value = 6; } }"
        }
        "google/type/date.proto" => "syntax = \"proto3\"; package google.type; message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
        "google/type/timeofday.proto" => {
            "syntax = \"proto3\"; package google.type; message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"
        }
        "confluent/type/decimal.proto" => {
            "syntax = \"proto3\"; package confluent.type; message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
        }
        _ => return None,
    })
}
