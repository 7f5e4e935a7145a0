#include "dtrain/launcher/command_line.h"

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"

namespace dtrain {
namespace {

using Words = std::vector<std::string>;

std::string error_of(const Words& arguments) {
  try {
    parse_command_line(arguments);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(CommandLine, TrainsUnlessACommandIsGiven) {
  const CommandLine line = parse_command_line({"c.yaml"});
  EXPECT_EQ(line.command, Command::run);
  EXPECT_EQ(line.config, "c.yaml");
  EXPECT_EQ(line.nproc, 1);
  EXPECT_FALSE(line.resume);
  EXPECT_FALSE(line.overwrite);
  EXPECT_EQ(line.max_restarts, 0);
  EXPECT_EQ(line.shown, ShownRanks::all);
}

TEST(CommandLine, TakesOptionsAndOverridesInAnyOrder) {
  const Words expected = {"optimizer.lr=0.05", "data.train.shape=[3, 4]", "model.bias=false"};
  for (const Words& words : std::vector<Words>{
           {"--nproc", "2", "c.yaml", expected[0], "--resume", expected[1], expected[2]},
           {"run", "c.yaml", expected[0], expected[1], expected[2], "--nproc=2", "--resume"},
           {"--resume", "-n", "2", "run", "c.yaml", expected[0], expected[1], expected[2]}}) {
    const CommandLine line = parse_command_line(words);
    EXPECT_EQ(line.command, Command::run);
    EXPECT_EQ(line.config, "c.yaml");
    EXPECT_EQ(line.overrides, expected);
    EXPECT_EQ(line.nproc, 2);
    EXPECT_TRUE(line.resume);
  }
}

TEST(CommandLine, KnowsEveryCommand) {
  EXPECT_EQ(parse_command_line({"check", "c.yaml"}).command, Command::check);
  EXPECT_EQ(parse_command_line({"--nproc", "4", "check", "c.yaml"}).nproc, 4);
  const CommandLine eval = parse_command_line({"eval", "c.yaml", "--weights", "w.safetensors"});
  EXPECT_EQ(eval.command, Command::evaluate);
  EXPECT_EQ(eval.weights, "w.safetensors");
  EXPECT_EQ(parse_command_line({"version"}).command, Command::version);
  EXPECT_EQ(parse_command_line({"--version"}).command, Command::version);
  EXPECT_EQ(parse_command_line({"help"}).command, Command::help);
  EXPECT_EQ(parse_command_line({"help", "config"}).command, Command::help_config);
  EXPECT_EQ(parse_command_line({"rank"}).command, Command::rank);
}

TEST(CommandLine, PrintsTheOptionsOfACommand) {
  const CommandLine line = parse_command_line({"run", "--help"});
  EXPECT_EQ(line.command, Command::help);
  EXPECT_TRUE(contains(line.help, "--max-restarts")) << line.help;
  EXPECT_TRUE(contains(parse_command_line({"help", "eval"}).help, "--weights"));
  EXPECT_TRUE(contains(parse_command_line({"launch", "--help"}).help, "--nproc"));
}

TEST(CommandLine, LeavesTheArgumentsOfALaunchedProgramAlone) {
  const CommandLine line =
      parse_command_line({"launch", "--nproc", "4", "--", "prog", "--nproc", "9", "--", "x=1"});
  EXPECT_EQ(line.command, Command::launch);
  EXPECT_EQ(line.nproc, 4);
  EXPECT_EQ(line.program, (Words{"prog", "--nproc", "9", "--", "x=1"}));
  EXPECT_EQ(parse_command_line({"launch", "-n", "2", "prog", "--flag"}).program,
            (Words{"prog", "--flag"}));
  EXPECT_EQ(parse_command_line({"--nproc", "3", "launch", "--", "prog"}).nproc, 3);
  EXPECT_TRUE(contains(error_of({"launch", "--nproc", "4"}), "no program"));
  EXPECT_TRUE(contains(error_of({"launch", "--nprc", "4", "--", "x"}), "did you mean --nproc"));
}

TEST(CommandLine, ChoosesTheNumberOfProcesses) {
  EXPECT_EQ(parse_command_line({"c.yaml", "--nproc", "auto"}).nproc, 0);
  for (const char* bad : {"0", "-1", "2.5", "two", "4097", "2x", ""}) {
    EXPECT_TRUE(contains(error_of({"c.yaml", "--nproc", bad}), "--nproc")) << bad;
  }
}

TEST(CommandLine, NamesTheNearestOption) {
  EXPECT_EQ(error_of({"c.yaml", "--resum"}), "unknown option '--resum': did you mean --resume?");
  EXPECT_EQ(error_of({"c.yaml", "--nporc", "2"}),
            "unknown option '--nporc': did you mean --nproc?");
  EXPECT_TRUE(contains(error_of({"c.yaml", "--optimizer.lr=0.1"}), ": optimizer.lr=0.1"));
}

// As from a variable of the shell that is not set.
TEST(CommandLine, RefusesEmptyValues) {
  EXPECT_EQ(error_of({"c.yaml", "--resume-from", ""}),
            "--resume-from: the value is empty; give PATH, or leave the option out");
  EXPECT_TRUE(contains(error_of({"c.yaml", "--resume-from="}), "--resume-from needs a value"));
  EXPECT_TRUE(contains(error_of({"eval", "c.yaml", "--weights", ""}), "--weights: the value"));
  EXPECT_TRUE(contains(error_of({"c.yaml", "--log-dir", ""}), "--log-dir: the value"));
  EXPECT_TRUE(contains(error_of({"c.yaml", "--device", ""}), "--device: the value"));
  EXPECT_TRUE(contains(error_of({""}), "name is empty"));
  EXPECT_TRUE(contains(error_of({"launch", "--", ""}), "name is empty"));
}

TEST(CommandLine, TakesAnOptionOnce) {
  EXPECT_EQ(error_of({"c.yaml", "--nproc", "1", "-n", "2"}),
            "--nproc is given 2 times: give it once");
  EXPECT_EQ(error_of({"c.yaml", "--resume", "--resume"}),
            "--resume is given 2 times: give it once");
  EXPECT_EQ(error_of({"c.yaml", "--nproc"}), "--nproc needs a value");
}

TEST(CommandLine, RefusesWhatCannotBeMeant) {
  EXPECT_TRUE(contains(error_of({}), "no recipe"));
  EXPECT_TRUE(contains(error_of({"check"}), "no recipe"));
  EXPECT_TRUE(contains(error_of({"c.yaml", "optimizer.lr"}), "'optimizer.lr'"));
  EXPECT_TRUE(contains(error_of({"optimizer.lr=0.1", "c.yaml"}), "before the recipe"));
  EXPECT_TRUE(contains(error_of({"c.yaml", "--overwrite", "--resume"}), "--overwrite"));
  EXPECT_TRUE(contains(error_of({"c.yaml", "--resume", "--resume-from", "x"}), "--resume-from"));
  EXPECT_TRUE(contains(error_of({"c.yaml", "--device", "tpu"}), "'tpu'"));
  EXPECT_TRUE(contains(error_of({"c.yaml", "--show", "some"}), "'some'"));
  EXPECT_TRUE(contains(error_of({"c.yaml", "--max-restarts", "-1"}), "max-restarts"));
  EXPECT_NE(error_of({"c.yaml", "--log-dir"}), "no error");
  EXPECT_NE(error_of({"version", "now"}), "no error");
  EXPECT_NE(error_of({"help", "nothing"}), "no error");
}

}  // namespace
}  // namespace dtrain
