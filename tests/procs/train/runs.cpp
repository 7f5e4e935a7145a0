#include "runs.h"

#include <cmath>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/core/checkpoint/safetensors.h"

namespace dtrain {
namespace fs = std::filesystem;
using nlohmann::json;

std::vector<json> read_log(const fs::path& path) {
  std::vector<json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    json object = json::parse(line, nullptr, false);
    // While the run goes on, the last line may be half written.
    if (!object.is_discarded()) lines.push_back(std::move(object));
  }
  return lines;
}

json RunFiles::summary() const {
  return json::parse(read_file(folder / "summary.json"));
}

std::vector<json> RunFiles::events(const std::string& name) const {
  std::vector<json> found;
  for (json& object : read_log(folder / "log.jsonl")) {
    if (object.at("event") == name) found.push_back(std::move(object));
  }
  return found;
}

std::vector<double> RunFiles::each_step(const std::string& field) const {
  std::vector<double> values;
  for (const json& step : events("step")) values.push_back(step.at(field));
  return values;
}

fs::path RunFiles::checkpoint(std::int64_t step) const {
  return checkpoints() / checkpoint_name(step);
}

float RunFiles::weight(std::int64_t step) const {
  const SafetensorsFile file(checkpoint(step) / "model.safetensors");
  float value = std::nanf("");
  EXPECT_EQ(file.entries().size(), 1);
  file.read(file.entries().at(0), std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

Runs::Runs()
    : temporary_(folder_.path() / "tmp"),
      mark_("DTRAIN_TEST_MARK=" + folder_.path().string()),
      leftovers_(mark_) {
  fs::create_directory(temporary_);
}

void Runs::TearDown() {
  // Ranks of a launcher that a failed test killed end a moment later.
  wait_until_gone(5);
  EXPECT_EQ(leftovers_.found(temporary_), "");
}

fs::path Runs::write(const std::string& name, const std::string& text) const {
  const fs::path path = folder_.path() / name;
  std::ofstream(path) << text;
  return path;
}

RunFiles Runs::new_output() {
  return {folder_.path() / fmt::format("run-{}", outputs_++)};
}

std::vector<std::string> Runs::command(const std::string& yaml, int nproc, const RunFiles& output,
                                       const std::vector<std::string>& extra) {
  const fs::path recipe = write(fmt::format("recipe-{}.yaml", recipes_++), yaml);
  std::vector<std::string> arguments = {program_, "--nproc", std::to_string(nproc), recipe,
                                        "output=" + output.folder.string()};
  arguments.insert(arguments.end(), extra.begin(), extra.end());
  return arguments;
}

Program Runs::start(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& variables) const {
  std::vector<std::string> all = {mark_, "TMPDIR=" + temporary_.string()};
  all.insert(all.end(), variables.begin(), variables.end());
  return Program(arguments, all);
}

Outcome Runs::finish(const std::vector<std::string>& arguments,
                     const std::vector<std::string>& variables) const {
  return start(arguments, variables).wait();
}

RunFiles Runs::train(const std::string& yaml, int nproc, const std::vector<std::string>& extra) {
  RunFiles output = new_output();
  train_in(output, yaml, nproc, extra);
  return output;
}

void Runs::train_in(const RunFiles& output, const std::string& yaml, int nproc,
                    const std::vector<std::string>& extra) {
  const Outcome outcome = finish(command(yaml, nproc, output, extra));
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  ASSERT_EQ(output.summary().at("status"), "done");
}

bool Runs::wait_for_step(const RunFiles& run, std::int64_t step, bool checkpoint, double seconds) {
  const Deadline deadline(seconds);
  while (!deadline.passed()) {
    const auto steps = run.events("step");
    if (!steps.empty() && steps.back().at("step") >= step &&
        (!checkpoint || fs::exists(run.checkpoint(step)))) {
      return true;
    }
    ::usleep(5000);
  }
  return false;
}

bool Runs::wait_until_gone(double seconds) const {
  const Deadline deadline(seconds);
  while (!processes_marked(mark_).empty()) {
    if (deadline.passed()) return false;
    ::usleep(10'000);
  }
  return true;
}

void expect_same_bits(const RunFiles& a, const RunFiles& b, const std::string& what) {
  EXPECT_EQ(a.digest(), b.digest()) << what;
  ASSERT_EQ(a.steps(), b.steps()) << what;
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string left = read_file(a.last_checkpoint() / file);
    EXPECT_GT(left.size(), 8);
    EXPECT_TRUE(left == read_file(b.last_checkpoint() / file)) << file << ": " << what;
  }
}

}  // namespace dtrain
