#include "dtrain/launcher/command_line.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>

#include <CLI/CLI.hpp>

#include "dtrain/core/base/error.h"
#include "dtrain/core/config/suggest.h"

namespace dtrain {

namespace {

constexpr int most_processes = 4096;

const char* const overview =
    R"(dtrain: data-parallel training. The recipe fixes the bits, the placement does not.

  dtrain [run] CONFIG [KEY=VALUE ...]     train
  dtrain check CONFIG [KEY=VALUE ...]     validate and plan; run nothing
  dtrain eval CONFIG [KEY=VALUE ...]      evaluate trained weights
  dtrain sample CONFIG --prompt TEXT      write text from a trained gpt
  dtrain launch -- PROGRAM [ARGUMENTS]    start any program as ranks
  dtrain version                          version, libraries, instruction set
  dtrain help config                      all keys of a recipe
  dtrain COMMAND --help                   options of a command
)";

const std::map<std::string, Command>& command_words() {
  static const std::map<std::string, Command> words = {
      {"run", Command::run},         {"check", Command::check},   {"eval", Command::evaluate},
      {"version", Command::version}, {"launch", Command::launch}, {"help", Command::help},
      {"rank", Command::rank},       {"sample", Command::sample}};
  return words;
}

// A number of processes, or auto (0).
int parse_nproc(const std::string& text) {
  if (text == "auto") return 0;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 ||
      value > most_processes) {
    throw ConfigError(fmt::format("--nproc '{}' is not a number of processes from 1 to {}, or auto",
                                  text, most_processes));
  }
  return value;
}

// The options of one command, and where their values go.
class CommandParser {
 public:
  explicit CommandParser(Command command);

  CommandLine parse(std::vector<std::string> arguments);

  // Number of leading arguments that are options or their values.
  std::size_t leading_options(const std::vector<std::string>& arguments) const;

 private:
  void add_run_options();
  void add_sample_options();
  [[noreturn]] void fail_on_unknown(const std::string& argument) const;
  void check_values() const;
  void take_positionals();

  CLI::App app_;
  CommandLine line_;
  std::vector<std::string> positionals_;
  std::string nproc_ = "1";
  std::string device_ = "cpu";
  std::string show_ = "all";
};

CommandParser::CommandParser(Command command) {
  line_.command = command;
  line_.prompt = "\n";
  line_.tokens = 256;
  app_.allow_extras();
  app_.get_formatter()->column_width(28);
  // Refused by check_values(), in words that say what to do.
  app_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const bool has_processes =
      command == Command::run || command == Command::evaluate || command == Command::launch;
  if (has_processes || command == Command::check) {
    app_.add_option("-n,--nproc", nproc_,
                    "processes to start, or auto: one per usable processor (default 1)")
        ->type_name("N");
  }
  if (command != Command::launch && command != Command::version) {
    app_.add_option("--device", device_, "kind of device: cpu")->type_name("KIND");
    app_.add_option("config", positionals_, "recipe, then KEY=VALUE overrides of its keys")
        ->type_name("CONFIG [KEY=VALUE ...]");
  }
  if (has_processes) {
    app_.add_option("--log-dir", line_.log_dir, "folder of each rank's output, rank-N.log")
        ->type_name("DIR");
    app_.add_option("--show", show_, "ranks whose output is shown: all, first or failures")
        ->type_name("RANKS");
  }
  switch (command) {
    case Command::run:
      app_.name("dtrain [run]");
      app_.description("Trains a recipe.");
      add_run_options();
      break;
    case Command::check:
      app_.name("dtrain check");
      app_.description("Validates and plans a recipe; runs and writes nothing.");
      break;
    case Command::evaluate:
      app_.name("dtrain eval");
      app_.description("Evaluates weights on the validation data; prints JSON.");
      app_.add_option("--weights", line_.weights,
                      "run folder, checkpoint or safetensors file (default: the output folder)")
          ->type_name("PATH");
      break;
    case Command::sample:
      app_.name("dtrain sample");
      app_.description(
          "Writes text from a trained gpt: the prompt, and what the model adds to it.");
      add_sample_options();
      break;
    case Command::launch:
      app_.name("dtrain launch");
      app_.description(
          "Starts a program as ranks, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,\n"
          "NODE_RANK, MASTER_ADDR and MASTER_PORT set: dtrain launch -n 4 -- PROGRAM ARGUMENTS");
      break;
    default:
      app_.name("dtrain version");
      app_.description("Prints version, compiler, libraries and instruction set.");
  }
}

