//! Runs the steps of a session, as steps.py does. The program's arguments are its own source, the host, port and database.

use std::env;

fn argument(number: usize) -> String {
    env::args().nth(number).expect("SOURCE HOST PORT DATABASE")
}

/// The address of the session's database.
pub fn url() -> String {
    format!("postgres://materialize@{}:{}/{}?sslmode=disable", argument(2), argument(3), argument(4))
}

/// Prints one line of JSON: the title of a step and its error, if any.
pub fn report(step: &str, result: anyhow::Result<()>) {
    let error = result.err().map(|error| {
        eprintln!("{step}: {error:?}");
        let text = format!("{error:#}");
        text.lines().next().unwrap_or_default().to_string()
    });
    println!("{{\"step\": {}, \"error\": {}}}", serde_json::json!(step), serde_json::json!(error));
}
