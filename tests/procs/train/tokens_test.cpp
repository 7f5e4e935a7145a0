// Case C093: token files larger than memory, and files that are replaced during a run.
#include <chrono>
#include <cstdint>
#include <fstream>

#include "runs.h"
#include <fmt/format.h>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

class LargeTokens : public Runs {
 protected:
  // A sparse file of 6 GiB: 3 Gi tokens of 16 bits, all 0 but the last ones.
  std::string recipe() const {
    const fs::path path = folder_.path() / "large.bin";
    std::ofstream(path).close();
    fs::resize_file(path, std::uintmax_t{6} << 30);
    return fmt::format(R"(
model: {{name: gpt, layers: 1, width: 8, heads: 1, context: 64, vocabulary: 100}}
data:
  train: {{kind: tokens, path: {}, dtype: u16, offset: 99.999%}}
  workers: 2
batch: {{global: 16, micro: 2}}
train: {{steps: 400}}
checkpoint: {{every_steps: 0}}
)",
                       path.string());
  }
};

TEST_F(LargeTokens, TakeNoMemory) {
  const RunFiles run = train(recipe(), 2, {"train.steps=4"});
  std::uint64_t resident = 0;
  for (const auto& bytes : run.summary().at("peak_memory_bytes")) {
    resident += bytes.get<std::uint64_t>();
  }
  EXPECT_LT(resident, std::uint64_t{500} << 20);
}

TEST_F(LargeTokens, AFileThatIsCutDuringARunIsAnErrorNotASignal) {
  const RunFiles run = new_output();
  Program program = start(command(recipe(), 2, run, {"train.steps=1000000"}));
  ASSERT_TRUE(wait_for_step(run, 3));
  fs::resize_file(folder_.path() / "large.bin", 1 << 20);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 1) << outcome.error;
  EXPECT_NE(outcome.error.find("large.bin: record "), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find("became shorter while it was in use"), std::string::npos)
      << outcome.error;
}

}  // namespace
}  // namespace dtrain
