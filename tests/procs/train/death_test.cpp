// Every fault on every rank: the job ends soon, with the right code and the right rank named, and
// nothing is left behind.
#include "runs.h"
#include <fmt/format.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/checkpoint/checkpoint.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* recipe = R"(
model: {name: convnet, channels: [4], hidden: 16, dropout: 0.1}
data: {train: {kind: glyphs, size: 256}, workers: 2}
batch: {global: 32, micro: 4}
optimizer: {name: adam, lr: 0.001}
train: {steps: 40}
checkpoint: {every_steps: 2}
parallel: {timeout: 5}
)";

struct Fault {
  const char* name;
  const char* action;
  int code;
  const char* key;  // of `failure`
  int value;        // of that key, if it is a number
  double patience = 0;
};

class Death : public Runs, public testing::WithParamInterface<Fault> {};

TEST_P(Death, IsToldWithRankAndStep) {
  const Fault& fault = GetParam();
  for (int rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    const RunFiles run = new_output();
    Program program =
        start(command(recipe, 4, run),
              {fmt::format("DTRAIN_FAULT=rank={},step=5,action={}", rank, fault.action)});
    ASSERT_TRUE(wait_for_step(run, 4)) << program.error();
    const TimePoint last_step = Clock::now();
    const Outcome outcome = program.wait();
    EXPECT_LT(seconds_since(last_step), 10 + fault.patience);
    EXPECT_EQ(outcome.code, fault.code) << outcome.error;
    EXPECT_EQ(leftovers_.found(temporary_), "");

    const json summary = run.summary();
    EXPECT_EQ(summary.at("status"), "failed");
    const json& failure = summary.at("failure");
    EXPECT_EQ(failure.at("rank"), rank) << outcome.error;
    EXPECT_EQ(failure.at("step"), 5) << outcome.error;
    EXPECT_FALSE(failure.at("host").get<std::string>().empty());
    EXPECT_GT(failure.at("pid"), 1);
    ASSERT_TRUE(failure.contains(fault.key)) << failure;
    if (failure.at(fault.key).is_number()) {
      EXPECT_EQ(failure.at(fault.key), fault.value);
    }
    // The others are consequences, each of them listed.
    EXPECT_EQ(outcome.error.find(fmt::format("error: rank {} failed (host ", rank)),
              outcome.error.find("error: rank "))
        << outcome.error;
    const std::size_t followers = outcome.error.find(fmt::format("stopped because rank {}", rank));
    ASSERT_NE(followers, std::string::npos) << outcome.error;
    for (int other = 0; other < 4; ++other) {
      if (other == rank) continue;
      EXPECT_NE(outcome.error.find(fmt::format("rank {} (pid ", other), followers),
                std::string::npos)
          << outcome.error;
    }
    // Nothing of the step in which it happened is kept.
    EXPECT_EQ(run.each_step("step").back(), 4);
    const auto newest = find_newest_checkpoint(run.checkpoints());
    ASSERT_TRUE(newest || rank == 0);
    if (newest) {
      EXPECT_LE(read_run_state(*newest).step(), 4);
    }
  }
}

// A stall is found after parallel.timeout, so it has those 5 s and the rest has the usual 10.
INSTANTIATE_TEST_SUITE_P(All, Death,
                         testing::Values(Fault{"Throw", "throw", 1, "error", 0},
                                         Fault{"Exit", "exit:7", 7, "exit_code", 7},
                                         Fault{"Crash", "signal:11", 139, "signal", 11},
                                         Fault{"Kill", "signal:9", 137, "signal", 9},
                                         Fault{"Stall", "stall:30", 1, "error", 0},
                                         Fault{"NanGradient", "nan_grad", 1, "error", 0},
                                         Fault{"InfGradient", "inf_grad", 1, "error", 0}),
                         [](const auto& info) { return info.param.name; });

class BadSamples : public Runs {
 protected:
  BadSamples() { program_ = TRAIN_WITH_TROUBLE; }
  static std::string yaml(const std::string& data) {
    return "model: {name: mlp, inputs: 4, hidden: [8], outputs: 4}\n"
           "data: {train: {kind: trouble, " +
           data + R"(}, shuffle: false}
batch: {global: 16, micro: 2}
optimizer: {lr: 0.1}
train: {epochs: 2}
parallel: {virtual_ranks: 8}
)";
  }
};

