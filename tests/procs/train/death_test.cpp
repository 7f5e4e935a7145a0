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
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.action;
}

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
    EXPECT_LT(seconds_since(last_step), 10);
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
    const std::size_t headline =
        outcome.error.find(fmt::format("\nerror: rank {} failed (host ", rank));
    ASSERT_NE(headline, std::string::npos) << outcome.error;
    EXPECT_EQ(outcome.error.find(" failed (host ", headline + 30), std::string::npos)
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

INSTANTIATE_TEST_SUITE_P(All, Death,
                         testing::Values(Fault{"Throw", "throw", 1, "error", 0},
                                         Fault{"Exit", "exit:7", 7, "exit_code", 7},
                                         Fault{"Crash", "signal:11", 139, "signal", 11},
                                         Fault{"Kill", "signal:9", 137, "signal", 9},
                                         Fault{"Stall", "stall:30", 1, "error", 0},
                                         Fault{"NanGradient", "nan_grad", 1, "error", 0},
                                         Fault{"InfGradient", "inf_grad", 1, "error", 0}),
                         [](const auto& info) { return info.param.name; });

// The exit code tells how the job ended even where the summary cannot.
TEST_F(Runs, ASummaryThatCannotBeWrittenHidesNoFailure) {
  const RunFiles run = new_output();
  std::filesystem::create_directories(run.folder / "summary.json.tmp");
  const Outcome outcome =
      finish(command(recipe, 2, run), {"DTRAIN_FAULT=rank=1,step=2,action=exit:7"});
  EXPECT_EQ(outcome.code, 7) << outcome.error;
  EXPECT_NE(outcome.error.find("rank 1 failed"), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find("summary.json.tmp: cannot create: Is a directory (EISDIR); "),
            std::string::npos)
      << outcome.error;
}

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

constexpr const char* two_heads = R"(
data: {train: {kind: trouble}}
batch: {global: 16, micro: 4}
optimizer: {name: adamw, lr: 0.1, weight_decay: 0}
train: {steps: 3}
)";

class OddModels : public Runs {
 protected:
  OddModels() { program_ = TRAIN_WITH_TROUBLE; }
};

// C073: found before step 1, and told by name and shape on all ranks.
TEST_F(OddModels, ModelsThatDifferBetweenRanksAreNamed) {
  for (const int rank : {0, 2}) {
    const RunFiles run = new_output();
    const Outcome outcome = finish(command(
        two_heads, 3, run, {"model.name=two_heads", fmt::format("model.wider_on_rank={}", rank)}));
    EXPECT_EQ(outcome.code, 1) << outcome.error;
    for (const int shown : {0, 1, 2}) {
      const std::string log = read_file(run.folder / fmt::format("rank-{}.log", shown));
      EXPECT_NE(log.find(fmt::format("body.bias: rank 0 [{}], rank {} [{}]", rank == 0 ? 9 : 8,
                                     rank == 0 ? 1 : rank, rank == 0 ? 8 : 9)),
                std::string::npos)
          << log;
    }
    EXPECT_TRUE(run.events("step").empty());
    EXPECT_EQ(run.summary().at("status"), "failed");
  }
}

// C004: a parameter that the loss does not depend on is trained with zero gradients and named once,
// or is an error.
TEST_F(OddModels, UnusedParametersAreNamed) {
  const std::string names = "head2.bias, head2.weight";
  const std::string other_order = "head2.weight, head2.bias";
  const auto told = [&](const Outcome& outcome) {
    const std::string console = outcome.output + outcome.error;
    return console.find(names) != std::string::npos ||
           console.find(other_order) != std::string::npos;
  };
  const RunFiles one = new_output(), two = new_output(), refused = new_output();
  const Outcome first = finish(command(two_heads, 1, one, {"model.name=two_heads"}));
  const Outcome second = finish(command(two_heads, 2, two, {"model.name=two_heads"}));
  ASSERT_EQ(first.code, 0) << first.error;
  ASSERT_EQ(second.code, 0) << second.error;
  EXPECT_TRUE(told(first)) << first.error;
  EXPECT_TRUE(told(second)) << second.error;
  expect_same_bits(two, one, "two heads");
  const Outcome third = finish(
      command(two_heads, 2, refused, {"model.name=two_heads", "parallel.unused_parameters=error"}));
  EXPECT_EQ(third.code, 1) << third.error;
  EXPECT_TRUE(told(third)) << third.error;
  EXPECT_NE(third.error.find("unused_parameters: warn"), std::string::npos) << third.error;
}

}  // namespace
}  // namespace dtrain
