//! The real program as a process of its own: started, killed, stopped in its tracks, looked at.
//!
//! It is the same library with its crash points, linked once more by this crate as `landfall-under-test`. Its log is kept line by line, so
//! that a failing test can show it. A process that a test forgets dies with its handle.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::wait;

/// The program, built by cargo together with the tests.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_landfall-under-test");

/// Lines of the log that a failure shows.
const SHOWN: usize = 60;

/// How a process is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Options {
    /// `landfall run FILE` with its state in a folder and its HTTP on a free port.
    pub fn run(topology: &Path, state: &Path) -> Self {
        Self::command(&["run", &topology.to_string_lossy(), "--state-dir", &state.to_string_lossy(), "--http", "127.0.0.1:0"])
            .environment("LANDFALL_LOG_FORMAT", "json")
    }

    /// Any other command line.
    pub fn command(arguments: &[&str]) -> Self {
        Self { arguments: arguments.iter().map(|a| (*a).to_owned()).collect(), environment: Vec::new() }
    }

    /// A variable of the environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Aborts at a named crash point, at the n-th time that it comes by.
    #[must_use]
    pub fn crash(self, point: &str, hit: u32) -> Self {
        self.environment("LANDFALL_CRASH", &format!("{point}:{hit}"))
    }

    /// Turns a planted bug on.
    #[must_use]
    pub fn bug(self, name: Option<&str>) -> Self {
        match name {
            Some(name) => self.environment("LANDFALL_BUG", name),
            None => self,
        }
    }

    fn build(&self) -> Command {
        let mut command = Command::new(PROGRAM);
        let _ = command.args(&self.arguments).env_remove("LANDFALL_CRASH").env_remove("LANDFALL_BUG").stdin(Stdio::null());
        let _ = command.envs(self.environment.iter().map(|(k, v)| (k, v)));
        command
    }

    /// Runs it to its end, which must come within the deadline.
    pub fn output(&self, deadline: Duration) -> Output {
        let mut process = self.start();
        let status = process.wait(deadline);
        process.drain();
        Output { status, stdout: process.stdout(), stderr: process.log() }
    }

    /// Starts it.
    pub fn start(&self) -> Process {
        let mut child = self.build().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program was built with the tests");
        let (out, err) = (Arc::default(), Arc::default());
        let readers = vec![
            collect(child.stdout.take().expect("stdout is piped"), Arc::clone(&out)),
            collect(child.stderr.take().expect("stderr is piped"), Arc::clone(&err)),
        ];
        Process { child, out, err, readers, status: None }
    }
}

/// What a command that ended has said.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it logged.
    pub stderr: String,
}

impl Output {
    /// Everything that it said.
    pub fn text(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }
}

fn collect(from: impl Read + Send + 'static, into: Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            into.lock().unwrap_or_else(PoisonError::into_inner).push(text);
            line.clear();
        }
    })
}

/// A running, stopped or ended process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    out: Arc<Mutex<Vec<String>>>,
    err: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    status: Option<ExitStatus>,
}

impl Process {
    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name: `STOP`, `CONT`, `TERM`, `KILL`.
    pub fn signal(&self, name: &str) {
        // The shell's own kill: sending a signal by a call would be unsafe code.
        let done = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.id())]).status().expect("a shell");
        assert!(done.success(), "signal {name} could not be sent to {}", self.id());
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("a child of ours");
        }
        self.status
    }

    /// Waits for its end up to a deadline.
    pub fn ended_within(&mut self, deadline: Duration) -> Option<ExitStatus> {
        wait::until(deadline, || self.ended().ok_or("it runs")).ok()
    }

    /// Waits for its end; where it does not come, shows the log and panics.
    pub fn wait(&mut self, deadline: Duration) -> ExitStatus {
        match self.ended_within(deadline) {
            Some(status) => status,
            None => panic!("the process did not end within {deadline:?}; its last lines:\n{}", self.tail()),
        }
    }

    /// Kills it as `kill -9` does, and waits until it is gone.
    pub fn kill(&mut self) {
        if self.ended().is_none() {
            self.child.kill().ok();
            let _ = self.wait(Duration::from_secs(10));
        }
    }

    /// Asks it to drain, and waits for the exit code 0.
    pub fn drain_and_exit(&mut self, deadline: Duration) {
        if self.ended().is_none() {
            self.signal("TERM");
        }
        let status = self.wait(deadline);
        assert!(status.success(), "SIGTERM must drain and exit 0, not {status}; its last lines:\n{}", self.tail());
    }

    /// True where it ended by `abort`.
    pub fn aborted(&mut self) -> bool {
        self.ended().is_some_and(|status| status.signal() == Some(6))
    }

    /// Panics with its log where it ended by itself.
    pub fn assert_running(&mut self) {
        if let Some(status) = self.ended() {
            self.drain();
            panic!("the process ended by itself ({status}); its last lines:\n{}", self.tail());
        }
    }

    /// Resident memory in bytes; `None` where it ended.
    pub fn resident(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        join(&self.err, usize::MAX)
    }

    /// Its output so far.
    pub fn stdout(&self) -> String {
        join(&self.out, usize::MAX)
    }

    /// The last lines of both.
    pub fn tail(&self) -> String {
        format!("{}{}", join(&self.out, SHOWN), join(&self.err, SHOWN))
    }

    /// Waits until a line of its log or output holds a text.
    pub fn await_line(&mut self, text: &str, deadline: Duration) -> String {
        let found = wait::until(deadline, || {
            let all = format!("{}\n{}", self.stdout(), self.log());
            match all.lines().find(|l| l.contains(text)) {
                Some(line) => Ok(Ok(line.to_owned())),
                None if self.ended().is_some() => Ok(Err("it ended without saying it")),
                None => Err("it is not said"),
            }
        });
        match found {
            Ok(Ok(line)) => line,
            Ok(Err(why)) => panic!("{text:?}: {why}; the last lines:\n{}", self.tail()),
            Err(why) => panic!("{text:?}: {why}; the last lines:\n{}", self.tail()),
        }
    }

    /// Address of its HTTP interface, as its log names it.
    pub fn http(&mut self, deadline: Duration) -> String {
        let line = self.await_line("127.0.0.1:", deadline);
        let from = line.find("127.0.0.1:").expect("the line was found by it");
        let end = line[from..].find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).map_or(line.len(), |n| from + n);
        format!("http://{}", &line[from..end])
    }

    /// Waits until everything that it said has been read; only for a process that ended.
    fn drain(&mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        while self.readers.iter().any(|r| !r.is_finished()) && Instant::now() < end {
            std::thread::yield_now();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            // A stopped process takes only this signal.
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

fn join(lines: &Mutex<Vec<String>>, last: usize) -> String {
    let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::new();
    for line in &lines[lines.len().saturating_sub(last)..] {
        text.push_str(line);
        text.push('\n');
    }
    text
}