void CommandParser::add_run_options() {
  app_.add_flag("--resume", line_.resume,
                "go on from the newest checkpoint of the output folder, if there is one");
  app_.add_option("--resume-from", line_.resume_from, "go on from this checkpoint")
      ->type_name("PATH");
  app_.add_flag("--overwrite", line_.overwrite, "remove the run that the output folder holds");
  app_.add_option("--max-restarts", line_.max_restarts,
                  "times to start again from the newest checkpoint after a failure")
      ->type_name("N")
      ->check(CLI::Range(0, 1000000));
}

void CommandParser::add_sample_options() {
  app_.add_option("--weights", line_.weights,
                  "run folder, checkpoint or safetensors file (default: the output folder, then "
                  "init.from)")
      ->type_name("PATH");
  app_.add_option("--prompt", line_.prompt,
                  "text to begin with; for a vocabulary above 256, numbers of tokens (default: an "
                  "empty line)")
      ->type_name("TEXT");
  app_.add_option("--tokens", line_.tokens, "tokens to add (default 256)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  app_.add_option("--temperature", line_.sampling.temperature,
                  "below 1 likelier, above 1 more varied, 0 the likeliest always (default 1)")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1e6));
  app_.add_option("--top-k", line_.sampling.top_k, "draw from the K likeliest tokens; 0: from all")
      ->type_name("K")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31));
  app_.add_option("--seed", line_.sampling.seed, "another seed draws other text (default 0)")
      ->type_name("N");
}

std::size_t CommandParser::leading_options(const std::vector<std::string>& arguments) const {
  std::size_t i = 0;
  while (i < arguments.size() && arguments[i].starts_with('-') && arguments[i] != "--") {
    const std::string& argument = arguments[i];
    const CLI::Option* option = app_.get_option_no_throw(argument);
    const bool takes_value = option != nullptr && option->get_items_expected_max() > 0;
    i += takes_value ? 2 : 1;
  }
  return std::min(i, arguments.size());
}

void CommandParser::fail_on_unknown(const std::string& argument) const {
  const std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : app_.get_options()) {
    for (const std::string& word : option->get_lnames()) known.push_back("--" + word);
  }
  if (name.find('.') != std::string::npos && argument.find('=') != std::string::npos) {
    throw ConfigError(fmt::format("unknown option '{}': overrides have no dashes: {}", argument,
                                  argument.substr(argument.find_first_not_of('-'))));
  }
  const std::string nearest = config_internal::nearest_word(name, known);
  throw ConfigError(fmt::format(
      "unknown option '{}'{}", name,
      nearest.empty() ? fmt::format("; '{} --help' lists what there is", app_.get_name())
                      : fmt::format(": did you mean {}?", nearest)));
}

// An empty value comes from a variable that is not set, and must not mean the default: with
// --resume-from that would be a run from the start.
void CommandParser::check_values() const {
  for (const CLI::Option* option : app_.get_options()) {
    if (option->get_positional() || option->count() == 0) continue;
    const std::string name = "--" + option->get_lnames().front();
    if (option->count() > 1) {
      throw ConfigError(fmt::format("{} is given {} times: give it once", name, option->count()));
    }
    if (option->get_items_expected_max() > 0 && option->results().front().empty()) {
      throw ConfigError(fmt::format("{}: the value is empty; give {}, or leave the option out",
                                    name, option->get_type_name()));
    }
  }
}

void CommandParser::take_positionals() {
  if (line_.command == Command::launch || line_.command == Command::version) {
    if (!positionals_.empty()) {
      throw ConfigError(fmt::format("unexpected argument '{}'", positionals_.front()));
    }
    return;
  }
  if (positionals_.empty()) {
    throw ConfigError(fmt::format("no recipe given: {} CONFIG.yaml", app_.get_name()));
  }
  line_.config = positionals_.front();
  if (line_.config.empty()) {
    throw ConfigError(fmt::format("the recipe's name is empty: {} CONFIG.yaml", app_.get_name()));
  }
  line_.overrides.assign(positionals_.begin() + 1, positionals_.end());
  const std::size_t equals = line_.config.find('=');
  if (equals != std::string::npos && line_.config.find('/') > equals) {
    throw ConfigError(fmt::format("'{}' stands before the recipe: {} CONFIG.yaml {}", line_.config,
                                  app_.get_name(), line_.config));
  }
  for (const std::string& override : line_.overrides) {
    if (override.find('=') == std::string::npos) {
      throw ConfigError(fmt::format(
          "'{}' is neither an option nor an override like optimizer.lr=0.05; the recipe is '{}'",
          override, line_.config));
    }
  }
}

