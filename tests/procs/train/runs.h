// Training runs of the real program, each in a folder of its own, and what they wrote.
//
//   class Sameness : public Runs {};
//   TEST_F(Sameness, ...) { EXPECT_EQ(train(yaml, 3).digest(), train(yaml, 1).digest()); }
//
// Every test ends with a look at what its jobs left behind.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "leftovers.h"
#include "program.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dtrain/core/base/files.h"

namespace dtrain {

// A run's output folder.
struct RunFiles {
  std::filesystem::path folder;

  nlohmann::json summary() const;
  std::string digest() const { return summary().at("weights_digest"); }
  std::int64_t steps() const { return summary().at("steps"); }
  // The log's objects whose "event" is `name`; nothing if there is no log yet.
  std::vector<nlohmann::json> events(const std::string& name) const;
  // Field of each step, in order.
  std::vector<double> each_step(const std::string& field) const;
  std::filesystem::path checkpoints() const { return folder / "checkpoints"; }
  std::filesystem::path checkpoint(std::int64_t step) const;
  std::filesystem::path last_checkpoint() const { return checkpoint(steps()); }
  // The only weight of a model y = w x.
  float weight(std::int64_t step) const;
  float weight() const { return weight(steps()); }
};

class Runs : public testing::Test {
 protected:
  Runs();
  void TearDown() override;

  // Writes a recipe, or data, and returns its path.
  std::filesystem::path write(const std::string& name, const std::string& text) const;
  // A new output folder; it does not exist yet.
  RunFiles new_output();

  // `program` [--nproc N] recipe output=FOLDER extra...: overrides and options.
  std::vector<std::string> command(const std::string& yaml, int nproc, const RunFiles& output,
                                   const std::vector<std::string>& extra = {});
  Program start(const std::vector<std::string>& arguments,
                const std::vector<std::string>& variables = {}) const;
  Outcome finish(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& variables = {}) const;

  // Trains to the end, in a new folder or in `output`, and expects exit code 0.
  RunFiles train(const std::string& yaml, int nproc, const std::vector<std::string>& extra = {});
  void train_in(const RunFiles& output, const std::string& yaml, int nproc,
                const std::vector<std::string>& extra = {});

  // Waits until the run's log holds a step of that number or above, and its checkpoint is there.
  static bool wait_for_step(const RunFiles& run, std::int64_t step, bool checkpoint = false,
                            double seconds = 60);
  // Waits until no process of this test's jobs is left; false after `seconds`.
  bool wait_until_gone(double seconds) const;

  std::string program_ = DTRAIN_PROGRAM;
  TemporaryDirectory folder_;
  std::filesystem::path temporary_;  // TMPDIR of the jobs
  std::string mark_;                 // in their environment
  Leftovers leftovers_;

 private:
  int recipes_ = 0;
  int outputs_ = 0;
};

// Expects the files of the two folders' last checkpoints that hold numbers to be equal.
void expect_same_bits(const RunFiles& a, const RunFiles& b, const std::string& what);

// One JSON object per line.
std::vector<nlohmann::json> read_log(const std::filesystem::path& path);

}  // namespace dtrain
