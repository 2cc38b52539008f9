//! No secret is ever seen: not in issues, not in plans, not beside a mistake on the same line.

use super::{BASE, check_text, patched};
use crate::{Code, Document, Plan, check};

const CANARY: &str = "canary";

fn assert_unseen(text: &str) -> Vec<Code> {
    let checked = check_text(text);
    let shown = format!("{checked:?}");
    assert!(!shown.contains(CANARY), "{shown}");
    for issue in &checked.issues {
        assert!(!issue.to_string().contains(CANARY), "{issue}");
        let json = serde_json::to_string(issue).expect("issues serialise");
        assert!(!json.contains(CANARY), "{json}");
    }
    if let Some(plan) = &checked.plan {
        assert_rows_unseen(plan);
    }
    checked.issues.iter().map(|i| i.code).collect()
}

fn assert_rows_unseen(plan: &Plan) {
    let rows = serde_json::to_string(&plan.describe()).expect("rows serialise");
    assert!(!rows.contains(CANARY), "{rows}");
}

#[test]
fn looked_up_secrets() {
    let text = include_str!("../../samples/supported.yaml");
    assert_eq!(assert_unseen(text), []);
    let plan = check_text(text).plan.expect("the sample is right");
    let security = plan.kafka.security.expect("the sample has security");
    assert_eq!(security.sasl.expect("and a login").password.expose(), CANARY);
}

#[test]
fn an_address_from_the_environment() {
    let text = patched(&[("\"postgresql://landfall@localhost/shop\"", "'${env:URL}'")]);
    assert_eq!(assert_unseen(&text), []);
    let wrong = patched(&[("\"http://localhost:8123\"", "'${env:URL}'")]);
    assert_eq!(assert_unseen(&wrong), [Code::BadValue]);
    let both = patched(&[("landfall@localhost/shop", "landfall:${env:PASSWORD}@localhost/shop")]);
    assert_eq!(assert_unseen(&both), []);
}

#[test]
fn literal_secrets_and_mistakes_beside_them() {
    for security in [
        "{ protocol: sasl_ssl, mechanism: plain, username: u, password: canary }",
        "{ protocol: sasl_ssl, mechanism: plain, username: u, password: 'canary', colour: red }",
        "{ protocol: sasl_ssl, mechanism: plain, username: u, pasword: canary }",
        "{ protocol: sasl_ssl, mechanism: plain, username: u, secret_key: canary }",
        "{ protocol: sasl_ssl, mechanism: plain, username: u, password: [canary] }",
        "{ protocol: sasl_ssl, mechanism: plain, username: u, password: { a: canary } }",
        "{ protocol: sasl_ssl, mechanism: plain, username: u, password: '${env:PASSWORD}', password: canary }",
        "{ protocol: sasl_ssl, mechanism: plain, username: u, password: '${env:PASSWORD}', pw: canary }",
        "{ protocol: sasl_ssl, mechanism: plain, password: canary, username: 007 }",
        "{ password: canary, protocol: sasl_ssl, mechanism: pla1n, username: u }",
        "{ protocol: sasl_ssl, password: canary: x }",
        "{ protocol: sasl_ssl, password: \"canary }",
        "{ protocol: sasl_ssl, pasword: canary: x }",
        "\n    password: |\n      x\n      canary: [\n    mechanism: [",
        "\n    password: [\n      canary: x: y ]",
        "\n    password:\n      - canary\n      - canary: canary: x",
        "\n    protocol: sasl_ssl\n    mechanism: plain\n    username: u\n    password: |\n      canary\n",
        "\n    protocol: sasl_ssl\n    mechanism: plain\n    username: u\n    password: \"\n      canary\"\n",
    ] {
        let text = patched(&[("[localhost:9092]", &format!("[localhost:9092]\n  security: {security}"))]);
        let codes = assert_unseen(&text);
        assert!(!codes.is_empty(), "{security}");
    }
}

#[test]
fn literal_secrets_in_addresses() {
    for address in [
        "postgresql://u:canary@localhost/shop",
        "postgresql://u:ca/canary@localhost/shop",
        "postgresql://u:ca, canary@localhost/shop",
        "postgresql://u@localhost/shop?password=canary",
        "host=localhost password=canary",
        "host=localhost password = 'canary'",
    ] {
        let text = patched(&[("postgresql://landfall@localhost/shop", address)]);
        assert_eq!(assert_unseen(&text), [Code::LiteralSecret], "{address}");
        // The same address, and another mistake on its line.
        let worse = text.replace("type: postgresql, url", "type: postgresql, colour: red, url");
        assert_eq!(assert_unseen(&worse).len(), 2, "{address}");
    }
}

#[test]
fn a_secret_in_a_field_that_is_not_supported_yet() {
    let text = patched(&[("cdc: { topic_prefix: shop }", "cdc: { topic_prefix: shop }\n    password: canary\n    url: 'http://u:canary@h'")]);
    assert_eq!(assert_unseen(&text), [Code::NotSupportedYet, Code::NotSupportedYet]);
}

#[test]
fn the_environment_stands_in_for_a_missing_address() {
    let text = patched(&[(", url: \"postgresql://landfall@localhost/shop\"", "")]);
    let documents = [Document::new("landfall.yaml", text)];
    let checked = check(&documents, &|reference| {
        assert_eq!(reference.to_string(), "environment variable \"LANDFALL_STORE_URL\"");
        Ok("postgresql://fallback/shop".into())
    });
    let plan = checked.plan.expect("the address is found");
    match &plan.stores[1].kind {
        crate::plan::StoreKind::Postgres { url, .. } => assert_eq!(url.expose(), "postgresql://fallback/shop"),
        other => panic!("{other:?}"),
    }
    assert_eq!(format!("{:?} {}", plan.stores[1], crate::Secret::new("x".into())).matches("fallback").count(), 0);
}

#[test]
fn a_reference_shows_its_name_not_its_value() {
    let text = patched(&[("url: \"http://localhost:8123\"", "url: \"http://localhost:8123\", password: '${env:UNSET}'")]);
    let checked = check_text(&text);
    assert_eq!(checked.issues[0].message, "environment variable \"UNSET\" is not set");
    assert!(checked.issues[0].to_string().contains("${env:UNSET}"), "{}", checked.issues[0]);
    assert!(BASE.len() < text.len());
}
