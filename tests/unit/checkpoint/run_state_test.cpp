#include "dtrain/core/checkpoint/run_state.h"

#include <cmath>
#include <limits>

#include "checkpoint_testing.h"

namespace dtrain {
namespace {

checkpoint::RunState good_state() {
  checkpoint::RunState state = make_snapshot(10).state;
  state.set_run_id("run-1");
  return state;
}

std::string error_of(const checkpoint::RunState& state) {
  return checkpoint_error_of([&] { parse_run_state(state.SerializeAsString(), "S"); });
}

TEST(RunState, ComesBack) {
  checkpoint::RunState state = good_state();
  state.set_recipe("model: {name: mlp}\n");
  state.set_validation(R"({"loss": 0.25, "accuracy": 0.9})");
  state.mutable_best()->set_loss(0.25);
  state.mutable_best()->set_step(9);
  const std::string bytes = serialize_run_state(state, "S");
  EXPECT_EQ(parse_run_state(bytes, "S").SerializeAsString(), state.SerializeAsString());
  EXPECT_EQ(serialize_run_state(state, "S"), bytes);
}

TEST(RunState, MissingFieldsAreNamed) {
  const auto* type = checkpoint::RunState::descriptor();
  for (const char* name : {"step", "batch", "epoch", "batch_in_epoch", "samples_seen", "run_id"}) {
    checkpoint::RunState state = good_state();
    state.GetReflection()->ClearField(&state, type->FindFieldByName(name));
    EXPECT_EQ(error_of(state), fmt::format("S: field {} is missing", name));
    EXPECT_EQ(checkpoint_error_of([&] { serialize_run_state(state, "S"); }),
              fmt::format("S: field {} is missing", name));
  }
  EXPECT_EQ(checkpoint_error_of([] { parse_run_state("", "S"); }), "S: field step is missing");
}

TEST(RunState, CountsAreChecked) {
  checkpoint::RunState state = good_state();
  state.set_step(-1);
  EXPECT_EQ(error_of(state), "S: field step: -1 is not a count (0 to 2^53)");
  state = good_state();
  state.set_samples_seen(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(error_of(state),
            "S: field samples_seen: 9223372036854775807 is not a count (0 to 2^53)");
  state = good_state();
  state.mutable_best()->set_step(-5);
  EXPECT_EQ(error_of(state), "S: field best.step: -5 is not a count (0 to 2^53)");
  state = good_state();
  state.set_step(12);
  EXPECT_EQ(error_of(state), "S: field step: 12 is above batch, 11");
  state = good_state();
  state.set_batch_in_epoch(12);
  EXPECT_EQ(error_of(state), "S: field batch_in_epoch: 12 is above batch, 11");
}

TEST(RunState, DoublesAreFinite) {
  checkpoint::RunState state = good_state();
  state.set_last_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(error_of(state), "S: field last_loss: nan is not finite");
  state = good_state();
  state.mutable_best()->set_loss(std::numeric_limits<double>::infinity());
  EXPECT_EQ(error_of(state), "S: field best.loss: inf is not finite");
  state = good_state();
  state.set_train_seconds(-1);
  EXPECT_EQ(error_of(state), "S: field train_seconds: -1 is negative");
}

TEST(RunState, TextIsTextAndJsonIsJson) {
  checkpoint::RunState state = good_state();
  state.set_recipe("\xff\xfe");
  EXPECT_EQ(error_of(state), "S: field recipe is not valid UTF-8");
  state = good_state();
  state.set_validation("{\"loss\": }");
  EXPECT_EQ(error_of(state), "S: field validation is not JSON of an evaluation");
  state = good_state();
  state.mutable_best()->set_metrics(std::string(100'000, '[') + std::string(100'000, ']'));
  EXPECT_EQ(error_of(state), "S: field best.metrics is not JSON of an evaluation");
}

TEST(RunState, UnknownAndDamaged) {
  checkpoint::RunState state = good_state();
  state.set_format(2);
  EXPECT_EQ(error_of(state), "S: field format: 2 is not 1: written by another version of dtrain");
  std::string bytes = good_state().SerializeAsString();
  EXPECT_EQ(checkpoint_error_of([&] { parse_run_state(bytes + "\xf8\x07\x01", "S"); }),
            "S: unknown field 127: damaged, or written by a newer dtrain");
  EXPECT_EQ(checkpoint_error_of([&] { parse_run_state(bytes + "\xff", "S"); }),
            "S: not the state of a run: its bytes are damaged");
  // A length far beyond the bytes.
  EXPECT_EQ(checkpoint_error_of(
                [&] { parse_run_state(bytes + std::string("\x42\xff\xff\xff\x7f", 5), "S"); }),
            "S: not the state of a run: its bytes are damaged");
}

}  // namespace
}  // namespace dtrain
