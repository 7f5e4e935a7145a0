#include "dtrain/core/optim/schedule.h"

#include <string>

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"
#include "dtrain/tests/parity/values.h"

namespace dtrain {
namespace {

config::Schedule options_of(const std::string& json) {
  config::Schedule options;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &options);
  EXPECT_TRUE(status.ok()) << status;
  return options;
}

std::vector<double> rates(const std::string& json, double lr, std::int64_t steps) {
  const Schedule schedule(options_of(json), lr, steps);
  std::vector<double> result;
  for (std::int64_t step = 0; step < steps; ++step) result.push_back(schedule.rate(step));
  return result;
}

TEST(ScheduleTest, ValuesArePyTorchs) {
  const nlohmann::json values = parity::read("schedules.json");
  ASSERT_GE(values["cases"].size(), 11U);
  for (const nlohmann::json& one : values["cases"]) {
    const std::string options = one["options"].dump();
    SCOPED_TRACE(options);
    const std::vector<double> actual = rates(options, values["lr"], one["steps"]);
    ASSERT_EQ(actual.size(), one["rates"].size());
    for (std::size_t step = 0; step < actual.size(); ++step) {
      const double expected = one["rates"][step];
      EXPECT_NEAR(actual[step], expected, 1e-12 * 0.4 + 1e-12 * expected) << "step " << step;
    }
  }
}

// Case C023: 64 samples in steps of 16 are four steps, however they are shared out.
TEST(ScheduleTest, LinearDecayOverFourStepsUsesFourRates) {
  const std::vector<double> actual = rates(R"({"name": "linear"})", 0.4, 4);
  const std::vector<double> expected = {0.4, 0.3, 0.2, 0.1};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(actual[i], expected[i], 1e-15);
}

TEST(ScheduleTest, WarmUpRisesFromItsStartAndThenTheScheduleBegins) {
  const std::vector<double> actual =
      rates(R"({"name": "constant", "warmup_steps": 4, "warmup_start": 0.5})", 2, 6);
  EXPECT_EQ(actual, (std::vector<double>{1, 1.25, 1.5, 1.75, 2, 2}));
  const std::vector<double> from_zero = rates(R"({"name": "linear", "warmup_steps": 2})", 1, 6);
  EXPECT_EQ(from_zero, (std::vector<double>{0, 0.5, 1, 0.75, 0.5, 0.25}));
}

TEST(ScheduleTest, StaysAtTheLastRateAfterTheEnd) {
  for (const std::string name : {"linear", "cosine", "polynomial"}) {
    const Schedule schedule(options_of(R"({"min_lr": 0.1, "name": ")" + name + "\"}"), 1, 10);
    EXPECT_NEAR(schedule.rate(10), 0.1, 1e-15);
    EXPECT_EQ(schedule.rate(10), schedule.rate(1000));
  }
  const Schedule cycle(options_of(R"({"name": "one_cycle"})"), 1, 10);
  EXPECT_NEAR(cycle.rate(9), 1 / 25.0 / 1e4, 1e-15);
  EXPECT_EQ(cycle.rate(9), cycle.rate(1000));
}

TEST(ScheduleTest, ShortRunsHaveFiniteRates) {
  for (const std::string name : {"constant", "cosine", "linear", "polynomial", "one_cycle"}) {
    for (const std::int64_t steps : {0, 1, 2, 3}) {
      for (const std::int64_t warmup : {0, 1, 5}) {
        for (const std::string start : {"0", "0.3", "1"}) {
          const Schedule schedule(
              options_of(R"({"pct_start": )" + start + R"(, "warmup_steps": )" +
                         std::to_string(warmup) + R"(, "name": ")" + name + "\"}"),
              1, steps);
          for (std::int64_t step = 0; step < 8; ++step) {
            const double rate = schedule.rate(step);
            EXPECT_TRUE(rate >= 0 && rate <= 1)
                << name << " " << steps << " " << step << ": " << rate;
          }
        }
      }
    }
  }
}

TEST(ScheduleTest, OneCyclePeaksAtTheLearningRateUnlessToldOtherwise) {
  const auto peak = [](const std::string& json) {
    const std::vector<double> all = rates(json, 0.5, 100);
    return *std::max_element(all.begin(), all.end());
  };
  EXPECT_DOUBLE_EQ(peak(R"({"name": "one_cycle"})"), 0.5);
  EXPECT_DOUBLE_EQ(peak(R"({"name": "one_cycle", "max_lr": 3})"), 3);
}

TEST(ScheduleTest, MissingAndUnknownValuesAreNamed) {
  const auto message = [](const std::string& json) -> std::string {
    try {
      Schedule(options_of(json), 1, 10);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message(R"({"name": "step"})").find("schedule.step_size"), std::string::npos);
  EXPECT_NE(message(R"({"name": "multistep"})").find("schedule.milestones"), std::string::npos);
  EXPECT_NE(message(R"({"name": "cosin"})").find("'cosin' is not one of constant"),
            std::string::npos);
}

}  // namespace
}  // namespace dtrain