// C001: sample 37 stands at position 5 of the third batch, in slot 2: rank 1 of 4 reads it.
TEST_F(BadSamples, ABadSampleStopsTheRunAndIsNamed) {
  const RunFiles run = new_output();
  const TimePoint begin = Clock::now();
  const Outcome outcome = finish(command(yaml("bad: [37]"), 4, run));
  EXPECT_LT(seconds_since(begin), 10);
  EXPECT_EQ(outcome.code, 1) << outcome.error;
  const json failure = run.summary().at("failure");
  EXPECT_EQ(failure.at("rank"), 1);
  EXPECT_EQ(failure.at("step"), 3);
  const std::string error = failure.at("error");
  EXPECT_NE(error.find("/pictures/trouble.bin"), std::string::npos) << error;
  EXPECT_NE(error.find("37"), std::string::npos) << error;
  EXPECT_NE(error.find("the file is empty"), std::string::npos) << error;
  // It is what the first line says, and what the others give as their reason.
  EXPECT_NE(outcome.error.find("): /pictures/trouble.bin"), std::string::npos) << outcome.error;
  for (int other : {0, 2, 3}) {
    const std::string log = read_file(run.folder / fmt::format("rank-{}.log", other));
    EXPECT_NE(log.find("/pictures/trouble.bin"), std::string::npos) << log;
    EXPECT_NE(log.find("rank 1"), std::string::npos) << log;
  }
}

// C009: skipped samples leave their places empty, on any number of processes, and are listed.
TEST_F(BadSamples, SkippedSamplesAreListedAndShiftNothing) {
  const std::string bad = yaml("bad: [3, 37, 38, 39]");
  const std::vector<std::string> skip = {"data.on_bad_sample=skip"};
  const RunFiles one = train(bad, 1, skip);
  EXPECT_EQ(one.steps(), 8);
  EXPECT_EQ(one.summary().at("samples_seen"), 2 * 60);
  for (const int nproc : {2, 3, 4}) {
    const RunFiles run = new_output();
    const Outcome outcome = finish(command(bad, nproc, run, skip));
    ASSERT_EQ(outcome.code, 0) << outcome.error;
    expect_same_bits(run, one, fmt::format("{} processes", nproc));
    const std::string console = outcome.output + outcome.error;
    for (const int sample : {3, 37, 38, 39}) {
      const std::string text = fmt::format("sample {} skipped: /pictures/trouble.bin", sample);
      const std::size_t first = console.find(text);
      EXPECT_NE(first, std::string::npos) << text << "\n" << console;
      EXPECT_EQ(console.find(text, first + 1), std::string::npos) << "told twice: " << text;
    }
  }
}

// C029: reading that does not end is an error after data.timeout, and names what is read.
TEST_F(BadSamples, ABlockedReaderIsNamedAfterTheTimeout) {
  for (const char* workers : {"data.workers=1", "data.workers=3"}) {
    const RunFiles run = new_output();
    const TimePoint begin = Clock::now();
    const Outcome outcome =
        finish(command(yaml("blocked: [37], seconds: 600"), 4, run, {"data.timeout=2", workers}));
    EXPECT_LT(seconds_since(begin), 12);
    EXPECT_EQ(outcome.code, 1) << outcome.error;
    const json failure = run.summary().at("failure");
    EXPECT_EQ(failure.at("rank"), 1) << outcome.error;
    EXPECT_EQ(failure.at("step"), 3) << outcome.error;
    const std::string error = failure.at("error");
    EXPECT_NE(error.find("/pictures/trouble.bin: record 37"), std::string::npos) << error;
    EXPECT_NE(error.find("data.timeout"), std::string::npos) << error;
    EXPECT_EQ(leftovers_.found(temporary_), "");
  }
}

// A slow reader is no error while it is faster than the timeout, and changes no bit.
TEST_F(BadSamples, ASlowReaderIsWaitedFor) {
  const RunFiles slow = train(yaml("blocked: [37], seconds: 1.5"), 2, {"parallel.timeout=60"});
  EXPECT_EQ(slow.digest(), train(yaml("seconds: 0"), 2).digest());
  double waited = 0;
  for (const double ms : slow.each_step("data_wait_ms")) waited += ms;
  EXPECT_GT(waited, 500);
}

}  // namespace
}  // namespace dtrain
