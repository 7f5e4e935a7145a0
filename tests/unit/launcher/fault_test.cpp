#include "dtrain/parallel/train/fault.h"

#include <cmath>
#include <signal.h>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/error.h"

namespace dtrain {
namespace {

TEST(ParseFaults, ReadsEveryAction) {
  const auto faults = parse_faults(
      "rank=2,step=5,action=throw; rank=0, step=1, action=exit:7;rank=1,step=2,action=signal:11;"
      "rank=1,step=3,action=stall:2.5;action=nan_grad,step=4,rank=3;rank=3,step=5,action=inf_"
      "grad;");
  ASSERT_EQ(faults.size(), 6u);
  EXPECT_EQ(faults[0].action, FaultAction::throw_error);
  EXPECT_EQ(faults[0].rank, 2);
  EXPECT_EQ(faults[0].step, 5);
  EXPECT_EQ(faults[1].action, FaultAction::exit);
  EXPECT_EQ(faults[1].argument, 7);
  EXPECT_EQ(faults[2].action, FaultAction::signal);
  EXPECT_EQ(faults[2].argument, 11);
  EXPECT_EQ(faults[3].action, FaultAction::stall);
  EXPECT_EQ(faults[3].argument, 2.5);
  EXPECT_EQ(faults[4].action, FaultAction::nan_gradient);
  EXPECT_EQ(faults[5].action, FaultAction::inf_gradient);
  EXPECT_TRUE(parse_faults("").empty());
}

TEST(ParseFaults, ShowsTheTextAndTheFormExpected) {
  for (const char* bad :
       {"rank=1", "rank=1,step=2", "step=2,action=throw", "rank=1,action=throw",
        "rank=-1,step=2,action=throw", "rank=1,step=0,action=throw", "rank=x,step=1,action=throw",
        "rank=1,step=1,action=jump", "rank=1,step=1,action=exit", "rank=1,step=1,action=exit:256",
        "rank=1,step=1,action=signal:0", "rank=1,step=1,action=stall:-1",
        "rank=1,step=1,action=stall:nan", "rank=1,step=1,action=throw:1", "rank=1,step=1,node=2",
        "everything"}) {
    try {
      parse_faults(bad);
      ADD_FAILURE() << bad;
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(bad), std::string::npos) << text;
      EXPECT_NE(text.find("action=throw|exit:CODE"), std::string::npos) << text;
    }
  }
}

TEST(FaultsFromEnvironment, AreThoseOfTheRankInTheFirstAttempt) {
  ::setenv("DTRAIN_FAULT", "rank=1,step=2,action=throw;rank=0,step=2,action=throw", 1);
  ::unsetenv("DTRAIN_RESTART");
  EXPECT_EQ(faults_from_environment(1).size(), 1u);
  EXPECT_EQ(faults_from_environment(2).size(), 0u);
  ::setenv("DTRAIN_RESTART", "0", 1);
  EXPECT_EQ(faults_from_environment(1).size(), 1u);
  ::setenv("DTRAIN_RESTART", "1", 1);
  EXPECT_EQ(faults_from_environment(1).size(), 0u);
  ::unsetenv("DTRAIN_FAULT");
  ::unsetenv("DTRAIN_RESTART");
  EXPECT_EQ(faults_from_environment(1).size(), 0u);
}

TEST(Inject, HappensAtItsStepOnly) {
  const auto faults = parse_faults("rank=0,step=3,action=throw");
  EXPECT_NO_THROW(inject_before_step(faults, 2));
  EXPECT_NO_THROW(inject_before_step(faults, 4));
  EXPECT_THROW(inject_before_step(faults, 3), Error);
}

TEST(Inject, Stalls) {
  const TimePoint start = Clock::now();
  inject_before_step(parse_faults("rank=0,step=1,action=stall:0.05"), 1);
  EXPECT_GE(seconds_since(start), 0.05);
}

TEST(InjectDeathTest, EndsTheProcess) {
  EXPECT_EXIT(inject_before_step(parse_faults("rank=0,step=1,action=exit:7"), 1),
              testing::ExitedWithCode(7), "");
  EXPECT_EXIT(inject_before_step(parse_faults("rank=0,step=1,action=signal:9"), 1),
              testing::KilledBySignal(SIGKILL), "");
}

TEST(Inject, SpoilsOneGradient) {
  std::vector<float> gradients(5, 1.0f);
  inject_into_gradients(parse_faults("rank=0,step=2,action=nan_grad"), 1, gradients);
  EXPECT_EQ(gradients, std::vector<float>(5, 1.0f));
  inject_into_gradients(parse_faults("rank=0,step=2,action=nan_grad"), 2, gradients);
  EXPECT_TRUE(std::isnan(gradients[0]));
  inject_into_gradients(parse_faults("rank=0,step=2,action=inf_grad"), 2, gradients);
  EXPECT_TRUE(std::isinf(gradients[0]));
  EXPECT_EQ(gradients[1], 1.0f);
  inject_into_gradients(parse_faults("rank=0,step=2,action=inf_grad"), 2, {});
}

}  // namespace
}  // namespace dtrain