CommandLine CommandParser::parse(std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app_.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    line_.command = Command::help;
    line_.help = app_.help();
    return line_;
  } catch (const CLI::ArgumentMismatch& error) {
    // "--nproc: 1 required N missing"
    const std::string text = error.what();
    throw ConfigError(text.substr(0, text.find(':')) + " needs a value");
  } catch (const CLI::ParseError& error) {
    throw ConfigError(error.what());
  }
  for (const std::string& extra : app_.remaining()) {
    if (extra.starts_with('-') && extra.size() > 1) fail_on_unknown(extra);
    positionals_.push_back(extra);
  }
  check_values();
  take_positionals();
  line_.nproc = parse_nproc(nproc_);
  if (device_ != "cpu") {
    throw ConfigError(fmt::format("--device '{}' is not in this build, which has cpu", device_));
  }
  const std::map<std::string, ShownRanks> shows = {
      {"all", ShownRanks::all}, {"first", ShownRanks::first}, {"failures", ShownRanks::failures}};
  if (!shows.contains(show_)) {
    throw ConfigError(fmt::format("--show '{}' is not all, first or failures", show_));
  }
  line_.shown = shows.at(show_);
  if (line_.overwrite && (line_.resume || !line_.resume_from.empty())) {
    throw ConfigError("--overwrite removes what --resume would go on from: give one of them");
  }
  if (line_.resume && !line_.resume_from.empty()) {
    throw ConfigError("--resume and --resume-from name different checkpoints: give one of them");
  }
  return line_;
}

CommandLine parse_launch(const std::vector<std::string>& arguments) {
  CommandParser parser(Command::launch);
  std::size_t own = parser.leading_options(arguments);
  CommandLine line = parser.parse({arguments.begin(), arguments.begin() + own});
  if (line.command == Command::help) return line;
  if (own < arguments.size() && arguments[own] == "--") ++own;
  line.program.assign(arguments.begin() + own, arguments.end());
  if (line.program.empty()) {
    throw ConfigError("no program given: dtrain launch --nproc 4 -- PROGRAM ARGUMENTS");
  }
  if (line.program.front().empty()) {
    throw ConfigError("the program's name is empty: dtrain launch --nproc 4 -- PROGRAM ARGUMENTS");
  }
  return line;
}

CommandLine help(const std::vector<std::string>& words) {
  CommandLine line;
  line.command = Command::help;
  line.help = overview;
  if (words.empty()) return line;
  if (words.front() == "config") {
    line.command = Command::help_config;
    return line;
  }
  const auto found = command_words().find(words.front());
  if (found == command_words().end()) {
    throw ConfigError(fmt::format("no help on '{}'; 'dtrain help' lists the commands", words[0]));
  }
  if (found->second == Command::help || found->second == Command::rank) return line;
  return CommandParser(found->second).parse({"--help"});
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw ConfigError("no recipe given: dtrain CONFIG.yaml; see dtrain help");
  if (arguments.front() == "--help" || arguments.front() == "-h") return help({});
  if (arguments.front() == "--version") return CommandParser(Command::version).parse({});

  // Options may stand before the command: dtrain --nproc 2 check c.yaml.
  const std::size_t first = CommandParser(Command::run).leading_options(arguments);
  Command command = Command::run;
  std::vector<std::string> rest = arguments;
  if (first < arguments.size()) {
    const auto found = command_words().find(arguments[first]);
    if (found != command_words().end()) {
      command = found->second;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(first));
    }
  }
  switch (command) {
    case Command::launch:
      return parse_launch(rest);
    case Command::help:
      return help(rest);
    case Command::rank: {
      CommandLine line;
      line.command = Command::rank;
      return line;
    }
    default:
      return CommandParser(command).parse(rest);
  }
}

}  // namespace dtrain
