//! `landfall completions` and `landfall man`: what shells and manuals know of the command line, made from the same definitions as the help.

use std::io::Write;

use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, Failure, Problem};

const EXAMPLES: &str = "\
Examples:
  landfall completions bash > /etc/bash_completion.d/landfall
  landfall completions zsh > ~/.zfunc/_landfall";

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Page of this command, such as `dead-letters list` [default: the whole]
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Prints the completions of a shell.
pub fn completions(arguments: &Completions, out: &mut dyn Write) -> Result<(), Failure> {
    // In memory first: the generator takes a failing write for a defect.
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "landfall", &mut text);
    Ok(out.write_all(&text)?)
}

/// Prints a page of the manual.
pub fn man(arguments: &Man, out: &mut dyn Write) -> Result<(), Failure> {
    let mut whole = Cli::command();
    whole.build();
    let mut page: &Command = &whole;
    for name in &arguments.command {
        let known = || page.get_subcommands().map(Command::get_name).collect::<Vec<_>>().join(", ");
        page = page
            .find_subcommand(name)
            .ok_or_else(|| Problem::new(format!("{} has no command {name:?}", page.get_name()), format!("its commands are {}", known())))?;
    }
    Ok(clap_mangen::Man::new(page.clone()).render(&mut &mut *out)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_is_told_of_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
            let mut out = Vec::new();
            assert!(completions(&Completions { shell }, &mut out).is_ok());
            let text = String::from_utf8(out).expect("text");
            for command in Cli::command().get_subcommands() {
                assert!(text.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }

    #[test]
    fn pages_are_found_by_their_command() {
        let page = |command: &[&str]| {
            let mut out = Vec::new();
            let command = command.iter().map(|c| (*c).to_owned()).collect();
            man(&Man { command }, &mut out).map(|()| String::from_utf8(out).expect("text"))
        };
        assert!(page(&[]).is_ok_and(|text| text.contains(".TH landfall 1")));
        assert!(page(&["dead-letters", "list"]).is_ok_and(|text| text.contains("Most letters to list")));
        assert!(page(&["nothing"]).is_err_and(|failure| failure.text().is_some_and(|t| t.contains("its commands are"))));
    }
}
