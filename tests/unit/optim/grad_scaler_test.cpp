#include "dtrain/core/optim/grad_scaler.h"

#include <cmath>

#include <gtest/gtest.h>

#include "dtrain/core/base/error.h"

namespace dtrain {
namespace {

TEST(GradScalerTest, StartsHalvesAndDoublesAsPyTorchs) {
  GradScaler scaler(GradScalerOptions{});
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32768);
  for (int i = 0; i < 1999; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_EQ(scaler.state().growth_tracker, 0);
}

TEST(GradScalerTest, AnOverflowStartsTheCountAgain) {
  GradScaler scaler({.initial_scale = 8, .growth_interval = 3});
  scaler.update(false);
  scaler.update(false);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 4);
  scaler.update(false);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 4);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 8);
}

// Case C024: eight overflows, a checkpoint, a resume.
TEST(GradScalerTest, GoesOnFromItsSavedState) {
  const GradScalerOptions options{.growth_interval = 5};
  GradScaler scaler(options);
  for (int i = 0; i < 8; ++i) scaler.update(true);
  scaler.update(false);
  scaler.update(false);
  EXPECT_EQ(scaler.state(), (GradScalerState{.scale = 256, .growth_tracker = 2}));
  GradScaler resumed(options);
  resumed.restore(scaler.state());
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(resumed.state(), scaler.state());
    scaler.update(i == 7);
    resumed.update(i == 7);
  }
}

TEST(GradScalerTest, NeverGrowsToInfinity) {
  GradScaler scaler({.initial_scale = 0x1p127F, .growth_interval = 1});
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 0x1p127F);
}

TEST(GradScalerTest, StaysAtOneWithoutMixedPrecision) {
  GradScaler scaler({.enabled = false, .growth_interval = 1});
  scaler.update(true);
  scaler.update(false);
  scaler.restore({.scale = 256, .growth_tracker = 1});
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(GradScalerTest, RejectsABrokenState) {
  GradScaler scaler(GradScalerOptions{});
  EXPECT_THROW(scaler.restore({.scale = 0}), InternalError);
  EXPECT_THROW(scaler.restore({.scale = NAN}), InternalError);
  EXPECT_THROW(scaler.restore({.scale = 1, .growth_tracker = -1}), InternalError);
}

}  // namespace
}  // namespace dtrain
